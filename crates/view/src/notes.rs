//! Notes of a report: what was checked and found fine, and where the rest of the run went.

use crate::Shown;
use apex_advice::Advice;
use apex_profile::Iterations;
use apex_text::units;
use apex_text::verdict::LEAST;

/// What rules look at, in a word, and the rules: it is fine where all of these found nothing.
const TOPICS: [(&str, &[&str]); 8] = [
    (
        "copies",
        &["pageable-async-copy", "synchronous-calls", "small-copies", "exposed-copies", "device-copies"],
    ),
    ("allocation", &["repeated-allocation"]),
    ("pauses", &["gpu-gap"]),
    ("synchronisation", &["frequent-synchronisation"]),
    ("launch calls", &["slow-launch", "launch-bound", "short-kernels", "tiny-launches"]),
    ("launch shapes", &["block-not-warp-multiple", "small-grid", "tail-wave", "sub-wave-grid"]),
    ("occupancy", &["low-theoretical-occupancy"]),
    ("memory accesses", &["uncoalesced-access", "bank-conflicts", "local-memory-accesses"]),
];

/// How a reader of the command's output sees other phases.
pub const PHASE_OPTION: &str = "--phase startup, warmup or all";
/// How a reader of the dashboard sees them.
pub const PHASE_MENU: &str = "Filters, Phase";

impl Shown<'_> {
    /// What was checked and found fine, and where the rest of the run went, which the reader sees
    /// by `phases`: [`PHASE_OPTION`] or [`PHASE_MENU`].
    pub fn notes(&self, advice: &Advice, phases: &str) -> Vec<String> {
        let mut notes = Vec::new();
        let wall = self.whole.totals.wall_ns;
        let begins_late = |iterations: &&Iterations| iterations.start_ns > LEAST * wall && !self.is_window();
        if let Some(iterations) = self.iterations().filter(begins_late) {
            notes.push(format!(
                "Not shown: start-up and warm-up, {} of {} ({phases}).",
                units::time(iterations.start_ns),
                units::time(wall)
            ));
        }
        let clear = |slug: &&str| advice.clear.iter().any(|clear| clear == slug);
        let fine = TOPICS.iter().filter(|(_, rules)| rules.iter().all(&clear));
        let fine: Vec<&str> = fine.map(|(topic, _)| *topic).collect();
        // What is wrong stands above it.
        if !fine.is_empty() && !self.job.kernels.is_empty() && self.job.defects.is_empty() {
            notes.push(format!("Checked and fine: {}.", fine.join(", ")));
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use apex_advice::rules::RULES;

    use super::TOPICS;

    #[test]
    fn topics_name_rules_that_exist() {
        for slug in TOPICS.iter().flat_map(|(_, rules)| *rules) {
            assert!(RULES.iter().any(|rule| rule.slug == *slug), "no rule is called {slug}");
        }
    }
}
