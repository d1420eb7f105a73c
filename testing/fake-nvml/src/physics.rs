//! The first device as a physical model in real time, and its clock, which all processes share.

use gpu_physics::{Circumstances, Gpu, Reading, Workload};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Air temperature, °C.
const AIR: f64 = 25.0;
/// Seed of the model's random numbers.
const SEED: u64 = 7;

/// The file that holds the locked clock.
pub struct Lock(File);

/// The file of `FAKE_NVML_LOCK`.
pub fn lock_file() -> Option<Lock> {
    let path = std::env::var_os("FAKE_NVML_LOCK")?;
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    file.ok().map(Lock)
}

impl Lock {
    /// Writes the clock, MHz, in one piece.
    pub fn write(&self, mhz: Option<u32>) {
        self.0.write_all_at(&mhz.unwrap_or(0).to_le_bytes(), 0).expect("the file is the test's");
    }

    fn read(&self) -> Option<u32> {
        let mut bytes = [0; 4];
        self.0.read_exact_at(&mut bytes, 0).ok()?;
        Some(u32::from_le_bytes(bytes)).filter(|mhz| *mhz > 0)
    }
}

/// The model's reading of a device now; `None` without a workload, and for other devices than the
/// first.
pub fn physical(index: usize) -> Option<Reading> {
    static MODEL: Mutex<Option<(Instant, Gpu)>> = Mutex::new(None);
    let name = std::env::var("FAKE_NVML_WORKLOAD").ok().filter(|_| index == 0)?;
    let mut model = MODEL.lock().unwrap_or_else(PoisonError::into_inner);
    let new = || {
        let work = Workload::all().into_iter().find(|work| work.name == name);
        let circumstances = Circumstances { may_set: true, air: AIR, ..Circumstances::default() };
        (Instant::now(), Gpu::new(work.expect("a workload of gpu-physics"), circumstances, SEED))
    };
    let (since, gpu) = model.get_or_insert_with(new);
    let lock = lock_file().and_then(|lock| lock.read());
    if gpu.locked() != lock {
        gpu.lock(lock).expect("the file has a legal clock");
    }
    gpu.run(since.elapsed().as_secs_f64() - gpu.now());
    gpu.read().ok()
}
