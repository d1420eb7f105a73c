//! The arguments of kernels (`apex run --code`): of the first launch of each configuration, and of
//! timed launches.
//!
//! The bytes of the parameters are stored, except for pointers into device memory: for these, the
//! size of the allocation and the offset in it. Memory contents are never read. At most
//! [`limits::ARGUMENTS_OF_CONFIG`] different sets of arguments are stored for a configuration;
//! launches with further ones are counted.

use super::Recorder;
use super::thread::Thread;
use crate::parameters::{Buffer, buffer_of};
use crate::switch::guarded;
use crate::tables::{push, put};
use crate::{driver, limits};
use apex_trace::definition::{Arguments, Definition, Pointer};
use apex_trace::layout::{ArgumentSample, NO_CONFIG, Slots as _};
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
/// Addresses below this are in no allocation (Linux: `vm.mmap_min_addr`).
const LEAST_ADDRESS: u64 = 1 << 16;

/// Where the program left a launch's parameters, in either of the ways that the driver takes.
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

/// What was defined so far.
#[derive(Default)]
pub struct Given {
    /// By digest of configuration and arguments.
    ids: HashMap<u64, u32>,
    /// How many different ones a configuration has.
    of_config: HashMap<u32, usize>,
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
        if config == NO_CONFIG || !self.recorder.keeps_code() || self.objects.captures.any() {
            return;
        }
        let (recorder, begun) = (self.recorder, self.clock.now());
        // SAFETY: by contract.
        let read = || unsafe { read(function, passed) }.map(|found| recorder.arguments(config, found));
        if let Some(arguments) = guarded(read).flatten() {
            let head = ArgumentSample::head(flags, start, start);
            self.push(&ArgumentSample { head, config, arguments, reserved: 0 });
        }
        recorder.spend(self.clock.now() - begun);
    }
}

impl Recorder {
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

/// The arguments of a launch, of no configuration yet; `None` where the driver does not tell where
/// parameters lie, or the program passes them in an unknown way.
///
/// # Safety
/// As [`Thread::sample_arguments`].
unsafe fn read(function: CUfunction, passed: Passed) -> Option<Arguments> {
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
    let pointers = take_pointers(&parameters, &mut bytes);
    all_fit.then_some(Arguments { id: 0, config: 0, parameters, bytes, pointers })
}

/// Replaces pointers in a kernel's parameters by zeros, and says what they point to.
fn take_pointers(parameters: &[(u32, u32)], bytes: &mut [u8]) -> Vec<Pointer> {
    let words = parameters.iter().flat_map(|&(offset, length)| {
        let (from, to) = (offset.next_multiple_of(8) as usize, offset as usize + length as usize);
        (from..to.saturating_sub(7).max(from)).step_by(8)
    });
    let (mut pointers, mut bases) = (Vec::new(), Vec::new());
    for at in words.take(MOST_LOOK_UPS) {
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
    pointers
}
