//! The beginning of a report: the verdict (the use of the time, the change to make, its saving),
//! and the accounts as bars.

use crate::text::figures::share;
use crate::text::{Ink, Style, bar, shorten, wrap};
use crate::units;
use apex_advice::Advice;
use apex_ordered::Order;
use apex_profile::{Account, Profile};
use apex_view::Shown;
use apex_view::text::verdict::together;
use std::io::{self, Write};

/// Characters of a full bar, where there is room.
const BAR: usize = 30;
/// Characters of a line of accounts beside heads, names and bars.
const COLUMNS: usize = 23;

/// The verdict, in at most three lines before they are wrapped.
pub fn verdict(shown: &Shown<'_>, advice: &Advice, width: usize) -> Vec<String> {
    let sentences = apex_view::text::verdict::sentences(&shown.part(), advice);
    sentences.iter().flat_map(|line| wrap(line, width, "  ")).collect()
}

/// The accounts as bars, a step's where there are steps.
pub fn accounts(out: &mut dyn Write, shown: &Shown<'_>, style: Style, width: usize) -> io::Result<()> {
    let accounts = shown.accounts();
    if accounts.span_ns <= 0.0 || shown.job.on_cpu_device() {
        return Ok(());
    }
    let by = shown.steps().unwrap_or(1.0);
    let title = match (shown.steps(), shown.phase) {
        (Some(_), _) => "step".to_owned(),
        (None, Some(phase)) => phase.name().to_owned(),
        (None, None) => "span".to_owned(),
    };
    writeln!(out)?;
    let mut entries = accounts.entries();
    entries.order_by_key(|(account, _)| matches!(account, Account::Unknown));
    let names = entries.iter().map(|(account, _)| account.name().chars().count()).max().unwrap_or(0);
    let step_ns = shown.job.step_ns().filter(|_| shown.steps().is_some());
    let of = if shown.steps().is_some() { "mean of" } else { "sum of" };
    let of_all = together(&shown.job).map_or_else(String::new, |all| format!("{of} {all}"));
    let length = units::time(step_ns.map_or(accounts.span_ns, |step_ns| step_ns.value));
    let heads = [title, length, of_all];
    let lead = heads.iter().map(|head| head.chars().count()).max().unwrap_or(0);
    let is_narrow = lead + names + COLUMNS > width;
    let (lead, names) = if is_narrow { (0, names.min(width.saturating_sub(COLUMNS))) } else { (lead, names) };
    if is_narrow {
        for line in wrap(&heads.join(" "), width, "  ") {
            writeln!(out, "{line}")?;
        }
    }
    let bars = width.saturating_sub(lead + names + COLUMNS).min(BAR);
    for (row, (account, time)) in entries.into_iter().enumerate() {
        let share = time.value / accounts.span_ns;
        let head = heads.get(row).filter(|_| !is_narrow).map_or("", String::as_str);
        let ink = if matches!(account, Account::Idle(_)) { Ink::Warning } else { Ink::Dim };
        writeln!(
            out,
            "  {head:lead$}  {:>9}  {:names$}  {:>4}  {}",
            units::time(time.value / by),
            shorten(account.name(), names),
            units::share(share),
            style.paint(ink, bar(share, bars).trim_end())
        )?;
    }
    Ok(())
}

/// Describes the cost of recording. Where the GPU is hardly ever idle, the host has time to spare.
pub fn recorder(profile: &Profile, advice: &Advice) -> String {
    let idle = profile.accounts().idle_ns().value / profile.accounts().span_ns.max(1.0);
    let saturated = !profile.on_cpu_device() && profile.totals.gpu_time_ns.is_some() && idle < 0.1;
    match &advice.verdict.overhead_share {
        None => "unknown recording overhead".into(),
        Some(overhead) if saturated => {
            format!("recording overhead {} of the host's time, hidden by a busy GPU", share(overhead))
        }
        Some(overhead) => format!("recording overhead {} of the host's time", share(overhead)),
    }
}
