//! cuDNN, its attention aside.

use super::{Name, coded, known, typed};
use crate::words::{operation, readable};
use crate::{DataType, Identity, Operation, Owner, Traits};

/// Functions without a namespace or suffix that names cuDNN.
const FUNCTIONS: [&str; 25] = [
    "implicit_convolve_sgemm",
    "explicit_convolve_sgemm",
    "convolve_common_engine",
    "nchwToNhwc",
    "nhwcToNchw",
    "nchwToFoldedNhwc",
    "nhwcToFoldedNhwc",
    "foldedNhwcToNchw",
    "wgrad_alg",
    "dgrad_alg",
    "dgrad_engine",
    "fft2d_",
    "wgrad2d",
    "dgrad2d",
    "LSTM_elementWise",
    "GRU_elementWise",
    "GENERIC_elementWise",
    "elemWiseRNNcell",
    "RNN_",
    "tensorTransform",
    "op_generic_tensor",
    "conv2d_grouped_direct",
    "conv2d_c1_k1",
    "pooling_fw_4d",
    "pooling_bw",
];

/// Parts of the names of engines without tensor cores for operands in FP32.
const SIMT: [&str; 4] = ["dgrad_engine", "wgrad_alg0", "wgrad_alg1", "winograd"];

pub(super) fn identify(name: &Name<'_>) -> Option<Identity> {
    let text = name.text;
    let function = name.function();
    let is_convolution = ["xmma_fprop", "xmma_dgrad", "xmma_wgrad", "convolve_", "winograd"]
        .iter()
        .any(|part| text.contains(part));
    // PyTorch's own, which reads a generator's state for cuDNN.
    if function.name == "unpack_cudnn" {
        return None;
    }
    if !is_convolution
        && !text.contains("cudnn")
        && !name.is_in("engines_precompiled")
        && !FUNCTIONS.iter().any(|start| function.name.starts_with(start))
    {
        return None;
    }
    let code = code(name);
    let is_coded = code.contains("xmma") || code.contains("implicit_gemm") || code.starts_with("cutlass");
    if let Some(identity) = coded::identify(code, Owner::CuDnn, "cudnn").filter(|_| is_coded) {
        return Some(identity);
    }
    let data = function.arguments().into_iter().find_map(DataType::in_cpp);
    let what = match function.name {
        start if start.starts_with("init_device_workspace") => Operation::Auxiliary,
        start if start.contains("elementWise_") || start.contains("RNN") => Operation::Recurrent,
        _ if is_convolution => Operation::Convolution,
        start if start.contains("dot_do_o") || start.contains("convert_dq") => Operation::Attention,
        start if start.contains("wgrad") || start.contains("dgrad") => Operation::Convolution,
        start if start.starts_with("bn_") => Operation::Normalization,
        start if start.starts_with("op_generic_tensor") => Operation::Elementwise,
        other => operation(other),
    };
    let short = format!("cudnn {}", typed(&readable(function.name), data));
    let identity = known(short, what, data, Owner::CuDnn);
    let is_engine = data == Some(DataType::F32) && SIMT.iter().any(|part| text.contains(part));
    let simt = what == Operation::Convolution && (text.contains("sgemm") || is_engine);
    Some(identity.with(|traits| Traits { tensor_cores: simt.then_some(false), ..traits }))
}

/// The coded name: the function, or the argument of CUTLASS's `Kernel`.
fn code<'a>(name: &Name<'a>) -> &'a str {
    let function = name.function();
    function
        .arguments()
        .first()
        .copied()
        .filter(|argument| argument.starts_with("cutlass"))
        .unwrap_or(function.name)
}
