//! The use of the last seconds: a bar of accounts for all devices, one for each, and a legend of
//! its parts.

use super::{Lines, Theme};
use crate::Look;
use apex_profile::units;
use apex_profile::{Account, Accounts, Activity, Figure, Profile};
use apex_view::text::figures::mark;
use apex_view::text::wrap;
use ratatui_core::text::{Line, Span};

/// Devices that have a bar of their own.
const DEVICES: usize = 16;

/// Rows of bars, and rows of them with all that is said beside them.
pub fn heights(look: &Look, width: usize) -> (usize, usize) {
    if let Some(why) = silence(&look.profile) {
        let lines = if why.is_empty() { 0 } else { wrap(why, width, "").len() };
        return (lines, lines);
    }
    let bars = bars(&look.profile).len();
    (bars, bars + legend_rows(&look.profile.accounts(), width))
}

/// Why there are no accounts; nothing where there was no work, which the table of kernels says.
fn silence(profile: &Profile) -> Option<&'static str> {
    if profile.on_cpu_device() {
        return Some("Times of the CPU device say nothing about a GPU: no bar of where its time went.");
    }
    (profile.accounts().span_ns <= 0.0).then_some("")
}

/// In so many rows: the legend is worth more than the bars of single devices.
pub fn lines(look: &Look, width: usize, height: usize, theme: Theme) -> Lines {
    if let Some(why) = silence(&look.profile) {
        return wrap(why, width, "").into_iter().map(|line| Line::styled(line, theme.dim())).collect();
    }
    let whole = look.profile.accounts();
    let legend = legend(&whole, width, theme);
    let bars = bars(&look.profile);
    let shown = height.saturating_sub(legend.len()).max(1).min(bars.len());
    let names = bars[..shown].iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let bar_of = |(name, accounts): &(String, Accounts)| {
        let mut spans = Vec::new();
        let mut room = width;
        if names > 0 && names + 1 < width {
            spans.push(Span::raw(format!("{name:names$} ")));
            room -= names + 1;
        }
        spans.extend(stacked(accounts, room, theme));
        Line::from(spans)
    };
    bars[..shown].iter().map(bar_of).chain(legend).collect()
}

/// The bars with their names: all devices, and each where there are several.
fn bars(profile: &Profile) -> Vec<(String, Accounts)> {
    let with_time: Vec<&Activity> =
        profile.activities.iter().filter(|activity| activity.accounts.span_ns > 0.0).collect();
    if with_time.len() < 2 {
        return vec![(String::new(), profile.accounts())];
    }
    let name = |activity: &Activity| {
        let process = profile.processes.get(activity.process);
        let who = match process.map(|process| (process.rank, process.pid)) {
            Some((Some(rank), _)) => format!("rank {rank}"),
            Some((None, pid)) => format!("pid {pid}"),
            None => String::new(),
        };
        match activity.ordinal {
            Some(ordinal) => format!("{who} GPU {ordinal}"),
            None => who,
        }
    };
    let each = with_time.into_iter().map(|activity| (name(activity), activity.accounts.clone()));
    std::iter::once(("all".to_owned(), profile.accounts())).chain(each.take(DEVICES)).collect()
}

/// A bar whose parts are the shares of the accounts; parts end at whole columns.
fn stacked(accounts: &Accounts, width: usize, theme: Theme) -> Vec<Span<'static>> {
    let (mut spans, mut passed, mut drawn) = (Vec::new(), 0.0, 0);
    for (account, time) in accounts.entries() {
        passed += time.value;
        let end = ((passed / accounts.span_ns * width as f64).round() as usize).clamp(drawn, width);
        let (character, style) = theme.account(account);
        spans.push(Span::styled(character.to_string().repeat(end - drawn), style));
        drawn = end;
    }
    spans
}

/// Accounts, the largest first, in as many lines as they take.
fn legend(accounts: &Accounts, width: usize, theme: Theme) -> Lines {
    let mut lines = vec![Line::default()];
    for (account, time) in by_size(accounts) {
        let (character, style) = theme.account(account);
        let text = entry(account, time, accounts);
        let last = lines.last_mut().expect("never empty");
        let is_full = last.width() > 0 && last.width() + entry_width(&text) > width;
        if is_full {
            lines.push(Line::default());
        }
        let line = lines.last_mut().expect("never empty");
        if line.width() > 0 {
            line.push_span("  ");
        }
        line.push_span(Span::styled(character.to_string(), style));
        line.push_span(text);
    }
    lines
}

fn legend_rows(accounts: &Accounts, width: usize) -> usize {
    legend(accounts, width, Theme { color: false }).len()
}

fn by_size(accounts: &Accounts) -> Vec<(Account, Figure)> {
    let mut entries = accounts.entries();
    entries.sort_by(|(_, a), (_, b)| b.value.total_cmp(&a.value));
    entries
}

/// ` kernels 61%ᵖ`
fn entry(account: Account, time: Figure, accounts: &Accounts) -> String {
    let share = units::share(time.value / accounts.span_ns);
    format!(" {} {share}{}", account.name(), mark(time.provenance()))
}

/// Columns of an entry with its character and the blanks before it.
fn entry_width(text: &str) -> usize {
    text.chars().count() + 3
}
