//! The wheel: a zip file whose `.data` folder pip unpacks into the environment's prefix, so that
//! `apex` is on the path and needs no Python to run; and the module `apex_cuda` for those who have
//! Python. Its entry point has pytest load the module's plugin.

use super::{Package, Release, SUMMARY, root};
use anyhow::Context;
use sha2::{Digest, Sha256};
use std::io::{Cursor, Write};
use zip::write::SimpleFileOptions;

/// The wheel's name and content.
pub fn bytes(release: &Release) -> anyhow::Result<Package> {
    let name = format!("apex_cuda-{}", release.version);
    let tag = format!("py3-none-manylinux_{}_{}_x86_64", release.glibc.major, release.glibc.minor);
    let mut wheel = Wheel::new(release.time)?;
    for (path, entry) in &release.tree.files {
        let inside = match path.strip_prefix("bin/") {
            Some(command) => format!("{name}.data/scripts/{command}"),
            None => format!("{name}.data/data/{path}"),
        };
        wheel.add(&inside, &entry.bytes, entry.mode)?;
    }
    for (path, source) in &release.modules {
        wheel.add(path, source, 0o644)?;
    }
    let facts = format!("{name}.dist-info");
    wheel.add(&format!("{facts}/METADATA"), metadata(release)?.as_bytes(), 0o644)?;
    let what = format!("Wheel-Version: 1.0\nGenerator: apex-xtask\nRoot-Is-Purelib: false\nTag: {tag}\n");
    wheel.add(&format!("{facts}/entry_points.txt"), ENTRY_POINTS.as_bytes(), 0o644)?;
    wheel.add(&format!("{facts}/WHEEL"), what.as_bytes(), 0o644)?;
    Ok((format!("{name}-{tag}.whl"), wheel.finish(&facts)?))
}

/// What other packages find in this one: pytest its plugin.
const ENTRY_POINTS: &str = "[pytest11]\napex_cuda = apex_cuda.pytest_plugin\n";

fn metadata(release: &Release) -> anyhow::Result<String> {
    let readme = std::fs::read_to_string(root().join("README.md")).context("README.md")?;
    Ok(format!(
        "Metadata-Version: 2.4\nName: apex-cuda\nVersion: {}\nSummary: {SUMMARY}\nLicense-Expression: MIT OR Apache-2.0\n\
         Requires-Python: >=3.9\nDescription-Content-Type: text/markdown\n\n{readme}",
        release.version
    ))
}

/// A wheel that is being written, with the list of its files.
struct Wheel {
    zip: zip::ZipWriter<Cursor<Vec<u8>>>,
    time: zip::DateTime,
    record: String,
}

impl Wheel {
    fn new(time: u64) -> anyhow::Result<Wheel> {
        let zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
        Ok(Wheel { zip, time: date(time)?, record: String::new() })
    }

    fn add(&mut self, path: &str, bytes: &[u8], mode: u32) -> anyhow::Result<()> {
        self.write(path, bytes, mode)?;
        let digest = base64_url(&Sha256::digest(bytes));
        self.record.push_str(&format!("{path},sha256={digest},{}\n", bytes.len()));
        Ok(())
    }

    /// Adds the list of all files, which has no checksum of its own, and ends the file.
    fn finish(mut self, facts: &str) -> anyhow::Result<Vec<u8>> {
        let path = format!("{facts}/RECORD");
        let record = format!("{}{path},,\n", self.record);
        self.write(&path, record.as_bytes(), 0o644)?;
        Ok(self.zip.finish()?.into_inner())
    }

    fn write(&mut self, path: &str, bytes: &[u8], mode: u32) -> anyhow::Result<()> {
        let options = SimpleFileOptions::default()
            .compression_method(zip::CompressionMethod::Deflated)
            .compression_level(Some(9))
            .unix_permissions(mode)
            .last_modified_time(self.time);
        self.zip.start_file(path, options)?;
        Ok(self.zip.write_all(bytes)?)
    }
}

/// Seconds since 1970 as a zip file has them: a date from 1980 on.
fn date(seconds: u64) -> anyhow::Result<zip::DateTime> {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let date = zip::DateTime::from_date_and_time(
        year.max(1980),
        month,
        day,
        (second / 3600) as u8,
        (second / 60 % 60) as u8,
        (second % 60) as u8,
    );
    date.context("the time of the commit is none that a zip file can hold")
}

/// The date of a day after 1 January 1970, in the Gregorian calendar.
fn civil(days: u64) -> (u16, u8, u8) {
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let (mut year, mut left) = (1970, days);
    while left >= 365 + u64::from(leap(year)) {
        left -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while left >= lengths[month] {
        left -= lengths[month];
        month += 1;
    }
    (year as u16, month as u8 + 1, left as u8 + 1)
}

/// Base64 with the alphabet for addresses and without padding, as wheels write checksums.
fn base64_url(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let bits =
            group.iter().fold(0u32, |bits, &byte| bits << 8 | u32::from(byte)) << (8 * (3 - group.len()));
        for digit in 0..=group.len() {
            text.push(ALPHABET[(bits >> (18 - 6 * digit) & 63) as usize].into());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_specification() {
        let cases = [(&b""[..], ""), (b"f", "Zg"), (b"fo", "Zm8"), (b"foo", "Zm9v"), (b"foobar", "Zm9vYmFy")];
        for (bytes, text) in cases {
            assert_eq!(base64_url(bytes), text);
        }
        assert_eq!(base64_url(&[0xff, 0xef]), "_-8");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        let cases =
            [(0, (1970, 1, 1)), (11_016, (2000, 2, 29)), (11_017, (2000, 3, 1)), (20_780, (2026, 11, 23))];
        for (days, date) in cases {
            assert_eq!(civil(days), date);
        }
    }
}
