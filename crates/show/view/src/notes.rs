//! Notes of a report: what was checked and found fine, and where the rest of the run went.

use crate::Shown;
use crate::text::verdict::LEAST;
use apex_advice::Advice;
use apex_advice::rules::{Rule, TOPICS};
use apex_profile::Iterations;
use apex_profile::units;

/// Way to other phases for a reader of the command's output.
pub const PHASE_OPTION: &str = "--phase startup, warmup or all";
/// The topic of copies, and the share of the time from which they are not fine.
const COPIES: &str = "copies";
const MUCH: f64 = 0.25;
/// Way to them for a reader of the dashboard.
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
        let uncounted = self.job.uncounted_nodes();
        if uncounted > 0 {
            notes.push(format!(
                "Not counted: kernels inside {}, such as bodies of conditional nodes. The device decides how often \
                 they run, and the driver does not report it.",
                units::counted(uncounted, "launched graph node", "launched graph nodes")
            ));
        }
        let clear = |rule: &Rule| advice.clear.iter().any(|clear| clear == rule.slug);
        // What takes much of the time is not fine because no rule finds fault with it.
        let accounts = self.job.accounts();
        let takes_much = |topic: &str| topic == COPIES && accounts.copies.value >= MUCH * accounts.span_ns;
        let fine = TOPICS.iter().filter(|(topic, rules)| rules.iter().all(clear) && !takes_much(topic));
        let fine: Vec<&str> = fine.map(|(topic, _)| *topic).collect();
        // What is wrong stands above it.
        if !fine.is_empty() && self.job.totals.kernels_run() > 0 && self.job.defects.is_empty() {
            notes.push(format!("Checked and fine: {}.", fine.join(", ")));
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use apex_advice::rules::{RULES, Rule, TOPICS};

    #[test]
    fn topics_name_rules_that_are_applied() {
        for Rule { slug, .. } in TOPICS.iter().flat_map(|(_, rules)| *rules) {
            assert!(RULES.iter().any(|rule| rule.slug == *slug), "{slug} is in no table");
        }
    }
}
