//! Prediction: one case at a time, on the calling thread, without allocation, lock or input and
//! output.
//!
//! A [`Predictor`] is a network made ready: weights laid out in the order in which they are read,
//! kernels chosen for the processor. It does not change, so threads share it; each keeps a
//! [`Scratch`] of its own. To replace a model while it is in use, swap an `Arc<Predictor>`: whoever
//! still predicts with the old one holds it alive.
//!
//! All kernels add up in the same order. What differs is rounding: with fused multiply-add (AVX2,
//! AVX-512) a product is not rounded before it is added. In 8 bits all kernels give the same bits.

mod dense;
mod quantised;
#[cfg(target_arch = "x86_64")]
mod x86;

use crate::math::{GELU_CUBIC, GELU_FACTOR, logistic};
use crate::network::{Activation, Network, Range};
use crate::{Error, Matrix, Regressor};
use dense::Dense;
use quantised::Quantised;
pub(crate) use quantised::QuantisedRow;

/// Numbers that are handled together: a vector of AVX-512.
pub(crate) const LANES: usize = 16;

/// A vector of [`LANES`] numbers, aligned to a cache line.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C, align(64))]
pub(crate) struct Vector<T>(pub [T; LANES]);

/// The format of weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// In single precision.
    F32,
    /// Hidden layers but the first in 8 bits with one scale for each row, their inputs quantised to
    /// 8 bits anew for each prediction. The first and the last layer, whose errors nothing averages
    /// out, stay in single precision.
    Int8,
}

impl Precision {
    /// Whether layer `index` of `layers` is kept in 8 bits.
    pub(crate) fn quantises(self, index: usize, layers: usize) -> bool {
        self == Precision::Int8 && index != 0 && index + 1 != layers
    }
}

/// Instructions that the kernels are written for, from those that every processor has to the
/// fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InstructionSet {
    /// The instructions that the compiler's target guarantees.
    Portable,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512 F, BW, DQ, VL.
    Avx512,
    /// The same with VNNI: products of 8-bit numbers.
    Avx512Vnni,
}

impl InstructionSet {
    /// All that this processor can run, slowest first.
    pub fn available() -> Vec<InstructionSet> {
        use InstructionSet::{Avx2, Avx512, Avx512Vnni, Portable};
        [Portable, Avx2, Avx512, Avx512Vnni].into_iter().filter(|set| set.is_available()).collect()
    }

    /// The fastest that this processor can run.
    pub fn best() -> InstructionSet {
        *Self::available().last().expect("every processor runs the portable kernels")
    }

    /// Whether this processor can run it.
    #[cfg(target_arch = "x86_64")]
    pub fn is_available(self) -> bool {
        let avx2 = || is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        let avx512 = || {
            is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
        };
        match self {
            InstructionSet::Portable => true,
            InstructionSet::Avx2 => avx2(),
            InstructionSet::Avx512 => avx2() && avx512(),
            InstructionSet::Avx512Vnni => avx2() && avx512() && is_x86_feature_detected!("avx512vnni"),
        }
    }

    /// Whether this processor can run it.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn is_available(self) -> bool {
        self == InstructionSet::Portable
    }
}

/// The two loops in which prediction spends its time, for one instruction set.
///
/// `W` is how many vectors of outputs are summed at once.
trait Kernel {
    /// Adds `weights[k][..] * inputs[k]` to `sums` for each `k`. There are `W` vectors of weights
    /// for each input.
    ///
    /// # Safety
    /// The processor has the instruction set.
    unsafe fn dense<const W: usize>(weights: &[Vector<f32>], inputs: &[f32], sums: &mut [Vector<f32>; W]);

    /// The sums of `weights[k][..] * inputs[k]` for products of 8-bit numbers, exactly. A vector of
    /// weights holds for each of [`LANES`] outputs the weights (signed bytes, lowest first) of four
    /// inputs; an element of `inputs` holds four inputs (unsigned bytes).
    ///
    /// # Safety
    /// The processor has the instruction set.
    unsafe fn quantised<const W: usize>(weights: &[Vector<u32>], inputs: &[u32]) -> [Vector<i32>; W];
}

/// Kernels in plain Rust.
struct Portable;

impl Kernel for Portable {
    #[inline(always)]
    unsafe fn dense<const W: usize>(weights: &[Vector<f32>], inputs: &[f32], sums: &mut [Vector<f32>; W]) {
        for (weights, &input) in weights.chunks_exact(W).zip(inputs) {
            for (sum, weight) in sums.iter_mut().zip(weights) {
                for lane in 0..LANES {
                    sum.0[lane] += weight.0[lane] * input;
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn quantised<const W: usize>(weights: &[Vector<u32>], inputs: &[u32]) -> [Vector<i32>; W] {
        let mut sums = [Vector([0; LANES]); W];
        for (weights, &input) in weights.chunks_exact(W).zip(inputs) {
            let input = input.to_le_bytes();
            for (sum, weight) in sums.iter_mut().zip(weights) {
                for lane in 0..LANES {
                    let weight = weight.0[lane].to_le_bytes();
                    for byte in 0..4 {
                        sum.0[lane] += i32::from(weight[byte].cast_signed()) * i32::from(input[byte]);
                    }
                }
            }
        }
        sums
    }
}

/// One layer, ready.
#[derive(Debug)]
enum Ready {
    Dense(Dense),
    Quantised(Quantised),
}

/// Buffers of a prediction. They grow to what a predictor needs when it first uses them and then
/// stay.
#[derive(Debug, Default)]
pub struct Scratch {
    /// The inputs and outputs of the current layer.
    values: [Vec<Vector<f32>>; 2],
    /// Inputs in 8 bits, four in each element.
    quads: Vec<u32>,
}

impl Scratch {
    /// Buffers that are still empty.
    pub fn new() -> Scratch {
        Scratch::default()
    }

    fn reserve(&mut self, vectors: usize) {
        if self.quads.len() < vectors * LANES / 4 {
            self.values.iter_mut().for_each(|values| values.resize(vectors, Vector([0.0; LANES])));
            self.quads.resize(vectors * LANES / 4, 0);
        }
    }
}

/// `run` for one instruction set: what [`forward`] does.
///
/// # Safety
/// The processor has the instruction set.
type Run = unsafe fn(&Predictor, &[f32], &mut Scratch, &mut [f32]);

/// A network made ready for prediction. See the module's documentation.
#[derive(Debug)]
pub struct Predictor {
    layers: Vec<Ready>,
    activation: Activation,
    /// Subtracted from features, and then multiplied with.
    mean: Vec<f32>,
    factor: Vec<f32>,
    /// For each output: whether it is a fraction, and its scale and mean if it is not.
    outputs: Vec<(bool, f32, f32)>,
    /// Vectors that the widest layer needs.
    vectors: usize,
    set: InstructionSet,
    run: Run,
}

impl Predictor {
    /// Makes `network` ready for this processor's fastest instructions.
    pub fn new(network: &Network, precision: Precision) -> Predictor {
        Self::build(network, precision, InstructionSet::best())
    }

    /// The same for instructions of the caller's choice: `None` where this processor does not have
    /// them.
    pub fn with_instructions(
        network: &Network,
        precision: Precision,
        set: InstructionSet,
    ) -> Option<Predictor> {
        set.is_available().then(|| Self::build(network, precision, set))
    }

    fn build(network: &Network, precision: Precision, set: InstructionSet) -> Predictor {
        let ready = |(index, layer)| match precision.quantises(index, network.layers().len()) {
            true => Ready::Quantised(Quantised::new(layer)),
            false => Ready::Dense(Dense::new(layer)),
        };
        let widest = network.layers().iter().map(|layer| layer.outputs.max(layer.inputs)).max();
        let output = network.output_scaling();
        let role = |(target, _): (usize, _)| {
            let fraction = network.targets()[target].range == Range::Fraction;
            (fraction, output.scale[target], output.mean[target])
        };
        Predictor {
            layers: network.layers().iter().enumerate().map(ready).collect(),
            activation: network.activation(),
            mean: network.input_scaling().mean.clone(),
            factor: network.input_scaling().scale.iter().map(|scale| 1.0 / scale).collect(),
            outputs: network.output_roles().map(role).collect(),
            vectors: widest.unwrap_or(0).div_ceil(LANES),
            set,
            run: match set {
                InstructionSet::Portable => forward::<Portable>,
                #[cfg(target_arch = "x86_64")]
                InstructionSet::Avx2 => x86::forward_avx2,
                #[cfg(target_arch = "x86_64")]
                InstructionSet::Avx512 => x86::forward_avx512,
                #[cfg(target_arch = "x86_64")]
                InstructionSet::Avx512Vnni => x86::forward_avx512_vnni,
                #[cfg(not(target_arch = "x86_64"))]
                _ => unreachable!("only the portable kernels are available here"),
            },
        }
    }

    /// Returns the number of features.
    pub fn inputs(&self) -> usize {
        self.mean.len()
    }

    /// Returns the number of outputs: see [`Network::outputs`].
    pub fn outputs(&self) -> usize {
        self.outputs.len()
    }

    /// The instructions that it runs on.
    pub fn instructions(&self) -> InstructionSet {
        self.set
    }

    /// Predicts one case: raw features in, raw values out, in the order of
    /// [`Network::output_roles`].
    ///
    /// # Errors
    /// [`Error::Length`] when there are not [`Predictor::inputs`] features and
    /// [`Predictor::outputs`] places for the outputs; [`Error::NotFinite`] when a feature is
    /// infinite or not a number. `outputs` then stays as it was.
    pub fn predict(&self, features: &[f32], scratch: &mut Scratch, outputs: &mut [f32]) -> Result<(), Error> {
        Error::check_length("the features", self.inputs(), features.len())?;
        Error::check_length("the place for the outputs", self.outputs(), outputs.len())?;
        Error::check_finite("the features", features)?;
        scratch.reserve(self.vectors);
        // SAFETY: `build` is called only with an instruction set that was found available.
        unsafe { (self.run)(self, features, scratch, outputs) };
        Ok(())
    }
}

impl Regressor for Predictor {
    fn predict_rows(&self, features: &Matrix) -> Result<Matrix, Error> {
        let mut scratch = Scratch::new();
        let mut outputs = Matrix::zeros(features.rows(), self.outputs());
        for (index, row) in features.iter().enumerate() {
            self.predict(row, &mut scratch, outputs.row_mut(index))?;
        }
        Ok(outputs)
    }
}

/// One prediction: what [`crate::network`] states.
///
/// # Safety
/// The processor has the instruction set of `K`.
#[inline(always)]
unsafe fn forward<K: Kernel>(
    predictor: &Predictor,
    features: &[f32],
    scratch: &mut Scratch,
    outputs: &mut [f32],
) {
    let [mut input, mut output] = scratch.values.each_mut().map(Vec::as_mut_slice);
    let scaled = flat_mut(input);
    for (((scaled, &value), &mean), &factor) in
        scaled.iter_mut().zip(features).zip(&predictor.mean).zip(&predictor.factor)
    {
        *scaled = (value - mean) * factor;
    }
    let last = predictor.layers.len() - 1;
    for (index, layer) in predictor.layers.iter().enumerate() {
        // SAFETY: this function's contract.
        let vectors = unsafe {
            match layer {
                Ready::Dense(layer) => layer.apply::<K>(flat(input), output),
                Ready::Quantised(layer) => layer.apply::<K>(input, &mut scratch.quads, output),
            }
        };
        if index != last {
            activate(predictor.activation, &mut output[..vectors]);
        }
        std::mem::swap(&mut input, &mut output);
    }
    finish(&predictor.outputs, flat(input), outputs);
}

/// The hidden units' function. It maps 0 to 0, so lanes that belong to no unit stay 0.
#[inline(always)]
fn activate(activation: Activation, values: &mut [Vector<f32>]) {
    let values = flat_mut(values);
    match activation {
        Activation::Relu => each(values, |z| if z > 0.0 { z } else { 0.0 }),
        Activation::Silu => each(values, |z| z * logistic(z)),
        Activation::Gelu => each(values, |z| z * logistic(GELU_FACTOR * (z + GELU_CUBIC * (z * z * z)))),
    }
}

#[inline(always)]
fn each(values: &mut [f32], function: impl Fn(f32) -> f32) {
    for value in values {
        *value = function(*value);
    }
}

/// Converts the last layer's sums to outputs.
#[inline(always)]
fn finish(roles: &[(bool, f32, f32)], sums: &[f32], outputs: &mut [f32]) {
    for ((output, &sum), &(fraction, scale, mean)) in outputs.iter_mut().zip(sums).zip(roles) {
        *output = if fraction { logistic(sum) } else { sum * scale + mean };
    }
}

/// Vectors as the numbers that they hold.
#[inline(always)]
fn flat(vectors: &[Vector<f32>]) -> &[f32] {
    // SAFETY: a `Vector` is `repr(C)` with one array of `LANES` numbers and no padding (64 bytes,
    // aligned to 64).
    unsafe { std::slice::from_raw_parts(vectors.as_ptr().cast(), vectors.len() * LANES) }
}

/// Vectors as the numbers that they hold.
#[inline(always)]
fn flat_mut(vectors: &mut [Vector<f32>]) -> &mut [f32] {
    // SAFETY: as in `flat`; any bits are a number.
    unsafe { std::slice::from_raw_parts_mut(vectors.as_mut_ptr().cast(), vectors.len() * LANES) }
}
