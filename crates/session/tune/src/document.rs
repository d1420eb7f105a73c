//! The profile as a document (`apex.tuned`), which `apex tune` writes and `apex run --tuned` reads.
//!
//! It is JSON that people can read, and a checksum over its text says whether it is as it was
//! written: a block that somebody changed by hand was neither proven nor measured.

use crate::Tuning;
use apex_conventions::documents::{Envelope, TUNED};
use launch_condition::code_hash;
use serde::{Deserialize, Serialize};

/// The text in front of the checksum.
const CHECKSUM: &str = "\"checksum\": \"";
/// Hexadecimal digits of a checksum.
const DIGITS: usize = 32;

/// The reason why a document is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// It is none.
    #[error("it is not a profile of `apex tune`: {0}")]
    Foreign(String),
    /// It is one of another version.
    #[error("{0}")]
    OtherVersion(String),
    /// Its text was changed.
    #[error("it was changed after `apex tune` wrote it (its checksum does not match)")]
    Changed,
}

/// The members of the document.
#[derive(Serialize)]
struct Content<'t> {
    checksum: String,
    #[serde(flatten)]
    tuning: &'t Tuning,
}

/// The members by which a document is recognised.
#[derive(Deserialize)]
struct Head {
    schema: String,
}

/// Writes a tuning as a document.
///
/// # Errors
/// If a number in it is not one that JSON has.
pub fn write(tuning: &Tuning) -> serde_json::Result<String> {
    let content = Content { checksum: "0".repeat(DIGITS), tuning };
    let text = serde_json::to_string_pretty(&Envelope::of(TUNED, content))? + "\n";
    let place = place(&text).expect("the document has a checksum");
    let sum = checksum(&text, place);
    Ok(format!("{}{sum}{}", &text[..place], &text[place + DIGITS..]))
}

/// Reads a document.
///
/// # Errors
/// If it is not one, is of another version, or was changed.
pub fn read(text: &str) -> Result<Tuning, Unusable> {
    let foreign = |error: serde_json::Error| Unusable::Foreign(error.to_string());
    let head: Head = serde_json::from_str(text).map_err(foreign)?;
    TUNED.check(&head.schema).map_err(Unusable::OtherVersion)?;
    let place = place(text).ok_or(Unusable::Changed)?;
    if text.get(place..place + DIGITS) != Some(&checksum(text, place)) {
        return Err(Unusable::Changed);
    }
    let mut members: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(text).map_err(foreign)?;
    ["schema", "apex_version", "checksum"].iter().for_each(|member| drop(members.remove(*member)));
    serde_json::from_value(members.into()).map_err(foreign)
}

/// Where the checksum's digits begin.
fn place(text: &str) -> Option<usize> {
    text.find(CHECKSUM).map(|at| at + CHECKSUM.len())
}

/// The checksum of a text whose own digits do not count.
fn checksum(text: &str, place: usize) -> String {
    let (before, after) = text.split_at(place);
    let rest = after.get(DIGITS..).unwrap_or_default();
    format!("{:032x}", code_hash(format!("{before}{rest}").as_bytes()))
}

/// A 128-bit number as hexadecimal digits.
pub(crate) mod hexadecimal {
    use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

    pub fn serialize<S: Serializer>(number: &u128, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{number:032x}"))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u128, D::Error> {
        let digits = String::deserialize(from)?;
        u128::from_str_radix(&digits, 16).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Change, Kept, Member, Origin, Pair, Ratio, Refused, Size, Tried, Tuned};
    use launch_condition::{Bound, Condition, Sum, Term};

    fn tuning() -> Tuning {
        let n = Term::Parameter { offset: 16, bytes: 4, signed: true };
        let condition =
            Condition { bounds: vec![Bound { axis: 0, limit: Sum::of(1, n) }], ..Condition::default() };
        let ratio = Ratio { median: 0.1234, low: 0.1, high: 0.3, pairs: 40 };
        let size = Size {
            asked: 16.into(),
            size_class: 20,
            launches: 500,
            share: 0.3333,
            tried: vec![
                Tried { block: 256.into(), ratio: Some(ratio) },
                Tried { block: 64.into(), ratio: None },
            ],
            change: Some(Change { block: 256.into(), before_ns: 81_000.0, after_ns: 10_000.0, ratio }),
            kept: None,
        };
        let tie = Size { change: None, kept: Some(Kept::Tie { block: 64.into(), ratio }), ..size.clone() };
        let member = |code, name: &str| Member { code, name: name.into() };
        let pair = Pair {
            first: member(7, "copy"),
            second: member(1 << 120, "scale"),
            flowing_bytes: Some(4096),
            name: "apex_fused".into(),
            parameters: vec![Origin::First(0), Origin::Second(2)],
            same: vec![(1, 0)],
            condition: condition.clone(),
            ptx: ".version 8.0\n".into(),
        };
        let refused = Refused {
            name: "sum".into(),
            share: 0.2,
            reason: "no proof covers this instruction".into(),
            instruction: "bar.sync 0".into(),
            source: Some(("sum.cu".into(), 12)),
        };
        Tuning {
            device: "NVIDIA H200".into(),
            driver_version: 13_000,
            kernels: vec![Tuned { code: 1 << 120, name: "copy".into(), condition, sizes: vec![size, tie] }],
            refused: vec![refused],
            pairs: vec![pair],
        }
    }

    #[test]
    fn a_document_is_read_as_it_was_written() {
        let text = write(&tuning()).unwrap();
        assert_eq!(read(&text), Ok(tuning()));
    }

    #[test]
    fn a_document_that_was_changed_is_refused() {
        let text = write(&tuning()).unwrap();
        for (from, to) in [
            ("256", "512"),
            ("NVIDIA H200", "NVIDIA H100"),
            ("\"share\": 0.2", "\"share\": 0.20"),
            ("\"checksum\": \"", "\"checksum\": \"0"),
            ("\"checksum\"", "\"sum\""),
        ] {
            assert!(text.contains(from), "{from} in {text}");
            assert_eq!(read(&text.replacen(from, to, 1)), Err(Unusable::Changed), "{from}");
        }
    }

    #[test]
    fn other_documents_are_refused() {
        assert!(matches!(read(""), Err(Unusable::Foreign(_))));
        assert!(matches!(read("[]"), Err(Unusable::Foreign(_))));
        assert!(matches!(read("{\"schema\": 7}"), Err(Unusable::Foreign(_))));
        let text = write(&tuning()).unwrap();
        assert!(matches!(read(&text[..text.len() / 2]), Err(Unusable::Foreign(_))));
        let other = read(&text.replace("apex.tuned/1", "apex.tuned/2")).unwrap_err();
        assert!(matches!(&other, Unusable::OtherVersion(why) if why.contains("apex.tuned/2")), "{other}");
    }
}
