//! The name of a command's profile: the program's, or the script's where an interpreter runs one.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// How the names of interpreters begin whose first file is the program.
const INTERPRETERS: [&str; 8] = ["python", "pypy", "bash", "sh", "julia", "perl", "ruby", "node"];

/// The name of the profile of a command.
pub fn of_profile(command: &[OsString]) -> PathBuf {
    let mut name = of_program(command).to_owned();
    name.push(".tuned.json");
    name.into()
}

fn of_program(command: &[OsString]) -> &OsStr {
    let program = file_name(&command[0]);
    let shown = program.to_string_lossy();
    let is_interpreter = INTERPRETERS.iter().any(|name| shown.starts_with(name));
    let script = is_interpreter.then(|| script(&command[1..])).flatten();
    script.unwrap_or_else(|| without_ending(program))
}

/// The script among an interpreter's arguments: the module of `-m`, or the first that is a file.
fn script(arguments: &[OsString]) -> Option<&OsStr> {
    let file = arguments.iter().position(|word| Path::new(word).is_file());
    let module =
        arguments.iter().position(|word| word == "-m").filter(|at| file.is_none_or(|file| *at < file));
    match module {
        Some(at) => arguments.get(at + 1).map(|name| file_name(name)),
        None => file.map(|at| without_ending(file_name(&arguments[at]))),
    }
}

fn file_name(path: &OsStr) -> &OsStr {
    Path::new(path).file_name().unwrap_or(OsStr::new("program"))
}

/// The name of a script without its ending; other programs keep theirs.
fn without_ending(name: &OsStr) -> &OsStr {
    let path = Path::new(name);
    let is_script =
        path.extension().is_some_and(|end| ["py", "sh", "jl", "pl", "rb", "js"].iter().any(|s| end == *s));
    path.file_stem().filter(|_| is_script).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_named_after_the_script() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("simulate.py").display().to_string();
        std::fs::write(&script, "").unwrap();
        for (words, expected) in [
            (&["./stencil", &script][..], "stencil.tuned.json"),
            (&["a.out"], "a.out.tuned.json"),
            (&["/usr/bin/python3.12", "-X", "dev", &script, "4096"], "simulate.tuned.json"),
            (&["python", "-m", "package.solver", &script], "package.solver.tuned.json"),
            (&["python", &script, "-m", "8"], "simulate.tuned.json"),
            (&["python", "-c", "print()"], "python.tuned.json"),
            (&["./train.py"], "train.tuned.json"),
        ] {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            assert_eq!(of_profile(&words), Path::new(expected), "{words:?}");
        }
    }
}
