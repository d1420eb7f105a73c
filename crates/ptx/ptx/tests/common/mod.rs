//! Real PTX, and NVIDIA's assembler, the judge of what is PTX.
//!
//! ptxas is found through the environment variable `PTXAS`, on the PATH, or among Python's
//! packages, where `scripts/test-deps.sh` puts it. Tests that need it say when there is none.
#![allow(dead_code, reason = "each test uses what it needs")]

pub mod statements;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use test_process::Command;

/// PTX of the toolkit whose ptxas judges; older ones differ from it in a few forms.
const JUDGE: ptx::forms::Version = (9, 5);

/// A ptxas.
pub struct Ptxas {
    path: PathBuf,
    /// The newest PTX version that it reads.
    pub newest: ptx::forms::Version,
}

impl Ptxas {
    /// The first that is new enough, looked for once in a process; without one a line says so.
    pub fn find() -> Option<&'static Ptxas> {
        static FOUND: OnceLock<Option<Ptxas>> = OnceLock::new();
        let found = FOUND.get_or_init(Ptxas::look).as_ref();
        if found.is_none() {
            test_skip::missing_dependency("no ptxas of toolkit 13.5 or newer (PTXAS may name one)");
        }
        found
    }

    fn look() -> Option<Ptxas> {
        let packages = Command::new("python3")
            .args(["-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"])
            .output()
            .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
        let mut places: Vec<PathBuf> = std::env::var_os("PTXAS").map(PathBuf::from).into_iter().collect();
        places.push("ptxas".into());
        places.extend(packages.ok().map(|folder| PathBuf::from(folder).join("nvidia/cu13/bin/ptxas")));
        places.into_iter().find_map(|path| {
            let newest = newest(&path).filter(|newest| *newest >= JUDGE)?;
            Some(Ptxas { path, newest })
        })
    }

    /// Parses `source` for a virtual architecture such as `compute_80`; gives the errors by line
    /// (0: about the whole, or a crash).
    pub fn errors(&self, source: &str, architecture: &str) -> BTreeMap<usize, String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("ptxas-{}-{}.ptx", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::write(&file, source).unwrap();
        let output = Command::new(&self.path)
            .args(["-arch", architecture, "-o", "/dev/null"])
            .arg(&file)
            .output()
            .unwrap();
        std::fs::remove_file(&file).unwrap();
        let mut errors = BTreeMap::new();
        if !output.status.success() {
            for line in String::from_utf8_lossy(&output.stderr).lines().filter(|line| is_error(line)) {
                let number = line.split_once(", line ").and_then(|(_, rest)| rest.split_once(';'));
                let place = number.and_then(|(number, _)| number.parse().ok());
                let message = line.split_once(": ").map_or(line, |(_, message)| message);
                errors.entry(place.unwrap_or(0)).or_insert_with(|| message.trim().to_owned());
            }
            if errors.is_empty() {
                errors.insert(0, format!("ptxas failed without a word: {}", output.status));
            }
        }
        errors
    }
}

/// Whether the line is about something wrong, not a warning and not the closing line.
fn is_error(line: &str) -> bool {
    let severity =
        |word: &str| line.contains(&format!("; {word}")) || line.contains(&format!("ptxas {word}"));
    (severity("error") || severity("fatal")) && !line.contains("aborted due to errors")
}

/// The newest PTX version that the ptxas at `path` reads: it names it when it is given one from the
/// future.
fn newest(path: &PathBuf) -> Option<ptx::forms::Version> {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("future-{}.ptx", std::process::id()));
    std::fs::write(&file, ".version 99.0\n.target sm_80\n").unwrap();
    let output = Command::new(path).args(["-o", "/dev/null"]).arg(&file).output().ok()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let (major, minor) = text.split_once("current version is '")?.1.split_once('\'')?.0.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The PTX that compilers made of the programs here and of the demo: path and text.
pub fn corpus() -> Vec<(PathBuf, String)> {
    let mut files = test_manifest::ptx_corpus();
    files.extend(read(&["../../device/device-code/generated/demo"]));
    files
}

/// PTX written by hand for the CPU device, some of it wrong on purpose.
pub fn by_hand() -> Vec<(PathBuf, String)> {
    read(&["../ptx-exec/tests/ptx", "../../device/cpu-device/tests/data"])
}

fn read(folders: &[&str]) -> Vec<(PathBuf, String)> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<PathBuf> = folders
        .iter()
        .flat_map(|folder| std::fs::read_dir(here.join(folder)).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "ptx"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "the corpus is missing");
    files.into_iter().map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect()
}

/// The virtual architecture for which ptxas reads a module.
pub fn architecture(module: &ptx::Module) -> String {
    let target: ptx::forms::Target = module.target[0].parse().unwrap();
    match target.suffix {
        ptx::forms::Suffix::None if target.number <= 100 => "compute_100".to_owned(),
        _ => target.to_string().replace("sm_", "compute_"),
    }
}
