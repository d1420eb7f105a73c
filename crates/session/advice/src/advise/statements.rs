//! The remedy of the statement that a finding quotes, where the finding has none of its own.
//!
//! A rule about an account of time, or about kernels of a library, says what is wrong with the time
//! and not what is written. Where the statement at its place is known ([`apex_knowledge`]), what to
//! write instead comes first, and the rule's own change after it; the other way round where the rule
//! is about all launches and the statement does not make needless ones. Claims stay those of the
//! rule.

use crate::finding::{Finding, Quoted, Scope, in_short};
use crate::rules::{self, known::cause_of_statement, known::fits_operations};
use apex_knowledge::{Cause, Knowledge};
use apex_profile::Profile;
use std::sync::Arc;

/// Adds what to write in place of the statement that each finding quotes, where it is known.
pub(super) fn add_remedies(profile: &Profile, findings: &mut [Finding]) {
    let knowledge = Knowledge::current();
    for finding in findings.iter_mut().filter(|finding| finding.cause.is_none()) {
        let Some(place) = &finding.place else { continue };
        let is_about_it = |cause: &Cause| is_about(profile, finding, cause, &place.text);
        let own = cause_of_statement(profile, &knowledge, &place.file, is_about_it);
        let Some((cause, remedy)) = own else {
            let part = rules::part_used(profile, &place.file, place.line);
            match part.filter(|_| finding.scope == Scope::Kernel) {
                Some(part) => {
                    let change = format!("{part}. Otherwise: {}", finding.change.trim_end_matches('.'));
                    (finding.remedy, finding.change) = (in_short(&change), change);
                }
                None => add_remedy_of_body(profile, &knowledge, finding),
            }
            continue;
        };
        let own = finding.change.trim_end_matches('.');
        // One line makes a part of the launches: what helps all of them comes first, but for a
        // statement whose launches need not be made at all.
        let change = match finding.rule == rules::LAUNCH_BOUND && cause.priority < NEEDLESS {
            true => format!("{own}. {}: {remedy}", at(place)),
            false => format!("{}: {remedy}. Otherwise: {own}", at(place)),
        };
        finding.summary = format!("{}; {}", finding.summary, cause.meaning);
        finding.remedy = in_short(&change);
        finding.change = change;
    }
}

/// Adds what to write in place of a statement of the compiled function that a finding about
/// launches quotes a call of.
fn add_remedy_of_body(profile: &Profile, knowledge: &Arc<Knowledge>, finding: &mut Finding) {
    let Some(place) = finding.place.as_ref().filter(|_| rules::is_compiled(profile)) else { return };
    let called = profile.statements_called(&place.file, &place.text);
    let named = |cause: &Cause| {
        let is_about = |statement: &&(u32, &str)| is_about(profile, finding, cause, statement.1);
        called.iter().find(is_about).filter(|_| cause.priority >= OF_BODY)
    };
    let Some((cause, remedy)) =
        cause_of_statement(profile, knowledge, &place.file, |cause| named(cause).is_some())
    else {
        return;
    };
    let Some((line, statement)) = named(cause) else { return };
    let file = place.file.rsplit('/').next().unwrap_or(&place.file);
    let own = finding.change.trim_end_matches('.');
    let change = format!("{own}. {file}:{line} `{statement}`: {remedy}");
    finding.summary = format!("{}; {}", finding.summary, cause.meaning);
    (finding.remedy, finding.change) = (in_short(&change), change);
}

/// Least priority of causes that statements of a compiled function are compared with: they are
/// many.
const OF_BODY: i64 = 3;
/// Least priority of causes whose statements say what they are about by one name.
const CLEAR: i64 = 2;
/// Least priority of causes whose statements make launches that another form does not.
const NEEDLESS: i64 = 4;

/// Whether a cause is about a finding's statement, in the kind of time that the finding is about.
fn is_about(profile: &Profile, finding: &Finding, cause: &Cause, statement: &str) -> bool {
    let rule = finding.rule.as_str();
    match finding.scope {
        Scope::Host if rules::WAITS == rule => cause.names_wait_line(statement),
        // Launches of a statement take time whatever it computes: it must be a clear one.
        Scope::Host if rules::LAUNCH_BOUND == rule => {
            let is_named = [Cause::names_line, Cause::names_host_line, Cause::names_wait_line];
            cause.priority >= CLEAR && is_named.iter().any(|is_named| is_named(cause, statement))
        }
        Scope::Host if rules::OF_HOST_CODE.contains(&rule) => cause.names_host_line(statement),
        Scope::Kernel if rules::OF_LIBRARIES.contains(&rule) => {
            let time = |row: usize| profile.kernels.get(row).and_then(|kernel| kernel.gpu_total_ns());
            let kernels =
                finding.kernels.iter().map(|found| (found.kernel, time(found.kernel).unwrap_or(1.0)));
            cause.names_line(statement) && fits_operations(profile, cause, kernels)
        }
        _ => false,
    }
}

/// `train.py:48`
fn at(place: &Quoted) -> String {
    let name = place.file.rsplit('/').next().unwrap_or(&place.file);
    format!("{name}:{}", place.line)
}
