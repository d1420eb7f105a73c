//! The GPU and driver that PTX has to suit, and the header that they and the code ask for.

use std::fmt;

use ptx::Module;
use ptx::forms::{Need, Target, Version};

/// The oldest version that a header is lowered to: from 7.0 on, versions only add.
pub const OLDEST: Version = (7, 0);

/// The oldest target that a header is lowered to, but for GPUs that are older themselves: current
/// toolkits have no older one.
pub const OLDEST_TARGET: u32 = 75;

/// A GPU with its driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// 10 times the major plus the minor compute capability: 80 for 8.0.
    pub capability: u32,
    /// The newest PTX version that the driver reads.
    pub newest: Version,
}

/// `.version` and `.target` of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// `.version`.
    pub version: Version,
    /// `.target`.
    pub target: Target,
}

impl Header {
    /// The header of a module; `None` if its target is none.
    pub fn of(module: &Module) -> Option<Header> {
        let target = module.target.first()?.parse().ok()?;
        Some(Header { version: module.version, target })
    }

    /// Reason for this version and target.
    pub(crate) fn as_need(self) -> Need {
        Need { version: self.version, target: self.target }
    }

    /// Whether the version knows the target: if not, no driver takes the module.
    pub fn is_known(self) -> bool {
        self.target.exists() && self.version >= self.target.since()
    }

    /// Whether a module with this header may use what has these alternative needs.
    pub fn meets(self, needs: &[Need]) -> bool {
        needs.iter().any(|need| need.is_met(self.version, self.target))
    }
}

impl fmt::Display for Header {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "PTX {}.{}, {}", self.version.0, self.version.1, self.target)
    }
}

impl Gpu {
    /// Whether the driver takes a module with this header.
    pub fn takes(self, header: Header) -> bool {
        header.target.runs_on(self.capability) && header.version <= self.newest
    }

    /// Whether some header that the driver takes meets one of these alternative needs.
    pub fn has(self, needs: &[Need]) -> bool {
        let available = |need: &Need| need.target.runs_on(self.capability) && need.version <= self.newest;
        needs.iter().any(available)
    }

    /// The least header for code with these needs, each of them alternatives; `None` if the driver
    /// has none. It is not below the older one of `own` and of [`OLDEST`] with [`OLDEST_TARGET`].
    pub fn least(self, all: &[Vec<Need>], own: Header) -> Option<Header> {
        let floor = own.version.min(OLDEST);
        let oldest = own.target.number.min(OLDEST_TARGET).min(self.capability);
        let targets = Target::of_gpu(self.capability).into_iter().filter(|target| target.number >= oldest);
        targets.into_iter().find_map(|target| {
            let of_one = |needs: &Vec<Need>| {
                needs.iter().filter(|need| target.has(need.target)).map(|need| need.version).min()
            };
            let versions: Option<Vec<Version>> = all.iter().map(of_one).collect();
            let version = versions?.into_iter().fold(floor.max(target.since()), Version::max);
            (version <= self.newest).then_some(Header { version, target })
        })
    }
}

/// The newest PTX version that a driver reads, by what `cuDriverGetVersion` gives (13000 for 13.0):
/// PTX ISA, "Release Notes".
pub fn newest_of_driver(version: i32) -> Version {
    let minor = u32::try_from(version % 1000 / 10).unwrap_or(0);
    match version / 1000 {
        ..=10 => (6, 5),
        11 => (7, minor.min(8)),
        // 12.5 and 12.6 read the same.
        12 if minor <= 5 => (8, minor),
        12 => (8, minor.min(9) - 1),
        major => (9 + u32::try_from(major - 13).unwrap_or(0), minor),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_read_the_versions_of_their_toolkits() {
        let pairs = [(11080, (7, 8)), (12000, (8, 0)), (12040, (8, 4)), (12050, (8, 5)), (12060, (8, 5))];
        let newer = [(12070, (8, 6)), (12080, (8, 7)), (12090, (8, 8)), (13000, (9, 0)), (13050, (9, 5))];
        for (driver, version) in pairs.into_iter().chain(newer) {
            assert_eq!(newest_of_driver(driver), version, "{driver}");
        }
    }

    #[test]
    fn a_version_knows_the_targets_that_it_introduced_and_older_ones() {
        let is_known = |version, target: &str| Header { version, target: target.parse().unwrap() }.is_known();
        assert!(is_known((7, 8), "sm_90") && is_known((8, 0), "sm_90a") && is_known((9, 5), "sm_52"));
        assert!(!is_known((7, 0), "sm_90") && !is_known((7, 8), "sm_90a"));
        assert!(!is_known((9, 5), "sm_91") && !is_known((9, 5), "sm_80a"));
    }

    #[test]
    fn a_gpu_older_than_the_oldest_target_keeps_its_own() {
        let gpu = Gpu { capability: 60, newest: (8, 0) };
        let own = Header { version: (8, 0), target: "sm_80".parse().unwrap() };
        assert_eq!(gpu.least(&[], own).map(|header| header.to_string()).unwrap(), "PTX 7.0, sm_60");
    }

    #[test]
    fn the_least_header_has_a_letter_only_where_the_code_needs_it() {
        let gpu = Gpu { capability: 90, newest: (9, 0) };
        let need = |text: &str| vec![text.parse::<Need>().unwrap()];
        let own = Header { version: (9, 0), target: "sm_120a".parse().unwrap() };
        let header = |needs: &[Vec<Need>]| gpu.least(needs, own).map(|header| header.to_string());
        assert_eq!(header(&[]).unwrap(), "PTX 7.0, sm_75");
        assert_eq!(header(&[need("7.0 sm_80"), need("8.3 sm_70")]).unwrap(), "PTX 8.3, sm_80");
        assert_eq!(header(&[need("8.0 sm_90a"), need("7.8 sm_90")]).unwrap(), "PTX 8.0, sm_90a");
        assert_eq!(header(&[need("8.6 sm_100a")]), None);
    }
}
