//! Numbers as people read and write them: durations, shares, sizes, counts.
//!
//! Three significant digits, SI prefixes for time, binary ones for bytes; counts are exact.

mod parsed;

pub use parsed::{parse_duration, parse_percent, parse_size, parse_window};

/// The unit of a duration: its nanoseconds and its symbol.
fn unit(ns: f64) -> (f64, &'static str) {
    match ns.abs() {
        x if x < 1e3 => (1.0, "ns"),
        x if x < 1e6 => (1e3, "µs"),
        x if x < 1e9 => (1e6, "ms"),
        _ => (1e9, "s"),
    }
}

/// `1.23 ms` from nanoseconds.
pub fn time(ns: f64) -> String {
    let (scale, symbol) = unit(ns);
    format!("{} {symbol}", digits(ns / scale))
}

/// `1.23 ms (1.01–1.50)` from nanoseconds: a value and an interval around it in the value's unit.
/// `33.5 µs (5.37 µs–1.48 ms)` where an end would have more than three digits before the point, or
/// only zeros.
pub fn time_between(ns: f64, low: f64, high: f64) -> String {
    let (scale, _) = unit(ns);
    let fits = |end: f64| end == 0.0 || (0.005..999.5).contains(&(end / scale).abs());
    let ends = if fits(low) && fits(high) {
        [digits(low / scale), digits(high / scale)]
    } else {
        [time(low), time(high)]
    };
    format!("{} ({}–{})", time(ns), ends[0], ends[1])
}

/// `1.08` or `26.5`: a ratio.
pub fn ratio(ratio: f64) -> String {
    digits(ratio)
}

/// `38% (30–45)` from ratios; with one below zero `-5% (-34 to 22)`.
pub fn share_between(ratio: f64, low: f64, high: f64) -> String {
    let dash = if low < 0.0 { " to " } else { "–" };
    format!("{} ({:.0}{dash}{:.0})", share(ratio), low * 100.0, high * 100.0)
}

/// `1.50 GiB`.
pub fn bytes(count: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{} {}", digits(value), units[unit]) }
}

/// `12,345,678`, grouped so that it can be read and still be exact.
pub fn count(value: u64) -> String {
    let plain = value.to_string();
    let mut grouped = String::with_capacity(plain.len() + plain.len() / 3);
    for (i, digit) in plain.chars().enumerate() {
        if i > 0 && (plain.len() - i).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// `1 launch`, `2,000 launches`.
pub fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// `37.5%` from a ratio; small shares keep a digit that is not zero.
pub fn percent(ratio: f64) -> String {
    let percent = ratio * 100.0;
    match percent.abs() {
        x if x == 0.0 || x >= 99.95 => format!("{percent:.0}%"),
        x if x < 0.01 => "<0.01%".into(),
        x if x < 1.0 => format!("{percent:.2}%"),
        _ => format!("{percent:.1}%"),
    }
}

/// `37.5% (30.1–45.0)` from ratios: a value and an interval around it; `37.5%` alone where both ends
/// round to it.
pub fn percent_between(ratio: f64, low: f64, high: f64) -> String {
    let [low, high] = [low, high].map(percent);
    let shown = percent(ratio);
    if low == shown && high == shown {
        return shown;
    }
    format!("{shown} ({}–{})", low.trim_end_matches('%'), high.trim_end_matches('%'))
}

/// `38%` from a ratio, for tables.
pub fn share(ratio: f64) -> String {
    let percent = ratio * 100.0;
    if percent > 0.0 && percent < 0.5 { "<1%".into() } else { format!("{percent:.0}%") }
}

/// Three significant digits.
fn digits(value: f64) -> String {
    match value.abs() {
        x if x >= 99.95 || x == 0.0 => format!("{value:.0}"),
        x if x >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written() {
        assert_eq!(
            [time(0.0), time(999.4), time(1234.0), time(99.99e6), time(12e9)].map(|t| t.replace(' ', "")),
            ["0ns", "999ns", "1.23µs", "100ms", "12.0s"]
        );
        assert_eq!(time_between(12_340.0, 9_870.0, 123_456.0), "12.3 µs (9.87–123)");
        assert_eq!(time_between(33_500.0, 5_370.0, 1_482_000.0), "33.5 µs (5.37 µs–1.48 ms)");
        assert_eq!(time_between(33_500.0, 4.0, 40_000.0), "33.5 µs (4.00 ns–40.0 µs)");
        assert_eq!(percent_between(0.381, 0.0, 0.9999), "38.1% (0–100)");
        assert_eq!(percent_between(0.0042, 0.00001, 0.5), "0.42% (<0.01–50.0)");
        assert_eq!(percent_between(0.374, 0.37398, 0.37402), "37.4%");
        assert_eq!(share_between(0.381, 0.3, 1.0), "38% (30–100)");
        assert_eq!(share_between(-0.05, -0.34, 0.22), "-5% (-34 to 22)");
        assert_eq!(
            [bytes(0), bytes(1023), bytes(1536), bytes(u64::MAX)],
            ["0 B", "1023 B", "1.50 KiB", "16.0 EiB"]
        );
        assert_eq!([count(0), count(999), count(1000), count(1234567)], ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            [percent(0.0), percent(0.00001), percent(0.0042), percent(0.375), percent(0.99999)],
            ["0%", "<0.01%", "0.42%", "37.5%", "100%"]
        );
    }
}
