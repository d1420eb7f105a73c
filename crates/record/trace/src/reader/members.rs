//! The members of a joined session ([`crate::joined`]): their hosts, and how their clocks are
//! moved.

use crate::joined::{is_joined, numbered};
use crate::reader::{Headers, Session};
use std::path::{Path, PathBuf};

/// Members of hosts with one name whose clocks differ by less are of one host, which has one clock.
const SAME_HOST_NS: u64 = 60_000_000_000;

/// A session within a joined one; of a session that is not joined, itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// Its number.
    pub number: usize,
    /// Its folder.
    pub dir: PathBuf,
    /// The name of the host on which it was recorded; empty if it is not known.
    pub host: String,
    /// Nanoseconds to add to its times on the monotonic clock.
    pub offset_ns: i64,
}

/// The members of the session in a folder, with their hosts and clocks.
pub fn members(dir: &Path) -> Vec<Member> {
    if !is_joined(dir) {
        return vec![Member { dir: dir.to_owned(), host: host(dir), ..Member::default() }];
    }
    let mut members: Vec<Member> = numbered(dir)
        .into_iter()
        .map(|(number, dir)| Member { number, host: host(&dir), dir, offset_ns: 0 })
        .collect();
    let bases: Vec<Option<i64>> =
        members.iter().map(|member| base_ns(&Headers::read_one(&member.dir).ok()?.session)).collect();
    let Some(first) = bases.iter().position(Option::is_some) else { return members };
    let (reference, host) = (bases[first].unwrap_or(0), members[first].host.clone());
    for (member, base) in members.iter_mut().zip(bases) {
        let offset = base.unwrap_or(reference).saturating_sub(reference);
        let is_same = member.host == host && offset.unsigned_abs() < SAME_HOST_NS;
        member.offset_ns = if is_same { 0 } else { offset };
    }
    members
}

/// The time of a session's host since 1970 at the zero of its monotonic clock.
fn base_ns(session: &Session) -> Option<i64> {
    let first = session.processes.iter().min_by_key(|process| process.start_real_ns)?;
    let real = i64::try_from(first.start_real_ns).ok()?;
    Some(real.saturating_sub(i64::try_from(first.clock.monotonic_ns(0)).ok()?))
}

#[cfg(feature = "meta")]
fn host(dir: &Path) -> String {
    crate::meta::Meta::load(dir)
        .ok()
        .and_then(|(meta, _)| meta)
        .map_or_else(String::new, |meta| meta.host.name)
}

#[cfg(not(feature = "meta"))]
fn host(_: &Path) -> String {
    String::new()
}
