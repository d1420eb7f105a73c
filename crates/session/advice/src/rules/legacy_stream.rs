//! Work on the legacy default stream and on streams that wait for it.

use apex_trace::definition::StreamKind;

use super::{Draft, Needs, Outcome, Rule, account, confidence, counted, job_saving, percent};
use crate::finding::{Evidence, Level, Saving, Scope, Severity, Unit};
use apex_profile::{Figure, Profile, SaturatingSum as _, Stream};

/// Minimum share of launches on the legacy default stream, and on streams that wait for it.
const LEAST: f64 = 0.05;
/// Minimum share of the time in kernels.
const BUSY: f64 = 0.3;

pub(super) const RULE: Rule = Rule {
    id: "APEX-L22",
    slug: "legacy-default-stream",
    title: "Legacy default stream serialises other streams",
    severity: Severity::Low,
    scope: Scope::Host,
    needs: Needs::Records,
    parent: None,
    idle: &[],
    detects: "In one process, at least 5% of launches go to the legacy default stream, and as many, or copies, to other \
              streams that wait for it (made without cudaStreamNonBlocking).",
    source: "APEX; CUDA programming guide, default stream: implicit synchronisation.",
    why: "The legacy default stream waits for all blocking streams, and they wait for it, so that their work \
        does not overlap.",
    change: "Launch into an explicit stream, create streams with cudaStreamNonBlocking, or compile with \
        --default-stream per-thread.",
    saving: "Where kernels take at least 30% of the time and leave room on the device: the streams side by side, so that the one with the \
             most launches remains. At most all of it, spread evenly over them, or over what the device holds at once. Else unknown.",
    verify: "launches are distributed over streams, and the run time decreases",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    let processes = 0..profile.processes.len();
    let worst =
        processes.filter_map(|process| serialised(profile, process)).max_by_key(|found| found.launches);
    let Some(found) = worst else { return Outcome::Clear };
    let share = found.legacy as f64 / found.launches as f64;
    Outcome::found(Draft {
        summary: format!(
            "{} of {} launches are on the legacy default stream; it and {} wait for each other",
            percent(share),
            found.launches,
            counted(found.others as u64, "other stream", "other streams")
        ),
        evidence: vec![
            Evidence::new(
                "share of launches on the legacy default stream",
                Figure::measured(share),
                Unit::Share,
            )
            .decrease_towards(0.0),
            Evidence::new("other streams with work", Figure::measured(found.others as f64), Unit::Count),
        ],
        kernels: Vec::new(),
        change: None,
        saving: side_by_side(profile, &found),
        confidence: confidence(Level::Low, "it is unknown whether the streams' work is independent"),
    })
}

/// Whether kernels of several streams run one after the other for this reason: how small each is
/// then says nothing.
pub(super) fn serialises(profile: &Profile) -> bool {
    let mut found = (0..profile.processes.len()).filter_map(|process| serialised(profile, process));
    found.any(|found| side_by_side(profile, &found).beyond.is_some())
}

/// Estimates the saving if the streams' kernels run side by side.
fn side_by_side(profile: &Profile, found: &Serialised) -> Saving {
    let kernels = account(profile, |accounts| accounts.kernels);
    let room = 1.0 - filled(profile);
    let most = (1.0 - 1.0 / (found.others as f64 + 1.0)).min(room);
    let value = (1.0 - found.longest as f64 / found.launches as f64).min(most);
    if kernels.value < BUSY * profile.totals.span_ns || value <= 0.0 {
        return Saving {
            unknown_because: Some("the saving is the time that can overlap".to_owned()),
            ..Saving::default()
        };
    }
    Saving {
        beyond: Some(Figure::predicted(value, (0.0, most)).part_of(kernels)),
        ..job_saving(profile, Figure::predicted(0.0, (0.0, 0.0)))
    }
}

/// Share of the device that a kernel fills on average, by GPU time; 1 where nothing is known of it.
fn filled(profile: &Profile) -> f64 {
    let timed = profile.kernels.iter().filter_map(|kernel| Some((kernel, kernel.gpu_total_ns()?)));
    let known: Vec<(f64, f64)> = timed
        .map(|(kernel, time)| {
            let capacity = kernel.geometry.map_or(0, |geometry| geometry.waves.capacity);
            let share = if capacity == 0 { 1.0 } else { kernel.blocks() as f64 / capacity as f64 };
            (time, share.min(1.0))
        })
        .collect();
    let all: f64 = known.iter().map(|(time, _)| time).sum();
    if all > 0.0 { known.iter().map(|(time, share)| time * share).sum::<f64>() / all } else { 1.0 }
}

/// Streams of a process that wait for one another.
struct Serialised {
    /// Launches on the legacy default stream.
    legacy: u64,
    /// All launches.
    launches: u64,
    /// Launches of the stream with the most.
    longest: u64,
    /// Streams that it holds up.
    others: usize,
}

fn serialised(profile: &Profile, process: usize) -> Option<Serialised> {
    let streams = || profile.streams.iter().filter(move |stream| stream.process == process);
    let launches = |stream: &Stream| stream.launches + stream.graph_launches;
    let all = streams().map(launches).saturating_sum();
    let legacy =
        streams().filter(|s| s.kind == Some(StreamKind::LegacyDefault)).map(launches).saturating_sum();
    let waits = |stream: &&Stream| {
        let waits = matches!(stream.kind, Some(StreamKind::Blocking | StreamKind::PerThreadDefault));
        waits && launches(stream) + stream.transfers > 0
    };
    let others = streams().filter(waits).count();
    let work = streams().filter(waits).map(|stream| launches(stream) + stream.transfers).saturating_sum();
    let matters = |count: u64| count > 0 && count as f64 >= LEAST * all as f64;
    let longest = streams().map(launches).max().unwrap_or(0);
    (matters(legacy) && matters(work)).then_some(Serialised { legacy, launches: all, longest, others })
}

#[cfg(test)]
mod tests {
    use apex_trace::definition::StreamKind::{Blocking, LegacyDefault, NonBlocking};

    use super::super::fixture::{
        activity, assert_clear_in, assert_finds_in, evidence, kernel_of, profile_of, profile_with, stream,
        timed,
    };
    use super::RULE;
    use apex_profile::{Profile, Stream};

    fn profile<const N: usize>(streams: [Stream; N]) -> Profile {
        Profile { streams: streams.into(), ..profile_with([activity(1e9, 0.5)]) }
    }

    #[test]
    fn fires_where_others_wait() {
        let finding = assert_finds_in(&RULE, profile([stream(LegacyDefault, 950), stream(Blocking, 50)]));
        assert!(finding.summary.starts_with("95% of 1000 launches"), "{}", finding.summary);
        assert_eq!(evidence(&finding, "share of launches on the legacy default stream").value, 0.95);
        assert_eq!(evidence(&finding, "other streams with work").value, 1.0);
    }

    #[test]
    fn the_boundary_is_a_twentieth_of_both() {
        for (legacy, blocking) in [(950, 50), (50, 950)] {
            assert_finds_in(&RULE, profile([stream(LegacyDefault, legacy), stream(Blocking, blocking)]));
        }
        for (legacy, blocking) in [(951, 49), (49, 951)] {
            assert_clear_in(&RULE, profile([stream(LegacyDefault, legacy), stream(Blocking, blocking)]));
        }
    }

    #[test]
    fn kernels_that_leave_room_could_run_side_by_side() {
        // 33 of 1056 blocks: five streams, and half of the launches on one of them.
        let mut streams = vec![stream(LegacyDefault, 500)];
        streams.extend((0..4).map(|_| stream(Blocking, 125)));
        let small = timed(kernel_of(33, 256), 50e3);
        let with = |kernel| {
            let mut profile = Profile { kernels: vec![kernel], ..profile_with([activity(1e9, 0.0)]) };
            profile.kernels[0].geometry = profile_of([profile.kernels[0].clone()]).kernels[0].geometry;
            Profile { streams: streams.clone(), ..profile }
        };
        let saving = assert_finds_in(&RULE, with(small)).saving.of_job.expect("timed");
        let (low, high) = saving.interval().expect("it is predicted");
        assert!((saving.value - 0.5).abs() < 1e-9 && low == 0.0 && (high - 0.8).abs() < 0.1, "{saving:?}");
        let full = assert_finds_in(&RULE, with(timed(kernel_of(2000, 256), 50e3)));
        assert!(full.saving.unknown_because.is_some(), "{full:?}");
    }

    #[test]
    fn is_clear_without_streams_that_wait() {
        assert_clear_in(&RULE, profile([stream(LegacyDefault, 1000)]));
        assert_clear_in(&RULE, profile([stream(LegacyDefault, 1000), stream(NonBlocking, 10)]));
        assert_clear_in(&RULE, profile([stream(LegacyDefault, 1000), stream(Blocking, 0)]));
    }
}
