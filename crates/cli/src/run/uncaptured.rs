//! A run that captured nothing: the likely causes, from what the command is and what its processes
//! looked like.

use super::driver::{self, Driver};
use super::inspect::{self, Program};
use super::record::Recorded;
use super::watch::{Recorder, Seen};
use crate::units;
use apex_conventions::variables;
use apex_ordered::Gather;
use apex_trace::{Control, MappedControl};
use apex_view::Loaded;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::atomic::Ordering;

/// Interpreters of interpreters: deeper chains of `#!` do not run.
const SCRIPT_DEPTH: usize = 4;

/// Commands that run the program elsewhere, or with another environment.
const LAUNCHERS: &[(&[&str], &str)] = &[
    (
        &["ssh", "srun", "kubectl", "flux", "qsub", "sbatch"],
        "runs the program on another machine: write `apex run --` in front of the program there",
    ),
    (
        &["docker", "podman", "nerdctl", "singularity", "apptainer", "bwrap", "nsenter", "chroot"],
        "runs the program in a container: install APEX in it and run `apex run` inside",
    ),
    (
        &["sudo", "su", "doas", "pkexec", "runuser"],
        "clears the environment, LD_PRELOAD included: write `sudo apex run -- …` instead of `apex run -- sudo …`",
    ),
];

/// Returns the message about a run that captured nothing, a line each. `is_kept` says whether its
/// session stays.
pub fn message(command: &[OsString], loaded: &Loaded, recorded: &Recorded, is_kept: bool) -> Vec<String> {
    let mut lines = vec!["NOTHING WAS CAPTURED".to_string()];
    let mut causes = switched_off(loaded);
    let device = loaded.session.meta.as_ref().map_or("", |meta| &meta.device);
    let missing = driver::missing_for_gpu().filter(|_| variables::DRIVER.path().is_none());
    causes.extend(without_gpu(device, missing));
    if causes.is_empty() {
        causes = self::causes(command, &recorded.seen, recorded.status);
    }
    lines.extend(causes.into_iter().map(|cause| format!("likely cause: {cause}")));
    let session = match is_kept {
        true => format!("{} holds no launch", apex_untrusted::shown(&recorded.session)),
        false => "no session is kept".to_owned(),
    };
    lines.push(format!("`apex doctor` checks other causes; {session}"));
    lines
}

/// The cause where a GPU was asked for and there is none.
fn without_gpu(device: &str, missing: Option<&str>) -> Option<String> {
    let missing = missing.filter(|_| device == Driver::Gpu.name())?;
    Some(format!("{missing}: add --device cpu, with which kernels run on APEX's CPU device"))
}

/// Causes that the session itself tells.
fn switched_off(loaded: &Loaded) -> Vec<String> {
    let mut causes = Vec::new();
    if variables::DISABLE.is_on() {
        causes.push("APEX_DISABLE=1 is set".into());
    }
    let mut is_off = false;
    if let Ok(control) = MappedControl::open(&loaded.session.dir) {
        is_off = !control.is_recording();
        if is_off {
            causes.push(recording_off(&control));
        }
    }
    for process in &loaded.session.processes {
        let (executable, pid) = (&process.executable, process.pid);
        match process.drop_cause() {
            Some(cause) => {
                let lost = units::counted(process.dropped, "record", "records");
                let were = if process.dropped == 1 { "was" } else { "were" };
                causes.push(format!("{lost} of process {pid} {were} lost: {cause}"));
            }
            // What it did while recording was off is not known.
            None if is_off => {}
            None => causes
                .push(format!("{executable} (pid {pid}) opened the CUDA driver but made no further call")),
        }
    }
    causes.splice(0..0, loaded.profile.recorder.problems.iter().cloned());
    causes
}

/// Returns the reason why recording is off.
fn recording_off(control: &Control) -> String {
    match control.generation.load(Ordering::Relaxed) {
        0 => "recording was off from the start (--paused) and was never switched on: use `apex ctl on`, or \
            `apex_cuda.record()` in Python"
            .into(),
        _ => "recording was switched off, by `apex ctl` or `apex_cuda.record()`".into(),
    }
}

/// Likely causes, each a sentence; never empty. That the program failed comes first, because it is
/// certain.
fn causes(command: &[OsString], seen: &BTreeMap<u32, Seen>, status: ExitStatus) -> Vec<String> {
    let mut causes = Vec::from_iter(failure(status));
    causes.extend(command.first().and_then(|name| launcher(name)));
    causes.extend(clears_environment(command));
    causes.extend(obstacle(command));
    causes.extend(seen.iter().filter_map(|(pid, process)| suspicious(*pid, process)));
    if causes.is_empty() {
        causes.push(no_cuda(seen));
    }
    causes
}

fn launcher(name: &OsStr) -> Option<String> {
    let name = Path::new(name).file_name()?.to_str()?;
    let (_, what) = LAUNCHERS.iter().find(|(names, _)| names.contains(&name))?;
    Some(format!("`{name}` {what}"))
}

fn clears_environment(command: &[OsString]) -> Option<String> {
    let is_env = Path::new(command.first()?).file_name() == Some(OsStr::new("env"));
    let clears = command
        .iter()
        .skip(1)
        .take_while(|word| word.to_string_lossy().starts_with('-'))
        .any(|word| matches!(&*word.to_string_lossy(), "-i" | "-" | "--ignore-environment"));
    (is_env && clears).then(|| {
        "`env -i` clears the environment, LD_PRELOAD included: write `env -i apex run -- …` instead"
            .to_string()
    })
}

/// Returns the obstacle to preloading a library into the command, scripts followed to their
/// interpreter.
fn obstacle(command: &[OsString]) -> Option<String> {
    let mut path = inspect::resolve(command.first()?)?;
    for _ in 0..SCRIPT_DEPTH {
        match Program::of(&path) {
            Program::Script(interpreter) => path = interpreter,
            program => {
                return program.obstacle().map(|why| format!("{}: {why}", apex_untrusted::shown(&path)));
            }
        }
    }
    None
}

fn suspicious(pid: u32, process: &Seen) -> Option<String> {
    let Seen { name, recorder, other_driver } = process;
    match (recorder, other_driver) {
        (Recorder::Loaded, Some(driver)) => Some(format!(
            "{name} (pid {pid}) opened {driver} in a way that bypasses APEX: in a name space of its own \
                (dlmopen), or beside another driver"
        )),
        (Recorder::Without(why), Some(driver)) => {
            Some(format!("{name} (pid {pid}) uses {driver} without libapex.so: {why}"))
        }
        (Recorder::Without(why), None) => Some(format!("{name} (pid {pid}) ran without libapex.so: {why}")),
        (Recorder::Loaded, None) | (Recorder::Due, _) => None,
    }
}

fn no_cuda(seen: &BTreeMap<u32, Seen>) -> String {
    let loaded = seen.values().filter(|process| process.recorder == Recorder::Loaded);
    let names: std::collections::BTreeSet<_> = loaded.map(|process| process.name.as_str()).gathered();
    let tree = match names.len() {
        0 => String::new(),
        _ => format!(" (seen with libapex.so: {})", names.into_iter().collect::<Vec<_>>().join(", ")),
    };
    format!("the program made no CUDA call{tree}: it selected the CPU, or does not use CUDA")
}

/// Describes the failure of the program, if it failed: that is a reason to make no call.
fn failure(status: ExitStatus) -> Option<String> {
    let how = match status.signal() {
        _ if status.success() => return None,
        Some(signal) => format!("was ended by signal {signal}"),
        None => format!("failed with exit status {}", status.code().unwrap_or_default()),
    };
    Some(format!("the program {how} before it made a CUDA call: see its own output"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn causes_of(command: &[&str], seen: &[Seen]) -> String {
        let command: Vec<_> = command.iter().map(OsString::from).collect();
        let seen = seen.iter().cloned().zip(10..).map(|(process, pid)| (pid, process)).collect();
        causes(&command, &seen, ExitStatus::from_raw(0)).join("\n")
    }

    fn process(name: &str, is_loaded: bool, other_driver: Option<&str>) -> Seen {
        let without = || Recorder::Without("its environment was cleared".into());
        let recorder = if is_loaded { Recorder::Loaded } else { without() };
        Seen { name: name.into(), recorder, other_driver: other_driver.map(String::from) }
    }

    #[test]
    fn a_gpu_that_is_not_there_is_named_with_the_device_that_is() {
        let said = without_gpu("gpu", Some("no GPU here")).unwrap();
        assert!(said.starts_with("no GPU here: add --device cpu"), "{said}");
        assert_eq!((without_gpu("cpu", Some("no GPU here")), without_gpu("gpu", None)), (None, None));
    }

    #[test]
    fn launchers_and_cleared_environments_are_named() {
        assert!(causes_of(&["/usr/bin/ssh", "host", "x"], &[]).contains("another machine"));
        assert!(causes_of(&["docker", "run", "x"], &[]).contains("container"));
        assert!(causes_of(&["sudo", "x"], &[]).contains("sudo apex run"));
        assert!(
            causes_of(&["env", "-u", "X", "-i", "true"], &[]).contains("no CUDA call"),
            "-u takes a word"
        );
        assert!(causes_of(&["env", "-i", "true"], &[]).contains("env -i apex run"));
    }

    #[test]
    fn processes_tell_more_than_the_command() {
        let stripped = process("python3", false, None);
        assert!(
            causes_of(&["sh"], &[process("sh", true, None), stripped])
                .contains("python3 (pid 11) ran without")
        );
        let bypass = process("solver", true, Some("/usr/lib/libcuda.so.580"));
        assert!(causes_of(&["sh"], &[bypass]).contains("bypasses APEX"));
        let nothing = causes_of(&["sh"], &[process("sh", true, None), process("make", true, None)]);
        assert!(nothing.contains("no CUDA call (seen with libapex.so: make, sh)"), "{nothing}");
    }

    /// A program that failed has said why: that it made no call is no cause.
    #[test]
    fn a_program_that_failed_is_not_called_one_without_cuda() {
        let said = |raw| causes(&["x".into()], &BTreeMap::new(), ExitStatus::from_raw(raw)).join("\n");
        assert!(said(127 << 8).contains("failed with exit status 127 before it made a CUDA call"));
        assert!(said(11).contains("was ended by signal 11 before"));
    }

    /// The observations of short-lived processes differ from run to run; the program's failure does
    /// not.
    #[test]
    fn how_a_program_failed_comes_first_whatever_was_seen() {
        let due = Seen { recorder: Recorder::Due, ..process("sh", true, None) };
        let stripped = process("python3", false, None);
        let failed = |seen: &[&Seen]| {
            let seen = (10..).zip(seen.iter().map(|&seen| seen.clone())).collect();
            causes(&["sh".into()], &seen, ExitStatus::from_raw(1 << 8))
        };
        let expected = "the program failed with exit status 1 before it made a CUDA call: see its own output";
        assert_eq!(failed(&[]), [expected]);
        assert_eq!(failed(&[&due]), [expected]);
        assert_eq!(failed(&[&process("sh", true, None)]), [expected]);
        let both = failed(&[&stripped]);
        assert_eq!((both.len(), &*both[0]), (2, expected));
        assert_eq!(causes_of(&["sh"], &[due]).lines().count(), 1, "and it is no cause");
    }

    #[test]
    fn a_static_program_behind_a_script_is_found() {
        let folder = tempfile::tempdir().unwrap();
        // The smallest statically linked program there is: a header without segments.
        let mut elf = [0u8; 64];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        elf[18] = if cfg!(target_arch = "x86_64") { 62 } else { 183 };
        let (program, script) = (folder.path().join("program"), folder.path().join("script"));
        std::fs::write(&program, elf).unwrap();
        std::fs::write(&script, format!("#!{}\n", program.display())).unwrap();
        let causes = causes_of(&[script.to_str().unwrap()], &[]);
        assert!(causes.contains("statically linked") && causes.contains("program"), "{causes}");
    }
}
