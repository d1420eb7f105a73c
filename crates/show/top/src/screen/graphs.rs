//! Graphs of the last minutes: the device's utilisation, and the number of launches.

use super::{Lines, Theme, head};
use crate::history::{Sample, sparkline};
use crate::top::{Session, Top};
use apex_profile::units;
use ratatui_core::text::{Line, Span};

/// Columns of the names.
const NAME: usize = 9;
/// Columns of the values behind the graphs.
const VALUE: usize = 22;

/// Rows of graphs; none before there are two looks.
pub fn height(top: &Top) -> usize {
    top.session().map_or(0, |session| if session.history.has_graph() { rows(session).len() } else { 0 })
}

/// Quantity of a graph.
type Quantity = fn(&Sample) -> Option<f64>;

/// Graphs by name; that of the busy share where it is known.
fn rows(session: &Session) -> Vec<(&'static str, Quantity)> {
    let busy: (_, Quantity) = ("GPU busy", |sample| sample.busy);
    let launches: (_, Quantity) = ("launches", |sample| sample.launches_per_s);
    let is_known = session.look.as_ref().is_some_and(|look| look.gpu_busy().is_some());
    if is_known { vec![busy, launches] } else { vec![launches] }
}

/// A graph in each row, with its value now.
pub fn lines(top: &Top, width: usize, theme: Theme) -> Lines {
    let Some(session) = top.session() else { return Lines::new() };
    let columns = width.saturating_sub(NAME + VALUE + 1);
    let row = |(name, of): (&'static str, Quantity)| {
        let values = session.history.columns(columns, of);
        let most = values.iter().flatten().copied().fold(0.0, f64::max);
        let now = values.last().copied().flatten().unwrap_or(0.0);
        let is_busy = name == "GPU busy";
        let (most, value) = if is_busy { (1.0, units::share(now)) } else { (most, head::rate_in_words(now)) };
        let graph = sparkline(&values, most);
        Line::from(vec![
            Span::raw(format!("{name:NAME$}")),
            Span::styled(format!("{graph:>columns$}"), theme.graph()),
            Span::raw(format!(" {value}")),
        ])
    };
    rows(session).into_iter().map(row).collect()
}
