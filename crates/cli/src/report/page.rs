//! `apex report --html`: the report as one file to open in a browser.

use crate::{output, session, units};
use anyhow::Context;
use apex_advice::Advice;
use apex_page::Source;
use apex_predict::Models;
use apex_predict_session::explore;
use apex_view::{Loaded, Shown};
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
    let page = apex_page::html(&Source { tried: &tried, ..Source::of(&name, loaded, shown, advice) });
    let file = apex_untrusted::shown(path);
    apex_untrusted::replace::file(path, |mut file| file.write_all(page.as_bytes()))
        .with_context(|| format!("cannot write {file}"))?;
    output::remark(format!(
        "wrote {file}, {}: open it in a browser, or send it; it needs nothing else",
        units::bytes(page.len() as u64)
    ));
    Ok(())
}
