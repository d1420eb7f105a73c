//! The CPU device computes what the H200 computed, but for what is known and explained.

use apex_differential::corpus::{Corpus, Manifest};
use apex_differential::digest::Digests;
use apex_differential::recording::{Outcome, Recorded};
use std::path::{Path, PathBuf};
use test_process::Command;

/// The CPU device's library, which cargo has built beside this test.
fn cpu_device() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let library = tests.with_file_name("libapex_cpu_device.so");
    assert!(library.exists(), "{} is missing", library.display());
    library
}

fn corpus() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../data/h200/differential"))
}

/// The program with a command.
fn program(command: &str) -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_apex-differential"));
    program.env("APEX_CPU_NEWER_PTX", "1").arg(command);
    program
}

/// Whether a run of the program succeeds, and what it prints.
fn run(program: &mut Command) -> (bool, String) {
    let output = program.output().unwrap();
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (output.status.success(), said.concat())
}

/// Runs a command about a corpus on the CPU device.
fn differential_with(corpus: &Path, command: &str, arguments: &[&str]) -> (bool, String) {
    let mut program = program(command);
    run(program.args(arguments).arg("--driver").arg(cpu_device()).arg("--corpus").arg(corpus))
}

fn differential(command: &str, arguments: &[&str]) -> (bool, String) {
    differential_with(&corpus(), command, arguments)
}

#[test]
fn the_cpu_device_agrees_with_the_recorded_h200() {
    let (agrees, said) = differential("check", &["--brief"]);
    let unexplained: Vec<&str> =
        said.lines().filter(|line| line.contains("NOT EXPLAINED")).take(20).collect();
    let total = said.lines().last().unwrap_or_default();
    assert!(agrees, "{}\n{total}", unexplained.join("\n"));
}

/// Every seventh of the programs for compute capability 9.0, whose results the H200's checksums
/// stand for.
#[test]
fn programs_for_9_0_leave_the_bits_of_the_recorded_h200() {
    let digests = corpus().join("hopper.digests");
    let mut check = program("check-digests");
    check.env("APEX_CPU_CAPABILITY", "9.0").args(["--every", "7", "--driver"]).arg(cpu_device());
    let (agrees, said) = run(check.arg("--digests").arg(&digests));
    assert!(agrees && said.lines().any(|line| line.ends_with("286 programs, 0 differ")), "{said}");
}

/// A program that the recording does not have, and one with other results, are named.
#[test]
fn a_program_with_another_checksum_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("digests");
    let mut digests = Digests::read(&corpus().join("hopper.digests")).unwrap();
    digests.digests.truncate(8);
    digests.manifest.programs = 8;
    digests.digests[3] ^= 1;
    digests.write(&file).unwrap();
    let mut check = program("check-digests");
    check.env("APEX_CPU_CAPABILITY", "9.0").arg("--driver").arg(cpu_device());
    let (agrees, said) = run(check.arg("--digests").arg(&file));
    assert!(!agrees && said.contains("tensor loads/3: other results\n"), "{said}");
    assert!(said.ends_with("8 programs, 1 differ\n"), "{said}");
}

/// All forms take as long as the test above. These are arithmetic and accesses that become machine
/// code.
#[test]
fn machine_code_agrees_with_the_recorded_h200() {
    for forms in ["fma.", "ld."] {
        let mut check = program("check");
        check.env("APEX_CPU_ENGINE", "compiled").args(["--brief", "--only", forms, "--driver"]);
        let (agrees, said) = run(check.arg(cpu_device()).arg("--corpus").arg(corpus()));
        assert!(agrees, "{said}");
    }
}

/// The comparison can fail: a known difference, looked at without the list, is one.
#[test]
fn a_difference_is_shown_with_its_program_and_the_rows_of_its_checksum() {
    let (ran, said) = differential("explain", &["slct.s32.s32"]);
    assert!(ran, "{said}");
    assert!(said.contains("slct.s32.s32 %r") && said.contains("constant of rows 0 to 31"), "{said}");
    assert!(said.contains("\n  row 31 0x"), "{said}");
}

#[test]
fn a_driver_that_is_none_is_an_error() {
    let mut check = program("check");
    check.args(["--driver", "/nowhere/libcuda.so.1", "--corpus"]).arg(corpus());
    let (agrees, said) = run(&mut check);
    assert!(!agrees && said.contains("could not open the driver"), "{said}");
}

/// One bit of a recording is turned over: a check names the row, or the rows of its checksum.
#[test]
fn a_wrong_bit_is_found_in_a_whole_and_in_a_condensed_recording() {
    let dir = tempfile::tempdir().unwrap();
    let [whole, condensed] = ["whole", "condensed"].map(|name| dir.path().join(name));
    let (recorded, said) = record_with(&["--whole"], "abs.s32", &whole, None);
    assert!(recorded, "{said}");
    let mut corpus = Corpus::read(&whole).unwrap();
    let Recorded::Whole(Outcome::Results(bytes)) = &mut corpus.cases[0].1 else { panic!("no results") };
    bytes[4 * 40] ^= 1;
    corpus.write(&whole).unwrap();
    let (written, words) = run(program("condense").arg("--corpus").arg(&whole).arg("--out").arg(&condensed));
    assert!(written, "{words}");
    for (folder, words) in [(&whole, "registers of row 40 0x"), (&condensed, "registers of rows 32 to 63: ")]
    {
        let (agrees, said) = differential_with(folder, "check", &[]);
        assert!(!agrees && said.contains(words) && said.contains("NOT EXPLAINED"), "{said}");
    }
}

/// Records what begins with `only` on the CPU device; whether that went well, and what was said.
fn record(only: &str, out: &Path, onto: Option<&Path>) -> (bool, String) {
    record_with(&[], only, out, onto)
}

fn record_with(options: &[&str], only: &str, out: &Path, onto: Option<&Path>) -> (bool, String) {
    let mut record = program("record");
    record.args(["--only", only]).args(options).arg("--driver").arg(cpu_device()).arg("--out").arg(out);
    run(record.args(onto.iter().flat_map(|onto| [Path::new("--onto"), onto])))
}

#[test]
fn a_corpus_grows_by_what_it_has_not() {
    let dir = tempfile::tempdir().unwrap();
    let [first, both] = ["first", "both"].map(|name| dir.path().join(name));
    let (recorded, said) = record("txq.width", &first, None);
    assert!(recorded && said.contains("1 programs run"), "{said}");
    let (recorded, said) = record("txq.", &both, Some(&first));
    assert!(
        recorded && said.contains("9 programs run") && said.contains("10 programs (0 refused)"),
        "{said}"
    );
    let (recorded, said) = record("txq.", &dir.path().join("none"), Some(&both));
    assert!(recorded && said.contains("0 programs run"), "{said}");
    let corpora = [&first, &both].map(|folder| Corpus::read(folder).unwrap());
    assert!(corpora[1].cases.contains(&corpora[0].cases[0]), "what was there stays as it was");
}

/// A corpus is of one device.
#[test]
fn a_corpus_takes_nothing_from_another_device() {
    let dir = tempfile::tempdir().unwrap();
    let (recorded, said) = record("mov.b16/2 parts", dir.path(), Some(&small_corpus(dir.path())));
    assert!(!recorded && said.contains("adds nothing to a corpus of another device"), "{said}");
}

/// A corpus without programs that says to be of another device.
fn small_corpus(dir: &Path) -> PathBuf {
    let manifest = Manifest {
        device: "another device".into(),
        driver: "1".into(),
        date: "2026-01-01".into(),
        programs: 0,
        refused: 0,
        results: 0,
    };
    let folder = dir.join("another");
    Corpus { manifest, cases: Vec::new() }.write(&folder).unwrap();
    folder
}
