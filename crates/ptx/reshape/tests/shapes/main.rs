//! Kernels of which it is known by how they are made whether their result depends on the launch's
//! shape. Each yes is executed in many shapes on the CPU, and memory is compared bit by bit. The
//! same is done with each condition of the proof turned off, which must come out.

mod arena;
mod case;
mod generate;
mod mutants;
mod traps;
mod written;

use apex_random::Random;
use apex_reshape::{Change, Launch, Proof, Reason, Refusal, Rules};
use arena::{Arena, Failure, compile};
use case::{Case, Layout, Shot, Truth};
use cuda_launch::{Dim3, LaunchConfig};
use launch_condition::Checked;
use std::collections::{BTreeMap, BTreeSet};

/// The corpus is the same each time.
const SEED: u64 = 20261129;
/// Shapes of each launch that are executed.
const SHAPES: usize = 7;

fn corpus() -> Vec<Case> {
    let mut cases = written::cases();
    cases.extend(traps::cases());
    cases.extend(generate::cases(SEED));
    cases
}

/// The parameters of a launch.
fn parameters(shot: &Shot, arena: &Arena) -> Vec<u8> {
    let a = arena.buffer(0);
    let b = match shot.layout {
        Layout::Separate | Layout::Pool => arena.buffer(1),
        Layout::InPlace => a,
        Layout::Shifted => a + 4,
    };
    let mut bytes = Vec::new();
    [a, b, arena.buffer(2)].iter().for_each(|pointer| bytes.extend(pointer.to_le_bytes()));
    [shot.n, shot.w, shot.h, 0].iter().for_each(|number| bytes.extend(number.to_le_bytes()));
    bytes.extend(shot.m.to_le_bytes());
    bytes
}

/// Blocks to try: candidates, and blocks that a user would not choose but that keep the threads.
fn blocks(proof: &Proof, config: &LaunchConfig, random: &mut Random) -> Vec<Dim3> {
    let mut all = proof.candidates(config);
    random.shuffle(&mut all);
    all.truncate(3 * SHAPES);
    let (grid, block) = (config.grid.to_array(), config.block.to_array());
    for _ in 0..4 * SHAPES {
        let side = |axis: usize, random: &mut Random| {
            let threads = grid[axis] * block[axis];
            let divisors: Vec<u32> = (1..=threads.min(512)).filter(|side| threads % side == 0).collect();
            random.choose(&divisors)
        };
        let sides: [u32; 3] = std::array::from_fn(|axis| side(axis, random));
        all.push(sides.into());
    }
    all.extend([1u32, 7, 48, 100].map(|side| Dim3::from((side, 1, block[2]))));
    random.shuffle(&mut all);
    all.retain(|shape| *shape != config.block && shape.count() <= 1024);
    all
}

/// What became of a case.
#[derive(Default)]
struct Outcome {
    refusal: Option<Refusal>,
    /// Shapes allowed and executed, by the change.
    same: usize,
    more: usize,
    /// A shape whose result differs.
    wrong: Option<String>,
}

/// Judges a case under some rules, and executes what is allowed.
fn examine(case: &Case, rules: Rules, arena: &mut Arena) -> Outcome {
    examine_if(case, rules, arena, true)
}

/// The same; if `must_run` is false, a launch that faults or does not end is left out.
fn examine_if(case: &Case, rules: Rules, arena: &mut Arena, must_run: bool) -> Outcome {
    let module =
        ptx::parse(&case.source).unwrap_or_else(|error| panic!("{}", error.render(&case.name, &case.source)));
    let mut outcome = Outcome::default();
    let proof = match Proof::with_rules(&module, "k", rules) {
        Ok(proof) => proof,
        Err(refusal) => return Outcome { refusal: Some(refusal), ..outcome },
    };
    let linked = compile(&module, &case.source);
    let mut random = Random::named(SEED, &case.name);
    let words: Vec<u128> = (0..arena.words()).map(|_| contents(&mut random)).collect();
    for shot in &case.shots {
        let given = parameters(shot, arena);
        let mut expected = None;
        let mut run = 0;
        for block in blocks(&proof, &shot.config, &mut random) {
            let verdict = judge(&proof, shot, &given, block, arena);
            let (shaped, change) = match verdict {
                Ok(allowed) => allowed,
                Err(refusal) => {
                    outcome.refusal.get_or_insert(refusal);
                    continue;
                }
            };
            if run == SHAPES {
                continue;
            }
            run += 1;
            *(if change == Change::SameThreads { &mut outcome.same } else { &mut outcome.more }) += 1;
            if expected.is_none() {
                match arena.run(&words, &linked, shot.config, &given) {
                    Ok(original) => expected = Some(original),
                    Err(_) if !must_run => break,
                    Err(fault) => panic!("{}: {fault:?}\n{}", case.name, case.source),
                }
            }
            let result = arena.run(&words, &linked, shaped, &given);
            if !matches!(result, Err(Failure::Ended)) && result.ok() != expected {
                outcome.wrong = Some(format!("{} in {shaped} instead of {}", case.name, shot.config));
                return outcome;
            }
        }
    }
    outcome
}

/// Sixteen bytes: floats of moderate size.
fn contents(random: &mut Random) -> u128 {
    let bytes: Vec<u8> = (0..4).flat_map(|_| (random.signed() * 8.0).to_le_bytes()).collect();
    bytes.try_into().map(u128::from_le_bytes).expect("sixteen bytes")
}

/// The allocation around an address in a launch.
fn allocation(shot: &Shot, arena: &Arena, address: u64) -> Option<(u64, u64)> {
    match shot.layout {
        Layout::Pool => Some(arena.all()),
        _ => arena.one(address),
    }
}

fn judge(
    proof: &Proof,
    shot: &Shot,
    given: &[u8],
    block: Dim3,
    arena: &Arena,
) -> Result<(LaunchConfig, Change), Refusal> {
    let allocation = |address: u64| allocation(shot, arena, address);
    let launch =
        Launch { config: shot.config, cooperative: false, parameters: given, allocation: &allocation };
    proof.judge(&launch, block)
}

#[test]
fn each_yes_gives_the_same_memory_in_every_shape() {
    let (mut arena, cases) = (Arena::new(), corpus());
    let (mut proven, mut qualified, mut shapes) = (0, 0, [0, 0]);
    let mut reasons: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut refused = BTreeSet::new();
    for case in &cases {
        let outcome = examine(case, Rules::ALL, &mut arena);
        assert_eq!(outcome.wrong, None, "{}", case.source);
        let is_proven = outcome.same + outcome.more > 0;
        assert!(!is_proven || case.truth == Truth::Qualifies, "{} is allowed:\n{}", case.name, case.source);
        shapes[0] += outcome.same;
        shapes[1] += outcome.more;
        refused.extend(outcome.refusal.as_ref().map(|refusal| refusal.reason));
        if case.truth == Truth::Qualifies {
            qualified += 1;
            proven += usize::from(is_proven);
            if !is_proven {
                let refusal = outcome.refusal.map_or("no shape".to_owned(), |refusal| refusal.to_string());
                reasons.entry(refusal).or_default().push(case.name.clone());
            }
        }
    }
    println!(
        "{} kernels; {qualified} qualify, of which {proven} are proven ({:.0}%); executed in {} shapes of as many \
         threads and {} of more",
        cases.len(),
        100.0 * proven as f64 / qualified as f64,
        shapes[0],
        shapes[1]
    );
    for (reason, names) in &reasons {
        println!("  not proven: {reason}: {}", names.join(", "));
    }
    use Reason::*;
    let expected = [
        Directive,
        Instruction,
        Special,
        Index,
        Undefined,
        Pointer,
        SharedStore,
        ForeignLoad,
        Atomic,
        Shape,
        Total,
        Unguarded,
        Bound,
        Overlap,
    ];
    let missing: Vec<_> = expected.iter().filter(|reason| !refused.contains(reason)).collect();
    assert!(missing.is_empty(), "no kernel is refused because of {missing:?}");
    assert!(cases.len() >= 300 && proven * 10 >= qualified * 7, "{proven} of {qualified} are proven");
    assert!(shapes[0] > 500 && shapes[1] > 500, "too few shapes were executed");
}

/// The library evaluates the condition in another way than the proof: neither may allow what the
/// other refuses, unless allocations tell more than the code does.
#[test]
fn the_condition_as_data_says_the_same() {
    let (arena, mut compared, mut by_allocation) = (Arena::new(), 0, 0);
    for case in corpus() {
        let module = ptx::parse(&case.source).expect("it is PTX");
        let Ok(proof) = Proof::of(&module, "k") else { continue };
        let condition = proof.condition().unwrap_or_else(|refusal| panic!("{}: {refusal}", case.name));
        let checked = Checked::of(&condition).unwrap_or_else(|| panic!("{}: {condition:?}", case.name));
        by_allocation += u32::from(checked.needs_allocations());
        let mut random = Random::named(SEED, &case.name);
        for shot in &case.shots {
            let given = parameters(shot, &arena);
            for block in blocks(&proof, &shot.config, &mut random) {
                let own = judge(&proof, shot, &given, block, &arena);
                // (Which blocks CUDA and the kernel allow is for whoever makes the launch.)
                if own.as_ref().is_err_and(|refusal| refusal.reason == Reason::Shape) {
                    continue;
                }
                let own = own.ok().map(|allowed| allowed.0);
                let other = checked.reshaped(&shot.config, block, &given, |at| allocation(shot, &arena, at));
                assert!(other.is_none() || own == other, "{}: {block} {own:?} {other:?}", case.name);
                let tells_more = shot.layout == Layout::Separate;
                assert!(tells_more || own == other, "{}: {block} {own:?} {other:?}", case.name);
                compared += 1;
            }
        }
    }
    println!("{compared} answers agree; {by_allocation} kernels need allocations");
    assert!(compared > 3000 && by_allocation > 0);
}

/// Mutants are of unknown truth: each yes must hold all the same. All buffers lie in one
/// allocation, so that a mutant that leaves its buffer is not taken to stay inside.
/// `RESHAPE_MUTANTS` says how many of each kernel there are.
#[test]
fn mutants_that_are_allowed_give_the_same_memory() {
    let rounds = std::env::var("RESHAPE_MUTANTS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let (mut arena, mut random) = (Arena::watched(), Random::named(SEED, &format!("{rounds} mutants")));
    let (mut mutants, mut allowed) = (0, 0);
    for case in corpus() {
        for round in 0..rounds {
            let Some(mutant) = mutants::of(&case, round, &mut random) else { continue };
            let outcome = examine_if(&mutant, Rules::ALL, &mut arena, false);
            assert_eq!(outcome.wrong, None, "{}", mutant.source);
            mutants += 1;
            allowed += usize::from(outcome.same + outcome.more > 0);
        }
    }
    println!("{mutants} mutants, {allowed} of them allowed and executed");
    assert!(allowed > mutants / 8 && mutants > 300);
}

/// A rule that the tests turn off.
type Planted = (&'static str, fn(&mut Rules));

#[test]
fn each_condition_is_needed() {
    let planted: [Planted; 9] = [
        ("index", |rules| rules.index = false),
        ("total", |rules| rules.total = false),
        ("guarded", |rules| rules.guarded = false),
        ("bound", |rules| rules.bound = false),
        ("own", |rules| rules.own = false),
        ("apart", |rules| rules.apart = false),
        ("overflow", |rules| rules.overflow = false),
        ("instructions", |rules| rules.instructions = false),
        ("atomics", |rules| rules.atomics = false),
    ];
    let (mut arena, cases) = (Arena::new(), corpus());
    for (name, plant) in planted {
        let mut rules = Rules::ALL;
        plant(&mut rules);
        let wrong = cases.iter().find_map(|case| examine(case, rules, &mut arena).wrong);
        println!("without `{name}`: {}", wrong.as_deref().unwrap_or("nothing is wrong"));
        assert!(wrong.is_some(), "nothing shows that the condition `{name}` is missing");
    }
}
