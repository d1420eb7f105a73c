//! The commands as their user meets them: exit codes and messages.

use std::process::{Command, Output};

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
