//! The thread of `apex run` and `apex attach` that reads the state of the machine while the program
//! runs.

use super::driver::Driver;
use crate::output;
use apex_machine::nvml::Nvml;
use apex_machine::{Options, Sampler};
use apex_trace::has_process_files;
use apex_untrusted::Folder;
use std::io;

/// The session's file of it takes at most such a part of the session's size limit.
const PART_OF_LIMIT: u64 = 16;

/// Starts the thread. NVML is loaded once a process has made a CUDA call: a program without one
/// does not pay for it, and kernels on the CPU device leave GPUs alone.
pub fn start(session: &Folder, root: u32, driver: &Driver, max_size: Option<u64>) -> Option<Sampler> {
    let dir = session.path().to_owned();
    let on_gpu = *driver == Driver::Gpu;
    start_when(session, root, max_size, move || on_gpu && has_process_files(&dir))
}

/// Starts the thread for a process that runs already. NVML is loaded as soon as `is_due`.
pub fn start_when(
    session: &Folder,
    root: u32,
    max_size: Option<u64>,
    mut is_due: impl FnMut() -> bool + Send + 'static,
) -> Option<Sampler> {
    let usual = Options::default();
    let most_bytes = max_size.map_or(usual.most_bytes, |size| usual.most_bytes.min(size / PART_OF_LIMIT));
    let mut is_loaded = false;
    let devices = move || {
        let loads = !is_loaded && is_due();
        is_loaded |= loads;
        if loads { Nvml::load() } else { None }
    };
    let started = Folder::open(session.path())
        .and_then(|folder| Sampler::start(folder, root, Options { most_bytes, ..usual }, devices));
    started.map_err(remark).ok()
}

/// Ends the thread.
pub fn finish(sampler: Option<Sampler>) {
    if let Some(Err(error)) = sampler.map(Sampler::finish) {
        remark(error);
    }
}

fn remark(error: io::Error) {
    output::remark(format!("recording of the machine stopped: {error}"));
}
