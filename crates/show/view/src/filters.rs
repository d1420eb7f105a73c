//! The filters that select a part of a session.

use crate::Error;
use apex_profile::units;
use apex_profile::{KernelPattern, PhaseKind, Profile, Ranks, Selection, origin_ns};
use apex_trace::{Session, own_pid};
use serde::Serialize;
use std::collections::BTreeSet;
use std::ops::Range;
use std::str::FromStr;

/// The part of a session that is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filters {
    /// The phase of the run; `None` for the steady state where the session has one, unless there is
    /// a window.
    pub phase: Option<Phase>,
    /// Kernels that any of these names; all kernels if empty.
    pub kernels: Vec<KernelPattern>,
    /// Calls that began in this span, nanoseconds since the session's start.
    pub window: Option<Range<u64>>,
    /// Ranks, or identifiers of processes; all processes if empty.
    pub ranks: Vec<u32>,
}

/// A part of a program's run, found from the repetition of its launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Before the first iteration.
    Startup,
    /// First iterations, slower than later ones.
    Warmup,
    /// Iterations.
    Steady,
    /// The whole run.
    All,
}

impl Phase {
    /// All phases, in the order of the run.
    pub const ALL: [Self; 4] = [Self::Startup, Self::Warmup, Self::Steady, Self::All];

    /// Its name as a value of `--phase`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Warmup => "warmup",
            Self::Steady => "steady",
            Self::All => "all",
        }
    }
}

impl FromStr for Phase {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let phase = Self::ALL.into_iter().find(|phase| phase.name() == text);
        phase.ok_or_else(|| format!("use {}", Self::ALL.map(Self::name).join(", ")))
    }
}

/// The filters of a document.
#[derive(Serialize)]
pub struct Applied<'a> {
    /// The phase; `null` for all of the run, or of the window.
    phase: Option<PhaseKind>,
    /// Names and expressions, as they were given.
    kernels: Vec<&'a str>,
    window_ns: Option<Window>,
    /// Ranks, or identifiers of processes, as they were given.
    ranks: &'a [u32],
}

/// A span of a session's time, nanoseconds after its start.
#[derive(Serialize)]
struct Window {
    from: u64,
    /// `null`: the session's end.
    to: Option<u64>,
}

impl Filters {
    /// Filters that are given in words, as options would have them.
    ///
    /// # Errors
    /// Says which word makes no sense.
    pub fn of_words(
        phase: Option<&str>,
        kernels: &[String],
        window: Option<&str>,
        ranks: Option<&str>,
    ) -> Result<Self, String> {
        let phase = phase.map(|phase| phase.parse().map_err(|error| format!("phase: {error}")));
        let kernels = kernels.iter().map(|kernel| kernel.parse().map_err(|error| format!("kernel: {error}")));
        let window =
            window.map(|window| units::parse_window(window).map_err(|error| format!("window: {error}")));
        let ranks = ranks.into_iter().flat_map(|ranks| ranks.split(','));
        let ranks =
            ranks.map(|rank| rank.parse().map_err(|_| "rank: use numbers with commas between".to_owned()));
        Ok(Self {
            phase: phase.transpose()?,
            kernels: kernels.collect::<Result<_, _>>()?,
            window: window.transpose()?,
            ranks: ranks.collect::<Result<_, _>>()?,
        })
    }

    /// The filters for a document about this phase.
    pub(crate) fn applied(&self, phase: Option<PhaseKind>) -> Applied<'_> {
        let to = |end| if end == u64::MAX { None } else { Some(end) };
        let window = |window: &Range<u64>| Window { from: window.start, to: to(window.end) };
        Applied {
            phase,
            kernels: self.kernels.iter().map(KernelPattern::text).collect(),
            window_ns: self.window.as_ref().map(window),
            ranks: &self.ranks,
        }
    }

    /// Part of a session that is to be read.
    ///
    /// # Errors
    /// If it has no such rank.
    pub(crate) fn selection(&self, session: &Session) -> Result<Selection, Error> {
        let known = Ranks::of(session);
        let process = |&rank: &u32| {
            process_of(&known, rank).map_err(|why| Error::Empty(format!("--rank {rank}: {why}")))
        };
        let wanted: BTreeSet<u32> = self.ranks.iter().map(process).collect::<Result<_, _>>()?;
        let processes = Some(wanted).filter(|wanted| !wanted.is_empty());
        Ok(Selection { window: self.window.clone(), processes })
    }

    /// Refuses a window in which nothing began.
    ///
    /// # Errors
    /// Says what the session's time is.
    pub(crate) fn check_window(&self, session: &Session, profile: &Profile) -> Result<(), Error> {
        let Some(window) = self.window.clone() else { return Ok(()) };
        if profile.totals.kernels_run() > 0 || !profile.calls.is_empty() || !profile.activities.is_empty() {
            return Ok(());
        }
        let origin = origin_ns(session);
        let time =
            |process: &apex_trace::Process, ticks| process.clock.monotonic_ns(ticks).saturating_sub(origin);
        let spans = session.processes.iter().filter_map(|process| {
            let (first, last) = process.span?;
            Some((time(process, first), time(process, last)))
        });
        let (first, last) = spans.fold((u64::MAX, 0), |(a, b), (first, last)| (a.min(first), b.max(last)));
        if first > last {
            return Ok(());
        }
        let [first, last] = [first, last].map(|ns| units::time(ns as f64));
        Err(Error::Empty(format!(
            "--window {}: no call began in it; the calls of the session began between {first} and {last}",
            shown_window(&window)
        )))
    }
}

/// The process of a number: of a rank, or else of a process identifier, either the host's (which
/// reports show) or the session's (which JSON has).
///
/// # Errors
/// If there is no such process, with the ranks that there are; if several hosts have this
/// identifier, with the ranks of their processes.
fn process_of(known: &Ranks, number: u32) -> Result<u32, String> {
    if let Some(process) = known.process(number as usize) {
        return Ok(process);
    }
    let on_hosts: Vec<(usize, u32)> = known.iter().filter(|&(_, pid)| own_pid(pid) == number).collect();
    match on_hosts[..] {
        [(_, process)] => Ok(process),
        [] => known.of_process(number).map(|_| number).ok_or_else(|| which_ranks(known)),
        _ => {
            let ranks: Vec<String> = on_hosts.iter().map(|(rank, _)| rank.to_string()).collect();
            Err(format!("several hosts have a process {number}: name a rank instead, {}", ranks.join(" or ")))
        }
    }
}

/// Process identifiers are those that reports show.
fn which_ranks(known: &Ranks) -> String {
    let (ranks, pids): (Vec<usize>, Vec<String>) =
        known.iter().map(|(rank, pid)| (rank, own_pid(pid).to_string())).unzip();
    match ranks[..] {
        [] => "no process of the session launched a kernel".to_owned(),
        [one] => format!("the session has one rank, {one} (process {})", pids[0]),
        [first, .., last] if last - first + 1 == ranks.len() => {
            format!("the session has the ranks {first} to {last} (processes {})", pids.join(", "))
        }
        _ => {
            let ranks: Vec<String> = ranks.iter().map(ToString::to_string).collect();
            format!("the session has the ranks {} (processes {})", ranks.join(", "), pids.join(", "))
        }
    }
}

pub(crate) fn shown_window(window: &Range<u64>) -> String {
    let end = |ns: u64| units::time(ns as f64);
    let to = if window.end == u64::MAX { String::new() } else { end(window.end) };
    format!("{}..{to}", end(window.start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use apex_trace::session_pid;
    use test_session::{LEGACY, Recording};

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|&word| word.to_owned()).collect()
    }

    /// Reads a session of processes that each launch a kernel `launches` times, 1 ms apart.
    fn with_session<T>(launches: &[u32], read: impl FnOnce(Session) -> T) -> T {
        let dir = tempfile::TempDir::new().expect("a temporary directory");
        for &count in launches {
            let mut program = Recording::new(dir.path());
            let function = program.function("_Z7forwardPf");
            let config = program.config(function, 100, 128);
            for _ in 0..count {
                program.timed(config, LEGACY, 10_000);
                program.now += 1_000_000;
            }
            program.exit();
        }
        read(test_session::open(&dir))
    }

    #[test]
    fn phases_are_parsed_by_the_names_that_they_have() {
        let names = Phase::ALL.map(Phase::name);
        assert_eq!(names, ["startup", "warmup", "steady", "all"]);
        for phase in Phase::ALL {
            assert_eq!(phase.name().parse(), Ok(phase));
        }
        for text in ["", "Steady", "start-up", "steady "] {
            assert_eq!(text.parse::<Phase>(), Err("use startup, warmup, steady, all".to_owned()), "{text}");
        }
    }

    #[test]
    fn words_become_filters_each_in_its_place() {
        let none = Filters::of_words(None, &[], None, None);
        assert_eq!(none, Ok(Filters::default()));
        let all = Filters::of_words(
            Some("warmup"),
            &words(&["gemm*", "regex:a|b"]),
            Some("1ms..2ms"),
            Some("0,3,4711"),
        )
        .expect("all are right");
        assert_eq!(all.phase, Some(Phase::Warmup));
        assert_eq!(all.kernels.iter().map(KernelPattern::text).collect::<Vec<_>>(), ["gemm*", "regex:a|b"]);
        assert_eq!((all.window, all.ranks), (Some(1_000_000..2_000_000), vec![0, 3, 4711]));
    }

    #[test]
    fn a_wrong_word_is_named_with_what_is_right() {
        let wrong = |phase, kernel: &[&str], window, ranks| {
            Filters::of_words(phase, &words(kernel), window, ranks).expect_err("it is wrong")
        };
        assert_eq!(wrong(Some("middle"), &[], None, None), "phase: use startup, warmup, steady, all");
        assert!(wrong(None, &["regex:("], None, None).starts_with("kernel: "));
        assert!(wrong(None, &[], Some("2..1"), None).starts_with("window: "));
        for ranks in ["", "0,", "one", "-1", "0 1"] {
            assert_eq!(
                wrong(None, &[], None, Some(ranks)),
                "rank: use numbers with commas between",
                "{ranks}"
            );
        }
    }

    #[test]
    fn a_document_says_what_was_asked_for() {
        let of = |filters: &Filters, phase| serde_json::to_value(filters.applied(phase)).expect("plain data");
        assert_eq!(
            of(&Filters::default(), None),
            serde_json::json!({ "phase": null, "kernels": [], "window_ns": null, "ranks": [] })
        );
        let filters =
            Filters::of_words(None, &words(&["a", "b"]), Some("5ns..7ns"), Some("1,2")).expect("right");
        assert_eq!(
            of(&filters, Some(PhaseKind::Steady)),
            serde_json::json!({
                "phase": "steady", "kernels": ["a", "b"], "window_ns": { "from": 5, "to": 7 }, "ranks": [1, 2]
            })
        );
        let open = Filters { window: Some(5..u64::MAX), ..Filters::default() };
        assert_eq!(of(&open, None)["window_ns"], serde_json::json!({ "from": 5, "to": null }));
    }

    #[test]
    fn ranks_select_processes_by_place_or_identifier() {
        with_session(&[1, 2], |mut session| {
            // This process recorded both.
            session.processes[1].pid += 1;
            let session = &session;
            let pids: Vec<u32> = Ranks::of(session).iter().map(|(_, pid)| pid).collect();
            assert_eq!(pids.len(), 2);
            let selected = |wanted: &[u32]| {
                Filters { ranks: wanted.to_vec(), window: Some(1..9), ..Filters::default() }
                    .selection(session)
            };
            let processes = |wanted: &[u32]| selected(wanted).expect("there are such ranks").processes;
            assert_eq!(processes(&[]), None);
            assert_eq!(processes(&[1]), Some([pids[1]].into()));
            assert_eq!(processes(&[1, 0]), Some(pids.iter().copied().collect()));
            assert_eq!(processes(&[pids[0]]), Some([pids[0]].into()));
            assert_eq!(selected(&[]).expect("all").window, Some(1..9));
            let Err(Error::Empty(why)) = selected(&[0, 2]) else { panic!("there is no rank 2") };
            let expected =
                format!("--rank 2: the session has the ranks 0 to 1 (processes {}, {})", pids[0], pids[1]);
            assert_eq!(why, expected);
        });
        // Sessions of two hosts, which gave the first processes the same identifier.
        let [one, same, other] = [(0, 7), (1, 7), (1, 9)].map(|(number, pid)| session_pid(number, pid));
        let joined = Ranks::in_order([one, same, other]);
        assert_eq!([process_of(&joined, 9), process_of(&joined, same)], [Ok(other), Ok(same)]);
        assert_eq!(
            process_of(&joined, 7),
            Err("several hosts have a process 7: name a rank instead, 0 or 1".to_owned())
        );
        assert_eq!(
            process_of(&joined, 8),
            Err("the session has the ranks 0 to 2 (processes 7, 7, 9)".to_owned())
        );
        assert_eq!(which_ranks(&Ranks::default()), "no process of the session launched a kernel");
        assert_eq!(which_ranks(&Ranks::in_order([7])), "the session has one rank, 0 (process 7)");
    }

    #[test]
    fn a_window_in_which_nothing_began_is_refused_with_the_sessions_time() {
        with_session(&[5], |session| {
            let session = &session;
            let read = |window: Range<u64>| {
                let filters = Filters { window: Some(window), ..Filters::default() };
                let selection = filters.selection(session).expect("all ranks");
                filters.check_window(session, &Profile::of_selection(session, &selection))
            };
            assert!(read(0..u64::MAX).is_ok());
            let Err(Error::Empty(why)) = read(60_000_000_000..61_000_000_000) else {
                panic!("nothing began")
            };
            assert!(
                why.starts_with(
                    "--window 60.0 s..61.0 s: no call began in it; the calls of the session began between "
                ),
                "{why}"
            );
            // Calls of 4 µs, 1 ms apart; the first one begins after 1 µs.
            assert!(why.ends_with("between 1.00 µs and 4.02 ms"), "{why}");
            let whole = Filters::default();
            assert!(whole.check_window(session, &Profile::default()).is_ok(), "no window was asked for");
        });
        let nothing = with_session(&[0], |session| {
            let filters = Filters { window: Some(5..6), ..Filters::default() };
            filters.check_window(&session, &Profile::default())
        });
        assert!(nothing.is_ok(), "a session without calls has no time to name");
        assert_eq!(
            (shown_window(&(5..7)), shown_window(&(5..u64::MAX))),
            ("5.00 ns..7.00 ns".into(), "5.00 ns..".into())
        );
    }

    #[test]
    fn a_window_with_calls_or_activity_alone_is_kept() {
        with_session(&[1], |session| {
            let session = &session;
            let filters = Filters { window: Some(5..6), ..Filters::default() };
            let is_kept = |profile: Profile| filters.check_window(session, &profile).is_ok();
            assert!(!is_kept(Profile::default()));
            let activities = vec![apex_profile::Activity::default()];
            assert!(is_kept(Profile { activities, ..Profile::default() }));
            let totals = apex_profile::Totals { launches: 1, ..apex_profile::Totals::default() };
            assert!(is_kept(Profile { totals, ..Profile::default() }));
            let whole = Profile::from_session(session);
            assert!(
                is_kept(Profile { calls: whole.calls.clone(), ..Profile::default() })
                    != whole.calls.is_empty()
            );
        });
    }
}
