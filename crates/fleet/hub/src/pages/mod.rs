//! The views: each is found in the database, is a document by itself, and has a page.

pub mod changes;
pub mod job;
pub mod jobs;
pub mod kernels;
pub mod owners;
pub mod state;

use crate::html::{self, escaped};
use crate::store::Sums;
use apex_aggregate::{PARTS, Times};
use apex_ordered::Order;

/// Nanoseconds of a day.
pub const DAY_NS: u64 = 86_400_000_000_000;
/// A job that is silent for so long, and has not ended, was probably killed.
pub const SILENT_NS: u64 = 180_000_000_000;

/// The day of a moment, counted from 1970.
pub fn day(ns: u64) -> u64 {
    ns / DAY_NS
}

/// The figures of held time.
pub fn held(sums: &Sums, price: Option<f64>) -> Vec<(&'static str, String)> {
    let (held, lost) = (sums.held_us(), sums.lost_us());
    let mut figures = vec![
        ("GPU time held (computed)", html::hours(held)),
        ("busy with kernels (predicted)", html::share(sums.busy_us(), held)),
        ("GPU time lost", html::hours(lost)),
    ];
    if sums.unused_us > 0 {
        figures.push(("allocated, never used (computed)", html::hours(sums.unused_us)));
    }
    figures.push(("energy (measured)", energy(sums)));
    if let Some(idle) = sums.idle_mj() {
        figures.push(("energy while idle, at least (computed)", html::energy(idle)));
    }
    if let Some(price) = price {
        figures.push(("cost", cost(held, price)));
        figures.push(("cost of what was lost", cost(lost, price)));
        if sums.unused_us > 0 {
            figures.push(("cost of what was never used", cost(sums.unused_us, price)));
        }
    }
    figures
}

/// The energy in words, with the share of the time that it is known of.
pub fn energy(sums: &Sums) -> String {
    let known = sums.metered_share();
    match sums.energy_mj() {
        None => "unknown".to_owned(),
        Some(mj) if known > 0.995 => html::energy(mj),
        Some(mj) => format!("{}, of {} of the time", html::energy(mj), html::percent(known)),
    }
}

/// Returns the price of GPU time as text.
pub fn cost(us: u64, price_per_hour: f64) -> String {
    format!("{:.2}", us as f64 / 3.6e9 * price_per_hour)
}

/// A table of what held time went into.
pub fn parts(sums: &Sums) -> String {
    let times = &sums.times;
    let held = times.held_us();
    let by_cause = sums.idle_mj_by_cause();
    let idle_energy = |part: &str| {
        let of = by_cause.iter().flatten().find(|(cause, _)| *cause == part.trim_start_matches("idle_"));
        of.map_or_else(String::new, |&(_, mj)| html::energy(mj))
    };
    let row = |((name, words), us): (&(&str, &str), u64)| {
        let mut row = vec![html::swatch(name) + words, html::hours(us), html::share(us, held)];
        row.extend(by_cause.is_some().then(|| idle_energy(name)));
        row
    };
    let rows: Vec<_> = PARTS.iter().zip(times.parts()).filter(|(_, us)| *us > 0).map(row).collect();
    let mut columns = vec!["part", "GPU time#", "share#"];
    columns.extend(by_cause.is_some().then_some("energy at least (computed)#"));
    let table = html::table(&columns, &rows);
    // (Parts are rounded one by one.)
    if sums.shared_us.saturating_mul(1000) <= held {
        return table;
    }
    format!(
        "{table}<p class=\"soft\">Processes shared devices: their parts add up to {}, which is {} more than the devices \
         were held for. Busy and lost time are in proportion.</p>\n",
        html::hours(held),
        html::hours(sums.shared_us)
    )
}

/// The three largest losses in words.
pub fn losses(times: &Times) -> String {
    let held = times.held_us();
    let mut lost: Vec<_> = PARTS.iter().zip(times.parts()).skip(3).filter(|(_, us)| us * 20 > held).collect();
    lost.order_by_key(|(_, us)| std::cmp::Reverse(*us));
    let said = lost.iter().take(3).map(|((_, words), us)| format!("{words} {}", html::share(*us, held)));
    said.collect::<Vec<_>>().join(", ")
}

/// The state of a job in words.
pub fn condition(job: &crate::store::JobRow, now: u64) -> String {
    match (job.running, job.failed) {
        (0, 0) => "ended".to_owned(),
        (0, failed) if failed == job.recordings => "<span class=\"bad\">failed</span>".to_owned(),
        (0, failed) => format!("<span class=\"bad\">{failed} of {} failed</span>", job.recordings),
        _ if now.saturating_sub(job.seen_ns) > SILENT_NS => {
            format!("<span class=\"bad\">silent since {}</span>", html::moment(job.seen_ns))
        }
        _ => "running".to_owned(),
    }
}

/// A link to a job.
pub fn job_link(job: &crate::store::JobRow) -> String {
    // A job without a name has the identifier of its recording.
    let is_named = job.job.len() != 32 || !job.job.bytes().all(|c| c.is_ascii_hexdigit());
    let name = if is_named { &job.job } else { &job.job[..8] };
    format!("<a href=\"/jobs/{}\">{}</a>", job.id, escaped(name))
}

/// A link to an owner's jobs.
pub fn owner_link(owner: &str) -> String {
    format!("<a href=\"/?owner={}\">{}</a>", html::in_address(owner), escaped(owner))
}
