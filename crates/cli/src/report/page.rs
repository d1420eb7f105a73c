//! `apex report --html`: the report as one file to open in a browser.

use crate::{import, output, session, units};
use anyhow::Context;
use apex_advice::Advice;
use apex_page::Source;
use apex_predict::Models;
use apex_predict_session::explore;
use apex_trace::is_session;
use apex_view::{Loaded, Shown};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Kernels that are tried in other block sizes, of those with most GPU time.
const MOST_TRIED: usize = 60;

/// Says that a folder is no file to write, and which command writes one.
pub fn not_a_file(folder: &Path, session: Option<&Path>) -> String {
    let shown = apex_untrusted::shown(folder);
    let name = folder.file_name().map_or_else(|| "report".into(), |name| name.to_string_lossy());
    let (what, session, file) = match session {
        None if is_session(folder) => ("a session", Some(folder), PathBuf::from(format!("{name}.html"))),
        session => ("a folder", session, folder.join("report.html")),
    };
    let session = session.map_or_else(String::new, |session| format!("{} ", apex_untrusted::shown(session)));
    format!(
        "--html names the file to write, and {shown} is {what}: `apex report {session}--html {}`",
        apex_untrusted::shown(file)
    )
}

/// Writes the page to a file, in place of one that is there.
///
/// # Errors
/// If the file is one of the session's, or cannot be written.
pub fn write(path: &Path, loaded: &Loaded, shown: &Shown<'_>, advice: &Advice) -> anyhow::Result<()> {
    session::refuse_output(&loaded.session.dir, path)?;
    let named = import::named(&loaded.session.dir);
    session::refuse_output(&named, path)?;
    let name = named.to_string_lossy();
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

#[cfg(test)]
mod tests {
    use super::*;
    use apex_trace::{MappedControl, control::Settings};

    #[test]
    fn a_folder_is_answered_with_the_command_to_type() {
        let dir = tempfile::tempdir().unwrap();
        let session = dir.path().join("before");
        std::fs::create_dir(&session).unwrap();
        MappedControl::create(&session, Settings::default()).unwrap();
        let said = not_a_file(&session, None);
        let folder = session.display();
        assert!(
            said.ends_with(&format!("is a session: `apex report {folder} --html before.html`")),
            "{said}"
        );
        let said = not_a_file(dir.path(), None);
        let folder = dir.path().display();
        assert!(said.ends_with(&format!("is a folder: `apex report --html {folder}/report.html`")), "{said}");
        let said = not_a_file(dir.path(), Some(Path::new("s")));
        assert!(said.contains("`apex report s --html "), "{said}");
    }
}
