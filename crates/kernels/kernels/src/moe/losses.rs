//! Losses that balance the load of experts, and the update of the router's bias.
//! `cuda/moe_losses.cu`.

use std::sync::PoisonError;

use apex_gpu::{Buffer, Stream};

use crate::Result;
use crate::images::{Code, Image};
use crate::moe::portable::{MOST_BLOCKS, THREADS};
use crate::moe::shape::{Options, Shape, check_elements, wrong};
use crate::moe::{Moe, Workspace};
use crate::workspace::reserve;

const LOSSES: Image =
    Image { name: "moe_losses", code: Code::Ptx(include_bytes!("../../binaries/moe_losses.ptx.zst")) };

/// Coefficients of the losses that are added to what a model is trained for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Auxiliary {
    /// The coefficient of the load balance of Switch Transformers (arXiv 2101.03961): the number of
    /// experts times the sum, over experts, of the share of all choices that are the expert and the
    /// mean of its softmax over tokens. 1 if all experts have the same load; 0.01 is a usual
    /// coefficient.
    pub balance: f32,
    /// The coefficient of the z-loss of ST-MoE (arXiv 2202.08906): the mean, over tokens, of the
    /// square of the logarithm of the sum of the logits' exponentials. It keeps logits small; 0.001
    /// is a usual coefficient.
    pub z: f32,
}

/// The tensors that [`Moe::auxiliary_into`] reads.
#[derive(Clone, Copy, Debug)]
pub struct Router<'a> {
    /// `[tokens, experts]`
    pub logits: &'a Buffer<f32>,
    /// Tokens of each expert, those of [`Routing`](crate::moe::Routing).
    pub loads: &'a Buffer<u32>,
}

impl Moe {
    /// Writes the balance and the z-loss, each without its coefficient, to the two elements of
    /// `losses`, and adds the gradient of their sum, with coefficients, to `gradient`, that of the
    /// logits. Loads are taken as given. Returns before the work is done.
    ///
    /// ```
    /// use apex_kernels::moe::{Auxiliary, Moe, Router, Shape};
    ///
    /// let device = apex_gpu::Device::open(0)?;
    /// let moe = Moe::new(&device)?;
    /// let shape = Shape { tokens: 2, experts: 2, top_k: 1, dim: 4, hidden: 2 };
    /// let logits = device.upload(&[3.0f32, 0.0, 0.0, 3.0])?;
    /// let loads = device.upload(&[1u32, 1])?;
    /// let (mut losses, mut gradient) = (device.zeros(2)?, device.zeros(shape.logits())?);
    /// let router = Router { logits: &logits, loads: &loads };
    /// let coefficients = Auxiliary { balance: 0.01, z: 0.001 };
    /// moe.auxiliary_into(&router, &coefficients, &mut losses, &mut gradient, &shape, device.stream())?;
    /// assert!((losses.to_vec()?[0] - 1.0).abs() < 1e-6); // both experts have the same load
    /// # apex_kernels::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if a shape is wrong or a buffer has another size;
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub fn auxiliary_into(
        &self,
        router: &Router<'_>,
        coefficients: &Auxiliary,
        losses: &mut Buffer<f32>,
        gradient: &mut Buffer<f32>,
        shape: &Shape,
        stream: &Stream,
    ) -> Result<()> {
        shape.check()?;
        let (tokens, experts) = (("tokens", shape.tokens), ("experts", shape.experts));
        check_elements("the logits", &[tokens, experts], router.logits.len())?;
        check_elements("the loads", &[experts], router.loads.len())?;
        check_elements("the losses", &[("balance and z", 2)], losses.len())?;
        check_elements("the gradients of the logits", &[tokens, experts], gradient.len())?;
        if shape.tokens == 0 {
            return Ok(losses.clear_on(stream)?);
        }
        let problem = shape.problem(&Options::default());
        let kernel = |name| self.kernel(LOSSES, name);
        let (of_chunks, sum) = (kernel("moe_losses")?, kernel("moe_sum_losses")?);
        // Whoever panicked while holding the buffers left whole ones.
        let mut workspace = self.workspace.lock().unwrap_or_else(PoisonError::into_inner);
        let Workspace { weight_parts, .. } = &mut *workspace;
        let parts = reserve(weight_parts, 2 * shape.chunks(), stream)?;

        let blocks = shape.chunks().min(MOST_BLOCKS) as u32;
        let launch = of_chunks.launch(blocks, THREADS).on(stream).arg(router.logits).arg(router.loads);
        let launch = launch.arg(coefficients.balance).arg(coefficients.z).arg(gradient).arg(&mut *parts);
        // SAFETY: the buffers have the sizes that the problem says, and each chunk has two parts.
        unsafe { launch.arg(problem).launch()? };
        let launch = sum.launch(1, 32).on(stream).arg(&*parts).arg(losses);
        // SAFETY: as above; the first kernel has written all parts.
        unsafe { launch.arg(problem).launch()? };
        Ok(())
    }

    /// Adds `rate` to the [bias](crate::moe::Inputs::bias) of each expert with less than the mean
    /// of `loads`, and subtracts it from that of each with more: the balancing without a loss of
    /// arXiv 2408.15664 (DeepSeek-V3), for which 0.001 is a usual rate. Loads are those of a call,
    /// or sums over calls or devices. Returns before the work is done.
    ///
    /// ```
    /// use apex_kernels::moe::Moe;
    ///
    /// let device = apex_gpu::Device::open(0)?;
    /// let moe = Moe::new(&device)?;
    /// let mut bias = device.zeros(3)?;
    /// moe.balance_bias(&mut bias, &device.upload(&[9u32, 5, 1])?, 0.5, device.stream())?;
    /// assert_eq!(bias.to_vec()?, [-0.5, 0.0, 0.5]);
    /// # apex_kernels::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if there is not one load for each bias;
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub fn balance_bias(
        &self,
        bias: &mut Buffer<f32>,
        loads: &Buffer<u32>,
        rate: f32,
        stream: &Stream,
    ) -> Result<()> {
        check_elements("the loads", &[("experts", bias.len())], loads.len())?;
        let Ok(experts) = i32::try_from(bias.len()) else {
            return Err(wrong(format!("{} biases are more than a kernel can count", bias.len())));
        };
        if experts == 0 {
            return Ok(());
        }
        let kernel = self.kernel(LOSSES, "moe_balance_bias")?;
        let launch = kernel.launch(1, THREADS).on(stream).arg(bias).arg(loads).arg(rate);
        // SAFETY: there is a bias and a load for each expert.
        unsafe { launch.arg(experts).launch()? };
        Ok(())
    }
}
