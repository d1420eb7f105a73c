//! The table of rules as a whole, and the page that is made of it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use super::fixture::{
    SMS, activity, call, called, copies, counted, device, execute, idle_during, memory, named, on_cpu_device,
    profile_of, timed,
};
use super::known::frameworks;
use super::{Needs, RULES, Rule};
use crate::advise::{Options, advise};
use apex_counts::{Direction, Fault, Hotspot, InstructionClass, Place, Space, Traffic};
use apex_knowledge::Framework;
use apex_profile::names::{Access, DataType, Operation, Owner, OwnerKind, Traits, Types};
use apex_profile::{IdleCause, Kernel, Profile, Sequence};
use apex_trace::layout::{CallClass, MemoryKind};
use cuda_launch::LaunchConfig;

#[test]
fn identifiers_are_unique_and_say_what_they_need() {
    let ids: BTreeSet<_> = RULES.iter().map(|rule| rule.id).collect();
    let slugs: BTreeSet<_> = RULES.iter().map(|rule| rule.slug).collect();
    assert_eq!((ids.len(), slugs.len()), (RULES.len(), RULES.len()));
    for rule in RULES {
        let prefix = match rule.needs {
            Needs::Records => "APEX-L",
            Needs::Times => "APEX-T",
            Needs::Counts => "APEX-C",
            Needs::Code => "APEX-P",
        };
        assert!(rule.id.starts_with(prefix), "{} needs {:?}", rule.id, rule.needs);
    }
}

#[test]
fn rules_are_in_the_order_of_their_numbers() {
    let numbers: Vec<u32> = RULES.iter().map(|rule| rule.id[6..].parse().expect("a number")).collect();
    assert!(numbers.is_sorted(), "{numbers:?}");
}

#[test]
fn parents_exist_and_share_the_scope() {
    for rule in RULES {
        let Some(parent) = rule.parent else { continue };
        let parent = Rule::named(parent).unwrap_or_else(|| panic!("{} has no parent {parent}", rule.id));
        assert_eq!((parent.scope, parent.id == rule.id), (rule.scope, false));
    }
}

#[test]
fn rules_are_found_by_identifier_and_name() {
    assert_eq!(Rule::named("apex-l01").map(|rule| rule.slug), Some("block-not-warp-multiple"));
    assert_eq!(Rule::named("small-grid").map(|rule| rule.id), Some("APEX-L02"));
    assert!(Rule::named("nonsense").is_none());
}

/// The page about all rules.
fn page() -> String {
    let mut page = String::from(
        "# Advice rules\n\n\
         <!-- Generated from crates/session/advice/src/rules: BLESS=1 cargo test -p apex-advice writes it anew. -->\n\n\
         `apex report` and `apex advise` apply these rules to a session. Each finding has its evidence, one change, the saving, and a\n\
         confidence. Rules `APEX-L…` need only recorded launches and calls, rules `APEX-T…` need sampled kernel times (`--timing\n\
         sampled` or `all`), and rules `APEX-C…` need the CPU device's counts (`apex run --device cpu`), which do not include GPU time.\n\
         Rules `APEX-P…` need the PTX of the kernels that take the GPU's time, which a session keeps unless it is recorded with\n\
         `--no-ptx`; libraries such as cuBLAS have none. Rules about FP64, arrays in local memory, `printf` and `malloc` also judge\n\
         kernels of which the session has machine code alone.\n\
         `--suppress ID` disables a rule, `apex explain ID` prints its part of this page.\n\n\
         A saving is a share of run time: 50% is a factor of 2. If several rules apply to the same kernel, each smaller saving counts only\n\
         for the time that the larger ones leave. Changes on the host cannot save more than the device's idle time, plus the time of the\n\
         kernels or copies that a finding names. A finding *within* another one is part of its saving and does not add to it.\n\n\
         The larger claim comes first, with one exception: a finding that explains a larger, more general one comes before it, and its\n\
         confidence says so. Some findings name an account of idle time and not its cause: the program is launch-bound (T24), host-bound\n\
         (T41), synchronises (L43), repeats a sequence of launches (L25), pauses (T16), or waits for a function (T87). A known cause (L96,\n\
         T95) explains such a finding if it accounts for at least a sixth of the finding's time, by samples of the host's call stacks, by its\n\
         launches or by its calls. A function that samples found (T87) explains the other five under the same condition. The explanation\n\
         comes first if its claim is at least a fifth of the rest of the general claim, or half of it where the general finding names a\n\
         function. The reason: among first findings on programs that the rules had not seen, the remedy saved at least half of the claim in\n\
         11 of 14 programs where a known cause was named, in 3 of 7 where a function was named, and in none of 4 where an account was named.\n\
         Such a cause claims its part first, and the general finding claims the rest. A cause that claims less is within the general finding,\n\
         which names it with its remedy. Where no cause is known, the general finding names the lines that take most of its time. Unknown\n\
         savings come after known ones, and savings of less than 2% last; a line that takes most of the time (T130) and has no claim comes\n\
         before findings that save less than 5%.\n\n\
         Each saving has an interval from the certain minimum (often nothing) to the maximum that the rule's formula gives, within the\n\
         uncertainty of sampled times and modelled idle time. If launches repeat, a share refers to the steady state without start-up and\n\
         warm-up (`--phase` selects another phase), otherwise to the time from the first launch. If a rule names another block size and the\n\
         kernel was timed on a GPU that the models know, `apex advise` also shows their prediction ([predict.md](predict.md)).\n\n\
         To verify a change, record again and compare: `apex run -o NEW -- COMMAND`, then `apex diff OLD NEW`.\n\n\
         A finding can be wrong, by what its rule needs:\n\n",
    );
    for (family, needs) in
        [("L", Needs::Records), ("T", Needs::Times), ("C", Needs::Counts), ("P", Needs::Code)]
    {
        let _ = writeln!(page, "- `APEX-{family}…`: {}", needs.limits());
    }
    page.push_str("\n| rule | name | severity | about | within |\n| --- | --- | --- | --- | --- |\n");
    for rule in RULES {
        let _ = writeln!(
            page,
            "| [{id}](#{anchor}) | `{slug}` | {severity} | {scope} | {parent} |",
            id = rule.id,
            anchor = rule.id.to_lowercase(),
            slug = rule.slug,
            severity = format!("{:?}", rule.severity).to_lowercase(),
            scope = format!("{:?}", rule.scope).to_lowercase(),
            parent = rule.parent.unwrap_or(""),
        );
    }
    for rule in RULES {
        let _ = write!(
            page,
            "\n## {}\n\n**{}** (`{}`)\n\n{}\n\n- Detects: {}\n- Source: {}\n- Change: {}\n- Saving: {}\n- Verify: {}\n",
            rule.id,
            rule.title,
            rule.slug,
            rule.why,
            rule.detects,
            rule.source,
            rule.change,
            rule.saving,
            rule.verify
        );
    }
    page
}

#[test]
fn the_page_about_rules_is_fresh() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/advice.md");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, page()).expect("docs can be written");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == page(), "docs/advice.md is stale: BLESS=1 cargo test -p apex-advice writes it anew");
}

/// Words of remedies that change a kernel's source or its launch configuration.
const OF_SOURCE: [&str; 14] = [
    "threads per block",
    "per thread",
    "block size",
    "grid",
    "__launch_bounds__",
    "registers",
    "shared memory",
    "0.5f",
    "with a block for each",
    "loops over",
    "consecutive threads",
    "as many blocks",
    "the tile",
    "each warp",
];

/// A kernel of this owner in a configuration, with all that rules about kernels look for.
fn faulty(owner: Owner, launch: LaunchConfig, each_ns: f64) -> Kernel {
    let mut kernel =
        called(timed(counted(Space::Global, Direction::Load, 100, 3200, 2800), each_ns), 3000, 4_000.0);
    kernel.launch = launch;
    kernel.traits.owner = owner;
    let attributes = kernel.attributes.as_mut().expect("known");
    (attributes.registers, attributes.static_shared_bytes, attributes.local_bytes) = (200, 60_000, 4_000);
    let counts = kernel.counts.as_mut().expect("counted");
    let traffic =
        Traffic { requests: 1_000, threads: 32_000, bytes: 128_000, transactions: 32_000, excess: 31_000 };
    for (space, direction) in [
        (Space::Shared, Direction::Load),
        (Space::Local, Direction::Load),
        (Space::Global, Direction::Atomic),
        (Space::Shared, Direction::Atomic),
    ] {
        counts.sums.traffic[space as usize][direction as usize] = traffic;
    }
    let hotspot = |fault| Hotspot {
        fault,
        place: Place { file: "kernel.cu".to_owned(), line: 7, ..Place::default() },
        events: 1_000,
        total: 32_000,
        excess: 31_000,
    };
    counts.hotspots.extend([Fault::BankConflict, Fault::Divergence].map(hotspot));
    (counts.sums.branches, counts.sums.divergent_branches) = (1_000, 900);
    // Eight threads execute an instruction together.
    counts.sums.warp_instructions[InstructionClass::Integer as usize] = 10_000;
    execute(&mut kernel, 32_000, 32_000, 16_000);
    kernel
}

/// Profiles, on a GPU and on the CPU device, of kernels of this owner with all faults.
fn faulty_profiles(owner: Owner) -> Vec<Profile> {
    let launches = [(1, 64), (20, 100), (SMS / 2, 256), (SMS + 1, 256), (2 * SMS + 1, 1000), (200_000, 40)];
    let mut profiles = Vec::new();
    for (blocks, threads) in launches {
        for each_ns in [2e3, 500e3] {
            let launch = LaunchConfig::new(blocks, threads);
            let kernel = faulty(owner, launch, each_ns);
            let uncounted = Kernel { counts: None, ..kernel.clone() };
            for kernel in [kernel, uncounted] {
                let mut profile = profile_of([kernel]);
                profile.devices = vec![device()];
                profile.activities = vec![activity(10e9, 0.5)];
                profile.activities[0].idle_by = [(IdleCause::Launching, 5e9)].into();
                profiles.extend([on_cpu_device(profile.clone()), profile]);
            }
        }
    }
    profiles
}

/// The rules whose findings about kernels of this owner tell to change source or configuration.
fn of_source(owner: Owner) -> BTreeSet<String> {
    let mut rules = BTreeSet::new();
    for profile in faulty_profiles(owner) {
        for finding in advise(&profile, &Options::default()).findings {
            let changes = finding.kernels.iter().map(|kernel| &kernel.change).chain([&finding.change]);
            let is_of_source =
                changes.into_iter().any(|change| OF_SOURCE.iter().any(|word| change.contains(word)));
            let names_a_configuration = finding.kernels.iter().any(|kernel| kernel.to.is_some());
            if is_of_source || names_a_configuration {
                rules.insert(finding.rule);
            }
        }
    }
    rules
}

#[test]
fn no_rule_tells_to_change_the_kernel_of_a_library() {
    let own = of_source(Owner::Own);
    let expected = [
        "APEX-L01", "APEX-L02", "APEX-T04", "APEX-L05", "APEX-L42", "APEX-C31", "APEX-C32", "APEX-C33",
        "APEX-C84",
    ];
    for rule in expected {
        assert!(own.contains(rule), "{rule} is silent about the program's own kernels: {own:?}");
    }
    for &owner in Owner::ALL.iter().filter(|owner| owner.kind() != OwnerKind::Own) {
        assert_eq!(of_source(owner), BTreeSet::new(), "{}", owner.name());
    }
}

/// Words that only users of a framework know.
const OF_FRAMEWORKS: [(Framework, &[&str]); 4] = [
    (
        Framework::PyTorch,
        &["torch.", "PyTorch", "DataLoader", "DistributedDataParallel", "pin_memory", ".item()"],
    ),
    (Framework::Jax, &["jax", "JAX", "XLA"]),
    (Framework::CuPy, &["cupy", "CuPy"]),
    (Framework::TensorFlow, &["tf.", "TensorFlow"]),
];

/// Profiles with kernels of this owner in which the host's side has all faults.
fn idle_profiles(owner: Owner) -> Vec<Profile> {
    let kernel_that = |operation: Operation, data: DataType| {
        let mut kernel = called(timed(named("_Z6kernelPf"), 5e3), 3000, 10e3);
        let types = Types::of(Some(data));
        let access = Access::Strided;
        let (tensor_cores, alignment) = (Some(false), Some(1));
        kernel.traits =
            Traits { operation, types, owner, access, tensor_cores, alignment, many_tensors: true };
        kernel
    };
    let mut profiles = Vec::new();
    for data in [DataType::F32, DataType::F64] {
        for &operation in Operation::ALL {
            let mut profile = profile_of([kernel_that(operation, data)]);
            profile.calls = vec![
                call("cuStreamSynchronize", CallClass::Synchronize, 4000),
                call("cuModuleLoadData", CallClass::Module, 4000),
                call("cuGraphInstantiateWithFlags", CallClass::Graph, 4000),
                call("cuMemHostAlloc", CallClass::Allocate, 4000),
            ];
            profile.memory = vec![memory(MemoryKind::Pinned, 4000, 4000, 1e9)];
            let pageable = |to, from, bytes| copies(to, from, true, 4000, bytes);
            profile.copies = vec![
                pageable(MemoryKind::Device, MemoryKind::Pageable, 4),
                pageable(MemoryKind::Pageable, MemoryKind::Device, 1 << 20),
                pageable(MemoryKind::Device, MemoryKind::Device, 1 << 20),
            ];
            let repeated = Sequence { length: 9, repeats: 1000, kernels: vec![0; 9], ..Sequence::default() };
            profile.sequences = vec![repeated];
            for cause in [IdleCause::Allocating, IdleCause::HostCode, IdleCause::Transferring] {
                let idle = idle_during(cause, 10e9, 0.8);
                profiles.push(Profile { activities: vec![idle], ..profile.clone() });
            }
        }
    }
    profiles
}

#[test]
fn no_remedy_is_in_the_words_of_a_framework_that_the_program_does_not_use() {
    let mut fired = BTreeSet::new();
    for &owner in Owner::ALL {
        for profile in faulty_profiles(owner).into_iter().chain(idle_profiles(owner)) {
            let uses = frameworks(&profile);
            for finding in advise(&profile, &Options::default()).findings {
                let kernels = finding.kernels.iter().map(|kernel| &kernel.change);
                for text in kernels.chain([&finding.change, &finding.remedy]) {
                    for (framework, words) in OF_FRAMEWORKS.iter().filter(|(of, _)| !uses.contains(of)) {
                        let word = words.iter().find(|word| text.contains(**word));
                        assert!(
                            word.is_none(),
                            "{}, {}: {framework:?} in {text}",
                            finding.rule,
                            owner.name()
                        );
                    }
                }
                fired.insert(finding.rule);
            }
        }
    }
    for rule in ["APEX-L18", "APEX-L23", "APEX-L43", "APEX-L96", "APEX-T24", "APEX-T60", "APEX-T77"] {
        assert!(fired.contains(rule), "{rule} never fires: {fired:?}");
    }
}
