//! `.version` and `.target` of PTX: what a driver for a GPU of 8.0 refuses is refused here, with
//! the same results.

use crate::device::ARCHITECTURE;
use crate::module::LoadError;
use apex_conventions::variables;
use cuda_abi::types::*;
use ptx::Module;
use ptx::forms::{Target, Version};

/// The newest version that is read. The ISA's table of instructions goes as far, and drivers that
/// are newer than the version that this one names.
const NEWEST: Version = (9, 5);

/// Parses PTX whose header the device takes, or any: beside machine code for it (`is_free`), which
/// a GPU loads, the header tells nothing.
pub fn parsed(name: &str, source: &str, is_free: bool) -> Result<Module, LoadError> {
    let invalid = |message| LoadError { code: CUDA_ERROR_INVALID_PTX, message };
    let module = ptx::parse(source).map_err(|error| invalid(error.render(name, source)))?;
    match refusal(&module).filter(|_| !is_free && !variables::CPU_NEWER_PTX.is_on()) {
        Some(refusal) => Err(refusal),
        None => Ok(module),
    }
}

/// The reason why the device does not take a module with this header.
fn refusal(module: &Module) -> Option<LoadError> {
    const ADVICE: &str = "`apex run --universal` changes such PTX where that changes no result; with \
                          APEX_CPU_NEWER_PTX=1, the CPU device executes it as far as it can";
    let (major, minor) = module.version;
    if module.version > NEWEST {
        let message = format!(
            "the PTX has version {major}.{minor}, and the newest that is read is {}.{};\n    {ADVICE}",
            NEWEST.0, NEWEST.1
        );
        return Some(LoadError { code: CUDA_ERROR_UNSUPPORTED_PTX_VERSION, message });
    }
    // What is no target is for the verifier to complain about.
    let target: Target = module.target.first()?.parse().ok()?;
    (!target.runs_on(ARCHITECTURE)).then(|| LoadError {
        code: CUDA_ERROR_INVALID_PTX,
        message: format!("the PTX is for {target}, and the device is an sm_{ARCHITECTURE};\n    {ADVICE}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_versions_and_targets_are_refused_as_a_driver_does() {
        let code = |version: &str, target: &str| {
            let source = format!(".version {version}\n.target {target}\n.address_size 64\n");
            refusal(&ptx::parse(&source).unwrap()).map(|refusal| refusal.code)
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
}
