//! The arguments of kernels.
//!
//! Of the first launch of each configuration, the kinds of memory are stored that pointers among
//! the arguments point to, and nothing else of them. With `apex run --code`, the arguments of that
//! launch and of timed launches are stored too:
//!
//! The bytes of the parameters are stored, except for pointers into device memory: for these, the
//! size of the allocation and the offset in it. Memory contents are never read. At most
//! [`limits::ARGUMENTS_OF_CONFIG`] different sets of arguments are stored for a configuration;
//! launches with further ones are counted.

use super::Recorder;
use super::thread::Thread;
use crate::objects::addresses::kind_of;
use crate::parameters::{Buffer, buffer_of};
use crate::switch::guarded;
use crate::tables::{push, put};
use crate::{driver, limits};
use apex_call_frames::memory::word_at;
use apex_trace::definition::{ArgumentMemory, Arguments, Definition, Pointer};
use apex_trace::layout::{ArgumentSample, MemoryKind, NO_CONFIG, NUMBERED_POINTERS, Slots as _, flags};
use cuda_abi::types::*;
use std::collections::HashMap;
use std::ffi::c_void;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

/// Most parameters of a kernel.
const MOST_PARAMETERS: usize = 4096;
/// Most bytes of a kernel's parameters (CUDA: 32,764).
const MOST_BYTES: usize = 32 << 10;
/// Most words of a kernel's parameters that are looked up as pointers.
const MOST_LOOK_UPS: usize = 512;
/// Most words of a kernel's parameters whose kind of memory is looked up: each look-up takes some
/// hundred nanoseconds.
const MOST_KINDS: usize = 64;
/// Addresses below this are in no allocation (Linux: `vm.mmap_min_addr`).
const LEAST_ADDRESS: u64 = 1 << 16;

/// The parameters of a launch, in either of the ways that the driver takes.
#[derive(Clone, Copy)]
pub struct Passed {
    /// An address for each.
    pub parameters: *mut *mut c_void,
    /// The names and values behind them.
    pub extra: *mut *mut c_void,
}

impl Passed {
    /// In a way that is not followed.
    pub const UNKNOWN: Passed = Passed { parameters: null_mut(), extra: null_mut() };
}

/// The samples that were defined so far.
#[derive(Default)]
pub struct Given {
    /// By digest of configuration and arguments.
    ids: HashMap<u64, u32>,
    /// The number of different ones of each configuration.
    of_config: HashMap<u32, usize>,
    /// The numbers of allocations, by their start and size.
    allocations: HashMap<(u64, u64), u8>,
    /// Configurations whose kinds of memory were looked at.
    memory_of: HashMap<u32, ()>,
}

/// See [`Given`].
pub type GivenArguments = Mutex<Given>;

impl Thread {
    /// Keeps what a launch that succeeded was given. `start` and `flags` are the record's.
    ///
    /// # Safety
    /// `passed` is what the driver has just read for a launch of `function`.
    pub unsafe fn sample_arguments(
        &mut self,
        config: u32,
        function: CUfunction,
        passed: Passed,
        start: u64,
        flags: u16,
    ) {
        // What an address means cannot be asked while a stream captures.
        if config == NO_CONFIG || self.objects.captures.any() {
            return;
        }
        let (recorder, begun) = (self.recorder, self.clock.now());
        if flags & flags::FIRST_SEEN != 0 && guarded(|| recorder.is_first_of(config)) == Some(true) {
            // SAFETY: by contract.
            let given = || unsafe { bytes_of(function, passed) };
            guarded(|| given().map(|found| recorder.note_memory(config, &found)));
            recorder.spend(self.clock.now() - begun);
        }
        if !recorder.keeps_code() {
            return;
        }
        let read = || {
            // SAFETY: by contract.
            let (found, bases) = unsafe { read(function, passed) }?;
            Some((recorder.numbers(&found, &bases), recorder.arguments(config, found)))
        };
        if let Some((allocations, arguments)) = guarded(read).flatten() {
            let head = ArgumentSample::head(flags, start, start);
            self.push(&ArgumentSample { head, config, arguments, allocations });
        }
        recorder.spend(self.clock.now() - begun);
    }
}

impl Recorder {
    /// Whether the kinds of memory of a configuration have not been looked at, which they are now.
    fn is_first_of(&self, config: u32) -> bool {
        // As below.
        let mut given = self.given_arguments.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = given.memory_of.len() < limits::ARGUMENTS && !given.memory_of.contains_key(&config);
        if is_new {
            put(&mut given.memory_of, config, ());
        }
        is_new
    }

    /// Stores the kinds of memory that the pointers among these parameters point to.
    fn note_memory(&self, config: u32, found: &Found) {
        let mut parameters = Vec::new();
        for (index, at) in words(&found.parameters).take(MOST_KINDS) {
            let address = word_at(&found.bytes, at);
            if address < LEAST_ADDRESS {
                continue;
            }
            let kind = kind_of(address);
            if kind != MemoryKind::Pageable && !push(&mut parameters, (index, u32::from(kind as u8))) {
                return;
            }
        }
        if !parameters.is_empty() {
            self.file.define(&Definition::ArgumentMemory(ArgumentMemory { id: config, parameters }));
        }
    }

    /// The numbers of the allocations that the first pointers point into; 0 for those that come
    /// after the last number. An allocation at the place of an earlier one of its size has its
    /// number.
    fn numbers(&self, found: &Arguments, bases: &[u64]) -> [u8; NUMBERED_POINTERS] {
        // As below.
        let mut given = self.given_arguments.lock().unwrap_or_else(PoisonError::into_inner);
        let mut numbers = [0; NUMBERED_POINTERS];
        for (number, pointer) in numbers.iter_mut().zip(&found.pointers) {
            let Some(&base) = bases.get(pointer.allocation as usize) else { continue };
            let key = (base, pointer.allocation_bytes);
            let next = u8::try_from(given.allocations.len() + 1).unwrap_or(0);
            let known = given.allocations.get(&key).copied();
            *number = known.unwrap_or(next);
            if known.is_none() && next > 0 {
                put(&mut given.allocations, key, next);
            }
        }
        numbers
    }

    /// The identifier of what a configuration was given; 0 where it has as many as are kept.
    fn arguments(&self, config: u32, found: Arguments) -> u32 {
        let mut hasher = DefaultHasher::new();
        (config, &found.bytes, &found.pointers).hash(&mut hasher);
        let digest = hasher.finish();
        // A panic while it was held leaves the maps valid: every step of their changes is.
        let mut given = self.given_arguments.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&id) = given.ids.get(&digest) {
            return id;
        }
        let of_config = given.of_config.get(&config).copied().unwrap_or(0);
        let id = given.ids.len() as u32 + 1;
        let is_full = of_config >= limits::ARGUMENTS_OF_CONFIG || given.ids.len() >= limits::ARGUMENTS;
        if is_full || !self.file.define(&Definition::Arguments(Arguments { id, config, ..found })) {
            return 0;
        }
        put(&mut given.ids, digest, id);
        put(&mut given.of_config, config, of_config + 1);
        id
    }
}

/// The parameters of a launch as the kernel gets them.
struct Found {
    /// Offset and bytes of each.
    parameters: Vec<(u32, u32)>,
    bytes: Vec<u8>,
}

/// The arguments of a launch, of no configuration yet, without addresses; and where the
/// allocations begin that they point into.
///
/// # Safety
/// As [`Thread::sample_arguments`].
unsafe fn read(function: CUfunction, passed: Passed) -> Option<(Arguments, Vec<u64>)> {
    // SAFETY: by contract.
    let Found { parameters, mut bytes } = unsafe { bytes_of(function, passed) }?;
    let (pointers, bases) = take_pointers(&parameters, &mut bytes);
    Some((Arguments { id: 0, config: 0, parameters, bytes, pointers }, bases))
}

/// The bytes of a launch's parameters; `None` where the driver does not tell where parameters lie,
/// or the program passes them in an unknown way.
///
/// # Safety
/// As [`Thread::sample_arguments`].
unsafe fn bytes_of(function: CUfunction, passed: Passed) -> Option<Found> {
    let layout = driver::parameters(function, MOST_PARAMETERS)?;
    let end = |parameter: &driver::Parameter| parameter.offset as usize + parameter.bytes as usize;
    let total = layout.iter().map(end).max().unwrap_or(0);
    let mut bytes = Vec::new();
    if total > MOST_BYTES || bytes.try_reserve_exact(total).is_err() {
        return None;
    }
    bytes.resize(total, 0);
    // SAFETY: by contract.
    match unsafe { buffer_of(passed.extra) }? {
        Buffer::At(from, length) => {
            let length = length.min(total);
            // SAFETY: the program's buffer has so many bytes.
            bytes[..length].copy_from_slice(unsafe { std::slice::from_raw_parts(from, length) });
        }
        Buffer::None if passed.parameters.is_null() && !layout.is_empty() => return None,
        Buffer::None => {
            for (index, parameter) in layout.iter().enumerate() {
                // SAFETY: the driver read as many bytes of each parameter of the function.
                let value = unsafe {
                    let from = (*passed.parameters.add(index)).cast::<u8>();
                    std::slice::from_raw_parts(from, parameter.bytes as usize)
                };
                bytes[parameter.offset as usize..][..value.len()].copy_from_slice(value);
            }
        }
    }
    let mut parameters = Vec::new();
    let all_fit = layout.iter().all(|parameter| push(&mut parameters, (parameter.offset, parameter.bytes)));
    all_fit.then_some(Found { parameters, bytes })
}

/// The words of parameters: the parameter, from 0, and where the word lies.
fn words(parameters: &[(u32, u32)]) -> impl Iterator<Item = (u32, usize)> {
    (0..).zip(parameters).flat_map(|(index, &(offset, length))| {
        let (from, to) = (offset.next_multiple_of(8) as usize, offset as usize + length as usize);
        (from..to.saturating_sub(7).max(from)).step_by(8).map(move |at| (index, at))
    })
}

/// Replaces pointers in a kernel's parameters by zeros, and says what they point to; and where the
/// allocations begin.
fn take_pointers(parameters: &[(u32, u32)], bytes: &mut [u8]) -> (Vec<Pointer>, Vec<u64>) {
    let (mut pointers, mut bases) = (Vec::new(), Vec::new());
    for (_, at) in words(parameters).take(MOST_LOOK_UPS) {
        let word = &mut bytes[at..at + 8];
        let address = u64::from_le_bytes(word.try_into().expect("a word has eight bytes"));
        let found = Some(address).filter(|&address| address >= LEAST_ADDRESS);
        let Some((base, size)) = found.and_then(driver::allocation_around) else { continue };
        word.fill(0);
        let allocation = bases.iter().position(|&known| known == base).unwrap_or_else(|| {
            bases.push(base);
            bases.len() - 1
        });
        pointers.push(Pointer {
            at: at as u32,
            allocation: allocation as u32,
            allocation_bytes: size as u64,
            offset: address - base,
        });
    }
    (pointers, bases)
}
