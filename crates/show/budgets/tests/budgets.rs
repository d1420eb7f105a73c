//! Limits are written so that the runs that they come from keep them, read back as they were
//! written, and found exceeded by what is worse; a file's faults are named.

use apex_budgets::{
    Budgets, Error, Measures, Outcome, Per, Quantity, Report, Section, github, junit, markdown,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn values(values: &[(Quantity, f64)]) -> BTreeMap<Quantity, f64> {
    values.iter().copied().collect()
}

/// A run on a GPU whose steps take so long, and one of whose kernels does.
fn on_gpu(step_ms: f64, kernel_us: f64) -> Measures {
    let kernel = values(&[
        (Quantity::Launches, 2.0),
        (Quantity::KernelUs, kernel_us),
        (Quantity::OccupancyPercent, 50.0),
    ]);
    Measures {
        per: Per::Step,
        on_cpu_device: false,
        whole: values(&[
            (Quantity::StepMs, step_ms),
            (Quantity::Launches, 200.0),
            (Quantity::GpuBusyPercent, 60.0),
        ]),
        kernels: [("gemm<f16>".to_owned(), kernel)].into(),
    }
}

/// A run on the CPU device with so many launches and sectors.
fn on_cpu(launches: f64, sectors: f64) -> Measures {
    let kernel = values(&[(Quantity::Launches, launches), (Quantity::Sectors, sectors)]);
    Measures {
        per: Per::Run,
        on_cpu_device: true,
        whole: values(&[
            (Quantity::Launches, launches),
            (Quantity::Sectors, sectors),
            (Quantity::Defects, 0.0),
        ]),
        kernels: [("saxpy".to_owned(), kernel)].into(),
    }
}

fn failures(section: &Section, runs: &[Measures]) -> Vec<String> {
    Report::of(section, runs).failures().map(|judged| judged.what()).collect()
}

#[test]
fn counts_have_no_margin_and_times_have_one() {
    let cpu = Section::of(&[on_cpu(12.0, 4096.0)]);
    assert_eq!(failures(&cpu, &[on_cpu(12.0, 4096.0)]), [""; 0]);
    assert_eq!(failures(&cpu, &[on_cpu(13.0, 4096.0)]), ["launches", "launches of saxpy"]);
    assert_eq!(failures(&cpu, &[on_cpu(12.0, 4097.0)]), ["sectors", "sectors of saxpy"]);
    // One bad run among good ones is not averaged away.
    assert_eq!(failures(&cpu, &[on_cpu(12.0, 1.0), on_cpu(12.0, 4097.0)]), ["sectors", "sectors of saxpy"]);
    let steady = Section::of(&[10.0, 10.01, 9.99].map(|ms| on_gpu(ms, 100.0)));
    assert_eq!(failures(&steady, &[on_gpu(10.15, 100.0)]), [""; 0]);
    assert_eq!(failures(&steady, &[on_gpu(10.5, 100.0)]), ["step_ms"]);
    assert_eq!(failures(&steady, &[on_gpu(10.5, 100.0), on_gpu(9.7, 100.0)]), [""; 0], "the mean is judged");
    let noisy = Section::of(&[10.0, 12.0, 8.0, 10.0, 9.0, 11.0, 10.0, 12.0].map(|ms| on_gpu(ms, 100.0)));
    assert_eq!(failures(&noisy, &[on_gpu(13.0, 100.0)]), [""; 0]);
    assert_eq!(failures(&noisy, &[on_gpu(19.0, 100.0)]), ["step_ms"]);
    let two = Section::of(&[10.0, 10.01].map(|ms| on_gpu(ms, 100.0)));
    assert_eq!(failures(&two, &[on_gpu(10.9, 100.0)]), [""; 0], "two runs do not tell their spread either");
    let one = Section::of(&[on_gpu(10.0, 100.0)]);
    assert_eq!(failures(&one, &[on_gpu(10.9, 109.0)]), [""; 0], "the spread of one run is not known");
    assert_eq!(failures(&one, &[on_gpu(11.1, 111.0)]), ["step_ms", "kernel_us of gemm<f16>"]);
}

#[test]
fn the_good_side_of_a_share_is_the_upper_one() {
    let section = Section::of(&[on_gpu(10.0, 100.0)]);
    let mut run = on_gpu(10.0, 100.0);
    run.whole.insert(Quantity::GpuBusyPercent, 49.0);
    run.kernels.get_mut("gemm<f16>").expect("the kernel").insert(Quantity::OccupancyPercent, 49.0);
    assert_eq!(failures(&section, &[run]), ["gpu_busy_percent", "occupancy_percent of gemm<f16>"]);
    let mut better = on_gpu(10.0, 100.0);
    better.whole.insert(Quantity::GpuBusyPercent, 90.0);
    assert_eq!(failures(&section, &[better]), [""; 0]);
}

#[test]
fn what_a_run_lacks_is_a_failure() {
    let section = Section::of(&[on_gpu(10.0, 100.0)]);
    let mut run = on_gpu(10.0, 100.0);
    run.whole.remove(&Quantity::StepMs);
    let report = Report::of(&section, &[run]);
    let outcomes: Vec<_> =
        report.failures().map(|judged| (judged.what(), judged.outcome, judged.said())).collect();
    let said = "is not known of each run, and must be at most 11".to_owned();
    assert_eq!(outcomes, [("step_ms".to_owned(), Outcome::Missing, said)]);
    let cpu = Section::of(&[on_cpu(12.0, 4096.0)]);
    let mut gone = on_cpu(12.0, 4096.0);
    gone.kernels.clear();
    assert_eq!(failures(&cpu, &[gone]), ["launches of saxpy", "sectors of saxpy"]);
}

#[test]
fn a_pattern_names_several_kernels() {
    let limits = |pattern: &str| {
        let text = format!(
            "schema = \"apex.budgets/1\"\n[cpu]\nper = \"run\"\n[cpu.kernels.\"{pattern}\"]\nlaunches = 12\nsectors = 100\n"
        );
        Budgets::parse(&text).expect("it is right").cpu.expect("the section")
    };
    let mut run = on_cpu(12.0, 60.0);
    let other = run.kernels["saxpy"].clone();
    run.kernels.insert("saxpy_fast".to_owned(), other);
    let failed = |pattern| failures(&limits(pattern), std::slice::from_ref(&run)).len();
    for (pattern, expected) in [
        ("saxpy", 0),
        ("saxpy*", 2),
        ("*fast", 0),
        ("*a*", 2),
        ("s*_*t", 0),
        ("gemm*", 2),
        ("*", 2),
        ("saxpy*x", 2),
    ] {
        assert_eq!(failed(pattern), expected, "{pattern}");
    }
}

#[test]
fn a_file_keeps_the_section_of_the_other_device() {
    let mut budgets = Budgets::default();
    budgets.set(true, Section::of(&[on_cpu(12.0, 4096.0)]));
    budgets.set(false, Section::of(&[on_gpu(10.0, 100.0)]));
    let read = Budgets::parse(&budgets.text()).expect("what it wrote");
    assert_eq!(read.cpu, budgets.cpu);
    assert!(read.section(false).is_some());
}

#[test]
fn the_faults_of_a_file_are_named() {
    let parse = |text: &str| Budgets::parse(text).expect_err("it is wrong");
    let file = |section: &str| parse(&format!("schema = \"apex.budgets/1\"\n{section}"));
    assert!(matches!(parse("schema = \"apex.budgets/9\""), Error::Schema { .. }));
    assert!(matches!(parse("limits = 3"), Error::Form(_)));
    assert!(matches!(file("[fpga]\nper = \"run\""), Error::Form(_)));
    assert!(matches!(file("[cpu]\nper = \"hour\""), Error::Per { .. }));
    let unknown = file("[cpu]\nper = \"run\"\n[cpu.kernels.\"a b\"]\nlaunchs = 3").to_string();
    assert!(
        unknown.starts_with("[cpu.kernels.\"a b\"]: there is no `launchs`. There are: step_ms, launches"),
        "{unknown}"
    );
    for wrong in ["-1", "nan", "inf"] {
        let error = file(&format!("[gpu]\nper = \"step\"\n[gpu.limits]\nstep_ms = {wrong}"));
        assert_eq!(error.to_string(), "[gpu.limits]: the limit of `step_ms` must be a number of at least 0");
    }
    let line = file("[gpu]\nper = \"step\"\n[gpu.limits]\nstep_ms = fast").to_string();
    assert!(line.contains("line 5"), "{line}");
}

#[test]
fn reports_for_machines_escape_what_names_contain() {
    let mut run = on_cpu(12.0, 60.0);
    let kernel = run.kernels.remove("saxpy").expect("the kernel");
    run.kernels.insert("a<b>&\"c\"|\n%".to_owned(), kernel);
    let section = Section::of(std::slice::from_ref(&run));
    let worse = {
        let mut worse = run.clone();
        for values in worse.kernels.values_mut() {
            values.insert(Quantity::Sectors, 61.0);
        }
        worse
    };
    let report = Report::of(&section, &[worse]);
    let xml = junit(&report, "x");
    assert!(xml.contains("classname=\"a&lt;b&gt;&amp;&quot;c&quot;|\u{fffd}%\""), "{xml}");
    assert!(xml.contains("tests=\"5\" failures=\"1\""), "{xml}");
    let annotations = github(&report, "a: b");
    assert_eq!(
        annotations,
        "::error title=a%3A b::sectors of a<b>&\"c\"|%0A%25 is 61 (+1.7%25), but must be at most 60\n"
    );
    let table = markdown(&report, "x");
    assert!(table.contains("| **not kept** | sectors of a<b>&\"c\"\\| % | 61 | 60 |"), "{table}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Runs keep the limits that are written from them, through the file.
    #[test]
    fn runs_keep_their_own_limits(
        steps in prop::collection::vec((1e-6..1e6f64, 1e-3..1e6f64), 1..5),
        name in "\\PC{0,12}",
    ) {
        let runs: Vec<Measures> = steps
            .iter()
            .map(|&(step, kernel)| {
                let mut run = on_gpu(step, kernel);
                let values = run.kernels.remove("gemm<f16>").expect("the kernel");
                run.kernels.insert(name.replace('*', "+"), values);
                run
            })
            .collect();
        let mut budgets = Budgets::default();
        budgets.set(false, Section::of(&runs));
        let read = Budgets::parse(&budgets.text()).expect("what it wrote").gpu.expect("the section");
        for run in &runs {
            prop_assert_eq!(failures(&read, std::slice::from_ref(run)), [""; 0]);
        }
    }

    /// Any text is read or refused.
    #[test]
    fn any_text_is_read_or_refused(text in "(schema = \"apex.budgets/1\"\n)?[\\[\\]a-z.=\"0-9\n _*-]{0,80}") {
        let _ = Budgets::parse(&text);
    }
}
