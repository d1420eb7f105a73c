//! The thread that reads and writes.
//!
//! It waits between samples and does nothing else: a program that ends while it waits ends it at
//! once. Its share of a processor is bounded, because it waits the longer the more a sample took of
//! each device. Finding the devices costs far more than a sample (70 to 340 ms of CPU time with
//! four H200 and four ranks that start) and happens once, so that nothing waits longer for it.

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
    /// Reads the energy counter of the device at this index alone, in millijoules; `None` without
    /// one.
    fn energy(&mut self, _index: usize) -> Option<u64> {
        None
    }
}

/// The settings of sampling.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The time from one sample to the next.
    pub every: Duration,
    /// The time from one reading of the energy counter to the next; longer where a reading takes
    /// long.
    pub every_energy: Duration,
    /// Before anything is read: a program that is over by then costs nothing.
    pub delay: Duration,
    /// Most bytes of the file.
    pub most_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(1),
            every_energy: Duration::from_millis(100),
            delay: Duration::from_millis(50),
            most_bytes: MOST_BYTES,
        }
    }
}

/// Minimum ratio of a pause to the CPU time that the previous sample took per device: samples take
/// at most 0.5% of one core for each device, and readings of energy between them at most another
/// 0.5%.
const PAUSE_BY_COST: u32 = 200;
/// Minimum ratio of a pause to the time that a reading of energy took per device: the driver, which
/// may make a program wait for its device meanwhile, is busy with readings of each device for at
/// most 1% of the time.
const PAUSE_BY_TIME: u32 = 100;
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
    let mut counted = Counted::new(options.every_energy);
    while counted.wait(stopped, pause, devices.as_mut()) {
        let searching = clock_ns(libc::CLOCK_THREAD_CPUTIME_ID);
        if devices.is_none() {
            devices = find();
            devices.iter().flat_map(|devices| devices.list()).try_for_each(|device| writer.device(device))?;
        }
        // The sample begins when the devices are found, which may take long.
        let (from_ns, began) = (clock_ns(libc::CLOCK_MONOTONIC), clock_ns(libc::CLOCK_THREAD_CPUTIME_ID));
        let host = host.read(from_ns);
        let count = devices.as_ref().map_or(0, |devices| devices.list().len());
        let mut devices = devices.as_mut().map_or_else(Vec::new, |devices| read_all(devices, from_ns));
        let ended = clock_ns(libc::CLOCK_THREAD_CPUTIME_ID);
        let cost_ns = ended.saturating_sub(searching) + std::mem::take(&mut counted.cost_ns);
        counted.take(&mut devices);
        // The first sample is what the others count from.
        if let Some(last) = last_ns.replace(from_ns) {
            writer.record(Record { from_ns: last, to_ns: from_ns, cost_ns, host, devices })?;
        }
        pause = options.every.max(pause_for(ended.saturating_sub(began), count, PAUSE_BY_COST));
    }
    write_rest(&mut writer, &mut counted, devices.as_mut(), last_ns)
}

/// The pause after work that took `ns` nanoseconds for all these devices.
fn pause_for(ns: u64, devices: usize, ratio: u32) -> Duration {
    let each = ns / devices.max(1) as u64;
    Duration::from_nanos(each.saturating_mul(u64::from(ratio)))
}

/// Writes what the energy counter showed since the last sample, which the end cut short.
fn write_rest(
    writer: &mut Writer,
    counted: &mut Counted,
    devices: Option<&mut impl Devices>,
    last_ns: Option<u64>,
) -> io::Result<()> {
    let (Some(devices), Some(from_ns)) = (devices, last_ns) else { return Ok(()) };
    counted.read(devices);
    let (to_ns, cost_ns) = (clock_ns(libc::CLOCK_MONOTONIC), counted.cost_ns);
    let mut rest = Vec::new();
    counted.take(&mut rest);
    match rest.is_empty() || to_ns <= from_ns {
        true => Ok(()),
        false => writer.record(Record { from_ns, to_ns, cost_ns, host: Readings::default(), devices: rest }),
    }
}

/// Readings of the energy counters between two samples.
struct Counted {
    every: Duration,
    /// The time until the next reading.
    left: Duration,
    /// CPU time that they took.
    cost_ns: u64,
    /// Device, moment and millijoules.
    readings: Vec<(usize, u64, u64)>,
}

impl Counted {
    fn new(every: Duration) -> Self {
        Self { every, left: every, cost_ns: 0, readings: Vec::new() }
    }

    /// Waits for the next sample, and reads the counters meanwhile. Returns false where the thread
    /// is to end.
    fn wait(
        &mut self,
        stopped: &Receiver<()>,
        pause: Duration,
        mut devices: Option<&mut impl Devices>,
    ) -> bool {
        let mut left = pause;
        loop {
            let part = if devices.is_some() { left.min(self.left) } else { left };
            if stopped.recv_timeout(part) != Err(RecvTimeoutError::Timeout) {
                return false;
            }
            left = left.saturating_sub(part);
            self.left = self.left.saturating_sub(part);
            if let Some(devices) = devices.as_deref_mut().filter(|_| self.left.is_zero()) {
                self.read(devices);
            }
            if left.is_zero() {
                return true;
            }
        }
    }

    fn read(&mut self, devices: &mut impl Devices) {
        let clocks = || (clock_ns(libc::CLOCK_MONOTONIC), clock_ns(libc::CLOCK_THREAD_CPUTIME_ID));
        let (from_ns, began) = clocks();
        let count = devices.list().len();
        for device in 0..count {
            if let Some(millijoules) = devices.energy(device) {
                self.readings.push((device, clock_ns(libc::CLOCK_MONOTONIC), millijoules));
            }
        }
        let (to_ns, ended) = clocks();
        let cost_ns = ended.saturating_sub(began);
        self.cost_ns += cost_ns;
        let by_cost = pause_for(cost_ns, count, PAUSE_BY_COST);
        let by_time = pause_for(to_ns.saturating_sub(from_ns), count, PAUSE_BY_TIME);
        self.left = self.every.max(by_cost).max(by_time);
    }

    /// Moves the readings into the records of their devices.
    fn take(&mut self, records: &mut Vec<DeviceRecord>) {
        for (device, at_ns, millijoules) in self.readings.drain(..) {
            let known = records.iter().position(|record| record.device == device);
            let at = known.unwrap_or_else(|| {
                records.push(DeviceRecord { device, ..DeviceRecord::default() });
                records.len() - 1
            });
            records[at].energy.push((at_ns, millijoules));
        }
    }
}

fn read_all(devices: &mut impl Devices, now_ns: u64) -> Vec<DeviceRecord> {
    let all = 0..devices.list().len();
    let read = all.map(|device| DeviceRecord {
        device,
        readings: devices.read(device, now_ns),
        ..DeviceRecord::default()
    });
    read.filter(|record| !record.is_empty()).collect()
}

/// Nanoseconds of a clock.
fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills the structure that it is given, and only that.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_bounded_by_what_each_device_took() {
        let pause = |devices| pause_for(30_000_000, devices, PAUSE_BY_COST);
        assert_eq!([0, 1, 4].map(pause), [6_000, 6_000, 1_500].map(Duration::from_millis));
        assert_eq!(pause_for(u64::MAX, 1, PAUSE_BY_COST), Duration::from_nanos(u64::MAX));
    }
}
