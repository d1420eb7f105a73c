//! The file of a kernel's PTX.

use crate::output::Lines;
use anyhow::Context;
use apex_predict::code::{Code, CodeError, Typed};
use apex_untrusted::read;
use std::path::Path;

/// Reads a file and finds the kernel in it, as [`Code::parse`] does.
///
/// # Errors
/// Those of [`Code::parse`], and a file that cannot be read.
pub fn read(path: &Path, kernel: Option<&str>, arguments: &[Typed]) -> anyhow::Result<Code> {
    let shown = apex_untrusted::shown(path);
    let source = read::read_to_string(path, read::PTX).with_context(|| format!("cannot read {shown}"))?;
    Code::parse(&source, &shown, kernel, arguments).map_err(|error| match error {
        CodeError::Syntax(lines) => Lines(lines).into(),
        CodeError::Kernel(why) => anyhow::Error::msg(why),
    })
}

/// Returns the advice about a kernel's registers, for a message.
pub fn how_to_get_registers(path: &Path, code: &Code) -> String {
    format!(
        "PTX does not contain the register count of {}: set --registers N. `ptxas -v -arch=sm_90 {}` and \
            `cuobjdump --dump-resource-usage` print it, and `apex run` records it",
        code.name,
        apex_untrusted::shown(path)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_named() {
        let missing = read(Path::new("/no/such.ptx"), None, &[]).unwrap_err();
        assert!(format!("{missing:#}").contains("cannot read /no/such.ptx"));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("k.ptx");
        std::fs::write(&path, ".version 8.0\n.target sm_80\n.entry k( {").unwrap();
        assert!(format!("{:#}", read(&path, None, &[]).unwrap_err()).contains("k.ptx:3:"));
    }

    #[test]
    fn a_message_says_where_registers_can_be_had() {
        let source = ".version 8.0\n.target sm_80\n.visible .entry scale() { ret; }\n";
        let code = Code::parse(source, "k.ptx", None, &[]).unwrap();
        let message = how_to_get_registers(Path::new("k.ptx"), &code);
        assert!(message.contains("scale: set --registers"), "{message}");
    }
}
