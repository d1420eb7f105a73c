//! Everything on the legacy default stream, though there are others.

use apex_trace::definition::StreamKind;

use super::{Draft, Needs, Outcome, Rule, confidence, counted, percent};
use crate::finding::{Evidence, Level, Saving, Scope, Severity, Unit};
use apex_profile::{Figure, Profile, SaturatingSum as _, Stream};

/// Share of launches on the legacy default stream.
const MOST: f64 = 0.9;

pub(super) const RULE: Rule = Rule {
    id: "APEX-L22",
    slug: "legacy-default-stream",
    title: "The legacy default stream serialises independent streams",
    severity: Severity::Low,
    scope: Scope::Host,
    needs: Needs::Records,
    parent: None,
    idle: &[],
    detects: "In one process, at least 90 % of launches go to the legacy default stream, while work goes to other \
              streams that wait for it (made without cudaStreamNonBlocking).",
    source: "APEX; CUDA programming guide, default stream: implicit synchronisation.",
    why: "The legacy default stream waits for all blocking streams, and they wait for it: nothing overlaps.",
    change: "Launch into a stream of your own, make streams with cudaStreamNonBlocking, or compile with \
             --default-stream per-thread.",
    saving: "Unknown: it is as much as can overlap.",
    verify: "launches spread over streams, and the job's time falls",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    let processes = 0..profile.processes.len();
    let worst =
        processes.filter_map(|process| serialised(profile, process)).max_by_key(|&(legacy, ..)| legacy);
    let Some((legacy, launches, others)) = worst else { return Outcome::Clear };
    let share = legacy as f64 / launches as f64;
    Outcome::found(Draft {
        summary: format!(
            "{} of {launches} launches are on the legacy default stream; it holds up {}",
            percent(share),
            counted(others as u64, "other stream")
        ),
        evidence: vec![
            Evidence::new(
                "share of launches on the legacy default stream",
                Figure::measured(share),
                Unit::Share,
            )
            .decrease_towards(0.0),
            Evidence::new("other streams with work", Figure::measured(others as f64), Unit::Count),
        ],
        kernels: Vec::new(),
        change: None,
        saving: Saving {
            unknown_because: Some("it is as much as can overlap".to_owned()),
            ..Saving::default()
        },
        confidence: confidence(Level::Low, "whether the streams' work is independent is not known"),
    })
}

/// Launches on the legacy default stream, all launches, and the other streams that it holds up,
/// where the rule applies.
fn serialised(profile: &Profile, process: usize) -> Option<(u64, u64, usize)> {
    let streams = || profile.streams.iter().filter(move |stream| stream.process == process);
    let launches = |stream: &Stream| stream.launches + stream.graph_launches;
    let all = streams().map(launches).saturating_sum();
    let legacy =
        streams().filter(|s| s.kind == Some(StreamKind::LegacyDefault)).map(launches).saturating_sum();
    let held_up = |stream: &&Stream| {
        let waits = matches!(stream.kind, Some(StreamKind::Blocking | StreamKind::PerThreadDefault));
        waits && launches(stream) + stream.transfers > 0
    };
    let others = streams().filter(held_up).count();
    (others > 0 && legacy > 0 && legacy as f64 >= MOST * all as f64).then_some((legacy, all, others))
}

#[cfg(test)]
mod tests {
    use apex_trace::definition::StreamKind::{Blocking, LegacyDefault, NonBlocking};

    use super::super::fixture::{activity, assert_clear_in, assert_finds_in, evidence, profile_with, stream};
    use super::RULE;
    use apex_profile::{Profile, Stream};

    fn profile<const N: usize>(streams: [Stream; N]) -> Profile {
        Profile { streams: streams.into(), ..profile_with([activity(1e9, 0.5)]) }
    }

    #[test]
    fn fires_where_others_wait() {
        let finding = assert_finds_in(&RULE, profile([stream(LegacyDefault, 950), stream(Blocking, 50)]));
        assert!(finding.summary.starts_with("95 % of 1000 launches"), "{}", finding.summary);
        assert_eq!(evidence(&finding, "share of launches on the legacy default stream").value, 0.95);
        assert_eq!(evidence(&finding, "other streams with work").value, 1.0);
    }

    #[test]
    fn the_boundary_is_nine_tenths() {
        assert_finds_in(&RULE, profile([stream(LegacyDefault, 900), stream(Blocking, 100)]));
        assert_clear_in(&RULE, profile([stream(LegacyDefault, 899), stream(Blocking, 101)]));
    }

    #[test]
    fn is_clear_without_streams_that_wait() {
        assert_clear_in(&RULE, profile([stream(LegacyDefault, 1000)]));
        assert_clear_in(&RULE, profile([stream(LegacyDefault, 1000), stream(NonBlocking, 10)]));
        assert_clear_in(&RULE, profile([stream(LegacyDefault, 1000), stream(Blocking, 0)]));
    }
}
