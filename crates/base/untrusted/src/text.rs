//! Makes untrusted text printable.
//!
//! A terminal interprets control characters, and orders text by directional characters. A name with
//! such characters could erase the text above it, forge a line of a report, or read differently
//! from what it is. [`printable`] replaces them by escapes, as in Rust and C, and does not change
//! other text. It does not change its own output, so applying it twice is harmless.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

/// Whether a terminal shows the character and does nothing else: no control character (C0, DEL,
/// C1), no line separator, no character that chooses a direction, none that is invisible (Unicode's
/// `Default_Ignorable_Code_Point`, without the variation selectors of emoji).
pub fn is_printable(c: char) -> bool {
    let invisible = matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}');
    !c.is_control() && !invisible
}

/// The text with everything escaped that is not [printable](is_printable): `\n`, `\x1b`,
/// `\u{202e}`.
pub fn printable(text: &str) -> Cow<'_, str> {
    printable_but(text, &[])
}

/// As [`printable`], but these characters stay.
pub fn printable_but<'a>(text: &'a str, kept: &[char]) -> Cow<'a, str> {
    let stays = |c: char| is_printable(c) || kept.contains(&c);
    if text.chars().all(stays) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if stays(c) { escaped.push(c) } else { escape(c, &mut escaped) }
    }
    Cow::Owned(escaped)
}

fn escape(c: char, into: &mut String) {
    let written = match c {
        '\n' => into.write_str("\\n"),
        '\r' => into.write_str("\\r"),
        '\t' => into.write_str("\\t"),
        c if u32::from(c) < 0x100 => write!(into, "\\x{:02x}", u32::from(c)),
        c => write!(into, "\\u{{{:x}}}", u32::from(c)),
    };
    written.expect("a string takes everything");
}

/// A path, an argument or a variable, printable. Bytes that are not UTF-8 are escaped as `\xff`.
pub fn shown(text: impl AsRef<OsStr>) -> String {
    let mut shown = String::new();
    for chunk in text.as_ref().as_bytes().utf8_chunks() {
        shown.push_str(&printable(chunk.valid()));
        for byte in chunk.invalid() {
            write!(shown, "\\x{byte:02x}").expect("a string takes everything");
        }
    }
    shown
}

/// Whether a spreadsheet would take a cell with this text for a formula. A number, with or without
/// a sign, is not a formula.
pub fn is_formula(cell: &str) -> bool {
    // The last four are the wide forms, which some spreadsheets accept.
    let begins = cell.starts_with(['=', '+', '-', '@', '\t', '\r', '\n', '＝', '＋', '－', '＠']);
    begins && cell.parse::<f64>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;
    use std::path::Path;

    #[test]
    fn what_a_terminal_would_obey_is_escaped() {
        for (text, shown) in [
            ("saxpy<float, 4>(int)", "saxpy<float, 4>(int)"),
            ("Übergröße_核_🙂\u{fe0f}", "Übergröße_核_🙂\u{fe0f}"),
            ("a\x1b[2Jb", "a\\x1b[2Jb"),
            ("a\u{9b}2J\u{85}\x7f\0", "a\\x9b2J\\x85\\x7f\\x00"),
            ("two\r\nlines\t", "two\\r\\nlines\\t"),
            ("\u{202e}exe.\u{2066}\u{2028}\u{2029}", "\\u{202e}exe.\\u{2066}\\u{2028}\\u{2029}"),
            ("zero\u{200b}\u{200d}\u{feff}\u{ad}width", "zero\\u{200b}\\u{200d}\\u{feff}\\xadwidth"),
            ("tag\u{e0041}", "tag\\u{e0041}"),
        ] {
            assert_eq!(printable(text), shown);
            assert_eq!(printable(&printable(text)), shown, "twice");
        }
    }

    /// Every character is either shown unchanged or escaped into printable characters.
    #[test]
    fn what_is_printable_stays_printable() {
        for c in (0..=0x0010_ffff).filter_map(char::from_u32) {
            let text = c.to_string();
            let shown = printable(&text);
            assert!(shown.chars().all(is_printable), "{:x}", u32::from(c));
            assert_eq!(is_printable(c), *shown == text, "{:x}", u32::from(c));
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_escaped() {
        let name = OsString::from_vec(b"a\xffb\x1b\xc3\xa4\xe2\x82".to_vec());
        assert_eq!(shown(&name), "a\\xffb\\x1bä\\xe2\\x82");
        assert_eq!(shown(Path::new("a/b c")), "a/b c");
    }

    #[test]
    fn formulas_are_told_from_numbers_and_names() {
        for text in ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "＝1", "-", "+"] {
            assert!(is_formula(text), "{text:?}");
        }
        for text in ["", "saxpy", "-1", "+1.5e-3", "-.5", "1-2", "a=b", "'=1", " x"] {
            assert!(!is_formula(text), "{text:?}");
        }
    }
}
