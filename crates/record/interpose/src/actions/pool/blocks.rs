//! The blocks of a pool: the program's blocks, the kept blocks, and the limit for the latter.
//!
//! A block is a whole allocation of the driver, with the size that the program requested. It is
//! *live* while the program has it, and *idle* while the pool keeps it. It becomes live again when
//! the program requests exactly its size in its context. Whatever the driver says about a live
//! block is therefore what it would say without a pool.
//!
//! # Bound
//!
//! In each context, live and idle blocks together take at most [`limit`] of the peak of the live
//! blocks: the program's own memory and a twelfth. Nothing in this module calls the driver; the
//! caller frees the blocks that [`Blocks::surplus`] returns.

use crate::tables::{put, spread};
use cuda_abi::types::CUdeviceptr;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

/// Bytes that idle blocks may take beyond the program's own peak, however small that is: little
/// beside what a context takes itself (some 500 MiB).
const LEAST_SLACK: u64 = 32 << 20;

/// Most live blocks that are known; what is allocated beyond is not kept.
const MOST_LIVE: usize = 1 << 16;

/// Most idle blocks of a process.
const MOST_IDLE: usize = 4096;

/// Most sizes for which a list of idle blocks is held, empty ones included.
const MOST_CLASSES: usize = 1024;

/// Most bytes that live and idle blocks take in a context where live blocks took `peak`: a twelfth
/// more, which is less than a tenth of what the device has in use, since the driver takes more for
/// small blocks than [`footprint`] says (measured: scripts/gpu/memory.py).
pub fn limit(peak: u64) -> u64 {
    peak.saturating_add((peak / 12).max(LEAST_SLACK))
}

/// Returns the memory of a device that an allocation takes: the driver maps large ones in units of
/// 2 MiB, and divides such a unit among small ones.
fn footprint(bytes: usize) -> u64 {
    let unit: u64 = if bytes >= 1 << 20 { 2 << 20 } else { 512 };
    (bytes as u64).checked_next_multiple_of(unit).unwrap_or(u64::MAX)
}

/// A block that the driver is to free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Victim {
    /// The context in which it was allocated.
    pub context: usize,
    /// Its address.
    pub address: CUdeviceptr,
}

/// Blocks of different classes cannot stand in for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Class {
    context: usize,
    bytes: usize,
}

/// A block that the program has.
struct Live {
    class: Class,
    /// The driver's time for allocating it, in ns.
    alloc_ns: u64,
    /// Whether it is known beyond the process: the driver frees it when the program does.
    is_shared: bool,
}

/// A block that is kept.
struct Idle {
    address: CUdeviceptr,
    alloc_ns: u64,
    /// The moment at which it became idle: a count of such moments.
    since: u64,
}

/// The memory that blocks take in a context, in bytes.
#[derive(Clone, Copy, Default)]
struct Account {
    live: u64,
    idle: u64,
    /// Most that live blocks took at a time.
    peak: u64,
}

impl Account {
    /// Whether idle blocks have to go before the program gets `more` bytes.
    fn is_over(&self, more: u64) -> bool {
        let live = self.live.saturating_add(more);
        self.idle > 0 && live.saturating_add(self.idle) > limit(self.peak.max(live))
    }
}

/// Hashes addresses and sizes: fast, and nobody chooses them to collide.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = spread(self.0 ^ word);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}

type Map<K, V> = HashMap<K, V, BuildHasherDefault<Spread>>;

/// See the [module](self).
#[derive(Default)]
pub struct Blocks {
    live: Map<CUdeviceptr, Live>,
    idle: Map<Class, VecDeque<Idle>>,
    accounts: Map<usize, Account>,
    idle_count: usize,
    moments: u64,
    /// Most bytes that live blocks took in a context, and that live and idle blocks took.
    peaks: (u64, u64),
}

impl Blocks {
    /// Makes an idle block live again, if there is one; gives what the driver took to allocate it,
    /// too. The block that became idle last is taken: the GPU's cache may hold some of it.
    pub fn take(&mut self, context: usize, bytes: usize) -> Option<(CUdeviceptr, u64)> {
        let class = Class { context, bytes };
        let idle = self.idle.get_mut(&class)?.pop_back()?;
        self.became_busy(class);
        self.insert(idle.address, class, idle.alloc_ns);
        Some((idle.address, idle.alloc_ns))
    }

    /// The driver has allocated a block for the program, within `alloc_ns`.
    pub fn insert_allocated(&mut self, context: usize, address: CUdeviceptr, bytes: usize, alloc_ns: u64) {
        self.insert(address, Class { context, bytes }, alloc_ns);
    }

    /// Whether the block at `address` may be kept when the program frees it in `context`.
    pub fn may_keep(&self, context: usize, address: CUdeviceptr) -> bool {
        self.live.get(&address).is_some_and(|live| live.class.context == context && !live.is_shared)
    }

    /// Makes a live block idle. False if it is not live, or if there is no memory to remember it:
    /// then the pool knows nothing of it, and the driver is to free it.
    pub fn keep(&mut self, address: CUdeviceptr) -> bool {
        let Some(Live { class, alloc_ns, .. }) = self.remove(address) else { return false };
        if self.idle.len() >= MOST_CLASSES {
            self.idle.retain(|_, blocks| !blocks.is_empty());
        }
        if !self.idle.contains_key(&class) && !put(&mut self.idle, class, VecDeque::new()) {
            return false;
        }
        let Some(blocks) = self.idle.get_mut(&class) else { return false };
        if blocks.try_reserve(1).is_err() {
            return false;
        }
        self.moments += 1;
        blocks.push_back(Idle { address, alloc_ns, since: self.moments });
        self.idle_count += 1;
        let account = self.accounts.entry(class.context).or_default();
        account.idle += footprint(class.bytes);
        self.peaks.1 = self.peaks.1.max(account.live + account.idle);
        true
    }

    /// The block at `address` is no longer the pool's business.
    pub fn forget(&mut self, address: CUdeviceptr) {
        self.remove(address);
    }

    /// The driver frees the live block that begins at `address` when the program does.
    pub fn share(&mut self, address: CUdeviceptr) {
        if let Some(live) = self.live.get_mut(&address) {
            live.is_shared = true;
        }
    }

    /// The block that became idle first, if idle blocks have to go before the program gets `more`
    /// bytes in `context`.
    pub fn surplus(&mut self, context: usize, more: usize) -> Option<Victim> {
        let account = self.accounts.get(&context)?;
        let is_over = account.is_over(if more == 0 { 0 } else { footprint(more) });
        if !is_over && self.idle_count <= MOST_IDLE {
            return None;
        }
        let of_context = |(class, _): &(&Class, &VecDeque<Idle>)| !is_over || class.context == context;
        let oldest = self.idle.iter().filter(of_context);
        let oldest = oldest.filter_map(|(&class, blocks)| Some((blocks.front()?.since, class)));
        let (_, class) = oldest.min_by_key(|&(since, _)| since)?;
        let idle = self.idle.get_mut(&class)?.pop_front()?;
        self.became_busy(class);
        Some(Victim { context: class.context, address: idle.address })
    }

    /// The idle block in which `address` lies.
    pub fn take_containing(&mut self, address: CUdeviceptr) -> Option<Victim> {
        if self.idle_count == 0 {
            return None;
        }
        let lies_in = |class: &Class, idle: &Idle| {
            address.checked_sub(idle.address).is_some_and(|offset| offset < class.bytes as u64)
        };
        let (&class, at) = self.idle.iter().find_map(|(class, blocks)| {
            Some((class, blocks.iter().position(|idle| lies_in(class, idle))?))
        })?;
        let idle = self.idle.get_mut(&class)?.remove(at)?;
        self.became_busy(class);
        Some(Victim { context: class.context, address: idle.address })
    }

    /// Any idle block.
    pub fn take_any(&mut self) -> Option<Victim> {
        if self.idle_count == 0 {
            return None;
        }
        let (&class, blocks) = self.idle.iter_mut().find(|(_, blocks)| !blocks.is_empty())?;
        let idle = blocks.pop_back()?;
        self.became_busy(class);
        Some(Victim { context: class.context, address: idle.address })
    }

    /// A context is gone, and all its blocks with it; all contexts if it is not known which.
    pub fn forget_context(&mut self, context: Option<usize>) {
        let is_gone = |class: &Class| context.is_none_or(|context| context == class.context);
        self.live.retain(|_, live| !is_gone(&live.class));
        self.idle.retain(|class, _| !is_gone(class));
        self.accounts.retain(|&of, _| context.is_some_and(|context| context != of));
        self.idle_count = self.idle.values().map(VecDeque::len).sum();
    }

    /// Most bytes that live blocks took in a context, and that live and idle blocks took there.
    pub fn peaks(&self) -> (u64, u64) {
        self.peaks
    }

    fn insert(&mut self, address: CUdeviceptr, class: Class, alloc_ns: u64) {
        self.remove(address);
        // (Beyond that, or without memory for it, the block is one that the pool does not know.)
        if self.live.len() >= MOST_LIVE
            || !put(&mut self.live, address, Live { class, alloc_ns, is_shared: false })
        {
            return;
        }
        let account = self.accounts.entry(class.context).or_default();
        account.live = account.live.saturating_add(footprint(class.bytes));
        account.peak = account.peak.max(account.live);
        self.peaks.0 = self.peaks.0.max(account.peak);
        self.peaks.1 = self.peaks.1.max(account.live.saturating_add(account.idle));
    }

    fn remove(&mut self, address: CUdeviceptr) -> Option<Live> {
        let live = self.live.remove(&address)?;
        if let Some(account) = self.accounts.get_mut(&live.class.context) {
            account.live = account.live.saturating_sub(footprint(live.class.bytes));
        }
        Some(live)
    }

    /// An idle block of the class was taken.
    fn became_busy(&mut self, class: Class) {
        self.idle_count -= 1;
        if let Some(account) = self.accounts.get_mut(&class.context) {
            account.idle = account.idle.saturating_sub(footprint(class.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: usize = 0x10;
    const THERE: usize = 0x20;
    const MIB: usize = 1 << 20;

    /// A driver that gives addresses that were never used, and what is allocated there.
    #[derive(Default)]
    struct Driver {
        next: u64,
        held: HashMap<u64, (usize, usize)>,
    }

    impl Driver {
        fn allocate(&mut self, context: usize, bytes: usize) -> u64 {
            self.next += 1 << 40;
            self.held.insert(self.next, (context, bytes));
            self.next
        }

        fn free(&mut self, victim: Victim) {
            let (context, _) = self.held.remove(&victim.address).expect("it is allocated");
            assert_eq!(context, victim.context);
        }

        fn bytes_in(&self, context: usize) -> u64 {
            self.held.values().filter(|held| held.0 == context).map(|held| footprint(held.1)).sum()
        }
    }

    /// Allocates through the pool, as a program does.
    fn allocate(blocks: &mut Blocks, driver: &mut Driver, context: usize, bytes: usize) -> u64 {
        if let Some((address, _)) = blocks.take(context, bytes) {
            return address;
        }
        while let Some(victim) = blocks.surplus(context, bytes) {
            driver.free(victim);
        }
        let address = driver.allocate(context, bytes);
        blocks.insert_allocated(context, address, bytes, 100);
        address
    }

    fn free(blocks: &mut Blocks, driver: &mut Driver, context: usize, address: u64) {
        assert!(blocks.may_keep(context, address) && blocks.keep(address));
        while let Some(victim) = blocks.surplus(context, 0) {
            driver.free(victim);
        }
    }

    #[test]
    fn a_block_comes_back_for_its_own_size_in_its_own_context_and_once() {
        let mut blocks = Blocks::default();
        blocks.insert_allocated(HERE, 0x1000, 700, 55);
        assert!(!blocks.may_keep(THERE, 0x1000));
        assert!(blocks.keep(0x1000) && !blocks.keep(0x1000) && !blocks.may_keep(HERE, 0x1000));
        assert_eq!(blocks.take(THERE, 700), None);
        assert_eq!(blocks.take(HERE, 699), None);
        assert_eq!(blocks.take(HERE, 700), Some((0x1000, 55)));
        assert_eq!(blocks.take(HERE, 700), None);
    }

    #[test]
    fn a_shared_block_is_not_kept_until_it_is_allocated_anew() {
        let mut blocks = Blocks::default();
        blocks.insert_allocated(HERE, 0x1000, 700, 55);
        blocks.share(0x1000);
        assert!(!blocks.may_keep(HERE, 0x1000));
        blocks.insert_allocated(HERE, 0x1000, 700, 55);
        assert!(blocks.may_keep(HERE, 0x1000));
    }

    #[test]
    fn an_address_within_an_idle_block_finds_it() {
        let mut blocks = Blocks::default();
        blocks.insert_allocated(HERE, 0x1000, 700, 0);
        assert_eq!(blocks.take_containing(0x1000), None, "it is live");
        blocks.keep(0x1000);
        assert_eq!(blocks.take_containing(0xfff), None);
        assert_eq!(blocks.take_containing(0x1000 + 700), None);
        let victim = Some(Victim { context: HERE, address: 0x1000 });
        assert_eq!(blocks.take_containing(0x1000 + 699), victim);
        assert_eq!((blocks.take_any(), blocks.take(HERE, 700)), (None, None));
    }

    #[test]
    fn what_belonged_to_a_context_goes_with_it() {
        let mut blocks = Blocks::default();
        for (context, address) in [(HERE, 0x1000), (HERE, 0x2000), (THERE, 0x3000)] {
            blocks.insert_allocated(context, address, 700, 0);
        }
        blocks.keep(0x1000);
        blocks.keep(0x3000);
        blocks.forget_context(Some(HERE));
        assert_eq!(blocks.take(HERE, 700), None);
        assert!(!blocks.may_keep(HERE, 0x2000));
        assert_eq!(blocks.take(THERE, 700), Some((0x3000, 0)));
        blocks.forget_context(None);
        assert!(!blocks.may_keep(THERE, 0x3000));
    }

    #[test]
    fn random_programs_never_take_more_than_the_limit_of_their_own_peak() {
        let sizes = [1, 256, 700, MIB / 2, MIB, 3 * MIB, 40 * MIB, 41 * MIB, 200 * MIB];
        for seed in 1..40u64 {
            let (mut blocks, mut driver) = (Blocks::default(), Driver::default());
            let (mut live, mut peaks, mut served) = (Vec::<(u64, usize, usize)>::new(), HashMap::new(), 0);
            let mut state = seed;
            for _ in 0..400 {
                state = spread(state);
                let context = if state.is_multiple_of(3) { THERE } else { HERE };
                if (state >> 8) % 5 < 2 || live.len() < 3 {
                    let bytes = sizes[(state >> 16) as usize % sizes.len()];
                    let made = driver.next;
                    let address = allocate(&mut blocks, &mut driver, context, bytes);
                    served += u32::from(made == driver.next);
                    assert_eq!(driver.held[&address], (context, bytes));
                    assert!(live.iter().all(|&(other, ..)| other != address), "handed out twice");
                    live.push((address, context, bytes));
                } else {
                    let (address, context, _) = live.swap_remove((state >> 16) as usize % live.len());
                    free(&mut blocks, &mut driver, context, address);
                }
                for context in [HERE, THERE] {
                    let of_context = live.iter().filter(|block| block.1 == context);
                    let now: u64 = of_context.map(|block| footprint(block.2)).sum();
                    let peak = peaks.entry(context).or_insert(0u64);
                    *peak = now.max(*peak);
                    assert!(driver.bytes_in(context) <= limit(*peak), "seed {seed}");
                }
            }
            assert!(served > 20, "{served} of seed {seed}");
            while let Some(victim) = blocks.take_any() {
                driver.free(victim);
            }
            assert_eq!(driver.held.len(), live.len(), "nothing is lost");
        }
    }

    #[test]
    fn the_number_of_idle_blocks_is_bounded() {
        let mut blocks = Blocks::default();
        for address in 1..=2 * MOST_IDLE as u64 {
            blocks.insert_allocated(HERE, address << 20, 256, 0);
        }
        let mut freed = 0;
        for address in 1..=2 * MOST_IDLE as u64 {
            assert!(blocks.keep(address << 20));
            freed += std::iter::from_fn(|| blocks.surplus(HERE, 0)).count();
        }
        assert_eq!(freed, MOST_IDLE);
    }
}
