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
use cuda_launch::LaunchConfig;
use ptx_fuse::{Fused, Kernel, NAME, Part, Refusal, Same};

const SEED: u64 = 20261130;
/// Random pairs. `FUSE_PAIRS` sets another number, and `FUSE_SEED` draws others.
const PAIRS: usize = 500;
/// Random programs of one thread.
const PROGRAMS: usize = 400;

/// A number that a variable gives.
fn set(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|value| value.parse().ok()).unwrap_or(otherwise)
}

/// Buffers that a kernel gets as `a`, `b` and `c`.
type Roles = [usize; 3];

/// The parameters of `k(a, b, c, n, w, h, m)`, each with its bytes.
fn arguments(shot: &Shot, arena: &Arena, roles: Roles, shifts: Roles) -> Vec<Vec<u8>> {
    let address = |(&buffer, &shift): (&usize, &usize)| arena.buffer(buffer) + shift as u64;
    let mut all: Vec<Vec<u8>> =
        roles.iter().zip(&shifts).map(address).map(|address| address.to_le_bytes().to_vec()).collect();
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

/// Parameters of both kernels that have one value: the numbers if they have, and pointers that are
/// not shifted.
fn same(first: Roles, second: Roles, shifts: Roles, numbers: bool) -> Vec<Same> {
    let places = if numbers { 3..7 } else { 3..3 };
    let mut all: Vec<Same> = places.map(|place| Same { first: place, second: place }).collect();
    for (at, role) in second.iter().enumerate().filter(|(at, _)| shifts[*at] == 0) {
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
    /// Bytes by which the second kernel's pointers are beyond their buffers' beginnings.
    shifts: Roles,
    /// The numbers that the second kernel gets, if they are others.
    other: Option<Shot>,
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
        Pair { first: parse(first), second: parse(second), roles, shifts: [0; 3], other: None }
    }

    fn fused(&self, rules: Rules) -> Result<Fused, Refusal> {
        let [first, second] = [&self.first, &self.second].map(|module| Kernel { module, name: "k" });
        let same = same(self.roles[0], self.roles[1], self.shifts, self.other.is_none());
        Fused::proven(first, second, &same, rules)
    }

    /// Joins and executes.
    fn run(&self, shot: &Shot, arena: &mut Arena, rules: Rules) -> Outcome {
        let fused = match self.fused(rules) {
            Ok(fused) => fused,
            Err(refusal) => return Outcome::Refused(refusal),
        };
        let given = [
            arguments(shot, arena, self.roles[0], [0; 3]),
            arguments(self.other.as_ref().unwrap_or(shot), arena, self.roles[1], self.shifts),
        ];
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

/// Threads along an axis that a kernel does not look at do the same again: after another one has
/// overwritten what it reads, it would compute something else.
#[test]
fn threads_that_repeat_others_are_not_joined() {
    let there = elementwise('b', 'a', "add.f32 %f2, %f1, %f1");
    let back = elementwise('a', 'b', "add.f32 %f2, %f1, %f1");
    let pair = Pair::of(&there, &back, A_TO_B);
    assert_eq!(pair.run(&shot(), &mut Arena::new(), Rules::ALL), Outcome::Same);
    for [grid_y, block_y, grid_z] in [[2, 1, 1], [1, 2, 1], [1, 1, 2]] {
        let mut shot = shot();
        shot.config.grid = (7, grid_y, grid_z).into();
        shot.config.block = (64, block_y, 1).into();
        let outcome = pair.run(&shot, &mut Arena::new(), Rules::ALL);
        assert!(matches!(outcome, Outcome::Refused(_)), "{:?}: {outcome:?}", shot.config);
    }
}

/// Loads that need not see what the thread has just stored, and instructions that lose it.
#[test]
fn memory_that_is_read_or_lost_in_other_ways_is_not_joined() {
    let double = elementwise('b', 'a', "add.f32 %f2, %f1, %f1");
    let next = elementwise('c', 'b', "add.f32 %f2, %f1, %f1");
    for other in [
        next.replace("ld.global.nc.f32", "ldu.global.f32"),
        next.replace("ld.global.nc.f32", "ld.volatile.global.f32"),
        next.replace("ld.global.nc.f32", "ld.relaxed.gpu.global.f32"),
        next.replace("add.f32 %f2", "discard.global.L2 [%q10], 128; add.f32 %f2"),
        next.replace("add.f32 %f2", "membar.gl; add.f32 %f2"),
    ] {
        assert_ne!(other, next);
        let found = Pair::of(&double, &other, A_TO_B).run(&shot(), &mut Arena::new(), Rules::ALL);
        assert!(matches!(found, Outcome::Refused(_)), "{found:?}\n{other}");
    }
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
    // What changes no number is removed before products and sums are contracted.
    for identity in [
        "cvt.f32.f32 %f4, %f3",
        "max.f32 %f4, %f3, %f3",
        "mul.rn.f32 %f4, %f3, 0f3F800000",
        "abs.f32 %f4, %f3",
    ] {
        let hidden = open.replace("neg.f32 %f4, %f3", identity);
        assert_ne!(hidden, open);
        let refusal = Pair::of(&hidden, &plain, A_TO_B).fused(Rules::ALL).unwrap_err();
        assert!(matches!(refusal, Refusal::Contraction(Part::First, _)), "{identity}: {refusal}");
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
        "mul.f32 %f3, %f1, %f1; cvt.rmi.f32.f32 %f4, %f3; add.f32 %f2, %f4, %f1",
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
    let mut random = Random::named(set("FUSE_SEED", SEED), "pairs");
    let (mut joined, mut together) = (0, 0);
    for _ in 0..pairs {
        let [first, second] = [0, 1].map(|_| &cases[random.below(cases.len() as u64) as usize]);
        let mut roles = [[0, 1, 2]; 2];
        random.shuffle(&mut roles[1]);
        let shots: Vec<&Shot> = first.shots.iter().filter(|shot| shot.layout == Layout::Separate).collect();
        let shot = shots[random.below(shots.len() as u64) as usize];
        let mut pair = Pair::of(&first.source, &second.source, roles);
        if random.below(4) == 0 {
            let shift = [4, 8, 64, 1024][random.below(4) as usize];
            pair.shifts[random.below(3) as usize] = shift;
        }
        if random.below(4) == 0 {
            let other = &second.shots[random.below(second.shots.len() as u64) as usize];
            pair.other = Some(other.clone());
        }
        match pair.run(shot, &mut arena, rules) {
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
    let pairs = set("FUSE_PAIRS", PAIRS as u64) as usize;
    let (joined, together, wrong) = random_pairs(Rules::ALL, pairs);
    println!("{joined} of {pairs} pairs are joined; {together} are refused because threads meet");
    assert!(wrong.is_none(), "{}", wrong.unwrap_or_default());
    assert!(joined * 5 > pairs && together * 20 > pairs, "{joined} {together}");
}

#[test]
fn conditions_of_the_proof_are_needed() {
    for rules in [Rules { own: false, ..Rules::ALL }, Rules { apart: false, ..Rules::ALL }] {
        assert!(random_pairs(rules, PAIRS).2.is_some(), "{rules:?}");
    }
}

/// Both parts of a joined kernel of one thread, whose stores and loads meet in a few bytes of `a`,
/// in any width, with guards or without. At the end all registers are stored.
fn one_thread(random: &mut Random) -> String {
    let mut part = |loads: bool| {
        let mut text = String::from(
            "{ .reg .b16 %h<4>; .reg .f32 %f<4>; .reg .b64 %d<4>; .reg .b32 %x; .reg .pred %p; .reg .b64 %a, %t;\n\
             ld.param.u64 %a, [apex_fused_param_0]; ld.global.u32 %x, [%a+64]; and.b32 %x, %x, 1;\n\
             setp.eq.u32 %p, %x, 0;\n",
        );
        for at in 0..4 {
            text += &format!(
                "ld.global.u16 %h{at}, [%a+{}]; ld.global.f32 %f{at}, [%a+{}]; ld.global.u64 %d{at}, [%a+{}];\n",
                96 + 2 * at,
                112 + 4 * at,
                128 + 8 * at
            );
        }
        for _ in 0..2 + random.below(6) {
            let (bytes, ty, register) =
                [(1, "u8", 'h'), (2, "u16", 'h'), (4, "f32", 'f'), (8, "u64", 'd'), (8, "v2.f32", 'v')]
                    [random.below(5) as usize];
            let at = random.below(16 / bytes) * bytes;
            let number = random.below(4);
            let guard = ["", "", "@%p ", "@!%p "][random.below(4) as usize];
            let value = match register {
                'v' => "{%f0, %f1}".to_owned(),
                _ => format!("%{register}{number}"),
            };
            let hint = if random.below(4) == 0 { ".cg" } else { "" };
            let address = match random.below(2) {
                0 => format!("[%a+{at}]"),
                _ => {
                    text += &format!("add.s64 %t, %a, {};\n", at + 8);
                    "[%t+-8]".to_owned()
                }
            };
            text += &match loads && random.below(2) == 0 {
                true => format!("{guard}ld.global{hint}.{ty} {value}, {address};\n"),
                false => format!("{guard}st.global{hint}.{ty} {address}, {value};\n"),
            };
        }
        for at in 0..4 {
            let to = if loads { 256 } else { 192 };
            text += &format!(
                "st.global.u16 [%a+{}], %h{at}; st.global.f32 [%a+{}], %f{at}; st.global.u64 [%a+{}], %d{at};\n",
                to + 2 * at,
                to + 16 + 4 * at,
                to + 32 + 8 * at
            );
        }
        text + "}\n"
    };
    let (first, second) = (part(false), part(true));
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry apex_fused(.param .u64 apex_fused_param_0)\n\
         {{\n{first}$apex_seam:\n{second}ret;\n}}\n"
    )
}

#[test]
fn a_thread_reads_from_registers_what_it_would_read_from_memory() {
    let mut random = Random::named(set("FUSE_SEED", SEED), "one thread");
    let mut arena = Arena::new();
    let mut taken = 0;
    for _ in 0..set("FUSE_PROGRAMS", PROGRAMS as u64) {
        let source = one_thread(&mut random);
        let module = parse(&source);
        assert!(ptx::verify(&module).is_empty(), "{source}");
        let Some(forwarded) = ptx_fuse::forwarded(&module) else { continue };
        let text = forwarded.to_string();
        let forwarded = parse(&text);
        let wrong = ptx::verify(&forwarded);
        assert!(wrong.is_empty(), "{}\n{text}", wrong[0].message);
        let words: Vec<u128> =
            (0..arena.words()).map(|_| u128::from(random.bits()) << 64 | u128::from(random.bits())).collect();
        let parameters = arena.buffer(0).to_le_bytes();
        let mut run = |module: &ptx::Module| {
            let linked = compile(module, &text);
            arena.run_kernel(&words, &linked, NAME, LaunchConfig::new(1, 1), &parameters).expect("it runs")
        };
        assert!(run(&module) == run(&forwarded), "{text}");
        taken += usize::from(text.contains("apex_fused_hit, apex_fused_there"));
    }
    assert!(taken > 0);
}

#[test]
fn what_flows_stays_in_a_register() {
    let double = elementwise('b', 'a', "add.f32 %f2, %f1, %f1");
    let next = elementwise('c', 'b', "add.f32 %f2, %f1, %f1");
    let text = Pair::of(&double, &next, A_TO_B).fused(Rules::ALL).unwrap().module.to_string();
    assert!(text.contains("mov.f32 apex_fused_value_4, %f2;"), "{text}");
    assert!(text.contains("@apex_fused_hit mov.f32 %f1, apex_fused_value_4;"), "{text}");
}
