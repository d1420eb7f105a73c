//! `apex report --html`: the report as one file to open in a browser.

use super::{fast, head};
use crate::filters::Shown;
use crate::loaded::Loaded;
use crate::{output, session, units};
use anyhow::Context;
use apex_advice::Advice;
use apex_page::Source;
use apex_predict::Models;
use apex_predict::explore::{self, Tried};
use std::io::Write;
use std::path::Path;

/// Kernels that are tried in other block sizes, of those with most GPU time.
const MOST_TRIED: usize = 60;

/// Writes the page to a file, in place of one that is there.
///
/// # Errors
/// If the file is one of the session's, or cannot be written.
pub fn write(path: &Path, loaded: &Loaded, shown: &Shown<'_>, advice: &Advice) -> anyhow::Result<()> {
    session::refuse_output(&loaded.session.dir, path)?;
    let name = loaded.session.dir.to_string_lossy();
    let tried = explore::usual_blocks(&Models::shipped(), shown.profile(), MOST_TRIED);
    let page = made_of(&name, loaded, shown, advice, &[], &tried, apex_page::html);
    let file = apex_untrusted::shown(path);
    apex_untrusted::replace::file(path, |mut file| file.write_all(page.as_bytes()))
        .with_context(|| format!("cannot write {file}"))?;
    output::remark(format!(
        "wrote {file}, {}: open it in a browser, or send it; it needs nothing else",
        units::bytes(page.len() as u64)
    ));
    Ok(())
}

/// What is made of the document of a session that has this name on the page, with these notes
/// before the report's, and its kernels in the block sizes that were tried.
pub fn made_of(
    name: &str,
    loaded: &Loaded,
    shown: &Shown<'_>,
    advice: &Advice,
    notes: &[String],
    tried: &[Tried],
    make: impl FnOnce(&Source<'_>) -> String,
) -> String {
    let notes = notes.iter().cloned().chain(shown.described()).chain(head::notes(shown, advice));
    make(&Source {
        session: name,
        meta: loaded.session.meta.as_ref(),
        whole: shown.whole,
        job: &shown.job,
        shown: shown.profile(),
        phase: shown.phase,
        steps: shown.steps(),
        iterations: shown.iterations(),
        advice,
        verdict: &sentences(head::verdict(shown, advice, usize::MAX)),
        notes: &notes.collect::<Vec<_>>(),
        fast: &fast::sentences(shown.profile()),
        machine: &loaded.machine,
        origin_ns: apex_profile::origin_ns(&loaded.session),
        tried,
    })
}

/// The sentences of the verdict: lines that continue one are indented.
fn sentences(lines: Vec<String>) -> Vec<String> {
    let mut sentences: Vec<String> = Vec::new();
    for line in lines {
        match (line.strip_prefix("  "), sentences.last_mut()) {
            (Some(more), Some(sentence)) => *sentence += &format!(" {more}"),
            _ => sentences.push(line),
        }
    }
    sentences
}
