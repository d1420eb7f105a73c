//! Pairs of kernels: each that is joined is executed as two launches and as one, and memory is
//! compared bit by bit. The kernels are those of the proof about shapes, random pairs of them with
//! their buffers in any roles, and pairs that are written to be wrong.

#[path = "../../reshape/tests/shapes/arena.rs"]
#[allow(dead_code, reason = "launches need no end here")]
mod arena;
#[path = "../../reshape/tests/shapes/case.rs"]
#[allow(dead_code, reason = "the truth about shapes does not matter here")]
mod case;
#[path = "../../reshape/tests/shapes/generate.rs"]
mod generate;
#[path = "../../reshape/tests/shapes/traps.rs"]
mod traps;
#[path = "../../reshape/tests/shapes/written.rs"]
mod written;

use apex_random::Random;
use apex_reshape::{Reason, Rules};
use arena::{Arena, compile};
use case::{Case, Layout, Shot, Truth, kernel};
use ptx_fuse::{Fused, Kernel, NAME, Part, Refusal, Same};

const SEED: u64 = 20261130;
/// Random pairs.
const PAIRS: usize = 500;

/// Buffers that a kernel gets as `a`, `b` and `c`.
type Roles = [usize; 3];

/// The parameters of `k(a, b, c, n, w, h, m)`, each with its bytes.
fn arguments(shot: &Shot, arena: &Arena, roles: Roles) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> =
        roles.iter().map(|&buffer| arena.buffer(buffer).to_le_bytes().to_vec()).collect();
    all.extend([shot.n, shot.w, shot.h].iter().map(|number| number.to_le_bytes().to_vec()));
    all.push(shot.m.to_le_bytes().to_vec());
    all
}

/// Parameters as a kernel's parameter space holds them.
fn packed<'a>(arguments: impl Iterator<Item = &'a Vec<u8>>) -> Vec<u8> {
    arguments.fold(Vec::new(), |mut bytes, argument| {
        bytes.resize(bytes.len().next_multiple_of(argument.len()), 0);
        bytes.extend(argument);
        bytes
    })
}

/// Parameters of both kernels that have one value.
fn same(first: Roles, second: Roles) -> Vec<Same> {
    let mut all: Vec<Same> = (3..7).map(|place| Same { first: place, second: place }).collect();
    for (at, role) in second.iter().enumerate() {
        all.extend(first.iter().position(|known| known == role).map(|first| Same { first, second: at }));
    }
    all
}

fn parse(source: &str) -> ptx::Module {
    ptx::parse(source).unwrap_or_else(|error| panic!("{}", error.render("k.ptx", source)))
}

struct Pair {
    first: ptx::Module,
    second: ptx::Module,
    roles: [Roles; 2],
}

/// What became of a pair in a launch.
#[derive(Debug, PartialEq)]
enum Outcome {
    Refused(Refusal),
    Same,
    Different(String),
}

impl Pair {
    fn of(first: &str, second: &str, roles: [Roles; 2]) -> Pair {
        Pair { first: parse(first), second: parse(second), roles }
    }

    fn fused(&self, rules: Rules) -> Result<Fused, Refusal> {
        let [first, second] = [&self.first, &self.second].map(|module| Kernel { module, name: "k" });
        Fused::proven(first, second, &same(self.roles[0], self.roles[1]), rules)
    }

    /// Joins and executes.
    fn run(&self, shot: &Shot, arena: &mut Arena, rules: Rules) -> Outcome {
        let fused = match self.fused(rules) {
            Ok(fused) => fused,
            Err(refusal) => return Outcome::Refused(refusal),
        };
        let given = self.roles.map(|roles| arguments(shot, arena, roles));
        let parameters = packed(fused.parameters.iter().map(|&(part, place)| match part {
            Part::First => &given[0][place],
            Part::Second => &given[1][place],
        }));
        let allocation = |address: u64| arena.one(address);
        if let Err(refusal) = fused.judge(shot.config, &parameters, &allocation) {
            return Outcome::Refused(Refusal::Together(refusal));
        }
        let mut random = Random::named(SEED, "contents");
        let word = |random: &mut Random| {
            u128::from_le_bytes(std::array::from_fn(|at| match at % 4 {
                3 => 0x3f + (random.below(2) as u8),
                _ => random.below(256) as u8,
            }))
        };
        let words: Vec<u128> = (0..arena.words()).map(|_| word(&mut random)).collect();
        let text = fused.module.to_string();
        let mut step = |module: &ptx::Module, words: &[u128], name: &str, parameters: &[u8]| {
            arena.run_kernel(words, &compile(module, &text), name, shot.config, parameters)
        };
        let [first, second] = [0, 1].map(|part| packed(given[part].iter()));
        let expected =
            step(&self.first, &words, "k", &first).and_then(|words| step(&self.second, &words, "k", &second));
        // (A kernel that leaves its buffers is no pair.)
        let Ok(expected) = expected else { return Outcome::Same };
        match step(&fused.module, &words, NAME, &parameters) {
            Ok(memory) if memory == expected => Outcome::Same,
            Ok(_) => Outcome::Different(text),
            Err(failure) => Outcome::Different(format!("{failure:?}\n{text}")),
        }
    }
}

const GUARD: &str = "mov.u32 %i, %ctaid.x; mov.u32 %j, %ntid.x; mov.u32 %k, %tid.x; mad.lo.s32 %i, %i, %j, %k; \
    setp.ge.s32 %p1, %i, %n; @%p1 bra $X; mul.wide.s32 %l, %i, 4; ";

/// `to[i] = statements of %f1 = from[i]`, by the names of the buffers.
fn elementwise(to: char, from: char, statements: &str) -> String {
    kernel(&format!(
        "{GUARD} add.s64 %q10, %{from}, %l; ld.global.nc.f32 %f1, [%q10]; {statements}; add.s64 %q11, %{to}, %l; \
         st.global.f32 [%q11], %f2"
    ))
}

const A_TO_B: [Roles; 2] = [[0, 1, 2], [0, 1, 2]];

fn shot() -> Shot {
    Shot::line(7, 64, 401)
}

#[test]
fn what_flows_elementwise_is_joined() {
    let mut arena = Arena::new();
    let double = elementwise('b', 'a', "mul.f32 %f2, %f1, 0f3fc00001");
    let more = elementwise('c', 'b', "add.f32 %f2, %f1, 0f3dcccccd");
    let pair = Pair::of(&double, &more, A_TO_B);
    assert_eq!(pair.run(&shot(), &mut arena, Rules::ALL), Outcome::Same);
    let text = pair.fused(Rules::ALL).unwrap().module.to_string();
    assert!(text.contains("mul.rn.f32") && text.contains("add.rn.f32") && !text.contains(".nc"), "{text}");
    assert!(!text.contains("mul.f32") && !text.contains("add.f32"), "{text}");
    assert_eq!(text.matches(".param .u").count(), 7, "{text}");
    // In place, and into the first one's input.
    for (to, from) in [('b', 'b'), ('a', 'b')] {
        let pair = Pair::of(&double, &elementwise(to, from, "add.f32 %f2, %f1, %f1"), A_TO_B);
        assert_eq!(pair.run(&shot(), &mut arena, Rules::ALL), Outcome::Same, "{to} {from}");
    }
}

#[test]
fn threads_that_meet_are_not_joined() {
    let mut arena = Arena::new();
    let double = elementwise('b', 'a', "add.f32 %f2, %f1, %f1");
    let reading = |address: &str| {
        kernel(&format!(
            "{GUARD} add.s64 %q10, %b, {address}; ld.global.f32 %f2, [%q10]; add.s64 %q11, %c, %l; \
             st.global.f32 [%q11], %f2"
        ))
    };
    // The next element, one that all read, a mirrored one, and one by another factor.
    let next = reading("%l").replace("[%q10]", "[%q10+4]");
    let first = reading("0");
    let mirrored = reading("%l").replace("add.s64 %q10", "sub.s64 %q10");
    let other = reading("%l").replace("mul.wide.s32 %l, %i, 4", "mul.wide.s32 %l, %i, 8");
    for second in [next, first, mirrored, other] {
        let pair = Pair::of(&double, &second, A_TO_B);
        let outcome = pair.run(&shot(), &mut arena, Rules::ALL);
        let Outcome::Refused(Refusal::Together(refusal)) = outcome else { panic!("{outcome:?}\n{second}") };
        assert_eq!(refusal.reason, Reason::ForeignLoad, "{second}");
        assert!(refusal.to_string().contains("ld.global"), "{refusal}");
    }
    // The producer reads what the consumer writes elsewhere.
    let ahead = elementwise('b', 'a', "add.f32 %f2, %f1, %f1").replace("[%q10]", "[%q10+4]");
    let pair = Pair::of(&ahead, &elementwise('a', 'b', "add.f32 %f2, %f1, %f1"), A_TO_B);
    assert!(matches!(pair.run(&shot(), &mut arena, Rules::ALL), Outcome::Refused(Refusal::Together(_))));
}

#[test]
fn what_the_compiler_may_contract_is_refused() {
    let open = elementwise('b', 'a', "mul.f32 %f3, %f1, %f1; neg.f32 %f4, %f3; add.f32 %f2, %f4, %f1");
    let plain = elementwise('c', 'b', "add.f32 %f2, %f1, %f1");
    let refusal = Pair::of(&open, &plain, A_TO_B).fused(Rules::ALL).unwrap_err();
    assert!(matches!(refusal, Refusal::Contraction(Part::First, _)), "{refusal}");
    // An approximate quotient is a product with a reciprocal.
    for division in ["div.approx.f32", "div.full.ftz.f32"] {
        let quotient = open.replace("mul.f32 %f3", &format!("{division} %f3"));
        let refusal = Pair::of(&quotient, &plain, A_TO_B).fused(Rules::ALL).unwrap_err();
        assert!(matches!(refusal, Refusal::Contraction(Part::First, _)), "{refusal}");
    }
    let refusal = Pair::of(
        &plain.replace("%c, %l", "%b, %l").replace("%b, %l; ld", "%a, %l; ld"),
        &open.replace("%b, %l", "%c, %l"),
        A_TO_B,
    )
    .fused(Rules::ALL)
    .unwrap_err();
    assert!(matches!(refusal, Refusal::Contraction(Part::Second, _)), "{refusal}");
    // A rounding that is named, and a product that ends in another operation.
    for statements in [
        "mul.rn.f32 %f3, %f1, %f1; add.f32 %f2, %f3, %f1",
        "mul.f32 %f3, %f1, %f1; max.f32 %f4, %f3, %f1; add.f32 %f2, %f4, %f1",
    ] {
        let pair = Pair::of(&elementwise('b', 'a', statements), &plain, A_TO_B);
        assert_eq!(pair.run(&shot(), &mut Arena::new(), Rules::ALL), Outcome::Same);
    }
}

#[test]
fn what_belongs_to_a_module_is_refused() {
    let double = elementwise('b', 'a', "add.f32 %f2, %f1, %f1");
    let table = double.replace(".visible", ".global .f32 table[4];\n.visible").replace("[%q10]", "[table]");
    let refusal = Pair::of(&double, &table, A_TO_B).fused(Rules::ALL).unwrap_err();
    assert!(matches!(&refusal, Refusal::Construct(Part::Second, text, _) if text == "table"), "{refusal}");
    let newer = double.replace("sm_80", "sm_90");
    assert_eq!(Pair::of(&double, &newer, A_TO_B).fused(Rules::ALL).unwrap_err(), Refusal::Targets);
    let bar = double.replace("$X:", "bar.sync 0;\n$X:");
    assert!(matches!(Pair::of(&bar, &double, A_TO_B).fused(Rules::ALL), Err(Refusal::Alone(Part::First, _))));
}

#[test]
fn names_of_the_joined_kernel_are_refused() {
    let double = elementwise('b', 'a', "add.f32 %f2, %f1, %f1");
    let next = elementwise('c', 'b', "add.f32 %f2, %f1, %f1");
    // A thread that returns early would go on at this label.
    let label = double
        .replace("add.f32 %f2", "setp.gt.f32 %p1, %f1, 0f40000000; @%p1 ret; bra $Y;\n$apex_seam:\nmov.f32 %f1, 0f00000000;\n$Y:\nadd.f32 %f2");
    let variable = double.replace("$X:", "$X: { .reg .b32 apex_fused_param_0; }");
    for (kernel, name) in [(label, "$apex_seam"), (variable, "apex_fused_param_0")] {
        for (part, pair) in [(Part::First, [&kernel, &next]), (Part::Second, [&double, &kernel])] {
            let refusal = Pair::of(pair[0], pair[1], A_TO_B).fused(Rules::ALL).unwrap_err();
            let Refusal::Construct(found, text, _) = &refusal else { panic!("{refusal}") };
            assert_eq!((*found, text.as_str()), (part, name));
        }
    }
}

fn corpus() -> Vec<Case> {
    let mut cases = written::cases();
    cases.extend(traps::cases());
    cases.extend(generate::cases(SEED));
    cases.retain(|case| {
        case.truth == Truth::Qualifies && case.shots.iter().any(|shot| shot.layout == Layout::Separate)
    });
    cases
}

/// Random pairs, with all roles of their buffers. How many are joined, and the first one whose
/// memory differs.
fn random_pairs(rules: Rules, pairs: usize) -> (usize, usize, Option<String>) {
    let (cases, mut arena) = (corpus(), Arena::new());
    let mut random = Random::named(SEED, "pairs");
    let (mut joined, mut together) = (0, 0);
    for _ in 0..pairs {
        let [first, second] = [0, 1].map(|_| &cases[random.below(cases.len() as u64) as usize]);
        let mut roles = [[0, 1, 2]; 2];
        random.shuffle(&mut roles[1]);
        let shots: Vec<&Shot> = first.shots.iter().filter(|shot| shot.layout == Layout::Separate).collect();
        let shot = shots[random.below(shots.len() as u64) as usize];
        match Pair::of(&first.source, &second.source, roles).run(shot, &mut arena, rules) {
            Outcome::Same => joined += 1,
            Outcome::Different(text) => return (joined, together, Some(text)),
            Outcome::Refused(Refusal::Together(_)) => together += 1,
            Outcome::Refused(_) => {}
        }
    }
    (joined, together, None)
}

#[test]
fn random_pairs_give_the_same_memory() {
    let (joined, together, wrong) = random_pairs(Rules::ALL, PAIRS);
    println!("{joined} of {PAIRS} pairs are joined; {together} are refused because threads meet");
    assert!(wrong.is_none(), "{}", wrong.unwrap_or_default());
    assert!(joined * 5 > PAIRS && together * 20 > PAIRS, "{joined} {together}");
}

#[test]
fn conditions_of_the_proof_are_needed() {
    for rules in [Rules { own: false, ..Rules::ALL }, Rules { apart: false, ..Rules::ALL }] {
        assert!(random_pairs(rules, PAIRS).2.is_some(), "{rules:?}");
    }
}
