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
    /// When the session began whose series come next, nanoseconds since 1970; 0 where that is not
    /// known.
    session_began_ns: u64,
}

/// A series of a metric at one moment.
#[derive(Debug)]
pub(crate) struct Point {
    /// Names, and values in which what a terminal would act on is made harmless.
    pub labels: Vec<(&'static str, String)>,
    pub value: f64,
    /// When its session began, nanoseconds since 1970; 0 where that is not known.
    pub session_began_ns: u64,
}

impl Series {
    /// What is added from now on is of a session that began at this moment.
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
    use crate::metric::RUNNING;

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
