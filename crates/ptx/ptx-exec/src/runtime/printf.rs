//! `printf` of device code: C's format strings, with arguments from device memory.

/// The source of the arguments.
pub(crate) trait Arguments {
    /// The error of reading an argument.
    type Error;
    /// The next argument, a number of 4 or 8 bytes.
    fn number(&mut self, bytes: u64) -> Result<u64, Self::Error>;
    /// The string at an address.
    fn string(&mut self, address: u64) -> Result<Vec<u8>, Self::Error>;
}

/// Widest field, and most digits: what is wider is cut, so that no format makes gigabytes.
const MAX_WIDTH: usize = 4096;

/// One `%…` directive.
#[derive(Default)]
struct Directive {
    left: bool,
    plus: bool,
    space: bool,
    alternate: bool,
    zero: bool,
    width: usize,
    precision: Option<usize>,
    /// Whether `l`, `ll`, `j`, `z` or `t` make an integer 64 bits wide.
    long: bool,
    /// Bits of an integer that count: `h` and `hh` cut it.
    bits: u32,
}

/// The text that `format` gives, and how many arguments it took.
pub(crate) fn format<A: Arguments>(format: &[u8], arguments: &mut A) -> Result<(Vec<u8>, usize), A::Error> {
    let mut text = Vec::new();
    let mut taken = 0;
    let mut rest = format;
    while let Some(at) = rest.iter().position(|&byte| byte == b'%') {
        text.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
        let (directive, used) = directive(rest, arguments)?;
        let Some(&conversion) = rest.get(used) else {
            // A lone per cent sign at the end.
            text.push(b'%');
            return Ok((text, taken));
        };
        rest = &rest[used + 1..];
        if conversion == b'%' {
            text.push(b'%');
            continue;
        }
        taken += 1;
        let (prefix, digits, numeric) = convert(&directive, conversion, arguments)?;
        pad(&mut text, &directive, &prefix, &digits, numeric);
    }
    text.extend_from_slice(rest);
    Ok((text, taken))
}

/// Flags, width, precision and length at the start of `text`, and how many bytes they take.
fn directive<A: Arguments>(text: &[u8], arguments: &mut A) -> Result<(Directive, usize), A::Error> {
    let mut directive = Directive { bits: 32, ..Directive::default() };
    let mut at = 0;
    while let Some(flag) = text.get(at) {
        match flag {
            b'-' => directive.left = true,
            b'+' => directive.plus = true,
            b' ' => directive.space = true,
            b'#' => directive.alternate = true,
            b'0' => directive.zero = true,
            _ => break,
        }
        at += 1;
    }
    let width = number(text, &mut at, arguments)?.unwrap_or(0);
    directive.left |= width < 0;
    directive.width = (width.unsigned_abs() as usize).min(MAX_WIDTH);
    if text.get(at) == Some(&b'.') {
        at += 1;
        let precision = number(text, &mut at, arguments)?.unwrap_or(0);
        directive.precision = usize::try_from(precision).ok().map(|precision| precision.min(MAX_WIDTH));
    }
    while let Some(length) = text.get(at) {
        match length {
            b'l' | b'j' | b'z' | b't' | b'L' => (directive.long, directive.bits) = (true, 64),
            b'h' => directive.bits /= 2,
            _ => break,
        }
        at += 1;
    }
    Ok((directive, at))
}

/// A number in the format, or `*` for one from the arguments.
fn number<A: Arguments>(text: &[u8], at: &mut usize, arguments: &mut A) -> Result<Option<i64>, A::Error> {
    if text.get(*at) == Some(&b'*') {
        *at += 1;
        return Ok(Some((arguments.number(4)? as i32).into()));
    }
    let mut value = None;
    while let Some(digit) = text.get(*at).filter(|byte| byte.is_ascii_digit()) {
        let sofar: i64 = value.unwrap_or(0);
        value = Some((sofar * 10 + i64::from(digit - b'0')).min(1 << 30));
        *at += 1;
    }
    Ok(value)
}

type Converted = (Vec<u8>, Vec<u8>, bool);

/// Sign or prefix, digits, and whether zeros may pad between them.
fn convert<A: Arguments>(
    directive: &Directive,
    conversion: u8,
    arguments: &mut A,
) -> Result<Converted, A::Error> {
    let bytes = if directive.long { 8 } else { 4 };
    Ok(match conversion {
        b'd' | b'i' => {
            let shift = 64 - directive.bits.max(8);
            let value = (arguments.number(bytes)? << shift) as i64 >> shift;
            let digits = minimum_digits(value.unsigned_abs().to_string(), directive);
            (sign(directive, value < 0), digits, directive.precision.is_none())
        }
        b'u' | b'x' | b'X' | b'o' => {
            let value = arguments.number(bytes)? & u64::MAX >> (64 - directive.bits.max(8));
            let (digits, prefix) = match conversion {
                b'u' => (value.to_string(), ""),
                b'x' => (format!("{value:x}"), "0x"),
                b'X' => (format!("{value:X}"), "0X"),
                _ => (format!("{value:o}"), "0"),
            };
            let prefix = if directive.alternate && value != 0 { prefix } else { "" };
            (prefix.into(), minimum_digits(digits, directive), directive.precision.is_none())
        }
        b'c' => (Vec::new(), vec![arguments.number(4)? as u8], false),
        b's' => {
            let address = arguments.number(8)?;
            let mut text = if address == 0 { b"(null)".to_vec() } else { arguments.string(address)? };
            text.truncate(directive.precision.unwrap_or(usize::MAX));
            (Vec::new(), text, false)
        }
        b'p' => {
            let address = arguments.number(8)?;
            let text = if address == 0 { "(nil)".to_owned() } else { format!("{address:#x}") };
            (Vec::new(), text.into_bytes(), false)
        }
        b'f' | b'F' | b'e' | b'E' | b'g' | b'G' | b'a' | b'A' => {
            let value = f64::from_bits(arguments.number(8)?);
            let digits = real(value.abs(), conversion.to_ascii_lowercase(), directive);
            let digits = if conversion.is_ascii_uppercase() { digits.to_uppercase() } else { digits };
            (sign(directive, value.is_sign_negative()), digits.into_bytes(), value.is_finite())
        }
        // Not a conversion: shown as it stands.
        other => (b"%".to_vec(), vec![other], false),
    })
}

fn sign(directive: &Directive, negative: bool) -> Vec<u8> {
    let sign = match negative {
        true => "-",
        false if directive.plus => "+",
        false if directive.space => " ",
        false => "",
    };
    sign.into()
}

fn minimum_digits(digits: String, directive: &Directive) -> Vec<u8> {
    match directive.precision {
        Some(0) if digits == "0" => Vec::new(),
        Some(least) => format!("{digits:0>least$}").into_bytes(),
        None => digits.into_bytes(),
    }
}

/// A number that is not negative, as `%f`, `%e`, `%g` or `%a` write it.
fn real(value: f64, conversion: u8, directive: &Directive) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return "inf".to_owned();
    }
    match conversion {
        b'f' => {
            let text = format!("{value:.*}", directive.precision.unwrap_or(6));
            if directive.alternate && !text.contains('.') { text + "." } else { text }
        }
        b'e' => exponential(value, directive.precision.unwrap_or(6)),
        b'g' => shortest(value, directive),
        _ => hexadecimal(value, directive.precision),
    }
}

/// `d.ddde±dd`.
fn exponential(value: f64, precision: usize) -> String {
    let text = format!("{value:.precision$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, digits) = match exponent.strip_prefix('-') {
        Some(digits) => ('-', digits),
        None => ('+', exponent),
    };
    format!("{mantissa}e{sign}{digits:0>2}")
}

/// `%g`: whichever of the two is shorter, without zeros at the end.
fn shortest(value: f64, directive: &Directive) -> String {
    let precision = directive.precision.unwrap_or(6).max(1);
    let scientific = exponential(value, precision - 1);
    let exponent: i32 =
        scientific.split_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or(0);
    let trim = |text: &str| match text.contains('.') && !directive.alternate {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if exponent < -4 || exponent >= precision as i32 {
        let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "+00"));
        return format!("{}e{exponent}", trim(mantissa));
    }
    trim(&format!("{value:.*}", (precision as i32 - 1 - exponent) as usize))
}

/// `0x1.8p+1`.
fn hexadecimal(value: f64, precision: Option<usize>) -> String {
    let bits = value.to_bits();
    let (mut fraction, mut exponent) = (bits & ((1 << 52) - 1), (bits >> 52) as i32 - 1023);
    let mut lead = u64::from(bits >> 52 != 0);
    if bits >> 52 == 0 {
        exponent = if fraction == 0 { 0 } else { -1022 };
    }
    if let Some(digits) = precision.filter(|&digits| digits < 13) {
        let cut = 4 * (13 - digits as u32);
        let whole = lead << 52 | fraction;
        let half = 1u64 << (cut - 1);
        let odd = whole >> cut & 1;
        let rounded = (whole + half - 1 + odd) >> cut << cut;
        (lead, fraction) = (rounded >> 52, rounded & ((1 << 52) - 1));
    }
    let digits = format!("{fraction:013x}");
    let digits = match precision {
        Some(wanted) => format!("{:0<wanted$}", &digits[..wanted.min(13)]),
        None => digits.trim_end_matches('0').to_owned(),
    };
    let point = if digits.is_empty() { "" } else { "." };
    format!("0x{lead}{point}{digits}p{exponent:+}")
}

fn pad(text: &mut Vec<u8>, directive: &Directive, prefix: &[u8], digits: &[u8], numeric: bool) {
    let missing = directive.width.saturating_sub(prefix.len() + digits.len());
    let fill = |text: &mut Vec<u8>, byte| text.extend(std::iter::repeat_n(byte, missing));
    if directive.left {
        text.extend_from_slice(prefix);
        text.extend_from_slice(digits);
        fill(text, b' ');
    } else if directive.zero && numeric {
        text.extend_from_slice(prefix);
        fill(text, b'0');
        text.extend_from_slice(digits);
    } else {
        fill(text, b' ');
        text.extend_from_slice(prefix);
        text.extend_from_slice(digits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Arguments from a list.
    struct List<I>(I);

    impl<I: Iterator<Item = u64>> Arguments for List<I> {
        type Error = ();

        fn number(&mut self, bytes: u64) -> Result<u64, ()> {
            let value = self.0.next().ok_or(())?;
            Ok(if bytes == 4 { value & 0xffff_ffff } else { value })
        }

        fn string(&mut self, address: u64) -> Result<Vec<u8>, ()> {
            Ok(format!("text{address}").into_bytes())
        }
    }

    fn print(text: &str, arguments: &[u64]) -> String {
        let mut list = List(arguments.iter().copied());
        String::from_utf8(format(text.as_bytes(), &mut list).unwrap().0).unwrap()
    }

    #[test]
    fn integers() {
        assert_eq!(
            print("a %d b %5d|%-5d|%05d|%+d", &[1, 2, 3, -4i64 as u64, 5]),
            "a 1 b     2|3    |-0004|+5"
        );
        assert_eq!(print("%u %x %#X %o %#o", &[u64::MAX, 255, 255, 8, 8]), "4294967295 ff 0XFF 10 010");
        assert_eq!(
            print("%lld %llu %hhd %hd", &[u64::MAX, u64::MAX, 0x1ff, 0x1_8000]),
            "-1 18446744073709551615 -1 -32768"
        );
        assert_eq!(print("%.3d|%8.3d|%*d|%.0d", &[7, 7, 4, 9, 0]), "007|     007|   9|");
    }

    #[test]
    fn text_and_pointers() {
        assert_eq!(
            print("%s|%10s|%-8s|%.2s|%c|%p|%%", &[1, 2, 3, 4, 65, 4096]),
            "text1|     text2|text3   |te|A|0x1000|%"
        );
        assert_eq!(print("%s %", &[0]), "(null) %");
        assert_eq!(print("%y", &[0]), "%y");
    }

    #[test]
    fn reals() {
        let bits = |value: f64| value.to_bits();
        assert_eq!(
            print("%f %.2f %10.3f|%e", &[bits(1.5), bits(2.0), bits(-3.25), bits(12345.678)]),
            "1.500000 2.00     -3.250|1.234568e+04"
        );
        assert_eq!(
            print("%g %g %g %g", &[bits(0.0001), bits(1e-5), bits(123456.0), bits(1e6)]),
            "0.0001 1e-05 123456 1e+06"
        );
        assert_eq!(
            print("%g %G %f", &[bits(f64::NAN), bits(f64::INFINITY), bits(-0.0)]),
            "nan INF -0.000000"
        );
        assert_eq!(
            print("%a %a %.1a", &[bits(3.0), bits(0.1), bits(1.96875)]),
            "0x1.8p+1 0x1.999999999999ap-4 0x2.0p+0"
        );
        assert_eq!(print("%08.3f|%+.1e", &[bits(-3.25159), bits(9.99e9)]), "-003.252|+1.0e+10");
    }

    #[test]
    fn absurd_widths_are_cut() {
        assert_eq!(print("%999999999d", &[1]).len(), MAX_WIDTH);
        assert!(print("%.999999999f", &[1f64.to_bits()]).len() <= MAX_WIDTH + 2);
    }
}
