//! `apex run --capability`: what the injected library tells `apex run` of its answers.
//!
//! The library connects to [`SOCKET`] in the session once for each library of the program and each
//! call that it answers differently than the driver, sends a [`Told`], and closes the connection.
//! There is no answer.

use crate::variables::{CAPABILITY, CAPABILITY_FOR};

/// Name of the socket in the session.
pub const SOCKET: &str = "capability.sock";
/// Longest path of a library that is sent, bytes; longer ones are cut.
pub const MOST_PATH: usize = 4096;

/// The first bytes of a message; they change with its form.
const MAGIC: [u8; 4] = *b"APC1";

/// The capability that is told, and to whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Major and minor number.
    pub capability: (u32, u32),
    /// Beginnings of the file names of libraries (or the program's), or whole paths; all of the
    /// process if there is none.
    pub libraries: Vec<String>,
}

impl Wanted {
    /// The capability that the environment of this process asks for.
    pub fn of_environment() -> Option<Wanted> {
        let text = |value: std::ffi::OsString| value.into_string().ok();
        let capability = parse(&CAPABILITY.value().and_then(text)?)?;
        let names = CAPABILITY_FOR.value().and_then(text).unwrap_or_default();
        let libraries = names.split(':').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        Some(Wanted { capability, libraries })
    }

    /// Whether the file at this path is told it.
    pub fn concerns(&self, path: &str) -> bool {
        let file = path.rsplit('/').next().unwrap_or(path);
        let is_meant = |name: &String| file.starts_with(name.as_str()) || path == name;
        self.libraries.is_empty() || self.libraries.iter().any(is_meant)
    }
}

/// A capability such as `12.0`; `None` for other text.
pub fn parse(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.')?;
    let number = |digits: &str| {
        let is_number = (1..=3).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse().ok().filter(|_| is_number)
    };
    Some((number(major)?, number(minor)?)).filter(|&(major, _)| major > 0)
}

/// A question about the compute capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// `cuDeviceGetAttribute` for the major number.
    Major,
    /// `cuDeviceGetAttribute` for the minor number.
    Minor,
    /// `cuDeviceComputeCapability`.
    Both,
}

impl Question {
    /// All, by the number that stands for each in a message.
    const ALL: [Question; 3] = [Question::Major, Question::Minor, Question::Both];

    /// The call, as a report names it.
    pub fn call(self) -> &'static str {
        match self {
            Question::Major => "cuDeviceGetAttribute(COMPUTE_CAPABILITY_MAJOR)",
            Question::Minor => "cuDeviceGetAttribute(COMPUTE_CAPABILITY_MINOR)",
            Question::Both => "cuDeviceComputeCapability",
        }
    }
}

/// A call that was answered differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The question.
    pub question: Question,
    /// Major and minor number of the driver's answer.
    pub real: (u32, u32),
    /// Path of the file whose code asked.
    pub library: String,
}

impl Told {
    /// Bytes before the path.
    const HEAD: usize = 16;

    /// The message.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        for word in [self.question as u32, self.real.0, self.real.1] {
            bytes.extend(word.to_le_bytes());
        }
        let path = self.library.as_bytes();
        bytes.extend(&path[..path.len().min(MOST_PATH)]);
        bytes
    }

    /// The message of these bytes; `None` if they are none.
    pub fn from_bytes(bytes: &[u8]) -> Option<Told> {
        let (head, path) = bytes.split_at_checked(Self::HEAD)?;
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let question = *Question::ALL.get(usize::try_from(word(4)).ok()?)?;
        let library = String::from_utf8_lossy(path).into_owned();
        let is_whole = head[..4] == MAGIC && path.len() <= MOST_PATH;
        is_whole.then_some(Told { question, real: (word(8), word(12)), library })
    }

    /// Longest message, bytes.
    pub const MOST_BYTES: usize = Self::HEAD + MOST_PATH;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_two_numbers() {
        assert_eq!((parse("12.0"), parse("9.0")), (Some((12, 0)), Some((9, 0))));
        for other in ["", "12", "12.", ".0", "12.0.1", "sm_90", "+1.0", "0.5", "1234.0"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn libraries_are_meant_by_the_beginning_of_their_name_or_by_their_path() {
        let wanted = |names: &[&str]| Wanted {
            capability: (12, 0),
            libraries: names.iter().map(|name| (*name).to_owned()).collect(),
        };
        let path = "/opt/lib/libchooser.so.3";
        for names in [&[][..], &["libchooser.so"], &["libother", "libchooser"], &[path]] {
            assert!(wanted(names).concerns(path), "{names:?}");
        }
        assert!(!wanted(&["chooser", "/opt/lib"]).concerns(path));
    }

    #[test]
    fn messages_are_what_was_sent_and_others_are_none() {
        let told = Told { question: Question::Minor, real: (9, 0), library: "/opt/libx.so".into() };
        assert_eq!(Told::from_bytes(&told.to_bytes()), Some(told.clone()));
        let long = Told { library: "x".repeat(5000), ..told };
        assert_eq!(long.to_bytes().len(), Told::MOST_BYTES);
        for other in
            [&[][..], b"APC1", &[0; 40], &[b'A', b'P', b'C', b'1', 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]]
        {
            assert_eq!(Told::from_bytes(other), None);
        }
    }
}
