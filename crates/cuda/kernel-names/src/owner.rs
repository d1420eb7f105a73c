//! The owner of a kernel.

use crate::named::named;

named! {
    /// The author or generator of a kernel.
    #[derive(Default)]
    pub enum Owner {
        /// The user, or somebody whose names APEX does not know: CUDA C++, Numba and Triton kernels
        /// of the program.
        #[default]
        Own = "own",
        /// PyTorch (ATen).
        PyTorch = "PyTorch",
        /// TensorFlow.
        TensorFlow = "TensorFlow",
        /// CuPy.
        CuPy = "CuPy",
        /// cuBLAS and cuBLASLt.
        CuBlas = "cuBLAS",
        /// cuDNN.
        CuDnn = "cuDNN",
        /// cuFFT.
        CuFft = "cuFFT",
        /// cuSPARSE.
        CuSparse = "cuSPARSE",
        /// cuSOLVER.
        CuSolver = "cuSOLVER",
        /// cuRAND.
        CuRand = "cuRAND",
        /// A library that the name does not tell; what launched it does.
        Library = "library",
        /// CUTLASS, in whichever library.
        Cutlass = "CUTLASS",
        /// CUB.
        Cub = "CUB",
        /// Thrust.
        Thrust = "Thrust",
        /// NCCL.
        Nccl = "NCCL",
        /// FlashAttention.
        FlashAttention = "FlashAttention",
        /// FlashInfer.
        FlashInfer = "FlashInfer",
        /// vLLM.
        Vllm = "vLLM",
        /// NVIDIA's Transformer Engine.
        TransformerEngine = "Transformer Engine",
        /// NVIDIA's Apex for PyTorch.
        NvidiaApex = "NVIDIA Apex",
        /// TorchInductor, which generates Triton code.
        Inductor = "Inductor",
        /// XLA, the compiler of JAX.
        Xla = "XLA",
    }
}

named! {
    /// The kind of owner, which decides what the user can change.
    pub enum OwnerKind {
        /// The user: source and launch.
        Own = "own",
        /// A framework: which of its functions are called, and with what.
        Framework = "framework",
        /// A library: its inputs' types, layouts and sizes.
        Library = "library",
        /// A compiler: what it is given and told.
        Compiler = "compiler",
    }
}

impl Owner {
    /// Returns the kind of owner.
    pub fn kind(self) -> OwnerKind {
        match self {
            Self::Own => OwnerKind::Own,
            Self::PyTorch | Self::TensorFlow | Self::CuPy | Self::Vllm => OwnerKind::Framework,
            Self::Inductor | Self::Xla => OwnerKind::Compiler,
            _ => OwnerKind::Library,
        }
    }
}
