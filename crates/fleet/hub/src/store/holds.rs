//! Which recording held which device when, so that the time of a shared device counts once.
//!
//! The sum of what a set of recordings held is the length of the union of their intervals on each
//! device. Each change of the set changes the sum by exactly what the union gains or loses: a
//! recording that comes adds its times without what others cover already, and takes as much back
//! when it goes. Whichever order messages come in, the sum is that of the union.

use apex_aggregate::{Aggregate, Hold};
use rusqlite::{Connection, Result, params};
use sha2::{Digest, Sha256};

/// Intervals that are compared with one: a device has few at the same time, unless a sender makes
/// them up.
const MOST_OTHERS: u32 = 4096;

/// Times of a recording that others cover, microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shared {
    /// Other recordings of its job.
    pub in_job: i64,
    /// Other recordings of its tenant.
    pub in_all: i64,
}

/// A device of a tenant, as a number.
fn place(tenant: i64, device: &str) -> i64 {
    let digest = Sha256::digest(format!("{tenant}\n{device}").as_bytes());
    let bytes: [u8; 8] = std::array::from_fn(|at| digest[at]);
    i64::from_be_bytes(bytes)
}

/// What other recordings of the tenant, and processes of the same one, share of its time.
///
/// # Errors
/// Those of SQLite.
pub fn shared(
    connection: &Connection,
    tenant: i64,
    job: i64,
    recording: i64,
    of: &Aggregate,
) -> Result<Shared> {
    let mut sum = Shared::default();
    for hold in of.holds() {
        let others = others(connection, place(tenant, &hold.device), recording, &hold)?;
        let in_job = others.iter().filter(|other| other.0 == job).map(|&(_, from, until)| (from, until));
        let in_all = others.iter().map(|&(_, from, until)| (from, until));
        let within = (hold.from_us as i64, hold.until_us as i64);
        sum.in_job += hold.shared_us as i64 + covered(in_job.collect(), within);
        sum.in_all += hold.shared_us as i64 + covered(in_all.collect(), within);
    }
    Ok(sum)
}

/// Intervals of other recordings that overlap one on the same device: job, start, end.
fn others(connection: &Connection, place: i64, recording: i64, hold: &Hold) -> Result<Vec<(i64, i64, i64)>> {
    let mut found = connection.prepare_cached(
        "SELECT job, from_us, until_us FROM holds
         WHERE place = ?1 AND until_us > ?2 AND from_us < ?3 AND recording != ?4 LIMIT ?5",
    )?;
    let (from, until) = (hold.from_us as i64, hold.until_us as i64);
    let values = params![place, from, until, recording, MOST_OTHERS];
    found.query_map(values, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?.collect()
}

/// The part of an interval that others cover.
fn covered(mut others: Vec<(i64, i64)>, (from, until): (i64, i64)) -> i64 {
    others.sort_unstable();
    let (mut covered, mut reached) = (0, from);
    for (begin, end) in others {
        let (begin, end) = (begin.max(reached), end.min(until));
        covered += (end - begin).max(0);
        reached = reached.max(end);
    }
    covered
}

/// Keeps what a recording holds, in the place of what it held before.
///
/// # Errors
/// Those of SQLite.
pub fn keep(connection: &Connection, tenant: i64, job: i64, recording: i64, of: &Aggregate) -> Result<()> {
    connection
        .prepare_cached("DELETE FROM holds WHERE job = ?1 AND recording = ?2")?
        .execute([job, recording])?;
    let mut insert = connection.prepare_cached(
        "INSERT INTO holds (place, until_us, recording, job, from_us) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    for hold in of.holds() {
        let place = place(tenant, &hold.device);
        insert.execute(params![place, hold.until_us as i64, recording, job, hold.from_us as i64])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::covered;

    #[test]
    fn what_others_cover_counts_once() {
        assert_eq!(covered(vec![], (0, 10)), 0);
        assert_eq!(covered(vec![(-5, 3)], (0, 10)), 3);
        assert_eq!(covered(vec![(8, 20), (2, 4), (3, 5), (2, 3)], (0, 10)), 5);
        assert_eq!(covered(vec![(-1, 11), (2, 4)], (0, 10)), 10);
        assert_eq!(covered(vec![(20, 30), (-9, -1)], (0, 10)), 0);
        assert_eq!(covered(vec![(1, 2)], (5, 5)), 0);
    }
}
