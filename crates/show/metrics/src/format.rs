//! Prometheus' text format.

use crate::metric::Metric;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A label's name and value.
pub(crate) type Label<'a> = (&'static str, &'a str);

/// The series of all metrics, as they are written.
#[derive(Debug, Default)]
pub(crate) struct Series {
    of: BTreeMap<&'static str, Vec<Point>>,
    /// The start of the session whose series come next, in nanoseconds since 1970; 0 if it is
    /// unknown.
    session_began_ns: u64,
}

/// A series of a metric at one moment.
#[derive(Debug)]
pub(crate) struct Point {
    /// Names, and values in which what a terminal would act on is made harmless.
    pub labels: Vec<(&'static str, String)>,
    pub value: f64,
    /// The start of its session, in nanoseconds since 1970; 0 if it is unknown.
    pub session_began_ns: u64,
}

impl Series {
    /// Sets the start of the session whose series are added from now on.
    pub fn of_session(&mut self, began_ns: u64) {
        self.session_began_ns = began_ns;
    }

    pub fn add(&mut self, metric: &Metric, labels: &[Label<'_>], value: f64) {
        let harmless = |&(name, value): &Label<'_>| (name, apex_untrusted::printable(value).into_owned());
        let labels = labels.iter().map(harmless).collect();
        let point = Point { labels, value, session_began_ns: self.session_began_ns };
        self.of.entry(metric.name).or_default().push(point);
    }

    /// The series of a metric.
    pub fn of(&self, metric: &Metric) -> &[Point] {
        self.of.get(metric.name).map(Vec::as_slice).unwrap_or_default()
    }

    /// All of them; metrics without series are left out.
    pub fn text(&self, metrics: &[Metric]) -> String {
        let mut text = String::new();
        for metric in metrics {
            let series = self.of(metric);
            if series.is_empty() {
                continue;
            }
            let (name, kind) = (metric.name, metric.kind.name());
            let _ = writeln!(text, "# HELP {name} {}\n# TYPE {name} {kind}", metric.help);
            for Point { labels, value, .. } in series {
                let labels = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value)));
                let labels = labels.collect::<Vec<_>>().join(",");
                let _ = writeln!(text, "{name}{{{labels}}} {value}");
            }
        }
        text
    }
}

/// A label's value as it stands in quotes.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::{GRAPH_LAUNCHES, LAUNCH_SECONDS, RUNNING};

    #[test]
    fn metrics_come_in_the_order_asked_for_and_series_in_that_of_their_addition() {
        let mut series = Series::default();
        series.add(&LAUNCH_SECONDS, &[("session", "a"), ("process", "1")], 0.125);
        series.add(&RUNNING, &[("session", "b")], 2.0);
        series.add(&LAUNCH_SECONDS, &[], 1e21);
        let expected = format!(
            "# HELP apex_processes_running {}\n# TYPE apex_processes_running gauge\n\
             apex_processes_running{{session=\"b\"}} 2\n\
             # HELP apex_launch_call_seconds_total {}\n# TYPE apex_launch_call_seconds_total counter\n\
             apex_launch_call_seconds_total{{session=\"a\",process=\"1\"}} 0.125\n\
             apex_launch_call_seconds_total{{}} 1000000000000000000000\n",
            RUNNING.help, LAUNCH_SECONDS.help
        );
        assert_eq!(series.text(&[GRAPH_LAUNCHES, RUNNING, LAUNCH_SECONDS]), expected);
        assert_eq!(series.text(&[GRAPH_LAUNCHES]), "");
    }

    #[test]
    fn a_series_is_of_the_session_that_was_named_last() {
        let mut series = Series::default();
        series.add(&RUNNING, &[("session", "a")], 1.0);
        series.of_session(7);
        series.add(&RUNNING, &[("session", "b\n")], 2.0);
        let of = |point: &Point| (point.labels.clone(), point.value, point.session_began_ns);
        let found: Vec<_> = series.of(&RUNNING).iter().map(of).collect();
        let label = |value: &str| vec![("session", value.to_owned())];
        assert_eq!(found, [(label("a"), 1.0, 0), (label("b\\n"), 2.0, 7)]);
        assert!(series.of(&GRAPH_LAUNCHES).is_empty());
    }

    #[test]
    fn values_cannot_leave_their_quotes_or_their_line() {
        let mut series = Series::default();
        series.add(&RUNNING, &[("session", "a\"} 9\nx{y=\"\\"), ("kernel", "\u{1b}[31m")], 1.0);
        let text = series.text(&[RUNNING]);
        let line = text.lines().last().unwrap();
        assert_eq!(text.lines().count(), 3);
        assert!(!text.contains('\u{1b}'));
        assert!(line.starts_with(r#"apex_processes_running{session="a\"} 9\\nx{y=\"\\"#), "{line}");
        assert!(line.ends_with("\"} 1"), "{line}");
    }
}
