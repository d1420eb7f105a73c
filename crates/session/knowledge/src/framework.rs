//! The frameworks in whose words remedies are written.

use apex_kernel_names::Owner;

/// A framework, or none: CUDA C++ and other compiled code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Framework {
    /// PyTorch.
    PyTorch,
    /// JAX.
    Jax,
    /// CuPy.
    CuPy,
    /// TensorFlow.
    TensorFlow,
    /// RAPIDS cuDF.
    CuDf,
    /// vLLM.
    Vllm,
    /// Triton, as the program's own kernels are written in it.
    Triton,
    /// Numba.
    Numba,
    /// CUDA C++ and what calls it without a framework.
    Cuda,
}

impl Framework {
    /// All of them, in the order in which a remedy is looked for.
    pub const ALL: [Self; 9] = [
        Self::Vllm,
        Self::PyTorch,
        Self::Jax,
        Self::TensorFlow,
        Self::CuDf,
        Self::CuPy,
        Self::Numba,
        Self::Triton,
        Self::Cuda,
    ];

    /// Its key in a file.
    pub fn key(self) -> &'static str {
        match self {
            Self::PyTorch => "pytorch",
            Self::Jax => "jax",
            Self::CuPy => "cupy",
            Self::TensorFlow => "tensorflow",
            Self::CuDf => "cudf",
            Self::Vllm => "vllm",
            Self::Triton => "triton",
            Self::Numba => "numba",
            Self::Cuda => "cuda",
        }
    }

    /// Returns the framework that a kernel of this owner shows; `None` if it may be of any.
    pub fn of_owner(owner: Owner) -> Option<Self> {
        match owner {
            Owner::PyTorch | Owner::Inductor => Some(Self::PyTorch),
            Owner::Xla => Some(Self::Jax),
            Owner::CuPy => Some(Self::CuPy),
            Owner::TensorFlow => Some(Self::TensorFlow),
            Owner::Vllm => Some(Self::Vllm),
            _ => None,
        }
    }

    /// Returns the framework that a source file on a call stack belongs to.
    pub fn of_file(path: &str) -> Option<Self> {
        const FOLDERS: [(&str, Framework); 10] = [
            ("/vllm/", Framework::Vllm),
            ("/torch/", Framework::PyTorch),
            ("/jax/", Framework::Jax),
            ("/jaxlib/", Framework::Jax),
            ("/cupy/", Framework::CuPy),
            ("/cupyx/", Framework::CuPy),
            ("/tensorflow/", Framework::TensorFlow),
            ("/cudf/", Framework::CuDf),
            ("/numba/", Framework::Numba),
            ("/triton/", Framework::Triton),
        ];
        let package = path.rsplit_once("-packages/").map(|(_, package)| package)?;
        FOLDERS.iter().find(|(folder, _)| package.starts_with(&folder[1..])).map(|(_, of)| *of)
    }
}

#[cfg(test)]
mod tests {
    use super::Framework;

    #[test]
    fn a_file_belongs_to_the_package_that_it_is_installed_in() {
        let of = Framework::of_file;
        assert_eq!(of("/usr/lib/python3/dist-packages/torch/nn/functional.py"), Some(Framework::PyTorch));
        assert_eq!(of("/x/site-packages/cupyx/scipy/sparse/_coo.py"), Some(Framework::CuPy));
        assert_eq!(of("/x/site-packages/torchmetrics/metric.py"), None);
        assert_eq!(of("/home/torch/train.py"), None);
    }
}
