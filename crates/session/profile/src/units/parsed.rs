//! Numbers as people write them: sizes, durations, percentages. A parser says what it accepts when
//! it is given something else.

use std::ops::Range;
use std::time::Duration;

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
