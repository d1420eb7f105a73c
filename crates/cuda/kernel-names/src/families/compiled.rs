//! Kernels that compilers generate: TorchInductor's Triton kernels, and XLA's fusions. Their names
//! list operations, and no types.

use super::{Name, known, typed};
use crate::words::{operation, readable, words};
use crate::{DataType, Identity, Operation, Owner};

pub(super) fn identify(name: &Name<'_>) -> Option<Identity> {
    inductor(name.text).or_else(|| of_autotuning(name)).or_else(|| xla(name.text))
}

/// Identifies kernels that XLA runs beside those that it tries out while it compiles: delays,
/// comparisons, buffers.
fn of_autotuning(name: &Name<'_>) -> Option<Identity> {
    let function = name.function();
    let data = function.arguments().into_iter().find_map(DataType::in_cpp);
    let data = data.or_else(|| function.parameters.and_then(super::own::pointer));
    let short = || format!("xla {}", typed(&readable(function.name), data));
    name.is_in("stream_executor").then(|| known(short(), Operation::Auxiliary, data, Owner::Xla))
}

/// `triton_poi_fused_add_mul_3`: the kind (pointwise, reduction, persistent reduction, template),
/// the operations, a number.
fn inductor(text: &str) -> Option<Identity> {
    let rest = text.strip_prefix("triton_")?;
    let (kind, rest) = rest.split_once('_')?;
    if !matches!(kind, "poi" | "red" | "per" | "tem" | "for" | "mm" | "mix" | "spl" | "split") {
        return None;
    }
    let fused = rest.trim_start_matches("scan_").trim_start_matches("fused_");
    let of_words = operation(fused);
    let operation = match (kind, of_words) {
        ("tem" | "mm", Operation::MatrixProduct | Operation::Unknown) => Operation::MatrixProduct,
        (
            _,
            Operation::Attention | Operation::Softmax | Operation::Normalization | Operation::Convolution,
        ) => of_words,
        ("poi", _) if one_operation(fused) => of_words,
        ("red" | "per", Operation::Reduction) if one_operation(fused) => of_words,
        ("for", _) => Operation::Optimizer,
        _ => Operation::Fused,
    };
    // The number alone tells kernels of the same operations apart, so that what is cut comes from
    // the middle.
    Some(known(around(text), operation, None, Owner::Inductor))
}

/// Whether one operation stands before the number.
fn one_operation(fused: &str) -> bool {
    let named = words(fused).into_iter().filter(|word| word.parse::<u32>().is_err() && word != "t");
    named.count() <= 1 || fused.starts_with("_to_copy") && words(fused).len() <= 3
}

/// Beginning and end of a long name.
fn around(text: &str) -> String {
    const BEGINNING: usize = 34;
    const END: usize = 12;
    let count = text.chars().count();
    if count <= BEGINNING + END + 1 {
        return text.to_owned();
    }
    let beginning: String = text.chars().take(BEGINNING).collect();
    let end: String = text.chars().skip(count - END).collect();
    format!("{beginning}…{end}")
}

/// `loop_add_fusion_3`, `input_reduce_fusion`, `gemm_fusion_dot_265`, `wrapped_convert`,
/// `triton_softmax_1`.
fn xla(text: &str) -> Option<Identity> {
    let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.');
    let words = words(text);
    let has = |word: &str| words.iter().any(|found| found == word);
    let begins = words.first().is_some_and(|first| {
        matches!(
            first.as_str(),
            "loop"
                | "input"
                | "gemm"
                | "wrapped"
                | "fusion"
                | "fused"
                | "triton"
                | "nested"
                | "redzone"
                | "command"
                | "transpose"
                | "concatenate"
                | "scatter"
                | "dynamic"
        )
    });
    if !plain || !begins {
        return None;
    }
    let is_fusion = has("fusion") || text.starts_with("fusion") || text.starts_with("wrapped_");
    let is_of_triton = text.starts_with("triton_softmax") || text.starts_with("triton_gemm");
    if !is_fusion && !is_of_triton {
        return None;
    }
    let of_words = operation(text);
    let operation = match of_words {
        _ if has("dot") || text.starts_with("gemm") || text.starts_with("triton_gemm") => {
            Operation::MatrixProduct
        }
        Operation::Unknown if has("reduce") => Operation::Reduction,
        _ if has("reduce") => Operation::Reduction,
        _ if has("transpose") => Operation::LayoutConversion,
        _ if text.starts_with("wrapped_") => of_words,
        Operation::Softmax | Operation::Indexing | Operation::Concatenation | Operation::Attention => {
            of_words
        }
        _ => Operation::Fused,
    };
    Some(known(around(text), operation, None, Owner::Xla))
}
