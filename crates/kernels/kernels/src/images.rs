//! The device code that is part of this crate, loaded when it is first needed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use apex_gpu::{Device, Kernel, Module};

use crate::Result;

/// One file of device code.
#[derive(Clone, Copy)]
pub struct Image {
    pub name: &'static str,
    pub code: Code,
}

#[derive(Clone, Copy)]
pub enum Code {
    /// Compressed PTX.
    Ptx(&'static [u8]),
    Binary(&'static [u8]),
}

/// The kernels that one device has loaded.
#[derive(Debug, Default)]
pub struct Images(Mutex<Loaded>);

#[derive(Debug, Default)]
struct Loaded {
    modules: HashMap<&'static str, Module>,
    kernels: HashMap<String, Arc<Kernel>>,
}

impl Images {
    /// The kernel of this name, from memory or loaded now. The device is the same in all calls.
    pub fn kernel(&self, device: &Device, image: Image, name: &str) -> Result<Arc<Kernel>> {
        // A thread that panicked here left whole entries.
        let mut loaded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernel) = loaded.kernels.get(name) {
            return Ok(kernel.clone());
        }
        let module = match loaded.modules.get(image.name) {
            Some(module) => module.clone(),
            None => {
                let module = match image.code {
                    Code::Ptx(ptx) => device.load_ptx(&apex_device_code::decompress(ptx))?,
                    Code::Binary(binary) => device.load_binary(binary)?,
                };
                loaded.modules.insert(image.name, module.clone());
                module
            }
        };
        let kernel = Arc::new(module.kernel(name)?);
        loaded.kernels.insert(name.to_owned(), kernel.clone());
        Ok(kernel)
    }
}
