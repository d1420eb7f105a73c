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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_takes_its_share_of_all_parts_up_to_each() {
        let of = |share| {
            let mut over_time = OverTime { collectives: vec![10, 0, 10, 5], ..OverTime::default() };
            over_time.waiting = vec![99; 7];
            over_time.wait_for_share(share);
            (over_time.waiting, over_time.collectives)
        };
        // 2.5, 2.5, 5 and 6.25 are rounded: 3, 3, 5 and 6.
        assert_eq!(of(0.25), (vec![3, 0, 2, 1], vec![7, 0, 8, 4]));
        assert_eq!(of(0.0), (vec![0; 4], vec![10, 0, 10, 5]));
        assert_eq!(of(1.0), (vec![10, 0, 10, 5], vec![0; 4]));
        assert_eq!(of(2.0), (vec![10, 0, 10, 5], vec![0; 4]), "no part waits for longer than it is");
        assert_eq!(of(-1.0), (vec![0; 4], vec![10, 0, 10, 5]));
    }

    #[test]
    fn each_account_has_its_own_parts() {
        let over_time = OverTime {
            part_ns: 1.0,
            kernels: vec![1],
            collectives: vec![2],
            waiting: vec![3],
            copies: vec![4],
            idle: [(IdleCause::Loading, vec![5])].into(),
            unknown: vec![6],
        };
        let firsts = Account::ALL.map(|account| over_time.parts(account).first().copied().unwrap_or(0));
        assert_eq!(firsts, [1, 2, 3, 4, 0, 0, 0, 0, 5, 0, 0, 0, 0, 6]);
    }
}
