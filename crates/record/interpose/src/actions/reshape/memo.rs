//! The shapes of recent launches of a function: most programs repeat their launches, and looking
//! one up costs less than evaluating a condition.
//!
//! An entry holds all that a decision depends on, not a hash of it, so that a shape is never taken
//! from another launch. Each entry has a version, odd while a thread writes it: a reader that finds
//! the same even version before and after it has read what one thread wrote.

use super::parameters::{MOST_WORDS, Words};
use crate::tables::PackedBlock;
use cuda_launch::{Dim3, LaunchConfig};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};

/// Launches that are remembered of a function.
const ENTRIES: usize = 8;
/// Words of a launch besides its parameters.
const OF_LAUNCH: usize = 4;
const KEY: usize = OF_LAUNCH + MOST_WORDS;

/// The shape of a launch: `None` to make it as the program asks.
pub type Shape = Option<(LaunchConfig, PackedBlock)>;

/// All that a decision depends on.
pub struct Key {
    words: [u64; KEY],
    count: usize,
}

/// See the [module](self).
#[derive(Default)]
pub struct Memo([Entry; ENTRIES]);

#[derive(Default)]
#[repr(align(64))]
struct Entry {
    /// 0 before the first write.
    version: AtomicU64,
    key: [AtomicU64; KEY],
    /// The grid along x and y; along z, and the block.
    shape: [AtomicU64; 2],
}

impl Key {
    /// Of a launch without dynamic shared memory and without a cluster, in an epoch of allocations.
    #[inline(always)]
    pub fn of(asked: &LaunchConfig, parameters: &Words, epoch: u64) -> Key {
        let two = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        let LaunchConfig { grid, block, .. } = *asked;
        let mut words = [0; KEY];
        let (of_launch, of_parameters) = words.split_at_mut(OF_LAUNCH);
        of_launch.copy_from_slice(&[two(grid.x, grid.y), two(grid.z, block.x), two(block.y, block.z), epoch]);
        of_parameters.copy_from_slice(&parameters.words);
        Key { words, count: OF_LAUNCH + parameters.count }
    }

    #[inline(always)]
    fn used(&self) -> &[u64] {
        &self.words[..self.count]
    }

    #[inline(always)]
    fn place(&self) -> usize {
        let mixed = self.used().iter().fold(0_u64, |mixed, word| mixed.rotate_left(7) ^ word);
        (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 61) as usize % ENTRIES
    }
}

impl Memo {
    /// The shape of this launch, if it is remembered.
    #[inline(always)]
    pub fn get(&self, key: &Key, asked: &LaunchConfig) -> Shape {
        let entry = &self.0[key.place()];
        let version = entry.version.load(Acquire);
        let is_it = entry.key.iter().zip(key.used()).all(|(known, word)| known.load(Relaxed) == *word);
        let [grid, rest] = [0, 1].map(|at: usize| entry.shape[at].load(Relaxed));
        fence(Acquire);
        let is_whole = version != 0 && version.is_multiple_of(2) && entry.version.load(Relaxed) == version;
        let block = PackedBlock::from_word(rest as u32).filter(|_| is_it && is_whole)?;
        let grid = Dim3::new((grid >> 32) as u32, grid as u32, (rest >> 32) as u32);
        Some((LaunchConfig { grid, block: block.into(), ..*asked }, block))
    }

    /// Remembers the shape of a launch, unless another thread is writing there.
    pub fn put(&self, key: &Key, (launch, block): (LaunchConfig, PackedBlock)) {
        let entry = &self.0[key.place()];
        let version = entry.version.load(Relaxed);
        let begins = || entry.version.compare_exchange(version, version + 1, Acquire, Relaxed).is_ok();
        if !version.is_multiple_of(2) || !begins() {
            return;
        }
        fence(Release);
        entry.key.iter().zip(key.used()).for_each(|(to, &word)| to.store(word, Relaxed));
        let Dim3 { x, y, z } = launch.grid;
        entry.shape[0].store(u64::from(x) << 32 | u64::from(y), Relaxed);
        entry.shape[1].store(u64::from(z) << 32 | u64::from(block.word()), Relaxed);
        entry.version.store(version + 2, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    fn key(asked: &LaunchConfig, pointer: u64) -> Key {
        let mut words = Words { words: [0; MOST_WORDS], count: 1 };
        words.words[0] = pointer;
        Key::of(asked, &words, 0)
    }

    /// A shape in which the pointer can be recognised.
    fn shape(asked: &LaunchConfig, pointer: u64) -> (LaunchConfig, PackedBlock) {
        let made = asked.with_block((1 + pointer as u32 % 1000).into()).unwrap();
        (made, PackedBlock::of(made.block).unwrap())
    }

    #[test]
    fn a_shape_is_that_of_the_same_launch() {
        let (memo, asked) = (Memo::default(), LaunchConfig::new((63, 2, 3), (16, 4, 2)));
        assert!(memo.get(&key(&asked, 0), &asked).is_none());
        memo.put(&key(&asked, 5), shape(&asked, 5));
        assert_eq!(memo.get(&key(&asked, 5), &asked), Some(shape(&asked, 5)));
        assert_eq!(memo.get(&key(&asked, 6), &asked), None);
        let other = LaunchConfig { grid: (63, 2, 2).into(), ..asked };
        assert_eq!(memo.get(&key(&other, 5), &other), None);
    }

    #[test]
    fn readers_beside_writers_see_the_shape_of_their_launch_or_none() {
        let (memo, asked) = (Memo::default(), LaunchConfig::new(1000, 16));
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for pointer in (0..40).cycle().take_while(|_| !done.load(Relaxed)) {
                        if let Some(found) = memo.get(&key(&asked, pointer), &asked) {
                            assert_eq!(found, shape(&asked, pointer));
                        }
                    }
                });
            }
            for round in 0..50_000_u64 {
                let pointer = round * 7 % 40;
                memo.put(&key(&asked, pointer), shape(&asked, pointer));
            }
            done.store(true, Relaxed);
        });
    }
}
