//! `apex report --ranks`: the ranks of a job beside each other, and the one that they wait for.

use super::places::write as table_with_legend;
use crate::text::{Align, Ink, PARAGRAPH, Style, Table, wrap};
use crate::units;
use apex_profile::{Account, ByRank, IdleCause, Profile, RankRow};
use apex_view::Shown;
use apex_view::text::ranks::{first, matching};
use std::collections::BTreeSet;
use std::io::{self, Write};

/// The meaning of the headings.
const LEGEND: &str = "ᵐ measured, ᵖ predicted. Last: collectives to which the rank came last, which are those in which its time is \
    the shortest. Waits: its time beyond that. Waited for: the others' waiting in the collectives to which it came last. The \
    accounts between waiting and last are the GPU's idle time. No clocks are compared.";
/// Idle accounts that have a column.
const IDLE: usize = 3;
/// Minimum share of some rank's time for an idle account to have a column.
const LEAST: f64 = 0.01;

/// Writes the view of ranks.
pub fn write(out: &mut dyn Write, shown: &Shown<'_>, style: Style, width: usize) -> io::Result<()> {
    let profile: &Profile = &shown.job;
    let Some(by_rank) = profile.by_rank() else {
        return writeln!(
            out,
            "One process launched kernels: there are no ranks to compare. Record all ranks, or join their sessions with \
             `apex merge`."
        );
    };
    for line in wrap(&first(profile, &by_rank, shown.machine()), width.min(PARAGRAPH), "") {
        writeln!(out, "{}", style.paint(Ink::Bold, line))?;
    }
    for note in missing(profile, &by_rank).into_iter().chain([matching(&by_rank)]) {
        for line in wrap(&note, width.min(PARAGRAPH), "  ") {
            writeln!(out, "{}", style.paint(Ink::Dim, line))?;
        }
    }
    writeln!(out)?;
    let title = units::counted(by_rank.ranks.len() as u64, "rank", "ranks");
    table_with_legend(out, &title, &table(profile, &by_rank), LEGEND, style, width)
}

/// Says which part of the job was recorded, if not all of it, and what is not known of several
/// hosts.
fn missing(profile: &Profile, by_rank: &ByRank) -> Vec<String> {
    let recorded: BTreeSet<usize> = by_rank.ranks.iter().filter_map(|row| row.rank).collect();
    let part = by_rank.world_size.map(|world| (recorded.len(), world as usize));
    let part = part.filter(|(recorded, world)| recorded < world).map(|(recorded, world)| {
        format!("{recorded} of the job's {world} ranks were recorded: the late one may be another.")
    });
    let several = (hosts(profile).len() > 1).then(|| {
        "The ranks are of several hosts, whose clocks were not compared: nothing here depends on them."
            .to_owned()
    });
    part.into_iter().chain(several).collect()
}

fn hosts(profile: &Profile) -> BTreeSet<&str> {
    profile.processes.iter().filter_map(|process| process.host.as_deref()).collect()
}

fn table(profile: &Profile, by_rank: &ByRank) -> Table {
    let idle = idle_accounts(by_rank);
    let has_hosts = hosts(profile).len() > 1;
    // Of a row without its rank nobody knows what it is about: it is text, which is never left out.
    let mut columns = vec![("rank", Align::Left), ("process", Align::Optional)];
    columns.extend(has_hosts.then_some(("host", Align::Left)));
    columns.extend([("GPU", Align::Left), ("stepᵖ", Align::Optional), ("busyᵖ", Align::Right)]);
    columns.extend([("kernelsᵖ", Align::Optional), ("waitingᵖ", Align::Right)]);
    columns.extend(idle.iter().map(|&account| (heading(account), Align::Optional)));
    columns.extend([("lastᵐ", Align::Right), ("waitsᵐ", Align::Optional), ("waited forᵐ", Align::Right)]);
    let mut table = Table::new(&columns);
    let devices = profile.device_names();
    for row in &by_rank.ranks {
        let process = &profile.processes[row.process];
        let share = |account| units::share(row.accounts.time(account).value / row.accounts.span_ns.max(1.0));
        let mut cells = vec![row.rank.map_or("?".into(), |rank| rank.to_string()), process_of(row)];
        cells.extend(has_hosts.then(|| process.host.clone().unwrap_or_default()));
        cells.push(devices.cell(row.device));
        cells.push(row.step_ns.map_or(String::new(), |step| units::time(step.value)));
        cells.push(units::share(row.busy.value));
        cells.extend([share(Account::Kernels), share(Account::Waiting)]);
        cells.extend(idle.iter().map(|&account| share(account)));
        cells.extend([units::count(row.late), units::time(row.waited_ns), units::time(row.caused_ns)]);
        table.row(cells);
    }
    table
}

/// The heading of an idle account's column.
fn heading(account: Account) -> &'static str {
    match account {
        Account::Idle(IdleCause::Launching) => "launch callsᵖ",
        Account::Idle(IdleCause::Allocating) => "allocationᵖ",
        Account::Idle(IdleCause::Transferring) => "copy callsᵖ",
        Account::Idle(IdleCause::Synchronising) => "synchronisingᵖ",
        Account::Idle(IdleCause::Loading) => "loading codeᵖ",
        Account::Idle(IdleCause::Capturing) => "graph captureᵖ",
        Account::Idle(IdleCause::HostCode) => "host codeᵖ",
        _ => "other callsᵖ",
    }
}

/// The process as its host knows it.
fn process_of(row: &RankRow) -> String {
    apex_trace::own_pid(row.pid).to_string()
}

/// The idle accounts with most time on any rank.
fn idle_accounts(by_rank: &ByRank) -> Vec<Account> {
    let share = |account: Account| {
        let of = |row: &RankRow| row.accounts.time(account).value / row.accounts.span_ns.max(1.0);
        by_rank.ranks.iter().map(of).fold(0.0, f64::max)
    };
    let idle = Account::ALL.into_iter().filter(|account| matches!(account, Account::Idle(_)));
    let mut idle: Vec<Account> = idle.filter(|&account| share(account) >= LEAST).collect();
    idle.sort_by(|&a, &b| share(b).total_cmp(&share(a)));
    idle.truncate(IDLE);
    idle
}
