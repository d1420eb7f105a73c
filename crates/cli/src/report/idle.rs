//! The host's activity while the GPU was idle: functions on the stacks of the thread that launches
//! next, by idle account.

use super::places::write;
use crate::text::figures::share;
use crate::text::{Align, Style, Table, shorten};
use crate::units;
use apex_ordered::Order;
use apex_profile::{Account, IdleFunction, Profile};
use std::io::{self, Write};

/// The meaning of the headings.
const LEGEND: &str = "ᵖ predicted: share of the account's idle time in which the thread that launches next was in the \
    function itself (self) or also in what it calls (total), with Wilson's 90% interval. Unknown: idle time in which \
    that thread was not sampled.";
/// Functions of each account.
const FUNCTIONS: usize = 6;
/// An account with less of the time is left out, and a function with less of its account.
const LEAST: f64 = 0.02;
/// Characters of a function's name.
const NAME: usize = 40;

/// A table of the functions in each idle account; nothing without samples.
pub fn table(out: &mut dyn Write, profile: &Profile, style: Style, width: usize) -> io::Result<()> {
    let span = profile.accounts().span_ns;
    let mut accounts = profile.idle_functions();
    accounts.retain(|account| account.samples > 0 && account.idle_ns.value >= LEAST * span);
    // Samples of code without symbols name no function.
    accounts.retain(|account| !told(&account.functions).is_empty());
    if accounts.is_empty() || profile.on_cpu_device() {
        return Ok(());
    }
    let mut table = Table::new(&[
        ("account", Align::Left),
        ("function", Align::Flexible),
        ("self", Align::Right),
        ("total", Align::Right),
    ]);
    for account in &accounts {
        let mut name = Account::Idle(account.cause).name();
        for function in told(&account.functions) {
            table.row(vec![
                name.into(),
                in_words(function),
                of(&function.self_share),
                share(&function.total_share),
            ]);
            name = "";
        }
    }
    let samples: u64 = accounts.iter().map(|account| account.samples).fold(0, u64::saturating_add);
    let unknown: f64 = accounts.iter().map(|account| account.unknown_share * account.idle_ns.value).sum();
    let idle: f64 = accounts.iter().map(|account| account.idle_ns.value).sum();
    let title = format!(
        "Host functions while the GPU is idle ({}, {} unknown)",
        units::counted(samples, "sample", "samples"),
        units::share(unknown / idle.max(1.0))
    );
    write(out, &title, &table, LEGEND, style, width)
}

/// The functions with most of the account themselves, the program's own with most in all, and those
/// of libraries.
pub(super) fn told(functions: &[IdleFunction]) -> Vec<&IdleFunction> {
    let mut functions: Vec<&IdleFunction> = functions.iter().collect();
    functions.retain(|function| function.total_share.value >= LEAST);
    let weight = |function: &IdleFunction| match function.is_of_library {
        true => function.self_share.value.max(function.total_share.value / 4.0),
        false => function.self_share.value.max(function.total_share.value / 2.0),
    };
    functions.retain(|function| weight(function) >= LEAST);
    functions.order_by(|a, b| weight(b).total_cmp(&weight(a)));
    functions.truncate(FUNCTIONS);
    functions
}

pub(super) fn in_words(function: &IdleFunction) -> String {
    let frame = &function.frame;
    let name = shorten(&frame.qualified_name(), NAME);
    let file = frame.frame.file.rsplit('/').next().unwrap_or_default();
    match frame.frame.line {
        Some(line) if !function.is_of_library => format!("{name} ({file}:{line})"),
        _ => name,
    }
}

/// Without its interval, which is that of the total where most of that is its own.
pub(super) fn of(figure: &apex_profile::Figure) -> String {
    format!("{}ᵖ", units::share(figure.value))
}
