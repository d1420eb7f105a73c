//! Moments by two clocks: a monotonic clock for durations, the system's clock for dates.

/// A moment, by two clocks: the one that never goes back says how long something lasts, the other
/// when that was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Nanoseconds of a monotonic clock.
    pub monotonic_ns: u64,
    /// Nanoseconds since 1970.
    pub real_ns: u64,
}

impl Moment {
    /// Nanoseconds from then until this moment.
    pub fn since(self, then: Self) -> u64 {
        self.monotonic_ns.saturating_sub(then.monotonic_ns)
    }
}

/// The time as RFC 3339 has it, to the second, in UTC: `2026-11-23T17:22:31Z`.
pub fn rfc3339(real_ns: u64) -> String {
    let seconds = real_ns / 1_000_000_000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Year, month and day of the date `days` days after 1 January 1970. This is Howard Hinnant's
/// `civil_from_days`, whose years begin in March.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day_of_month = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + u64::from(month <= 2), month, day_of_month)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_rfc_3339_has_them() {
        let cases = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_795_454_551, "2026-11-23T17:22:31Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(rfc3339(seconds * 1_000_000_000 + 999_999_999), expected);
        }
        assert!(rfc3339(u64::MAX).starts_with("2554-07-21T"));
    }
}
