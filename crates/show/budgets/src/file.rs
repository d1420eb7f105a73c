//! The file with the limits.
//!
//! ```toml
//! schema = "…"
//!
//! [cpu]
//! per = "run"
//! [cpu.limits]
//! launches = 12
//! [cpu.kernels."saxpy"]
//! sectors = 4096
//! ```
//!
//! Each section is optional, and so is each limit. A name that is not known is an error, since its
//! limit would never be judged.

use apex_ordered::Order;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use apex_conventions::documents;
use serde::Deserialize;

use crate::measures::Values;
use crate::quantity::Good;
use crate::{Measures, Per, Quantity};

/// Functions that limits are written for.
const KERNELS: usize = 10;

/// Limits for runs on a GPU and on the CPU device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Budgets {
    /// Those for runs on a GPU.
    pub gpu: Option<Section>,
    /// Those for runs on the CPU device.
    pub cpu: Option<Section>,
}

/// Limits.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// The unit of sums.
    pub per: Per,
    /// Limits of the whole.
    pub limits: Values,
    /// Limits of kernel functions, by short name; `*` stands for any characters.
    pub kernels: BTreeMap<String, Values>,
}

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It is no TOML, or has other members.
    #[error("{0}")]
    Form(String),
    /// It is of another version.
    #[error(
        "its schema is `{found}`, and this version reads `{known}`: write it anew with `apex check --init`"
    )]
    Schema {
        /// The schema that it states.
        found: String,
        /// The one that is read.
        known: String,
    },
    /// A limit has no known name.
    #[error("{place}: there is no `{name}`. There are: {known}")]
    Unknown {
        /// The table that it is in.
        place: String,
        /// Its name.
        name: String,
        /// The known ones.
        known: String,
    },
    /// A limit is no number that a run could have.
    #[error("{place}: the limit of `{name}` must be a number of at least 0")]
    Limit {
        /// The table that it is in.
        place: String,
        /// Its name.
        name: String,
    },
    /// A unit that sums do not have.
    #[error("[{place}]: `per` is `step` or `run`, not `{found}`")]
    Per {
        /// The table that it is in.
        place: String,
        /// What it is.
        found: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    #[expect(dead_code, reason = "it is looked at first, and must be there")]
    schema: String,
    gpu: Option<RawSection>,
    cpu: Option<RawSection>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSection {
    per: String,
    #[serde(default)]
    limits: BTreeMap<String, f64>,
    #[serde(default)]
    kernels: BTreeMap<String, BTreeMap<String, f64>>,
}

impl Budgets {
    /// Reads a file's text.
    ///
    /// # Errors
    /// Names the line, or the table and the limit.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let form = |error| Error::Form(told(text, &error));
        let known = documents::BUDGETS.to_string();
        let table: toml::Table = toml::from_str(text).map_err(form)?;
        if let Some(found) = table.get("schema").and_then(toml::Value::as_str).filter(|found| *found != known)
        {
            return Err(Error::Schema { found: found.to_owned(), known });
        }
        let raw: RawFile = toml::from_str(text).map_err(form)?;
        let section = |raw: Option<RawSection>, name| raw.map(|raw| Section::read(raw, name)).transpose();
        Ok(Self { gpu: section(raw.gpu, "gpu")?, cpu: section(raw.cpu, "cpu")? })
    }

    /// The section for runs on this kind of device.
    pub fn section(&self, on_cpu_device: bool) -> Option<&Section> {
        if on_cpu_device { self.cpu.as_ref() } else { self.gpu.as_ref() }
    }

    /// Sets the section for the kind of device that runs had; the other one stays.
    pub fn set(&mut self, on_cpu_device: bool, section: Section) {
        match on_cpu_device {
            true => self.cpu = Some(section),
            false => self.gpu = Some(section),
        }
    }

    /// The file's text.
    pub fn text(&self) -> String {
        let mut text = format!("schema = \"{}\"\n", documents::BUDGETS);
        let sections = [("gpu", &self.gpu), ("cpu", &self.cpu)];
        for (name, section) in
            sections.into_iter().filter_map(|(name, section)| Some((name, section.as_ref()?)))
        {
            section.write(name, &mut text);
        }
        text
    }
}

impl Section {
    fn read(raw: RawSection, name: &str) -> Result<Self, Error> {
        let per = [Per::Step, Per::Run].into_iter().find(|per| per.name() == raw.per);
        let per = per.ok_or_else(|| Error::Per { place: name.to_owned(), found: raw.per })?;
        let kernels = raw.kernels.into_iter().map(|(kernel, limits)| {
            let limits = values(limits, &format!("[{name}.kernels.{kernel:?}]"))?;
            Ok((kernel, limits))
        });
        Ok(Self {
            per,
            limits: values(raw.limits, &format!("[{name}.limits]"))?,
            kernels: kernels.collect::<Result<_, _>>()?,
        })
    }

    /// Limits that these runs keep: of the whole, and of the ten functions with most work.
    /// Runs must be alike ([`Per`] and device).
    ///
    /// # Panics
    /// Without a run.
    pub fn of(runs: &[Measures]) -> Self {
        let per = runs[0].per;
        let limits = |of: &dyn Fn(&Measures) -> Option<&Values>| -> Values {
            let known = Quantity::ALL.into_iter();
            known
                .filter_map(|quantity| {
                    let values = runs.iter().map(|run| of(run)?.get(&quantity).copied());
                    Some((quantity, limit(quantity, per, &values.collect::<Option<Vec<f64>>>()?)))
                })
                .collect()
        };
        let names = most_work(&runs[0]);
        let kernels = names.into_iter().map(|name| {
            let limits = limits(&|run| run.kernels.get(name));
            (name.to_owned(), limits)
        });
        Self { per, limits: limits(&|run| Some(&run.whole)), kernels: kernels.collect() }
    }

    fn write(&self, name: &str, text: &mut String) {
        let _ = write!(text, "\n[{name}]\nper = \"{}\"\n\n[{name}.limits]\n", self.per.name());
        write_limits(&self.limits, self.per, text);
        for (kernel, limits) in &self.kernels {
            let _ = write!(text, "\n[{name}.kernels.{}]\n", toml_string(kernel));
            write_limits(limits, self.per, text);
        }
    }
}

/// An error of TOML in one line, with where it is.
fn told(text: &str, error: &toml::de::Error) -> String {
    let line = error.span().and_then(|span| Some(text.get(..span.start)?.matches('\n').count() + 1));
    let message = error.message().lines().next().unwrap_or_default();
    line.map_or_else(|| message.to_owned(), |line| format!("line {line}: {message}"))
}

fn values(raw: BTreeMap<String, f64>, place: &str) -> Result<Values, Error> {
    raw.into_iter()
        .map(|(name, limit)| {
            let place = place.to_owned();
            let Some(quantity) = Quantity::named(&name) else {
                let known = Quantity::ALL.map(Quantity::name).join(", ");
                return Err(Error::Unknown { place, name, known });
            };
            match limit.is_finite() && limit >= 0.0 {
                true => Ok((quantity, limit)),
                false => Err(Error::Limit { place, name }),
            }
        })
        .collect()
}

/// The limit that all of these values keep, with the margin of the quantity.
fn limit(quantity: Quantity, per: Per, values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    let deviation = (squares / (count - 1.0).max(1.0)).sqrt();
    let margin = quantity.margin(per, mean, deviation, values.len());
    match quantity.good() {
        Good::AtMost => values.iter().copied().fold(mean + margin, f64::max),
        Good::AtLeast => values.iter().copied().fold(mean - margin, f64::min).max(0.0),
    }
}

/// The functions with most GPU time, or most counted instructions, or most launches.
fn most_work(run: &Measures) -> Vec<&str> {
    let work = |values: &Values| {
        let of = |quantity| values.get(&quantity).copied().unwrap_or(0.0);
        let launches = of(Quantity::Launches);
        (of(Quantity::WarpInstructions).max(of(Quantity::KernelUs) * launches), launches)
    };
    let mut names: Vec<(&str, (f64, f64))> =
        run.kernels.iter().map(|(name, values)| (name.as_str(), work(values))).collect();
    names.order_by(|(_, a), (_, b)| b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1)));
    names.into_iter().take(KERNELS).map(|(name, _)| name).collect()
}

fn write_limits(limits: &Values, per: Per, text: &mut String) {
    for (quantity, &limit) in limits {
        let _ = writeln!(text, "{} = {}", quantity.name(), number(*quantity, per, limit));
    }
}

/// A limit as files have it: with four digits, rounded to the side that is kept, if it varies.
fn number(quantity: Quantity, per: Per, limit: f64) -> String {
    if quantity.is_exact(per) || limit <= 0.0 {
        return format!("{limit}");
    }
    let unit = 10f64.powi(limit.log10().floor() as i32 - 3);
    let rounded = match quantity.good() {
        Good::AtMost => (limit / unit).ceil() * unit,
        Good::AtLeast => (limit / unit).floor() * unit,
    };
    let digits = (-unit.log10().round()).max(0.0) as usize;
    format!("{rounded:.digits$}")
}

/// A string in TOML's quotes.
fn toml_string(text: &str) -> String {
    let escaped = text.chars().map(|c| match c {
        '"' | '\\' => format!("\\{c}"),
        c if c.is_control() => format!("\\u{:04X}", c as u32),
        c => c.to_string(),
    });
    format!("\"{}\"", escaped.collect::<String>())
}
