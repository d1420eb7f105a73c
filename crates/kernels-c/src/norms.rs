//! Operations on rows, whose kernels are generated: norms and softmax.
//!
//! Kernels belong to a shape, so each shape is generated once, and compiled by the driver when it
//! first runs. They are kept as long as the process runs, because a captured graph may hold them.

use std::sync::{Arc, PoisonError};

use apex_kernels::Result as KernelResult;
use apex_kernels::fusion::{ElementType, Fused, Graph, Tensor, View};
use half::{bf16, f16};

use crate::call::{Call, Failure, element, status};
use crate::kernels::{Borrowed, Kernels};
use crate::operation::{Argument, Kind, Operation};

/// What writes the graph of an operation for a type of elements, rows and their length.
pub enum Norm {
    Plain(fn(ElementType, usize, usize) -> KernelResult<Graph>),
    WithEpsilon(fn(ElementType, usize, usize, f64) -> KernelResult<Graph>),
}

/// What kernels are generated for: operation, elements, rows, length, bits of epsilon.
pub type Key = (&'static str, u32, usize, usize, u64);

pub fn run(
    kernels: &Kernels,
    operation: &Operation,
    norm: &Norm,
    call: &Call<'_>,
    borrowed: &Borrowed<'_>,
) -> Result<i32, Failure> {
    if call.integers[0] == 0 {
        return Ok(status::DONE); // there are no rows
    }
    let fused = fused(kernels, operation, norm, call)?;
    let tensor = |place: usize, argument: &Argument| -> Result<Tensor, Failure> {
        Ok(match (argument.kind, call.tensors[place].element) {
            (Kind::F32, _) => borrowed.tensor::<f32>(place)?.into(),
            (Kind::Half, element::BF16) => borrowed.tensor::<bf16>(place)?.into(),
            (Kind::Half, _) => borrowed.tensor::<f16>(place)?.into(),
        })
    };
    let all = |arguments: &[Argument], first: usize| {
        let places = arguments.iter().enumerate();
        places.map(|(place, argument)| tensor(first + place, argument)).collect::<Result<Vec<_>, _>>()
    };
    let inputs = all(operation.inputs, 0)?;
    let mut outputs = all(operation.outputs, inputs.len())?;
    let views: Vec<View<'_>> = inputs.iter().map(View::from).collect();
    fused.run_into(&views, &mut outputs, &borrowed.stream)?;
    Ok(status::DONE)
}

/// The kernels for a call, which are generated if it is the first of its shape.
fn fused(
    kernels: &Kernels,
    operation: &Operation,
    norm: &Norm,
    call: &Call<'_>,
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
    let code = call.tensors[0].element;
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
    let count = fused.plan().kernels().len();
    if count != 1 {
        // They would share memory between them, whichever stream they run on.
        return Err(Failure::invalid(format!(
            "{name}: {rows} rows of {length} elements become {count} kernels, and one is supported"
        )));
    }
    known.insert(key, Arc::clone(&fused));
    Ok(fused)
}
