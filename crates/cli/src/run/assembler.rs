//! Finds and runs a ptxas that is newer than the driver: the first remedy of `apex run
//! --universal`.
//!
//! A driver refuses PTX of a newer version than its own (222), but runs machine code of any toolkit
//! of its major version ("minor version compatibility", CUDA Compatibility guide). So PTX whose
//! target suits the GPU needs no change: a ptxas that reads its version assembles it. The newest
//! ptxas of the installed toolkits and Python packages is used.
//!
//! Invariants: each child process has a time limit, and machine code has a size limit.

use apex_conventions::variables::PTXAS;
use ptx::forms::{Suffix, Target, Version};
use ptx_retarget::{Gpu, Header, newest_of_driver};
use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
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
pub fn find(gpu: Gpu, driver_version: i32, header: Header) -> Option<Assembler> {
    let major = u32::try_from(driver_version / 1000).ok()?;
    let is_the_version_alone = header.is_known() && header.target.runs_on(gpu.capability);
    if !is_the_version_alone || header.version <= gpu.newest {
        return None;
    }
    let found = installed().iter().filter(|each| each.release.0 == major && each.newest() >= header.version);
    found.max().cloned()
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

    /// Machine code of a module for a GPU; temporary files are made in `folder`. `None` if ptxas
    /// refuses the module or takes longer than [`PATIENCE`].
    pub fn assemble(&self, folder: &Path, source: &str, capability: u32, target: Target) -> Option<Vec<u8>> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let file = |extension| folder.join(format!("universal-{number}.{extension}"));
        let (from, to) = (file("ptx"), file("cubin"));
        let code = fs::write(&from, source).and_then(|()| self.assembled(&from, &to, capability, target));
        let _ = (fs::remove_file(&from), fs::remove_file(&to));
        // An empty offer would end the series.
        code.ok().filter(|code| !code.is_empty())
    }

    fn assembled(&self, from: &Path, to: &Path, capability: u32, target: Target) -> io::Result<Vec<u8>> {
        let mut command = Command::new(&self.path);
        command.arg("--gpu-name").arg(gpu_name(capability, target)).arg("-o").args([to, from]);
        let silent = command.env_remove("LD_PRELOAD").stdin(Stdio::null()).stdout(Stdio::null());
        run(silent.stderr(Stdio::null()), PATIENCE)?;
        apex_untrusted::read::read(to, MOST_BYTES)
    }
}

/// The value of `--gpu-name`. An architecture-specific target (`sm_90a`) keeps its suffix.
fn gpu_name(capability: u32, target: Target) -> String {
    let letter = if target.suffix == Suffix::Architecture { "a" } else { "" };
    format!("sm_{capability}{letter}")
}

/// Runs a command for a limited time, and returns what it wrote to its standard output, if that is
/// a pipe.
///
/// # Errors
/// If it cannot be started, takes too long, or fails.
fn run(command: &mut Command, patience: Duration) -> io::Result<Option<String>> {
    let mut child = command.spawn()?;
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if begun.elapsed() > patience {
            child.kill()?;
            child.wait()?;
            return Err(io::ErrorKind::TimedOut.into());
        }
        thread::sleep(Duration::from_millis(2));
    };
    // The answer to `--version` is far smaller than a pipe, so reading after the end loses nothing.
    let told = child.stdout.take().map(io::read_to_string).transpose()?;
    if status.success() { Ok(told) } else { Err(io::Error::other(status.to_string())) }
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
            assert_eq!(find(GPU, 13000, header(version, target)), None, "{version:?} {target}");
        }
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
