//! cuBLAS and cuBLASLt.

use super::{Name, coded, joined, known, typed};
use crate::words::{operation, readable};
use crate::{DataType, Identity, Operation, Owner, Traits, Types};

pub(super) fn identify(name: &Name<'_>) -> Option<Identity> {
    nvjet(name.text).or_else(|| of_code(name.text)).or_else(|| of_template(name))
}

/// `nvjet_sm90_tst_128x256_64x4_1x2_h_bz_coopA_TNT`. The letters are not documented; in recorded
/// programs `t` stands with BF16, `h` with FP16, `s` with FP32, `d` with FP64, `q` with FP8:
/// operands, computation, result, or with five letters A, B, C, computation, result.
fn nvjet(text: &str) -> Option<Identity> {
    let rest = text.strip_prefix("nvjet_")?;
    let mut parts = rest.split('_').peekable();
    parts
        .next_if(|part| part.starts_with("sm") && part[2..].bytes().all(|byte| byte.is_ascii_alphanumeric()));
    let letters: Vec<char> = parts.next()?.chars().collect();
    let data = |letter: Option<&char>| match letter? {
        'h' => Some(DataType::F16),
        't' => Some(DataType::Bf16),
        's' => Some(DataType::F32),
        'd' => Some(DataType::F64),
        'q' => Some(DataType::E4m3),
        'r' => Some(DataType::E5m2),
        'o' => Some(DataType::F4),
        _ => None,
    };
    let input = data(letters.first());
    let types = Types { input, output: data(letters.last()), accumulator: data(letters.iter().rev().nth(1)) };
    let parts: Vec<&str> = parts.collect();
    let layout =
        parts.iter().find(|part| part.len() == 3 && part.bytes().all(|byte| matches!(byte, b'T' | b'N')));
    let short = joined([
        Some("nvjet gemm".to_owned()),
        input.map(|data| data.name().to_owned()),
        super::tile(parts.iter().copied()),
        layout.map(|layout| layout.to_ascii_lowercase()),
        text.contains("_splitK").then(|| "split-k".to_owned()),
        text.contains("_bias").then(|| "bias".to_owned()),
    ]);
    let identity = known(short, Operation::MatrixProduct, input, Owner::CuBlas);
    let tensor_cores = input.filter(|data| data.is_half_or_less()).map(|_| true);
    Some(identity.with(|traits| Traits { types, tensor_cores, ..traits }))
}

/// Names that begin with an architecture.
fn of_code(text: &str) -> Option<Identity> {
    let first = text.split('_').next()?.to_ascii_lowercase();
    let is_architecture = ["maxwell", "pascal", "volta", "turing", "ampere", "ada", "hopper", "blackwell"]
        .contains(&first.as_str());
    let is_number =
        first.strip_prefix("sm").is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
    if (is_architecture || is_number && text.contains("xmma_")) && !text.contains("<") {
        return coded::identify(text, Owner::CuBlas, "cublas");
    }
    None
}

fn of_template(name: &Name<'_>) -> Option<Identity> {
    /// Functions that are no user's; shorter beginnings, as `sgemm_`, users choose too.
    const FUNCTIONS: [&str; 11] = [
        "gemv2",
        "gemvNSP",
        "gemmSN_",
        "gemmk1_kernel",
        "gemm_kernel1x1",
        "gemm_kernel2x2",
        "batch_gemm_kernel",
        "splitKreduce_kernel",
        "reduce_1Block_kernel",
        "sgemm_32x32x32",
        "kernel_trsm_",
    ];
    const LARGE_K: [&str; 4] = ["sgemm_largek", "dgemm_largek", "cgemm_largek", "zgemm_largek"];
    let function = name.function();
    let named = |start: &str| function.name.starts_with(start);
    let is_gemvx = name.is_in("gemvx");
    if !name.text.contains("cublas")
        && !is_gemvx
        && !FUNCTIONS.iter().chain(&LARGE_K).any(|start| named(start))
    {
        return None;
    }
    let letter = LARGE_K.iter().any(|start| named(start)).then(|| function.name.as_bytes()[0]);
    let data = match letter {
        Some(b's') => Some(DataType::F32),
        Some(b'd') => Some(DataType::F64),
        Some(b'c') => Some(DataType::C64),
        Some(b'z') => Some(DataType::C128),
        _ => first_float(&function.arguments()),
    };
    let (short, operation) = match function.name {
        _ if is_gemvx => ("gemvx".to_owned(), Operation::MatrixVector),
        // The last step of a product that was split along K.
        start if start.starts_with("splitKreduce") => ("split_k_reduce".to_owned(), Operation::MatrixProduct),
        "globalKernel" => ("epilogue".to_owned(), Operation::MatrixProduct),
        start if start.starts_with("reduce_1Block") || start.starts_with("dot_kernel") => {
            (readable(start), Operation::Reduction)
        }
        other => (other.trim_end_matches("_val").trim_end_matches("_kernel").to_owned(), of_function(other)),
    };
    let identity = known(format!("cublas {}", typed(&short, data)), operation, data, Owner::CuBlas);
    let simt = matches!(operation, Operation::MatrixProduct | Operation::MatrixVector);
    Some(identity.with(|traits| Traits { tensor_cores: simt.then_some(false), ..traits }))
}

fn of_function(function: &str) -> Operation {
    let has = |part: &str| function.contains(part);
    match operation(function) {
        _ if has("trsm") || has("trsv") || has("geqr") || has("getr") => Operation::LinearAlgebra,
        _ if has("gemv") || has("trmv") || has("symv") => Operation::MatrixVector,
        _ if has("gemm") || has("trmm") || has("syrk") || has("syherk") => Operation::MatrixProduct,
        _ if has("geam") || has("transpose") => Operation::LayoutConversion,
        other => other,
    }
}

/// The first floating-point type of template arguments, or their first type.
fn first_float(arguments: &[&str]) -> Option<DataType> {
    let types = || arguments.iter().filter_map(|argument| DataType::in_cpp(argument));
    let is_index = |data: &DataType| matches!(data, DataType::I32 | DataType::I64 | DataType::Bool);
    types().find(|data| !is_index(data)).or_else(|| types().next())
}
