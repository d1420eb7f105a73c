//! Launches that the driver has accepted: a function in a configuration on a stream, and the layout
//! of the function's parameters.
//!
//! If the driver rejects a launch, the program must get the error from that call. A launch is
//! therefore queued only if an equal one succeeded before. Everything that a rejection can depend
//! on is part of its [`Print`]: function, dimensions, shared memory, attributes, stream and
//! context, and the epochs of their handles.
//!
//! Reads take no lock: an entry's print is stored last, with release. If two launches have the same
//! print, a 64-bit hash, a launch may be queued that was never accepted. The copied arguments never
//! depend on it, because the layout names its function.

use crate::driver::{self, Parameter};
use crate::tables::{Zeroable, push, spread, zeroed};
use cuda_abi::types::CUfunction;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU64};
use std::sync::{Mutex, PoisonError};

/// Entries of the table; half of them are used before it is cleared.
const ENTRIES: usize = 1 << 16;
/// Most functions, over the life of the process, whose launches are queued.
const LAYOUTS: usize = 1 << 14;
/// Most bytes of parameters of a launch that is queued.
pub const PARAMETER_BYTES: usize = 32 * 1024;

/// Parameters that a layout holds itself: in two lines with the rest.
const FEW: usize = 12;

/// The positions of a function's parameters in its parameter space.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Layout {
    function: u64,
    epoch: u32,
    count: u32,
    /// Bytes of all parameters together.
    pub bytes: usize,
    few: [Parameter; FEW],
    /// All of them, where there are more.
    many: Box<[Parameter]>,
}

/// A hash of all that tells a call from others. Never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Print(u64);

impl Print {
    /// The print of these words: a product for each pair, whose numbers differ from pair to pair.
    #[inline(always)]
    pub fn of<const PAIRS: usize>(pairs: [[u64; 2]; PAIRS]) -> Print {
        let mut mixed = 0;
        for (at, [first, second]) in pairs.into_iter().enumerate() {
            let [a, b] =
                [2 * at as u64 + 1, 2 * at as u64 + 2].map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let product = u128::from(first ^ a) * u128::from(second ^ b);
            mixed ^= (product as u64) ^ ((product >> 64) as u64).rotate_left(at as u32);
        }
        Print(spread(mixed).max(1))
    }

    /// It as a number.
    #[inline(always)]
    pub fn word(self) -> u64 {
        self.0
    }
}

#[derive(Default)]
struct Entry {
    print: AtomicU64,
    layout: AtomicPtr<Layout>,
}

// SAFETY: atomics, for which zeros are values.
unsafe impl Zeroable for Entry {}

/// See the [module](self).
pub struct Accepted {
    entries: Box<[Entry]>,
    /// Writers exclude each other with it. Layouts are never freed: a reader may be about to look
    /// at one.
    writing: Mutex<Writing>,
}

#[derive(Default)]
struct Writing {
    used: usize,
    layouts: Vec<&'static Layout>,
}

impl Accepted {
    /// An empty table; `None` if there is no memory for it.
    pub fn new() -> Option<Accepted> {
        Some(Accepted { entries: zeroed(ENTRIES)?, writing: Mutex::default() })
    }

    /// The layout of the parameters of a launch of `function` that was accepted.
    #[inline(always)]
    pub fn launch(&self, print: Print, function: CUfunction, epoch: u32) -> Option<&'static Layout> {
        let entry = self.find(print)?;
        // SAFETY: null, or leaked.
        let layout = unsafe { entry.layout.load(Acquire).as_ref() }?;
        (layout.function == function as u64 && layout.epoch == epoch).then_some(layout)
    }

    /// Whether a call without parameters of its own was accepted.
    #[inline(always)]
    pub fn has(&self, print: Print) -> bool {
        self.find(print).is_some()
    }

    /// A launch of `function` was accepted. (Not noted: one whose parameters' layout the driver
    /// does not tell, or which has too many.)
    pub fn note_launch(&self, print: Print, function: CUfunction, epoch: u32) {
        let known = self.lock().layouts.iter().copied().find(|layout| layout.is_of(function, epoch));
        let Some(layout) = known.or_else(|| self.add_layout(function, epoch)) else { return };
        self.note(print, std::ptr::from_ref(layout).cast_mut());
    }

    /// A call without parameters of its own was accepted.
    pub fn note_call(&self, print: Print) {
        self.note(print, std::ptr::null_mut());
    }

    fn add_layout(&self, function: CUfunction, epoch: u32) -> Option<&'static Layout> {
        let parameters = driver::parameters(function, super::MOST_PARAMETERS)?;
        let end = |parameter: &Parameter| parameter.offset as usize + parameter.bytes as usize;
        let bytes = parameters.iter().map(end).max().unwrap_or(0);
        let mut writing = self.lock();
        if bytes > PARAMETER_BYTES || writing.layouts.len() >= LAYOUTS {
            return None;
        }
        let layout: &'static Layout = Box::leak(Box::new(Layout::new(function, epoch, bytes, parameters)));
        push(&mut writing.layouts, layout);
        Some(layout)
    }

    fn note(&self, print: Print, layout: *mut Layout) {
        let mut writing = self.lock();
        if let Some(known) = self.find(print) {
            known.layout.store(layout, Release);
            return;
        }
        if writing.used >= ENTRIES / 2 {
            self.entries.iter().for_each(|entry| entry.print.store(0, Release));
            writing.used = 0;
        }
        let Some(free) = self.places(print).find(|entry| matches!(entry.print.load(Relaxed), 0)) else {
            return;
        };
        free.layout.store(layout, Relaxed);
        free.print.store(print.0, Release);
        writing.used += 1;
    }

    #[inline(always)]
    fn find(&self, print: Print) -> Option<&Entry> {
        for entry in self.places(print) {
            match entry.print.load(Acquire) {
                found if found == print.0 => return Some(entry),
                0 => return None,
                _ => {}
            }
        }
        None
    }

    /// The entries at which `print` can be, in the order in which they are searched.
    #[inline(always)]
    fn places(&self, print: Print) -> impl Iterator<Item = &Entry> {
        let mask = self.entries.len() - 1;
        (0..self.entries.len()).map(move |step| &self.entries[(print.0 as usize + step) & mask])
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Writing> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Layout {
    fn new(function: CUfunction, epoch: u32, bytes: usize, parameters: Vec<Parameter>) -> Layout {
        let count = parameters.len() as u32;
        let mut few = [Parameter { offset: 0, bytes: 0 }; FEW];
        let mut many = parameters.into_boxed_slice();
        if let Some(few) = few.get_mut(..many.len()) {
            few.copy_from_slice(&many);
            many = Box::default();
        }
        Layout { function: function as u64, epoch, count, bytes, few, many }
    }

    /// The parameters, in order.
    #[inline(always)]
    pub fn parameters(&self) -> &[Parameter] {
        self.few.get(..self.count as usize).unwrap_or(&self.many)
    }

    fn is_of(&self, function: CUfunction, epoch: u32) -> bool {
        self.function == function as u64 && self.epoch == epoch
    }
}
