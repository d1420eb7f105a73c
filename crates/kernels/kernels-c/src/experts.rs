//! Mixtures of experts (`apex_kernels::moe`) on tensors of the caller.

use apex_gpu::Buffer;
use apex_kernels::Element;
use apex_kernels::moe::{
    Forward, Gate, Gradients, Inputs, Moe, MoeForm, Options, Plan, Routing, Saved, Shape,
    Workspace as Between, WorkspaceLengths,
};

use crate::call::{Call, Failure};
use crate::integers;
use crate::kernels::{Borrowed, Kernels, Workspace, part_bytes};

/// The name of the operations in errors.
const NAME: &str = "experts";
/// Forms, whose number is their place here plus one.
const FORMS: [MoeForm; 2] = [MoeForm::Portable, MoeForm::Hopper];

/// A problem, as the integers of a call say it.
fn problem(call: &Call<'_>) -> Result<(Shape, Options), Failure> {
    let &[tokens, experts, top_k, dim, hidden, gate, renormalise, capacity, form] = call.integers else {
        unreachable!("the number of integers has been checked");
    };
    let size = |name: &str, number: i64| integers::size(NAME, name, number);
    let shape = Shape {
        tokens: size("tokens", tokens)?,
        experts: size("experts", experts)?,
        top_k: size("top_k", top_k)?,
        dim: size("dim", dim)?,
        hidden: size("hidden", hidden)?,
    };
    let gate = match gate {
        0 => Gate::Softmax,
        1 => Gate::Sigmoid,
        other => return Err(integers::unknown(NAME, "gate", other)),
    };
    let form = integers::form(NAME, &FORMS, form)?;
    let capacity = usize::try_from(capacity).ok();
    Ok((shape, Options { gate, renormalise: renormalise != 0, capacity, form }))
}

/// The number of a form.
fn number(form: MoeForm) -> i32 {
    integers::number(&FORMS, form)
}

/// Bytes of the parts of a plan, in the order in which they lie in the caller's tensor: the widest
/// elements first, so that all are aligned.
fn plan_bytes(shape: &Shape) -> Result<[usize; 5], Failure> {
    let [tokens, choices, rows, spans, tiles] = Plan::lengths(shape)?;
    Ok([16 * tiles, 8 * spans, 4 * tokens, 4 * choices, 4 * rows])
}

/// The plan that is the tensor at this place.
fn plan_tensor(
    shape: &Shape,
    call: &Call<'_>,
    borrowed: &Borrowed<'_>,
    place: usize,
) -> Result<Plan, Failure> {
    let bytes = plan_bytes(shape)?;
    let start = |part: usize| bytes[..part].iter().sum::<usize>();
    let (found, needed) = (call.tensors[place].elements, start(5) as u64 / 4);
    if found != needed {
        return Err(Failure::invalid(format!("experts: the plan has {found} elements, and needs {needed}")));
    }
    Ok(Plan {
        tiles: borrowed.part(place, 0, bytes[0] / 16)?,
        spans: borrowed.part(place, start(1), bytes[1] / 8)?,
        row_tokens: borrowed.part(place, start(2), bytes[2] / 4)?,
        row_choices: borrowed.part(place, start(3), bytes[3] / 4)?,
        choice_rows: borrowed.part(place, start(4), bytes[4] / 4)?,
    })
}

/// Bytes of a workspace.
fn bytes(shape: &Shape, lengths: &WorkspaceLengths, plans: bool) -> Result<u64, Failure> {
    let WorkspaceLengths { counts, hidden, rows, projection_gradient, weight_parts } = *lengths;
    let words = [Between::COUNTERS, counts, weight_parts].map(|len| part_bytes(4 * len));
    let halves = [hidden, rows, projection_gradient].map(|len| part_bytes(2 * len));
    let plan = if plans { plan_bytes(shape)?.map(part_bytes).iter().sum() } else { 0 };
    Ok(words.iter().sum::<u64>() + halves.iter().sum::<u64>() + plan)
}

/// Experts that use the call's workspace, and that workspace, which must live as long as anything
/// is launched.
fn with_workspace(
    kernels: &Kernels,
    call: &Call<'_>,
    shape: &Shape,
    lengths: &WorkspaceLengths,
    plans: bool,
    borrowed: &Borrowed<'_>,
) -> Result<(Moe, Workspace), Failure> {
    let mut workspace = Workspace::new(call, bytes(shape, lengths, plans)?, borrowed)?;
    let mut counters = workspace.take(Between::COUNTERS, borrowed)?;
    counters.clear_on(&borrowed.stream)?;
    let plan = if plans { plan_bytes(shape)? } else { [0; 5] };
    let between = Between {
        counters,
        counts: workspace.take(lengths.counts, borrowed)?,
        weight_parts: workspace.take(lengths.weight_parts, borrowed)?,
        hidden: workspace.take(lengths.hidden, borrowed)?,
        rows: workspace.take(lengths.rows, borrowed)?,
        projection_gradient: workspace.take(lengths.projection_gradient, borrowed)?,
        plan: Plan {
            tiles: workspace.take(plan[0] / 16, borrowed)?,
            spans: workspace.take(plan[1] / 8, borrowed)?,
            row_tokens: workspace.take(plan[2] / 4, borrowed)?,
            row_choices: workspace.take(plan[3] / 4, borrowed)?,
            choice_rows: workspace.take(plan[4] / 4, borrowed)?,
        },
    };
    Ok((kernels.moe.with_workspace(between), workspace))
}

/// Whether a forward pass keeps what a backward pass needs.
fn saves(call: &Call<'_>) -> bool {
    call.tensors[PLAN].elements > 0
}

/// The tensor of a forward pass that has the plan.
const PLAN: usize = 10;

/// Bytes of the workspace of a forward pass, and the number of its form.
pub fn forward_plan(kernels: &Kernels, call: &Call<'_>) -> Result<(u64, i32), Failure> {
    let (shape, options) = problem(call)?;
    let lengths = Moe::forward_workspace(&shape)?;
    Ok((bytes(&shape, &lengths, true)?, number(kernels.moe.form_with(&shape, &options))))
}

/// The same of a backward pass.
pub fn backward_plan(kernels: &Kernels, call: &Call<'_>) -> Result<(u64, i32), Failure> {
    let (shape, options) = problem(call)?;
    let form = kernels.moe.form_with(&shape, &options);
    let lengths = Moe::backward_workspace(&shape, form)?;
    Ok((bytes(&shape, &lengths, false)?, number(form)))
}

pub fn forward<T: Element>(
    kernels: &Kernels,
    call: &Call<'_>,
    borrowed: &Borrowed<'_>,
) -> Result<i32, Failure> {
    let (shape, options) = problem(call)?;
    let (tokens, up, down) = (borrowed.tensor::<T>(0)?, borrowed.tensor(1)?, borrowed.tensor(2)?);
    let (logits, bias) = (borrowed.tensor(3)?, borrowed.tensor(4)?);
    let bias = (!bias.is_empty()).then_some(&bias);
    let inputs = Inputs { tokens: &tokens, logits: &logits, bias, up: &up, down: &down };
    let mut out = borrowed.tensor(5)?;
    let mut routing = routing(call, borrowed, 6)?;
    let lengths = Moe::forward_workspace(&shape)?;
    let (moe, _workspace) = with_workspace(kernels, call, &shape, &lengths, !saves(call), borrowed)?;
    let stream = &borrowed.stream;
    let ran = if saves(call) {
        let plan = plan_tensor(&shape, call, borrowed, PLAN)?;
        let mut saved = Saved::in_memory(plan, projections(call, borrowed, &shape, PLAN + 1)?);
        moe.forward_saving_into(&inputs, &mut out, &mut routing, &mut saved, &shape, &options, stream)?
    } else {
        moe.forward_into(&inputs, &mut out, &mut routing, &shape, &options, stream)?
    };
    Ok(number(ran))
}

/// The choices of tokens: four tensors from this place on.
fn routing(call: &Call<'_>, borrowed: &Borrowed<'_>, place: usize) -> Result<Routing, Failure> {
    let pairs = call.tensors[place + 3].elements as usize / 2;
    Ok(Routing {
        experts: borrowed.tensor(place)?,
        weights: borrowed.tensor(place + 1)?,
        loads: borrowed.tensor(place + 2)?,
        drops: borrowed.part(place + 3, 0, pairs)?,
    })
}

/// The products that a forward pass keeps: the tensor at this place.
fn projections<T: Element>(
    call: &Call<'_>,
    borrowed: &Borrowed<'_>,
    shape: &Shape,
    place: usize,
) -> Result<Buffer<T>, Failure> {
    let (needed, found) = (2 * shape.choices() * shape.hidden, call.tensors[place].elements);
    if found != needed as u64 {
        let why = format!("experts: the projections have {found} elements, and need {needed}");
        return Err(Failure::invalid(why));
    }
    borrowed.tensor(place)
}

pub fn backward<T: Element>(
    kernels: &Kernels,
    call: &Call<'_>,
    borrowed: &Borrowed<'_>,
) -> Result<i32, Failure> {
    let (shape, options) = problem(call)?;
    let (tokens, up, down) = (borrowed.tensor::<T>(0)?, borrowed.tensor(1)?, borrowed.tensor(2)?);
    let logits = borrowed.tensor(3)?;
    let inputs = Inputs { tokens: &tokens, logits: &logits, bias: None, up: &up, down: &down };
    let routing = routing(call, borrowed, 4)?;
    let plan = plan_tensor(&shape, call, borrowed, 8)?;
    let projections = projections(call, borrowed, &shape, 9)?;
    // SAFETY: who calls the interface says that a forward pass wrote both.
    let saved = unsafe { Saved::from_memory(plan, projections, &shape, &options) };
    let given = borrowed.tensor(10)?;
    let mut gradients = Gradients {
        tokens: borrowed.tensor(11)?,
        up: borrowed.tensor(12)?,
        down: borrowed.tensor(13)?,
        logits: borrowed.tensor(14)?,
    };
    let form = kernels.moe.form_with(&shape, &options);
    let lengths = Moe::backward_workspace(&shape, form)?;
    let (moe, _workspace) = with_workspace(kernels, call, &shape, &lengths, false, borrowed)?;
    let forward = Forward { inputs: &inputs, routing: &routing, saved: &saved };
    let ran = moe.backward_into(&forward, &given, &mut gradients, Some(form), &borrowed.stream)?;
    Ok(number(ran))
}
