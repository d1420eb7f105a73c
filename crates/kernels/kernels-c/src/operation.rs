//! The one table of operations, and the checks for all of them: numbers of arguments, types of
//! elements, alignment, and that outputs overlap nothing.

use apex_kernels::Element;
use apex_kernels::fusion::forms;
use half::{bf16, f16};

use crate::attention;
use crate::call::{Call, Failure, Tensor, element, status};
use crate::experts;
use crate::kernels::{ALIGNMENT, Borrowed, Kernels, Thread};
use crate::norms::{self, Norm};
use crate::sequences;

/// An operation: its name and arguments, which messages name too.
pub struct Operation {
    pub name: &'static str,
    pub inputs: &'static [Argument],
    pub outputs: &'static [Argument],
    pub integers: &'static [&'static str],
    pub numbers: &'static [&'static str],
    pub code: Code,
}

/// A tensor's name and the type of its elements.
pub struct Argument {
    pub name: &'static str,
    pub kind: Kind,
}

/// The element types that a tensor may have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// bf16 or f16, and the same for all such tensors of a call.
    Half,
    F32,
    I32,
}

/// The implementation of an operation.
pub enum Code {
    AttentionForward,
    AttentionBackward,
    SequencesForward,
    SequencesBackward,
    ExpertsForward,
    ExpertsBackward,
    Norm(Norm),
}

const fn half(name: &'static str) -> Argument {
    Argument { name, kind: Kind::Half }
}

const fn f32(name: &'static str) -> Argument {
    Argument { name, kind: Kind::F32 }
}

const fn i32(name: &'static str) -> Argument {
    Argument { name, kind: Kind::I32 }
}

const fn norm(
    name: &'static str,
    inputs: &'static [Argument],
    outputs: &'static [Argument],
    norm: Norm,
) -> Operation {
    let numbers: &[&str] = if matches!(norm, Norm::Plain(_)) { &[] } else { &["epsilon"] };
    Operation { name, inputs, outputs, integers: &["rows", "length"], numbers, code: Code::Norm(norm) }
}

/// Integers of attention. `layout` is 0 for `[batch, heads, rows, dim]`, 1 for `[batch, rows,
/// heads, dim]`; `mask` 0 for none, 1 for causal, 2 for a window, whose sides are unlimited if
/// negative; `form` 0 for the fastest, or one of `attention::FORMS`.
const ATTENTION: &[&str] =
    &["batch", "heads", "key_heads", "queries", "keys", "dim", "layout", "mask", "left", "right", "form"];

/// Integers of attention of packed sequences: rows are those of all sequences, and `longest_…` the
/// most that one of them has. `sequences` is their number; the others are as those of attention.
const SEQUENCES: &[&str] = &[
    "heads",
    "key_heads",
    "queries",
    "keys",
    "dim",
    "layout",
    "mask",
    "left",
    "right",
    "form",
    "longest_queries",
    "longest_keys",
    "sequences",
];

/// Integers of a mixture of experts. `gate` is 0 for a softmax, 1 for a sigmoid; `renormalise` 0 or
/// 1; `capacity` negative for none; `form` 0 for the fastest, or one of `experts::FORMS`.
const EXPERTS: &[&str] =
    &["tokens", "experts", "top_k", "dim", "hidden", "gate", "renormalise", "capacity", "form"];

static OPERATIONS: &[Operation] = &[
    Operation {
        name: "attention_forward",
        inputs: &[half("q"), half("k"), half("v")],
        outputs: &[half("out"), f32("log_sum_exp")],
        integers: ATTENTION,
        numbers: &["scale"],
        code: Code::AttentionForward,
    },
    Operation {
        name: "attention_backward",
        inputs: &[half("q"), half("k"), half("v"), half("out"), f32("log_sum_exp"), half("out_gradient")],
        outputs: &[half("q_gradient"), half("k_gradient"), half("v_gradient")],
        integers: ATTENTION,
        numbers: &["scale"],
        code: Code::AttentionBackward,
    },
    // `starts` has for each sequence the queries and keys before it, and at the end those of all.
    Operation {
        name: "attention_sequences_forward",
        inputs: &[half("q"), half("k"), half("v"), i32("starts")],
        outputs: &[half("out"), f32("log_sum_exp")],
        integers: SEQUENCES,
        numbers: &["scale"],
        code: Code::SequencesForward,
    },
    Operation {
        name: "attention_sequences_backward",
        inputs: &[
            half("q"),
            half("k"),
            half("v"),
            half("out"),
            f32("log_sum_exp"),
            half("out_gradient"),
            i32("starts"),
        ],
        outputs: &[half("q_gradient"), half("k_gradient"), half("v_gradient")],
        integers: SEQUENCES,
        numbers: &["scale"],
        code: Code::SequencesBackward,
    },
    // `bias`, and `plan` and `projections` (of a forward pass that saves nothing), may be empty.
    Operation {
        name: "experts_forward",
        inputs: &[half("tokens"), half("up"), half("down"), f32("logits"), f32("bias")],
        outputs: &[
            half("out"),
            i32("experts"),
            f32("weights"),
            i32("loads"),
            i32("drops"),
            i32("plan"),
            half("projections"),
        ],
        integers: EXPERTS,
        numbers: &[],
        code: Code::ExpertsForward,
    },
    Operation {
        name: "experts_backward",
        inputs: &[
            half("tokens"),
            half("up"),
            half("down"),
            f32("logits"),
            i32("experts"),
            f32("weights"),
            i32("loads"),
            i32("drops"),
            i32("plan"),
            half("projections"),
            half("out_gradient"),
        ],
        outputs: &[
            half("tokens_gradient"),
            half("up_gradient"),
            half("down_gradient"),
            f32("logits_gradient"),
        ],
        integers: EXPERTS,
        numbers: &[],
        code: Code::ExpertsBackward,
    },
    norm("rms_norm", &[half("x"), half("weight")], &[half("y")], Norm::WithEpsilon(forms::rms_norm)),
    norm(
        "rms_norm_gradient",
        &[half("x"), half("weight"), half("y_gradient")],
        &[half("x_gradient"), half("weight_gradient")],
        Norm::WithEpsilon(forms::rms_norm_gradient),
    ),
    norm(
        "residual_rms_norm",
        &[half("x"), half("residual"), half("weight")],
        &[half("sum"), half("y")],
        Norm::WithEpsilon(forms::residual_rms_norm),
    ),
    norm(
        "residual_rms_norm_gradient",
        &[half("sum"), half("weight"), half("y_gradient"), half("sum_gradient")],
        &[half("x_gradient"), half("weight_gradient")],
        Norm::WithEpsilon(forms::residual_rms_norm_gradient),
    ),
    norm(
        "residual_relu_layer_norm",
        &[half("x"), half("residual"), half("weight"), half("bias")],
        &[half("y")],
        Norm::WithEpsilon(forms::residual_relu_layer_norm),
    ),
    norm(
        "residual_relu_layer_norm_gradient",
        &[half("x"), half("residual"), half("weight"), half("y_gradient")],
        &[half("x_gradient"), half("weight_gradient"), half("bias_gradient")],
        Norm::WithEpsilon(forms::residual_relu_layer_norm_gradient),
    ),
    norm("softmax", &[half("x")], &[half("y")], Norm::Plain(forms::softmax)),
    norm(
        "softmax_gradient",
        &[half("y"), half("y_gradient")],
        &[half("x_gradient")],
        Norm::Plain(forms::softmax_gradient),
    ),
];

impl Operation {
    pub fn find(name: &str) -> Result<&'static Operation, Failure> {
        let found = OPERATIONS.iter().find(|operation| operation.name == name);
        found.ok_or_else(|| {
            let names: Vec<_> = OPERATIONS.iter().map(|operation| operation.name).collect();
            Failure::invalid(format!("there is no operation `{name}`; there are {}", names.join(", ")))
        })
    }

    pub fn run(&self, call: &Call<'_>) -> Result<i32, Failure> {
        self.check_counts(call)?;
        self.check_tensors(call.tensors)?;
        let _thread = Thread::enter()?;
        let kernels = Kernels::of(call.header.device)?;
        let borrowed = Borrowed::new(&kernels, call);
        match call.tensors[0].element {
            element::BF16 => self.run_as::<bf16>(&kernels, call, &borrowed),
            _ => self.run_as::<f16>(&kernels, call, &borrowed),
        }
    }

    /// Runs a call whose first tensor has such elements.
    fn run_as<T: Element>(
        &self,
        kernels: &Kernels,
        call: &Call<'_>,
        borrowed: &Borrowed<'_>,
    ) -> Result<i32, Failure> {
        match &self.code {
            Code::AttentionForward => attention::forward::<T>(kernels, call, borrowed),
            Code::AttentionBackward => attention::backward::<T>(kernels, call, borrowed),
            Code::SequencesForward => sequences::forward::<T>(kernels, call, borrowed),
            Code::SequencesBackward => sequences::backward::<T>(kernels, call, borrowed),
            Code::ExpertsForward => experts::forward::<T>(kernels, call, borrowed),
            Code::ExpertsBackward => experts::backward::<T>(kernels, call, borrowed),
            Code::Norm(norm) => norms::run(kernels, self, norm, call, borrowed),
        }
    }

    /// Bytes of the workspace, and what a run of this call would return.
    pub fn plan(&self, call: &Call<'_>) -> Result<(u64, i32), Failure> {
        self.check_counts(call)?;
        let _thread = Thread::enter()?;
        let kernels = Kernels::of(call.header.device)?;
        match &self.code {
            Code::AttentionForward => attention::forward_plan(&kernels, call),
            Code::AttentionBackward => attention::backward_plan(&kernels, call),
            Code::SequencesForward => sequences::plan(&kernels, call, sequences::forward_partial),
            Code::SequencesBackward => sequences::plan(&kernels, call, sequences::backward_partial),
            Code::ExpertsForward => experts::forward_plan(&kernels, call),
            Code::ExpertsBackward => experts::backward_plan(&kernels, call),
            Code::Norm(norm) => Ok((norms::workspace(&kernels, self, norm, call)?, status::DONE)),
        }
    }

    fn check_counts(&self, call: &Call<'_>) -> Result<(), Failure> {
        let tensors = self.inputs.len() + self.outputs.len();
        for (what, needed, found) in [
            ("tensors", tensors, call.tensors.len()),
            ("integers", self.integers.len(), call.integers.len()),
            ("numbers", self.numbers.len(), call.numbers.len()),
        ] {
            if needed != found {
                return Err(Failure::invalid(format!("{} takes {needed} {what}, not {found}", self.name)));
            }
        }
        Ok(())
    }

    /// Types of elements, alignment, overlaps.
    fn check_tensors(&self, tensors: &[Tensor]) -> Result<(), Failure> {
        let arguments = || self.inputs.iter().chain(self.outputs).zip(tensors);
        let first = tensors[0].element;
        for (Argument { name, kind }, tensor) in arguments() {
            let (right, needed) = match kind {
                Kind::F32 => (tensor.element == element::F32, "float32"),
                Kind::I32 => (tensor.element == element::I32, "int32"),
                Kind::Half if !matches!(first, element::BF16 | element::F16) => {
                    (false, "bfloat16 or float16")
                }
                Kind::Half => (tensor.element == first, "those of the first tensor"),
            };
            if !right {
                return Err(Failure::invalid(format!(
                    "{}: elements of `{name}` must be {needed}, not {}",
                    self.name,
                    element_name(tensor.element)
                )));
            }
            if tensor.elements > 0 && !tensor.address.is_multiple_of(ALIGNMENT) {
                return Err(Failure::invalid(format!(
                    "{}: `{name}` begins at {:#x}, which is not a multiple of {ALIGNMENT} bytes; pass a copy of it",
                    self.name, tensor.address
                )));
            }
        }
        for (output, (written, to)) in arguments().enumerate().skip(self.inputs.len()) {
            for (other, (read, from)) in arguments().enumerate() {
                if output != other && overlap(to, from) {
                    return Err(Failure::invalid(format!(
                        "{}: `{}` overlaps `{}`, and it is written to",
                        self.name, written.name, read.name
                    )));
                }
            }
        }
        Ok(())
    }
}

fn element_name(element: u32) -> String {
    match element {
        element::BF16 => "bfloat16".to_owned(),
        element::F16 => "float16".to_owned(),
        element::F32 => "float32".to_owned(),
        element::I32 => "int32".to_owned(),
        other => format!("of type {other}, which is none"),
    }
}

fn overlap(one: &Tensor, other: &Tensor) -> bool {
    let wide = |tensor: &Tensor| matches!(tensor.element, element::F32 | element::I32);
    let bytes = |tensor: &Tensor| tensor.elements * if wide(tensor) { 4 } else { 2 };
    let end = |tensor: &Tensor| tensor.address.saturating_add(bytes(tensor));
    bytes(one) > 0 && bytes(other) > 0 && one.address < end(other) && other.address < end(one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_the_first_tensor_has_the_type_of_the_others() {
        let mut names: Vec<_> = OPERATIONS.iter().map(|operation| operation.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), OPERATIONS.len());
        for operation in OPERATIONS {
            assert!(operation.inputs[0].kind == Kind::Half, "{}", operation.name);
            assert!(!operation.outputs.is_empty(), "{}", operation.name);
        }
    }

    #[test]
    fn tensors_overlap_if_they_share_a_byte() {
        let tensor = |address, elements, element| Tensor { address, elements, element, reserved: 0 };
        let one = tensor(1000, 10, element::F16);
        assert!(overlap(&one, &tensor(1018, 1, element::F16)));
        assert!(overlap(&one, &tensor(990, 3, element::F32)));
        assert!(!overlap(&one, &tensor(1020, 5, element::F16)));
        assert!(!overlap(&one, &tensor(996, 1, element::F32)));
        assert!(!overlap(&one, &tensor(1004, 0, element::F32)), "it has no bytes");
        assert!(!overlap(&tensor(0, 0, element::F16), &tensor(0, 0, element::F16)));
    }
}
