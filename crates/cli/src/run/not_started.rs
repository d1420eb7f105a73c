//! Messages about a command that could not be started: the cause and the remedy, which the system's
//! error number does not tell.

use super::inspect::Program;
use apex_untrusted::shown;
use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Returns the message about a command that could not be executed for this reason.
pub fn message(command: &OsStr, error: &io::Error) -> String {
    let path = Path::new(command);
    let why = match error.kind() {
        ErrorKind::NotFound if !command.as_bytes().contains(&b'/') => not_in_path(path),
        ErrorKind::NotFound => not_there(path),
        ErrorKind::PermissionDenied if path.is_dir() => "it is a folder".to_owned(),
        ErrorKind::PermissionDenied if !is_executable(path) => {
            format!("it is not executable: {}", remedy(path))
        }
        _ if error.raw_os_error() == Some(libc::ENOEXEC) => {
            "it is neither an executable for this machine nor a script that begins with #!".to_owned()
        }
        _ => error.to_string(),
    };
    format!("cannot run {}: {why}", shown(path))
}

/// Explains the failure of a command without a slash.
fn not_in_path(name: &Path) -> String {
    let here = Path::new(".").join(name);
    match here.is_file() {
        true if is_executable(&here) => {
            format!("it is not in PATH; the file in this folder is {}", shown(&here))
        }
        true => format!("it is not in PATH; for the file in this folder, {}", remedy(&here)),
        false => "there is no such command in PATH".to_owned(),
    }
}

/// Explains a path that the system did not find: the file itself, or its interpreter or linker.
fn not_there(path: &Path) -> String {
    match Program::of(path) {
        Program::Script(interpreter) => format!("its interpreter {} does not exist", shown(interpreter)),
        Program::Elf { linker: Some(linker), .. } => {
            format!("its dynamic linker {} does not exist", shown(linker))
        }
        _ => "there is no such file".to_owned(),
    }
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.permissions().mode() & 0o111 != 0)
}

/// Returns the command that runs a file which is not executable.
fn remedy(path: &Path) -> String {
    match path.extension().and_then(OsStr::to_str) {
        Some("py") => format!("write `apex run -- python3 {}`", shown(path)),
        Some("sh") => format!("write `apex run -- sh {}`", shown(path)),
        _ => format!("run `chmod +x {}`", shown(path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_process::Command;

    #[test]
    fn each_cause_has_its_words() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str, mode| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            path
        };
        let train = file("train.py", "print()", 0o644);
        for (command, why) in [
            (folder.path().join("gone"), "there is no such file"),
            (folder.path().to_owned(), "it is a folder"),
            (file("plain", "", 0o644), "it is not executable: run `chmod +x "),
            (train.clone(), "it is not executable: write `apex run -- python3 /"),
            (file("script", "#!/no/such/shell\n", 0o755), "its interpreter /no/such/shell does not exist"),
            (
                file("text", "what is this", 0o755),
                "it is neither an executable for this machine nor a script",
            ),
            ("no-such-command".into(), "there is no such command in PATH"),
        ] {
            // Rust's `Command` runs what the kernel cannot execute by no shell.
            let error = Command::new(&command).spawn().unwrap_err();
            let said = message(command.as_os_str(), &error);
            assert!(said.starts_with(&format!("cannot run {}", shown(&command))), "{said}");
            assert!(said.contains(why), "{said}");
        }
        assert!(remedy(&train).contains("python3"));
    }
}
