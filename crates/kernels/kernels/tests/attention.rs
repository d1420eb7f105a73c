//! Every form against the reference in f64, on the device that there is: the CPU device in CI,
//! where sizes are small.

mod attention_cases;
mod common;

use apex_gpu::{Device, Stream};
use apex_kernels::{Attention, AttentionForm, Error, Mask, Options, Shape, reference};
use attention_cases::{options, shapes};
use common::{Number, distance, random, wide};
use half::{bf16, f16};
use proptest::prelude::*;

/// The forms that the device has.
fn forms(attention: &Attention) -> Vec<AttentionForm> {
    let mut forms = vec![AttentionForm::Standard, AttentionForm::Flash, AttentionForm::Decode];
    if attention.fastest() == AttentionForm::Hopper {
        forms.push(AttentionForm::Hopper);
    }
    forms
}

/// Computes with every form, into outputs that hold NaN before, and compares with the reference.
fn check<T: Number>(shape: &Shape, options: &Options, size: f64) {
    let device = Device::open(0).unwrap();
    let attention = Attention::new(&device).unwrap();
    for form in forms(&attention) {
        let options = Options { form: Some(form), ..*options };
        compare::<T>(&attention, &device, device.stream(), shape, &options, size);
    }
}

fn compare<T: Number>(
    attention: &Attention,
    device: &Device,
    stream: &Stream,
    shape: &Shape,
    options: &Options,
    size: f64,
) {
    let q = random::<T>(1, shape.query_elements(), size);
    let [k, v] = [2, 3].map(|seed| random::<T>(seed, shape.key_elements(), size));
    let (output, sums) = reference::forward(&wide(&q), &wide(&k), &wide(&v), shape, options).unwrap();

    let [q, k, v] = [&q, &k, &v].map(|values| device.upload(values).unwrap());
    let mut found = device.upload(&vec![T::NAN; shape.query_elements()]).unwrap();
    let mut found_sums = device.upload(&vec![f32::NAN; shape.rows()]).unwrap();
    let ran = attention.forward_into(&q, &k, &v, &mut found, &mut found_sums, shape, options, stream);
    assert_eq!(Some(ran.unwrap()), options.form, "the form that was asked for");

    let off = distance(found.to_vec().unwrap().into_iter().map(Number::wide), &output);
    assert!(off < T::TOLERANCE, "{shape:?} {options:?}: relative error {off}");
    for (found, expected) in found_sums.to_vec().unwrap().into_iter().zip(sums) {
        let found = f64::from(found);
        let close = found == expected || (found - expected).abs() <= 2e-5 * (1.0 + expected.abs());
        assert!(close, "{shape:?} {options:?}: log-sum-exp {found}, not {expected}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_shape_and_mask_in_bf16(shape in shapes(), options in options()) {
        check::<bf16>(&shape, &options, 2.0);
    }

    #[test]
    fn any_shape_and_mask_in_f16(shape in shapes(), options in options()) {
        check::<f16>(&shape, &options, 2.0);
    }
}

/// Few queries against caches that the decode form cuts into several chunks.
fn caches() -> impl Strategy<Value = Shape> {
    let heads = (1..3usize, 1..9usize);
    let dim = prop::sample::select(vec![64, 128, 256]);
    (1..3usize, heads, 1..4usize, 1..900usize, dim).prop_map(
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

fn check_decode<T: Number>(shape: &Shape, options: &Options, size: f64) {
    let device = Device::open(0).unwrap();
    let attention = Attention::new(&device).unwrap();
    let options = Options { form: Some(AttentionForm::Decode), ..*options };
    compare::<T>(&attention, &device, device.stream(), shape, &options, size);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_cache_in_bf16(shape in caches(), options in options()) {
        check_decode::<bf16>(&shape, &options, 2.0);
    }

    #[test]
    fn any_cache_in_f16(shape in caches(), options in options()) {
        check_decode::<f16>(&shape, &options, 2.0);
    }
}

#[test]
fn a_few_queries_of_a_long_cache_take_the_decode_form() {
    let device = Device::open(0).unwrap();
    let attention = Attention::new(&device).unwrap();
    let cache = Shape { batch: 1, heads: 8, key_heads: 1, queries: 1, keys: 1024, dim: 64 };
    let chosen = |shape: &Shape| {
        let q = device.zeros::<bf16>(shape.query_elements()).unwrap();
        let k = device.zeros::<bf16>(shape.key_elements()).unwrap();
        attention.forward(&q, &k, &k, shape, &Options::default()).unwrap().form
    };
    assert_eq!(chosen(&cache), AttentionForm::Decode);
    let short = Shape { keys: 1023, ..cache };
    assert_eq!((chosen(&short), attention.form_for(&short)), (attention.fastest(), attention.fastest()));
    // The partial results of a larger call must not show in a smaller one, nor the other way round.
    for keys in [1500, 300, 2000, 16] {
        let mask = Mask::Causal;
        let options = Options { mask, form: Some(AttentionForm::Decode), ..Options::default() };
        compare::<bf16>(&attention, &device, device.stream(), &Shape { keys, ..cache }, &options, 2.0);
    }
}

#[test]
fn decode_with_scores_whose_exponentials_overflow_and_chunks_that_nobody_sees() {
    let cache = Shape { batch: 1, heads: 4, key_heads: 2, queries: 2, keys: 700, dim: 128 };
    check_decode::<f16>(&cache, &Options::default(), 64.0);
    for mask in [Mask::Causal, Mask::Window { left: Some(3), right: Some(0) }] {
        check_decode::<bf16>(&cache, &Options { mask, ..Options::default() }, 64.0);
    }
}

const SMALL: Shape = Shape { batch: 1, heads: 2, key_heads: 2, queries: 20, keys: 33, dim: 64 };

#[test]
fn scores_whose_exponentials_overflow() {
    // Scores reach thousands: e^89 is beyond f32.
    for mask in [Mask::Full, Mask::Causal] {
        check::<bf16>(&SMALL, &Options { mask, ..Options::default() }, 64.0);
        check::<f16>(&SMALL, &Options { mask, ..Options::default() }, 64.0);
    }
}

#[test]
fn tiles_that_are_just_full_and_just_not() {
    for (queries, keys) in [(16, 32), (17, 33), (15, 31), (1, 1), (1, 64), (64, 1)] {
        let shape = Shape { queries, keys, ..SMALL };
        check::<bf16>(&shape, &Options { mask: Mask::Causal, ..Options::default() }, 2.0);
    }
}

#[test]
fn rows_that_see_nothing_are_zero() {
    // The first queries stand before the first key.
    let shape = Shape { queries: 40, keys: 5, ..SMALL };
    for mask in [Mask::Causal, Mask::Window { left: Some(2), right: Some(0) }] {
        check::<bf16>(&shape, &Options { mask, ..Options::default() }, 2.0);
    }
    check::<f16>(&Shape { keys: 0, ..SMALL }, &Options::default(), 2.0);
}

#[test]
fn on_any_stream() {
    let device = Device::open(0).unwrap();
    let attention = Attention::new(&device).unwrap();
    let streams = [device.new_stream().unwrap(), device.new_stream().unwrap()];
    for (at, stream) in streams.iter().cycle().take(6).enumerate() {
        for form in forms(&attention) {
            let options = Options { form: Some(form), mask: Mask::Causal, ..Options::default() };
            compare::<bf16>(&attention, &device, stream, &Shape { queries: 3 + at, ..SMALL }, &options, 1.0);
        }
    }
}

fn refused(shape: &Shape, options: &Options, q: usize, k: usize) -> String {
    let device = Device::open(0).unwrap();
    let attention = Attention::new(&device).unwrap();
    let [q, k] = [q, k].map(|len| device.zeros::<bf16>(len).unwrap());
    let error = attention.forward(&q, &k, &k, shape, options).unwrap_err();
    assert!(matches!(error, Error::Shape { .. }), "{error:?}");
    error.to_string()
}

#[test]
fn wrong_shapes_are_errors_that_say_what_is_wrong() {
    let plain = Options::default();
    let (q, k) = (SMALL.query_elements(), SMALL.key_elements());
    assert_eq!(
        refused(&Shape { dim: 96, ..SMALL }, &plain, q, k),
        "attention: there are kernels for head dimensions 64, 128 and 256, not 96"
    );
    let uneven = Shape { heads: 3, ..SMALL };
    assert!(refused(&uneven, &plain, uneven.query_elements(), k).contains("cannot share 2 heads of keys"));
    assert!(refused(&Shape { key_heads: 0, ..SMALL }, &plain, q, 0).contains("share 0 heads"));
    assert!(refused(&SMALL, &plain, q - 64, k).starts_with("attention: Q has 2496 elements"));
    assert!(refused(&SMALL, &plain, q, k + 1).starts_with("attention: K has 4225 elements"));
    assert!(refused(&Shape { batch: 1 << 40, ..SMALL }, &plain, q, k).contains("split the batch"));
    assert!(refused(&Shape { keys: usize::MAX, ..SMALL }, &plain, q, k).contains("split the batch"));
    for scale in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        let options = Options { scale: Some(scale), ..plain };
        assert!(refused(&SMALL, &options, q, k).contains("the scale must be positive"));
    }
}

#[test]
fn a_form_that_the_device_lacks_is_refused() {
    let device = Device::open(0).unwrap();
    let attention = Attention::new(&device).unwrap();
    let q = device.zeros::<bf16>(SMALL.query_elements()).unwrap();
    let k = device.zeros::<bf16>(SMALL.key_elements()).unwrap();
    let done = attention.forward(
        &q,
        &k,
        &k,
        &SMALL,
        &Options { form: Some(AttentionForm::Hopper), ..Options::default() },
    );
    if device.limits().compute_capability == (9, 0) {
        assert_eq!(done.unwrap().form, AttentionForm::Hopper);
    } else {
        assert!(matches!(done, Err(Error::Form { .. })), "{done:?}");
        let chosen = attention.forward(&q, &k, &k, &SMALL, &Options::default()).unwrap();
        assert_eq!((chosen.form, attention.fastest()), (AttentionForm::Flash, AttentionForm::Flash));
    }
}
