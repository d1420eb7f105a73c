//! The functions of NVML that a governor needs, loaded at run time.
//!
//! Names, types and constants are those of `nvml.h` 13.5. `apex-machine` has a binding of its own,
//! which has no function that changes a device.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::fmt;
use std::mem::transmute_copy;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The name by which the dynamic linker finds NVML.
pub const LIBRARY: &str = "libnvidia-ml.so.1";
/// Maximum number of devices.
const MOST_DEVICES: u32 = 64;
/// Maximum number of supported clocks.
const MOST_CLOCKS: usize = 512;

/// `nvmlReturn_t`.
type Return = c_int;
/// `nvmlDevice_t`.
type Handle = *mut c_void;

const SUCCESS: Return = 0;
const NO_PERMISSION: Return = 4;
const GPU_IS_LOST: Return = 15;
/// `nvmlClockType_t`.
const CLOCK_SM: c_uint = 1;
const CLOCK_MEMORY: c_uint = 2;
/// `NVML_DEVICE_MIG_ENABLE`.
const MIG_ENABLED: c_uint = 1;

/// Bits of `nvmlClocksEventReason…`.
pub mod reasons {
    /// The GPU is idle.
    pub const IDLE: u64 = 0x1;
    /// A clock setting of some tool holds the clock.
    pub const SETTING: u64 = 0x2;
    /// A power cap or a power brake holds it.
    pub const POWER: u64 = 0x4 | 0x80;
    /// A thermal or another hardware slowdown holds it.
    pub const HEAT: u64 = 0x8 | 0x20 | 0x40;
}

/// A call that NVML refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// The function.
    pub call: &'static str,
    /// `nvmlReturn_t`.
    pub code: i32,
}

impl Error {
    /// Whether the caller lacks the right.
    pub fn is_no_permission(&self) -> bool {
        self.code == NO_PERMISSION
    }

    /// Whether the driver has lost the device.
    pub fn is_lost(&self) -> bool {
        self.code == GPU_IS_LOST
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.code {
            NO_PERMISSION => " (no permission)",
            GPU_IS_LOST => " (the driver has lost the device)",
            _ => "",
        };
        write!(out, "{} failed with code {}{why}", self.call, self.code)
    }
}

impl std::error::Error for Error {}

/// Types of the getters, by what they write: an u64, an u32 for an argument, text, two u32, a list.
type AskWide = unsafe extern "C" fn(Handle, *mut c_ulonglong) -> Return;
type AskOf = unsafe extern "C" fn(Handle, c_uint, *mut c_uint) -> Return;
type AskText = unsafe extern "C" fn(Handle, *mut c_char, c_uint) -> Return;
type AskPair = unsafe extern "C" fn(Handle, *mut c_uint, *mut c_uint) -> Return;
type AskList = unsafe extern "C" fn(Handle, c_uint, *mut c_uint, *mut c_uint) -> Return;

/// The functions; `None` for those that the library lacks. Callers must pass what `nvml.h`
/// requires: pointers to writable values of these types, and handles that NVML returned.
#[derive(Clone, Copy)]
struct Functions {
    init: Option<unsafe extern "C" fn() -> Return>,
    count: Option<unsafe extern "C" fn(*mut c_uint) -> Return>,
    handle: Option<unsafe extern "C" fn(c_uint, *mut Handle) -> Return>,
    uuid: Option<AskText>,
    name: Option<AskText>,
    mig: Option<AskPair>,
    clock: Option<AskOf>,
    highest: Option<AskOf>,
    legal: Option<AskList>,
    reasons: Option<AskWide>,
    energy: Option<AskWide>,
    set: Option<unsafe extern "C" fn(Handle, c_uint, c_uint) -> Return>,
    reset: Option<unsafe extern "C" fn(Handle) -> Return>,
}

impl Functions {
    /// # Safety
    /// `library` is NVML, open for good.
    unsafe fn of(library: *mut c_void) -> Self {
        // SAFETY: promised by the caller, and the types are those of `nvml.h`.
        unsafe {
            Self {
                init: found(library, c"nvmlInit_v2"),
                count: found(library, c"nvmlDeviceGetCount_v2"),
                handle: found(library, c"nvmlDeviceGetHandleByIndex_v2"),
                uuid: found(library, c"nvmlDeviceGetUUID"),
                name: found(library, c"nvmlDeviceGetName"),
                mig: found(library, c"nvmlDeviceGetMigMode"),
                clock: found(library, c"nvmlDeviceGetClockInfo"),
                highest: found(library, c"nvmlDeviceGetMaxClockInfo"),
                legal: found(library, c"nvmlDeviceGetSupportedGraphicsClocks"),
                reasons: found(library, c"nvmlDeviceGetCurrentClocksEventReasons")
                    .or(found(library, c"nvmlDeviceGetCurrentClocksThrottleReasons")),
                energy: found(library, c"nvmlDeviceGetTotalEnergyConsumption"),
                set: found(library, c"nvmlDeviceSetGpuLockedClocks"),
                reset: found(library, c"nvmlDeviceResetGpuLockedClocks"),
            }
        }
    }
}

/// A function of a library.
///
/// # Safety
/// The library is open for good, and `F` is the type of a pointer to the function.
unsafe fn found<F: Copy>(library: *mut c_void, name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: the library is open, the name ends with a zero byte.
    let address = unsafe { libc::dlsym(library, name.as_ptr()) };
    // SAFETY: it is a pointer to a function of this type, as the caller promised.
    (!address.is_null()).then(|| unsafe { transmute_copy(&address) })
}

/// The result of a call of a function that the library may lack.
fn done(call: &'static str, returned: Option<Return>) -> Result<(), Error> {
    /// `NVML_ERROR_FUNCTION_NOT_FOUND`.
    const NOT_FOUND: Return = 13;
    match returned.unwrap_or(NOT_FOUND) {
        SUCCESS => Ok(()),
        code => Err(Error { call, code }),
    }
}

/// NVML, initialised. It stays loaded, because a call may still be in progress when the process
/// ends.
pub struct Nvml(Functions);

/// The state of a device at a moment, without its energy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// The current SM clock, MHz.
    pub mhz: u32,
    /// Why it is not higher: bits as in [`reasons`].
    pub reasons: u64,
}

/// A device.
#[derive(Clone)]
pub struct Gpu {
    functions: Functions,
    handle: Handle,
    /// Its index among NVML's devices.
    pub index: u32,
    /// Its UUID.
    pub uuid: String,
    /// Its name.
    pub name: String,
    /// Supported clocks, MHz, in ascending order; empty if the device reports none.
    pub clocks: Vec<u32>,
    /// Whether it is in MIG mode, divided into instances.
    pub is_divided: bool,
}

// SAFETY: NVML may be called from any thread, and a handle is valid as long as the library is
// loaded, which it stays.
unsafe impl Send for Gpu {}

impl Nvml {
    /// Loads NVML from this path, or from where the dynamic linker finds this name; `None` if there
    /// is no NVML or no driver.
    pub fn open(library: &Path) -> Option<Self> {
        let name = CString::new(library.as_os_str().as_bytes()).ok()?;
        // SAFETY: loading NVML runs its initialisers, which the caller asks for by naming it.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        // SAFETY: nobody closes it, and what has NVML's name is NVML.
        let functions = (!library.is_null()).then(|| unsafe { Functions::of(library) })?;
        // SAFETY: takes nothing.
        (unsafe { functions.init?() } == SUCCESS).then_some(Self(functions))
    }

    /// The devices that this user may see.
    pub fn gpus(&self) -> Vec<Gpu> {
        let mut count = 0;
        // SAFETY: a writable number.
        let counted = self.0.count.map(|ask| unsafe { ask(&raw mut count) });
        let count = if counted == Some(SUCCESS) { count.min(MOST_DEVICES) } else { 0 };
        (0..count).filter_map(|index| self.gpu(index)).collect()
    }

    fn gpu(&self, index: u32) -> Option<Gpu> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: a writable handle.
        let found = self.0.handle.map(|ask| unsafe { ask(index, &raw mut handle) });
        let (uuid, name) = (String::new(), String::new());
        let mut gpu =
            Gpu { functions: self.0, handle, index, uuid, name, clocks: Vec::new(), is_divided: false };
        (found == Some(SUCCESS)).then(|| gpu.describe())?;
        Some(gpu)
    }
}

impl Gpu {
    fn describe(&mut self) {
        let Functions { uuid, name, .. } = self.functions;
        (self.uuid, self.name) = (self.text(uuid), self.text(name));
        let (mut now, mut later) = (0, 0);
        // SAFETY: the handle is NVML's, the numbers are writable.
        let asked = self.functions.mig.map(|ask| unsafe { ask(self.handle, &raw mut now, &raw mut later) });
        self.is_divided = asked == Some(SUCCESS) && now == MIG_ENABLED;
        self.clocks = self.legal_clocks();
    }

    fn text(&self, ask: Option<AskText>) -> String {
        let mut buffer = [0; 128];
        // SAFETY: the handle is NVML's, the buffer has the length that is stated.
        let asked = ask.map(|ask| unsafe { ask(self.handle, buffer.as_mut_ptr(), buffer.len() as c_uint) });
        let bytes = buffer.map(c_char::cast_unsigned);
        let text = CStr::from_bytes_until_nul(&bytes).ok().filter(|_| asked == Some(SUCCESS));
        text.map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
    }

    fn number(&self, call: &'static str, ask: Option<AskOf>, sort: c_uint) -> Result<u32, Error> {
        let mut found = 0;
        // SAFETY: the handle is NVML's, the number is writable.
        done(call, ask.map(|ask| unsafe { ask(self.handle, sort, &raw mut found) }))?;
        Ok(found)
    }

    /// The clocks that are supported at the highest memory clock.
    fn legal_clocks(&self) -> Vec<u32> {
        let memory = self.number("nvmlDeviceGetMaxClockInfo", self.functions.highest, CLOCK_MEMORY);
        let (Ok(memory), Some(ask)) = (memory, self.functions.legal) else { return Vec::new() };
        let (mut count, mut clocks) = (MOST_CLOCKS as c_uint, [0; MOST_CLOCKS]);
        // SAFETY: the handle is NVML's, there is room for as many clocks as is stated.
        let returned = unsafe { ask(self.handle, memory, &raw mut count, clocks.as_mut_ptr()) };
        let count = if returned == SUCCESS { (count as usize).min(MOST_CLOCKS) } else { 0 };
        let mut clocks = clocks[..count].to_vec();
        clocks.sort_unstable();
        clocks.dedup();
        clocks
    }

    /// Reads the clock and the reasons for it.
    ///
    /// # Errors
    /// If NVML refuses.
    pub fn state(&self) -> Result<State, Error> {
        let mhz = self.number("nvmlDeviceGetClockInfo", self.functions.clock, CLOCK_SM)?;
        let mut reasons = 0;
        // SAFETY: the handle is NVML's, the number is writable.
        let asked = self.functions.reasons.map(|ask| unsafe { ask(self.handle, &raw mut reasons) });
        done("nvmlDeviceGetCurrentClocksEventReasons", asked)?;
        Ok(State { mhz, reasons })
    }

    /// Whether NVML says that a setting holds the clock.
    ///
    /// # Errors
    /// If NVML refuses.
    pub fn is_set(&self) -> Result<bool, Error> {
        Ok(self.state()?.reasons & reasons::SETTING != 0)
    }

    /// Reads the energy counter, millijoules. A reading takes milliseconds.
    ///
    /// # Errors
    /// If NVML refuses.
    pub fn millijoules(&self) -> Result<u64, Error> {
        let mut found = 0;
        // SAFETY: the handle is NVML's, the number is writable.
        let asked = self.functions.energy.map(|ask| unsafe { ask(self.handle, &raw mut found) });
        done("nvmlDeviceGetTotalEnergyConsumption", asked)?;
        Ok(found)
    }

    /// Sets the highest clock, MHz. The lowest clock stays the lowest supported one.
    ///
    /// # Errors
    /// If NVML refuses: the caller needs to be root.
    pub(crate) fn set_highest(&self, mhz: u32) -> Result<(), Error> {
        let lowest = self.clocks.first().copied().unwrap_or(mhz).min(mhz);
        // SAFETY: the handle is NVML's.
        done(
            "nvmlDeviceSetGpuLockedClocks",
            self.functions.set.map(|set| unsafe { set(self.handle, lowest, mhz) }),
        )
    }

    /// Releases the clock.
    ///
    /// # Errors
    /// If NVML refuses: the caller needs to be root.
    pub(crate) fn release(&self) -> Result<(), Error> {
        // SAFETY: the handle is NVML's.
        done(
            "nvmlDeviceResetGpuLockedClocks",
            self.functions.reset.map(|reset| unsafe { reset(self.handle) }),
        )
    }
}
