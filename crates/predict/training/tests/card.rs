//! The card of the shipped models and the pages that quote it agree with `card.json`, which
//! `apex train` wrote beside the models. `BLESS=1` writes card and pages anew.

use apex_conventions::documents::TRAIN;
use apex_training::Report;
use apex_training::report::Score;
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn the_card_is_that_of_the_report() {
    let report = report();
    let card = repository().join("crates/predict/predict/models/card.md");
    if std::env::var_os("BLESS").is_some() {
        fs::write(&card, report.card()).unwrap();
    }
    assert!(
        fs::read_to_string(&card).unwrap() == report.card(),
        "card.md is not of card.json: BLESS=1 renews it"
    );
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

fn report() -> Report {
    let card = test_manifest::content("crates/predict/predict/models/card.json.zst");
    let card: serde_json::Value = serde_json::from_slice(&card).unwrap();
    assert_eq!(card["schema"], TRAIN.to_string());
    serde_json::from_value(card).unwrap()
}

/// The score of a method; `held_out` is how the name of the test begins.
fn score<'a>(report: &'a Report, held_out: &str, method: &str, quantity: &str, basis: &str) -> &'a Score {
    let tests = report.tests.iter().filter(|test| test.held_out == held_out);
    let wanted =
        |score: &&Score| (&*score.method, &*score.quantity, &*score.basis) == (method, quantity, basis);
    tests.flat_map(|test| &test.scores).find(wanted).expect("the card has this score")
}

/// `1.1, 8.0`: the median error and the 90th percentile.
fn errors(score: &Score) -> String {
    format!("{:.1}, {:.1}", score.median_error.value, score.large_error)
}

const ALONE: &str = "families, launch alone";
const FAMILIES: &str = "families";
const WHAT_IF: &str = "families, one other launch of the kernel on the same problem is known";

/// The table of the page on predictions: the networks, by what is known.
fn by_basis(report: &Report) -> String {
    let of = |held_out, quantity, basis| score(report, held_out, "network", quantity, basis);
    let correlation = |score: &Score| format!("{:.2}", score.correlation.unwrap().value);
    let alone = errors(of(ALONE, "duration", "launch"));
    let row = |known: &str, held_out, basis, duration: &str| {
        let occupancy = of(held_out, "achieved occupancy", basis);
        let method = if basis == "work" { "computed" } else { "network" };
        let throughput = score(report, held_out, method, "SM throughput", basis);
        format!("| {known} | {} | {} | {duration} |\n", correlation(occupancy), errors(throughput))
    };
    let mut table = String::from(
        "| known of a launch | achieved occupancy, correlation | SM throughput, points | duration, % |\n| --- | ---: | ---: | ---: |\n",
    );
    table += &row("grid, block, shared memory", ALONE, "launch", &alone);
    table += &row("and the kernel's registers and memory", FAMILIES, "kernel", &alone);
    let computed = |held_out, quantity| errors(score(report, held_out, "computed", quantity, "work"));
    let work = computed(FAMILIES, "duration");
    table += &row("and what it executes, from PTX and arguments", FAMILIES, "work", &work);
    let change = computed(WHAT_IF, "duration, what-if");
    table + &format!("| and the measured time of another launch of the kernel | | | {change} |\n")
}

/// The table of the page on predictions: each device, known and not.
fn by_device(report: &Report) -> String {
    let mut table = String::from(
        "| device | trained on it | achieved occupancy, correlation | SM throughput, points | duration, % | its interval holds |\n\
         | --- | --- | ---: | ---: | ---: | ---: |\n",
    );
    for device in &report.devices {
        for (known, end) in [("yes", ""), ("no", ", none of which was trained on")] {
            let held_out = format!("families, launches on the {}{end}", device.name);
            let of = |method, quantity| score(report, &held_out, method, quantity, "work");
            let occupancy = of("network", "achieved occupancy").correlation.unwrap().value;
            let (throughput, duration) = (of("computed", "SM throughput"), of("computed", "duration"));
            table += &format!(
                "| {} | {known} | {occupancy:.2} | {} | {} | {:.2} |\n",
                device.name,
                errors(throughput),
                errors(duration),
                duration.coverage.unwrap().value
            );
        }
    }
    table
}

/// The table of the page of results: plain methods beside the networks.
fn by_method(report: &Report) -> String {
    let mut table = String::from(
        "| quantity, known | network | boosted trees | formula |\n| --- | ---: | ---: | ---: |\n",
    );
    for (held_out, quantity, basis, formula) in [
        (FAMILIES, "achieved occupancy", "kernel", Some("the same, limited by the grid")),
        (FAMILIES, "achieved occupancy", "work", None),
        (FAMILIES, "SM throughput", "kernel", None),
        (FAMILIES, "SM throughput", "work", Some("computed")),
        (FAMILIES, "warp efficiency", "kernel", Some("block efficiency")),
        (FAMILIES, "warp efficiency", "work", Some("walked warps")),
        (FAMILIES, "duration", "work", Some("computed")),
        (WHAT_IF, "duration, what-if", "work", Some("computed")),
    ] {
        let cell = |method: &str| {
            let score = score(report, held_out, method, quantity, basis);
            format!("{:.3}, {}", score.correlation.unwrap().value, errors(score))
        };
        let (network, trees) = (cell("network"), cell("boosted trees"));
        let formula = formula.map_or_else(|| "-".to_owned(), cell);
        table += &format!("| {quantity}, {basis} | {network} | {trees} | {formula} |\n");
    }
    table
}

#[test]
fn pages_quote_the_card() {
    const MARK: &str =
        "<!-- BLESS=1 cargo test -p apex-training --test card renews this table from card.json -->\n";
    const DEVICES: &str = "<!-- BLESS=1 cargo test -p apex-training --test card renews this table of devices from card.json -->\n";
    let report = report();
    for (page, mark, table) in [
        ("docs/predict.md", MARK, by_basis(&report)),
        ("docs/predict.md", DEVICES, by_device(&report)),
        ("docs/results/predict-h200.md", MARK, by_method(&report)),
    ] {
        let file = repository().join(page);
        let text = fs::read_to_string(&file).unwrap();
        let (before, rest) =
            text.split_once(mark).unwrap_or_else(|| panic!("{page} has no table of the card"));
        let after = rest.find("\n\n").map_or("", |end| &rest[end..]).trim_start_matches('\n');
        let renewed = format!("{before}{mark}{table}\n{after}");
        if std::env::var_os("BLESS").is_some() {
            fs::write(&file, &renewed).unwrap();
        } else {
            assert!(text == renewed, "{page} does not quote the card: BLESS=1 renews it");
        }
    }
}
