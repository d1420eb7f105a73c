//! The text beside the lines that the CPU device counted: source files, or a kernel's PTX, as far
//! as the session keeps them (`apex run --code`). No other file is looked at.

use crate::programs::texts;
use apex_profile::{Kernel, Profile};
use fatbin::kept;
use std::sync::Arc;

/// The text of a file that has lines of a kernel, by the name that its line table has for it; of
/// the kernel's PTX if the name is empty.
///
/// # Errors
/// Says why there is none, and what to do.
pub fn text(profile: &Profile, kernel: &Kernel, file: &str) -> Result<Arc<str>, String> {
    if file.is_empty() {
        return ptx(profile, kernel).ok_or_else(|| {
            let known = match profile.code {
                Some(_) => "the session does not have its PTX as one text",
                None => "the session does not keep its PTX (`apex run --code` does)",
            };
            format!(
                "These are lines of the PTX, and {known}. For lines of the source, compile with -lineinfo."
            )
        });
    }
    match profile.sources.get(file) {
        Some(Ok(text)) => Ok(Arc::clone(text)),
        Some(Err(why)) => Err(format!("The session does not keep the text of this file: {why}.")),
        None if profile.code.is_some() => Err("The session does not keep the text of this file.".to_owned()),
        None => Err("The session keeps no source text: record it with `apex run --code`.".to_owned()),
    }
}

/// The PTX of a kernel's image, if it is one text: lines of several cannot be told apart.
fn ptx(profile: &Profile, kernel: &Kernel) -> Option<Arc<str>> {
    let packed = profile.images.get(kernel.code.as_ref()?.image.as_deref()?)?;
    let (major, minor) = profile.devices.get(kernel.device?)?.compute_capability?;
    let parts = kept::unpack(packed).ok()?;
    let mut texts = texts(&parts, major.saturating_mul(10).saturating_add(minor));
    let text = String::from_utf8(texts.next()?.into_owned()).ok()?;
    (texts.next().is_none() && text.contains(&kernel.symbol)).then(|| text.into())
}
