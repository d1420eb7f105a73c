//! The findings: changes to make.

use super::{Lines, Theme, head};
use crate::Look;
use apex_advice::{Finding, Severity};
use apex_profile::units;
use apex_untrusted::printable;
use apex_view::text::savings::{amount, is_minor, saving};
use apex_view::text::shorten;
use apex_view::text::verdict::together;
use ratatui_core::style::Style;
use ratatui_core::text::{Line, Span};

/// Maximum number of findings on the screen.
const FINDINGS: usize = 5;

/// A heading, and two lines for each finding: what it is with what it saves, and the change.
pub fn lines(look: &Look, width: usize, theme: Theme) -> Lines {
    let found: Vec<&Finding> = look.advice.findings.iter().filter(|finding| !is_minor(finding)).collect();
    if !look.profile.kernels.iter().any(|kernel| kernel.launches.any()) && found.is_empty() {
        return Lines::new();
    }
    let heading = match found.len() {
        0 => format!("Advice: nothing found by {} rules", look.advice.rules - look.advice.unjudged.len()),
        count => format!("Advice: {}", units::counted(count as u64, "finding", "findings")),
    };
    let mut lines = vec![Line::styled(shorten(&heading, width), theme.bold())];
    for (at, finding) in found.into_iter().take(FINDINGS).enumerate() {
        lines.push(title(look, at, finding, width, theme));
        lines.push(Line::styled(change(finding, width), theme.dim()));
    }
    lines
}

/// The change without its details, cut at the end.
fn change(finding: &Finding, width: usize) -> String {
    let first = finding.change.split("; ").next().unwrap_or_default();
    let line = printable(&format!("   → {first}")).into_owned();
    if line.chars().count() <= width {
        return line;
    }
    let kept: String = line.chars().take(width.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

fn title(look: &Look, at: usize, finding: &Finding, width: usize, theme: Theme) -> Line<'static> {
    let style = match finding.severity {
        Severity::High | Severity::Medium => theme.warning(),
        Severity::Low | Severity::Info => Style::new(),
    };
    let name = format!("{:2} {}", at + 1, finding.title);
    let named = name.chars().count();
    let (last, all) = (format!("the last {}", head::last(look)), together(&look.profile));
    let full = format!(" · {}", saving(&finding.saving, &last, all.as_deref()));
    let brief = finding.saving.of_job.map_or(String::new(), |of_job| format!(" · saves {}", amount(&of_job)));
    let fits = |text: &String| named + text.chars().count() <= width;
    let saves = [full, brief].into_iter().find(fits).unwrap_or_default();
    Line::from(vec![Span::styled(shorten(&name, width), style), Span::raw(shorten(&saves, width))])
}
