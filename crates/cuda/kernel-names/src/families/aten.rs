//! PyTorch's own kernels (ATen), and those of extensions with names like them.

use super::functor::{self, Functor};
use super::{Name, known, typed};
use crate::outline;
use crate::words::{operation, readable};
use crate::{Access, DataType, Identity, Operation, Owner, Traits, Types};

pub(super) fn identify(name: &Name<'_>) -> Option<Identity> {
    let function = name.function().name;
    let owner = owner(name)?;
    let identity = match function {
        "reduce_kernel" => reduction(name),
        "multi_tensor_apply_kernel" => foreach(name),
        _ if function.contains("elementwise_kernel") || function.contains("distribution_elementwise") => {
            elementwise(name)
        }
        _ => named(name),
    };
    Some(identity.with(|traits| Traits { owner, ..traits }))
}

fn owner(name: &Name<'_>) -> Option<Owner> {
    const OF_ATEN: [&str; 7] = [
        "vectorized_elementwise_kernel",
        "unrolled_elementwise_kernel",
        "multi_tensor_apply_kernel",
        "CatArrayBatchedCopy",
        "cunn_SoftMax",
        "softmax_warp_",
        "indexing_backward_kernel",
    ];
    let first = name.path.first().map_or("", |part| part.name);
    let text = name.text;
    match first {
        "vllm" => Some(Owner::Vllm),
        "flashinfer" => Some(Owner::FlashInfer),
        "transformer_engine" => Some(Owner::TransformerEngine),
        "tensorflow" | "Eigen" => Some(Owner::TensorFlow),
        "cufft" => Some(Owner::CuFft),
        "cusparse" => Some(Owner::CuSparse),
        "cusolver" => Some(Owner::CuSolver),
        "curand" => Some(Owner::CuRand),
        "at" | "c10" | "caffe2" | "fbgemm_gpu" | "torch" => Some(Owner::PyTorch),
        _ if OF_ATEN.iter().any(|start| name.function().name.starts_with(start)) => Some(Owner::PyTorch),
        _ if ["at::", "c10::", "native::"].iter().any(|part| text.contains(part)) => Some(Owner::PyTorch),
        _ if text.contains("cufft") || text.starts_with("regular_fft") || text.starts_with("vector_fft") => {
            Some(Owner::CuFft)
        }
        _ if text.contains("cusparse") => Some(Owner::CuSparse),
        _ if text.contains("cusolver") => Some(Owner::CuSolver),
        _ => None,
    }
}

/// The functor among template arguments: the first that is neither a number nor a type.
fn functor_of(arguments: &[&str]) -> Functor {
    let is_plain = |argument: &&&str| {
        DataType::in_cpp(argument).is_some() || argument.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    arguments
        .iter()
        .find(|argument| !is_plain(argument))
        .map_or_else(Functor::default, |found| functor::of(found))
}

fn elementwise(name: &Name<'_>) -> Identity {
    let function = name.function();
    let arguments = function.arguments();
    let functor = functor_of(&arguments);
    let (access, mark) = access(function.name, &arguments);
    let casts = arguments.iter().any(|argument| argument.contains("LoadWithCast"))
        || access == Access::Strided && name.text.contains("gpu_kernel_impl<");
    let to = cast_to(&functor.identifier);
    let named = if functor.name.is_empty() { readable(function.name) } else { functor.name.clone() };
    let is_copy = functor.identifier.starts_with("direct_copy_kernel");
    let what = match operation(&named) {
        _ if to.is_some() || is_copy && casts => Operation::Cast,
        _ if is_copy => Operation::Copy,
        _ if function.name.contains("distribution") => Operation::Random,
        Operation::Unknown if function.name.contains("index") || function.name.contains("scatter") => {
            Operation::Indexing
        }
        Operation::Unknown => Operation::Elementwise,
        found => found,
    };
    let first = functor.types.first().copied().or_else(|| arguments.iter().find_map(|a| DataType::in_cpp(a)));
    let first = first.filter(|_| what != Operation::Indexing || !functor.types.is_empty());
    // The operand of a cast is converted while it is loaded: its type is known at run time alone.
    let types = match (what, to) {
        (Operation::Cast, Some(to)) => Types { input: first, output: Some(to), accumulator: None },
        (Operation::Cast, None) => Types { input: None, output: first, accumulator: None },
        _ => Types::of(first),
    };
    let shown = match to {
        Some(to) => format!("cast<{}>", to.cpp()),
        None if what == Operation::Cast => typed("cast", first),
        None => typed(&named, first),
    };
    let mark = if casts && what != Operation::Cast { " cast" } else { mark };
    known(format!("{shown}{mark}"), what, first, Owner::PyTorch).with(|traits| Traits {
        types,
        access,
        ..traits
    })
}

/// Returns the access of a functor's container to its tensors, and its words in a short name.
fn access(container: &str, arguments: &[&str]) -> (Access, &'static str) {
    match container {
        "elementwise_kernel" => (Access::Strided, " strided"),
        _ if container.starts_with("vectorized") => (Access::Contiguous, ""),
        "unrolled_elementwise_kernel"
            if arguments.iter().any(|argument| argument.starts_with("TrivialOffset")) =>
        {
            (Access::Contiguous, "")
        }
        "unrolled_elementwise_kernel" => (Access::Strided, " strided"),
        _ => (Access::Unknown, ""),
    }
}

/// The type that `bfloat16_copy_kernel_cuda` and its like convert to.
fn cast_to(identifier: &str) -> Option<DataType> {
    let (to, _) = identifier.split_once("_copy_kernel")?;
    match to {
        "float8" | "float8_e4m3fn" => Some(DataType::E4m3),
        other => DataType::in_code(other),
    }
}

/// `reduce_kernel<512, 1, ReduceOp<c10::Half, func_wrapper_t<…>, unsigned int, c10::Half, 4, 8>>`.
fn reduction(name: &Name<'_>) -> Identity {
    let function = name.function();
    let arguments = function.arguments();
    let op = arguments.iter().find_map(|argument| {
        let path = outline::path(argument);
        path.last().copied().filter(|part| part.name == "ReduceOp")
    });
    let inside = op.map_or_else(Vec::new, |op| op.arguments());
    let input = inside.first().and_then(|argument| DataType::in_cpp(argument));
    let output = inside.get(3).and_then(|argument| DataType::in_cpp(argument));
    let functor = inside.get(1).map_or_else(Functor::default, |argument| functor::of(argument));
    let named = if functor.name.is_empty() { "reduce".to_owned() } else { functor.name };
    let what = match operation(&named) {
        Operation::Normalization => Operation::Normalization,
        _ => Operation::Reduction,
    };
    let identity = known(typed(&named, input), what, input, Owner::PyTorch);
    let types = Types { input, output: output.or(input), accumulator: None };
    identity.with(|traits| Traits { types, ..traits })
}

/// `multi_tensor_apply_kernel<TensorListMetadata<2>, UnaryOpFunctor<float, 2, 1, 1>,
/// std::sqrt<float>>`: a list of tensors at once. The operation is the functor's, or that of what
/// it applies.
fn foreach(name: &Name<'_>) -> Identity {
    let function = name.function();
    let arguments = function.arguments();
    let functors: Vec<Functor> = arguments
        .iter()
        .filter(|argument| argument.contains('<') || argument.contains("::"))
        .map(|argument| functor::of(argument))
        .filter(|functor| !functor.identifier.contains("TensorList"))
        .collect();
    let data = functors.iter().find_map(|functor| functor.types.first().copied());
    let of = |functor: &Functor| operation(&functor.name);
    let fused = functors.iter().find(|functor| of(functor) == Operation::Optimizer);
    let applied = functors.last();
    let (named, what) = match (fused, applied) {
        (Some(fused), _) => (fused.name.clone(), Operation::Optimizer),
        (None, Some(applied)) => (format!("foreach_{}", applied.name), of(applied)),
        (None, None) => ("foreach".to_owned(), Operation::Unknown),
    };
    let what = match what {
        Operation::Unknown => Operation::Elementwise,
        found => found,
    };
    let named = named.replace("_math", "");
    known(typed(&named, data), what, data, Owner::PyTorch)
        .with(|traits| Traits { many_tensors: true, ..traits })
}

/// Every other kernel: its function says the operation, its first type the type.
fn named(name: &Name<'_>) -> Identity {
    let function = name.function();
    let arguments = function.arguments();
    // This one moves bytes, whatever their type; the type in its name is that of the indices.
    let moves_bytes = function.name == "vectorized_gather_kernel";
    let typed_argument =
        || arguments.iter().filter_map(|one| DataType::in_cpp(one)).find(|data| *data != DataType::Bool);
    let data = if moves_bytes {
        None
    } else {
        typed_argument().or_else(|| function.parameters.and_then(super::own::pointer))
    };
    let short = readable(function.name);
    let what = match operation(function.name) {
        Operation::Unknown => operation(&functor_of(&arguments).name),
        found => found,
    };
    known(typed(&short, data), what, data, Owner::PyTorch)
}
