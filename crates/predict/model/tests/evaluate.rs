//! Measures against hand-made cases and independent formulas, intervals against simulated truth.

use apex_model::Error;
use apex_model::conformal::{Band, Margin};
use apex_model::evaluate::{Bootstrap, coverage, folds, pearson, quantile};
use apex_model::network::Range;
use apex_random::Random;
use std::collections::BTreeSet;

#[test]
fn measures_of_hand_made_cases() {
    let (predicted, measured) = ([1.0, 2.0, 3.0, 9.0, 5.0], [2.0, 4.0, 6.0, f32::NAN, 10.0]);
    assert!((pearson(&predicted, &measured).unwrap() - 1.0).abs() < 1e-12);
    assert!((pearson(&[1.0, 2.0, 3.0], &[3.0, 2.0, 1.0]).unwrap() + 1.0).abs() < 1e-12);
    // Deviations -1 0 1 and -1 1 0: 1 / 2.
    assert!((pearson(&[1.0, 2.0, 3.0], &[1.0, 3.0, 2.0]).unwrap() - 0.5).abs() < 1e-12);
    assert_eq!(pearson(&[1.0, 1.0], &[1.0, 2.0]), None);
    assert_eq!(pearson(&[], &[]), None);
    assert_eq!(quantile(&[4.0, 1.0, 2.0, 3.0], 0.5), Some(2.5));
    assert_eq!(quantile(&[4.0, 1.0], 1.0), Some(4.0));
    assert_eq!(quantile(&[], 0.5), None);
    assert_eq!(coverage(&[(0.0, 1.0), (0.0, 1.0), (0.0, 1.0)], &[1.0, 1.1, f32::NAN]), Some(0.5));
    assert_eq!(coverage(&[], &[]), None);
}

/// The interval of a mean against its textbook formula.
#[test]
fn the_bootstrap_finds_the_standard_error() {
    let mut random = Random::new(1);
    let values: Vec<f64> = (0..400).map(|_| 10.0 + 3.0 * random.normal()).collect();
    let mean =
        |cases: &[usize]| Some(cases.iter().map(|&case| values[case]).sum::<f64>() / cases.len() as f64);
    let found = Bootstrap::default().run(values.len(), None, mean).unwrap();
    let deviation = (values.iter().map(|x| (x - found.value).powi(2)).sum::<f64>() / 399.0).sqrt();
    let half = 1.96 * deviation / 20.0;
    assert!(((found.high - found.low) / (2.0 * half) - 1.0).abs() < 0.15, "{found:?}, {half}");
    assert!(found.low < found.value && found.value < found.high);
    assert_eq!(Bootstrap::default().run(values.len(), None, mean), Some(found));

    // Twenty groups of copies: as uncertain as twenty cases.
    let groups: Vec<usize> = (0..400).map(|case| case / 20 + 7).collect();
    let copied =
        |cases: &[usize]| Some(cases.iter().map(|&case| values[case / 20]).sum::<f64>() / cases.len() as f64);
    let grouped = Bootstrap::default().run(400, Some(&groups), copied).unwrap();
    let single = Bootstrap::default().run(400, None, copied).unwrap();
    let wider = (grouped.high - grouped.low) / (single.high - single.low);
    assert!((3.5..5.5).contains(&wider), "{wider}, the square root of 20 expected");
    assert_eq!(Bootstrap::default().run(0, None, |_| None), None);
}

#[test]
fn folds_keep_groups_whole() {
    let mut random = Random::new(2);
    let groups: Vec<usize> =
        (0..1000).map(|_| random.index(30) * random.index(2) + random.index(9)).collect();
    let splits = folds(&groups, 5, 1).unwrap();
    assert_eq!(splits.len(), 5);
    let mut tested = Vec::new();
    for split in &splits {
        let of = |cases: &[usize]| cases.iter().map(|&case| groups[case]).collect::<BTreeSet<_>>();
        assert!(of(&split.train).is_disjoint(&of(&split.test)));
        assert_eq!(split.train.len() + split.test.len(), 1000);
        assert!((100..=300).contains(&split.test.len()), "{}", split.test.len());
        tested.extend_from_slice(&split.test);
    }
    tested.sort_unstable();
    assert_eq!(tested, (0..1000).collect::<Vec<_>>());
    assert_eq!(folds(&groups, 5, 1).unwrap(), splits);
    assert_ne!(folds(&groups, 5, 2).unwrap(), splits);
    assert!(matches!(folds(&[1, 1, 2], 3, 1), Err(Error::TooFew { needed: 3, .. })));
    assert!(matches!(folds(&groups, 1, 1), Err(Error::Range { .. })));
}

/// A case whose noise depends on it: the truth, a poor estimate, and a rough idea of the spread.
fn case(random: &mut Random) -> (f32, f32, f32) {
    let x = random.uniform();
    let spread = 0.1 + x;
    (((3.0 * x) + spread * random.normal()) as f32, (3.0 * x + 0.1) as f32, (spread * 1.7) as f32)
}

/// Every kind of band holds in as many held-out cases as it says, and knowing the spread makes
/// intervals tell cases apart.
#[test]
fn intervals_hold_as_often_as_they_say() {
    let kinds: [fn(f32, f32) -> Band; 3] = [
        |estimate, _| Band::around(estimate),
        Band::spread,
        |estimate, spread| Band::between(estimate + spread, estimate - spread),
    ];
    for (which, kind) in kinds.into_iter().enumerate() {
        for level in [0.5, 0.9] {
            let mut random = Random::new(3 + which as u64);
            let mut draw = |count: usize| {
                let cases: Vec<(f32, f32, f32)> = (0..count).map(|_| case(&mut random)).collect();
                let bands: Vec<Band> =
                    cases.iter().map(|&(_, estimate, spread)| kind(estimate, spread)).collect();
                (bands, cases.iter().map(|case| case.0).collect::<Vec<f32>>())
            };
            let (bands, truths) = draw(2000);
            let margin = Margin::calibrate(&bands, &truths, None, level).unwrap();
            let (bands, truths) = draw(4000);
            let intervals: Vec<(f32, f32)> =
                bands.iter().map(|band| margin.interval(band, Range::Real)).collect();
            let held = coverage(&intervals, &truths).unwrap();
            // Four standard errors of both samples together.
            let bound = 4.0 * (f64::from(level * (1.0 - level)) * (1.0 / 2000.0 + 1.0 / 4000.0)).sqrt();
            assert!((held - f64::from(level)).abs() < bound, "kind {which}: {held} of {level}");
        }
    }
}

/// Groups with errors of their own, one of them with most of the cases: for a new group,
/// calibration by groups holds on average over worlds; taking all cases for alike promises too
/// much.
#[test]
fn intervals_hold_for_new_groups() {
    let mut random = Random::new(9);
    let (mut held, mut held_plain, mut count) = (0.0, 0.0, 0.0);
    for _ in 0..400 {
        let shifts: Vec<f64> = (0..21).map(|_| 2.0 * random.normal()).collect();
        let groups: Vec<usize> = (0..20).flat_map(|g| vec![g; if g == 0 { 200 } else { 5 }]).collect();
        let truths: Vec<f32> = groups.iter().map(|&g| (shifts[g] + random.normal()) as f32).collect();
        let bands = vec![Band::around(0.0); truths.len()];
        let interval = |groups| {
            let margin = Margin::calibrate(&bands, &truths, groups, 0.8).unwrap();
            margin.interval(&Band::around(0.0), Range::Real)
        };
        let ((low, high), plain) = (interval(Some(&groups)), interval(None));
        for _ in 0..10 {
            let truth = (shifts[20] + random.normal()) as f32;
            held += f64::from(u8::from((low..=high).contains(&truth)));
            held_plain += f64::from(u8::from((plain.0..=plain.1).contains(&truth)));
            count += 1.0;
        }
    }
    let (part, plain) = (held / count, held_plain / count);
    assert!((0.77..0.87).contains(&part), "{part}");
    assert!(plain < 0.77, "{plain}");
}

#[test]
fn intervals_stay_in_their_range() {
    let wide = Margin { coverage: 0.9, margin: 0.7 };
    assert_eq!(wide.interval(&Band::around(0.5), Range::Fraction), (0.0, 1.0));
    let narrow = Margin { coverage: 0.9, margin: -0.2 };
    assert_eq!(narrow.interval(&Band::between(0.4, 0.6), Range::Real), (0.5, 0.5));
    let few = Margin::calibrate(&[Band::around(0.0); 8], &[1.0; 8], None, 0.9);
    assert_eq!(few, Err(Error::TooFew { what: "groups to calibrate on", needed: 9, found: 8 }));
    let enough = Margin::calibrate(&[Band::around(0.0); 9], &[1.0; 9], None, 0.9).unwrap();
    assert_eq!(enough.margin, 1.0);
    // The least number of examples suffices, however the coverage is rounded.
    for (coverage, needed) in [(0.5, 1), (0.75, 3), (0.8, 4), (0.9, 9), (0.95, 19), (0.99, 99)] {
        let calibrate = |cases: usize| {
            Margin::calibrate(&vec![Band::around(0.0); cases], &vec![1.0; cases], None, coverage)
        };
        assert_eq!(calibrate(needed).unwrap().margin, 1.0, "{coverage}");
        let error = Error::TooFew { what: "groups to calibrate on", needed, found: needed - 1 };
        assert_eq!(calibrate(needed - 1), Err(error), "{coverage}");
    }
    let bad = Margin::calibrate(&[Band::around(f32::NAN); 9], &[1.0; 9], None, 0.9);
    assert!(matches!(bad, Err(Error::NotFinite { .. })));
}
