//! The models' prediction for the change that a finding proposes.

use apex_predict::Models;
use apex_predict_session::programs::Programs;
use apex_predict_session::recorded;
use apex_profile::Profile;
use cuda_launch::LaunchConfig;

use crate::finding::{Configuration, KernelFinding, WhatIf};

/// Predicts a kernel with blocks of another size, from its measured time.
pub(crate) fn what_if(
    profile: &Profile,
    programs: &Programs<'_>,
    models: &Models,
    found: &KernelFinding,
) -> Option<WhatIf> {
    let kernel = profile.kernels.get(found.kernel)?;
    let device = recorded::known_device(profile.devices.get(kernel.device?)?).ok()?;
    let measured_ns = recorded::measured_duration_ns(kernel)?.value;
    let configuration = found.to?;
    let code = programs.recorded(kernel);
    let from = code.case(kernel.launch, kernel.attributes);
    let Configuration { grid, block } = configuration;
    let launch = LaunchConfig { grid, block, ..from.launch };
    let to = code.case(launch, kernel.attributes);
    let expected = models.what_if(&device, &from, measured_ns / 1e3, &to).ok()?;
    let duration_ns = recorded::figure(expected).scaled(1e3);
    let saves = duration_ns.scaled(1.0 / measured_ns).complement();
    Some(WhatIf { configuration, duration_ns, saves })
}

#[cfg(test)]
mod tests {
    use apex_profile::Provenance;

    use super::*;
    use crate::advise::{Options, advise};
    use crate::rules::fixture::{kernel_of, profile_of, timed};

    /// As the driver of an H200 has them, as far as they matter here.
    const H200: [(u32, i32); 7] =
        [(75, 9), (76, 0), (16, 132), (13, 1_980_000), (36, 3_201_000), (37, 6016), (38, 62_914_560)];

    /// A timed kernel with a fault, and one that was not timed, on an H200.
    fn profile() -> Profile {
        let mut profile = profile_of([timed(kernel_of(5000, 100), 40_000.0), kernel_of(64, 256)]);
        profile.devices[0].attributes = H200.to_vec();
        profile
    }

    #[test]
    fn kernels_are_predicted_beside_what_was_measured() {
        let profile = profile();
        let predictions = recorded::predictions(&profile, &Models::shipped());
        let profile = profile.with(predictions);
        assert_eq!(profile.unpredicted, Vec::<String>::new());
        let [timed, untimed] = [0, 1].map(|index| profile.kernels[index].prediction.clone().expect("known"));
        assert_eq!(timed.basis, "kernel");
        let measured = timed.measured_duration_ns.expect("it was timed");
        assert_eq!((measured.value, measured.provenance()), (41_100.0, Provenance::Measured));
        // What its launches execute is not known, so that the measured duration stands alone.
        assert_eq!((timed.duration_ns, timed.measured_over_predicted), (None, None));
        assert_eq!((untimed.measured_duration_ns, untimed.measured_over_predicted), (None, None));
        let predicted = untimed.duration_ns.expect("nothing was measured");
        for estimate in [predicted, timed.achieved_occupancy, timed.sm_utilisation] {
            let (low, high) = estimate.interval().expect("predicted");
            assert!(low <= estimate.value && estimate.value <= high, "{estimate:?}");
        }
    }

    #[test]
    fn devices_that_are_not_known_are_named() {
        for (attributes, why) in [
            (vec![(75, 9), (76, 0)], "its clocks and caches were not recorded"),
            (vec![(75, 99), (76, 0)], "the rules of its compute capability are not known"),
            (
                [&[(75, 8)], &H200[1..]].concat(),
                "it has compute capability 8.0, and the models were trained on 9.0",
            ),
        ] {
            let mut profile = profile();
            profile.devices[0].attributes = attributes;
            let predictions = recorded::predictions(&profile, &Models::shipped());
            let profile = profile.with(predictions);
            assert!(profile.kernels.iter().all(|kernel| kernel.prediction.is_none()));
            assert!(profile.unpredicted[0].contains(why), "{:?}", profile.unpredicted);
            assert!(profile.unpredicted[0].starts_with("no predictions for NVIDIA H100: "));
        }
        assert!(recorded::device("", &[]).unwrap_err().contains("a device that is not known"));
    }

    #[test]
    fn the_change_that_a_rule_names_is_judged_from_the_measured_time() {
        let profile = profile();
        let with = Options { models: Some(Models::shipped()), ..Options::default() };
        let found = |options| {
            let findings = advise(&profile, options).findings;
            findings.into_iter().find(|finding| finding.rule == "APEX-L01").expect("100 threads").kernels
        };
        let judged = found(&with);
        let what_if = judged[0].what_if.expect("it names a block size and was timed");
        let configuration = Configuration { grid: 3907.into(), block: 128.into() };
        assert_eq!((what_if.configuration, judged[0].to), (configuration, Some(configuration)));
        let is_saved = |saved: f64, ns: f64| (saved - (1.0 - ns / 41_100.0)).abs() < 1e-12;
        let (saves, duration) = (what_if.saves, what_if.duration_ns);
        assert!(is_saved(saves.value, duration.value), "{what_if:?}");
        assert!(is_saved(saves.bounds().0, duration.bounds().1), "{what_if:?}");
        assert!(found(&Options::default())[0].what_if.is_none());
    }

    #[test]
    fn a_change_of_the_block_is_named_for_blocks_in_one_dimension_alone() {
        let mut profile = profile();
        let named = |launch| {
            profile.kernels[0].launch = launch;
            let findings = advise(&profile, &Options::default()).findings;
            let finding = findings.iter().find(|finding| finding.rule == "APEX-L01").expect("100 threads");
            finding.kernels[0].to
        };
        let mut named = named;
        assert_eq!(named(LaunchConfig::new(5000, (50, 2))), None);
        let rows = Some(Configuration { grid: (3907, 3).into(), block: 128.into() });
        assert_eq!(
            named(LaunchConfig::new((5000, 3), 100)),
            rows,
            "each row of blocks has threads of its own"
        );
    }
}
