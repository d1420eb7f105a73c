//! Tensors against the same computed on the host, in f64.

mod common;

use apex_gpu::{Device, Error, Number, Tensor};
use common::{device, random};
use half::{bf16, f16};

/// Fractions between -2 and 2 that every type has.
fn fractions(seed: u64, len: usize) -> Vec<f64> {
    random(seed).map(|bits| (bits % 513) as f64 / 128.0 - 2.0).take(len).collect()
}

/// The tolerance of a result: relative to it, and absolute.
trait Checked: Number {
    const TOLERANCE: f64;
    fn of(value: f64) -> Self;
    fn wide(self) -> f64;
}

macro_rules! checked {
    ($($type:ty, $tolerance:expr, |$from:ident| $of:expr, |$to:ident| $wide:expr;)*) => { $(
        impl Checked for $type {
            const TOLERANCE: f64 = $tolerance;
            fn of($from: f64) -> Self { $of }
            fn wide(self) -> f64 { let $to = self; $wide }
        }
    )* };
}

checked! {
    f32, 1e-5, |x| x as f32, |x| f64::from(x);
    f16, 1.0 / 1024.0, |x| f16::from_f64(x), |x| x.to_f64();
    bf16, 1.0 / 128.0, |x| bf16::from_f64(x), |x| x.to_f64();
    i32, 0.0, |x| (x * 128.0) as i32, |x| f64::from(x);
}

fn tensor<T: Checked>(device: &Device, values: &[f64], shape: &[usize]) -> (Tensor<T>, Vec<f64>) {
    let values: Vec<T> = values.iter().map(|&value| T::of(value)).collect();
    let exact = values.iter().map(|value| value.wide()).collect();
    (Tensor::new(device, &values, shape).unwrap(), exact)
}

#[track_caller]
fn close<T: Checked>(found: &Tensor<T>, expected: &[f64], what: &str) {
    let found = found.to_vec().unwrap();
    assert_eq!(found.len(), expected.len(), "{what}");
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let found = found.wide();
        let off = (found - expected).abs();
        let same = found == *expected || (found.is_nan() && expected.is_nan());
        assert!(
            same || off <= T::TOLERANCE * expected.abs().max(1.0),
            "{what} at {at}: {found}, not {expected}"
        );
    }
}

fn elementwise<T: Checked>() {
    let device = device();
    // Lengths around the width of vectors, and beyond a block.
    for len in [1, 7, 8, 1003, 40_000] {
        let (a, x) = tensor::<T>(&device, &fractions(len as u64, len), &[len]);
        let (b, y) = tensor::<T>(&device, &fractions(len as u64 + 9, len), &[len]);
        let both = |f: fn(f64, f64) -> f64| x.iter().zip(&y).map(|(x, y)| f(*x, *y)).collect::<Vec<_>>();
        close(&a.add(&b).unwrap(), &both(|x, y| x + y), "add");
        close(&a.sub(&b).unwrap(), &both(|x, y| x - y), "sub");
        close(&a.mul(&b).unwrap(), &both(|x, y| x * y), "mul");
        close(&a.maximum(&b).unwrap(), &both(f64::max), "maximum");
        close(&a.minimum(&b).unwrap(), &both(f64::min), "minimum");
        let each = |f: fn(f64) -> f64| x.iter().map(|x| f(*x)).collect::<Vec<_>>();
        close(&a.affine(3.0, 2.0).unwrap(), &each(|x| 3.0 * x + 2.0), "affine");
        close(&a.neg().unwrap(), &each(|x| -x), "neg");
        close(&a.abs().unwrap(), &each(f64::abs), "abs");
        close(&a.relu().unwrap(), &each(|x| x.max(0.0)), "relu");
    }
}

#[test]
fn elementwise_operations_of_every_type() {
    elementwise::<f32>();
    elementwise::<f16>();
    elementwise::<bf16>();
    elementwise::<i32>();
}

fn functions<T: Checked + apex_gpu::Float>() {
    let device = device();
    let (a, x) = tensor::<T>(&device, &fractions(5, 2000), &[2000]);
    let each = |f: &dyn Fn(f64) -> f64| x.iter().map(|x| f(*x)).collect::<Vec<_>>();
    close(&a.exp().unwrap(), &each(&f64::exp), "exp");
    close(&a.tanh().unwrap(), &each(&f64::tanh), "tanh");
    close(&a.sigmoid().unwrap(), &each(&|x| 1.0 / (1.0 + (-x).exp())), "sigmoid");
    close(&a.recip().unwrap(), &each(&|x| 1.0 / x), "recip");
    close(&a.abs().unwrap().sqrt().unwrap(), &each(&|x| x.abs().sqrt()), "sqrt");
    close(&a.abs().unwrap().ln().unwrap(), &each(&|x| x.abs().ln()), "ln");
    let b = a.affine(0.0, 3.0).unwrap();
    close(&a.div(&b).unwrap(), &each(&|x| x / 3.0), "div");
}

#[test]
fn functions_of_every_fraction() {
    functions::<f32>();
    functions::<f16>();
    functions::<bf16>();
}

#[test]
fn gelu_is_the_exact_one() {
    // From the error function's tables: Φ(1) = 0.841344746, Φ(2) = 0.977249868.
    let x = Tensor::new(&device(), &[-2.0f32, -1.0, 0.0, 1.0, 2.0], [5]).unwrap();
    close(
        &x.gelu().unwrap(),
        &[-2.0 * 0.022750132, -0.158655254, 0.0, 0.841344746, 2.0 * 0.977249868],
        "gelu",
    );
}

#[test]
fn whole_numbers_wrap_and_divide_as_rust_does() {
    let device = device();
    let a = Tensor::new(&device, &[i32::MAX, i32::MIN, 7, -7, 5], [5]).unwrap();
    let b = Tensor::new(&device, &[1, -1, 2, 2, 0], [5]).unwrap();
    assert_eq!(a.add(&b).unwrap().to_vec().unwrap(), [i32::MIN, i32::MAX, 9, -5, 5]);
    assert_eq!(a.div(&b).unwrap().to_vec().unwrap(), [i32::MAX, i32::MIN, 3, -3, 0]);
    assert_eq!(a.mul(&a).unwrap().to_vec().unwrap(), [1, 0, 49, 49, 25]);
    assert_eq!(a.abs().unwrap().to_vec().unwrap(), [i32::MAX, i32::MIN, 7, 7, 5]);
}

#[test]
fn shapes_repeat_to_a_common_one() {
    let device = device();
    let (a, x) = tensor::<f32>(&device, &fractions(1, 24), &[2, 3, 4]);
    let (row, r) = tensor::<f32>(&device, &fractions(2, 4), &[4]);
    let (column, c) = tensor::<f32>(&device, &fractions(3, 3), &[3, 1]);
    let (one, o) = tensor::<f32>(&device, &[1.5], &[]);
    let expected: Vec<f64> = (0..24).map(|at| x[at] + r[at % 4]).collect();
    close(&a.add(&row).unwrap(), &expected, "row");
    let expected: Vec<f64> = (0..24).map(|at| c[at / 4 % 3] - x[at]).collect();
    close(&column.sub(&a).unwrap(), &expected, "column");
    let expected: Vec<f64> = x.iter().map(|x| x * o[0]).collect();
    close(&a.mul(&one).unwrap(), &expected, "one");
    let outer = column.mul(&row).unwrap();
    assert_eq!(outer.shape(), [3, 4]);
    close(&outer, &(0..12).map(|at| c[at / 4] * r[at % 4]).collect::<Vec<_>>(), "outer");
    let error = a.add(&column.transpose(0, 1).unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "add: [2, 3, 4] and [1, 3] do not repeat to a common shape");
}

#[test]
fn views_show_the_same_elements() {
    let device = device();
    let values: Vec<f32> = (0..24).map(|value| value as f32).collect();
    let a = Tensor::new(&device, &values, [2, 3, 4]).unwrap();
    let t = a.transpose(0, 2).unwrap();
    assert_eq!((t.shape(), t.strides()), (&[4, 3, 2][..], &[1, 4, 12][..]));
    assert_eq!(t.to_vec().unwrap()[..4], [0.0, 12.0, 4.0, 16.0]);
    let part = a.slice(2, 1..3).unwrap().slice(1, 2..3).unwrap();
    assert_eq!(part.to_vec().unwrap(), [9.0, 10.0, 21.0, 22.0]);
    assert_eq!(part.reshape([2, 2]).unwrap().sum(0).unwrap().to_vec().unwrap(), [30.0, 32.0]);
    // A slice that begins where no wide load may.
    let odd = a.reshape([24]).unwrap().slice(0, 1..24).unwrap();
    let doubled = odd.add(&odd).unwrap().to_vec().unwrap();
    assert_eq!(doubled, values[1..].iter().map(|x| 2.0 * x).collect::<Vec<_>>());
    assert_eq!(odd.neg().unwrap().to_vec().unwrap()[0], -1.0);
    assert!(a.slice(0, 1..3).is_err() && a.transpose(0, 3).is_err() && a.reshape([5, 5]).is_err());
}

fn reductions<T: Checked>() {
    let device = device();
    // Long rows are taken apart; inner dimensions are reduced by column.
    for shape in [&[3, 5, 7][..], &[1, 30_003], &[40, 1], &[2, 1500, 3]] {
        let len = shape.iter().product();
        let (a, x) = tensor::<T>(&device, &fractions(len as u64, len), shape);
        for axis in 0..shape.len() {
            let inner: usize = shape[axis + 1..].iter().product();
            let outer: usize = shape[..axis].iter().product();
            let along = |f: &dyn Fn(&mut dyn Iterator<Item = f64>) -> f64| {
                (0..outer * inner)
                    .map(|at| {
                        f(&mut (0..shape[axis])
                            .map(|k| x[(at / inner * shape[axis] + k) * inner + at % inner]))
                    })
                    .collect::<Vec<f64>>()
            };
            // Sums of thousands are off by more than one rounding of the largest; fractions here
            // are exact in f32.
            let sums = along(&|row| row.sum());
            if sums.iter().all(|sum| sum.abs() < 1e4 || T::TOLERANCE == 0.0) {
                close(&a.sum(axis).unwrap(), &sums, "sum");
            }
            close(&a.max(axis).unwrap(), &along(&|row| row.fold(f64::NEG_INFINITY, f64::max)), "max");
            close(&a.min(axis).unwrap(), &along(&|row| row.fold(f64::INFINITY, f64::min)), "min");
            let count = shape[axis] as f64;
            let mean = |row: &mut dyn Iterator<Item = f64>| {
                let mean = row.sum::<f64>() / count;
                if T::TOLERANCE == 0.0 { mean.trunc() } else { mean }
            };
            close(&a.mean(axis).unwrap(), &along(&mean), "mean");
            let first_largest = |row: &mut dyn Iterator<Item = f64>| {
                let row: Vec<f64> = row.collect();
                let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                row.iter().position(|&x| x == most).unwrap() as f64
            };
            close(&a.argmax(axis).unwrap(), &along(&first_largest), "argmax");
        }
    }
}

#[test]
fn reductions_of_every_type() {
    reductions::<f32>();
    reductions::<f16>();
    reductions::<bf16>();
    reductions::<i32>();
}

#[test]
fn nothing_and_nan_in_reductions() {
    let device = device();
    let none = Tensor::<f32>::zeros(&device, [3, 0]).unwrap();
    assert_eq!(none.sum(1).unwrap().to_vec().unwrap(), [0.0; 3]);
    assert!(matches!(none.max(1), Err(Error::Shape { .. })));
    assert_eq!(none.sum(0).unwrap().shape(), [0]);
    let a = Tensor::new(&device, &[1.0, f32::NAN, 3.0, 2.0], [4]).unwrap();
    assert!(a.max(0).unwrap().item().unwrap().is_nan() && a.min(0).unwrap().item().unwrap().is_nan());
    assert_eq!(a.argmax(0).unwrap().item().unwrap(), 1);
    let wide = Tensor::new(&device, &[i32::MAX, i32::MAX, i32::MAX], [3]).unwrap();
    assert_eq!(wide.mean(0).unwrap().item().unwrap(), i32::MAX);
    assert_eq!(a.slice(0, 2..4).unwrap().sum_all().unwrap().item().unwrap(), 5.0);
    assert!(matches!(a.item(), Err(Error::Shape { .. })));
}

fn softmax<T: Checked + apex_gpu::Float>() {
    let device = device();
    let (a, x) = tensor::<T>(&device, &fractions(8, 6 * 50), &[6, 50]);
    let rows: Vec<f64> = x
        .chunks(50)
        .flat_map(|row| {
            let sum: f64 = row.iter().map(|x| x.exp()).sum();
            row.iter().map(move |x| x.exp() / sum)
        })
        .collect();
    close(&a.softmax(1).unwrap(), &rows, "softmax of rows");
    let columns = a.transpose(0, 1).unwrap().softmax(0).unwrap();
    assert_eq!(columns.shape(), [50, 6]);
    close(&columns.transpose(0, 1).unwrap(), &rows, "softmax of columns");
}

#[test]
fn softmax_of_every_fraction() {
    softmax::<f32>();
    softmax::<f16>();
    softmax::<bf16>();
}

#[test]
fn conversions() {
    let device = device();
    let values = [0.0f32, -1.5, 1.0 + 1.0 / 4096.0, 70000.0, f32::NAN, -3e9, 1e-8];
    let a = Tensor::new(&device, &values, [7]).unwrap();
    let halves = a.cast::<f16>().unwrap().to_vec().unwrap();
    let brains = a.cast::<bf16>().unwrap().to_vec().unwrap();
    for (at, &value) in values.iter().enumerate() {
        let (half, brain) = (f16::from_f32(value), bf16::from_f32(value));
        assert!(
            halves[at] == half || value.is_nan() && halves[at].is_nan(),
            "{value} as f16: {}",
            halves[at]
        );
        assert!(
            brains[at] == brain || value.is_nan() && brains[at].is_nan(),
            "{value} as bf16: {}",
            brains[at]
        );
    }
    assert_eq!(a.cast::<i32>().unwrap().to_vec().unwrap(), values.map(|value| value as i32));
    let whole = Tensor::new(&device, &[3, -7, 1 << 24], [3]).unwrap();
    assert_eq!(whole.cast::<f32>().unwrap().to_vec().unwrap(), [3.0, -7.0, 16777216.0]);
    assert_eq!(whole.cast::<i32>().unwrap().to_vec().unwrap(), [3, -7, 1 << 24]);
    assert_eq!(
        whole.cast::<bf16>().unwrap().cast::<f16>().unwrap().to_vec().unwrap()[1],
        f16::from_f32(-7.0)
    );
    assert_eq!(
        Tensor::full(&device, f16::from_f32(2.5), [9]).unwrap().to_vec().unwrap(),
        [f16::from_f32(2.5); 9]
    );
}

fn product(x: &[f64], y: &[f64], m: usize, k: usize, n: usize) -> Vec<f64> {
    let cell = |at: usize| (0..k).map(|d| x[at / n * k + d] * y[d * n + at % n]).sum();
    (0..m * n).map(cell).collect()
}

fn products<T: Checked>() {
    let device = device();
    for (m, k, n) in [(1, 1, 1), (3, 5, 2), (64, 16, 64), (65, 33, 70), (130, 100, 20)] {
        let (a, x) = tensor::<T>(&device, &fractions(m as u64, m * k), &[m, k]);
        let (b, y) = tensor::<T>(&device, &fractions(n as u64, k * n), &[k, n]);
        let expected = product(&x, &y, m, k, n);
        close(&a.matmul(&b).unwrap(), &expected, "product");
        // Transposed operands: the same product, from elements that lie otherwise.
        let turned = |tensor: &Tensor<T>| {
            tensor.transpose(0, 1).unwrap().contiguous().unwrap().transpose(0, 1).unwrap()
        };
        close(&turned(&a).matmul(&turned(&b)).unwrap(), &expected, "product of transposed");
        let mut into = Tensor::<T>::zeros(&device, [m, n]).unwrap();
        a.matmul_into(&b, &mut into).unwrap();
        close(&into, &expected, "product into");
    }
}

#[test]
fn products_of_every_type() {
    products::<f32>();
    products::<f16>();
    products::<bf16>();
    products::<i32>();
}

#[test]
fn products_in_batches() {
    let device = device();
    let (a, x) = tensor::<f32>(&device, &fractions(1, 2 * 3 * 4 * 5), &[2, 3, 4, 5]);
    let (b, y) = tensor::<f32>(&device, &fractions(2, 2 * 3 * 5 * 6), &[2, 3, 5, 6]);
    let c = a.matmul(&b).unwrap();
    assert_eq!(c.shape(), [2, 3, 4, 6]);
    let expected: Vec<f64> =
        (0..6).flat_map(|at| product(&x[at * 20..][..20], &y[at * 30..][..30], 4, 5, 6)).collect();
    close(&c, &expected, "batch");
    // One matrix repeated.
    let one = Tensor::new(&device, &y[..30].iter().map(|&y| y as f32).collect::<Vec<_>>(), [5, 6]).unwrap();
    let c = a.matmul(&one.broadcast([2, 3, 5, 6]).unwrap()).unwrap();
    let expected: Vec<f64> = (0..6).flat_map(|at| product(&x[at * 20..][..20], &y[..30], 4, 5, 6)).collect();
    close(&c, &expected, "repeated");
    let none = Tensor::<f32>::zeros(&device, [4, 0]).unwrap();
    let sums = none.matmul(&Tensor::zeros(&device, [0, 3]).unwrap()).unwrap();
    assert_eq!(sums.to_vec().unwrap(), [0.0; 12]);
}

#[test]
fn shapes_that_do_not_multiply_are_refused() {
    let device = device();
    let a = Tensor::<f32>::zeros(&device, [2, 3]).unwrap();
    assert_eq!(a.matmul(&a).unwrap_err().to_string(), "matmul: [2, 3] times [2, 3]");
    assert!(a.matmul(&Tensor::zeros(&device, [3]).unwrap()).is_err());
    let mut shared = Tensor::<f32>::zeros(&device, [2, 2]).unwrap();
    let _other = shared.clone();
    let b = a.transpose(0, 1).unwrap();
    assert!(a.matmul_into(&b, &mut shared).unwrap_err().to_string().contains("shared"));
    assert!(!a.matmul_backend().to_string().is_empty());
}
