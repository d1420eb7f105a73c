//! Shapes and options of the tests of attention.

use apex_kernels::{Layout, Mask, Options, Shape};
use proptest::prelude::*;

pub fn shapes() -> impl Strategy<Value = Shape> {
    let heads = (1..3usize, 1..4usize);
    let dim = prop::sample::select(vec![64, 128, 256]);
    (0..3usize, heads, 0..36usize, 0..70usize, dim).prop_map(
        |(batch, (key_heads, group), queries, keys, dim)| Shape {
            batch,
            heads: key_heads * group,
            key_heads,
            queries,
            keys,
            dim,
        },
    )
}

fn masks() -> impl Strategy<Value = Mask> {
    let side = || prop::option::of(0..40usize);
    prop_oneof![
        Just(Mask::Full),
        Just(Mask::Causal),
        (side(), side()).prop_map(|(left, right)| Mask::Window { left, right }),
    ]
}

pub fn options() -> impl Strategy<Value = Options> {
    let layout = prop::sample::select(vec![Layout::HeadsFirst, Layout::RowsFirst]);
    (masks(), prop::option::of(0.01f32..1.0), layout).prop_map(|(mask, scale, layout)| Options {
        mask,
        scale,
        layout,
        form: None,
    })
}
