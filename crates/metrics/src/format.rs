//! Prometheus' text format.

use crate::metric::Metric;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A label's name and value.
pub(crate) type Label<'a> = (&'a str, &'a str);

/// The series of all metrics, as they are written.
#[derive(Debug, Default)]
pub(crate) struct Series {
    /// By name: labels as text, and value.
    of: BTreeMap<&'static str, Vec<(String, f64)>>,
}

impl Series {
    pub fn add(&mut self, metric: &Metric, labels: &[Label<'_>], value: f64) {
        let mut text = String::new();
        for (name, value) in labels {
            let comma = if text.is_empty() { "" } else { "," };
            let _ = write!(text, "{comma}{name}=\"{}\"", escaped(value));
        }
        self.of.entry(metric.name).or_default().push((text, value));
    }

    /// All of them; metrics without series are left out.
    pub fn text(&self, metrics: &[Metric]) -> String {
        let mut text = String::new();
        for metric in metrics {
            let Some(series) = self.of.get(metric.name) else { continue };
            let (name, kind) = (metric.name, metric.kind.name());
            let _ = writeln!(text, "# HELP {name} {}\n# TYPE {name} {kind}", metric.help);
            for (labels, value) in series {
                let _ = writeln!(text, "{name}{{{labels}}} {value}");
            }
        }
        text
    }
}

/// A label's value: what a terminal would act on is made harmless too.
fn escaped(value: &str) -> String {
    apex_untrusted::printable(value).replace('\\', "\\\\").replace('"', "\\\"")
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
