//! The options of `report`, `advise` and `diff` that select a part of a session.

use crate::{output, similar, units};
use apex_advice::Advice;
use apex_advice::rules::RULES;
use apex_profile::KernelPattern;
use apex_view::{Filters, Phase, Shown};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use std::ops::Range;

/// Their heading in `--help`; other options keep theirs.
const FILTERS: &str = "Filters";

/// The options.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct FilterOptions {
    /// Phase of the run [default: steady, if launches repeat on a GPU and there is no --window;
    /// otherwise all]
    #[arg(help_heading = FILTERS, long, value_parser = phase_parser())]
    phase: Option<Phase>,
    /// Only kernels with this name; `*` matches any characters, regex:EXPRESSION matches part of a
    /// name. May be repeated
    #[arg(help_heading = FILTERS, long = "kernel", value_name = "NAME")]
    kernels: Vec<KernelPattern>,
    /// Only calls that began between these times after the session's start, such as 1.5s..2s or
    /// 200ms..
    #[arg(help_heading = FILTERS, long, value_name = "A..B", value_parser = units::parse_window)]
    window: Option<Range<u64>>,
    /// Only these processes, such as 0,2: by rank (processes that launched kernels, numbered from 0
    /// by process ID) or by process ID
    #[arg(help_heading = FILTERS, long = "rank", value_name = "RANK", value_delimiter = ',')]
    ranks: Vec<u32>,
}

impl FilterOptions {
    /// The filters that they are.
    pub fn filters(&self) -> Filters {
        let Self { phase, kernels, window, ranks } = self.clone();
        Filters { phase, kernels, window, ranks }
    }
}

fn phase_parser() -> impl TypedValueParser<Value = Phase> {
    let value = |phase: Phase| {
        PossibleValue::new(phase.name()).help(match phase {
            Phase::Startup => "Before the first iteration",
            Phase::Warmup => "The first iterations, which are slower than later ones",
            Phase::Steady => "The remaining iterations",
            Phase::All => "The whole run",
        })
    };
    PossibleValuesParser::new(Phase::ALL.map(value)).map(|name| name.parse().expect("one of the names"))
}

/// Remarks where a phase is asked for that a run does not have.
pub fn remark_on_phases(shown: &[Shown<'_>]) {
    shown.iter().filter_map(Shown::lacks).for_each(output::remark);
}

/// The rules' judgement, without these rules. Names that no rule has are remarked upon.
pub fn advise(shown: &Shown<'_>, suppress: &[String]) -> Advice {
    let advice = shown.advise(suppress);
    for name in &advice.unknown_suppressions {
        if name.trim().is_empty() {
            output::remark("--suppress '': an empty name suppresses no rule; leave the option out");
            continue;
        }
        let meant = similar::proposal(name, RULES.iter().flat_map(|rule| [rule.slug, rule.id]));
        output::remark(format!("--suppress {name}: there is no such rule{meant}"));
    }
    advice
}
