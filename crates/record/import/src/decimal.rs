//! Decimal numbers as integers, exactly.
//!
//! A time of a trace is a decimal number of microseconds since 1970: 16 digits and three more. A
//! binary fraction of 64 bits does not hold them, so that calls would seem to cross the calls
//! around them.

/// Digits that are read, at most.
const MOST_DIGITS: usize = 30;

/// A decimal number, such as `1712195495505583.5` or `17e3`, times 10^`shift`, rounded to the
/// nearest integer; `None` for anything else, and for numbers beyond 64 bits.
pub fn scaled(text: &[u8], shift: i32) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let mut value: i128 = 0;
    let (mut seen, mut exponent, mut is_fraction) = (0, shift, false);
    let mut rest = digits;
    while let [byte, after @ ..] = rest {
        match byte {
            b'0'..=b'9' if seen < MOST_DIGITS => {
                value = value * 10 + i128::from(byte - b'0');
                seen += 1;
                exponent -= i32::from(is_fraction);
            }
            b'0'..=b'9' => exponent += i32::from(!is_fraction),
            b'.' if !is_fraction => is_fraction = true,
            b'e' | b'E' => {
                let given: i32 = std::str::from_utf8(after).ok()?.parse().ok()?;
                exponent = exponent.checked_add(given)?;
                rest = &[];
                continue;
            }
            _ => return None,
        }
        rest = after;
    }
    if seen == 0 {
        return None;
    }
    let value = shifted(value, exponent)?;
    i64::try_from(if negative { -value } else { value }).ok()
}

fn shifted(value: i128, exponent: i32) -> Option<i128> {
    let power = 10i128.checked_pow(exponent.unsigned_abs().min(38))?;
    match exponent {
        0.. => value.checked_mul(power),
        -38..0 => Some((value + power / 2) / power),
        _ => Some(0),
    }
}

#[cfg(test)]
mod tests {
    use super::scaled;

    #[test]
    fn microseconds_are_nanoseconds_to_the_last_digit() {
        for (text, expected) in [
            ("1712195495505583.123", Some(1_712_195_495_505_583_123)),
            ("0", Some(0)),
            ("-0.001", Some(-1)),
            ("4.928", Some(4_928)),
            ("1.7e3", Some(1_700_000)),
            ("1e-3", Some(1)),
            ("0.0004", Some(0)),
            ("0.0005", Some(1)),
            ("12.0000000000000000000000000000000000001", Some(12_000)),
            ("99999999999999999999", None),
            ("1e99999", None),
            ("", None),
            ("-", None),
            ("1.2.3", None),
            ("\"1\"", None),
            ("1e", None),
        ] {
            assert_eq!(scaled(text.as_bytes(), 3), expected, "{text}");
        }
    }
}
