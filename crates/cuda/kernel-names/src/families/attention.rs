//! Attention: FlashAttention, the memory-efficient kernels of PyTorch and xFormers, cuDNN's
//! generated ones.
//!
//! cuDNN's `f16` in `sdpa_sm90_flash_fprop_wgmma_f16` stands for 16 bits: the kernels of a BF16
//! model have it too, so only the width is reported.

use super::{Name, joined, known};
use crate::{DataType, Identity, Operation, Owner, Traits};

pub(super) fn identify(name: &Name<'_>) -> Option<Identity> {
    fmha(name).or_else(|| flash(name)).or_else(|| cudnn(name))
}

/// `fmha_cutlassF_bf16_aligned_64x128_rf_sm80`; `F` is forward, `B` backward.
fn fmha(name: &Name<'_>) -> Option<Identity> {
    let rest = name.function().name.strip_prefix("fmha_cutlass")?;
    let parts: Vec<&str> = rest.split('_').collect();
    let data = parts.iter().find_map(|part| DataType::in_code(part));
    let direction = if rest.starts_with('B') { "backward" } else { "forward" };
    let short = joined([
        Some(format!("mem_efficient_attention {direction}")),
        data.map(|data| data.name().to_owned()),
        super::tile(parts.iter().copied()),
    ]);
    let identity = known(short, Operation::Attention, data, Owner::PyTorch);
    // Whether operands of 32 bits are rounded for tensor cores depends on a setting.
    Some(identity.with(|traits| Traits {
        tensor_cores: data.filter(|data| data.is_half_or_less()).map(|_| true),
        ..traits
    }))
}

fn flash(name: &Name<'_>) -> Option<Identity> {
    let function = name.function().name;
    let text = name.text;
    let is_flash = function.starts_with("flash_fwd") || function.starts_with("flash_bwd");
    let is_class = text.contains("FlashAttn") || text.contains("flash::enable_sm");
    let is_infer = name.is_in("flashinfer") && crate::words::operation(function) == Operation::Attention
        || function.starts_with("fmhaSm");
    if !is_flash && !is_class && !is_infer {
        return None;
    }
    let data = ["cutlass::bfloat16_t", "cutlass::half_t", "__nv_bfloat16", "__half", "cutlass::float_e4m3_t"]
        .iter()
        .filter_map(|spelled| Some((text.find(spelled)?, DataType::in_cpp(spelled)?)))
        .min_by_key(|(at, _)| *at)
        .map(|(_, data)| data);
    let owner = match () {
        () if text.contains("pytorch_flash") => Owner::PyTorch,
        () if is_infer => Owner::FlashInfer,
        () => Owner::FlashAttention,
    };
    let named = if is_flash || is_infer {
        function.trim_end_matches("_kernel").to_owned()
    } else if text.contains("Bwd") {
        "flash_bwd".to_owned()
    } else {
        "flash_fwd".to_owned()
    };
    let helper = ["combine", "dot_do_o", "convert_dq", "Preprocess", "Postprocess"]
        .iter()
        .any(|part| text.contains(part));
    let identity = known(super::typed(&named, data), Operation::Attention, data, owner);
    Some(identity.with(|traits| Traits { tensor_cores: Some(!helper), ..traits }))
}

/// `cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1_cga1x1x1_kernel0_0`.
fn cudnn(name: &Name<'_>) -> Option<Identity> {
    let function = name.function().name;
    if !function.starts_with("cudnn_generated") || !function.contains("sdpa") {
        return None;
    }
    let parts: Vec<&str> = function.split('_').collect();
    let direction = if parts.contains(&"bprop") { "backward" } else { "forward" };
    let short = joined([Some(format!("cudnn attention {direction}")), super::tile(parts.iter().copied())]);
    let data = if parts.contains(&"f16") { Some(DataType::Float16Bits) } else { None };
    let identity = known(short, Operation::Attention, data, Owner::CuDnn);
    let tensor_cores = ["wgmma", "mma", "f16", "fp8"].iter().any(|word| parts.contains(word)).then_some(true);
    Some(identity.with(|traits| Traits { tensor_cores, ..traits }))
}
