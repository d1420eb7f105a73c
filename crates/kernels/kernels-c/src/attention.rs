//! Attention (`apex_kernels::Attention`) on tensors of the caller.

use apex_kernels::{
    Attention, AttentionForm, Element, Gradients, Layout, Mask, Options, Saved, Shape, Workspace as Between,
};

use crate::call::{Call, Failure};
use crate::integers;
use crate::kernels::{Borrowed, Kernels, Workspace, part_bytes};

/// The name of the operations in errors.
const NAME: &str = "attention";
/// Forms, whose number is their place here plus one. The standard form is not among them: it needs
/// memory for all scores.
const FORMS: [AttentionForm; 3] = [AttentionForm::Flash, AttentionForm::Hopper, AttentionForm::Decode];

/// A problem, as the integers and numbers of a call say it.
fn problem(call: &Call<'_>) -> Result<(Shape, Options), Failure> {
    let &[batch, heads, key_heads, queries, keys, dim, layout, mask, left, right, form] = call.integers
    else {
        unreachable!("the number of integers has been checked");
    };
    let shape = Shape {
        batch: size("batch", batch)?,
        heads: size("heads", heads)?,
        key_heads: size("key_heads", key_heads)?,
        queries: size("queries", queries)?,
        keys: size("keys", keys)?,
        dim: size("dim", dim)?,
    };
    if shape.keys == 0 {
        return Err(Failure::invalid("attention: there are no keys; the output is zero without a call"));
    }
    let layout = layout_of(layout)?;
    let mask = mask_of(mask, left, right)?;
    let form = form_of(form)?;
    Ok((shape, Options { mask, scale: Some(call.numbers[0] as f32), layout, form }))
}

pub fn form_of(number: i64) -> Result<Option<AttentionForm>, Failure> {
    integers::form(NAME, &FORMS, number)
}

pub fn size(name: &str, number: i64) -> Result<usize, Failure> {
    integers::size(NAME, name, number)
}

pub fn layout_of(number: i64) -> Result<Layout, Failure> {
    match number {
        0 => Ok(Layout::HeadsFirst),
        1 => Ok(Layout::RowsFirst),
        other => Err(unknown("layout", other)),
    }
}

pub fn mask_of(number: i64, left: i64, right: i64) -> Result<Mask, Failure> {
    let side = |limit: i64| usize::try_from(limit).ok();
    match number {
        0 => Ok(Mask::Full),
        1 => Ok(Mask::Causal),
        2 => Ok(Mask::Window { left: side(left), right: side(right) }),
        other => Err(unknown("mask", other)),
    }
}

fn unknown(what: &str, number: i64) -> Failure {
    integers::unknown(NAME, what, number)
}

/// The number of a form.
pub fn number(form: AttentionForm) -> i32 {
    integers::number(&FORMS, form)
}

/// Bytes of the workspace of a forward pass, and the number of its form.
pub fn forward_plan(kernels: &Kernels, call: &Call<'_>) -> Result<(u64, i32), Failure> {
    let (shape, options) = problem(call)?;
    let partial = kernels.attention.forward_workspace(&shape, &options)?;
    Ok((bytes(partial), number(options.form.unwrap_or_else(|| kernels.attention.form_for(&shape)))))
}

/// The same of a backward pass.
pub fn backward_plan(kernels: &Kernels, call: &Call<'_>) -> Result<(u64, i32), Failure> {
    let (shape, options) = problem(call)?;
    let partial = kernels.attention.backward_workspace(&shape, &options)?;
    Ok((bytes(partial), number(options.form.unwrap_or_else(|| kernels.attention.fastest()))))
}

pub fn bytes(partial: [usize; 2]) -> u64 {
    let counters = part_bytes(Between::COUNTERS * size_of::<u32>());
    counters + partial.map(|len| part_bytes(len * size_of::<f32>())).iter().sum::<u64>()
}

/// Attention that uses the call's workspace, and that workspace, which must live as long as
/// anything is launched.
pub fn with_workspace(
    kernels: &Kernels,
    call: &Call<'_>,
    partial: [usize; 2],
    counts: bool,
    borrowed: &Borrowed<'_>,
) -> Result<(Attention, Workspace), Failure> {
    let mut workspace = Workspace::new(call, bytes(partial), borrowed)?;
    let mut counters = workspace.take(Between::COUNTERS, borrowed)?;
    if counts {
        counters.clear_on(&borrowed.stream)?;
    }
    let [one, other] = partial.map(|len| workspace.take(len, borrowed));
    let between = Between { counters, partial: [one?, other?] };
    Ok((kernels.attention.with_workspace(between), workspace))
}

pub fn forward<T: Element>(
    kernels: &Kernels,
    call: &Call<'_>,
    borrowed: &Borrowed<'_>,
) -> Result<i32, Failure> {
    let (shape, options) = problem(call)?;
    let partial = kernels.attention.forward_workspace(&shape, &options)?;
    let form = options.form.unwrap_or_else(|| kernels.attention.form_for(&shape));
    let (q, k, v) = (borrowed.tensor::<T>(0)?, borrowed.tensor::<T>(1)?, borrowed.tensor::<T>(2)?);
    let (mut out, mut sums) = (borrowed.tensor::<T>(3)?, borrowed.tensor::<f32>(4)?);
    let (attention, _workspace) =
        with_workspace(kernels, call, partial, form == AttentionForm::Hopper, borrowed)?;
    let ran = attention.forward_into(&q, &k, &v, &mut out, &mut sums, &shape, &options, &borrowed.stream)?;
    Ok(number(ran))
}

pub fn backward<T: Element>(
    kernels: &Kernels,
    call: &Call<'_>,
    borrowed: &Borrowed<'_>,
) -> Result<i32, Failure> {
    let (shape, options) = problem(call)?;
    let partial = kernels.attention.backward_workspace(&shape, &options)?;
    let tensor = |place| borrowed.tensor::<T>(place);
    let (q, k, v, output, given) = (tensor(0)?, tensor(1)?, tensor(2)?, tensor(3)?, tensor(5)?);
    let log_sum_exp = borrowed.tensor::<f32>(4)?;
    let mut gradients = Gradients { q: tensor(6)?, k: tensor(7)?, v: tensor(8)? };
    let (attention, _workspace) = with_workspace(kernels, call, partial, false, borrowed)?;
    let saved = Saved { q: &q, k: &k, v: &v, output: &output, log_sum_exp: &log_sum_exp };
    let stream = &borrowed.stream;
    let ran = attention.backward_into(&saved, &given, &mut gradients, &shape, &options, stream)?;
    Ok(number(ran))
}
