//! Coded names of matrix products and convolutions:
//! `sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_…_ffma_…`,
//! `ampere_bf16_s16816gemm_bf16_128x64_…_tn`,
//! `cutlass_80_tensorop_s1688gemm_128x64_32x6_nt_align4`.
//!
//! Parts lie between underscores. One names the function: `gemm`, before it the type of
//! accumulation (`s`, `h`, `d`, `i`) and the shape of the tensor cores' instruction; types follow
//! or precede.

use super::{joined, known, number_after, tile};
use crate::{DataType, Identity, Operation, Owner, Traits, Types};

/// Identifies a kernel by a coded name; `None` if no part of it is a matrix product or convolution.
pub(super) fn identify(code: &str, owner: Owner, library: &str) -> Option<Identity> {
    let parts: Vec<&str> = code.split('_').collect();
    let function = parts.iter().position(|part| kind(part).is_some())?;
    let direction = parts.iter().find_map(|part| {
        ["fprop", "dgrad", "wgrad"].into_iter().find(|direction| part.ends_with(*direction))
    });
    let operation = if direction.is_some() { Operation::Convolution } else { Operation::MatrixProduct };
    let unit = parts.iter().find_map(|part| kind(part).filter(|unit| !unit.is_empty())).unwrap_or_default();
    let types = types(&parts, function, unit, code);
    let what = direction.map_or_else(|| "gemm".to_owned(), |direction| format!("conv {direction}"));
    let short = joined([
        Some(format!("{library} {what}")),
        types.input.map(|data| data.name().to_owned()),
        tile(parts.iter().copied()),
        layout(&parts).map(str::to_owned),
        code.contains("split_k").then(|| "split-k".to_owned()),
    ]);
    let identity = known(short, operation, types.input, owner);
    let alignment =
        number_after(parts.iter().copied(), "aligna").or(number_after(parts.iter().copied(), "align"));
    let tensor_cores = tensor_cores(&parts, unit, types.input);
    Some(identity.with(|traits| Traits { types, alignment, tensor_cores, ..traits }))
}

/// Returns the text before `gemm` or a convolution's direction in this part: `s16816` of
/// `s16816gemm`. `None` for other parts.
fn kind(part: &str) -> Option<&str> {
    let before = ["gemm", "fprop", "dgrad", "wgrad"].iter().find_map(|end| part.strip_suffix(*end))?;
    let is_unit = |text: &str| {
        let rest = text.trim_start_matches(['s', 'h', 'd', 'i', 'c', 'z', 'g', 'x']);
        let digits = rest.trim_end_matches(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
        digits.is_empty() && (rest.is_empty() || rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    is_unit(before).then_some(before)
}

fn types(parts: &[&str], function: usize, unit: &str, code: &str) -> Types {
    let accumulator = match unit.trim_start_matches('g').bytes().next() {
        Some(b's') => Some(DataType::F32),
        Some(b'h') => Some(DataType::F16),
        Some(b'd') => Some(DataType::F64),
        Some(b'i') => Some(DataType::I32),
        Some(b'c') => Some(DataType::C64),
        Some(b'z') => Some(DataType::C128),
        _ => None,
    };
    if code.contains("xmma_") {
        return xmma_types(parts);
    }
    // In names of CUTLASS 3 the function is followed by the types of A, B, the accumulator, C and
    // D.
    let after: Vec<DataType> = parts[function + 1..].iter().map_while(|part| coded(part)).collect();
    if let [a, _, sum, _, output] = after[..] {
        let input = if a == DataType::F32 && is_tensor(parts, unit) { DataType::Tf32 } else { a };
        return Types { input: Some(input), output: Some(output), accumulator: Some(sum) };
    }
    let named = parts.iter().find_map(|part| coded(part));
    let input = match (named, accumulator) {
        (Some(named), _) => Some(named),
        (None, Some(DataType::F32)) if is_tensor(parts, unit) => Some(DataType::Tf32),
        (None, Some(DataType::I32)) => Some(DataType::I8),
        (None, other) => other,
    };
    Types { input, output: None, accumulator }
}

/// A type, also where it follows the scale's type (`ue8m0xe4m3`).
fn coded(part: &str) -> Option<DataType> {
    DataType::in_code(part).or_else(|| DataType::in_code(part.rsplit_once('x')?.1))
}

/// `f16f16_f16f32_f32`: the types of A and B, of C and the accumulator, of the epilogue. `tf32`
/// stands anywhere.
fn xmma_types(parts: &[&str]) -> Types {
    let pair = |part: &str| {
        let (first, rest) = DataType::leading_code(part)?;
        let (second, rest) = DataType::leading_code(rest)?;
        rest.is_empty().then_some((first, second))
    };
    let mut pairs = parts.iter().filter_map(|part| pair(part));
    let (Some((a, _)), c) = (pairs.next(), pairs.next()) else { return Types::default() };
    let is_tf32 = a == DataType::Tf32 || c.is_some_and(|(first, _)| first == DataType::Tf32);
    Types {
        input: Some(if is_tf32 { DataType::Tf32 } else { a }),
        output: c.map(|(output, _)| if output == DataType::Tf32 { DataType::F32 } else { output }),
        accumulator: c.map(|(_, accumulator)| accumulator),
    }
}

/// Whether an instruction of the tensor cores is named.
fn is_tensor(parts: &[&str], unit: &str) -> bool {
    unit.bytes().any(|byte| byte.is_ascii_digit())
        || parts.iter().any(|part| matches!(*part, "tensorop" | "bstensorop" | "wmma" | "hmma" | "imma"))
}

fn tensor_cores(parts: &[&str], unit: &str, input: Option<DataType>) -> Option<bool> {
    let begins = |start: &str| parts.iter().any(|part| part.starts_with(start));
    match () {
        () if parts.contains(&"ffma") || parts.contains(&"simt") => Some(false),
        () if is_tensor(parts, unit) || begins("tensor1") || begins("warpgroupsize") => Some(true),
        () if parts.contains(&"xmma") => input.map(|data| data == DataType::Tf32 || data.is_half_or_less()),
        // `ampere_sgemm_128x64_tn`: no instruction is named.
        () => Some(false),
    }
}

/// `tn`, `nhwc`.
fn layout<'a>(parts: &[&'a str]) -> Option<&'a str> {
    let is_transposition = |part: &&str| {
        (2..=3).contains(&part.len()) && part.bytes().all(|byte| matches!(byte, b'n' | b't' | b'c'))
    };
    let tensors = ["ndhwc", "ncdhw", "nhwc", "nchw"];
    let tensor = parts.iter().find_map(|part| tensors.into_iter().find(|layout| part.starts_with(layout)));
    tensor.or_else(|| parts.iter().copied().find(|part| is_transposition(part)))
}
