//! Judges each kernel of PTX files: a line with the file, the kernel, and the answer, with tabs
//! between them.
//!
//!     kernels FILE...
//!
//! The answer is `proven`, or `refused`, the reason, the instruction, and its line in the source. A
//! kernel counts as proven if its condition is one that the injected library evaluates.

use apex_reshape::{Proof, Refusal};
use launch_condition::Checked;
use ptx::Module;

fn main() {
    for path in std::env::args().skip(1) {
        let text = std::fs::read_to_string(&path).expect("a file of text");
        match ptx::parse(&text) {
            Ok(module) => judge(&path, &module),
            Err(error) => println!("{path}\t-\tunreadable\t{error}"),
        }
    }
}

fn judge(path: &str, module: &Module) {
    for kernel in module.kernels() {
        println!("{path}\t{}\t{}", kernel.name, answer(module, &kernel.name));
    }
}

fn answer(module: &Module, kernel: &str) -> String {
    match Proof::of(module, kernel).and_then(|proof| proof.condition()) {
        Ok(condition) if Checked::of(&condition).is_none() => {
            "refused\tthe condition is too large".to_owned()
        }
        Ok(_) => "proven".to_owned(),
        Err(Refusal { reason, place }) => {
            let source = place.source.map_or(String::new(), |(file, line)| format!("{file}:{line}"));
            format!("refused\t{}\t{}\t{source}", reason.sentence(), place.instruction)
        }
    }
}
