//! The requirements of built files on the machine that they run on, as their dynamic sections state
//! them.

use std::fmt;
use std::path::Path;
use std::process::Command;

/// A version of glibc.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The newest version of glibc that any of the files asks for.
pub fn glibc(files: &[&Path]) -> anyhow::Result<Version> {
    let mut needed = Version { major: 2, minor: 2 };
    for file in files {
        let text = super::output(Command::new("objdump").arg("-p").arg(file))?;
        needed = versions(&text).chain([needed]).max().unwrap_or(needed);
    }
    Ok(needed)
}

/// The versions of glibc in the version references that `objdump -p` prints.
fn versions(text: &str) -> impl Iterator<Item = Version> {
    text.split_ascii_whitespace().filter_map(|word| {
        let mut numbers = word.strip_prefix("GLIBC_")?.split('.').map(|number| number.parse().ok());
        Some(Version { major: numbers.next()??, minor: numbers.next()?? })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_numbers_and_no_text() {
        let text = "required from libc.so.6:\n  0x06969197 0x00 04 GLIBC_2.17\n  0x0 0x00 02 GLIBC_2.2.5\n  GLIBC_PRIVATE";
        assert_eq!(versions(text).max().unwrap().to_string(), "2.17");
    }
}
