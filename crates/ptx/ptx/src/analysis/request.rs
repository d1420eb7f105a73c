//! The cost of a request: the one calculator of sectors and wavefronts.
//!
//! A request is what the active lanes of a warp ask of a memory with one instruction. Its cost
//! follows from their addresses alone:
//!
//! 1. *Global memory* is accessed in sectors of 32 bytes; a sector that several lanes touch counts
//!    once.
//! 2. *Shared memory* has 32 banks of words of four bytes. In a wavefront a bank gives one word, to
//!    all lanes that want it. Accesses of up to four bytes are made for all lanes together, of
//!    eight for half a warp at a time, of sixteen for a quarter.
//! 3. *Local memory* interleaves the lanes: word for word, the words of all lanes lie side by side.
//! 4. *Constant memory* gives one address at a time.

/// Lanes of a warp.
pub const LANES: usize = 32;
/// Bytes of a sector of global memory.
pub const SECTOR: u64 = 32;
/// Banks of shared memory.
pub const BANKS: usize = 32;
/// Bytes of a word of a bank.
const WORD: u64 = 4;
/// Bytes of a lane up to which sectors are counted without allocating.
const SMALL: u64 = 128;
/// Sectors that 32 lanes touch at most with [`SMALL`] bytes each, at any alignment.
pub const MOST_TOUCHED: usize = LANES * 5;

/// The addresses that the lanes of a warp access.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The address of each lane.
    pub addresses: &'a [u64; LANES],
    /// Whether the first lane's address is that of all.
    pub uniform: bool,
    /// The lanes that take part.
    pub active: u32,
    /// Bytes of each lane, from its address on.
    pub bytes: u64,
}

/// Wavefronts of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wavefronts {
    /// All of them.
    pub count: u64,
    /// The wavefronts beyond those that the width of the access needs: bank conflicts.
    pub excessive: u64,
}

/// Lanes of a mask.
fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    (0..LANES).filter(move |lane| mask >> lane & 1 == 1)
}

/// The sectors of an address: the first and the last.
fn ends(address: u64, bytes: u64) -> (u64, u64) {
    (address / SECTOR, address.saturating_add(bytes.max(1) - 1) / SECTOR)
}

impl Request<'_> {
    fn address(&self, lane: usize) -> u64 {
        self.addresses[if self.uniform { 0 } else { lane }]
    }

    /// Sectors of global memory that the lanes touch.
    pub fn sectors(&self) -> u64 {
        if self.uniform {
            let (first, last) = ends(self.addresses[0], self.bytes);
            return last - first + 1;
        }
        if self.bytes > SMALL {
            return self.large_sectors();
        }
        self.touched(&mut [0; MOST_TOUCHED]) as u64
    }

    /// The same of many bytes: ranges of sectors, those that overlap counted once.
    fn large_sectors(&self) -> u64 {
        let mut ranges: Vec<(u64, u64)> =
            lanes(self.active).map(|lane| ends(self.address(lane), self.bytes)).collect();
        ranges.sort_unstable();
        let (mut count, mut next) = (0, 0);
        for (first, last) in ranges {
            let first = first.max(next);
            count += (last + 1).saturating_sub(first);
            next = next.max(last + 1);
        }
        count
    }

    /// Sectors that the lanes would touch if their bytes lay side by side.
    pub fn least_sectors(&self) -> u64 {
        u64::from(self.active.count_ones()).saturating_mul(self.bytes).div_ceil(SECTOR)
    }

    /// Writes the sectors that lanes touch to the beginning of `touched`, each once; how many they
    /// are. Of a lane with more than 128 bytes only the first sectors are told.
    pub fn touched(&self, touched: &mut [u64; MOST_TOUCHED]) -> usize {
        let mut count = 0;
        let mut sorted = true;
        for lane in lanes(self.active) {
            let (first, last) = ends(self.address(lane), self.bytes);
            for sector in (first..=last).take(5) {
                if count > 0 && touched[count - 1] == sector {
                    continue;
                }
                sorted &= count == 0 || touched[count - 1] < sector;
                touched[count] = sector;
                count += 1;
            }
        }
        if sorted { count } else { distinct(&mut touched[..count]) }
    }

    /// Sectors of local memory that the lanes touch, whose addresses are offsets in their own
    /// memory: a word of all lanes is four sectors, and each sector has a word of eight lanes.
    pub fn local_sectors(&self) -> u64 {
        let own = std::array::from_fn(|lane| {
            let word = self.address(lane) / WORD;
            word.wrapping_mul(LANES as u64 * WORD).wrapping_add(lane as u64 * WORD)
        });
        // Further words lie a whole row of lanes further on.
        let first = self.address(self.active.trailing_zeros() as usize % LANES) % WORD;
        let words = (first + self.bytes).div_ceil(WORD);
        Request { addresses: &own, uniform: false, bytes: WORD, ..*self }.sectors() * words
    }

    /// The addresses of active lanes, sorted.
    fn sorted<'b>(&self, room: &'b mut [u64; LANES]) -> &'b mut [u64] {
        let mut count = 0;
        for lane in lanes(self.active) {
            room[count] = self.address(lane);
            count += 1;
        }
        let sorted = &mut room[..count];
        sorted.sort_unstable();
        sorted
    }

    /// Different addresses: wavefronts of constant memory.
    pub fn distinct_addresses(&self) -> u64 {
        match self.uniform {
            true => 1,
            false => distinct(self.sorted(&mut [0; LANES])) as u64,
        }
    }

    /// The most lanes that have the same address: wavefronts of an atomic operation.
    pub fn sharers(&self) -> u64 {
        if self.uniform {
            return self.active.count_ones().into();
        }
        let mut room = [0; LANES];
        let sorted = self.sorted(&mut room);
        sorted.chunk_by(|a, b| a == b).map(<[u64]>::len).max().unwrap_or(0) as u64
    }

    /// The same of each sector of global memory, added up: turns of L2, which makes the operations
    /// on one sector at a time, on different addresses together.
    pub fn turns(&self) -> u64 {
        if self.uniform {
            return self.active.count_ones().into();
        }
        let mut room = [0; LANES];
        let sorted = self.sorted(&mut room);
        let sectors = sorted.chunk_by(|a, b| a / SECTOR == b / SECTOR);
        let most = |sector: &[u64]| sector.chunk_by(|a, b| a == b).map(<[u64]>::len).max().unwrap_or(0);
        sectors.map(|sector| most(sector) as u64).sum()
    }

    /// Wavefronts of shared memory.
    pub fn wavefronts(&self) -> Wavefronts {
        let together = (LANES as u64 * WORD / self.bytes.next_power_of_two().max(WORD)).max(1) as usize;
        let mut sum = Wavefronts::default();
        for from in (0..LANES).step_by(together) {
            let group = self.active & ((((1u64 << together) - 1) << from) as u32);
            let count = match (group, self.uniform) {
                (0, _) => continue,
                (_, true) => 1,
                _ => self.conflicts(group) as u64,
            };
            sum.count += count;
            sum.excessive += count.saturating_sub(1);
        }
        sum
    }

    /// The most words that any bank has to give to lanes of `group`.
    fn conflicts(&self, group: u32) -> usize {
        let mut words = [0; LANES * 2];
        let mut count = 0;
        // The first word of each bank, and one more than its number; nothing more is to do if no
        // bank has another.
        let mut first = [0; BANKS];
        let mut alone = true;
        for lane in lanes(group) {
            let address = self.addresses[lane];
            for word in (address / WORD..=address.saturating_add(self.bytes.max(1) - 1) / WORD)
                .take(words.len() - count)
            {
                let known = &mut first[(word % BANKS as u64) as usize];
                if *known == word + 1 {
                    continue;
                }
                alone &= *known == 0;
                *known = word + 1;
                words[count] = word;
                count += 1;
            }
        }
        if alone {
            return count.min(1);
        }
        let words = &mut words[..count];
        words.sort_unstable();
        let mut load = [0; BANKS];
        for word in words.chunk_by(|a, b| a == b) {
            load[(word[0] % BANKS as u64) as usize] += 1;
        }
        load.into_iter().max().unwrap_or(0)
    }
}

/// Brings the different ones of some values to their beginning; how many they are.
fn distinct(values: &mut [u64]) -> usize {
    values.sort_unstable();
    let mut count = 0;
    for index in 0..values.len() {
        if count == 0 || values[count - 1] != values[index] {
            values[count] = values[index];
            count += 1;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request of all lanes, `stride` bytes apart from `start` on.
    fn strided(start: u64, stride: u64, bytes: u64, ask: impl Fn(Request<'_>) -> u64) -> u64 {
        let addresses = std::array::from_fn(|lane| start + lane as u64 * stride);
        ask(Request { addresses: &addresses, uniform: false, active: u32::MAX, bytes })
    }

    #[test]
    fn sectors_of_strided_accesses() {
        let cases = [(4, 4, 4), (8, 4, 8), (128, 4, 32), (16, 16, 16), (0, 4, 1), (256, 256, 256)];
        for (stride, bytes, sectors) in cases {
            assert_eq!(
                strided(4096, stride, bytes, |request| request.sectors()),
                sectors,
                "{stride} {bytes}"
            );
        }
        // Off by one element, the same bytes lie in one sector more.
        assert_eq!(strided(4100, 4, 4, |request| request.sectors()), 5);
        assert_eq!(strided(4096, 8, 4, |request| request.least_sectors()), 4);
        // Ranges that overlap count once.
        assert_eq!(strided(0, 32, 160, |request| request.sectors()), 31 + 5);
        // A word of all lanes is four sectors of local memory, wherever it lies.
        assert_eq!(strided(64, 0, 8, |request| request.local_sectors()), 8);
    }

    #[test]
    fn wavefronts_of_strided_accesses() {
        let cases = [
            (4, 4, 1, 0),
            (8, 4, 2, 1),
            (128, 4, 32, 31),
            // A column of a tile of 32 by 33 words.
            (132, 4, 1, 0),
            // All want one word, and four bytes of a word are one word.
            (0, 4, 1, 0),
            (1, 1, 1, 0),
            // Wide accesses take two and four wavefronts at best.
            (8, 8, 2, 0),
            (16, 16, 4, 0),
        ];
        for (stride, bytes, count, excessive) in cases {
            let case = format!("{stride} {bytes}");
            assert_eq!(strided(0, stride, bytes, |request| request.wavefronts().count), count, "{case}");
            assert_eq!(
                strided(0, stride, bytes, |request| request.wavefronts().excessive),
                excessive,
                "{case}"
            );
        }
        let addresses = std::array::from_fn(|lane| 16 * lane as u64);
        let few = Request { addresses: &addresses, uniform: false, active: 0b111, bytes: 16 };
        assert_eq!(few.wavefronts(), Wavefronts { count: 1, excessive: 0 });
        let same = Request { uniform: true, bytes: 4, active: 0, ..few };
        assert_eq!(same.wavefronts(), Wavefronts::default());
    }

    #[test]
    fn turns_of_atomic_operations() {
        // All on one address; each on its own word, or its own sector; four on each of eight words,
        // which share a sector.
        for (stride, turns) in [(0, 32), (4, 4), (32, 32)] {
            assert_eq!(strided(4096, stride, 4, |request| request.turns()), turns, "{stride}");
        }
        let addresses = std::array::from_fn(|lane| 4096 + 4 * (lane as u64 % 8));
        let request = Request { addresses: &addresses, uniform: false, active: u32::MAX, bytes: 4 };
        assert_eq!(request.turns(), 4);
    }
}
