//! The operation of a kernel.

use crate::named::named;

named! {
    /// The operation of a kernel, as far as its name tells.
    #[derive(Default)]
    pub enum Operation {
        /// The name does not tell.
        #[default]
        Unknown = "unknown",
        /// Product of matrices, batched or not.
        MatrixProduct = "matrix_product",
        /// Product of a matrix and a vector.
        MatrixVector = "matrix_vector",
        /// Convolution, or one of its gradients.
        Convolution = "convolution",
        /// Attention, or its gradient.
        Attention = "attention",
        /// Normalisation over a layer, batch, group or root mean square.
        Normalization = "normalization",
        /// Softmax or its logarithm.
        Softmax = "softmax",
        /// A loss function.
        Loss = "loss",
        /// Pooling.
        Pooling = "pooling",
        /// Reduction along dimensions: sum, maximum, norm.
        Reduction = "reduction",
        /// One result for each element.
        Elementwise = "elementwise",
        /// Copy without a change of type.
        Copy = "copy",
        /// Change of type.
        Cast = "cast",
        /// Change of layout: transposition, NCHW to NHWC.
        LayoutConversion = "layout_conversion",
        /// Concatenation, splitting, padding.
        Concatenation = "concatenation",
        /// Access by indices: gather, scatter, embedding.
        Indexing = "indexing",
        /// Interpolation to another size.
        Resampling = "resampling",
        /// Sort, selection, unique values.
        Sort = "sort",
        /// Prefix sums.
        Scan = "scan",
        /// Update of parameters by an optimizer.
        Optimizer = "optimizer",
        /// Random numbers, dropout.
        Random = "random",
        /// Communication between GPUs.
        Collective = "collective",
        /// Memory filled with a value.
        Fill = "fill",
        /// Cell of a recurrent network.
        Recurrent = "recurrent",
        /// Fourier transform.
        Fft = "fft",
        /// Sparse matrices.
        Sparse = "sparse",
        /// Factorisations, triangular solves.
        LinearAlgebra = "linear_algebra",
        /// Several operations that a compiler joined.
        Fused = "fused",
        /// Preparation that computes nothing itself.
        Auxiliary = "auxiliary",
    }
}
