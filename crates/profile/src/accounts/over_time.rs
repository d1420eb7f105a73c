//! The accounts of a device over time: equal parts of its span, few enough for a picture, however
//! long the span is.
//!
//! Invariant: the parts of an account add up to the account, to the nanosecond; the accounts of a
//! part add up to its length, rounded to a whole nanosecond.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Account, IdleCause};

/// The time of each part of a device's span, in nanoseconds, by account. A list is empty where the
/// account holds no time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct OverTime {
    /// Length of a part.
    pub part_ns: f64,
    /// See [`super::Accounts::kernels`].
    pub kernels: Vec<u64>,
    /// See [`super::Accounts::collectives`].
    pub collectives: Vec<u64>,
    /// See [`super::Accounts::waiting`]: in each part the same share of the collectives.
    pub waiting: Vec<u64>,
    /// See [`super::Accounts::copies`].
    pub copies: Vec<u64>,
    /// See [`super::Accounts::idle`].
    pub idle: BTreeMap<IdleCause, Vec<u64>>,
    /// See [`super::Accounts::unknown`].
    pub unknown: Vec<u64>,
}

impl OverTime {
    /// Parts of a span.
    pub const PARTS: usize = 240;

    /// The parts of an account; empty where it holds no time.
    pub fn parts(&self, account: Account) -> &[u64] {
        match account {
            Account::Kernels => &self.kernels,
            Account::Collectives => &self.collectives,
            Account::Waiting => &self.waiting,
            Account::Copies => &self.copies,
            Account::Idle(cause) => self.idle.get(&cause).map_or(&[], Vec::as_slice),
            Account::Unknown => &self.unknown,
        }
    }

    /// Moves a share of the time in collectives to [`Self::waiting`]. What is moved of all parts up
    /// to one is that share of them, rounded: the parts add up to what the accounts move.
    pub(crate) fn wait_for_share(&mut self, share: f64) {
        let (mut passed, mut moved) = (0u64, 0u64);
        self.waiting.clear();
        for part in &mut self.collectives {
            passed += *part;
            let waited = ((passed as f64 * share).round() as u64).saturating_sub(moved).min(*part);
            moved += waited;
            *part -= waited;
            self.waiting.push(waited);
        }
    }
}
