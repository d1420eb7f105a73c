//! What a job is, from the newest message of each of its recordings: what one of them no longer
//! says, the job no longer is.

use super::tokens::digest;
use apex_aggregate::{Aggregate, shortened};
use apex_ordered::Gather;
use rusqlite::{Connection, Result, params};
use std::collections::{BTreeMap, BTreeSet};

/// Facts in a recording about its job.
struct Fact {
    host: String,
    step_ns: Option<f64>,
    devices: String,
    world: u32,
    from_us: i64,
    until_us: i64,
    /// Identifiers of devices that were given on its host.
    allocated: String,
}

/// Names of the devices of a recording.
fn devices(of: &Aggregate) -> String {
    let names: BTreeSet<&str> = of.devices.iter().map(|device| device.name.as_str()).gathered();
    shortened(&names.into_iter().collect::<Vec<_>>().join(", "))
}

/// The command in one text.
pub fn command(of: &Aggregate) -> String {
    of.command.join(" ")
}

/// Keeps what a recording says, in the place of what it said before.
///
/// # Errors
/// Those of SQLite.
pub fn keep(connection: &Connection, job: i64, recording: i64, of: &Aggregate) -> Result<()> {
    let allocated = of.allocation.as_ref().map_or(String::new(), |of| of.devices.join(" "));
    let mut upsert = connection.prepare_cached(
        "INSERT OR REPLACE INTO facts (job, recording, host, step_ns, devices, world, from_us, until_us, allocated)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?;
    let values = params![
        job,
        recording,
        of.host,
        of.step.map(|step| step.ns),
        devices(of),
        of.job.ranks,
        (of.started_ns / 1000) as i64,
        (of.as_of_ns / 1000) as i64,
        allocated,
    ];
    upsert.execute(values).map(drop)
}

/// Sets what a job is by all its recordings, and returns by how much the time of GPUs that it was
/// given and never used has grown.
///
/// # Errors
/// Those of SQLite.
pub fn settle(connection: &Connection, job: i64, of: &Aggregate) -> Result<i64> {
    let facts = facts(connection, job)?;
    // The job's step is that of its slowest rank.
    let step_ns = facts.iter().filter_map(|fact| fact.step_ns).max_by(f64::total_cmp);
    let devices = facts.iter().map(|fact| fact.devices.as_str()).max().unwrap_or_default();
    let world = facts.iter().map(|fact| fact.world).max().unwrap_or(0);
    let series = digest(&[&of.owner, &command(of), devices, &world.to_string()].join("\n"));
    let unused = unused_us(connection, job, &facts)?;
    let elapsed = elapsed_us(&facts);
    let before: i64 = connection
        .prepare_cached("SELECT us_unused FROM jobs WHERE id = ?1")?
        .query_row([job], |row| row.get(0))?;
    let mut update = connection.prepare_cached(
        "UPDATE jobs SET step_ns = ?2, devices = ?3, world = ?4, series = ?5, us_unused = ?6, elapsed_us = ?7 WHERE id = ?1",
    )?;
    update.execute(params![job, step_ns, devices, world, series, unused, elapsed])?;
    Ok(unused - before)
}

fn facts(connection: &Connection, job: i64) -> Result<Vec<Fact>> {
    let mut found = connection.prepare_cached(
        "SELECT host, step_ns, devices, world, from_us, until_us, allocated FROM facts WHERE job = ?1",
    )?;
    let read = |row: &rusqlite::Row<'_>| {
        Ok(Fact {
            host: row.get(0)?,
            step_ns: row.get(1)?,
            devices: row.get(2)?,
            world: row.get(3)?,
            from_us: row.get(4)?,
            until_us: row.get(5)?,
            allocated: row.get(6)?,
        })
    };
    found.query_map([job], read)?.collect()
}

/// The time of GPUs that the job was given on its hosts and that none of its recordings used.
fn unused_us(connection: &Connection, job: i64, facts: &[Fact]) -> Result<i64> {
    let mut given: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for fact in facts.iter().filter(|fact| !fact.allocated.is_empty()) {
        given.entry(&fact.host).or_default().extend(fact.allocated.split(' '));
    }
    if given.is_empty() {
        return Ok(0);
    }
    let used = used(connection, job)?;
    let unused = given.iter().map(|(&host, devices)| {
        let count = (devices.len() as i64 - used.get(host).copied().unwrap_or(0)).max(0);
        count.saturating_mul(span_us(facts, host))
    });
    Ok(unused.fold(0, i64::saturating_add))
}

/// The job's duration: the longest one on a host. Clocks of several hosts are never compared, since
/// nobody knows how far they are apart.
fn elapsed_us(facts: &[Fact]) -> i64 {
    let hosts: BTreeSet<&str> = facts.iter().map(|fact| fact.host.as_str()).gathered();
    hosts.into_iter().map(|host| span_us(facts, host)).max().unwrap_or(0)
}

/// The time from the first start to the last figures of a host's recordings, by the host's clock.
fn span_us(facts: &[Fact], host: &str) -> i64 {
    let of_host = || facts.iter().filter(|fact| fact.host == host);
    let (from, until) = (of_host().map(|fact| fact.from_us).min(), of_host().map(|fact| fact.until_us).max());
    (until.unwrap_or(0) - from.unwrap_or(0)).max(0)
}

/// Devices that a job used, by host.
fn used(connection: &Connection, job: i64) -> Result<BTreeMap<String, i64>> {
    let mut found = connection.prepare_cached(
        "SELECT host, count(DISTINCT place) FROM holds JOIN facts USING (job, recording) WHERE job = ?1 GROUP BY host",
    )?;
    found.query_map([job], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}
