//! Finds and runs a ptxas that is newer than the driver: the first remedy of `apex run
//! --universal`.
//!
//! A driver refuses PTX of a newer version than its own (222), but runs machine code of any toolkit
//! of its major version ("minor version compatibility", CUDA Compatibility guide). So PTX whose
//! target suits the GPU needs no change: a ptxas that reads its version assembles it. The newest
//! ptxas of the installed toolkits and Python packages is used.
//!
//! Invariants: each child process has a time limit, at which its process group ends, and machine
//! code has a size limit. What the user names by `APEX_PTXAS` and does not work is never silent.

use apex_conventions::variables::PTXAS;
use ptx::forms::{Suffix, Target, Version};
use ptx_retarget::{Gpu, Header, newest_of_driver};
use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum time for assembling a module; the injected library waits longer (20 s).
const PATIENCE: Duration = Duration::from_secs(12);
/// Maximum time for the answer to `--version`.
const PATIENCE_OF_VERSION: Duration = Duration::from_secs(2);
/// Maximum size of machine code, bytes.
const MOST_BYTES: u64 = apex_conventions::universal::MOST_BYTES as u64;
/// Maximum size of what ptxas says of a module, bytes.
const MOST_LOG_BYTES: u64 = 1 << 20;
/// Folders of ptxas in Python packages, below `lib/python3.N/site-packages`.
const IN_PACKAGES: [&str; 3] = ["nvidia/cu13/bin", "nvidia/cuda_nvcc/bin", "triton/backends/nvidia/bin"];

/// An installed ptxas.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Assembler {
    /// Version of its toolkit: (13, 5) for CUDA 13.5.
    pub release: (u32, u32),
    /// Path of the program.
    pub path: PathBuf,
}

/// The newest ptxas that reads a module with this header and whose machine code the driver runs;
/// `None` also if the GPU is too old for the module, because then no ptxas helps.
///
/// # Errors
/// The reason why the ptxas that the user names is not used.
pub fn find(gpu: Gpu, driver_version: i32, header: Header) -> Result<Option<Assembler>, String> {
    let is_the_version_alone = header.is_known() && header.target.runs_on(gpu.capability);
    let (Ok(major), true) = (u32::try_from(driver_version / 1000), is_the_version_alone) else {
        return Ok(None);
    };
    if header.version <= gpu.newest {
        return Ok(None);
    }
    let is_newer = |each: &&Assembler| each.release.0 == major && each.newest() >= header.version;
    match (installed().iter().filter(is_newer).max(), PTXAS.path()) {
        (None, Some(named)) => Err(unsuitable(&named, installed().first(), major, header.version)),
        (found, _) => Ok(found.cloned()),
    }
}

/// Why the ptxas that the user names is not used.
fn unsuitable(named: &Path, found: Option<&Assembler>, driver: u32, wanted: Version) -> String {
    let name = format!("{}={}", PTXAS.name, named.display());
    match found.map(|each| each.release) {
        None => format!("{name} is no ptxas: it did not tell its release"),
        Some((major, minor)) if major != driver => {
            format!(
                "{name} is of CUDA {major}.{minor}, and the driver runs machine code of CUDA {driver} only"
            )
        }
        Some((major, minor)) => {
            format!("{name} is of CUDA {major}.{minor}, which does not read PTX {}.{}", wanted.0, wanted.1)
        }
    }
}

/// All that are installed. They are asked once, at the same time, so that a module waits for the
/// slowest of them alone.
fn installed() -> &'static [Assembler] {
    static INSTALLED: OnceLock<Vec<Assembler>> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let candidates = candidates();
        thread::scope(|scope| {
            let asked: Vec<_> =
                candidates.iter().map(|path| scope.spawn(move || Assembler::at(path))).collect();
            asked.into_iter().filter_map(|each| each.join().ok().flatten()).collect()
        })
    })
}

/// The programs that may be a ptxas.
fn candidates() -> BTreeSet<PathBuf> {
    if let Some(path) = PTXAS.path() {
        return [path].into();
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = env::split_paths(&path).filter(|folder| folder.is_absolute()).collect();
    let roots = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(env::var_os).map(PathBuf::from);
    let toolkits = roots.chain([PathBuf::from("/usr/local/cuda")]).map(|root| root.join("bin"));
    let packages = folders.iter().filter_map(|folder| folder.parent()).flat_map(in_packages);
    let all = folders.iter().cloned().chain(toolkits).chain(packages).map(|folder| folder.join("ptxas"));
    all.filter_map(|path| fs::canonicalize(path).ok()).collect()
}

/// The folders of Python packages that hold a ptxas, of the Python that is installed below `root`.
fn in_packages(root: &Path) -> Vec<PathBuf> {
    let Ok(libraries) = fs::read_dir(root.join("lib")) else { return Vec::new() };
    let pythons = libraries
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with("python3")));
    pythons
        .flat_map(|python| IN_PACKAGES.map(|each| python.path().join("site-packages").join(each)))
        .collect()
}

impl Assembler {
    /// The ptxas at a path; `None` if the program there is none.
    fn at(path: &Path) -> Option<Assembler> {
        let mut command = Command::new(path);
        let asked = command.arg("--version").env_remove("LD_PRELOAD").stdin(Stdio::null());
        let told = run(asked.stdout(Stdio::piped()).stderr(Stdio::null()), PATIENCE_OF_VERSION).ok()?;
        Some(Assembler { release: release(&told?)?, path: path.to_owned() })
    }

    /// The newest PTX version that it reads.
    fn newest(&self) -> Version {
        let (major, minor) = self.release;
        i32::try_from(major * 1000 + minor * 10).map_or((0, 0), newest_of_driver)
    }

    /// Machine code of a module for a GPU; temporary files are made in `folder`.
    ///
    /// # Errors
    /// If ptxas refuses the module, takes longer than [`PATIENCE`], or gives nothing.
    pub fn assemble(
        &self,
        folder: &Path,
        source: &str,
        (capability, target): (u32, Target),
    ) -> Result<Vec<u8>, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let files = ["ptx", "cubin", "log"].map(|end| folder.join(format!("universal-{number}.{end}")));
        let [from, to, log] = &files;
        let assembled =
            fs::write(from, source).and_then(|()| self.assembled([from, to, log], capability, target));
        let reason = assembled.as_ref().err().map(|error| self.complaint(error, log));
        for file in &files {
            let _ = fs::remove_file(file);
        }
        match (assembled, reason) {
            (Ok(code), _) if !code.is_empty() => Ok(code),
            (_, Some(reason)) => Err(reason),
            // An empty offer would end the series.
            _ => Err(format!("{} gave no machine code", self.path.display())),
        }
    }

    fn assembled(&self, [from, to, log]: [&Path; 3], capability: u32, target: Target) -> io::Result<Vec<u8>> {
        let mut command = Command::new(&self.path);
        command.arg("--gpu-name").arg(gpu_name(capability, target)).arg("-o").args([to, from]);
        let silent = command.env_remove("LD_PRELOAD").stdin(Stdio::null()).stdout(Stdio::null());
        run(silent.stderr(fs::File::create(log)?), PATIENCE)?;
        apex_untrusted::read::read(to, MOST_BYTES)
    }

    /// Why it gave no machine code, with the first line that it wrote.
    fn complaint(&self, error: &io::Error, log: &Path) -> String {
        let said = apex_untrusted::read::read(log, MOST_LOG_BYTES).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let first =
            said.lines().find(|line| !line.trim().is_empty()).map(|line| format!(": {}", line.trim()));
        let why = match error.kind() {
            io::ErrorKind::TimedOut => format!("took longer than {} s", PATIENCE.as_secs()),
            _ => format!("failed ({error})"),
        };
        format!("{} {why}{}", self.path.display(), first.unwrap_or_default())
    }
}

/// The value of `--gpu-name`. An architecture-specific target (`sm_90a`) keeps its suffix.
fn gpu_name(capability: u32, target: Target) -> String {
    let letter = if target.suffix == Suffix::Architecture { "a" } else { "" };
    format!("sm_{capability}{letter}")
}

/// Runs a command in a process group of its own for a limited time, after which the group ends, and
/// returns what it wrote to its standard output, if that is a pipe.
///
/// # Errors
/// If it cannot be started, takes too long, or fails.
fn run(command: &mut Command, patience: Duration) -> io::Result<Option<String>> {
    let mut child = command.process_group(0).spawn()?;
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if begun.elapsed() > patience {
            end_group(&child);
            child.wait()?;
            return Err(io::ErrorKind::TimedOut.into());
        }
        thread::sleep(Duration::from_millis(2));
    };
    // The answer to `--version` is far smaller than a pipe, so reading after the end loses nothing.
    let told = child.stdout.take().map(io::read_to_string).transpose()?;
    if status.success() { Ok(told) } else { Err(io::Error::other(status.to_string())) }
}

/// Ends a child, which leads a group, and those that it has started.
fn end_group(child: &Child) {
    let Ok(group) = i32::try_from(child.id()) else { return };
    // SAFETY: the call takes any number. Nobody has waited for the child, so the number is its own.
    unsafe { libc::kill(-group, libc::SIGKILL) };
}

/// The toolkit that `ptxas --version` names: `Cuda compilation tools, release 13.5, V13.5.37`.
fn release(told: &str) -> Option<(u32, u32)> {
    let (_, rest) = told.split_once("Cuda compilation tools, release ")?;
    let (major, rest) = rest.split_once('.')?;
    let minor: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Some((major.parse().ok()?, minor.parse().ok()?)).filter(|&(major, minor)| major < 1000 && minor < 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: Gpu = Gpu { capability: 90, newest: (9, 0) };

    fn header(version: Version, target: &str) -> Header {
        Header { version, target: target.parse().unwrap() }
    }

    #[test]
    fn the_release_is_read_from_what_ptxas_says() {
        let told =
            "ptxas: NVIDIA (R) Ptx optimizing assembler\nCuda compilation tools, release 13.5, V13.5.37\n";
        assert_eq!(release(told), Some((13, 5)));
        for other in
            ["", "release 13.5", "Cuda compilation tools, release 13", "Cuda compilation tools, release x.5"]
        {
            assert_eq!(release(other), None, "{other}");
        }
    }

    #[test]
    fn a_ptxas_cures_a_version_and_no_target() {
        for (version, target) in
            [((9, 0), "sm_90"), ((9, 5), "sm_100"), ((9, 5), "sm_100a"), ((6, 0), "sm_90")]
        {
            assert_eq!(find(GPU, 13000, header(version, target)), Ok(None), "{version:?} {target}");
        }
    }

    #[test]
    fn a_named_ptxas_that_does_not_help_has_a_reason() {
        let of = |release| Assembler { release, path: "/x".into() };
        let reason = |found: Option<&Assembler>| unsuitable(Path::new("/x"), found, 13, (9, 5));
        assert_eq!(reason(None), "APEX_PTXAS=/x is no ptxas: it did not tell its release");
        assert!(reason(Some(&of((12, 9)))).ends_with("the driver runs machine code of CUDA 13 only"));
        assert!(reason(Some(&of((13, 0)))).ends_with("is of CUDA 13.0, which does not read PTX 9.5"));
    }

    #[test]
    fn a_command_that_takes_too_long_ends_with_its_children() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 1000 & sleep 1000"]).stdout(std::os::fd::OwnedFd::from(theirs));
        let error = run(&mut command, Duration::from_millis(1)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(command);
        // The end of the stream: nobody holds the other side.
        assert_eq!(io::read_to_string(ours).unwrap(), "");
    }

    #[test]
    fn code_for_one_architecture_is_assembled_for_it() {
        for (capability, target, name) in
            [(90, "sm_80", "sm_90"), (90, "sm_90a", "sm_90a"), (103, "sm_100f", "sm_103")]
        {
            assert_eq!(gpu_name(capability, target.parse().unwrap()), name);
        }
    }
}
