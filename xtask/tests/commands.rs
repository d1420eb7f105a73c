//! The commands as their user meets them: exit codes and messages.

use std::path::Path;
use std::process::Output;
use test_process::Command;

fn xtask(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_xtask")).args(arguments).output().expect("xtask starts")
}

#[test]
fn a_folder_without_headers_is_an_error_that_says_what_to_name() {
    for command in ["abi-gen", "abi-diff"] {
        let output = xtask(&[command, "no/such/folder"]);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(
            message.contains("no/such/folder/cuda.h") && message.contains("nvidia-cuda-runtime"),
            "{message}"
        );
    }
}

#[test]
fn help_shows_examples() {
    for command in ["abi-gen", "abi-diff"] {
        let output = xtask(&[command, "--help"]);
        let help = String::from_utf8_lossy(&output.stdout);
        assert!(help.contains(&format!("cargo xtask {command}")) && help.contains("xample"), "{help}");
    }
}

/// The workflows of the public repository name scripts, files and chores that there are.
#[test]
fn workflows_run_what_there_is() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut chores = 0;
    for entry in std::fs::read_dir(root.join(".github/workflows")).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let words: Vec<&str> = text.split_whitespace().collect();
        for file in words.iter().filter(|word| word.starts_with("scripts/") || word.starts_with(".ci/")) {
            assert!(root.join(file).is_file(), "{}: there is no {file}", path.display());
        }
        for chore in words.windows(3).filter(|words| words[..2] == ["cargo", "xtask"]) {
            assert!(xtask(&[chore[2], "--help"]).status.success(), "{}: {chore:?}", path.display());
            chores += 1;
        }
    }
    assert!(chores >= 4, "workflows build packages and the book");
    assert!(root.join("deny.toml").is_file(), "cargo-deny judges by it");
}
