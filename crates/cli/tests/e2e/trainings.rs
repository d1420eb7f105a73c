//! `apex train`: what it refuses, and what it writes.

use crate::common::{Sandbox, output};
use std::fs;
use std::path::{Path, PathBuf};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data").join(name)
}

/// Returns the message on stderr of a command that fails.
fn refused(sandbox: &Sandbox, arguments: &[&str]) -> String {
    let output = output(&mut sandbox.apex(arguments), 125);
    assert!(output.stdout.is_empty(), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn what_cannot_be_learned_from_is_refused_by_name() {
    let sandbox = Sandbox::new();
    let said = refused(&sandbox, &["train", "--data", "nothing", "-o", "models"]);
    assert!(said.contains("nothing/manifest.json"), "{said}");
    output(&mut sandbox.apex(&["collect", "-o", "cpu", "--device", "cpu", "--rows", "4"]), 0);
    let said = refused(&sandbox, &["train", "--data", "cpu", "-o", "models"]);
    assert!(said.contains("cpu was measured on the CPU device"), "{said}");
    assert!(!sandbox.path("models").exists(), "nothing was begun");
    fs::write(sandbox.path("file"), "").unwrap();
    let real = data("h200/launches");
    let said = refused(&sandbox, &["train", "--data", real.to_str().unwrap(), "-o", "file/models"]);
    assert!(said.contains("cannot make file/models"), "{said}");
}

/// One problem of each of the suite's 109 kernels, quickly.
#[test]
fn models_are_written_with_their_card_and_predict() {
    let sandbox = Sandbox::new();
    let part = sandbox.path("part");
    let mut set = apex_dataset::DataSet::read(&data("h200/launches")).unwrap();
    set.launches.truncate(8 * 109);
    set.manifest.counts = apex_dataset::Counts::of(&set.launches);
    set.write(&part).unwrap();
    let trained = output(&mut sandbox.apex(&["train", "--data", "part", "-o", "models", "--quick"]), 0);
    let said = String::from_utf8(trained.stdout).unwrap();
    let card = fs::read_to_string(sandbox.path("models/card.md")).unwrap();
    assert!(said.starts_with(&card) && card.contains("872 launches of 65 families"), "{said}");
    for file in ["small.apexmodel", "large.apexmodel", "what-if.apexmodel", "large.onnx", "card.json"] {
        assert!(sandbox.path(&format!("models/{file}")).is_file(), "{file}");
    }
    let asked = ["predict", "--models", "models", "--grid", "1024", "--block", "256", "--json"];
    let said = output(&mut sandbox.apex(&asked), 0);
    assert!(String::from_utf8(said.stdout).unwrap().contains("achieved_occupancy"));
}
