//! The rank that the others wait for is found from the collectives' times alone, with what it did
//! meanwhile, whatever the hosts' clocks say; what cannot be matched is counted.

use apex_host_stacks::{Doing, FrameKind, WaitsFor};
use apex_profile::{ByRank, LateCause, Matching, PhaseKind, Profile, Ranks};
use apex_trace::definition::{Context, Definition, Device, Range, Stream, StreamKind, Variable};
use apex_trace::layout::{ClockAnchor, FileHeader, RangeChange, Slots, flags};
use apex_trace::{JOINED_FILE, Session, member_dir};
use proptest::prelude::*;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::Path;
use tempfile::TempDir;
use test_session::{HostSampler, LEGACY, NON_BLOCKING, OnHost, Recording};

const MS: u64 = 1_000_000;
const REDUCE: &str = "_Z38ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE";
const GATHER: &str = "_Z32ncclDevKernel_AllGather_RING_LL24ncclDevKernelArgsStorageILm4096EE";
const SEND: &str = "_Z31ncclDevKernel_SendRecv24ncclDevKernelArgsStorageILm4096EE";

/// What a rank does in each step.
#[derive(Clone, Copy)]
struct Step {
    /// Time of its own kernel, and the kernel's blocks.
    kernel: (u64, u32),
    /// The host's own time before the launches.
    host_ns: u64,
    /// Time in the collective.
    collective_ns: u64,
}

const USUAL: Step = Step { kernel: (2 * MS, 132), host_ns: MS, collective_ns: 3 * MS };
const STEPS: u64 = 60;

/// A joined session in which each closure records a rank.
struct Job {
    dir: TempDir,
    ranks: usize,
}

impl Job {
    fn new() -> Job {
        let dir = TempDir::new().expect("a temporary directory");
        std::fs::write(dir.path().join(JOINED_FILE), "{}").expect("it can be written");
        Job { dir, ranks: 0 }
    }

    /// Records a rank of a world of this size; its folder.
    fn record(&mut self, world: u32, program: impl FnOnce(&mut Recording)) -> std::path::PathBuf {
        let folder = member_dir(self.dir.path(), self.ranks);
        std::fs::create_dir(&folder).expect("a new folder");
        let mut recording = Recording::new(&folder);
        let variables =
            [("RANK", self.ranks as u32), ("WORLD_SIZE", world), ("LOCAL_RANK", self.ranks as u32)];
        for ((name, value), id) in variables.into_iter().zip(1..) {
            let (name, value) = (name.to_owned(), value.to_string());
            recording.define(Definition::Variable(Variable { id, name, value }));
        }
        program(&mut recording);
        recording.exit();
        test_session::open(&folder);
        self.ranks += 1;
        folder
    }

    fn session(&self) -> Session {
        Session::open(self.dir.path()).expect("a session")
    }

    fn by_rank(&self) -> ByRank {
        let profile = Profile::from_session(&self.session());
        let part = profile.in_phase(PhaseKind::Steady).unwrap_or(profile);
        part.by_rank().expect("there are ranks")
    }
}

/// Steps of a kernel and a collective, for which the host waits. Returns the start of each.
fn steps(program: &mut Recording, step: Step) -> Vec<u64> {
    let [train, reduce] = ["train", REDUCE].map(|name| program.function(name));
    let train = program.config(train, step.kernel.1, 256);
    let reduce = program.config(reduce, 24, 544);
    let mut starts = Vec::new();
    for _ in 0..STEPS {
        starts.push(program.now);
        program.now += step.host_ns;
        program.timed(train, NON_BLOCKING, step.kernel.0);
        program.timed(reduce, NON_BLOCKING, step.collective_ns);
        program.synchronise(NON_BLOCKING, step.kernel.0 + step.collective_ns);
    }
    starts
}

/// Two ranks, of which the second has this step.
fn with_late(step: Step) -> Job {
    let mut job = Job::new();
    job.record(2, |program| drop(steps(program, USUAL)));
    job.record(2, |program| drop(steps(program, step)));
    job
}

fn cause(job: &Job) -> (Option<usize>, LateCause) {
    let by_rank = job.by_rank();
    let late = by_rank.late.as_ref().expect("a late rank");
    (by_rank.ranks[late.row].rank, late.cause)
}

#[test]
fn the_rank_with_the_shortest_times_is_late_and_its_cause_follows_from_its_accounts() {
    let late = Step { collective_ns: MS, ..USUAL };
    let host = with_late(Step { host_ns: 3 * MS, ..late });
    assert_eq!(cause(&host), (Some(1), LateCause::HostCode));
    let work = with_late(Step { kernel: (4 * MS, 264), ..late });
    assert_eq!(cause(&work), (Some(1), LateCause::MoreWork));
    let found = work.by_rank().late.unwrap();
    assert!((found.ratio.unwrap() - 2.0).abs() < 0.01, "{found:?}");
    let by_rank = host.by_rank();
    let found = by_rank.late.clone().unwrap();
    // Each collective takes 2 ms longer on the other rank.
    assert_eq!(found.waited_ns.value, found.last as f64 * 2.0 * MS as f64);
    assert_eq!((found.last, found.of), (by_rank.matching.matched, by_rank.matching.matched));
    assert_eq!((by_rank.world_size, by_rank.ranks.len()), (Some(2), 2));
    let rows: Vec<_> = by_rank.ranks.iter().map(|row| (row.rank, row.late, row.waited_ns > 0.0)).collect();
    assert_eq!(rows, [(Some(0), 0, true), (Some(1), found.last, false)]);
}

#[test]
fn more_work_is_the_cause_even_if_what_feeds_it_takes_longer_still() {
    // 2 ms more of kernels, and 4 ms more of the host's code.
    let late = Step { host_ns: 5 * MS, kernel: (4 * MS, 4 * 132), collective_ns: MS };
    let found = with_late(late).by_rank().late.expect("a late rank");
    assert_eq!((found.cause, found.also), (LateCause::MoreWork, Some(LateCause::HostCode)));
    let said = found.to_string();
    assert!(
        said.starts_with(
            "its kernels have more work (4.00 times as many threads as on the others), and its GPU spends 2"
        ),
        "{said}"
    );
    assert!(said.contains("ms more than the others' idle while its host runs code of its own"), "{said}");
    // Little more work, or kernels that take no longer for it, are not.
    for kernel in [(4 * MS, 140), (2 * MS, 4 * 132)] {
        let found = with_late(Step { kernel, ..late }).by_rank().late.expect("a late rank");
        assert_eq!((found.cause, found.also), (LateCause::HostCode, None), "{kernel:?}");
    }
}

/// Four ranks, of which the last comes last to 11 of 20 collectives and the one before to 9; the
/// last one's kernels have this time and these blocks.
fn two_of_four(kernel: (u64, u32)) -> ByRank {
    let mut job = Job::new();
    for rank in 0..4_u64 {
        job.record(4, |program| {
            let [train, reduce] = ["train", REDUCE].map(|name| program.function(name));
            let (ns, blocks) = if rank == 3 { kernel } else { USUAL.kernel };
            let train = program.config(train, blocks, 256);
            let reduce = program.config(reduce, 24, 544);
            for step in 0..STEPS {
                let last = if step % 20 < 11 { 3 } else { 2 };
                program.timed(train, NON_BLOCKING, ns);
                program.timed(reduce, NON_BLOCKING, if rank == last { MS } else { 3 * MS });
                program.synchronise(NON_BLOCKING, ns + 3 * MS);
            }
        });
    }
    Profile::from_session(&job.session()).by_rank().expect("there are ranks")
}

#[test]
fn a_rank_with_half_of_the_waiting_is_named_if_its_work_explains_that() {
    let found = two_of_four((4 * MS, 264));
    let late = found.late.as_ref().expect("a late rank");
    assert_eq!((found.ranks[late.row].rank, late.cause), (Some(3), LateCause::MoreWork));
    assert_eq!((late.last, late.of), (33, 60));
    // As many threads, or kernels that take hardly longer: they are late in turn.
    for kernel in [USUAL.kernel, (4 * MS, 132), (2 * MS + MS / 2, 264)] {
        assert_eq!(two_of_four(kernel).late, None, "{kernel:?}");
    }
}

/// The GPU of a rank in place of the one that all recordings share; a second one, with a stream, if
/// the rank uses that of another rank, too. Returns the stream.
fn own_gpu(program: &Recording, rank: u8, guest_of: Option<u8>) -> u32 {
    let device = |id, of: u8| {
        let (name, uuid) = ("NVIDIA H100".to_owned(), [of + 1; 16]);
        Definition::Device(Device { id, ordinal: of.into(), name, uuid, ..Device::default() })
    };
    program.define(device(1, rank));
    let (id, stream) = (2, 9);
    if let Some(of) = guest_of {
        program.define(device(id, of));
        program.define(Definition::Context(Context { id, handle: 0xd0, device: id, ..Context::default() }));
        let kind = StreamKind::NonBlocking;
        program.define(Definition::Stream(Stream { id: stream, handle: 9, context: id, kind }));
    }
    stream
}

const COPIED: u64 = 1 << 30;

/// Ranks whose last one copies to the GPU of the first in each step, if it does; the two are late
/// in turn. The last one has launched one kernel on the first one's GPU.
fn with_link(ranks: u8, copies: bool) -> ByRank {
    let profile = linked(ranks, copies).in_phase(PhaseKind::Steady).expect("they repeat");
    profile.by_rank().expect("there are ranks")
}

fn linked(ranks: u8, copies: bool) -> Profile {
    let mut job = Job::new();
    for rank in 0..ranks {
        let is_last = rank == ranks - 1;
        job.record(ranks.into(), |program| {
            let there = own_gpu(program, rank, is_last.then_some(0));
            let [fill, train, reduce] = ["fill", "train", REDUCE].map(|name| program.function(name));
            let train = program.config(train, 132, 256);
            let reduce = program.config(reduce, 24, 544);
            if is_last {
                let fill = program.config_in(fill, 1, 256, 2);
                program.timed(fill, there, MS);
            }
            for step in 0..STEPS {
                if is_last && copies {
                    program.copy_between_devices(NON_BLOCKING, COPIED, 3_000);
                }
                let late = if step % 2 == 0 { 0 } else { ranks - 1 };
                program.timed(train, NON_BLOCKING, MS);
                program.timed(reduce, NON_BLOCKING, if rank == late { MS } else { 3 * MS });
                program.synchronise(NON_BLOCKING, 4 * MS);
            }
        });
    }
    Profile::from_session(&job.session())
}

#[test]
fn a_context_on_another_ranks_gpu_is_no_gpu_of_the_accounts() {
    let mut job = linked(4, false);
    let (all, by_rank) = (job.accounts().span_ns, job.by_rank());
    assert_eq!((job.activities.len(), job.guest_uses().len()), (5, 1));
    job.leave_out_uses(&job.guest_uses());
    assert_eq!((job.activities.len(), job.guest_uses().len()), (4, 0));
    assert!(job.accounts().span_ns <= all && job.totals.span_ns <= all);
    assert_eq!(job.by_rank().map(|found| found.guests), by_rank.map(|found| found.guests));
    // What is left of nothing else stays.
    let only = job.activities.iter().map(|one| (one.process, one.device)).collect();
    job.leave_out_uses(&only);
    assert_eq!(job.activities.len(), 4);
}

#[test]
fn the_ends_of_a_link_are_what_the_others_wait_for() {
    let found = with_link(4, true);
    assert_eq!((found.late.clone(), found.processes(), found.ranks.len()), (None, 4, 4));
    let [link] = &found.links[..] else { panic!("{:?}", found.links) };
    let ranks = [Some(link.row), link.other].map(|row| found.ranks[row.unwrap()].rank);
    assert_eq!(ranks, [Some(3), Some(0)]);
    assert_eq!((link.bytes_per_step, link.waiting_share), (Some(COPIED as f64), Some(1.0)));
    assert_eq!(link.bytes, link.copies * COPIED);
    assert!(link.is_cause);
    let [guest] = &found.guests[..] else { panic!("{:?}", found.guests) };
    assert_eq!((guest.row, guest.of, guest.launches, guest.transfers), (3, 0, 1, 0));
}

#[test]
fn without_copies_or_a_third_rank_no_link_is_named() {
    let found = with_link(4, false);
    assert_eq!((found.late, found.links, found.guests.len()), (None, vec![], 1));
    // Of two ranks, both ends have all of the waiting whatever they do.
    let found = with_link(2, true);
    assert!(found.late.is_none() && !found.links[0].is_cause, "{:?}", found.links);
}

#[test]
fn input_is_told_from_other_host_code_by_the_samples() {
    const LOOP: OnHost<'_> = (FrameKind::Python, "main", "/home/me/train.py", 41);
    const NEXT: OnHost<'_> = (
        FrameKind::Python,
        "__next__",
        "/v/lib/python3.12/site-packages/torch/utils/data/dataloader.py",
        700,
    );
    const TOKENIZE: OnHost<'_> = (FrameKind::Python, "tokenize", "/home/me/text.py", 7);
    let waits = Doing::Waiting { syscall: None, r#for: WaitsFor::Ready };
    for (frames, doing, expected) in [
        (&[LOOP, NEXT][..], &waits, LateCause::Input),
        (&[LOOP, TOKENIZE], &Doing::Running, LateCause::HostCode),
    ] {
        let mut job = Job::new();
        job.record(2, |program| drop(steps(program, USUAL)));
        let late = Step { host_ns: 4 * MS, collective_ns: MS, ..USUAL };
        let mut starts = Vec::new();
        let folder = job.record(2, |program| starts = steps(program, late));
        let mut sampler = HostSampler::new(&folder, MS);
        let main = sampler.main;
        for start in starts {
            sampler.samples(main, (start, start + 4 * MS), frames, doing);
        }
        sampler.finish();
        let found = job.by_rank().late.expect("a late rank");
        assert_eq!(found.cause, expected);
        let place = found.place.expect("the host was sampled");
        assert!(
            place.contains(if expected == LateCause::Input { "dataloader" } else { "text.py:7" }),
            "{place}"
        );
    }
}

#[test]
fn ranks_that_arrive_together_or_in_turn_have_no_late_one() {
    assert_eq!(with_late(USUAL).by_rank().late, None);
    let matching = with_late(USUAL).by_rank().matching;
    assert_eq!(matching.together, matching.matched);
    assert!(matching.matched > 0);
    let mut job = Job::new();
    for rank in 0..2 {
        job.record(2, |program| {
            let reduce = program.function(REDUCE);
            let reduce = program.config(reduce, 24, 544);
            for step in 0..STEPS {
                let ns = if step % 2 == rank { MS } else { 3 * MS };
                program.timed(reduce, NON_BLOCKING, ns);
                program.synchronise(NON_BLOCKING, ns);
            }
        });
    }
    let by_rank = job.by_rank();
    assert_eq!(by_rank.late, None);
    assert!(by_rank.ranks.iter().all(|row| row.late > 0));
}

/// Launches collectives, each with whether it is timed.
fn collectives(program: &mut Recording, all: &[(&str, u32, bool)]) {
    let mut known: Vec<(&str, u32)> = Vec::new();
    for &(symbol, stream, is_timed) in all {
        let config = known.iter().find(|(name, _)| *name == symbol).map(|&(_, config)| config);
        let config = config.unwrap_or_else(|| {
            let function = program.function(symbol);
            known.push((symbol, program.config(function, 24, 544)));
            known[known.len() - 1].1
        });
        match is_timed {
            true => program.timed(config, stream, MS),
            false => drop(program.launch(config, stream)),
        }
        program.synchronise(stream, MS);
    }
}

fn matching_of(ranks: &[&[(&str, u32, bool)]]) -> Matching {
    let mut job = Job::new();
    for all in ranks {
        job.record(ranks.len() as u32, |program| collectives(program, all));
    }
    Profile::from_session(&job.session()).by_rank().expect("there are ranks").matching
}

#[test]
fn what_is_not_matched_is_counted_with_its_reason() {
    let (reduce, gather) = ((REDUCE, NON_BLOCKING, true), (GATHER, NON_BLOCKING, true));
    let untimed = (REDUCE, NON_BLOCKING, false);
    let none = Matching::default();
    let both = matching_of(&[&[reduce, gather, reduce], &[reduce, gather, reduce]]);
    assert_eq!(both, Matching { launched: 3, matched: 3, together: 3, ..none });
    let untimed = matching_of(&[&[reduce, untimed], &[reduce, reduce]]);
    assert_eq!(untimed, Matching { launched: 2, matched: 1, together: 1, untimed: 1, ..none });
    let cut = matching_of(&[&[reduce, reduce, reduce], &[reduce]]);
    assert_eq!(cut, Matching { launched: 3, matched: 1, together: 1, unmatched: 2, ..none });
    // After a difference, the numbers are not those of the same collectives.
    let different = matching_of(&[&[reduce, reduce, gather, gather], &[reduce, gather, gather, gather]]);
    assert_eq!(different, Matching { launched: 4, matched: 1, together: 1, ambiguous: 3, ..none });
    let send = (SEND, NON_BLOCKING, true);
    let others = matching_of(&[&[reduce, send], &[reduce, send]]);
    assert_eq!(others, Matching { launched: 2, matched: 1, together: 1, others: 1, ..none });
    let alone = matching_of(&[&[reduce, (REDUCE, LEGACY, true)], &[reduce]]);
    assert_eq!(alone, Matching { launched: 2, matched: 1, together: 1, alone: 1, ..none });
}

/// A collective of a communicator that NCCL identifies.
fn of_communicator(program: &mut Recording, config: u32, stream: u32, communicator: u64, ns: u64) {
    let now = program.now;
    let begins = RangeChange::head(flags::RANGE_BEGUN, now, now);
    program.write(&RangeChange { head: begins, range: 1, changed: 1, instance: communicator });
    program.timed(config, stream, ns);
    let ends = RangeChange::head(flags::RANGE_ENDED, program.now, program.now);
    program.write(&RangeChange { head: ends, range: 0, changed: 1, instance: 0 });
    program.synchronise(stream, ns);
}

#[test]
fn ranks_of_different_communicators_do_not_wait_for_each_other() {
    // Ranks 0 and 1 form one group, 2 and 3 another one; all use the same stream. Of the second
    // group all times are shorter than of the first.
    let mut job = Job::new();
    for (communicator, ns) in [(7, 3 * MS), (7, 5 * MS), (9, MS), (9, 2 * MS)] {
        job.record(4, |program| {
            let reduce = program.function(REDUCE);
            let reduce = program.config(reduce, 24, 544);
            (0..20).for_each(|_| of_communicator(program, reduce, NON_BLOCKING, communicator, ns));
        });
    }
    let by_rank = Profile::from_session(&job.session()).by_rank().expect("there are ranks");
    let late: Vec<u64> = by_rank.ranks.iter().map(|row| row.late).collect();
    assert_eq!(late, [20, 0, 20, 0]);
    let groups: Vec<_> =
        by_rank.communicators.iter().map(|one| (one.id.as_deref(), one.ranks.clone(), one.matched)).collect();
    let expected = [(Some("0000000000000007"), vec![0, 1], 20), (Some("0000000000000009"), vec![2, 3], 20)];
    assert_eq!(groups, expected);
}

/// A group of calls of NCCL in the communicator 7 that ends in a kernel of sends and receives.
fn exchange(program: &mut Recording, config: u32, calls: &[u32], ns: u64) {
    for &changed in calls {
        for (flag, range, instance) in [(flags::RANGE_BEGUN, changed, 7), (flags::RANGE_ENDED, 0, 0)] {
            let head = RangeChange::head(flag, program.now, program.now);
            program.write(&RangeChange { head, range, changed, instance });
        }
    }
    program.timed(config, NON_BLOCKING, ns);
    program.synchronise(NON_BLOCKING, ns);
}

/// Three ranks, of which the last comes last to 20 kernels of these calls of NCCL.
fn exchanges(calls: &[&str]) -> ByRank {
    let mut job = Job::new();
    for ns in [3 * MS, 3 * MS, MS] {
        job.record(3, |program| {
            let named = ["ncclSend", "ncclRecv", "ncclAlltoAll"];
            for (name, id) in named.into_iter().zip(1..) {
                let (domain, name) = ("NCCL".to_owned(), name.to_owned());
                program.define(Definition::Range(Range { id, parent: 0, domain, name }));
            }
            let calls: Vec<u32> = calls
                .iter()
                .flat_map(|call| named.iter().zip(1..).find(|(name, _)| *name == call))
                .map(|(_, id)| id)
                .collect();
            let send = program.function(SEND);
            let send = program.config(send, 24, 544);
            (0..20).for_each(|_| exchange(program, send, &calls, ns));
        });
    }
    Profile::from_session(&job.session()).by_rank().expect("there are ranks")
}

#[test]
fn sends_and_receives_with_all_others_are_an_all_to_all() {
    const BOTH: [&str; 4] = ["ncclSend", "ncclRecv", "ncclSend", "ncclRecv"];
    for calls in [&BOTH[..], &["ncclAlltoAll"]] {
        let found = exchanges(calls);
        assert_eq!(found.matching, Matching { launched: 20, matched: 20, ..Matching::default() });
        let late = found.late.expect("a late rank");
        assert_eq!((found.ranks[late.row].rank, late.last), (Some(2), 20));
        assert_eq!(found.communicators[0].id.as_deref(), Some("0000000000000007"));
    }
    for calls in [&BOTH[..2], &["ncclSend", "ncclSend"], &[]] {
        let found = exchanges(calls);
        assert_eq!(found.matching, Matching { launched: 20, others: 20, ..Matching::default() });
        assert_eq!(found.late, None);
    }
}

#[test]
fn nobody_is_late_for_whom_the_others_hardly_wait() {
    let usual = Step { host_ns: 60 * MS, ..USUAL };
    for (collective_ns, is_late) in [(2 * MS, true), (2_700_000, false)] {
        let mut job = Job::new();
        job.record(2, |program| drop(steps(program, usual)));
        job.record(2, |program| drop(steps(program, Step { collective_ns, ..usual })));
        let found = job.by_rank();
        assert_eq!(found.ranks[1].late, found.matching.matched);
        assert_eq!(found.late.is_some(), is_late);
    }
}

#[test]
fn a_process_of_a_member_has_the_rank_that_its_launcher_gave_it() {
    let mut job = Job::new();
    (0..3).for_each(|_| drop(job.record(3, |program| collectives(program, &[(REDUCE, LEGACY, true)]))));
    let session = job.session();
    // All were recorded by this process.
    let pids: Vec<u32> = session.processes.iter().map(|process| apex_trace::own_pid(process.pid)).collect();
    assert_eq!(pids, [std::process::id(); 3]);
    let ranks: Vec<_> = Ranks::of(&session).iter().collect();
    assert_eq!(ranks, [0, 1, 2].map(|rank| (rank, apex_trace::session_pid(rank, std::process::id()))));
    let profile = Profile::from_session(&session);
    let told: Vec<_> = profile.processes.iter().map(|process| process.launcher.clone().unwrap()).collect();
    assert!(told.iter().all(|one| one.name == "environment" && one.world_size == Some(3)), "{told:?}");
}

#[test]
fn another_hosts_clock_changes_nothing() {
    let late = Step { host_ns: 3 * MS, collective_ns: MS, ..USUAL };
    let job = with_late(late);
    let here = job.by_rank();
    for (number, name) in [(0, "one"), (1, "two")] {
        host(&member_dir(job.dir.path(), number), name);
    }
    started_an_hour_later(&job.session().processes[1].file);
    let apart = job.by_rank();
    assert_eq!((apart.matching, apart.late), (here.matching, here.late));
    let session = job.session();
    let hosts: Vec<_> = session.processes.iter().map(|process| session.host_of(process.pid)).collect();
    assert_eq!(hosts, [Some("one"), Some("two")]);
    let apart = |clock: fn(&apex_trace::Process) -> u64| {
        clock(&session.processes[0]).abs_diff(clock(&session.processes[1]))
    };
    let on_the_calendar = apart(|process| process.start_real_ns);
    assert_eq!(apart(|process| process.clock.monotonic_ns(0)), on_the_calendar, "moved");
    let offset = session.members[1].offset_ns;
    assert!((-3_601_000_000_000..-3_599_000_000_000).contains(&offset), "{offset}");
}

/// Moves the monotonic clock of a process's host.
fn started_an_hour_later(process_file: &Path) {
    let at = offset_of!(FileHeader, start) + offset_of!(ClockAnchor, monotonic_ns);
    let mut options = std::fs::OpenOptions::new();
    let file = options.read(true).write(true).open(process_file).expect("a file");
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, at as u64).expect("a header");
    let later = u64::from_le_bytes(bytes) + 3_600_000_000_000;
    file.write_all_at(&later.to_le_bytes(), at as u64).expect("it can be changed");
}

/// Says on which host a member was recorded.
fn host(member: &Path, name: &str) {
    let meta = format!(
        r#"{{"schema":1,"apex_version":"0.1.0","command":[],"cwd":"/","started_real_ns":0,"ended_real_ns":1,
            "exit":{{"code":0}},"device":"gpu","timing":"all","host":{{"name":"{name}"}}}}"#
    );
    std::fs::write(member.join("session.json"), meta).expect("it can be written");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]
    /// Each collective is counted once, and what is matched is what each rank has.
    #[test]
    fn nothing_is_lost_in_matching(kinds in prop::collection::vec((0..3usize, any::<bool>()), 1..12), cut in 0..12usize) {
        let all: Vec<_> = kinds
            .iter()
            .map(|&(kind, timed)| ([REDUCE, GATHER, SEND][kind], NON_BLOCKING, timed))
            .collect();
        let part = &all[..all.len() - cut.min(all.len() - 1)];
        let matching = matching_of(&[&all, part]);
        let Matching { launched, matched, untimed, alone, unmatched, ambiguous, others, .. } = matching;
        prop_assert_eq!(launched, all.len() as u64);
        prop_assert_eq!(matched + untimed + alone + unmatched + ambiguous + others, launched);
        let expected = part.iter().filter(|&&(symbol, _, timed)| timed && symbol != SEND).count();
        prop_assert_eq!(matched, expected as u64);
    }
}
