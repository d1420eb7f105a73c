//! Kernels run in memory of which only their access sets can be accessed: sets that are too small
//! end the launch. What is said to be written and not read begins with other contents in a second
//! run, which must leave the same.
//!
//! The kernels are those of the proof about shapes, whose ranges are known, and `pointers`, which
//! hide where addresses come from. Each planted fault of the analysis must come out.

#[path = "../../../reshape/tests/shapes/case.rs"]
#[allow(dead_code, reason = "the truth about shapes does not matter here")]
mod case;
#[path = "../../../reshape/tests/shapes/generate.rs"]
mod generate;
mod memory;
mod pointers;
#[path = "../../../reshape/tests/shapes/traps.rs"]
mod traps;
#[path = "../../../reshape/tests/shapes/written.rs"]
mod written;

use case::{Case, Layout, Shot, Truth};
use memory::{Allowed, Arena, BUFFER, BUFFERS};
use ptx_access::{Extent, Fault, Given, Sets, Use};
use ptx_exec::{Linked, Program};

const SEED: u64 = 20261129;

fn corpus() -> Vec<Case> {
    let mut cases = pointers::cases(SEED);
    cases.extend(written::cases());
    cases.extend(traps::cases());
    cases.extend(generate::cases(SEED));
    cases
}

/// The parameters of a launch of `k(a, b, c, n, w, h, m)`.
fn parameters(shot: &Shot, arena: &Arena) -> Vec<u8> {
    let a = arena.buffer(0);
    let b = match shot.layout {
        Layout::Separate | Layout::Pool => arena.buffer(1),
        Layout::InPlace => a,
        Layout::Shifted => a + 4,
    };
    let mut bytes: Vec<u8> =
        [a, b, arena.buffer(2)].iter().flat_map(|pointer| pointer.to_le_bytes()).collect();
    bytes.extend([shot.n, shot.w, shot.h, 0].iter().flat_map(|number| number.to_le_bytes()));
    bytes.extend(shot.m.to_le_bytes());
    bytes
}

/// What the sets of a launch allow.
fn allowed(sets: &Sets, shot: &Shot, given: &Given<'_>, arena: &Arena) -> Allowed {
    let mut allowed = Allowed::default();
    for memory in &sets.memory {
        match memory.at(given).expect("the parameters exist") {
            Extent::Ranges(ranges) => {
                ranges.into_iter().for_each(|(access, range)| allowed.add(range, access))
            }
            Extent::Allocation(address) => {
                let whole = (arena.buffer(0), BUFFERS * BUFFER);
                let buffer = arena.buffer_around(address).map(|start| (start, BUFFER));
                let around = buffer.map(|one| if shot.layout == Layout::Pool { whole } else { one });
                if let Some((start, bytes)) = around {
                    allowed.add(start..start + bytes as u64, memory.access);
                }
            }
            Extent::Variable(name) => panic!("no kernel has a variable {name}"),
        }
    }
    allowed
}

/// What became of a kernel.
#[derive(Debug, PartialEq)]
enum Outcome {
    Barrier,
    /// All launches stayed in their sets, of which so many had ranges.
    Inside {
        ranges: usize,
    },
    Outside(String),
}

fn examine(case: &Case, arena: &mut Arena, fault: Option<Fault>) -> Outcome {
    let module =
        ptx::parse(&case.source).unwrap_or_else(|error| panic!("{}", error.render(&case.name, &case.source)));
    let sets = Sets::with_fault(&module, "k", fault).expect("there is a kernel k");
    if !sets.is_known() {
        return Outcome::Barrier;
    }
    let program = Program::compile(&module)
        .unwrap_or_else(|error| panic!("{}", error.render(&case.name, &case.source)));
    let linked = Linked::new(program, Vec::new());
    let mut ranges = 0;
    let contents = pointers::contents(arena, SEED);
    for (number, shot) in case.shots.iter().enumerate() {
        let parameters = parameters(shot, arena);
        let given = Given { config: shot.config, parameters: &parameters };
        let sets_here = allowed(&sets, shot, &given, arena);
        // (A launch that faults by itself shows nothing.)
        let Some(free) = arena.run(&contents, Allowed::all(arena), &linked, &given) else { continue };
        let what = |problem: &str| Outcome::Outside(format!("{} (launch {number}): {problem}", case.name));
        let Some(kept) = arena.run(&contents, sets_here.clone(), &linked, &given) else {
            return what("an access is outside");
        };
        if kept != free {
            // Threads of the kernel race.
            assert!(case.truth == Truth::Depends, "{} depends on what is allowed", case.name);
            continue;
        }
        let other = sets_here.with_other_contents(&contents, arena);
        match arena.run(&other, sets_here.clone(), &linked, &given) {
            Some(changed) if sets_here.is_same(arena, [&contents, &kept], [&other, &changed]) => {}
            _ => return what("what is not read matters"),
        }
        let is_known = |memory: &ptx_access::Memory| matches!(memory.at(&given), Some(Extent::Ranges(_)));
        ranges += usize::from(sets.memory.iter().any(is_known));
    }
    Outcome::Inside { ranges }
}

#[test]
fn no_access_is_outside_of_its_set() {
    let (mut arena, cases) = (Arena::new(), corpus());
    let (mut barriers, mut inside, mut with_ranges) = (0, 0, 0);
    for case in &cases {
        match examine(case, &mut arena, None) {
            Outcome::Barrier => barriers += 1,
            Outcome::Inside { ranges } => {
                inside += 1;
                with_ranges += ranges;
            }
            Outcome::Outside(problem) => panic!("{problem}\n{}", case.source),
        }
    }
    println!(
        "{} kernels: {inside} stay in their sets, {barriers} are barriers; {with_ranges} launches with ranges",
        cases.len()
    );
    assert!(inside > 800 && with_ranges > 300 && barriers > 100, "{inside} {with_ranges} {barriers}");
}

#[test]
fn each_planted_fault_is_found() {
    let (mut arena, cases) = (Arena::new(), corpus());
    for fault in Fault::ALL {
        let mut found = cases.iter().map(|case| examine(case, &mut arena, Some(fault)));
        let problem = found.find_map(|outcome| match outcome {
            Outcome::Outside(problem) => Some(problem),
            _ => None,
        });
        println!("{fault:?}: {problem:?}");
        assert!(problem.is_some(), "no kernel shows the fault {fault:?}");
    }
}

#[test]
fn uses_are_told_apart() {
    let [read, written, atomic] = [(true, false, false), (false, true, false), (false, false, true)]
        .map(|(read, written, atomic)| Use { read, written, atomic });
    assert!(read.is_read() && !read.is_written());
    assert!(!written.is_read() && written.is_written());
    assert!(atomic.is_read() && atomic.is_written());
}
