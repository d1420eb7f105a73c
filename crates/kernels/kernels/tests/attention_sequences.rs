//! Attention of sequences of different lengths against the reference in f64, and against calls with
//! each sequence alone.

#[expect(dead_code, reason = "shapes of one length are for other tests")]
mod attention_cases;
mod common;

use apex_gpu::{Buffer, Device};
use apex_kernels::{
    Attention, AttentionForm, Error, Gradients, Layout, Mask, Options, Saved, Sequences, Shape, reference,
};
use attention_cases::options;
use common::{Number, distance, random, wide};
use half::{bf16, f16};
use proptest::prelude::*;

const HEADS: Shape = Shape { batch: 1, heads: 2, key_heads: 1, queries: 0, keys: 0, dim: 64 };

/// The shape of each sequence for itself.
fn shapes(heads: &Shape, lengths: &[(usize, usize)]) -> Vec<Shape> {
    lengths.iter().map(|&(queries, keys)| Shape { queries, keys, ..*heads }).collect()
}

/// Computes forward and backward, into buffers that hold NaN before, and compares with the
/// reference.
fn check<T: Number>(heads: &Shape, lengths: &[(usize, usize)], options: &Options, size: f64) {
    let device = Device::open(0).unwrap();
    let attention = Attention::new(&device).unwrap();
    let sequences = Sequences::new(&device, heads, lengths).unwrap();
    let (all, shapes) = (*sequences.all(), shapes(heads, lengths));
    let [q, given] = [1, 4].map(|seed| random::<T>(seed, all.query_elements(), size));
    let [k, v] = [2, 3].map(|seed| random::<T>(seed, all.key_elements(), size));
    let (output, sums) =
        reference::forward_sequences(&wide(&q), &wide(&k), &wide(&v), &shapes, options).unwrap();
    let gradients =
        reference::backward_sequences(&wide(&q), &wide(&k), &wide(&v), &wide(&given), &shapes, options)
            .unwrap();

    let [q, k, v, given] = [&q, &k, &v, &given].map(|values| device.upload(values).unwrap());
    let nan = |len| device.upload(&vec![T::NAN; len]).unwrap();
    let (mut found, mut found_sums) =
        (nan(output.len()), device.upload(&vec![f32::NAN; sums.len()]).unwrap());
    let stream = device.stream();
    let form = attention
        .forward_sequences_into(&q, &k, &v, &mut found, &mut found_sums, &sequences, options, stream)
        .unwrap();
    assert_eq!(form, attention.form_of_sequences(heads, options).unwrap());
    let close = |name: &str, found: &Buffer<T>, expected: &[f64], tolerance: f64| {
        let off = distance(wide(&found.to_vec().unwrap()).into_iter(), expected);
        assert!(off < tolerance, "{lengths:?} {heads:?} {options:?}: relative error of {name} {off}");
    };
    close("O", &found, &output, T::TOLERANCE);
    for (found, expected) in found_sums.to_vec().unwrap().into_iter().map(f64::from).zip(sums) {
        let is_close = found == expected || (found - expected).abs() <= 2e-5 * (1.0 + expected.abs());
        assert!(is_close, "{lengths:?} {options:?}: log-sum-exp {found}, not {expected}");
    }

    let saved = Saved { q: &q, k: &k, v: &v, output: &found, log_sum_exp: &found_sums };
    let mut of = Gradients { q: nan(q.len()), k: nan(k.len()), v: nan(v.len()) };
    attention.backward_sequences_into(&saved, &given, &mut of, &sequences, options, stream).unwrap();
    for (name, found, expected) in
        [("dQ", &of.q, &gradients[0]), ("dK", &of.k, &gradients[1]), ("dV", &of.v, &gradients[2])]
    {
        close(name, found, expected, 3.0 * T::TOLERANCE);
    }
}

/// Generates up to three sequences, some of which are empty, on one side or both; self-attention in
/// half of the cases.
fn lengths() -> impl Strategy<Value = Vec<(usize, usize)>> {
    let length = || prop_oneof![1 => Just(0usize), 1 => Just(1), 4 => 2..36usize];
    let one = prop_oneof![length().prop_map(|n| (n, n)), (length(), length())];
    prop::collection::vec(one, 0..4)
}

fn heads() -> impl Strategy<Value = Shape> {
    let dim = prop::sample::select(vec![64, 128, 256]);
    (1..3usize, 1..4usize, dim).prop_map(|(key_heads, group, dim)| Shape {
        heads: key_heads * group,
        key_heads,
        dim,
        ..HEADS
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    // Scores stay small, as in the tests of the backward pass.
    #[test]
    fn any_sequences_in_bf16(heads in heads(), lengths in lengths(), options in options()) {
        check::<bf16>(&heads, &lengths, &options, 0.5);
    }

    #[test]
    fn any_sequences_in_f16(heads in heads(), lengths in lengths(), options in options()) {
        check::<f16>(&heads, &lengths, &options, 0.5);
    }
}

#[test]
fn sequences_at_the_edges_of_tiles() {
    let lengths = [(16, 32), (0, 0), (17, 33), (1, 1), (0, 9), (9, 0), (15, 31), (50, 70)];
    let window = Mask::Window { left: Some(20), right: Some(3) };
    for (mask, layout) in [(Mask::Causal, Layout::RowsFirst), (window, Layout::HeadsFirst)] {
        let heads = Shape { heads: 4, key_heads: 2, ..HEADS };
        check::<f16>(&heads, &lengths, &Options { mask, layout, ..Options::default() }, 0.5);
    }
    check::<bf16>(&HEADS, &[], &Options::default(), 0.5);
}

#[test]
fn a_sequence_gives_bit_by_bit_what_it_gives_alone() {
    let device = Device::open(0).unwrap();
    let attention = Attention::new(&device).unwrap();
    let heads = Shape { heads: 4, key_heads: 2, ..HEADS };
    let lengths = [(21, 40), (3, 3), (0, 5), (34, 34)];
    let sequences = Sequences::new(&device, &heads, &lengths).unwrap();
    let all = sequences.all();
    let q = random::<bf16>(1, all.query_elements(), 2.0);
    let [k, v] = [2, 3].map(|seed| random::<bf16>(seed, all.key_elements(), 2.0));
    let upload = |values: &[bf16]| device.upload(values).unwrap();
    let options = Options { mask: Mask::Causal, form: Some(AttentionForm::Flash), ..Options::default() };
    let together =
        attention.forward_sequences(&upload(&q), &upload(&k), &upload(&v), &sequences, &options).unwrap();
    let saved = Saved {
        q: &upload(&q),
        k: &upload(&k),
        v: &upload(&v),
        output: &together.output,
        log_sum_exp: &together.log_sum_exp,
    };
    let (of_all, _) = attention.backward_sequences(&saved, &upload(&q), &sequences, &options).unwrap();
    let (mut output, mut sums) = (vec![], vec![]);
    let (mut of_queries, mut of_keys, mut of_values) = (vec![], vec![], vec![]);
    let (mut query, mut key) = (0, 0);
    for shape in shapes(&heads, &lengths) {
        let its_q = upload(&q[query..][..shape.query_elements()]);
        let [its_k, its_v] = [&k, &v].map(|x| upload(&x[key..][..shape.key_elements()]));
        let alone = attention.forward(&its_q, &its_k, &its_v, &shape, &options).unwrap();
        let log_sum_exp = &alone.log_sum_exp;
        let saved = Saved { q: &its_q, k: &its_k, v: &its_v, output: &alone.output, log_sum_exp };
        let (of, _) = attention.backward(&saved, &its_q, &shape, &options).unwrap();
        output.extend(alone.output.to_vec().unwrap());
        sums.extend(alone.log_sum_exp.to_vec().unwrap());
        of_queries.extend(of.q.to_vec().unwrap());
        of_keys.extend(of.k.to_vec().unwrap());
        of_values.extend(of.v.to_vec().unwrap());
        query += shape.query_elements();
        key += shape.key_elements();
    }
    assert_eq!(together.output.to_vec().unwrap(), output);
    assert_eq!(together.log_sum_exp.to_vec().unwrap(), sums);
    assert_eq!(of_all.q.to_vec().unwrap(), of_queries);
    assert_eq!(of_all.k.to_vec().unwrap(), of_keys);
    assert_eq!(of_all.v.to_vec().unwrap(), of_values);
}

#[test]
fn what_sequences_do_not_have_is_refused() {
    let device = Device::open(0).unwrap();
    let attention = Attention::new(&device).unwrap();
    let sequences = Sequences::new(&device, &HEADS, &[(2, 3), (1, 1)]).unwrap();
    let forward = |elements: usize, form| {
        let (q, k) = (device.zeros::<f16>(elements).unwrap(), device.zeros(4 * 64).unwrap());
        let options = Options { form, ..Options::default() };
        attention.forward_sequences(&q, &k, &k, &sequences, &options).map(|done| done.form)
    };
    assert_eq!(forward(3 * 2 * 64, None).unwrap(), attention.fastest());
    let widest = Shape { dim: 256, ..HEADS };
    let hopper = Options { form: Some(AttentionForm::Hopper), ..Options::default() };
    let error = attention.form_of_sequences(&widest, &hopper).unwrap_err().to_string();
    assert!(error.ends_with("with heads of 256 elements; the flash form has"), "{error}");
    for form in [AttentionForm::Standard, AttentionForm::Decode] {
        let error = forward(3 * 2 * 64, Some(form)).unwrap_err();
        assert!(matches!(error, Error::Form { .. }), "{error}");
        let why = "it has no sequences of different lengths; the flash form has";
        assert!(error.to_string().ends_with(why), "{error}");
    }
    let fastest = attention.fastest();
    let error = forward(3 * 2 * 64, Some(AttentionForm::Hopper));
    assert_eq!(error.is_ok(), fastest == AttentionForm::Hopper);
    let error = forward(64, None).unwrap_err().to_string();
    assert_eq!(
        error,
        "attention: Q has 64 elements, and its shape [batch 1, heads 2, rows 3, dim 64] needs 384"
    );
    let refused = |heads: &Shape, lengths: &[(usize, usize)]| {
        Sequences::new(&device, heads, lengths).unwrap_err().to_string()
    };
    assert!(refused(&HEADS, &[(usize::MAX, 1), (usize::MAX, 1)]).contains("rows; split the batch"));
    assert!(refused(&Shape { dim: 80, ..HEADS }, &[]).contains("not 80"));
}
