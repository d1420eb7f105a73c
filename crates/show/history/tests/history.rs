//! Lines are read as they were written, faults are named, and changes are found where they are.

use apex_history::{Figures, History, Report, Run, Series, markdown, page, sparkline};
use apex_random::Random;
use proptest::prelude::*;

/// A run with these launches and this time, the `day`th of November.
fn run(day: usize, launches: f64, step_ms: f64) -> Run {
    let figures =
        |figures: &[(&str, f64)]| figures.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    let whole =
        Figures { exact: figures(&[("launches", launches)]), varying: figures(&[("step_ms", step_ms)]) };
    let kernel = Figures { exact: figures(&[("sectors", launches * 8.0)]), ..Figures::default() };
    Run {
        commit: format!("commit-{day}"),
        time: format!("2026-11-{:02}T12:00:00Z", day + 1),
        id: None,
        name: "train.py".into(),
        device: "cpu".into(),
        figures: whole,
        kernels: [("saxpy<float>".to_owned(), kernel)].into(),
    }
}

/// Twenty-four runs: from the fifteenth on there is one launch more, and steps take 20% longer.
fn slower() -> History {
    let mut random = Random::new(3);
    let runs = (0..24).map(|day| {
        let (launches, factor) = if day < 15 { (3.0, 1.0) } else { (4.0, 1.2) };
        run(day, launches, factor * 10.0 * (0.02 * random.normal()).exp())
    });
    History { runs: runs.collect() }
}

fn text(history: &History) -> String {
    history.runs.iter().map(Run::line).collect()
}

#[test]
fn a_file_is_read_as_it_was_written() {
    let history = slower();
    assert_eq!(History::parse(&text(&history)), Ok(history.clone()));
    assert_eq!(History::parse(&format!("\n{}\n", text(&history))), Ok(history));
}

#[test]
fn a_line_that_cannot_be_used_is_named() {
    let good = run(0, 1.0, 1.0).line();
    for (bad, said) in [
        ("{", "line 2: "),
        ("{}", "line 2: missing field"),
        (&good.replace("history.run/1", "history.run/9"), "this APEX reads apex.history.run/1"),
        (&good.replace("2026-11-01T12", "yesterday at 12"), "line 2: `time` must be like"),
        (&good.replace("2026-11-01T12", "2026-13-01T12"), "line 2: `time` must be like"),
        (&good.replace("2026-11-01T12", "2026-11-01T24"), "line 2: `time` must be like"),
        (&good.replace("commit-0", " "), "line 2: `commit` is empty"),
        (&good.replace("train.py", ""), "line 2: `name` is empty"),
        (&good.replace(":8.0", ":-8"), "line 2: `sectors` must be a number from 0 to 1e18, not -8"),
        (&good.replace(":1.0", ":1e300"), "line 2: `launches` must be a number from 0 to 1e18"),
        (
            &good.replace("step_ms\":1.0", "busy_percent\":101"),
            "line 2: `busy_percent` must be a number from 0 to 1e2,",
        ),
        (&good.replace("\"exact\"", "\"exactly\""), "line 2: unknown field `exactly`"),
    ] {
        let error = History::parse(&format!("{good}{bad}\n")).unwrap_err().to_string();
        assert!(error.contains(said), "{bad}: {error}");
    }
}

#[test]
fn a_run_counts_once_however_often_it_was_added() {
    let plain = run(0, 3.0, 1.0);
    let named = |id: &str, commit: &str| Run { id: Some(id.into()), commit: commit.into(), ..plain.clone() };
    let other_program = Run { name: "test.py".into(), ..named("a", "x") };
    let lines = [&plain, &named("a", "x"), &named("b", "x"), &plain, &named("a", "later"), &other_program];
    let history = History::parse(&lines.map(Run::line).concat()).unwrap();
    let kept: Vec<Run> = vec![plain.clone(), named("a", "x"), named("b", "x"), other_program];
    assert_eq!(history.runs, kept);
    assert_eq!(history.find(&named("b", "y")), Some(&kept[2]));
    assert_eq!(history.find(&run(1, 3.0, 1.0)), None);
}

#[test]
fn changes_are_found_at_their_commit_and_with_their_size() {
    let report = Report::of(&slower(), None);
    let told: Vec<(String, &str, bool)> = report
        .changes()
        .iter()
        .map(|(series, change)| (series.what(), change.commit.as_str(), change.is_worse))
        .collect();
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(told.iter().all(|(_, commit, worse)| *commit == "commit-15" && *worse), "{told:?}");
    assert_eq!(report.verdict(), "3 changes for the worse and 0 for the better, in 3 figures of 24 runs.");
    let exact = report.changes().into_iter().find(|(series, _)| series.is_exact).unwrap().1.clone();
    assert_eq!((exact.amount().as_str(), exact.interval), ("+33.3%", None));
}

#[test]
fn what_is_the_same_has_no_change_and_one_run_has_none_either() {
    let mut random = Random::new(4);
    let runs = (0..30).map(|day| run(day % 28, 3.0, 10.0 * (0.02 * random.normal()).exp())).collect();
    assert_eq!(Report::of(&History { runs }, None).changes(), []);
    let one = Report::of(&History { runs: vec![run(0, 3.0, 1.0)] }, None);
    assert_eq!(one.verdict(), "No change in 3 figures of 1 run.");
    assert!(page(&one, "One").contains("<polyline"));
}

#[test]
fn a_week_has_what_ran_in_it() {
    let since = |moment| Report::of(&slower(), Some(moment));
    assert_eq!(since("2026-11-20T00:00:00Z").changes(), [], "the change is older");
    let week = since("2026-11-10T00:00:00Z");
    assert_eq!((week.runs, week.changes().len()), (15, 3));
    assert_eq!(since("2027-01-01T00:00:00Z").series, []);
}

#[test]
fn more_launches_from_none_and_a_busier_gpu_are_judged_rightly() {
    let mut runs = vec![run(0, 0.0, 1.0), run(1, 2.0, 1.0)];
    for (run, busy) in runs.iter_mut().zip([40.0, 60.0]) {
        run.figures.exact.insert("gpu_busy_percent".into(), busy);
    }
    let report = Report::of(&History { runs }, None);
    let told: Vec<(String, String, bool)> =
        report.changes().iter().map(|(of, change)| (of.what(), change.amount(), change.is_worse)).collect();
    assert_eq!(told[0], ("launches".into(), "from 0".into(), true));
    assert_eq!(told.last().unwrap(), &("gpu_busy_percent".into(), "+50.0%".into(), false));
}

#[test]
fn texts_show_the_change_and_nothing_of_a_name_is_markup() {
    let mut history = slower();
    history.runs.iter_mut().for_each(|run| run.name = "<b>|train\n".into());
    let report = Report::of(&history, None);
    let written = markdown(&report, "Week");
    assert!(written.contains("| **worse** | &lt;b>\\|train"), "{written}");
    assert!(written.contains("| launches | 4 | ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁█████████ |"), "{written}");
    let page = page(&report, "Week");
    assert!(!page.contains("<b>|") && page.contains("class=\"worse\""), "{page}");
    let saxpy = Series::all(&history).into_iter().find(|series| series.kernel.is_some()).unwrap();
    assert_eq!(sparkline(&saxpy, 4), "▁▁▁▁");
}

proptest! {
    #[test]
    fn any_text_is_a_history_or_a_fault(text in "\\PC*") {
        let _ = History::parse(&text);
    }

    #[test]
    fn any_values_make_a_page(values in proptest::collection::vec(-1e300..1e300f64, 1..40)) {
        let runs = values.iter().enumerate().map(|(day, value)| run(day % 28, *value, *value));
        let report = Report::of(&History { runs: runs.collect() }, None);
        prop_assert!(page(&report, "Any").ends_with("</html>\n"));
        prop_assert!(!page(&report, "Any").contains("NaN"));
        markdown(&report, "Any");
    }
}
