//! What the tables say about versions and targets, against four versions of ptxas.
//!
//! `tests/gates/statements.tsv` has an instance for each need of each form that some GPU since
//! sm_75 lacks, the special registers and the directives. `scripts/ptx-gates.py` asks ptxas about
//! each for each target and writes `tests/gates/verdicts.tsv`; this test needs neither.
//! `BLESS=1` writes the statements anew, after which the script has to run again.

#[path = "../../ptx/tests/common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use common::statements::{module, statements};
use ptx::body::SpecialRegister;
use ptx::forms::{self, Need, Suffix, Target, Version};
use ptx::{ScalarType, needs};

/// Targets that have all of what toolkits 12 and 13 assemble for.
const OLDEST: u32 = 75;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gates")
}

/// Whether some target that is asked lacks what has these needs.
fn is_gate(needs: &[Need]) -> bool {
    !needs.iter().any(|need| need.target.suffix == Suffix::None && need.target.number <= OLDEST)
}

/// A statement for each different list of needs of each form.
fn instructions() -> Vec<String> {
    let mut all = Vec::new();
    for form in forms::all() {
        let mut seen: Vec<Vec<Need>> = Vec::new();
        // No target has addresses of 32 bits; ptxas does not say so where it makes no machine code.
        let is_narrow = |mnemonic: &str| mnemonic.starts_with("cvta.") && mnemonic.ends_with(".u32");
        for instance in form.instances().into_iter().filter(|instance| !is_narrow(&instance.mnemonic)) {
            if is_gate(&instance.needs) && !seen.contains(&instance.needs) {
                all.push(statements(&instance).swap_remove(0));
                seen.push(instance.needs);
            }
        }
    }
    all
}

fn registers() -> Vec<String> {
    let gated = SpecialRegister::NAMED.iter().filter(|register| is_gate(&[needs::of_register(**register)]));
    let statement = |register: &SpecialRegister| {
        let component = if register.is_vector() { ".x" } else { "" };
        let ty = register.ty();
        let to = if ty == ScalarType::Pred { "pred" } else { "u32" };
        format!("mov.{to} %{to}_0, {}{component};", register.name())
    };
    gated.map(statement).collect()
}

const DIRECTIVES: &[&str] = &[
    ".maxntid 32 .reqnctapercluster 2",
    ".explicitcluster",
    ".maxclusterrank 4",
    ".reqntid 32 .reqnctapercluster 2, 1, 1 .blocksareclusters",
];

/// The lines of `statements.tsv`: kind and text.
fn asked() -> Vec<(&'static str, String)> {
    let statements = instructions().into_iter().chain(registers()).map(|text| ("statement", text));
    let directives = DIRECTIVES.iter().map(|text| ("directive", (*text).to_owned()));
    statements.chain(directives).collect()
}

/// A module with one line of `statements.tsv`.
fn source(need: Need, kind: &str, text: &str) -> String {
    match kind {
        "directive" => format!(
            ".version {}.{}\n.target {}\n.address_size 64\n.visible .entry k() {text} {{ ret; }}\n",
            need.version.0, need.version.1, need.target
        ),
        _ => module(need, &[text]),
    }
}

#[test]
fn statements_are_those_of_the_table() {
    let mut text = "# kind\ttext\n".to_owned();
    for (kind, statement) in asked() {
        writeln!(text, "{kind}\t{statement}").unwrap();
    }
    test_golden::assert_file(folder().join("statements.tsv"), &text);
    let prelude = module("9.5 sm_100a".parse().unwrap(), &["TARGETS PROTOTYPE"]);
    let prelude = prelude.split_once("TARGETS PROTOTYPE").unwrap().0;
    let prelude = prelude.split_once(".address_size").unwrap().1;
    test_golden::assert_file(folder().join("prelude.txt"), &format!(".address_size{prelude}"));
}

/// A column of `verdicts.tsv`: the version that a ptxas reads, and the targets that were asked.
struct Column {
    newest: Version,
    targets: Vec<Target>,
}

/// Where table and ptxas differ, by text: what the table says and ptxas does.
type Differences = BTreeMap<String, Vec<String>>;

#[test]
fn ptxas_agrees_with_the_table() {
    let text = std::fs::read_to_string(folder().join("verdicts.tsv")).unwrap();
    let (head, lines): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with("# "));
    let (columns, lists): (Vec<&str>, Vec<&str>) =
        head.into_iter().partition(|line| line.starts_with("# ptxas"));
    let columns: Vec<Column> = columns.into_iter().map(column).collect();
    let lists: Vec<&str> = lists.iter().map(|line| line.split_once(" = ").unwrap().1).collect();
    assert_eq!(columns.len(), 4, "each ptxas has a line: `# ptxas VERSION, PTX N.N: TARGETS`");
    let rows: BTreeMap<(&str, &str), Vec<&str>> = lines
        .into_iter()
        .map(|line| {
            let cells: Vec<&str> = line.split('\t').collect();
            ((cells[0], cells[1]), cells[2..].to_vec())
        })
        .collect();
    let mut differences = Differences::new();
    let mut verdicts = 0;
    for (kind, text) in asked() {
        let row = rows.get(&(kind, &*text)).unwrap_or_else(|| panic!("run scripts/ptx-gates.py: {text}"));
        for (column, accepted) in columns.iter().zip(row) {
            let accepted: Vec<&str> = lists[accepted.parse::<usize>().unwrap()].split(' ').collect();
            for target in &column.targets {
                let need = Need { version: column.newest, target: *target };
                let parsed = ptx::parse(&source(need, kind, &text)).unwrap();
                let ours = ptx::verify(&parsed).is_empty();
                let theirs = accepted.contains(&&*target.to_string());
                verdicts += 1;
                if ours != theirs && !is_known(column.newest, &text) {
                    let verb = if theirs { "takes" } else { "refuses" };
                    let what = format!("{}.{} {verb} {target}", column.newest.0, column.newest.1);
                    differences.entry(text.clone()).or_default().push(what);
                }
            }
        }
    }
    println!("{verdicts} verdicts");
    assert!(differences.is_empty(), "{differences:#?}");
}

/// `# ptxas 12.8.93, PTX 8.7: sm_75 sm_80 …`
fn column(line: &str) -> Column {
    let (version, targets) = line.split_once("PTX ").unwrap().1.split_once(": ").unwrap();
    let (major, minor) = version.split_once('.').unwrap();
    let targets = targets.split(' ').map(|target| target.parse().unwrap()).collect();
    Column { newest: (major.parse().unwrap(), minor.parse().unwrap()), targets }
}

/// Differences that are ptxas's, not the table's: before 13.5 it takes fences of one direction for
/// any target.
fn is_known(newest: Version, text: &str) -> bool {
    newest < (9, 5) && (text.starts_with("fence.acquire.") || text.starts_with("fence.release."))
}
