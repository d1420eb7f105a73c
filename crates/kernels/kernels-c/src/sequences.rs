//! Attention of packed sequences (`apex_kernels::Sequences`) on tensors of the caller.

use apex_kernels::{Attention, AttentionForm, Element, Gradients, Options, Saved, Sequences, Shape};

use crate::attention::{bytes, form_of, layout_of, mask_of, number, size, with_workspace};
use crate::call::{Call, Failure};
use crate::kernels::{Borrowed, Kernels};

/// A problem, as the integers and numbers of a call say it.
pub struct Problem {
    /// The shape of all sequences together.
    all: Shape,
    /// The most queries and keys of one.
    longest: [usize; 2],
    /// The number of sequences.
    count: usize,
    options: Options,
}

fn problem(call: &Call<'_>) -> Result<Problem, Failure> {
    let &[
        heads,
        key_heads,
        queries,
        keys,
        dim,
        layout,
        mask,
        left,
        right,
        form,
        longest_queries,
        longest_keys,
        count,
    ] = call.integers
    else {
        unreachable!("the number of integers has been checked");
    };
    let all = Shape {
        batch: 1,
        heads: size("heads", heads)?,
        key_heads: size("key_heads", key_heads)?,
        queries: size("queries", queries)?,
        keys: size("keys", keys)?,
        dim: size("dim", dim)?,
    };
    let longest = [size("longest_queries", longest_queries)?, size("longest_keys", longest_keys)?];
    let (mask, layout, form) = (mask_of(mask, left, right)?, layout_of(layout)?, form_of(form)?);
    let options = Options { mask, scale: Some(call.numbers[0] as f32), layout, form };
    Ok(Problem { all, longest, count: size("sequences", count)?, options })
}

/// The sequences, whose starts are the tensor at this place.
fn sequences(
    its: &Problem,
    call: &Call<'_>,
    borrowed: &Borrowed<'_>,
    place: usize,
) -> Result<Sequences, Failure> {
    let elements = call.tensors[place].elements;
    if elements as usize / 2 != its.count.saturating_add(1) || !elements.is_multiple_of(2) {
        return Err(Failure::invalid(format!(
            "attention: {} sequences have {} starts of two numbers, and the tensor has {elements} elements",
            its.count,
            its.count.saturating_add(1)
        )));
    }
    let starts = borrowed.part(place, 0, its.count + 1)?;
    // SAFETY: who calls the interface says so.
    Ok(unsafe { Sequences::from_starts(&its.all, starts, its.longest) }?)
}

/// Elements of the partial results of a pass.
type Partial = fn(&Attention, &Problem) -> apex_kernels::Result<[usize; 2]>;

pub fn forward_partial(attention: &Attention, its: &Problem) -> apex_kernels::Result<[usize; 2]> {
    attention.forward_sequences_workspace(&its.all, its.count, &its.options)
}

pub fn backward_partial(attention: &Attention, its: &Problem) -> apex_kernels::Result<[usize; 2]> {
    attention.backward_sequences_workspace(&its.all, its.count, &its.options)
}

/// Bytes of the workspace of a pass, and the number of its form.
pub fn plan(kernels: &Kernels, call: &Call<'_>, partial: Partial) -> Result<(u64, i32), Failure> {
    let its = problem(call)?;
    let form = kernels.attention.form_of_sequences(&its.all, &its.options)?;
    Ok((bytes(partial(&kernels.attention, &its)?), number(form)))
}

pub fn forward<T: Element>(
    kernels: &Kernels,
    call: &Call<'_>,
    borrowed: &Borrowed<'_>,
) -> Result<i32, Failure> {
    let its = problem(call)?;
    let (sequences, options) = (sequences(&its, call, borrowed, 3)?, &its.options);
    let (q, k, v) = (borrowed.tensor::<T>(0)?, borrowed.tensor::<T>(1)?, borrowed.tensor::<T>(2)?);
    let (mut out, mut sums) = (borrowed.tensor::<T>(4)?, borrowed.tensor::<f32>(5)?);
    let partial = forward_partial(&kernels.attention, &its)?;
    let counts = kernels.attention.form_of_sequences(&its.all, options)? == AttentionForm::Hopper;
    let (attention, _workspace) = with_workspace(kernels, call, partial, counts, borrowed)?;
    let stream = &borrowed.stream;
    let ran =
        attention.forward_sequences_into(&q, &k, &v, &mut out, &mut sums, &sequences, options, stream)?;
    Ok(number(ran))
}

pub fn backward<T: Element>(
    kernels: &Kernels,
    call: &Call<'_>,
    borrowed: &Borrowed<'_>,
) -> Result<i32, Failure> {
    let its = problem(call)?;
    let (sequences, options) = (sequences(&its, call, borrowed, 6)?, &its.options);
    let partial = backward_partial(&kernels.attention, &its)?;
    let tensor = |place| borrowed.tensor::<T>(place);
    let (q, k, v, output, given) = (tensor(0)?, tensor(1)?, tensor(2)?, tensor(3)?, tensor(5)?);
    let log_sum_exp = borrowed.tensor::<f32>(4)?;
    let mut gradients = Gradients { q: tensor(7)?, k: tensor(8)?, v: tensor(9)? };
    let (attention, _workspace) = with_workspace(kernels, call, partial, false, borrowed)?;
    let saved = Saved { q: &q, k: &k, v: &v, output: &output, log_sum_exp: &log_sum_exp };
    let stream = &borrowed.stream;
    let ran =
        attention.backward_sequences_into(&saved, &given, &mut gradients, &sequences, options, stream)?;
    Ok(number(ran))
}
