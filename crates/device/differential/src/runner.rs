//! Runs a case on a driver.

use crate::case::{Case, KERNEL, UNWRITTEN};
use crate::recording::Outcome;
use crate::tensor::Tensor;
use apex_driver::device::{Argument, Device};
use apex_driver::{DriverError, Library};
use cuda_abi::types::{CUDA_ERROR_NOT_SUPPORTED, result_name};

/// The outcome of a case.
pub struct Ran {
    /// Its outcome.
    pub outcome: Outcome,
    /// Whether the kernel ended with an error, so that the context is of no more use.
    pub context_lost: bool,
}

/// Runs a case on the device of a driver.
pub fn run(device: &Device, driver: Library, case: &Case) -> Ran {
    let module = match device.load(&case.ptx) {
        Ok(module) => module,
        Err(error) => return Ran { outcome: Outcome::Refused(words(&error)), context_lost: false },
    };
    let images: Result<Vec<_>, _> =
        (0..case.images.len()).map(|index| case.images[index].create(device, &case.texels(index))).collect();
    let images = match images {
        Ok(images) => images,
        Err(error) => return Ran { outcome: Outcome::Refused(error.to_string()), context_lost: false },
    };
    let launch = || {
        let kernel = module.kernel(KERNEL)?;
        let inputs = device.upload(&case.input_bytes())?;
        let results = device.upload(&vec![UNWRITTEN; case.result_layout().1.max(1)])?;
        let handles: Vec<u64> = images.iter().map(|image| image.handle()).collect();
        let map = |tensor: &Tensor| tensor.map(driver, inputs.address(), results.address());
        let maps = case.tensors.iter().map(map).collect::<Result<Vec<_>, _>>()?;
        let mut arguments = vec![Argument::from(&inputs), Argument::from(&results)];
        arguments.extend(handles.iter().map(Argument::from));
        arguments.extend(maps.iter().map(|map| Argument::from(map.as_slice())));
        arguments.extend(case.given.iter().map(Argument::from));
        let stream = device.default_stream();
        // SAFETY: every case takes the addresses of these two buffers and the handles of its
        // images, all of which live until the stream is done.
        unsafe { kernel.launch(&stream, [case.grid, 1, 1], [case.block, 1, 1], &arguments)? };
        device.synchronize()?;
        results.download()
    };
    match launch() {
        Ok(results) => Ran { outcome: Outcome::Results(results), context_lost: false },
        Err(error @ DriverError::Call { code: CUDA_ERROR_NOT_SUPPORTED, .. }) => {
            Ran { outcome: Outcome::Refused(words(&error)), context_lost: true }
        }
        Err(error) => Ran { outcome: Outcome::Failed(words(&error)), context_lost: true },
    }
}

/// An error in a few words that are the same in every run.
fn words(error: &DriverError) -> String {
    match error {
        DriverError::Call { code, .. } => result_name(*code).unwrap_or("an unknown code").to_owned(),
        DriverError::Compilation(log) => {
            let line = log.lines().find(|line| line.contains("error") || line.contains("fatal"));
            line.or(log.lines().next()).unwrap_or_default().trim().to_owned()
        }
        other => other.to_string(),
    }
}
