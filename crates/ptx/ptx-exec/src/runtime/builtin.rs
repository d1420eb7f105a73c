//! Functions that device code calls and the driver provides: `vprintf`, `malloc`, `free`,
//! `__assertfail`, and those of the device runtime.

use crate::code::Builtin;
use crate::fault::FaultKind;
use crate::registers::lanes::each_lane;
use crate::warp::Surroundings;

/// A fault with the lane that made it.
type LaneFault = (FaultKind, String, usize);

/// Longest string that is read from device memory, in bytes.
const MAX_STRING: u64 = 1 << 16;

/// The parameters and the result of a provided function, by their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Signature {
    /// Bytes of the result; 0 for none.
    pub(crate) result: u32,
    /// Bytes of each parameter; `None` where it does not matter what is passed.
    pub(crate) params: Option<&'static [u32]>,
}

impl Signature {
    /// Returns the offsets of the parameters in the frame of a call, behind the result: each is
    /// aligned to its size, structures to 4 bytes. A declaration without the result changes
    /// nothing.
    pub(crate) fn offsets(params: &[u32], result: u32) -> Vec<u32> {
        let mut end = result;
        let place = |bytes: &u32| {
            let align = if bytes.is_power_of_two() { *bytes } else { 4 };
            let start = end.next_multiple_of(align);
            end = start + bytes;
            start
        };
        params.iter().map(place).collect()
    }
}

impl Builtin {
    /// Returns the sizes of the function's result and parameters.
    pub(crate) fn signature(self) -> Signature {
        let (result, params): (u32, Option<&'static [u32]>) = match self {
            Builtin::Print => (4, Some(&[8, 8])),
            Builtin::Malloc => (8, Some(&[8])),
            Builtin::Free => (0, Some(&[8])),
            Builtin::AssertFail => (0, Some(&[8, 8, 4, 8, 8])),
            Builtin::Runtime(call) => return call.signature(),
        };
        Signature { result, params }
    }
}

/// Calls a builtin in the lanes of `mask`. Its results and arguments lie at `frame` of local
/// memory, as in any call.
pub(crate) fn run(
    builtin: Builtin,
    around: &mut Surroundings,
    warp: u32,
    mask: u32,
    frame: u64,
) -> Result<(), LaneFault> {
    let mut outcome = Ok(());
    each_lane(mask, |lane| {
        if outcome.is_ok() {
            outcome = run_lane(builtin, around, warp, lane, frame).map_err(|(kind, text)| (kind, text, lane));
        }
    });
    outcome
}

fn run_lane(
    builtin: Builtin,
    around: &mut Surroundings,
    warp: u32,
    lane: usize,
    frame: u64,
) -> Result<(), (FaultKind, String)> {
    match builtin {
        // (int result), (const char* format, void* arguments)
        Builtin::Print => {
            let (format, arguments) =
                (argument(around, lane, frame + 8, 8)?, argument(around, lane, frame + 16, 8)?);
            let format = string(around, format)?;
            let (text, count) =
                crate::runtime::printf::format(&format, &mut PrintArguments { around, next: arguments })?;
            around.launch.memory.print(&text);
            result(around, lane, frame, &(count as u32).to_le_bytes())
        }
        // (void* result), (size_t bytes)
        Builtin::Malloc => {
            let bytes = argument(around, lane, frame + 8, 8)?;
            let address = around.launch.memory.malloc(bytes);
            result(around, lane, frame, &address.to_le_bytes())
        }
        // (void* address)
        Builtin::Free => {
            let address = argument(around, lane, frame, 8)?;
            around.spaces.forget();
            match address {
                0 => Ok(()),
                _ => around.launch.memory.free(address).map_err(|text| (FaultKind::OutOfBounds, text)),
            }
        }
        // (const char* message, const char* file, unsigned line, const char* function, size_t char
        // size)
        Builtin::AssertFail => {
            let message = argument(around, lane, frame, 8)?;
            let file = argument(around, lane, frame + 8, 8)?;
            let line = argument(around, lane, frame + 16, 4)?;
            let function = argument(around, lane, frame + 24, 8)?;
            let [message, file, function] = [message, file, function].map(|address| {
                let text = string(around, address).unwrap_or_else(|_| b"?".to_vec());
                String::from_utf8_lossy(&text).into_owned()
            });
            Err((FaultKind::Assert, format!("assertion `{message}` failed in {function} at {file}:{line}")))
        }
        Builtin::Runtime(call) => crate::runtime::device_runtime::run(call, around, warp, lane, frame),
    }
}

fn beyond() -> (FaultKind, String) {
    (FaultKind::StackOverflow, "stack overflow: no room for the arguments of a call".to_owned())
}

/// A number at an offset of local memory.
fn argument(
    around: &Surroundings,
    lane: usize,
    offset: u64,
    bytes: usize,
) -> Result<u64, (FaultKind, String)> {
    let from = around.spaces.local(lane, offset, bytes as u64).ok_or_else(beyond)?;
    let mut value = [0; 8];
    // SAFETY: `local` has found the bytes inside the lane's memory, and `value` has room for them.
    unsafe { std::ptr::copy_nonoverlapping(from, value.as_mut_ptr(), bytes) };
    Ok(u64::from_le_bytes(value))
}

/// Results and arguments of a call, read in the order of their declaration.
pub(crate) struct CallArea {
    lane: usize,
    next: u64,
}

impl CallArea {
    /// Reads the arguments at `frame` of a lane's local memory.
    pub(crate) fn new(lane: usize, frame: u64) -> CallArea {
        CallArea { lane, next: frame }
    }

    /// The place of the result, which comes first.
    pub(crate) fn result(&mut self, bytes: u64) -> ResultPlace {
        ResultPlace { lane: self.lane, offset: self.take(bytes) }
    }

    /// The next argument.
    pub(crate) fn next(&mut self, around: &Surroundings, bytes: u64) -> Result<u64, (FaultKind, String)> {
        argument(around, self.lane, self.take(bytes), bytes as usize)
    }

    fn take(&mut self, bytes: u64) -> u64 {
        let offset = self.next.next_multiple_of(bytes);
        self.next = offset + bytes;
        offset
    }
}

/// The place for a call's result.
pub(crate) struct ResultPlace {
    lane: usize,
    offset: u64,
}

impl ResultPlace {
    /// Returns the bytes.
    pub(crate) fn write(self, around: &Surroundings, bytes: &[u8]) -> Result<(), (FaultKind, String)> {
        result(around, self.lane, self.offset, bytes)
    }
}

fn result(around: &Surroundings, lane: usize, offset: u64, bytes: &[u8]) -> Result<(), (FaultKind, String)> {
    let to = around.spaces.local(lane, offset, bytes.len() as u64).ok_or_else(beyond)?;
    // SAFETY: `local` has found the bytes inside the lane's memory.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    Ok(())
}

/// A string in device memory, without its end.
fn string(around: &mut Surroundings, address: u64) -> Result<Vec<u8>, (FaultKind, String)> {
    let mut text = Vec::new();
    for offset in 0..MAX_STRING {
        let from = around.spaces.generic(address.wrapping_add(offset), 1, false)?;
        // SAFETY: `generic` has found the byte inside memory that may be read.
        match unsafe { *from } {
            0 => break,
            byte => text.push(byte),
        }
    }
    Ok(text)
}

/// The arguments of a `printf`, as the compiler lays them out: each aligned to its size.
struct PrintArguments<'a, 'l, 's, 'm> {
    around: &'a mut Surroundings<'l, 's, 'm>,
    next: u64,
}

impl crate::runtime::printf::Arguments for PrintArguments<'_, '_, '_, '_> {
    type Error = (FaultKind, String);

    fn number(&mut self, bytes: u64) -> Result<u64, Self::Error> {
        let address = self.next.next_multiple_of(bytes);
        self.next = address + bytes;
        let from = self.around.spaces.generic(address, bytes, false)?;
        let mut value = [0; 8];
        // SAFETY: `generic` has found the bytes inside memory that may be read, and `value` has
        // room for them.
        unsafe { std::ptr::copy_nonoverlapping(from, value.as_mut_ptr(), bytes as usize) };
        Ok(u64::from_le_bytes(value))
    }

    fn string(&mut self, address: u64) -> Result<Vec<u8>, Self::Error> {
        string(self.around, address)
    }
}
