//! Real PTX: what NVRTC makes of the programs in `tests/corpus`, and the programs that ship with
//! the demo.

mod common;

use std::path::Path;

use common::{Ptxas, architecture, by_hand, corpus};

fn parse(path: &Path, source: &str) -> ptx::Module {
    let name = path.display().to_string();
    ptx::parse(source).unwrap_or_else(|error| panic!("{}", error.render(&name, source)))
}

#[test]
fn everything_parses() {
    for (path, source) in corpus() {
        let module = parse(&path, &source);
        let entries = source.matches(".entry ").count();
        let found = module.functions().filter(|function| function.kind == ptx::FunctionKind::Entry).count();
        assert_eq!(entries, found, "{}", path.display());
    }
}

#[test]
fn what_is_printed_parses_to_the_same() {
    for (path, source) in corpus() {
        let module = parse(&path, &source);
        let printed = module.to_string();
        let again = parse(&path.with_extension("printed.ptx"), &printed);
        assert!(module == again, "{}: the printed module differs", path.display());
        assert_eq!(printed, again.to_string());
    }
}

#[test]
fn ptxas_takes_what_is_printed() {
    let Some(ptxas) = Ptxas::find() else { return };
    let (mut taken, mut newer) = (0, 0);
    for (path, source) in corpus().into_iter().chain(by_hand()) {
        let module = parse(&path, &source);
        if module.version > ptxas.newest {
            newer += 1;
            continue;
        }
        // What was written by hand may be wrong on purpose.
        if !ptxas.errors(&source, &architecture(&module)).is_empty() {
            continue;
        }
        let errors = ptxas.errors(&module.to_string(), &architecture(&module));
        assert!(errors.is_empty(), "{}: {errors:?}", path.display());
        taken += 1;
    }
    println!("{taken} modules taken, {newer} newer than ptxas");
    assert!(taken > 30 || newer > 0);
}
