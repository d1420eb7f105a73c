//! Pairs of launches that are made as one, as a profile keeps them. `apex fuse` proves and writes
//! them; whether a launch of the joined kernel may stand for both is checked at each launch.

use crate::document;
use launch_condition::{Condition, PlannedPair};
use serde::{Deserialize, Serialize};

/// Two kernels, and the one that does what both do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pair {
    /// The kernel that is launched first.
    pub first: Member,
    /// The one that is launched next.
    pub second: Member,
    /// Bytes that the second one reads and the first one has written, in the recorded launch;
    /// computed.
    pub flowing_bytes: Option<u64>,
    /// The name of the joined kernel.
    pub name: String,
    /// Its parameters: where their values come from.
    pub parameters: Vec<Origin>,
    /// Parameters that must have one value: their places in the first and the second kernel.
    pub same: Vec<(u32, u32)>,
    /// Conditions that a launch of the joined kernel must meet.
    pub condition: Condition,
    /// The PTX of the joined kernel.
    pub ptx: String,
}

/// A kernel of a pair.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// The hash of its PTX.
    #[serde(with = "document::hexadecimal")]
    pub code: u128,
    /// Its name in the PTX.
    pub name: String,
}

/// Where the value of a parameter comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Origin {
    /// A place among the parameters of the first kernel.
    First(u32),
    /// A place among those of the second kernel.
    Second(u32),
}

impl Pair {
    /// Whether both are about the same two kernels.
    pub fn is_of_kernels_of(&self, other: &Self) -> bool {
        (&self.first, &self.second) == (&other.first, &other.second)
    }

    pub(crate) fn planned(&self) -> PlannedPair {
        let member = |member: &Member| (member.code, member.name.clone());
        let origin = |origin: &Origin| match *origin {
            Origin::First(place) => (false, place),
            Origin::Second(place) => (true, place),
        };
        PlannedPair {
            kernels: [member(&self.first), member(&self.second)],
            name: self.name.clone(),
            ptx: self.ptx.clone(),
            parameters: self.parameters.iter().map(origin).collect(),
            same: self.same.clone(),
            condition: self.condition.clone(),
        }
    }
}
