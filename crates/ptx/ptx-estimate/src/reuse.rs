//! Finds sectors of global memory that are accessed again: by the warp that accessed them, by
//! another warp of its block, by another block. Loads and stores are followed apart.
//!
//! Sectors that were accessed are remembered in three tables, of the warp, the block and the
//! launch, as direct-mapped caches do. A request's new sectors are counted in expectation, because
//! rounds of loops that are not executed count as the last one that was (`skip`):
//!
//! 1. Where an instruction's addresses move on by less than a sector in each round, each run of
//!    sectors that lie side by side grows by that part of a sector, unless another instruction has
//!    loaded the sector at its end before.
//! 2. Otherwise each sector is new that the warp has not loaded before.
//! 3. Of what is new to the warp, as large a part is new to the block, and of that to the launch,
//!    as earlier warps and blocks have not loaded of the request's sectors. Warps of one kernel
//!    leave out the same rounds, so those that were executed stand for the others.

use ptx::analysis::SECTOR;

/// Sectors that are remembered for a warp, a block, a launch: powers of two.
const OF_WARP: usize = 1 << 10;
const OF_BLOCK: usize = 1 << 13;
const OF_LAUNCH: usize = 1 << 14;
/// Stretches of memory that are told apart; addresses of one have the same upper bits.
const MOST_REGIONS: usize = 64;
const REGION_BITS: u32 = 27;

/// The last accessor of a sector: a warp and its instruction, a warp, or a block. 0 is none.
#[derive(Clone, Copy, Debug, Default)]
struct Tag {
    sector: u64,
    owner: u32,
    step: u32,
}

impl Tag {
    /// 1 if the sector was loaded by one from `earlier` on, but before `owner`; else it is taken to
    /// be loaded by `owner`, and the answer is 0.
    fn claim(&mut self, sector: u64, owner: u32, earlier: u32) -> f64 {
        if self.sector == sector && (earlier..owner).contains(&self.owner) {
            return 1.0;
        }
        *self = Tag { sector, owner, step: 0 };
        0.0
    }
}

#[derive(Clone, Debug)]
struct Table(Vec<Tag>);

impl Table {
    fn place(&mut self, sector: u64) -> &mut Tag {
        let hash = sector.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let mask = self.0.len() - 1;
        &mut self.0[hash as usize & mask]
    }
}

/// New sectors of a request: to the warp, the block, the launch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct New {
    pub(super) warp: f64,
    pub(super) block: f64,
    pub(super) launch: f64,
}

/// The sectors that were loaded so far.
#[derive(Clone, Debug)]
pub(super) struct Reuse {
    warps: Table,
    blocks: Table,
    launches: Table,
    /// Numbers of the warp and the block that are on their way.
    warp: u32,
    block: u32,
    first_of_block: u32,
    /// The warp that executed each step last, and its first lane's address.
    before: Vec<(u32, u64)>,
    /// The first and the last sector of each stretch of memory that was accessed.
    regions: Vec<(u64, u64, u64)>,
}

impl Reuse {
    pub(super) fn new(steps: usize) -> Reuse {
        let table = |length| Table(vec![Tag::default(); length]);
        Reuse {
            warps: table(OF_WARP),
            blocks: table(OF_BLOCK),
            launches: table(OF_LAUNCH),
            warp: 0,
            block: 0,
            first_of_block: 1,
            before: vec![(0, 0); steps],
            regions: Vec::new(),
        }
    }

    /// Another warp is on its way.
    pub(super) fn begin_warp(&mut self) {
        self.warp += 1;
    }

    /// Another block is on its way.
    pub(super) fn begin_block(&mut self) {
        self.block += 1;
        self.first_of_block = self.warp + 1;
    }

    /// The stretch of memory that a request reaches over.
    pub(super) fn reach(&mut self, sectors: &[u64]) {
        let (Some(&first), Some(&last)) = (sectors.first(), sectors.last()) else { return };
        let region = first >> REGION_BITS;
        if let Some((_, low, high)) = self.regions.iter_mut().find(|(other, ..)| *other == region) {
            (*low, *high) = (first.min(*low), last.max(*high));
        } else if self.regions.len() < MOST_REGIONS {
            self.regions.push((region, first, last));
        }
    }

    /// Sectors from the lowest to the highest that was accessed in each stretch of memory.
    pub(super) fn span(&self) -> f64 {
        self.regions.iter().map(|(_, low, high)| (high - low + 1) as f64).sum()
    }

    /// The step `at` accesses these sectors, in rising order; its first lane from `address`.
    pub(super) fn access(&mut self, at: usize, address: u64, sectors: &[u64]) -> New {
        let (warp, step) = (self.warp, at as u32);
        let before = std::mem::replace(&mut self.before[at], (warp, address));
        let moved = address.wrapping_sub(before.1) as i64;
        let drifts = before.0 == warp && moved.unsigned_abs() < SECTOR;
        let mut new = 0.0;
        let mut shared = [0.0; 2];
        let part = moved.unsigned_abs() as f64 / SECTOR as f64;
        for (index, &sector) in sectors.iter().enumerate() {
            let own = self.warps.place(sector);
            let known = own.owner == warp && own.sector == sector;
            let other = known && own.step != step;
            if !known {
                *own = Tag { sector, owner: warp, step };
            }
            let beside = |index: usize, away: u64| sectors.get(index) == Some(&away);
            if drifts {
                let at_end = match moved < 0 {
                    true => index == 0 || !beside(index - 1, sector.wrapping_sub(1)),
                    false => !beside(index + 1, sector + 1),
                };
                if at_end && !other {
                    new += part;
                }
            } else if !known {
                new += 1.0;
            }
            shared[0] += self.blocks.place(sector).claim(sector, warp, self.first_of_block);
            shared[1] += self.launches.place(sector).claim(sector, self.block, 1);
        }
        let fresh = shared.map(|shared| 1.0 - shared / sectors.len().max(1) as f64);
        New { warp: new, block: new * fresh[0], launch: new * fresh[0] * fresh[1] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loads(reuse: &mut Reuse, at: usize, sectors: std::ops::Range<u64>) -> New {
        let address = sectors.start * SECTOR;
        reuse.access(at, address, &sectors.collect::<Vec<_>>())
    }

    #[test]
    fn what_was_loaded_is_not_new_to_those_who_share_it() {
        let mut reuse = Reuse::new(2);
        reuse.begin_block();
        reuse.begin_warp();
        let all = New { warp: 4.0, block: 4.0, launch: 4.0 };
        assert_eq!(loads(&mut reuse, 0, 100..104), all);
        assert_eq!(loads(&mut reuse, 1, 100..104), New::default());
        reuse.begin_warp();
        assert_eq!(loads(&mut reuse, 0, 102..106), New { warp: 4.0, block: 2.0, launch: 2.0 });
        reuse.begin_block();
        reuse.begin_warp();
        assert_eq!(loads(&mut reuse, 0, 100..104), New { warp: 4.0, block: 4.0, launch: 0.0 });
    }

    #[test]
    fn addresses_that_move_on_by_a_word_reach_a_new_sector_in_eight_rounds() {
        let mut reuse = Reuse::new(1);
        reuse.begin_block();
        reuse.begin_warp();
        // A word of all lanes; a row of words; words that lie far apart.
        for (first, apart, count, expected) in
            [(0, 1, 1, 0.125), (1 << 20, 1, 4, 0.125), (1 << 30, 4, 32, 4.0)]
        {
            let request = |round: u64| -> Vec<u64> {
                (0..count).map(|lane| (first + 4 * round) / SECTOR + apart * lane).collect()
            };
            reuse.access(0, first, &request(0));
            let new: f64 =
                (1..=64).map(|round| reuse.access(0, first + 4 * round, &request(round)).warp).sum();
            assert_eq!(new / 64.0, expected);
        }
    }

    #[test]
    fn the_span_is_that_of_each_array() {
        let mut reuse = Reuse::new(1);
        reuse.reach(&[10, 11]);
        reuse.reach(&[30]);
        reuse.reach(&[(1 << 35) + 5]);
        assert_eq!(reuse.span(), 22.0);
    }
}
