//! The table of forms against ptxas: every instance is accepted at the version and target that the
//! table states, and refused just below.

mod common;

use std::collections::BTreeMap;

use common::Ptxas;
use common::statements::{module, statements};
use ptx::forms::{self, Instance, Need, Suffix, Target, Unknown};

/// Instructions in one kernel.
const BATCH: usize = 4000;

/// Older ones are the ISA's word alone: ptxas takes most instructions of PTX 1 and 2 at any
/// version.
const OLDEST: (u32, u32) = (6, 0);
const OLDEST_TARGET: u32 = 60;

/// The line of a module's first statement, from 1.
const FIRST_LINE: usize = 6;

fn architecture(target: Target) -> String {
    match target.suffix {
        Suffix::None if target.number <= 100 => "compute_100".to_owned(),
        _ => target.to_string().replace("sm_", "compute_"),
    }
}

/// The maximum number of stops of ptxas within a batch.
const MOST_STOPS: usize = 100;

/// Returns the message of ptxas for each statement that it refuses. It stops at some errors, so it
/// is called until it accepts the rest.
fn refused(ptxas: &Ptxas, need: Need, statements: &[&str]) -> BTreeMap<usize, String> {
    let mut refused = BTreeMap::new();
    for _ in 0..MOST_STOPS {
        let left: Vec<usize> = (0..statements.len()).filter(|index| !refused.contains_key(index)).collect();
        let texts: Vec<&str> = left.iter().map(|index| statements[*index]).collect();
        let errors = ptxas.errors(&module(need, &texts), &architecture(need.target));
        if errors.is_empty() {
            return refused;
        }
        for (line, message) in errors {
            let index = line.checked_sub(FIRST_LINE).and_then(|index| left.get(index));
            let index = *index.unwrap_or_else(|| panic!("{need}, line {line}: {message}"));
            refused.insert(index, message);
        }
    }
    panic!("ptxas stops again and again: {:?}", refused.values().last());
}

/// The least version and target at which ptxas is asked.
fn asked(need: Need) -> Need {
    let target = match need.target {
        Target { suffix: Suffix::None, number } => {
            Target { number: number.max(OLDEST_TARGET), suffix: Suffix::None }
        }
        target => target,
    };
    Need { version: need.version.max(OLDEST).max(target.since()), target }
}

#[test]
fn no_two_instances_are_the_same() {
    let mut seen: BTreeMap<String, &str> = BTreeMap::new();
    for instance in forms::all().iter().flat_map(|form| form.instances()) {
        let key = format!("{} {:?}", instance.mnemonic, instance.operands);
        if let Some(other) = seen.insert(key, instance.form.text) {
            panic!("{} stands twice:\n{other}\n{}", instance.mnemonic, instance.form.text);
        }
    }
}

#[test]
fn every_instance_is_found_by_its_name() {
    for instance in forms::all().iter().flat_map(|form| form.instances()) {
        let found = forms::named(&instance.mnemonic).unwrap();
        let same = |other: &Instance| other.operands == instance.operands && other.needs == instance.needs;
        assert!(found.iter().any(same), "{}", instance.mnemonic);
    }
}

#[test]
fn what_no_form_has_is_told() {
    assert_eq!(forms::named("frobnicate.u32").unwrap_err(), Unknown::Opcode);
    assert_eq!(forms::named("add.sat.f64").unwrap_err(), Unknown::Modifier("f64".to_owned()));
    assert_eq!(forms::named("cvt.rn").unwrap_err(), Unknown::Incomplete);
    assert_eq!(forms::named("add.s32.s32").unwrap_err(), Unknown::Modifier("s32".to_owned()));
    assert_eq!(forms::named("").unwrap_err(), Unknown::Opcode);
}

/// Instances to ask about, by the version and target to ask for.
#[derive(Default)]
struct Cases(BTreeMap<String, (Need, Vec<Case>)>);

/// The form's text and the statement.
type Case = (&'static str, String);

impl Cases {
    fn add(&mut self, need: Need, form: &'static str, statement: String) {
        self.0.entry(need.to_string()).or_insert((need, Vec::new())).1.push((form, statement));
    }

    /// Asks ptxas and gives each case with its complaint, if it has one.
    fn judge(&self, ptxas: &Ptxas, mut verdict: impl FnMut(Need, &'static str, &str, Option<String>)) {
        for (need, cases) in self.0.values() {
            for batch in cases.chunks(BATCH) {
                let texts: Vec<&str> = batch.iter().map(|(_, statement)| statement.as_str()).collect();
                let mut refused = refused(ptxas, *need, &texts);
                for (index, (form, statement)) in batch.iter().enumerate() {
                    verdict(*need, form, statement, refused.remove(&index));
                }
            }
        }
    }
}

/// Complaints with how often each was made and the first case.
#[derive(Default)]
struct Complaints(BTreeMap<String, (usize, String)>);

impl Complaints {
    fn add(&mut self, form: &str, why: &str, need: Need, statement: &str) {
        let entry = self.0.entry(format!("{form}\n    {why}"));
        entry.or_insert_with(|| (0, format!("{need}: {statement}"))).0 += 1;
    }

    fn assert_none(&self) {
        let lines: Vec<_> = self
            .0
            .iter()
            .map(|(what, (count, first))| format!("{what}\n    {count} times, first {first}"))
            .collect();
        assert!(lines.is_empty(), "{}", lines.join("\n"));
    }
}

#[test]
fn ptxas_accepts_every_instance() {
    let Some(ptxas) = Ptxas::find() else { return };
    let mut cases = Cases::default();
    let (mut instances, mut newer) = (0, 0);
    for instance in forms::all().iter().flat_map(|form| form.instances()) {
        instances += 1;
        for need in instance.needs.iter().map(|need| asked(*need)) {
            if need.version > ptxas.newest {
                newer += 1;
                continue;
            }
            for statement in statements(&instance) {
                cases.add(need, instance.form.text, statement);
            }
        }
    }
    println!("{instances} instances, {newer} newer than ptxas");
    let mut complaints = Complaints::default();
    cases.judge(ptxas, |need, form, statement, refused| {
        if let Some(why) = refused {
            complaints.add(form, &why, need, statement);
        }
    });
    complaints.assert_none();
}

/// Instances of a form that are tried below their needs; some forms have thousands.
const SAMPLE: usize = 100;

/// The needs just below this one, as far as ptxas can be asked: the target before, and the version
/// before.
fn below(need: Need, instance: &Instance) -> Vec<Need> {
    let number = need.target.number;
    let before = match need.target.suffix {
        Suffix::None => TARGETS.iter().rev().find(|known| **known < number).copied(),
        _ => Some(number),
    };
    let target = before.map(|number| Target { number, suffix: Suffix::None });
    let version = VERSIONS.iter().rev().find(|known| **known < need.version);
    let lower = target.map(|target| Need { target, ..need }).into_iter();
    lower
        .chain(version.map(|version| Need { version: *version, ..need }))
        .filter(|need| need.target.number >= OLDEST_TARGET && need.version >= need.target.since())
        .filter(|need| !instance.needs.iter().any(|enough| enough.is_met(need.version, need.target)))
        .collect()
}

const TARGETS: &[u32] = &[60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90, 100, 103, 120, 121];
const VERSIONS: &[(u32, u32)] = &[
    (6, 0),
    (6, 1),
    (6, 2),
    (6, 3),
    (6, 4),
    (6, 5),
    (7, 0),
    (7, 1),
    (7, 2),
    (7, 3),
    (7, 4),
    (7, 5),
    (7, 6),
    (7, 7),
    (7, 8),
    (8, 0),
    (8, 1),
    (8, 2),
    (8, 3),
    (8, 4),
    (8, 5),
    (8, 6),
    (8, 7),
    (8, 8),
    (9, 0),
    (9, 1),
    (9, 2),
    (9, 3),
    (9, 4),
    (9, 5),
];

#[test]
fn ptxas_refuses_instances_below_their_needs() {
    let Some(ptxas) = Ptxas::find() else { return };
    let mut cases = Cases::default();
    for form in forms::all() {
        let instances = form.instances();
        for instance in instances.iter().step_by(instances.len().div_ceil(SAMPLE)) {
            for need in instance.needs.iter().flat_map(|need| below(*need, instance)) {
                if need.version <= ptxas.newest {
                    cases.add(need, form.text, statements(instance).swap_remove(0));
                }
            }
        }
    }
    let (mut refusals, mut complaints) = (0, Complaints::default());
    cases.judge(ptxas, |need, form, statement, refused| match refused {
        Some(_) => refusals += 1,
        None => complaints.add(form, "ptxas takes it already", need, statement),
    });
    println!("{refusals} refused");
    complaints.assert_none();
}
