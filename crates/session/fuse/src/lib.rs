//! Adjacent launches of a session that could be one.
//!
//! [`candidates`] finds launches that follow each other in one stream with no other call between,
//! in the same grid and block (`adjacent`). Where the session has the PTX of both kernels and
//! what they were given (`apex run --code`), the access sets tell which bytes the second one reads
//! that the first one has written, and `ptx-fuse` joins the kernels if that is proven for these
//! launches (`judge`).
//!
//! # Invariants
//! 1. *Every pair has an answer*: joined, refused with the reason, or not known and what is
//!    missing.
//! 2. Flowing bytes are computed from access sets, for the recorded launch.

mod adjacent;
mod given;
mod judge;

pub use given::{Argument, Given, around};

use apex_ordered::Order;
use apex_predict_session::programs::Programs;
use apex_profile::Profile;
use apex_trace::Session;
use cuda_launch::LaunchConfig;
use ptx_fuse::{Fused, Same};

/// Two kernels that are launched one after the other.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The symbols of both.
    pub kernels: [String; 2],
    /// The hashes of the PTX that the driver compiled for both; 0 where it was given machine code.
    pub codes: [u128; 2],
    /// The launch of both.
    pub launch: LaunchConfig,
    /// How often they follow each other.
    pub times: u64,
    /// Bytes that the second one reads and the first one has written; `None` if it is not known.
    pub flowing_bytes: Option<u64>,
    /// Whether they can be one kernel.
    pub answer: Answer,
}

/// The answer about a candidate.
#[derive(Clone, Debug)]
pub enum Answer {
    /// They can be one kernel.
    Joined(Box<Joined>),
    /// They are not joined, and why.
    Refused(String),
    /// It is not known, and what is missing.
    Unknown(&'static str),
}

/// The kernel that does what both did.
#[derive(Clone, Debug)]
pub struct Joined {
    /// The kernel.
    pub fused: Fused,
    /// The PTX of both kernels, as it was before.
    pub sources: [String; 2],
    /// Parameters that must have one value.
    pub same: Vec<Same>,
    /// The arguments of both launches.
    pub given: [Given; 2],
}

impl Candidate {
    /// Bytes that flow in all launches, computed.
    pub fn all_flowing_bytes(&self) -> Option<u64> {
        self.flowing_bytes.map(|bytes| bytes.saturating_mul(self.times))
    }
}

/// The candidates of a session, those with most flowing bytes first. Pairs between which no data
/// flows are left out.
pub fn candidates(session: &Session, profile: &Profile) -> Vec<Candidate> {
    let programs = Programs::of(profile);
    let pairs = adjacent::pairs(session);
    let mut all: Vec<Candidate> =
        pairs.iter().filter_map(|pair| judge::candidate(pair, session, profile, &programs)).collect();
    all.order_by_key(|one| std::cmp::Reverse((one.all_flowing_bytes(), one.times)));
    all
}
