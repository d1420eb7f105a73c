//! Stores an aggregate and adds its sums, once.

use super::packing::{packed, unpacked};
use super::schema::added_columns;
use super::{facts, holds};
use crate::health::Outcome;
use apex_aggregate::{Aggregate, shortened};
use rusqlite::{Connection, OptionalExtension, Result, ToSql, TransactionBehavior, params};
use std::sync::LazyLock;

/// Names of one kind (owners, kernels) of a tenant that get sums of their own; the sums of the
/// others are those of [`OTHER`].
pub const MOST_NAMES: u32 = 5000;
/// The name of what has no room.
const OTHER: &str = "(other)";

/// Nanoseconds of a day.
pub const DAY_NS: u64 = 86_400_000_000_000;
/// A message that begins longer before the hub's present has a wrong clock.
const OLDEST_NS: u64 = 730 * DAY_NS;

/// Statements that add to each part of a table.
struct Adding {
    job: String,
    day: String,
}

static ADDING: LazyLock<Adding> = LazyLock::new(|| {
    // The first ones are the parts and the energy.
    let columns = added_columns();
    let parts: String = columns
        .iter()
        .enumerate()
        .map(|(at, column)| format!(", {column} = {column} + ?{}", at + 1))
        .collect();
    let next = columns.len() + 1;
    let numbered = |offset: usize| next + offset;
    Adding {
        job: format!(
            "UPDATE jobs SET recordings = recordings + ?{}, running = running + ?{}, failed = failed + ?{},
             ranks = ranks + ?{}, launches = launches + ?{}, lost_records = lost_records + ?{},
             us_cpu_device = us_cpu_device + ?{}, us_shared = us_shared + ?{}{parts} WHERE id = ?{}",
            numbered(0),
            numbered(1),
            numbered(2),
            numbered(3),
            numbered(4),
            numbered(5),
            numbered(6),
            numbered(7),
            numbered(8),
        ),
        day: format!(
            "UPDATE days SET recordings = recordings + ?{}, us_shared = us_shared + ?{}{parts}
             WHERE tenant = ?{} AND day = ?{} AND owner = ?{}",
            numbered(0),
            numbered(1),
            numbered(2),
            numbered(3),
            numbered(4),
        ),
    }
});

/// The newest message of a recording.
struct Stored {
    id: i64,
    job: i64,
    sequence: i64,
    message: Vec<u8>,
}

/// Stores an aggregate of a tenant, unless a later one of its recording is there, and returns what
/// became of it with the sequence that is stored. The caller's transaction has to be rolled back if
/// this fails or refuses.
///
/// # Errors
/// Those of SQLite; a sum that exceeds 64 bits is one of a constraint.
pub fn ingest(
    connection: &Connection,
    tenant: &str,
    aggregate: &Aggregate,
    bytes: &[u8],
    now_ns: u64,
) -> Result<(Outcome, u64)> {
    let sequence = aggregate.sequence;
    if let Some(refused) = implausible(aggregate, now_ns) {
        return Ok((refused, sequence));
    }
    let tenant = tenant_id(connection, tenant)?;
    let stored = stored(connection, tenant, &aggregate.recording)?;
    match &stored {
        Some(stored) if stored.sequence >= sequence as i64 => {
            let outcome = if stored.sequence == sequence as i64 { Outcome::Repeated } else { Outcome::Older };
            return Ok((outcome, stored.sequence as u64));
        }
        // Its recording may have been removed, and its sums not.
        None if aggregate.as_of_ns < horizon(connection)? => {
            return Ok((Outcome::Past, sequence));
        }
        _ => {}
    }
    let job = job_id(connection, tenant, aggregate, now_ns)?;
    let (outcome, recording) = match &stored {
        Some(stored) if stored.job != job => return Ok((Outcome::OtherJob, sequence)),
        Some(stored) => {
            // It was checked when it was stored: only a damaged database cannot tell it.
            let before = unpacked(&stored.message).and_then(|before| Aggregate::parse(&before).ok());
            let Some(before) = before else { return Ok((Outcome::Failed, sequence)) };
            let of = Of { tenant, job, recording: stored.id };
            add(connection, &of, &before, -1)?;
            let mut update = connection.prepare_cached(
                "UPDATE recordings SET sequence = ?1, received_ns = ?2, message = ?3, host = ?4 WHERE id = ?5",
            )?;
            let host = &aggregate.host;
            update.execute(params![sequence as i64, now_ns as i64, packed(bytes), host, stored.id])?;
            (Outcome::Replaced, stored.id)
        }
        None => {
            let mut insert = connection.prepare_cached(
                "INSERT INTO recordings (tenant, key, job, sequence, received_ns, message, host)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?;
            let (key, host) = (&aggregate.recording, &aggregate.host);
            insert.execute(params![tenant, key, job, sequence as i64, now_ns as i64, packed(bytes), host])?;
            (Outcome::Added, connection.last_insert_rowid())
        }
    };
    add(connection, &Of { tenant, job, recording }, aggregate, 1)?;
    holds::keep(connection, tenant, job, recording, aggregate)?;
    facts::keep(connection, job, recording, aggregate)?;
    let unused = facts::settle(connection, job, aggregate)?;
    add_unused(connection, tenant, aggregate, unused)?;
    Ok((outcome, sequence))
}

/// Why a message's clock cannot be right by the hub's; `None` if it can. (A run may take months,
/// and a message may wait for weeks.)
fn implausible(of: &Aggregate, now_ns: u64) -> Option<Outcome> {
    let ended_ns = of.ended.map_or(0, |end| end.at_ns);
    let newest = of.started_ns.max(of.as_of_ns).max(ended_ns);
    match of.started_ns.min(of.as_of_ns) {
        _ if newest > now_ns.saturating_add(DAY_NS) => Some(Outcome::Future),
        oldest if oldest < now_ns.saturating_sub(OLDEST_NS) => Some(Outcome::Clock),
        _ => None,
    }
}

/// The moment before which recordings may have been removed, nanoseconds since 1970.
fn horizon(connection: &Connection) -> Result<u64> {
    let mut found = connection.prepare_cached("SELECT ns FROM horizon")?;
    let ns: Option<i64> = found.query_row([], |row| row.get(0)).optional()?;
    Ok(ns.map_or(0, i64::cast_unsigned))
}

/// Removes messages of recordings that nothing was heard of for `kept_days` and a day; sums stay.
/// From then on, a message of before `kept_days` is refused unless its recording is known: it may
/// have been counted already. (A message may be of a day after the moment at which it comes.)
/// Returns how many were removed, at most `most`.
///
/// # Errors
/// Those of SQLite.
pub fn remove_old(connection: &mut Connection, kept_days: u64, now_ns: u64, most: u32) -> Result<usize> {
    let horizon = now_ns.saturating_sub(kept_days * DAY_NS);
    let before = horizon.saturating_sub(DAY_NS);
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut found = transaction.prepare_cached(
        "SELECT id, job FROM recordings WHERE received_ns < ?1 ORDER BY received_ns LIMIT ?2",
    )?;
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let old: Vec<(i64, i64)> = found.query_map(params![before as i64, most], read)?.collect::<Result<_>>()?;
    drop(found);
    for (recording, job) in &old {
        for table in ["facts", "holds"] {
            let remove = format!("DELETE FROM {table} WHERE job = ?1 AND recording = ?2");
            transaction.prepare_cached(&remove)?.execute([job, recording])?;
        }
        transaction.prepare_cached("DELETE FROM recordings WHERE id = ?1")?.execute([recording])?;
    }
    let removed = old.len();
    if removed > 0 {
        transaction.execute(
            "INSERT INTO horizon (one, ns) VALUES (1, ?1) ON CONFLICT (one) DO UPDATE SET ns = max(ns, ?1)",
            [horizon as i64],
        )?;
    }
    transaction.commit()?;
    Ok(removed)
}

/// The row of a tenant. A hub without tokens has one tenant, which its first message makes.
fn tenant_id(connection: &Connection, tenant: &str) -> Result<i64> {
    let mut known = connection.prepare_cached("SELECT id FROM tenants WHERE name = ?1")?;
    if let Some(id) = known.query_row([tenant], |row| row.get(0)).optional()? {
        return Ok(id);
    }
    connection.execute("INSERT INTO tenants (name) VALUES (?1)", [tenant])?;
    Ok(connection.last_insert_rowid())
}

fn stored(connection: &Connection, tenant: i64, key: &str) -> Result<Option<Stored>> {
    let mut found = connection
        .prepare_cached("SELECT id, job, sequence, message FROM recordings WHERE tenant = ?1 AND key = ?2")?;
    let read = |row: &rusqlite::Row<'_>| {
        Ok(Stored { id: row.get(0)?, job: row.get(1)?, sequence: row.get(2)?, message: row.get(3)? })
    };
    found.query_row(params![tenant, key], read).optional()
}

/// The row of the aggregate's job, which gets what the aggregate says of it. ([`facts::settle`]
/// sets what depends on all recordings.)
fn job_id(connection: &Connection, tenant: i64, aggregate: &Aggregate, now_ns: u64) -> Result<i64> {
    let mut upsert = connection.prepare_cached(
        "INSERT INTO jobs (tenant, name, owner, command, code_version, launcher, devices, series, world,
                           started_ns, seen_ns, ended_ns)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, '', '', 0, ?7, ?8, ?9)
         ON CONFLICT (tenant, name) DO UPDATE SET
             code_version = excluded.code_version, launcher = excluded.launcher,
             started_ns = min(started_ns, excluded.started_ns),
             seen_ns = max(seen_ns, excluded.seen_ns), ended_ns = max(ended_ns, excluded.ended_ns)
         RETURNING id",
    )?;
    let values: [&dyn ToSql; 9] = [
        &tenant,
        &aggregate.job.id,
        &aggregate.owner,
        &shortened(&facts::command(aggregate)),
        &aggregate.code_version,
        &aggregate.job.launcher,
        &(aggregate.started_ns as i64),
        &(now_ns as i64),
        &(aggregate.ended.map_or(0, |end| end.at_ns) as i64),
    ];
    upsert.query_row(&values[..], |row| row.get(0))
}

/// A recording that is stored.
struct Of {
    tenant: i64,
    job: i64,
    recording: i64,
}

/// Adds the sums of an aggregate, or takes them back (`sign` -1).
fn add(connection: &Connection, stored: &Of, of: &Aggregate, sign: i64) -> Result<()> {
    let energy = of.energy();
    let added = of.times().parts().into_iter().chain([energy.mj, energy.metered_us, energy.idle_mj]);
    let added: Vec<i64> = added.map(|of| sign * of as i64).collect();
    let launches: u64 =
        of.kernels.listed.iter().chain([&of.kernels.others]).map(|kernel| kernel.launches).sum();
    let failed = of.ended.is_some_and(|end| !end.is_success());
    let shared = holds::shared(connection, stored.tenant, stored.job, stored.recording, of)?;
    let counts = [
        1,
        i64::from(of.ended.is_none()),
        i64::from(failed),
        of.ranks_held() as i64,
        launches as i64,
        of.lost_records as i64,
        of.cpu_device_times().held_us() as i64,
        shared.in_job,
    ]
    .map(|count| sign * count);
    let values = added.iter().chain(&counts).chain([&stored.job]);
    connection.prepare_cached(&ADDING.job)?.execute(rusqlite::params_from_iter(values))?;
    add_to_day(connection, stored.tenant, of, &added, [sign, sign * shared.in_all])?;
    // What the CPU device ran took no GPU time.
    if of.is_on_cpu() { Ok(()) } else { add_kernels(connection, stored.tenant, of, sign) }
}

/// Adds to the owner's day, the one on which the recording began: parts, energy, recordings and
/// shared time. (Triggers add the same to the sums of longer times.)
fn add_to_day(
    connection: &Connection,
    tenant: i64,
    of: &Aggregate,
    added: &[i64],
    [recordings, shared]: [i64; 2],
) -> Result<()> {
    let owner = admitted(connection, tenant, "owner", &of.owner)?;
    let day = (of.started_ns / DAY_NS) as i64;
    connection
        .prepare_cached("INSERT OR IGNORE INTO days (tenant, day, owner) VALUES (?1, ?2, ?3)")?
        .execute(params![tenant, day, owner])?;
    let mut values: Vec<&dyn ToSql> = added.iter().map(|of| of as &dyn ToSql).collect();
    values.extend([&recordings as &dyn ToSql, &shared, &tenant, &day, &owner]);
    connection.prepare_cached(&ADDING.day)?.execute(&values[..]).map(drop)
}

/// Adds the time of GPUs that were given and never used to the owner's day.
fn add_unused(connection: &Connection, tenant: i64, of: &Aggregate, us: i64) -> Result<()> {
    if us == 0 {
        return Ok(());
    }
    let owner = admitted(connection, tenant, "owner", &of.owner)?;
    let day = (of.started_ns / DAY_NS) as i64;
    let mut update = connection.prepare_cached(
        "UPDATE days SET us_unused = us_unused + ?1 WHERE tenant = ?2 AND day = ?3 AND owner = ?4",
    )?;
    update.execute(params![us, tenant, day, owner]).map(drop)
}

/// Adds to the week of each kernel.
fn add_kernels(connection: &Connection, tenant: i64, of: &Aggregate, sign: i64) -> Result<()> {
    let week = (of.started_ns / DAY_NS / 7) as i64;
    let mut upsert = connection.prepare_cached(
        "INSERT INTO kernels (tenant, week, name, launches, gpu_us) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT (tenant, week, name) DO UPDATE SET
             launches = launches + excluded.launches, gpu_us = gpu_us + excluded.gpu_us",
    )?;
    for kernel in of.kernels.listed.iter().chain([&of.kernels.others]) {
        if kernel.launches == 0 && kernel.gpu_us == 0 {
            continue;
        }
        let name = admitted(connection, tenant, "kernel", &kernel.name)?;
        let (launches, gpu_us) = (sign * kernel.launches as i64, sign * kernel.gpu_us as i64);
        upsert.execute(params![tenant, week, name, launches, gpu_us])?;
    }
    Ok(())
}

/// The name, if it has sums of its own. A name that was admitted once stays so, and one that was
/// not never is: what was added under a name is taken back from it.
fn admitted<'a>(connection: &Connection, tenant: i64, kind: &str, name: &'a str) -> Result<&'a str> {
    if name.is_empty() || name == OTHER {
        return Ok(OTHER);
    }
    let mut known =
        connection.prepare_cached("SELECT 1 FROM names WHERE tenant = ?1 AND kind = ?2 AND name = ?3")?;
    if known.exists(params![tenant, kind, name])? {
        return Ok(name);
    }
    let mut count =
        connection.prepare_cached("SELECT count(*) FROM names WHERE tenant = ?1 AND kind = ?2")?;
    if count.query_row(params![tenant, kind], |row| row.get::<_, u32>(0))? >= MOST_NAMES {
        return Ok(OTHER);
    }
    connection
        .prepare_cached("INSERT INTO names (tenant, kind, name) VALUES (?1, ?2, ?3)")?
        .execute(params![tenant, kind, name])?;
    Ok(name)
}
