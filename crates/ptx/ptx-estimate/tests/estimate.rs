//! Estimates of any code end, and say the same each time: of real kernels, and of their
//! instructions and operands thrown together.
//!
//! The choices are random and the same in every run; `PTX_FUZZ_SECONDS=600 cargo test --release -p
//! ptx-estimate --test estimate` goes on for that long, with others.

#[path = "../../ptx/tests/fuzz/mod.rs"]
mod fuzz;

use apex_random::Random;
use std::time::Instant;

use cuda_launch::LaunchConfig;
use ptx::{
    Function, FunctionKind, Instruction, Mnemonic, Module, Name, Operand, Position, Predicate, Statement,
};
use ptx_estimate::{Argument, Estimator, Work};

fn pick<'a, T>(random: &mut Random, of: &'a [T]) -> &'a T {
    &of[random.index(of.len())]
}

fn random_launch(random: &mut Random) -> LaunchConfig {
    let mut size = |of: &[u32]| random.choose(of);
    let grid = [size(&[0, 1, 2, 77, u32::MAX]), size(&[1, 3, 65535]), size(&[1, u32::MAX])];
    let block = [size(&[0, 1, 31, 32, 100, 1024, u32::MAX]), size(&[1, 5]), size(&[1, 2, 64])];
    LaunchConfig::new(grid, block).with_dynamic_shared_bytes(size(&[0, 1 << 16, u32::MAX]))
}

fn random_arguments(random: &mut Random) -> Vec<Argument> {
    let mut one = || match random.below(4) {
        0 => Argument::Unknown,
        1 => Argument::Pointer,
        2 => Argument::Bits(random.below(1 << 20)),
        _ => Argument::Bits(u64::MAX << random.below(64)),
    };
    (0..4).map(|_| one()).collect()
}

fn corpus() -> Vec<Module> {
    let parsed = |(_, text): (_, String)| ptx::parse(&text).expect("the corpus parses");
    test_manifest::ptx_corpus().into_iter().map(parsed).collect()
}

/// Walks twice, and judges what can be judged of any code.
fn walk(
    module: &Module,
    function: &Function,
    launch: &LaunchConfig,
    arguments: &[Argument],
    budget: u64,
) -> Work {
    let work = Estimator::new(module, function).estimate(launch, arguments, budget);
    let again = Estimator::new(module, function).estimate(launch, arguments, budget);
    assert_eq!(work, again, "{} walked twice", function.name);
    let figures = [
        work.total(),
        work.thread_instructions,
        work.global_load_sectors,
        work.global_store_sectors,
        work.shared_wavefronts,
        work.atomic_wavefronts,
    ];
    assert!(figures.iter().all(|figure| figure.is_finite() && *figure >= 0.0), "{work:?}");
    assert!(work.thread_instructions <= 32.0 * work.total() * (1.0 + 1e-9), "{work:?}");
    assert!(work.shared_wavefronts <= 64.0 * work.shared_requests * (1.0 + 1e-9), "{work:?}");
    assert!(work.longest_warp * work.warps >= work.total() * (1.0 - 1e-9), "{work:?}");
    work
}

#[test]
fn real_kernels_execute_something() {
    let mut random = Random::new(1);
    let launch = LaunchConfig::new(40, 128);
    let mut kernels = 0;
    for module in corpus() {
        for function in module.functions().filter(|function| function.body.is_some()) {
            let work = walk(&module, function, &launch, &[], 10_000);
            assert!(work.total() >= work.warps, "{}: {work:?}", function.name);
            walk(&module, function, &random_launch(&mut random), &random_arguments(&mut random), 2_000);
            kernels += usize::from(function.kind == FunctionKind::Entry);
        }
    }
    assert!(kernels > 50, "{kernels} kernels");
}

/// Instructions and operands of a module, thrown together with branches between them.
fn thrown_together(from: &Function, random: &mut Random) -> Function {
    let (mut instructions, mut rest) = (Vec::new(), Vec::new());
    from.visit(&mut |statement| match statement {
        Statement::Instruction(instruction) => instructions.push(instruction.clone()),
        Statement::Variable(_) => rest.push(statement.clone()),
        _ => {}
    });
    let labels: Vec<Name> = (0..6).map(|number| Name::from(format!("L{number}").as_str())).collect();
    let predicates: Vec<Predicate> =
        instructions.iter().filter_map(|instruction| instruction.predicate.clone()).collect();
    for label in &labels {
        let place = random.index(rest.len() + 1);
        rest.insert(place, Statement::Label(label.clone(), Position::default()));
    }
    for _ in 0..60 {
        let mut instruction = pick(random, &instructions).clone();
        if random.index(3) == 0 && !instruction.operands.is_empty() {
            let place = random.index(instruction.operands.len());
            let other = pick(random, &instructions);
            if !other.operands.is_empty() {
                instruction.operands[place] = pick(random, &other.operands).clone();
            }
        }
        if random.index(5) == 0 {
            instruction = Instruction {
                mnemonic: Mnemonic::new("bra".into()),
                operands: vec![Operand::Name(pick(random, &labels).clone())],
                ..instruction
            };
        }
        instruction.predicate = match random.index(2) {
            0 if !predicates.is_empty() => Some(pick(random, &predicates).clone()),
            _ => None,
        };
        let place = random.index(rest.len() + 1);
        rest.insert(place, Statement::Instruction(instruction));
    }
    Function { body: Some(rest), ..from.clone() }
}

#[test]
fn code_without_sense_is_walked_to_an_end() {
    let (mut random, until) = fuzz::fuzz();
    let corpus = corpus();
    let (mut walks, mut looped) = (0, 0);
    while walks < 2000 || Instant::now() < until {
        let module = pick(&mut random, &corpus);
        let functions: Vec<&Function> =
            module.functions().filter(|function| function.body.is_some()).collect();
        if functions.is_empty() {
            continue;
        }
        let chosen = functions[random.index(functions.len())];
        let function = thrown_together(chosen, &mut random);
        let work = walk(module, &function, &random_launch(&mut random), &random_arguments(&mut random), 1000);
        walks += 1;
        looped += usize::from(work.longest_warp > 60.0);
    }
    assert!(looped > 100, "{looped} of {walks} have loops");
}
