//! The report as Markdown, as GitHub and GitLab render it.

use apex_advice::{Advice, Finding};
use apex_profile::units;
use apex_view::text::savings::{is_minor, saving};
use apex_view::text::verdict::{self, together};
use apex_view::{Loaded, Shown};
use std::fmt::Write as _;

/// Findings in the table; the others are counted.
const FINDINGS: usize = 10;
/// Letters of a paragraph: a comment of GitHub's has at most 65,536.
const MOST_LETTERS: usize = 600;

/// The verdict, where the time went, and what to change. `session` is what the user calls it.
pub fn markdown(session: &str, loaded: &Loaded, shown: &Shown<'_>, advice: &Advice) -> String {
    let mut text = String::new();
    let mut sentences = verdict::sentences(&shown.part(), advice).into_iter();
    let _ = writeln!(text, "**{}**\n", inline(&sentences.next().unwrap_or_default()));
    for sentence in sentences {
        let _ = writeln!(text, "{}\n", inline(&sentence));
    }
    accounts(&mut text, shown);
    findings(&mut text, shown, advice);
    let devices: Vec<&str> = loaded.profile.devices.iter().map(|device| device.name.as_str()).collect();
    let command = loaded.command().unwrap_or_else(|| "unknown command".into());
    let about = [code(session), code(&command), inline(&devices.join(", "))];
    let about: Vec<String> = about.into_iter().filter(|part| !part.is_empty()).collect();
    let _ = writeln!(
        text,
        "{} · measured ᵐ, computed ᶜ, predicted ᵖ · APEX {}",
        about.join(" · "),
        env!("CARGO_PKG_VERSION")
    );
    text
}

/// The accounts as a table, a step's where there are steps.
fn accounts(text: &mut String, shown: &Shown<'_>) {
    let accounts = shown.accounts();
    if accounts.span_ns <= 0.0 || shown.job.on_cpu_device() {
        return;
    }
    let (by, of) = match shown.steps() {
        Some(steps) => (steps, "a step"),
        None => (1.0, "the time"),
    };
    let _ = writeln!(text, "| where {of} goes | time | share |\n| --- | ---: | ---: |");
    for (account, time) in accounts.entries() {
        let share = units::share(time.value / accounts.span_ns);
        let _ = writeln!(text, "| {} | {} | {share} |", inline(account.name()), units::time(time.value / by));
    }
    text.push('\n');
}

fn findings(text: &mut String, shown: &Shown<'_>, advice: &Advice) {
    if advice.findings.is_empty() {
        let _ = writeln!(text, "No findings.\n");
        return;
    }
    let worth = advice.findings.iter().filter(|finding| !is_minor(finding));
    let listed: Vec<_> = worth.enumerate().take(FINDINGS).collect();
    // Minor ones are not listed, as in the report's text, but nothing is left out silently.
    let rest = advice.findings.len() - listed.len();
    if !listed.is_empty() {
        table(text, shown, &listed);
    }
    if rest > 0 {
        let more =
            if listed.is_empty() { ("finding", "findings") } else { ("more finding", "more findings") };
        let more = units::counted(rest as u64, more.0, more.1);
        let _ = writeln!(text, "{more}: `apex advise` shows all.\n");
    }
}

/// The findings that are worth a row, and their own sentences below.
fn table(text: &mut String, shown: &Shown<'_>, listed: &[(usize, &Finding)]) {
    let of_what = if shown.steps().is_some() { "each step" } else { "the job" };
    let _ = writeln!(text, "| | finding | change | saves |\n| ---: | --- | --- | --- |");
    let all = together(&shown.job);
    for (at, finding) in listed {
        let what = format!("{}<br>{}", inline(&finding.title), place(shown, finding));
        let what = what.trim_end_matches("<br>");
        let saves = saving(&finding.saving, of_what, all.as_deref());
        let saves = saves.strip_prefix("saves ").unwrap_or(&saves);
        let (change, saves) = (inline(&finding.remedy), inline(saves));
        let _ = writeln!(text, "| {} | {what} | {change} | {saves} |", at + 1);
    }
    text.push('\n');
    details(text, listed);
}

/// The findings' own sentences, folded.
fn details(text: &mut String, listed: &[(usize, &Finding)]) {
    let _ = writeln!(text, "<details><summary>Evidence and how to verify</summary>\n");
    for (at, finding) in listed {
        let Finding { rule, slug, summary, change, verify, .. } = finding;
        let _ = writeln!(text, "{}. {} `{slug}`: {}", at + 1, inline(rule), inline(summary));
        let _ = writeln!(text, "   → {}", inline(change));
        let _ = writeln!(text, "   Verify: {}", inline(verify));
    }
    let _ = writeln!(text, "\n</details>\n");
}

/// The line of the program, if one is known.
fn place(shown: &Shown<'_>, finding: &Finding) -> String {
    let place = crate::sarif::place(shown.whole, finding);
    place.map_or_else(String::new, |(file, line)| {
        let name = file.rsplit('/').next().unwrap_or(&file);
        code(&format!("{name}:{line}"))
    })
}

/// Text as code, without what would end it.
fn code(text: &str) -> String {
    match text.trim().is_empty() {
        true => String::new(),
        false => format!("`{}`", plain(text).replace('`', "'").replace('|', "\\|")),
    }
}

/// A text of one line in which nothing is markup but the pairs of backticks around code.
pub fn inline(text: &str) -> String {
    let text = plain(text);
    let parts: Vec<&str> = text.split('`').collect();
    let mut line = String::new();
    for (at, part) in parts.iter().enumerate() {
        let (is_inside, is_closed) = (at % 2 == 1, at + 1 < parts.len());
        if is_inside && is_closed && !part.trim().is_empty() {
            line.push_str(&code(part));
            continue;
        }
        // Nothing stands between the two, or the second one is missing.
        line.push_str(if is_inside { "\\`" } else { "" });
        escape(part, &mut line);
        line.push_str(if is_inside && is_closed { "\\`" } else { "" });
    }
    // Addresses are no links.
    line.replace("://", ":&#47;/").replace("www.", "www&#46;")
}

/// On one line, without control characters, and not longer than somebody reads.
fn plain(text: &str) -> String {
    let letters = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter });
    letters.take(MOST_LETTERS).collect()
}

fn escape(text: &str, to: &mut String) {
    for letter in text.chars() {
        match letter {
            '<' => to.push_str("&lt;"),
            '>' => to.push_str("&gt;"),
            '&' => to.push_str("&amp;"),
            // No mention of a user, no reference to an issue.
            '@' => to.push_str("&#64;"),
            '#' => to.push_str("&#35;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '!' | '$' => to.extend(['\\', letter]),
            _ => to.push(letter),
        }
    }
}
