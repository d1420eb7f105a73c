//! Spaces, strategies and whole tunings: what every search keeps, and faults that are planted into
//! what it measures.

use apex_search::{
    Ask, Invalid, Kept, Number, Options, Outcome, Parameter, Purpose, Results, Space, SpaceError, Stop,
    Strategy, Trials, Value, tune,
};
use proptest::prelude::*;
use std::collections::HashSet;

/// A space of 3 × 4 × 5 with a restriction.
fn space() -> Space {
    let parameters = vec![
        Parameter::new("block", [32, 64, 128]),
        Parameter::new("tile", [1, 2, 4, 8]),
        Parameter::new("kind", ["a", "b", "c", "d", "e"]),
    ];
    Space::new(parameters, &["block * tile <= 256 or kind == 'a'"]).unwrap()
}

fn larger() -> Space {
    let numbers = || 1..=8i64;
    let parameters = ["a", "b", "c", "d"].map(|name| Parameter::new(name, numbers())).to_vec();
    Space::new(parameters, &["(a + b) % 5 != 0"]).unwrap()
}

/// A cost with interactions and one optimum, of `larger`.
fn cost(space: &Space, number: Number) -> f64 {
    let at: Vec<f64> = space.values(number).iter().filter_map(Value::number).collect();
    1.0 + (at[0] - 6.0).abs() * 0.3
        + (at[1] * at[2] - 12.0).abs() * 0.05
        + if at[3] == 7.0 { 0.0 } else { 1.0 }
}

fn search(space: &Space, strategy: Strategy, limit: usize, seed: u64) -> Vec<(Number, f64)> {
    let mut measure = |number| Ok(cost(space, number));
    let mut trials = Trials::new(space, limit, seed, &mut measure);
    assert_eq!(strategy.search(&mut trials), Stop::Done);
    trials.made().to_vec()
}

#[test]
fn a_space_has_what_its_restrictions_allow() {
    let space = space();
    let values: Vec<Vec<Value>> = (0..space.len() as Number).map(|number| space.values(number)).collect();
    let allowed = |value: &[Value]| {
        value[0].number().unwrap() * value[1].number().unwrap() <= 256.0 || value[2] == Value::text("a")
    };
    assert!(values.iter().all(|value| allowed(value)));
    // 128 × 4, 128 × 8 and 64 × 8 are allowed for one kind of five.
    assert_eq!(space.len(), 3 * 4 * 5 - 3 * 4);
    for (number, values) in values.iter().enumerate() {
        let of = |name: &str| Some(&values[["block", "tile", "kind"].iter().position(|of| *of == name)?]);
        assert_eq!(space.find(of), Some(number as Number));
    }
}

#[test]
fn neighbours_differ_in_one_value() {
    let space = space();
    for number in 0..space.len() as Number {
        let own = space.values(number);
        let neighbours = space.neighbours(number);
        for &neighbour in &neighbours {
            let others = space.values(neighbour);
            assert_eq!(own.iter().zip(&others).filter(|(a, b)| a != b).count(), 1);
            assert!(space.neighbours(neighbour).contains(&number));
        }
        assert_eq!(neighbours.iter().collect::<HashSet<_>>().len(), neighbours.len());
    }
}

#[test]
fn what_is_no_space_is_refused_with_the_reason() {
    let block = || Parameter::new("block", [32, 64]);
    let said = |parameters: Vec<Parameter>, restriction: &str| {
        Space::new(parameters, &[restriction]).unwrap_err().to_string()
    };
    assert_eq!(Space::new(Vec::new(), &[]).unwrap_err(), SpaceError::NoParameter);
    assert!(said(vec![block(), block()], "True").contains("two parameters are called `block`"));
    assert!(said(vec![Parameter::new("x", [1.0, 2.0, 1.0])], "True").contains("the value `1` twice"));
    assert!(said(vec![Parameter::new("x", Vec::<i64>::new())], "True").contains("has 0 values"));
    assert!(said(vec![Parameter::new("x y", [1])], "True").contains("cannot be the name"));
    assert!(said(vec![block()], "block > 64").contains("allow no configuration"));
    assert_eq!(
        said(vec![block()], "1 / (block - 64) < 2"),
        "restriction `1 / (block - 64) < 2`: division by zero (with block=64)"
    );
    let many = (0..6).map(|at| Parameter::new(&format!("p{at}"), 0..20i64)).collect();
    assert_eq!(Space::new(many, &[]).unwrap_err(), SpaceError::TooLarge);
}

#[test]
fn restrictions_are_checked_early() {
    // 20^12 choices, of which the first two parameters leave few.
    let all: Vec<Parameter> = (0..12).map(|at| Parameter::new(&format!("p{at}"), 0..20i64)).collect();
    let pairs: Vec<String> = (1..12).map(|at| format!("p{at} == p{}", at - 1)).collect();
    let pairs: Vec<&str> = pairs.iter().map(String::as_str).collect();
    assert_eq!(Space::new(all, &pairs).unwrap().len(), 20);
}

#[test]
fn a_search_makes_each_trial_once_and_repeats() {
    let space = larger();
    for (name, strategy) in Strategy::NAMES {
        for limit in [1, 7, 60] {
            let made = search(&space, strategy, limit, 3);
            let distinct: HashSet<Number> = made.iter().map(|(number, _)| *number).collect();
            assert_eq!((distinct.len(), made.len()), (limit, limit), "{name}");
        }
        assert_eq!(search(&space, strategy, 60, 5), search(&space, strategy, 60, 5), "{name}");
        if strategy != Strategy::Exhaustive {
            assert_ne!(search(&space, strategy, 60, 5), search(&space, strategy, 60, 6), "{name}");
        }
    }
    let small = self::space();
    for (name, strategy) in Strategy::NAMES {
        let mut measure = |number| Ok(f64::from(number) + 1.0);
        let mut trials = Trials::new(&small, usize::MAX, 0, &mut measure);
        assert_eq!(strategy.search(&mut trials), Stop::Done);
        assert_eq!(trials.made().len(), small.len(), "without a limit, {name} tries everything");
    }
}

#[test]
fn guided_searches_find_what_chance_does_not() {
    let space = larger();
    let mean = |strategy: Strategy, seeds: u64| {
        let best =
            |seed| search(&space, strategy, 150, seed).iter().map(|(_, cost)| *cost).fold(f64::MAX, f64::min);
        (0..seeds).map(best).sum::<f64>() / seeds as f64
    };
    let (random, descend, model) =
        (mean(Strategy::Random, 10), mean(Strategy::Descend, 10), mean(Strategy::Model, 4));
    assert!(descend - 1.0 < 0.5 * (random - 1.0), "{descend} of {random}");
    assert!(model - 1.0 < 0.5 * (random - 1.0), "{model} of {random}");
}

#[test]
fn failing_configurations_are_left() {
    let space = larger();
    let fails = |number: Number| space.digit(number, 0) < 5;
    for (name, strategy) in Strategy::NAMES {
        let mut measure = |number| Ok(if fails(number) { f64::INFINITY } else { cost(&space, number) });
        let mut trials = Trials::new(&space, 150, 1, &mut measure);
        strategy.search(&mut trials);
        if strategy != Strategy::Exhaustive {
            assert!(trials.best(1)[0].1 < 2.5, "{name}");
        }
    }
    let mut measure = |_| Ok(f64::INFINITY);
    let mut trials = Trials::new(&space, 80, 1, &mut measure);
    assert_eq!(Strategy::Model.search(&mut trials), Stop::Done);
    assert!(trials.best(3).is_empty() && trials.made().len() == 80);
}

/// The options of tests: the original is the space's first configuration.
fn options(space: &Space) -> Options {
    Options { trials: 120, original: Some(0), seed: 4, ..Options::for_space(space) }
}

fn times(cost: f64) -> Result<Outcome, Stop> {
    Ok(Outcome::Times(vec![cost]))
}

#[test]
fn the_best_is_confirmed_by_pairs() {
    let space = larger();
    let mut asked = Vec::new();
    let found = tune(&space, &options(&space), &mut Results::default(), &mut |ask: Ask| {
        asked.push(ask);
        times(cost(&space, ask.number))
    });
    let (best, time) = found.best.unwrap();
    assert_eq!(time, cost(&space, best));
    let ratio = found.ratio.unwrap();
    assert!(ratio.high < 0.6 && ratio.pairs == 20 && found.kept.is_none());
    assert_eq!((found.trials, found.known, found.drift), (120, 0, Some(1.0)));
    let count = |purpose| asked.iter().filter(|ask| ask.purpose == purpose).count();
    assert_eq!((asked[0].purpose, asked[0].number), (Purpose::Original, 0));
    assert_eq!(count(Purpose::Pair), 40);
    // The original is looked at every 25 trials.
    assert_eq!(count(Purpose::Original), 1 + (120 - 1) / 25);
    assert_eq!(asked.iter().filter(|ask| matches!(ask.purpose, Purpose::Trial(_))).count(), 120);
}

#[test]
fn the_original_stays_on_a_tie() {
    let space = larger();
    // All configurations take the same, up to noise that differs from run to run.
    let mut run = 0u32;
    let found = tune(&space, &options(&space), &mut Results::default(), &mut |_: Ask| {
        run += 1;
        times(1.0 + f64::from(run * 7919 % 101) / 1000.0)
    });
    assert_eq!(found.kept, Some(Kept::Tie));
    assert_eq!(found.best.unwrap().0, 0);
    let ratio = found.ratio.unwrap();
    assert!(ratio.low < 1.0 && ratio.high >= 0.99, "{ratio:?}");
}

/// Planted: a configuration that is slow gives one short time when it is first measured.
#[test]
fn one_time_that_is_too_short_does_not_win() {
    let space = larger();
    let liar = 1234;
    let mut was_asked = false;
    let exhaustive = Options { strategy: Strategy::Exhaustive, trials: usize::MAX, ..options(&space) };
    let found = tune(&space, &exhaustive, &mut Results::default(), &mut |ask: Ask| {
        let lies = ask.number == liar && !was_asked;
        was_asked |= ask.number == liar;
        times(if lies { 0.001 } else { 2.0 + f64::from(ask.number % 5) * 0.001 })
    });
    assert_ne!(found.best.unwrap().0, liar);
    assert!(was_asked);
}

/// Planted: the machine becomes slower and slower, so that what is measured late looks bad.
#[test]
fn a_drift_is_told_and_does_not_decide() {
    let space = larger();
    let mut runs = 0;
    let found = tune(&space, &options(&space), &mut Results::default(), &mut |ask: Ask| {
        runs += 1;
        times(cost(&space, ask.number) * (1.0 + f64::from(runs) / 100.0))
    });
    assert!(found.drift.unwrap() > 1.5);
    assert!(found.kept.is_none() && found.ratio.unwrap().high < 0.9);
}

/// Planted: what was fast in the search fails when it is confirmed.
#[test]
fn a_best_that_fails_later_is_not_chosen() {
    let space = larger();
    let found = tune(&space, &options(&space), &mut Results::default(), &mut |ask: Ask| match ask.purpose {
        Purpose::Pair | Purpose::Final if ask.number != 0 => {
            Ok(Outcome::Failed(Invalid::Runtime, String::new()))
        }
        _ => times(cost(&space, ask.number)),
    });
    assert_eq!(found.kept, Some(Kept::FewPairs));
    assert_eq!(found.best.unwrap().0, 0);
}

#[test]
fn an_original_that_fails_is_no_original() {
    let space = larger();
    let found = tune(&space, &options(&space), &mut Results::default(), &mut |ask: Ask| match ask.number {
        0 => Ok(Outcome::Failed(Invalid::Compile, String::new())),
        number => times(cost(&space, number)),
    });
    assert!(found.original.is_none() && found.kept.is_none() && found.ratio.is_none());
    assert!(found.best.unwrap().1 < 2.5);
}

#[test]
fn an_interrupted_search_goes_on_where_it_was() {
    let space = larger();
    let whole = {
        let mut results = Results::default();
        tune(&space, &options(&space), &mut results, &mut |ask: Ask| times(cost(&space, ask.number)));
        results.all().to_vec()
    };
    let mut results = Results::default();
    let mut left = 70;
    let found = tune(&space, &options(&space), &mut results, &mut |ask: Ask| {
        left -= 1;
        if left == 0 { Err(Stop::Asked) } else { times(cost(&space, ask.number)) }
    });
    assert!(found.is_stopped && found.ratio.is_none());
    let half = results.all().len();
    let mut measured_again = 0;
    let found = tune(&space, &options(&space), &mut results, &mut |ask: Ask| {
        measured_again += u32::from(matches!(ask.purpose, Purpose::Trial(_)));
        times(cost(&space, ask.number))
    });
    assert_eq!(results.all(), whole);
    // The original is a result, and rarely a trial.
    assert!(found.known + 1 >= half && measured_again as usize + found.known == 120);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn codes_and_values_agree(counts in prop::collection::vec(1usize..5, 1..5), modulus in 2i64..5) {
        let parameters: Vec<Parameter> = counts.iter().enumerate()
            .map(|(at, &count)| Parameter::new(&format!("p{at}"), 0..count as i64)).collect();
        let sum = (0..counts.len()).map(|at| format!("p{at}")).collect::<Vec<_>>().join(" + ");
        let restriction = format!("({sum}) % {modulus} != 1");
        let space = Space::new(parameters, &[&restriction]).unwrap();
        for number in 0..space.len() as Number {
            let sum: usize = (0..counts.len()).map(|at| space.digit(number, at)).sum();
            prop_assert!(sum as i64 % modulus != 1);
        }
        let all: usize = counts.iter().product();
        prop_assert!(space.len() <= all);
    }
}
