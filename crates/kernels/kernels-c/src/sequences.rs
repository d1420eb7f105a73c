//! Attention of packed sequences (`apex_kernels::Sequences`) on tensors of the caller.

use apex_kernels::{AttentionForm, Element, Gradients, Options, Saved, Sequences, Shape};

use crate::attention::{bytes, layout_of, mask_of, number, size, with_workspace};
use crate::call::{Call, Failure};
use crate::kernels::{Borrowed, Kernels};

/// A problem, as the integers and numbers of a call say it: the shape of all sequences together,
/// and the most queries and keys of one.
fn problem(call: &Call<'_>) -> Result<(Shape, [usize; 2], Options), Failure> {
    let &[heads, key_heads, queries, keys, dim, layout, mask, left, right, longest_queries, longest_keys] =
        call.integers
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
    let (mask, layout) = (mask_of(mask, left, right)?, layout_of(layout)?);
    let options =
        Options { mask, scale: Some(call.numbers[0] as f32), layout, form: Some(AttentionForm::Flash) };
    Ok((all, longest, options))
}

/// The sequences, whose starts are the tensor at this place.
fn sequences(
    all: &Shape,
    longest: [usize; 2],
    call: &Call<'_>,
    borrowed: &Borrowed<'_>,
    place: usize,
) -> Result<Sequences, Failure> {
    let pairs = call.tensors[place].elements as usize / 2;
    let starts = borrowed.part(place, 0, pairs)?;
    // SAFETY: who calls the interface says so.
    Ok(unsafe { Sequences::from_starts(all, starts, longest) }?)
}

/// Bytes of the workspace of either pass, and the number of its form.
pub fn plan(kernels: &Kernels, call: &Call<'_>) -> Result<(u64, i32), Failure> {
    let (all, _, options) = problem(call)?;
    let partial = kernels.attention.backward_workspace(&all, &options)?;
    Ok((bytes(partial), number(AttentionForm::Flash)))
}

pub fn forward<T: Element>(
    kernels: &Kernels,
    call: &Call<'_>,
    borrowed: &Borrowed<'_>,
) -> Result<i32, Failure> {
    let (all, longest, options) = problem(call)?;
    let sequences = sequences(&all, longest, call, borrowed, 3)?;
    let (q, k, v) = (borrowed.tensor::<T>(0)?, borrowed.tensor::<T>(1)?, borrowed.tensor::<T>(2)?);
    let (mut out, mut sums) = (borrowed.tensor::<T>(4)?, borrowed.tensor::<f32>(5)?);
    let (attention, stream) = (&kernels.attention, &borrowed.stream);
    let ran =
        attention.forward_sequences_into(&q, &k, &v, &mut out, &mut sums, &sequences, &options, stream)?;
    Ok(number(ran))
}

pub fn backward<T: Element>(
    kernels: &Kernels,
    call: &Call<'_>,
    borrowed: &Borrowed<'_>,
) -> Result<i32, Failure> {
    let (all, longest, options) = problem(call)?;
    let sequences = sequences(&all, longest, call, borrowed, 6)?;
    let partial = kernels.attention.backward_workspace(&all, &options)?;
    let tensor = |place| borrowed.tensor::<T>(place);
    let (q, k, v, output, given) = (tensor(0)?, tensor(1)?, tensor(2)?, tensor(3)?, tensor(5)?);
    let log_sum_exp = borrowed.tensor::<f32>(4)?;
    let mut gradients = Gradients { q: tensor(7)?, k: tensor(8)?, v: tensor(9)? };
    let (attention, _workspace) = with_workspace(kernels, call, partial, false, borrowed)?;
    let saved = Saved { q: &q, k: &k, v: &v, output: &output, log_sum_exp: &log_sum_exp };
    let stream = &borrowed.stream;
    let ran =
        attention.backward_sequences_into(&saved, &given, &mut gradients, &sequences, &options, stream)?;
    Ok(number(ran))
}
