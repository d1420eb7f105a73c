//! The outcomes of measurements, by configuration: kept between runs, and written as a T4 file.
//!
//! Results belong to a [`Key`]: the measured code, and the device. Those of another key are refused
//! with the difference, because a time of other code or another device says nothing. The values of
//! parameters are no part of it: a space may grow, and its results stay.

use crate::Value;
use crate::paired::median;
use crate::space::{Number, Space};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// The key of results: names, such as `device` and `command`, with their values.
pub type Key = BTreeMap<String, String>;

/// Why a configuration has no time; the words are those of T4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Invalid {
    /// It took longer than allowed.
    Timeout,
    /// It did not compile.
    Compile,
    /// It failed when it ran, or gave no time.
    Runtime,
    /// Its results are wrong.
    Correctness,
    /// It breaks a restriction that only the measured program knows.
    Constraints,
}

impl Invalid {
    /// Each reason with its word.
    pub const NAMES: [(&'static str, Self); 5] = [
        ("timeout", Self::Timeout),
        ("compile", Self::Compile),
        ("runtime", Self::Runtime),
        ("correctness", Self::Correctness),
        ("constraints", Self::Constraints),
    ];

    /// Its word.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize].0
    }
}

/// The outcome of measuring a configuration.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Times in milliseconds, at least one; each is positive.
    Times(Vec<f64>),
    /// It has no time: the reason, and its message.
    Failed(Invalid, String),
}

impl Outcome {
    /// The median of the times; infinity if it failed.
    pub fn cost(&self) -> f64 {
        match self {
            Self::Times(times) => median(times).unwrap_or(f64::INFINITY),
            Self::Failed(..) => f64::INFINITY,
        }
    }
}

/// A configuration with its outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The value of each parameter.
    pub configuration: Vec<(String, Value)>,
    /// Its outcome.
    pub outcome: Outcome,
    /// The time of the measurement, as the file has it.
    pub timestamp: Option<String>,
}

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// In the order in which they were measured.
    all: Vec<Measured>,
    /// The place of the result of a configuration of the space.
    places: HashMap<Number, usize>,
}

impl Results {
    /// Takes these results. Those whose configurations are not in the space are kept, too.
    pub fn new(all: Vec<Measured>, space: &Space) -> Self {
        let mut this = Self { all: Vec::new(), places: HashMap::new() };
        for result in all {
            let value =
                |name: &str| result.configuration.iter().find(|(of, _)| of == name).map(|(_, value)| value);
            if let Some(number) = space.find(value) {
                this.places.insert(number, this.all.len());
            }
            this.all.push(result);
        }
        this
    }

    /// All of them, in the order in which they were measured.
    pub fn all(&self) -> &[Measured] {
        &self.all
    }

    /// The outcome of a configuration, if it was measured.
    pub fn get(&self, number: Number) -> Option<&Outcome> {
        self.places.get(&number).map(|&place| &self.all[place].outcome)
    }

    /// Adds the outcome of a configuration, in place of an earlier one.
    pub fn put(&mut self, space: &Space, number: Number, outcome: Outcome, timestamp: Option<String>) {
        let names = space.parameters().iter().map(|parameter| parameter.name.clone());
        let result =
            Measured { configuration: names.zip(space.values(number)).collect(), outcome, timestamp };
        match self.places.get(&number) {
            Some(&place) => self.all[place] = result,
            None => {
                self.places.insert(number, self.all.len());
                self.all.push(result);
            }
        }
    }
}

/// The first difference of two keys, as a sentence.
pub fn difference(before: &Key, now: &Key) -> Option<String> {
    let names = before.keys().chain(now.keys());
    let differs = |name: &&String| before.get(*name) != now.get(*name);
    let name = names.into_iter().find(differs)?;
    let said = |value: Option<&String>| value.map_or("nothing".to_owned(), |value| format!("`{value}`"));
    Some(format!("{name} was {} and is {}", said(before.get(name)), said(now.get(name))))
}
