//! Numbers as people write and read them: sizes, durations, shares, counts.
//!
//! Three significant digits, SI prefixes for time and counts, binary ones for bytes. What is parsed
//! says what it accepts when it is given something else.

use std::ops::Range;
use std::time::Duration;

/// `1.23 ms` from nanoseconds.
pub fn time(ns: f64) -> String {
    let (value, unit) = match ns.abs() {
        x if x < 1e3 => (ns, "ns"),
        x if x < 1e6 => (ns / 1e3, "µs"),
        x if x < 1e9 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    format!("{} {unit}", digits(value))
}

/// `1.23 ms (1.01–1.50)` from nanoseconds: a value and an interval around it in the value's unit.
pub fn time_between(ns: f64, low: f64, high: f64) -> String {
    let text = time(ns);
    let scale = match ns.abs() {
        x if x < 1e3 => 1.0,
        x if x < 1e6 => 1e3,
        x if x < 1e9 => 1e6,
        _ => 1e9,
    };
    format!("{text} ({}–{})", digits(low / scale), digits(high / scale))
}

/// `1.08` or `26.5`: a ratio as it is.
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

/// `37.5% (30.1–45.0)` from ratios: a value and an interval around it.
pub fn percent_between(ratio: f64, low: f64, high: f64) -> String {
    let [low, high] = [low, high].map(|end| percent(end).trim_end_matches('%').to_owned());
    format!("{} ({low}–{high})", percent(ratio))
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

/// Parses `64M`, `1.5GiB`, `4096`: bytes with an optional binary prefix.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let explain = || format!("`{text}` is no size; write bytes, or a number with K, M, G or T, such as 512M");
    let (number, unit) = split_unit(text);
    let prefix = unit.trim_end_matches(['b', 'B']).trim_end_matches('i');
    let shift = match prefix.to_ascii_uppercase().as_str() {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(explain()),
    };
    let value: f64 = number.parse().map_err(|_| explain())?;
    let bytes = value * 2f64.powi(shift);
    if bytes.is_finite() && (0.0..9e18).contains(&bytes) { Ok(bytes as u64) } else { Err(explain()) }
}

/// Parses a percentage between 0 and 100, with or without the sign.
pub fn parse_percent(text: &str) -> Result<f64, String> {
    let value: Option<f64> = text.strip_suffix('%').unwrap_or(text).trim().parse().ok();
    value
        .filter(|value| (0.0..=100.0).contains(value))
        .ok_or_else(|| format!("`{text}` is no percentage between 0 and 100"))
}

/// Parses `A..B`, times since the session's start with `ns`, `us`, `ms`, `s` (the default), `min`
/// or `h`; either side may be missing. The result is in nanoseconds.
pub fn parse_window(text: &str) -> Result<Range<u64>, String> {
    let explain =
        || format!("`{text}` is no window; write A..B since the start, such as 1.5s..2s, 200ms.. or ..3");
    let (from, to) = text.split_once("..").ok_or_else(explain)?;
    let side = |side: &str, missing| {
        if side.is_empty() { Ok(missing) } else { nanoseconds(side).ok_or_else(explain) }
    };
    let window = side(from.trim(), 0)?..side(to.trim(), u64::MAX)?;
    match window.is_empty() {
        true => Err(format!("`{text}` holds no time: write the earlier time first, as in 1.5s..2s")),
        false => Ok(window),
    }
}

/// Parses a length of time such as `5s` or `500ms`; without a unit it is in seconds.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let length = nanoseconds(text).filter(|&length| length > 0);
    length
        .map(Duration::from_nanos)
        .ok_or_else(|| format!("`{text}` is no length of time; write it as 5s or 500ms"))
}

fn nanoseconds(text: &str) -> Option<u64> {
    let (number, unit) = split_unit(text);
    let scale = match unit {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" | "" => 1e9,
        "min" => 60e9,
        "h" => 3600e9,
        _ => return None,
    };
    let value = number.parse::<f64>().ok()? * scale;
    (0.0..1.8e19).contains(&value).then_some(value.round() as u64)
}

fn split_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let at = text.find(|c: char| c.is_alphabetic() && c != 'e').unwrap_or(text.len());
    (text[..at].trim(), &text[at..])
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
        assert_eq!(percent_between(0.381, 0.0, 0.9999), "38.1% (0–100)");
        assert_eq!(percent_between(0.0042, 0.00001, 0.5), "0.42% (<0.01–50.0)");
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

    #[test]
    fn sizes() {
        for (text, bytes) in
            [("4096", 4096), ("64k", 65536), ("1.5 GiB", 3 << 29), ("2TB", 2 << 40), ("0", 0)]
        {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "M", "-1", "1X", "1e30T", "nan", "inf"] {
            assert!(parse_size(text).unwrap_err().contains("512M"), "{text}");
        }
    }

    #[test]
    fn windows() {
        assert_eq!(parse_window("1.5..2"), Ok(1_500_000_000..2_000_000_000));
        assert_eq!(parse_window("200ms..300 ms"), Ok(200_000_000..300_000_000));
        assert_eq!(parse_window("..5us"), Ok(0..5_000));
        assert_eq!(parse_window("7ns.."), Ok(7..u64::MAX));
        for text in ["", "1", "2..1", "1..1", "a..b", "1d..2d", "-1..2"] {
            assert!(parse_window(text).is_err(), "{text}");
        }
        assert!(parse_window("2..1").unwrap_err().contains("the earlier time first"));
    }

    #[test]
    fn lengths_of_time() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_duration("90min"), parse_duration("1.5h"));
        for text in ["0s", "-1s", "", "5m", "1e30"] {
            assert!(parse_duration(text).unwrap_err().contains("500ms"), "{text}");
        }
    }

    #[test]
    fn percentages() {
        assert_eq!(parse_percent("0.5%"), Ok(0.5));
        assert_eq!(parse_percent("100"), Ok(100.0));
        for text in ["101", "-1", "", "half", "nan"] {
            assert!(parse_percent(text).is_err(), "{text}");
        }
    }
}
