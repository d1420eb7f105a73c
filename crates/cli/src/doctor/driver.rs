//! The libraries, the driver and its device nodes.

use super::Check;
use crate::run::driver;
use crate::run::libraries::{ALIAS, CPU_DEVICE, Libraries, NVRTC, RECORDER};
use serde::{Deserialize, Serialize};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The time that the driver may take to start: the first `cuInit` after boot loads firmware.
const PROBE_LIMIT: Duration = Duration::from_secs(30);

/// The first driver that tells where the parameters of a function lie, as `cuDriverGetVersion`
/// gives it.
const LEAST_FAST_VERSION: i32 = 12_040;

/// The findings of a process that opens the CUDA driver.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Probe {
    /// The reason why the library could not be opened.
    error: Option<String>,
    /// The file that was opened.
    path: Option<String>,
    /// `cuDriverGetVersion`, such as 13000.
    version: Option<i32>,
    /// The result of `cuInit`.
    init: Option<i32>,
    /// Names of the devices.
    devices: Vec<String>,
}

pub(super) fn checks() -> Vec<Check> {
    let nodes = device_nodes();
    let probe = Probe::in_child();
    let queue = fast(probe.as_ref().ok());
    let mut checks = vec![libraries(), driver(probe, nodes.is_some()), queue];
    checks.extend(nodes);
    checks
}

fn libraries() -> Check {
    const ID: &str = "libraries";
    let libraries = match Libraries::find() {
        Ok(libraries) => libraries,
        Err(error) => {
            return Check::fail(ID, error.to_string(), "build or install them in the folder of apex");
        }
    };
    let folder = libraries.folder();
    let missing: Vec<_> =
        [ALIAS, CPU_DEVICE, NVRTC].into_iter().filter(|name| !folder.join(name).is_file()).collect();
    if let Err(error) = libraries.preload(None) {
        return Check::fail(ID, error.to_string(), "see the message");
    }
    if missing.is_empty() {
        Check::ok(
            ID,
            format!("{RECORDER}, {ALIAS}, {CPU_DEVICE}, {NVRTC} in {}", apex_untrusted::shown(folder)),
        )
    } else {
        let found =
            format!("{RECORDER} in {}, without {}", apex_untrusted::shown(folder), missing.join(" and "));
        Check::warn(ID, found, "`cargo build --release` builds all four")
    }
}

/// Checks whether launches can be queued (`apex run --fast`).
fn fast(probe: Option<&Probe>) -> Check {
    const ID: &str = "fast";
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    if processors < 2 {
        let found = "--fast is unavailable: programs may use only one processor";
        return Check::warn(ID, found, "give the program at least two processors to use `apex run --fast`");
    }
    match probe.and_then(|probe| probe.version) {
        Some(version) if version < LEAST_FAST_VERSION => Check::warn(
            ID,
            "--fast is unavailable: the driver does not report parameter offsets",
            "install a driver for CUDA 12.4 or later to use `apex run --fast`",
        ),
        _ => Check::ok(ID, format!("--fast is available: {processors} processors")),
    }
}

fn driver(probe: anyhow::Result<Probe>, has_nodes: bool) -> Check {
    const ID: &str = "driver";
    let probe = match probe {
        Ok(probe) => probe,
        Err(error) => {
            return Check::fail(
                ID,
                format!("opening libcuda.so.1 failed: {error}"),
                "reinstall the NVIDIA driver",
            );
        }
    };
    match probe {
        Probe { error: Some(error), .. } if has_nodes => Check::fail(
            ID,
            format!("there is a GPU, but libcuda.so.1 cannot be opened: {error}"),
            "install the driver's libraries; in a container: --gpus all, and NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        ),
        Probe { error: Some(_), .. } => Check::warn(
            ID,
            "there is neither libcuda.so.1 nor a GPU",
            "programs run on APEX's CPU device (`apex run --device cpu`, the default on this machine)",
        ),
        Probe { path, version, init: Some(0), devices, .. } => {
            let version = version.unwrap_or(0);
            let found = format!(
                "CUDA {}.{} in {}; {}",
                version / 1000,
                version % 1000 / 10,
                path.unwrap_or_else(|| "an unknown file".into()),
                if devices.is_empty() { "no device".into() } else { devices.join(", ") }
            );
            Check::ok(ID, found)
        }
        Probe { path, init, .. } => {
            let found = format!(
                "cuInit of {} returns {}",
                path.unwrap_or_else(|| "libcuda.so.1".into()),
                init.map_or("nothing".into(), |code| code.to_string())
            );
            let advice = "no GPU is visible to this process: check CUDA_VISIBLE_DEVICES, nvidia-smi and the device nodes";
            if has_nodes { Check::fail(ID, found, advice) } else { Check::warn(ID, found, advice) }
        }
    }
}

/// May this user open the device nodes? No check where there are none.
fn device_nodes() -> Option<Check> {
    let nodes = driver::device_nodes();
    let list = |paths: Vec<&PathBuf>| paths.iter().map(apex_untrusted::shown).collect::<Vec<_>>().join(" ");
    let closed: Vec<_> = nodes.iter().filter(|path| !may_open(path)).collect();
    let check = if closed.is_empty() {
        Check::ok("device-nodes", list(nodes.iter().collect()))
    } else {
        let advice = "give this user read and write access (often: group video or render)";
        Check::fail("device-nodes", format!("not readable and writable: {}", list(closed)), advice)
    };
    (!nodes.is_empty()).then_some(check)
}

fn may_open(path: &Path) -> bool {
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: the string ends with a zero byte and lives through the call.
    unsafe { libc::access(path.as_ptr(), libc::R_OK | libc::W_OK) == 0 }
}

impl Probe {
    /// Probes in a child process, without APEX's libraries in it.
    fn in_child() -> anyhow::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["doctor", "--probe-driver"])
            .env_remove("LD_PRELOAD")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let started = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if started.elapsed() > PROBE_LIMIT {
                child.kill()?;
                child.wait()?;
                anyhow::bail!("no answer for {} s", PROBE_LIMIT.as_secs());
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        // The answer is far smaller than a pipe, so reading after the end loses nothing.
        let answer = child.stdout.take().map(std::io::read_to_string).transpose()?.unwrap_or_default();
        serde_json::from_str(&answer).map_err(|_| anyhow::anyhow!("the test process ended with {status}"))
    }

    /// Probes in this process.
    pub fn here() -> Self {
        // SAFETY: the name ends with a zero byte; loading runs the driver's constructors, which is
        // what is tried here.
        let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return Self { error: Some(last_error()), ..Self::default() };
        }
        let mut version: c_int = 0;
        let mut probe = Self::default();
        // SAFETY: the driver API's documented signatures; outputs are locals of the right types.
        unsafe {
            let Some(init) = function(library, c"cuInit") else { return probe };
            probe.path = path_of(init);
            let init: extern "C" fn(c_uint) -> c_int = std::mem::transmute(init);
            if let Some(get) = function(library, c"cuDriverGetVersion") {
                let get: extern "C" fn(*mut c_int) -> c_int = std::mem::transmute(get);
                probe.version = (get(&raw mut version) == 0).then_some(version);
            }
            probe.init = Some(init(0));
            if probe.init == Some(0) {
                probe.devices = device_names(library);
            }
        }
        probe
    }
}

/// # Safety
/// `library` is an open CUDA driver in which `cuInit` succeeded.
unsafe fn device_names(library: *mut c_void) -> Vec<String> {
    type GetCount = extern "C" fn(*mut c_int) -> c_int;
    type GetName = extern "C" fn(*mut c_char, c_int, c_int) -> c_int;
    // SAFETY: the driver API's documented signatures; a device's ordinal is its handle's value.
    unsafe {
        let (Some(get_count), Some(get_name)) =
            (function(library, c"cuDeviceGetCount"), function(library, c"cuDeviceGetName"))
        else {
            return Vec::new();
        };
        let get_count: GetCount = std::mem::transmute(get_count);
        let get_name: GetName = std::mem::transmute(get_name);
        let mut count = 0;
        get_count(&raw mut count);
        let name = |ordinal| {
            let mut name = [0u8; 256];
            let result = get_name(name.as_mut_ptr().cast(), name.len() as c_int - 1, ordinal);
            let name = CStr::from_bytes_until_nul(&name).ok()?;
            (result == 0).then(|| name.to_string_lossy().into_owned())
        };
        (0..count).filter_map(name).collect()
    }
}

/// # Safety
/// `library` came from `dlopen`.
unsafe fn function(library: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a live handle and a terminated name.
    let address = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}

fn path_of(address: *mut c_void) -> Option<String> {
    // SAFETY: `Dl_info` is plain data; `dladdr` takes any address; the name it gives lives as long
    // as the library.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        let known = libc::dladdr(address, &raw mut info) != 0 && !info.dli_fname.is_null();
        known.then(|| CStr::from_ptr(info.dli_fname).to_string_lossy().into_owned())
    }
}

fn last_error() -> String {
    // SAFETY: returns null or a string that lives until the next dl* call of this thread.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() {
            "unknown error".into()
        } else {
            CStr::from_ptr(text).to_string_lossy().into_owned()
        }
    }
}
