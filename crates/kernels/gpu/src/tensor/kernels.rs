//! The kernels of tensors: PTX that is part of this crate, loaded for a device and an element type
//! when first used, and kept until the process ends.

use std::collections::HashMap;
#[cfg(feature = "cublas")]
use std::sync::MutexGuard;
use std::sync::{Mutex, OnceLock, PoisonError};

use super::Number;
#[cfg(feature = "cublas")]
use super::blas::Blas;
use crate::device::Device;
use crate::error::Result;
use crate::launch::{Kernel, Launch};
use crate::module::Module;
use crate::stream::Stream;

/// Threads of a block, of kernels for which it does not matter much.
pub(super) const BLOCK: u32 = 256;

/// A kernel, by what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Routine {
    Binary,
    BinaryStrided,
    Unary,
    Function,
    CopyStrided,
    Fill,
    ReduceRows,
    ReduceShortRows,
    ReduceColumns,
    ReduceParts,
    ArgMax,
    Matmul,
    Softmax,
}

const ROUTINES: [&str; 13] = [
    "binary",
    "binary_strided",
    "unary",
    "function",
    "copy_strided",
    "fill",
    "reduce_rows",
    "reduce_short_rows",
    "reduce_columns",
    "reduce_parts",
    "argmax",
    "matmul",
    "softmax",
];

/// The kernels for one element type on one device.
pub(super) struct Kernels {
    module: Module,
    routines: [OnceLock<Kernel>; ROUTINES.len()],
    casts: Mutex<HashMap<&'static str, &'static Kernel>>,
    #[cfg(feature = "cublas")]
    blas: OnceLock<Mutex<Blas>>,
}

impl Kernels {
    /// Returns the kernels for `T` on `device`.
    pub(super) fn of<T: Number>(device: &Device) -> Result<&'static Kernels> {
        type Key = (usize, &'static str);
        static LOADED: Mutex<Option<HashMap<Key, &'static Kernels>>> = Mutex::new(None);
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        let loaded = loaded.get_or_insert_default();
        let key = (device.cuda().cu_ctx() as usize, T::NAME);
        if let Some(kernels) = loaded.get(&key) {
            return Ok(kernels);
        }
        let kernels: &Kernels = Box::leak(Box::new(Kernels {
            module: device.load_ptx(T::ptx())?,
            routines: [const { OnceLock::new() }; ROUTINES.len()],
            casts: Mutex::default(),
            #[cfg(feature = "cublas")]
            blas: OnceLock::new(),
        }));
        loaded.insert(key, kernels);
        Ok(kernels)
    }

    pub(super) fn get<T: Number>(&self, routine: Routine) -> Result<&Kernel> {
        let place = &self.routines[routine as usize];
        if let Some(kernel) = place.get() {
            return Ok(kernel);
        }
        let kernel = self.module.kernel(&format!("{}_{}", ROUTINES[routine as usize], T::NAME))?;
        Ok(place.get_or_init(|| kernel))
    }

    /// The kernel that converts `T` to `U`.
    pub(super) fn cast<T: Number, U: Number>(&self) -> Result<&'static Kernel> {
        let mut casts = self.casts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernel) = casts.get(U::NAME) {
            return Ok(kernel);
        }
        let kernel = self.module.kernel(&format!("cast_{}_{}", T::NAME, U::NAME))?;
        let kernel: &Kernel = Box::leak(Box::new(kernel));
        casts.insert(U::NAME, kernel);
        Ok(kernel)
    }

    /// cuBLAS, or why not; for one thread at a time, as cuBLAS wants it.
    #[cfg(feature = "cublas")]
    pub(super) fn blas(&self) -> MutexGuard<'_, Blas> {
        let blas = self.blas.get_or_init(|| Mutex::new(Blas::of(self.module.device())));
        blas.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stream on which these kernels and cuBLAS run.
    pub(super) fn stream(&self) -> &Stream {
        self.module.device().stream()
    }
}

/// Elements that a thread of an elementwise kernel takes.
pub(super) const AT_ONCE: usize = 16;

/// A launch with a thread for each of `n` elements, which the kernels' loops stretch if a grid
/// cannot have as many.
pub(super) fn over(kernel: &Kernel, n: usize) -> Launch<'_> {
    let blocks = n.div_ceil(BLOCK as usize).clamp(1, i32::MAX as usize);
    kernel.launch([blocks as u32, 1, 1], [BLOCK, 1, 1])
}
