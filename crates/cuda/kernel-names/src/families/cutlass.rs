//! CUTLASS: coded names of generated kernels (`cutlass::Kernel2<cutlass_80_…>`), and templates that
//! spell everything out.

use super::{Name, coded, joined, known};
use crate::{DataType, Identity, Operation, Owner, Traits};

pub(super) fn identify(name: &Name<'_>) -> Option<Identity> {
    let function = name.function();
    let argument = function.arguments().first().copied().unwrap_or_default();
    let code =
        [function.name, argument].into_iter().find(|code| code.starts_with("cutlass") && code.contains('_'));
    if let Some(identity) = code.and_then(|code| coded::identify(code, Owner::Cutlass, "cutlass")) {
        return Some(identity);
    }
    let is_kernel = matches!(function.name, "Kernel" | "Kernel2" | "device_kernel");
    if !(is_kernel && name.text.contains("cutlass")) {
        return None;
    }
    template(name.text)
}

fn template(text: &str) -> Option<Identity> {
    let is_convolution = text.contains("ImplicitGemm") || text.contains("cutlass::conv");
    let is_product = text.to_ascii_lowercase().contains("gemm");
    let (what, operation) = match () {
        () if is_convolution => ("conv", Operation::Convolution),
        () if is_product => ("gemm", Operation::MatrixProduct),
        () => ("kernel", Operation::Unknown),
    };
    let stated = |spelled: &str| Some((text.find(spelled)?, DataType::in_cpp(spelled)?));
    let data = [
        "cutlass::bfloat16_t",
        "cutlass::half_t",
        "cutlass::tfloat32_t",
        "cutlass::float_e4m3_t",
        "cutlass::float_e5m2_t",
        "__nv_bfloat16",
        "__half",
    ]
    .into_iter()
    .filter_map(stated)
    .min_by_key(|(at, _)| *at)
    .map(|(_, data)| data)
    .or_else(|| DataType::first_in(text));
    let tensor_cores = match () {
        () if text.contains("OpClassSimt") => Some(false),
        () if text.contains("OpClassTensorOp")
            || text.contains("WarpSpecialized")
            || text.contains("MMA_") =>
        {
            Some(true)
        }
        () => None,
    };
    let short =
        joined([Some(format!("cutlass {what}")), data.map(|data| data.name().to_owned()), shape(text)]);
    let identity = known(short, operation, data, Owner::Cutlass);
    Some(identity.with(|traits| Traits { tensor_cores, ..traits }))
}

/// `GemmShape<128, 64, 32>`, or the first tuple of constants, as `128×64`.
fn shape(text: &str) -> Option<String> {
    let after = |start: &str| text.split_once(start).map(|(_, rest)| rest);
    let rest = after("GemmShape<").or_else(|| after("tuple<cute::C<"))?;
    let numbers: Vec<&str> = rest
        .split(|c: char| !c.is_ascii_digit())
        .filter(|number| !number.is_empty() && number.len() < 5)
        .take(2)
        .collect();
    (numbers.len() == 2).then(|| numbers.join("×"))
}
