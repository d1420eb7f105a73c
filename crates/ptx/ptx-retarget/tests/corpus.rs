//! What compilers write, lowered: the result is PTX that the verifier and ptxas take; and damaged
//! modules do no harm.

#[path = "../../ptx/tests/common/mod.rs"]
mod common;

use apex_random::Random;
use common::{Ptxas, corpus};
use ptx_retarget::{Gpu, Header, Verdict, check, lower};

/// GPUs, and the newest version of a driver that is older than most of the corpus.
const GPUS: [Gpu; 3] = [
    Gpu { capability: 75, newest: (8, 0) },
    Gpu { capability: 80, newest: (8, 0) },
    Gpu { capability: 90, newest: (8, 0) },
];

#[test]
fn lowered_modules_are_taken() {
    let ptxas = Ptxas::find();
    let (mut lowered_some, mut kept, mut blocked) = (0, 0, 0);
    for (path, source) in corpus() {
        let module = ptx::parse(&source).unwrap();
        for gpu in GPUS {
            let lowered = lower(&module, gpu, false);
            if !lowered.blocked.is_empty() {
                blocked += 1;
                continue;
            }
            let header = Header::of(&lowered.module).unwrap();
            assert!(gpu.takes(header), "{}: {header}", path.display());
            if lowered.module == module {
                kept += 1;
                continue;
            }
            lowered_some += 1;
            let text = lowered.module.to_string();
            let again = ptx::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            assert_eq!(ptx::verify(&again), [], "{}", path.display());
            // The largest modules take ptxas seconds; some were cut, which ptxas refuses as they
            // are.
            if let Some(ptxas) = ptxas.filter(|_| gpu.capability == 80 && text.len() < 100_000) {
                let errors = ptxas.errors(&text, &common::architecture(&again));
                let is_cut = || !ptxas.errors(&source, &common::architecture(&module)).is_empty();
                assert!(errors.is_empty() || is_cut(), "{}: {errors:?}", path.display());
            }
        }
    }
    println!("{lowered_some} lowered, {kept} kept, {blocked} blocked");
    assert!(lowered_some > 20 && kept > 5, "{lowered_some} lowered, {kept} kept");
}

/// A kernel that a GPU runs as it is has the header of its module; each verdict is one of its
/// module's.
#[test]
fn kernels_are_judged_as_their_module_is_lowered() {
    for (path, source) in corpus() {
        let module = ptx::parse(&source).unwrap();
        for gpu in GPUS {
            let lowered = lower(&module, gpu, true);
            for kernel in check(&module, gpu) {
                let cannot = matches!(kernel.verdict, Verdict::Cannot(_));
                assert!(!cannot || !lowered.blocked.is_empty(), "{}: {}", path.display(), kernel.name);
                if kernel.verdict == Verdict::Runs {
                    assert!(gpu.takes(Header::of(&module).unwrap()));
                }
            }
        }
    }
}

/// Damaged modules of the corpus.
const DAMAGED: usize = 300;

#[test]
fn damaged_modules_are_judged_without_a_panic() {
    let mut random = Random::new(1);
    let small: Vec<String> =
        corpus().into_iter().map(|(_, text)| text).filter(|text| text.len() < 20_000).collect();
    let mut parsed = 0;
    for _ in 0..DAMAGED {
        let text = &small[random.index(small.len())];
        let mut lines: Vec<&str> = text.lines().collect();
        for _ in 0..=random.index(3) {
            let (one, other) = (random.index(lines.len()), random.index(lines.len()));
            match random.index(3) {
                0 => lines.swap(one, other),
                1 => drop(lines.remove(one)),
                _ => lines.insert(one, lines[other]),
            }
        }
        let Ok(module) = ptx::parse(&lines.join("\n")) else { continue };
        parsed += 1;
        for gpu in GPUS {
            check(&module, gpu);
            ptx::parse(&lower(&module, gpu, true).module.to_string()).unwrap();
        }
    }
    assert!(parsed > DAMAGED / 4, "{parsed}");
}
