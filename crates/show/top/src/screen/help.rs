//! The help: the keys, and the meaning of the marks.

use super::{Lines, Theme};
use crate::top::{Mode, Top};
use apex_view::text::shorten;
use ratatui_core::text::{Line, Span};

/// Keys and what they do.
const KEYS: [(&str, &str); 10] = [
    ("q, Ctrl-C", "quit; the programs continue"),
    ("Tab, → ←", "next or previous session"),
    ("↓ ↑, j k", "select a kernel: shows its full name and its place"),
    ("PgDn PgUp, g G", "ten kernels down or up, the first, the last"),
    ("s", "sort by the next quantity"),
    ("t l m c", "sort by GPU time, launches, GPU time of a launch, CPU time"),
    ("/", "show only kernels whose name contains a text"),
    ("Esc", "clear selection and filter"),
    ("p, Space", "pause or continue"),
    ("?, h", "this help; any key closes it"),
];

/// The legend of figures and bars.
const NOTES: [&str; 7] = [
    "ᵐ measured (×n: of n samples) · ᶜ computed exactly · ᵖ predicted,",
    "with its 90% prediction interval in brackets.",
    "The bar divides the time between the first and the last work of the",
    "last seconds; idle time is divided by the host's activity.",
    "Recorder: the cost of recording as a share of the host's time.",
    "GPU time is the duration of kernels. Waves and occupancy are",
    "theoretical. `apex report` and `apex advise` show more of a session.",
];

/// The page of help.
pub fn lines(theme: Theme) -> Lines {
    let key = |(key, does): (&'static str, &'static str)| {
        Line::from(vec![Span::styled(format!("  {key:16}"), theme.bold()), Span::raw(does)])
    };
    let notes = NOTES.into_iter().map(|note| Line::styled(format!("  {note}"), theme.dim()));
    std::iter::once(Line::default())
        .chain(KEYS.into_iter().map(key))
        .chain(std::iter::once(Line::default()))
        .chain(notes)
        .collect()
}

/// The last row: the filter while it is written, else the keys.
pub fn footer(top: &Top, width: usize, theme: Theme) -> Line<'static> {
    if top.mode == Mode::Filter {
        let text = format!("Filter: {}▏  Enter keeps it, Esc drops it", top.filter);
        return Line::styled(shorten(&text, width), theme.bold());
    }
    let paused = if top.is_paused { "PAUSED  " } else { "" };
    let session = if top.sessions.len() > 1 { "  Tab session" } else { "" };
    let pause = if top.is_paused { "p go on" } else { "p pause" };
    let keys = format!("q quit  ? help  s sort  / filter  {pause}{session}");
    let room = width.saturating_sub(paused.chars().count());
    Line::from(vec![Span::styled(paused, theme.warning()), Span::styled(shorten(&keys, room), theme.dim())])
}
