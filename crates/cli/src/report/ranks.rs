//! `apex report --ranks`: the ranks of a job beside each other, and the one that they wait for.

use super::places::write as table_with_legend;
use crate::text::{Align, Ink, PARAGRAPH, Style, Table, wrap};
use crate::units;
use apex_ordered::{Gather, Order};
use apex_profile::{Account, ByRank, IdleCause, LaunchedRank, Profile, RankRow};
use apex_view::Shown;
use apex_view::text::ranks::{first, matching, on_other_gpus, two_figures};
use std::collections::BTreeSet;
use std::io::{self, Write};

/// The meaning of the headings.
const LEGEND: &str = "ᵐ measured, ᵖ predicted. Waiting: the share of the time in which the GPU does nothing but wait in collectives. \
    The accounts between that and last are its idle time. Last: compared collectives to which the rank came last, which are those \
    in which its time is the shortest. Waits: its time beyond that in them, also while kernels run beside. Waited for: the others' \
    waiting in the collectives to which it came last. No clocks are compared.";
/// What is missing where ranks were chosen.
const CHOSEN: &str = "Only the ranks that --rank names are compared: the late one may be another.";
/// Idle accounts that have a column.
const IDLE: usize = 3;
/// Minimum share of some rank's time for an idle account to have a column.
const LEAST: f64 = 0.01;

/// Writes the view of ranks.
pub fn write(out: &mut dyn Write, shown: &Shown<'_>, style: Style, width: usize) -> io::Result<()> {
    let profile: &Profile = &shown.job;
    let Some(by_rank) = profile.by_rank() else {
        let who = match profile.processes.iter().filter(|process| process.launches > 0).count() {
            0 => "No process",
            _ => "One process",
        };
        return writeln!(
            out,
            "{who} launched kernels: there are no ranks to compare. Record all ranks, or join their sessions with \
             `apex merge`."
        );
    };
    for line in wrap(&first(profile, &by_rank, shown.machine()), width.min(PARAGRAPH), "") {
        writeln!(out, "{}", style.paint(Ink::Bold, line))?;
    }
    // Without collectives, the first line says so.
    let matching = (by_rank.matching.launched > 0).then(|| matching(&by_rank));
    let others = on_other_gpus(profile, &by_rank);
    let notes = notes(shown, profile, &by_rank);
    for note in notes.into_iter().chain(others).chain(matching) {
        for line in wrap(&note, width.min(PARAGRAPH), "  ") {
            writeln!(out, "{}", style.paint(Ink::Dim, line))?;
        }
    }
    writeln!(out)?;
    let count = by_rank.processes() as u64;
    let title = match unranked(profile, &by_rank) {
        Some(_) => units::counted(count, "process", "processes"),
        None => units::counted(count, "rank", "ranks"),
    };
    table_with_legend(out, &title, &table(profile, &by_rank), LEGEND, style, width)
}

/// What a reader must know of the ranks: which of them are missing, or not what their launcher said.
fn notes(shown: &Shown<'_>, profile: &Profile, by_rank: &ByRank) -> Vec<String> {
    let several = (hosts(profile).len() > 1).then(|| {
        "The ranks are of several hosts, whose clocks were not compared: nothing here depends on them."
            .to_owned()
    });
    let missing = match shown.is_of_chosen_ranks() {
        true => Some(CHOSEN.to_owned()),
        false => missing(by_rank),
    };
    [
        two_figures(by_rank),
        missing,
        unranked(profile, by_rank),
        other_sizes(profile, by_rank),
        other_numbers(profile, by_rank),
        several,
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Which part of the job was recorded, if not all of it.
fn missing(by_rank: &ByRank) -> Option<String> {
    let recorded: BTreeSet<usize> = by_rank.ranks.iter().filter_map(|row| row.rank).gathered();
    let world = by_rank.world_size.filter(|&world| recorded.len() < world as usize)?;
    Some(format!("{} of the job's {world} ranks were recorded: the late one may be another.", recorded.len()))
}

/// What launchers told the processes of the ranks.
fn told<'p>(
    profile: &'p Profile,
    by_rank: &'p ByRank,
) -> impl Iterator<Item = (&'p RankRow, &'p LaunchedRank)> {
    let rows = by_rank.ranks.iter();
    rows.filter_map(|row| Some((row, profile.processes[row.process].launcher.as_ref()?)))
}

/// Says if a launcher told the ranks of some processes alone: then all are numbered anew, and are
/// more than the launcher's.
fn unranked(profile: &Profile, by_rank: &ByRank) -> Option<String> {
    let told: BTreeSet<usize> = told(profile, by_rank).map(|(row, _)| row.process).gathered();
    let others = by_rank.processes().saturating_sub(told.len());
    (!told.is_empty() && others > 0).then(|| {
        format!(
            "{} of the {} have a rank of a launcher, the others do not: the numbers follow the process identifiers.",
            told.len(),
            units::counted(by_rank.processes() as u64, "process", "processes"),
        )
    })
}

/// Says if the processes are of jobs of several sizes.
fn other_sizes(profile: &Profile, by_rank: &ByRank) -> Option<String> {
    let sizes = told(profile, by_rank).filter_map(|(_, launcher)| launcher.world_size);
    let sizes: BTreeSet<u32> = sizes.gathered();
    let shown: Vec<String> = sizes.iter().map(ToString::to_string).collect();
    (sizes.len() > 1).then(|| {
        format!(
            "The ranks are of jobs of different sizes ({} processes): they may be of different runs.",
            shown.join(" and ")
        )
    })
}

/// Says if ranks have other numbers than their launcher gave them, with an example.
fn other_numbers(profile: &Profile, by_rank: &ByRank) -> Option<String> {
    let (row, launcher) = told(profile, by_rank)
        .find(|(row, launcher)| row.rank.is_some_and(|rank| rank != launcher.rank as usize))?;
    Some(format!(
        "The numbers follow the process identifiers, because several processes have the same rank, or some have none: \
         process {} is rank {} of its launcher.",
        process_of(row),
        launcher.rank
    ))
}

/// The number of a rank. A process that was restarted has its launcher's, and is none of the ranks.
fn number_of(profile: &Profile, row: &RankRow) -> String {
    let launcher = profile.processes[row.process].launcher.as_ref();
    match (row.rank, launcher) {
        (Some(rank), _) => rank.to_string(),
        (None, Some(launcher)) => format!("{}, restarted", launcher.rank),
        (None, None) => "?".to_owned(),
    }
}

fn hosts(profile: &Profile) -> BTreeSet<&str> {
    profile.processes.iter().filter_map(|process| process.host.as_deref()).gathered()
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
        let mut cells = vec![number_of(profile, row), process_of(row)];
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
        Account::Idle(IdleCause::Unrecorded) => "cause unknownᵖ",
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
    idle.order_by(|&a, &b| share(b).total_cmp(&share(a)));
    idle.truncate(IDLE);
    idle
}
