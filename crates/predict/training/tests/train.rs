//! Training from beginning to end, quickly, on a part of the measurements in the repository.

use apex_dataset::DataSet;
use apex_model::Model;
use apex_predict::{Case, Device, Models};
use apex_training::report::Score;
use apex_training::{Data, Error, Options, Progress, Report, Trained, refit, run};
use cuda_launch::LaunchConfig;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

fn measured(name: &str, every: usize) -> DataSet {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../data").join(name);
    let mut set = DataSet::read(&folder).unwrap();
    set.launches = set.launches.into_iter().step_by(every).collect();
    set
}

fn options(seed: u64, threads: usize) -> Options {
    Options { quick: true, seed, threads }
}

fn trained(data: &Data, real: Option<&Data>, options: &Options) -> Trained {
    let progress = Progress::default();
    let trained = run(data, real, options, &progress, &AtomicBool::new(false)).unwrap();
    assert_eq!(progress.done.into_inner(), progress.planned.into_inner(), "the bar ends at its end");
    trained
}

/// The median errors of a report's networks, by test, quantity and basis.
fn errors(report: &Report) -> Vec<(String, f64)> {
    let scores = report.tests.iter().flat_map(|test| test.scores.iter().map(move |score| (test, score)));
    let name = |(test, score): (&apex_training::report::Test, &apex_training::report::Score)| {
        (
            format!("{}: {} {} {}", test.held_out, score.method, score.quantity, score.basis),
            score.median_error.value,
        )
    };
    scores.map(name).collect()
}

/// The error that is compared between two methods: the median, or the 90th percentile.
#[derive(Clone, Copy)]
enum Errors {
    Median,
    Large,
}

/// The factor by which the network's errors may exceed those of the strongest plain method, if
/// there is one: held-out cases, quantity, basis, errors, factor. Quickly trained on a part of the
/// data, it stays below each by about a tenth. Where the median error of a formula is nearly 0
/// (most launches have full warps), 90th percentiles are compared; there a formula may be better
/// than so small a training.
const BARS: [(&str, &str, &str, Errors, f64); 7] = [
    ("families", "achieved occupancy", "kernel", Errors::Median, 0.7),
    ("families", "warp efficiency", "kernel", Errors::Large, 1.0),
    ("families", "warp efficiency", "work", Errors::Large, 1.25),
    ("families", "duration", "work", Errors::Median, 1.1),
    (
        "families, one other launch of the kernel on the same problem is known",
        "duration, what-if",
        "work",
        Errors::Median,
        0.36,
    ),
    ("real programs, never trained on", "achieved occupancy", "kernel", Errors::Median, 0.9),
    ("real programs, never trained on", "warp efficiency", "kernel", Errors::Large, 4.6),
];

/// Each score that has a plain method beside it stays below its bar.
fn held_to_baselines(report: &Report) {
    let mut seen = 0;
    for test in &report.tests {
        for network in test.scores.iter().filter(|score| score.method == "network") {
            let beside = |score: &&Score| {
                (&score.quantity, &score.basis) == (&network.quantity, &network.basis)
                    && !["network", "computed", "measured again"].contains(&&*score.method)
            };
            let baselines: Vec<&Score> = test.scores.iter().filter(beside).collect();
            if baselines.is_empty() {
                continue;
            }
            let of = (&*test.held_out, &*network.quantity, &*network.basis);
            let bar =
                BARS.iter().find(|(held_out, quantity, basis, ..)| (*held_out, *quantity, *basis) == of);
            let &(.., errors, factor) = bar.unwrap_or_else(|| panic!("no bar for {of:?}"));
            let error = |score: &Score| match errors {
                Errors::Median => score.median_error.value,
                Errors::Large => score.large_error,
            };
            let strongest = baselines.iter().map(|score| error(score)).fold(f64::INFINITY, f64::min);
            let own = error(network);
            assert!(
                own <= factor * strongest,
                "{of:?}: {own}, and {strongest} of the strongest plain method"
            );
            seen += 1;
        }
    }
    assert_eq!(seen, BARS.len(), "a test that has a bar was not made");
}

/// Computed durations are better than those of the networks, if it is known what launches execute.
fn computed_durations_are_better(report: &Report) {
    for quantity in ["duration", "duration, what-if"] {
        let scores = report.tests.iter().flat_map(|test| &test.scores);
        let error = |method: &str| {
            let wanted = |score: &&Score| {
                (&*score.quantity, &*score.basis, &*score.method) == (quantity, "work", method)
            };
            scores.clone().find(wanted).expect("the report has this score").median_error.value
        };
        let (computed, network) = (error("computed"), error("network"));
        assert!(computed < network, "{quantity}: computed {computed}, network {network}");
    }
}

#[test]
fn the_same_data_and_seed_give_the_same_models_and_they_say_something() {
    let data = Data::new(&measured("h200/launches", 5)).unwrap();
    let real = Data::new(&measured("h200/launches-pytorch", 5)).unwrap();
    let (first, again) = std::thread::scope(|scope| {
        let again = scope.spawn(|| trained(&data, Some(&real), &options(3, 1)));
        (trained(&data, Some(&real), &options(3, 2)), again.join().unwrap())
    });
    for (one, other) in first.models.iter().zip(&again.models) {
        assert_eq!(one.to_bytes(), other.to_bytes());
    }
    assert_eq!(errors(&first.report), errors(&again.report));

    held_to_baselines(&first.report);
    computed_durations_are_better(&first.report);
    let card = first.report.card();
    assert!(card.contains("2093 launches of 65 families") && card.contains("## real programs"), "{card}");

    rates_are_fitted_again_without_the_networks(&data, &first, again);

    let models = Models::new(first.models).unwrap();
    let launch = LaunchConfig::new(1000, 256);
    models.predict(&Device::h200(), &Case::of_launch(launch)).unwrap();
}

/// Networks that lost their rates get them back, with their scores; those of others are refused.
fn rates_are_fitted_again_without_the_networks(data: &Data, first: &Trained, bare: Trained) {
    let Trained { models: [small, large, what_if], mut report } = bare;
    for test in &mut report.tests {
        test.scores.retain(|score| score.method != "computed");
    }
    let notes = large.notes().iter().filter(|(name, _)| !["timing", "start"].contains(&name.as_str()));
    let notes: Vec<(String, String)> = notes.cloned().collect();
    assert!(notes.len() < large.notes().len());
    let calibrations = large.calibrations().to_vec();
    let large = Model::new(large.features().clone(), large.network().clone(), calibrations, notes).unwrap();
    let stop = AtomicBool::new(false);
    let again = |seed| {
        let models = [small.clone(), large.clone(), what_if.clone()];
        refit(data, Trained { models, report: report.clone() }, &options(seed, 1), &stop)
    };
    let refitted = again(3).unwrap();
    for (one, other) in first.models.iter().zip(&refitted.models) {
        assert_eq!(one.to_bytes(), other.to_bytes());
    }
    assert!(first.report.card() == refitted.report.card());
    let why = again(4).unwrap_err().to_string();
    assert!(why.contains("with the seed 3"), "{why}");
    let fewer = Data::new(&measured("h200/launches", 40)).unwrap();
    let others = Trained { models: [small.clone(), large.clone(), what_if.clone()], report: report.clone() };
    let why = refit(&fewer, others, &options(3, 1), &stop).unwrap_err().to_string();
    assert!(why.contains("on other data"), "{why}");
}

/// A device that is left out is predicted by what was measured on the other one alone.
#[test]
fn devices_are_judged_each_with_and_without_having_been_trained_on() {
    let [h200, h100] = ["h200/launches", "h100/launches"].map(|name| {
        let mut set = measured(name, 1);
        // Two launches of each kernel, on one problem.
        set.launches.truncate(2 * set.kernels.len());
        Data::new(&set).unwrap()
    });
    let launches = [h200.rows.len(), h100.rows.len()];
    let data = h200.clone().join(h100).unwrap();
    // A family has one number on both, and no problem is on both.
    assert_eq!(data.families.len(), data.families.iter().collect::<BTreeSet<_>>().len());
    let problems = |source| -> BTreeSet<usize> {
        data.rows.iter().filter(|row| row.source == source).map(|row| row.problem).collect()
    };
    assert!(problems(0).is_disjoint(&problems(1)));

    let report = trained(&data, None, &options(1, 2)).report;
    let measured: Vec<usize> = report.devices.iter().map(|device| device.launches).collect();
    assert_eq!(measured, launches);
    for (device, launches) in report.devices.iter().zip(launches) {
        for end in ["", ", none of which was trained on"] {
            let held_out = format!("families, launches on the {}{end}", device.name);
            let test = report.tests.iter().find(|test| test.held_out == held_out).unwrap();
            for (method, quantity) in [("network", "achieved occupancy"), ("computed", "duration")] {
                let wanted = |score: &&Score| {
                    (&*score.method, &*score.quantity, &*score.basis) == (method, quantity, "work")
                };
                let score = test.scores.iter().find(wanted).unwrap();
                assert_eq!(score.cases, launches, "{held_out}");
                assert!(score.median_error.value < 30.0, "{held_out}, {quantity}: {:?}", score.median_error);
            }
        }
    }

    let why = h200.clone().join(h200).unwrap_err().to_string();
    assert!(why.contains("two data sets are of the NVIDIA H200"), "{why}");
}

#[test]
fn it_stops_when_it_is_told() {
    let data = Data::new(&measured("h200/launches", 40)).unwrap();
    let stop = AtomicBool::new(false);
    stop.store(true, Ordering::Relaxed);
    let stopped = run(&data, None, &options(1, 2), &Progress::default(), &stop);
    assert!(matches!(stopped, Err(Error::Stopped)), "{stopped:?}");
}

#[test]
fn data_that_cannot_be_learned_from_is_refused() {
    let mut set = measured("h200/launches", 100);
    set.launches.iter_mut().for_each(|launch| launch.counters = Default::default());
    let refused = Data::new(&set).unwrap_err().to_string();
    assert!(refused.contains("--counters require"), "{refused}");
    let mut unknown = measured("h200/launches", 100);
    unknown.manifest.device_name = "Some GPU".to_owned();
    unknown.manifest.device_attributes.clear();
    let refused = Data::new(&unknown).unwrap_err().to_string();
    assert!(refused.contains("Some GPU"), "{refused}");
}
