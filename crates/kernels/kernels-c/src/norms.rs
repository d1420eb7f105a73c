//! Operations on rows, whose kernels are generated: norms and softmax.
//!
//! Kernels belong to a shape, so each shape is generated once, and compiled by the driver when it
//! first runs. They are kept as long as the process runs, because a captured graph may hold them.

use std::sync::{Arc, PoisonError};

use apex_gpu::Buffer;
use apex_kernels::Result as KernelResult;
use apex_kernels::fusion::{ElementType, Fused, Graph, Tensor, View};
use half::{bf16, f16};

use crate::call::{Call, Failure, element, status};
use crate::kernels::{Borrowed, Kernels, Workspace, part_bytes};
use crate::operation::{Argument, Kind, Operation};

/// The function that builds the graph of an operation for a type of elements, a number of rows and
/// their length.
pub enum Norm {
    Plain(fn(ElementType, usize, usize) -> KernelResult<Graph>),
    WithEpsilon(fn(ElementType, usize, usize, f64) -> KernelResult<Graph>),
}

pub fn run(
    kernels: &Kernels,
    operation: &Operation,
    norm: &Norm,
    call: &Call<'_>,
    borrowed: &Borrowed<'_>,
) -> Result<i32, Failure> {
    let fused = fused(kernels, operation, norm, call, call.tensors[0].element)?;
    let tensor = |place: usize, argument: &Argument| -> Result<Tensor, Failure> {
        Ok(match (argument.kind, call.tensors[place].element) {
            (Kind::F32, _) => borrowed.tensor::<f32>(place)?.into(),
            (Kind::Half, element::BF16) => borrowed.tensor::<bf16>(place)?.into(),
            (Kind::Half, _) => borrowed.tensor::<f16>(place)?.into(),
            (Kind::I32, _) => unreachable!("norms have no such tensors"),
        })
    };
    let all = |arguments: &[Argument], first: usize| {
        let places = arguments.iter().enumerate();
        places.map(|(place, argument)| tensor(first + place, argument)).collect::<Result<Vec<_>, _>>()
    };
    let inputs = all(operation.inputs, 0)?;
    let mut outputs = all(operation.outputs, inputs.len())?;
    let views: Vec<View<'_>> = inputs.iter().map(View::from).collect();
    let needed = fused.workspace();
    // Operations of one kernel leave nothing between kernels.
    let mut workspace = match needed.is_empty() {
        true => None,
        false => Some(Workspace::new(call, bytes(&needed), borrowed)?),
    };
    let take = |&words: &usize| workspace.as_mut().map(|workspace| workspace.take(words, borrowed));
    let mut between = needed.iter().filter_map(take).collect::<Result<Vec<Buffer<u32>>, _>>()?;
    fused.run_with(&views, &mut outputs, &mut between, &borrowed.stream)?;
    Ok(status::DONE)
}

/// Bytes of the workspace for a call. Types of elements are not known yet: both take as many.
pub fn workspace(
    kernels: &Kernels,
    operation: &Operation,
    norm: &Norm,
    call: &Call<'_>,
) -> Result<u64, Failure> {
    Ok(bytes(&fused(kernels, operation, norm, call, element::BF16)?.workspace()))
}

fn bytes(words: &[usize]) -> u64 {
    words.iter().map(|words| part_bytes(4 * words)).sum()
}

/// The kernels for a call, which are generated if it is the first of its shape.
fn fused(
    kernels: &Kernels,
    operation: &Operation,
    norm: &Norm,
    call: &Call<'_>,
    code: u32,
) -> Result<Arc<Fused>, Failure> {
    let name = operation.name;
    let size = |place: usize| {
        let number = call.integers[place];
        usize::try_from(number).map_err(|_| {
            Failure::invalid(format!(
                "{name}: {} is {number}, and must not be negative",
                operation.integers[place]
            ))
        })
    };
    let (rows, length) = (size(0)?, size(1)?);
    let epsilon = call.numbers.first().copied().unwrap_or_default();
    let key = (name, code, rows, length, epsilon.to_bits());
    // A thread that panicked here left whole entries.
    let mut known = kernels.fused.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(fused) = known.get(&key) {
        return Ok(Arc::clone(fused));
    }
    if !(epsilon >= 0.0 && epsilon.is_finite()) {
        return Err(Failure::invalid(format!(
            "{name}: epsilon is {epsilon}, and must be a number from 0 on"
        )));
    }
    let element = if code == element::BF16 { ElementType::Bf16 } else { ElementType::F16 };
    let graph = match norm {
        Norm::Plain(form) => form(element, rows, length)?,
        Norm::WithEpsilon(form) => form(element, rows, length, epsilon)?,
    };
    let fused = Arc::new(Fused::new(&kernels.device, &graph)?);
    known.insert(key, Arc::clone(&fused));
    Ok(fused)
}
