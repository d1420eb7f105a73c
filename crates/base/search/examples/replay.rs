//! Searches in the results of a T4 file, once for each seed, and prints the best time of each
//! search in milliseconds as JSON; for `scripts/tune_spaces.py`:
//! `cargo run --release -p apex-search --example replay -- T4 STRATEGY TRIALS SEEDS`.

use apex_search::{Results, Strategy, Trials, t4};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [path, strategy, trials, seeds] = &words[..] else { panic!("T4 STRATEGY TRIALS SEEDS") };
    let (_, strategy) = *Strategy::NAMES.iter().find(|(name, _)| name == strategy).expect("a strategy");
    let (trials, seeds) = (trials.parse().expect("a number"), seeds.parse().expect("a number"));
    let measured = t4::read(&std::fs::read_to_string(path).expect("a file")).expect("T4").results;
    let space = t4::space(&measured).expect("a space");
    let results = Results::new(measured, &space);
    let best = |seed: u64| {
        let mut cost = |number| Ok(results.get(number).expect("the space has results alone").cost());
        let mut trials = Trials::new(&space, trials, seed, &mut cost);
        strategy.search(&mut trials);
        trials.best(1).first().map(|(_, cost)| *cost)
    };
    let found: Vec<Option<f64>> = (0..seeds).map(best).collect();
    println!("{}", serde_json::to_string(&found).expect("numbers"));
}
