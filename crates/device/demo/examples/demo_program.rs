//! Runs one bundled program: `demo_program NAME [LIBRARY]`, where LIBRARY stands in for a CUDA
//! driver that is missing.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (name, fallback) = match &arguments[..] {
        [name] => (name, None),
        [name, library] => (name, Some(Path::new(library))),
        _ => return fail("usage: demo_program NAME [LIBRARY]"),
    };
    let Some(program) = apex_demo::program(name) else {
        let names: Vec<_> = apex_demo::PROGRAMS.iter().map(|program| program.name).collect();
        return fail(format!("there is no program {name}; there are {}", names.join(", ")));
    };
    let outcome =
        apex_driver::Device::open(fallback).map_err(apex_demo::DemoError::from).and_then(|device| {
            let outcome = (program.run)(&device)?;
            Ok((device.name().to_owned(), outcome))
        });
    match outcome {
        Ok((device, outcome)) => {
            println!("{name} on {device}: {outcome}");
            ExitCode::SUCCESS
        }
        Err(error) => fail(format!("{name}: {error}")),
    }
}

fn fail(message: impl std::fmt::Display) -> ExitCode {
    eprintln!("demo_program: {message}");
    ExitCode::FAILURE
}
