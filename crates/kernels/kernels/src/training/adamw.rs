//! AdamW (arXiv 1711.05101): Adam with weight decay that is not part of the gradient.
//!
//! Weights in 16 bits cannot be trained by themselves: a step is often smaller than half a unit in
//! their last place, and would be lost. Each has a master in f32, which learns, and of which it is
//! the rounded copy that products read.

use apex_gpu::{Buffer, Device, Extents, Number, Stream, Tensor};
use bytemuck::{Pod, Zeroable};

use crate::error::check_elements;
use crate::training::{Kernels, MOST_BLOCKS, TECHNIQUE, THREADS, wrong};
use crate::{Element, Result};

/// A tensor that learns: weights in 16 bits for products, and in f32 their masters and the moments
/// that [`AdamW`] keeps of their gradients.
///
/// ```
/// use apex_kernels::training::Parameter;
/// use half::bf16;
///
/// let device = apex_gpu::Device::open(0)?;
/// let parameter = Parameter::<bf16>::new(&device, &[0.5, 1.0 / 3.0], (1, 2))?;
/// assert_eq!(parameter.weights().shape(), [1, 2]);
/// assert_eq!(parameter.weights().to_vec()?[1], bf16::from_f32(1.0 / 3.0));
/// assert_eq!(parameter.master().to_vec()?[1], 1.0 / 3.0);
/// # apex_kernels::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct Parameter<T: Number> {
    weights: Tensor<T>,
    master: Buffer<f32>,
    /// Means of gradients, and of their squares.
    moments: [Buffer<f32>; 2],
    steps: u32,
}

impl<T: Element + Number> Parameter<T> {
    /// A parameter that begins with these values, of this shape.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu): the shape has another number of elements, or there is no
    /// memory.
    pub fn new(device: &Device, values: &[f32], shape: impl Into<Extents>) -> Result<Parameter<T>> {
        let weights = Tensor::new(device, values, shape)?.cast()?;
        let moments = [device.zeros(values.len())?, device.zeros(values.len())?];
        Ok(Parameter { weights, master: device.upload(values)?, moments, steps: 0 })
    }

    /// The weights, each its master rounded. They cannot learn while clones of the tensor live.
    pub fn weights(&self) -> &Tensor<T> {
        &self.weights
    }

    /// The masters.
    pub fn master(&self) -> &Buffer<f32> {
        &self.master
    }

    /// The number of steps so far.
    pub fn steps(&self) -> u32 {
        self.steps
    }
}

/// The rates by which a step of [`AdamW`] changes weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// The learning rate, positive.
    pub learning: f64,
    /// The parts of the mean of gradients, and of that of their squares, that a step keeps: from 0
    /// to below 1.
    pub betas: [f64; 2],
    /// Added to the root of the mean of squares.
    pub epsilon: f64,
    /// Weight decay: a step takes this times the learning rate of each weight.
    pub decay: f64,
    /// The factor that gradients are multiplied by first: one over the scale of the loss, if it has
    /// one, as it needs in f16.
    pub gradient_scale: f64,
}

/// PyTorch's defaults, and no scale.
impl Default for Rates {
    fn default() -> Rates {
        Rates { learning: 1e-3, betas: [0.9, 0.999], epsilon: 1e-8, decay: 1e-2, gradient_scale: 1.0 }
    }
}

impl Rates {
    fn check(&self) -> Result<()> {
        let positive = |what: &str, value: f64| match value.is_finite() && value > 0.0 {
            true => Ok(()),
            false => Err(wrong(format!("{what} must be positive and finite, not {value}"))),
        };
        positive("the learning rate", self.learning)?;
        positive("epsilon", self.epsilon)?;
        positive("the gradient scale", self.gradient_scale)?;
        if let Some(beta) = self.betas.into_iter().find(|beta| !(0.0..1.0).contains(beta)) {
            return Err(wrong(format!("a beta must be from 0 to below 1, not {beta}")));
        }
        if !self.decay.is_finite() || self.decay < 0.0 {
            return Err(wrong(format!("the weight decay must be at least 0 and finite, not {}", self.decay)));
        }
        Ok(())
    }

    /// The same for the `step`th step, which is 1 or more.
    fn update(&self, step: u32) -> Update {
        // Moments began as zeros: they are this much of what they are to be.
        let [first, second] = self.betas.map(|beta| 1.0 - beta.powf(f64::from(step)));
        Update {
            gradient_scale: self.gradient_scale as f32,
            keep_first: self.betas[0] as f32,
            take_first: (1.0 - self.betas[0]) as f32,
            keep_second: self.betas[1] as f32,
            take_second: (1.0 - self.betas[1]) as f32,
            keep: (1.0 - self.learning * self.decay) as f32,
            rate: (self.learning / first) as f32,
            second_correction: second as f32,
            epsilon: self.epsilon as f32,
        }
    }
}

/// The same bytes as `training::Update` in `cuda/training.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
struct Update {
    gradient_scale: f32,
    keep_first: f32,
    take_first: f32,
    keep_second: f32,
    take_second: f32,
    keep: f32,
    rate: f32,
    second_correction: f32,
    epsilon: f32,
}

/// AdamW on one device. Make one, use it for all parameters.
///
/// ```
/// use apex_kernels::training::{AdamW, Parameter, Rates};
/// use half::bf16;
///
/// let device = apex_gpu::Device::open(0)?;
/// let adamw = AdamW::new(&device);
/// let mut parameter = Parameter::<bf16>::new(&device, &[1.0, 1.0], 2)?;
/// let gradient = device.upload(&[bf16::from_f32(5.0), bf16::from_f32(-0.001)])?;
/// let rates = Rates { learning: 0.25, decay: 0.0, ..Rates::default() };
/// adamw.step(&mut parameter, &gradient, &rates, device.stream())?;
/// // The first step is as large as the learning rate, however large the gradient is.
/// assert_eq!(parameter.weights().to_vec()?, [bf16::from_f32(0.75), bf16::from_f32(1.25)]);
/// # apex_kernels::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct AdamW(Kernels);

impl AdamW {
    /// AdamW on `device`. Kernels are loaded when they are first needed.
    pub fn new(device: &Device) -> AdamW {
        AdamW(Kernels::new(device))
    }

    /// Lets a parameter take a step against its gradient. Returns before the work is done.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the gradient has another number of elements, or a
    /// rate makes no sense; [`Error::Gpu`](crate::Error::Gpu), also if a clone of the weights
    /// lives.
    pub fn step<T: Element + Number>(
        &self,
        parameter: &mut Parameter<T>,
        gradient: &Buffer<T>,
        rates: &Rates,
        stream: &Stream,
    ) -> Result<()> {
        rates.check()?;
        let Parameter { weights, master, moments: [first, second], steps } = parameter;
        let elements = master.len();
        check_elements(TECHNIQUE, "the gradients", &[("weights", elements)], gradient.len())?;
        let weights = weights.as_buffer_mut()?;
        let update = rates.update(*steps + 1);
        if elements > 0 {
            let kernel = self.0.get::<T>("adamw")?;
            let blocks = elements.div_ceil(THREADS).min(MOST_BLOCKS) as u32;
            let launch = kernel.launch(blocks, THREADS as u32).on(stream).arg(weights).arg(gradient);
            let launch = launch.arg(master).arg(first).arg(second).arg(update);
            // SAFETY: all five buffers have as many elements.
            unsafe { launch.arg(elements as i64).launch()? };
        }
        *steps += 1;
        Ok(())
    }
}
