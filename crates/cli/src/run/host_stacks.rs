//! The thread of `apex run` and `apex attach` that samples the program's threads while it runs.

use crate::output;
use apex_conventions::variables;
use apex_host_stacks::{Options, Sampler, USUAL_HZ};
use apex_untrusted::Folder;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The session's file of it takes at most such a part of the session's size limit.
const PART_OF_LIMIT: u64 = 8;
/// Highest rate that may be asked for.
const MOST_HZ: u32 = 1000;

/// The rate at which each thread is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// Never.
    Off,
    /// The number of samples in a second.
    Hz(u32),
}

impl Default for Rate {
    fn default() -> Self {
        Rate::Hz(USUAL_HZ)
    }
}

impl std::str::FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            _ if text == "off" => Ok(Rate::Off),
            Ok(hz @ 1..=MOST_HZ) => Ok(Rate::Hz(hz)),
            _ => {
                Err(format!("`{text}` is neither `off` nor a number of samples in a second, 1 to {MOST_HZ}"))
            }
        }
    }
}

/// Starts the thread, unless the rate is off. It samples the processes that make CUDA calls.
pub fn start(session: &Folder, rate: Rate, max_size: Option<u64>) -> Option<Sampler> {
    let dir = session.path().to_owned();
    start_for(session, rate, max_size, move || processes(&dir))
}

/// Starts the thread for these processes, unless the rate is off.
pub fn start_for(
    session: &Folder,
    rate: Rate,
    max_size: Option<u64>,
    processes: impl FnMut() -> Vec<u32> + Send + 'static,
) -> Option<Sampler> {
    let Rate::Hz(hz) = rate else { return None };
    let usual = Options::default();
    let most_bytes = max_size.map_or(usual.most_bytes, |size| usual.most_bytes.min(size / PART_OF_LIMIT));
    let windows = variables::HOST_STACKS_WINDOWS
        .value()
        .and_then(|text| text.to_str()?.parse().ok())
        .map(Duration::from_millis);
    let options = Options { period: Duration::from_secs(1) / hz, most_bytes, windows };
    let started = Folder::open(session.path()).and_then(|folder| Sampler::start(folder, options, processes));
    started.map_err(remark).ok()
}

/// Ends the thread.
pub fn finish(sampler: Option<Sampler>) {
    if let Some(Err(error)) = sampler.map(Sampler::finish) {
        remark(error);
    }
}

fn remark(error: io::Error) {
    output::remark(format!("sampling of the host's call stacks stopped: {error}"));
}

/// The processes that have made a CUDA call in this session and run on this machine. The name of a
/// process file begins with the identifier; a session may also hold files of other machines, so
/// the process must have the file mapped.
fn processes(session: &Path) -> Vec<u32> {
    let entries = std::fs::read_dir(session).into_iter().flatten().flatten();
    let files = entries.map(|entry| entry.file_name());
    files.filter_map(|name| pid_of(&name).filter(|&pid| has_mapped(pid, &session.join(&name)))).collect()
}

fn pid_of(name: &OsStr) -> Option<u32> {
    name.to_str()?.strip_suffix(".rec")?.split_once('-')?.0.parse().ok()
}

fn has_mapped(pid: u32, file: &Path) -> bool {
    let maps: PathBuf = format!("/proc/{pid}/maps").into();
    let file = file.to_string_lossy();
    std::fs::read(maps).is_ok_and(|maps| String::from_utf8_lossy(&maps).contains(&*file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_off_or_a_number_in_bounds() {
        let rate = |text: &str| text.parse::<Rate>();
        assert_eq!((rate("off"), rate("250")), (Ok(Rate::Off), Ok(Rate::Hz(250))));
        for wrong in ["0", "1001", "on", "", "-1"] {
            assert!(rate(wrong).unwrap_err().contains("1 to 1000"), "{wrong}");
        }
    }

    #[test]
    fn process_files_begin_with_an_identifier() {
        let pid = |name: &str| pid_of(name.as_ref());
        assert_eq!(
            (pid("12-345.rec"), pid("12-345.counts"), pid("x-1.rec"), pid("12.rec")),
            (Some(12), None, None, None)
        );
    }
}
