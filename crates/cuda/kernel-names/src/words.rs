//! The words of an identifier, and their meaning.

use crate::Operation;

/// `text` in at most `most` characters, with an ellipsis where it is cut.
pub(crate) fn bounded(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some(_) => text.chars().take(most - 1).chain(['…']).collect(),
    }
}

/// The words of an identifier in lower case: `GeluBackwardCUDAKernelImpl` has `gelu`, `backward`,
/// `cuda`, `kernel` and `impl`.
pub(crate) fn words(identifier: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let (mut word, mut previous) = (String::new(), '_');
    let mut characters = identifier.chars().peekable();
    while let Some(c) = characters.next() {
        let next_is_lower = characters.peek().is_some_and(char::is_ascii_lowercase);
        let begins = c.is_ascii_uppercase()
            && (previous.is_ascii_lowercase() || previous.is_ascii_uppercase() && next_is_lower);
        if (begins || !c.is_alphanumeric()) && !word.is_empty() {
            found.push(std::mem::take(&mut word));
        }
        if c.is_alphanumeric() {
            word.push(c.to_ascii_lowercase());
        }
        previous = c;
    }
    if !word.is_empty() {
        found.push(word);
    }
    joined(found)
}

/// Words that some write as one and some as two become one.
fn joined(words: Vec<String>) -> Vec<String> {
    let mut found: Vec<String> = Vec::with_capacity(words.len());
    for word in words {
        match (found.last_mut(), word.as_str()) {
            (Some(last), "max") if last == "soft" => last.push_str("max"),
            (Some(last), "wise") if last == "element" => last.push_str("wise"),
            _ => found.push(word),
        }
    }
    found
}

/// An identifier of a framework without the words that all of them have: `direct_copy_kernel_cuda`
/// is `copy`.
pub(crate) fn readable(identifier: &str) -> String {
    const EMPTY: [&str; 24] = [
        "cuda",
        "gpu",
        "kernel",
        "impl",
        "functor",
        "internal",
        "launch",
        "op",
        "ops",
        "out",
        "frame",
        "direct",
        "template",
        "cunn",
        "kernel1",
        "kernel2",
        "kernelimpl",
        "d",
        "vectorized",
        "launcher",
        "vec",
        "t",
        "elementwise",
        "krn",
    ];
    let identifier = ["CUDAFunctorOnSelf_", "CUDAFunctorOnOther_", "CUDAFunctor_"]
        .iter()
        .find_map(|prefix| identifier.strip_prefix(prefix))
        .unwrap_or(identifier);
    let kept: Vec<String> =
        words(identifier).into_iter().filter(|word| !EMPTY.contains(&word.as_str())).collect();
    if kept.is_empty() { identifier.to_owned() } else { kept.join("_") }
}

/// Words and what they say, the most specific first: the first line with a word of an identifier
/// decides. A word with an underscore is two words in sequence; one that ends in `*` is the start
/// of a word.
const MEANINGS: &[(Operation, &[&str])] = &[
    (
        Operation::Attention,
        &[
            "attention*",
            "attn",
            "fmha*",
            "sdpa",
            "mha",
            "mla",
            "flash_fwd",
            "flash_bwd",
            "flash_attn",
            "flashattn*",
        ],
    ),
    (Operation::Softmax, &["softmax*", "log_softmax"]),
    (
        Operation::Optimizer,
        &["adam*", "sgd", "lamb", "adagrad", "rmsprop*", "optimizer*", "lion", "adafactor"],
    ),
    (
        Operation::Normalization,
        &[
            "layernorm*",
            "layer_norm",
            "rmsnorm*",
            "rms_norm",
            "batchnorm*",
            "batch_norm",
            "groupnorm*",
            "group_norm",
            "ln",
            "rms",
            "welford",
            "rowwise_moments",
            "gamma*",
            "bn",
            "fused_params",
            "internal_gradients",
            "normalize*",
            "instance_norm",
            "compute_internal",
            "renorm",
        ],
    ),
    (
        Operation::Collective,
        &[
            "allreduce*",
            "all_reduce",
            "allgather*",
            "all_gather",
            "reduce_scatter",
            "reducescatter*",
            "nccl*",
            "cross_device",
            "all_to",
            "alltoall*",
            "multimem*",
        ],
    ),
    (Operation::Loss, &["nll*", "loss", "mse", "cross_entropy", "crossentropy*", "ctc"]),
    (
        Operation::Convolution,
        &[
            "conv",
            "conv1d",
            "conv2d",
            "conv3d",
            "convolution*",
            "convolve*",
            "wgrad*",
            "dgrad*",
            "fprop*",
            "winograd*",
            "depthwise",
            "im2col",
            "col2im",
        ],
    ),
    (Operation::MatrixVector, &["gemv*", "matvec", "spmv", "mv"]),
    (
        Operation::MatrixProduct,
        &["gemm*", "sgemm*", "hgemm*", "dgemm*", "matmul*", "mm", "bmm", "addmm", "dot", "gemmk1"],
    ),
    (Operation::Recurrent, &["lstm*", "gru", "rnn*", "rnncell"]),
    (Operation::Pooling, &["pool*", "pooling*", "maxpool*", "avgpool*"]),
    (Operation::Resampling, &["upsample*", "interpolate*", "grid_sampler", "resize*"]),
    (Operation::Fft, &["fft*", "dft"]),
    (Operation::Sparse, &["spmm", "sparse*", "csr*", "coo"]),
    (
        Operation::LinearAlgebra,
        &["trsm*", "potrf*", "getrf*", "geqr*", "svd", "cholesky*", "trsv*", "trtri*"],
    ),
    (
        Operation::Sort,
        &[
            "sort*",
            "topk",
            "top_k",
            "radix",
            "unique*",
            "median",
            "kth*",
            "mergesort*",
            "bitonic*",
            "gather_topk",
        ],
    ),
    (Operation::Scan, &["scan*", "cumsum*", "cumprod*", "prefix"]),
    (
        Operation::Random,
        &[
            "dropout*",
            "random*",
            "philox",
            "rand",
            "bernoulli*",
            "normal",
            "uniform",
            "distribution*",
            "multinomial*",
            "randperm*",
            "rng",
        ],
    ),
    (
        Operation::Indexing,
        &[
            "gather*",
            "scatter*",
            "index*",
            "embedding*",
            "embed",
            "take",
            "masked_select",
            "grad_weight",
            "searchsorted",
            "lookup",
            "histogram*",
            "nonzero*",
            "indices",
            "segment*",
            "segments",
            "roll",
            "compact",
            "flip",
            "one_hot",
            "cache",
        ],
    ),
    (
        Operation::LayoutConversion,
        &["transpose*", "nchw*", "nhwc*", "permute*", "relayout", "tensor_transform", "layout"],
    ),
    (
        Operation::Concatenation,
        &["cat*", "concat*", "split*", "pad*", "pad2d", "pad1d", "pad3d", "stack", "chunk"],
    ),
    (Operation::Cast, &["cast", "convert*", "to_copy", "quantize*", "dequantize*", "quant", "dequant"]),
    (Operation::Copy, &["copy*", "memcpy*", "clone", "unfold"]),
    (Operation::Fill, &["fill*", "memset*", "zero*", "ones", "arange", "linspace", "eye", "init", "iota"]),
    (
        Operation::Reduction,
        &[
            "reduce*",
            "reduction*",
            "sum",
            "mean",
            "amax",
            "amin",
            "argmax*",
            "argmin*",
            "std",
            "var",
            "norm",
            "norm2",
            "nrm2",
            "asum",
            "prod",
            "max_values",
            "min_values",
            "arg_max",
            "arg_min",
            "norm_two",
            "norm_one",
            "norms",
            "sums",
        ],
    ),
    (
        Operation::Elementwise,
        &[
            "add",
            "addcmul",
            "addcdiv",
            "mul",
            "sub",
            "div",
            "relu*",
            "gelu*",
            "silu*",
            "sigmoid*",
            "tanh*",
            "exp",
            "expm1",
            "log",
            "log2",
            "log1p",
            "sqrt",
            "rsqrt",
            "pow",
            "neg",
            "abs",
            "clamp*",
            "where",
            "compare*",
            "threshold*",
            "lerp",
            "axpy",
            "saxpy",
            "scale",
            "scal",
            "sin",
            "cos",
            "maximum",
            "minimum",
            "max",
            "min",
            "reciprocal",
            "bitwise*",
            "masked*",
            "bias",
            "swiglu*",
            "act",
            "elementwise",
            "floor",
            "ceil",
            "round",
            "sign",
            "remainder",
            "fmod",
            "erf*",
            "leaky*",
            "elu",
            "mish",
            "hardswish*",
            "softplus*",
            "eq",
            "ne",
            "lt",
            "gt",
            "le",
            "ge",
            "and",
            "or",
            "not",
            "xor",
            "nan",
            "isnan",
            "isfinite",
            "glu",
            "triu*",
            "tril*",
            "multiply",
            "divide",
            "subtract",
            "absolute",
            "negative",
            "positive",
            "hypot",
            "logical*",
            "arctan*",
            "arcsin",
            "arccos",
            "plus",
            "minus",
            "rope",
            "rotary*",
            "true",
            "unscale*",
            "pointwise",
            "square",
            "power",
            "less",
            "greater",
            "equal",
            "divides",
            "multiplies",
            "tan",
            "atan*",
            "acos",
            "asin",
            "sinh",
            "cosh",
            "hypot",
            "logical*",
            "fmax",
            "fmin",
            "heaviside",
            "xlogy",
        ],
    ),
];

/// Returns the operation that the words of an identifier name.
pub(crate) fn operation(identifier: &str) -> Operation {
    let words = words(identifier);
    let says = |pattern: &&str| match pattern.strip_suffix('*') {
        Some(start) => words.iter().any(|word| word.starts_with(start)),
        None => {
            let wanted: Vec<&str> = pattern.split('_').collect();
            words.windows(wanted.len()).any(|found| found.iter().eq(wanted.iter()))
        }
    };
    MEANINGS.iter().find(|(_, patterns)| patterns.iter().any(says)).map_or(Operation::Unknown, |&(o, _)| o)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_have_words() {
        assert_eq!(words("GeluBackwardCUDAKernelImpl"), ["gelu", "backward", "cuda", "kernel", "impl"]);
        assert_eq!(words("nchwToNhwcKernel"), ["nchw", "to", "nhwc", "kernel"]);
        assert_eq!(words("__a1_B"), ["a1", "b"]);
    }

    #[test]
    fn readable_names_leave_out_what_all_have() {
        for (identifier, name) in [
            ("direct_copy_kernel_cuda", "copy"),
            ("CUDAFunctorOnSelf_add", "add"),
            ("GeluCUDAKernelImpl", "gelu"),
            ("launch_clamp_scalar", "clamp_scalar"),
            ("kernel", "kernel"),
        ] {
            assert_eq!(readable(identifier), name);
        }
    }

    #[test]
    fn words_say_the_operation() {
        for (identifier, meaning) in [
            ("_layer_norm_fwd_fused", Operation::Normalization),
            ("vector_add", Operation::Elementwise),
            ("matmul_kernel", Operation::MatrixProduct),
            ("softmax_reduce", Operation::Softmax),
            ("frobnicate", Operation::Unknown),
        ] {
            assert_eq!(operation(identifier), meaning, "{identifier}");
        }
    }
}
