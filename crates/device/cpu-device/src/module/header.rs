//! Which PTX is taken: what a driver for a GPU of the device's capability refuses for its
//! `.version` or `.target`, or because ptxas would, is refused here, with the same results.

use crate::device::architecture;
use crate::module::{LoadError, listed};
use apex_conventions::{universal, variables};
use cuda_abi::types::*;
use ptx::Module;
use ptx::forms::{NEWEST, Target};

/// Parses PTX that the device takes, or any: beside machine code for it (`is_free`), which a GPU
/// loads, nothing says that an assembler would take the PTX.
pub fn parsed(name: &str, source: &str, is_free: bool) -> Result<Module, LoadError> {
    let invalid = |message| LoadError { code: CUDA_ERROR_INVALID_PTX, message };
    let module = ptx::parse(source).map_err(|error| invalid(error.render(name, source)))?;
    if is_free || variables::CPU_NEWER_PTX.is_on() {
        return Ok(module);
    }
    if let Some(refusal) = refusal(&module, universal::is_wanted()) {
        return Err(refusal);
    }
    match &ptx::verify(&module)[..] {
        [] => Ok(module),
        problems => Err(invalid(listed(problems, name, source))),
    }
}

/// The reason why the device does not take a module with this header. Somebody who has it lowered
/// (`is_lowered`) needs no advice to do so.
fn refusal(module: &Module, is_lowered: bool) -> Option<LoadError> {
    const FREE: &str = "with APEX_CPU_NEWER_PTX=1, the CPU device executes it as far as it can";
    let advice = match is_lowered {
        true => FREE.to_owned(),
        false => format!("`apex run --universal` changes such PTX where that changes no result; {FREE}"),
    };
    let (major, minor) = module.version;
    if module.version > NEWEST {
        let message = format!(
            "the PTX has version {major}.{minor}, and the newest that is read is {}.{};\n    {advice}",
            NEWEST.0, NEWEST.1
        );
        return Some(LoadError { code: CUDA_ERROR_UNSUPPORTED_PTX_VERSION, message });
    }
    // What is no target is for the verifier to complain about.
    let target: Target = module.target.first()?.parse().ok()?;
    let architecture = architecture();
    (!target.runs_on(architecture)).then(|| LoadError {
        code: CUDA_ERROR_INVALID_PTX,
        message: format!("the PTX is for {target}, and the device is an sm_{architecture};\n    {advice}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_versions_and_targets_are_refused_as_a_driver_does() {
        let code = |version: &str, target: &str| {
            let source = format!(".version {version}\n.target {target}\n.address_size 64\n");
            refusal(&ptx::parse(&source).unwrap(), false).map(|refusal| refusal.code)
        };
        for (version, target) in
            [("8.0", "sm_80"), ("6.0", "sm_52"), ("9.5", "sm_75"), ("8.0", "sm_80, debug")]
        {
            assert_eq!(code(version, target), None, "{version} {target}");
        }
        for target in ["sm_86", "sm_90", "sm_90a", "sm_100f", "sm_120"] {
            assert_eq!(code("8.8", target), Some(CUDA_ERROR_INVALID_PTX), "{target}");
        }
        assert_eq!(code("9.6", "sm_90"), Some(CUDA_ERROR_UNSUPPORTED_PTX_VERSION));
    }

    #[test]
    fn only_who_does_not_lower_is_advised_to() {
        let module = ptx::parse(".version 8.0\n.target sm_90\n.address_size 64\n").unwrap();
        let is_advised = |is_lowered| refusal(&module, is_lowered).unwrap().message.contains("--universal");
        assert!(is_advised(false) && !is_advised(true));
    }
}
