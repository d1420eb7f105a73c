//! Damaged PTX: whatever is cut out of a real module, put into it or swapped within it, the parser
//! gives a module or an error that can be shown, and never panics.
//!
//! The damage is random and the same in every run. `PTX_FUZZ_SECONDS=600 cargo test --release -p
//! ptx --test damage` goes on for that long, with other damage; `PTX_FUZZ_SEED` repeats it.

mod fuzz;

use apex_random::Random;
use std::time::Instant;

use ptx::body::{InstructionId, Names};
use ptx::flow::Flow;
use ptx::instruction::{Operations, accesses};

/// A part of at most `longest` of `length` bytes.
fn range(random: &mut Random, length: usize, longest: usize) -> std::ops::Range<usize> {
    let start = random.index(length + 1);
    let count = random.index(longest.min(length - start) + 1);
    start..start + count
}

/// Pieces that mean something to the parser.
const PIECES: &[&str] = &[
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    "<",
    ">",
    ",",
    ";",
    ":",
    "@%p",
    "!",
    "|",
    "+",
    "-",
    ".",
    "%",
    "_",
    "\"",
    "\\",
    "//",
    "/*",
    "*/",
    "0x",
    "0f7fc00000",
    "0d",
    "0b",
    "18446744073709551616",
    "-9223372036854775809",
    ".entry",
    ".func",
    ".param",
    ".reg",
    ".b32",
    ".shared",
    ".const",
    ".global",
    ".align",
    ".version 9.9",
    ".target sm_",
    ".loc",
    ".file",
    ".pragma",
    ".section",
    "call",
    "bra",
    "\u{0}",
    "\u{fffd}",
    "é",
];

fn corpus() -> Vec<Vec<u8>> {
    test_manifest::ptx_corpus().into_iter().map(|(_, text)| text.into_bytes()).collect()
}

/// A whole module damaged in a place or two, or a window of one damaged in up to eight.
fn damaged(corpus: &[Vec<u8>], random: &mut Random) -> String {
    let whole = &corpus[random.index(corpus.len())];
    let (mut text, places) = match random.index(2) {
        0 => (whole.clone(), 3),
        _ => (whole[range(random, whole.len(), 4000)].to_vec(), 8),
    };
    for _ in 0..random.index(places) {
        let place = range(random, text.len(), 40);
        match random.index(4) {
            0 => drop(text.drain(place)),
            1 => drop(text.splice(place, PIECES[random.index(PIECES.len())].bytes())),
            2 => {
                let other = &corpus[random.index(corpus.len())];
                let piece = other[range(random, other.len(), 200)].to_vec();
                drop(text.splice(place, piece));
            }
            _ => text[place].iter_mut().for_each(|byte| *byte = byte.wrapping_add(1)),
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Asks every layer about every function: each gives an answer, and the answers agree.
fn look_through(module: &ptx::Module) {
    ptx::verify(module);
    let names = Names::new(module);
    for function in module.functions() {
        let body = names.body(function);
        let operations = Operations::of(&body);
        let flow = Flow::of(&body, &operations);
        let above = flow.dominators();
        for found in flow.loops(&above) {
            assert!(found.blocks.iter().all(|block| above.is_above(found.head, *block)));
        }
        for (at, (line, operation)) in (0..).map(InstructionId).zip(body.lines.iter().zip(operations.iter()))
        {
            let block = flow.block(flow.block_of(at));
            assert!(block.first <= at && at < block.end);
            accesses(operation, &line.operands);
            operation.reads(line, &body, &mut |register| assert!(register.index() < body.registers.len()));
        }
        for id in flow.ids() {
            let block = flow.block(id);
            assert!(block.leaves || !block.successors.is_empty());
            assert!(above.parent(id).is_none_or(|parent| above.is_above(parent, id)));
            for &next in &block.successors {
                assert!(flow.block(next).predecessors.contains(&id));
            }
        }
    }
}

#[test]
fn damage_gives_a_module_or_an_error_that_can_be_shown() {
    let (mut random, until) = fuzz::fuzz();
    let corpus = corpus();
    let (mut modules, mut errors) = (0u64, 0u64);
    while modules + errors < 3000 || Instant::now() < until {
        let text = damaged(&corpus, &mut random);
        match ptx::parse(&text) {
            Ok(module) => {
                let printed = module.to_string();
                let again =
                    ptx::parse(&printed).unwrap_or_else(|error| panic!("{}", error.render(&text, &printed)));
                assert!(module == again, "printed and parsed again it differs:\n{text}");
                look_through(&module);
                modules += 1;
            }
            Err(error) => {
                assert!(!error.render("damaged.ptx", &text).is_empty());
                errors += 1;
            }
        }
    }
    println!("{modules} modules, {errors} errors");
    assert!(
        modules > 20 && errors > 1000,
        "{modules} modules, {errors} errors: the damage is too light or too heavy"
    );
}
