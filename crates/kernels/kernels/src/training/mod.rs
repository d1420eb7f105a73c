//! The parts of training beside a model's layers: an embedding with its gradient, and AdamW with
//! weights of 16 bits and their masters in f32.
//!
//! The loss is a graph for [`fusion`](crate::fusion),
//! [`forms::cross_entropy`](crate::fusion::forms::cross_entropy), as norms and their gradients are;
//! products of matrices are [`Tensor::matmul`]. The example `train` puts all of them together.
//!
//! Kernels run on any GPU from compute capability 8.0 on and on the CPU device;
//! [`reference`](mod@reference) defines them in f64 on the host. Each output has one writer and
//! sums have one order, so results are the same in each run.
//!
//! [`Tensor::matmul`]: apex_gpu::Tensor::matmul

mod adamw;
mod embedding;
pub mod reference;

use apex_gpu::{Device, Kernel};
use std::sync::Arc;

pub use adamw::{AdamW, Parameter, Rates};
pub use embedding::Embedding;

use crate::images::{Code, Image, Images};
use crate::{Element, Error, Result};

/// As errors name it.
const TECHNIQUE: &str = "training";

const IMAGE: Image =
    Image { name: "training", code: Code::Ptx(include_bytes!("../../binaries/training.ptx.zst")) };

/// Threads of a block, as `training::THREADS` in `cuda/training.cu`.
const THREADS: usize = 128;
/// Blocks of a grid; kernels loop over what is more.
const MOST_BLOCKS: usize = 1 << 20;

/// A device, and the kernels that it has loaded.
#[derive(Debug)]
struct Kernels {
    device: Device,
    images: Images,
}

impl Kernels {
    fn new(device: &Device) -> Kernels {
        Kernels { device: device.clone(), images: Images::default() }
    }

    /// `name` for elements of type `T`.
    fn get<T: Element>(&self, name: &str) -> Result<Arc<Kernel>> {
        self.images.kernel(&self.device, IMAGE, &format!("{name}_{}", T::NAME))
    }
}

fn wrong(why: String) -> Error {
    Error::Shape { technique: TECHNIQUE, why }
}
