//! PTX versions and targets, and the features that need them.

use std::fmt;
use std::str::FromStr;

/// A PTX version: major, minor.
pub type Version = (u32, u32);

/// The newest version that the table goes up to, and the newest that there is (CUDA 13.5).
pub const NEWEST: Version = (9, 5);

/// The letter after a target's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Suffix {
    /// `sm_90`: what later GPUs have too.
    None,
    /// `sm_100f`: what the GPUs of this family have.
    Family,
    /// `sm_90a`: what only this GPU has.
    Architecture,
}

/// A target: `sm_90a`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// 10 times the major plus the minor compute capability.
    pub number: u32,
    /// The letter.
    pub suffix: Suffix,
}

/// The versions that introduced targets (ISA, "Release Notes").
const SINCE: &[(u32, Version)] = &[
    (10, (1, 0)),
    (12, (1, 2)),
    (20, (2, 0)),
    (30, (3, 0)),
    (32, (4, 0)),
    (35, (3, 1)),
    (37, (4, 1)),
    (50, (4, 0)),
    (52, (4, 1)),
    (53, (4, 2)),
    (60, (5, 0)),
    (61, (5, 0)),
    (62, (5, 0)),
    (70, (6, 0)),
    (72, (6, 1)),
    (75, (6, 3)),
    (80, (7, 0)),
    (86, (7, 1)),
    (87, (7, 4)),
    (88, (9, 0)),
    (89, (7, 8)),
    (90, (7, 8)),
    (100, (8, 6)),
    (103, (8, 8)),
    (107, (9, 4)),
    (110, (9, 0)),
    (120, (8, 7)),
    (121, (8, 8)),
];

/// Further targets that ptxas takes, of GPUs that no PTX version introduced; sm_110 was called
/// sm_101 before PTX 9.0.
const UNLISTED: &[u32] = &[11, 13, 21, 82, 101];

impl Target {
    /// Whether PTX for this target may use what needs `needed`.
    pub fn has(self, needed: Target) -> bool {
        match needed.suffix {
            Suffix::None => self.number >= needed.number,
            Suffix::Family => {
                self.suffix != Suffix::None
                    && self.family() == needed.family()
                    && self.number >= needed.number
            }
            Suffix::Architecture => self == needed,
        }
    }

    /// Whether a GPU of this compute capability (80 for 8.0) takes PTX for the target.
    pub fn runs_on(self, capability: u32) -> bool {
        match self.suffix {
            Suffix::None => self.number <= capability,
            Suffix::Family => self.family() == family(capability) && self.number <= capability,
            Suffix::Architecture => self.number == capability,
        }
    }

    /// The targets that a GPU of this compute capability takes, from the one with the fewest
    /// features to the one with the most.
    pub fn of_gpu(capability: u32) -> Vec<Target> {
        let numbers = || SINCE.iter().map(|(number, _)| *number);
        let all = [Suffix::None, Suffix::Family, Suffix::Architecture].into_iter();
        let all = all.flat_map(|suffix| numbers().map(move |number| Target { number, suffix }));
        all.filter(|target| target.has_letter() && target.runs_on(capability)).collect()
    }

    /// Whether there is such a target: ptxas 13.5 takes PTX for it.
    pub fn exists(self) -> bool {
        let is_named = SINCE.iter().any(|(number, _)| *number == self.number);
        (is_named || UNLISTED.contains(&self.number)) && self.has_letter()
    }

    /// Whether a target of this number may have the letter.
    fn has_letter(self) -> bool {
        match self.suffix {
            Suffix::None => true,
            Suffix::Family => self.number >= 100,
            Suffix::Architecture => self.number >= 90,
        }
    }

    /// The first PTX version that knows the target.
    pub fn since(self) -> Version {
        match (self.number, self.suffix) {
            (101, Suffix::Family) => (8, 8),
            (90, Suffix::Architecture) => (8, 0),
            (100 | 120, Suffix::Family) => (8, 8),
            (number, _) => SINCE.iter().rev().find(|(known, _)| *known <= number).map_or((1, 0), |(_, v)| *v),
        }
    }

    fn family(self) -> u32 {
        family(self.number)
    }

    /// The target that has what both have, if there is one.
    fn and(self, other: Target) -> Option<Target> {
        let (narrow, wide) = if self.suffix >= other.suffix { (self, other) } else { (other, self) };
        match wide.suffix {
            Suffix::None if narrow.suffix == Suffix::None => {
                Some(Target { number: narrow.number.max(wide.number), ..narrow })
            }
            _ => narrow.has(wide).then_some(narrow),
        }
    }
}

/// The GPUs that share `f` features, by the number of the first; sm_110 was called sm_101 before
/// PTX 9.0.
fn family(number: u32) -> u32 {
    match number {
        101 => 110,
        number => number / 10 * 10,
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        let wrong = || format!("`{text}` is not a target such as sm_80 or sm_90a");
        let rest = text.strip_prefix("sm_").ok_or_else(wrong)?;
        let (digits, suffix) = match rest.as_bytes().last() {
            Some(b'a') => (&rest[..rest.len() - 1], Suffix::Architecture),
            Some(b'f') => (&rest[..rest.len() - 1], Suffix::Family),
            _ => (rest, Suffix::None),
        };
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(wrong());
        }
        Ok(Target { number: digits.parse().map_err(|_| wrong())?, suffix })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = match self.suffix {
            Suffix::None => "",
            Suffix::Family => "f",
            Suffix::Architecture => "a",
        };
        write!(out, "sm_{}{letter}", self.number)
    }
}

/// The least version and target with which an instruction may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// `.version`.
    pub version: Version,
    /// `.target`.
    pub target: Target,
}

impl Need {
    /// Whether a module of this version and target has it.
    pub fn is_met(self, version: Version, target: Target) -> bool {
        version >= self.version && target.has(self.target)
    }

    /// Every way of meeting one of `left` and one of `right`.
    pub(super) fn both(left: &[Need], right: &[Need]) -> Vec<Need> {
        let mut needs: Vec<Need> = Vec::new();
        for a in left {
            for b in right {
                if let Some(target) = a.target.and(b.target) {
                    let need = Need { version: a.version.max(b.version), target };
                    if !needs.contains(&need) {
                        needs.push(need);
                    }
                }
            }
        }
        needs
    }
}

impl FromStr for Need {
    type Err = String;

    /// `8.0 sm_90` or `8.0/sm_90`.
    fn from_str(text: &str) -> Result<Need, String> {
        let wrong = || format!("`{text}` is not a version and a target such as `8.0 sm_90`");
        let (version, target) = text.split_once([' ', '/']).ok_or_else(wrong)?;
        let (major, minor) = version.split_once('.').ok_or_else(wrong)?;
        let version = (major.parse().map_err(|_| wrong())?, minor.parse().map_err(|_| wrong())?);
        let target: Target = target.trim().parse()?;
        Ok(Need { version: target.since().max(version), target })
    }
}

impl fmt::Display for Need {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "PTX {}.{} and {}", self.version.0, self.version.1, self.target)
    }
}
