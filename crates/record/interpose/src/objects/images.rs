//! The image that each module, library and function comes from: its hash if the session stores
//! images, the blocks that its kernels require, and which PTX it is. An image without any of them
//! is not remembered.

use super::{Objects, lock};
use crate::tables::put;
use crate::{driver, limits};
use cuda_abi::types::*;
use cuda_launch::Dim3;
use fatbin::RequiredBlock;
use std::collections::HashMap;
use std::sync::Arc;

/// By handle of a module, library, kernel or function.
pub type Origins = HashMap<u64, Origin>;

/// The facts that are kept about an image.
#[derive(Clone, Default)]
pub struct Image {
    /// Its hash, if the session has it.
    pub hash: Option<u128>,
    /// The blocks that its kernels require.
    pub required: Arc<Vec<RequiredBlock>>,
    /// The hash of the PTX that the driver compiles, if the program loads no machine code.
    pub ptx: Option<u128>,
}

/// The origin of a handle.
pub enum Origin {
    /// It was made of this image.
    Image(Image),
    /// It is part of this one: of a module, library or kernel.
    Of(u64),
}

/// Steps from a function to its library: over its kernel, or its module.
const MOST_STEPS: usize = 4;

impl Objects {
    /// A module or library was made of an image.
    pub fn note_image(&self, handle: u64, image: Image) {
        if image.hash.is_some() || image.ptx.is_some() || !image.required.is_empty() {
            self.note_origin(handle, Origin::Image(image));
        }
    }

    /// The driver gave `part`, a module, kernel or function, for `whole`.
    pub fn note_part(&self, part: u64, whole: u64) {
        if part != whole && lock(&self.origins).contains_key(&whole) {
            self.note_origin(part, Origin::Of(whole));
        }
    }

    fn note_origin(&self, handle: u64, origin: Origin) {
        let mut origins = lock(&self.origins);
        if origins.len() < limits::ORIGINS || origins.contains_key(&handle) {
            put(&mut origins, handle, origin);
        }
    }

    /// A module or library is about to be unloaded.
    pub fn forget_image(&self, handle: u64) {
        lock(&self.origins).remove(&handle);
    }

    /// The image of a function, or of a library's kernel, that was launched with success.
    pub fn image_of(&self, function: CUfunction) -> Option<Image> {
        if lock(&self.origins).is_empty() {
            return None;
        }
        self.image_behind(function as u64).or_else(|| {
            // The program got it in a way that no hook sees.
            self.image_behind(driver::module_of(function)? as u64)
        })
    }

    /// The PTX that a handle's code was compiled from, if the program got the handle for a module
    /// or library that it has loaded as PTX. Asks nobody, so the handle may be anything.
    pub fn ptx_behind(&self, handle: CUfunction) -> Option<u128> {
        self.image_behind(handle as u64)?.ptx
    }

    fn image_behind(&self, handle: u64) -> Option<Image> {
        let (origins, mut at) = (lock(&self.origins), handle);
        for _ in 0..MOST_STEPS {
            match origins.get(&at)? {
                Origin::Image(image) => return Some(image.clone()),
                Origin::Of(whole) => at = *whole,
            }
        }
        None
    }

    /// The block that a function, or a library's kernel, requires; it was launched with success.
    pub fn required_block(&self, function: CUfunction) -> Option<Dim3> {
        let Image { required, .. } = self.image_of(function).filter(|image| !image.required.is_empty())?;
        let name = self.describe_function(function).name;
        required.iter().find(|(known, _)| **known == *name).map(|&(_, block)| block.into())
    }
}
