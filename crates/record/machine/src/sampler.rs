//! The thread that reads and writes.
//!
//! It waits between samples and does nothing else: a program that ends while it waits ends it at
//! once. Its share of a processor is bounded, because it waits the longer the more a sample took.

use crate::file::{MOST_BYTES, Writer};
use crate::host::Host;
use crate::record::{Device, DeviceRecord, Readings, Record};
use apex_untrusted::Folder;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Something that has devices.
pub trait Devices: Send {
    /// The devices.
    fn list(&self) -> &[Device];
    /// Reads the device at this index, at this moment of the monotonic clock.
    fn read(&mut self, index: usize, now_ns: u64) -> Readings;
}

/// The settings of sampling.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The time from one sample to the next.
    pub every: Duration,
    /// Before anything is read: a program that is over by then costs nothing.
    pub delay: Duration,
    /// Most bytes of the file.
    pub most_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { every: Duration::from_secs(1), delay: Duration::from_millis(50), most_bytes: MOST_BYTES }
    }
}

/// The least ratio of a pause to the CPU time of the sample before it: sampling never takes more
/// than a two-hundredth of a processor.
const PAUSE_BY_COST: u32 = 200;
/// The time for which the end waits for a sample that is being read or written.
const PATIENCE: Duration = Duration::from_millis(500);

/// A thread that samples until it is stopped.
#[derive(Debug)]
pub struct Sampler {
    stop: Sender<()>,
    ended: Receiver<io::Result<()>>,
}

impl Sampler {
    /// Starts the thread, which writes into the session in `folder` what becomes of the machine and
    /// of the process `root` with its descendants. `devices` is called before each sample until it
    /// gives devices: `None` where there are none yet.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start<D: Devices + 'static>(
        folder: Folder,
        root: u32,
        options: Options,
        devices: impl FnMut() -> Option<D> + Send + 'static,
    ) -> io::Result<Self> {
        let (stop, stopped) = channel();
        let (told, ended) = channel();
        std::thread::Builder::new().name("apex-machine".into()).spawn(move || {
            let sampled = sample(&stopped, folder, root, options, devices);
            // Nobody may be left to listen.
            let _ = told.send(sampled);
        })?;
        Ok(Self { stop, ended })
    }

    /// Has the thread end, and waits for it a while: a call of NVML may hang.
    ///
    /// # Errors
    /// The reason why it could not write; then what it had written before is there.
    pub fn finish(self) -> io::Result<()> {
        drop(self.stop);
        // A thread that hangs leaves a file of whole lines.
        self.ended.recv_timeout(PATIENCE).unwrap_or(Ok(()))
    }
}

fn sample<D: Devices>(
    stopped: &Receiver<()>,
    folder: Folder,
    root: u32,
    options: Options,
    mut find: impl FnMut() -> Option<D>,
) -> io::Result<()> {
    let mut writer = Writer::new(folder, options.most_bytes);
    let mut host = Host::new(root);
    let mut devices: Option<D> = None;
    let (mut pause, mut last_ns) = (options.delay, None);
    while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        let (from_ns, began) = (clock_ns(libc::CLOCK_MONOTONIC), clock_ns(libc::CLOCK_THREAD_CPUTIME_ID));
        let mut is_new = false;
        if devices.is_none() {
            devices = find();
            is_new = devices.is_some();
        }
        if is_new {
            devices.iter().flat_map(|devices| devices.list()).try_for_each(|device| writer.device(device))?;
        }
        let host = host.read(from_ns);
        let devices = devices.as_mut().map_or_else(Vec::new, |devices| read_all(devices, from_ns));
        let cost_ns = clock_ns(libc::CLOCK_THREAD_CPUTIME_ID).saturating_sub(began);
        // The first sample is what the others count from.
        if let Some(last) = last_ns.replace(from_ns) {
            // Devices that were just found have no interval behind them.
            let devices = if is_new { Vec::new() } else { devices };
            writer.record(Record { from_ns: last, to_ns: from_ns, cost_ns, host, devices })?;
        }
        pause = options.every.max(Duration::from_nanos(cost_ns) * PAUSE_BY_COST);
    }
    Ok(())
}

fn read_all(devices: &mut impl Devices, now_ns: u64) -> Vec<DeviceRecord> {
    let all = 0..devices.list().len();
    let read = all.map(|device| DeviceRecord { device, readings: devices.read(device, now_ns) });
    read.filter(|record| !record.readings.is_empty()).collect()
}

/// Nanoseconds of a clock.
fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills the structure that it is given, and only that.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}
