//! The thread that samples.

use apex_machine::{Device, Devices, FILE, Machine, Options, Quantity, Readings, Record, Sampler, Summary};
use apex_untrusted::Folder;
use std::path::Path;
use std::time::Duration;

/// Devices whose power is 100 W, then 200 W, and so on.
struct Growing(Vec<Device>, f64);

impl Devices for Growing {
    fn list(&self) -> &[Device] {
        &self.0
    }

    fn read(&mut self, _: usize, _: u64) -> Readings {
        self.1 += 100.0;
        let mut readings = Readings::default();
        readings.set(Quantity::Power, self.1);
        readings.set(Quantity::AveragePower, self.1);
        readings
    }
}

/// Devices of which the second one has an energy counter, which grows by a joule each time.
struct Counting(Growing, u64);

impl Devices for Counting {
    fn list(&self) -> &[Device] {
        self.0.list()
    }

    fn read(&mut self, index: usize, now_ns: u64) -> Readings {
        self.0.read(index, now_ns)
    }

    fn energy(&mut self, index: usize) -> Option<u64> {
        self.1 += 1_000;
        (index == 1).then_some(self.1)
    }
}

/// A device whose driver does not answer.
struct Hanging(Vec<Device>);

impl Devices for Hanging {
    fn list(&self) -> &[Device] {
        &self.0
    }

    fn read(&mut self, _: usize, _: u64) -> Readings {
        loop {
            std::thread::park();
        }
    }
}

fn devices() -> Vec<Device> {
    vec![
        Device { uuid: "GPU-a".into(), ..Device::default() },
        Device { uuid: "GPU-b".into(), ..Device::default() },
    ]
}

const OPTIONS: Options = Options {
    every: Duration::from_millis(1),
    every_energy: Duration::from_millis(1),
    delay: Duration::from_millis(1),
    most_bytes: 1 << 20,
};

fn start<D: Devices + 'static>(
    dir: &Path,
    options: Options,
    devices: impl FnMut() -> Option<D> + Send + 'static,
) -> Sampler {
    Sampler::start(Folder::open(dir).unwrap(), std::process::id(), options, devices).unwrap()
}

/// Waits until the sampler has written `records` records.
fn wait_for(dir: &Path, records: usize) -> Machine {
    loop {
        let machine = Machine::read(dir);
        if machine.records.len() >= records {
            return machine;
        }
        std::thread::yield_now();
    }
}

#[test]
fn samples_join_into_records_without_a_gap() {
    let dir = tempfile::tempdir().unwrap();
    let sampler = start(dir.path(), OPTIONS, || Some(Growing(devices(), 0.0)));
    wait_for(dir.path(), 5);
    sampler.finish().unwrap();
    let machine = Machine::read(dir.path());
    assert_eq!(machine.devices, devices());
    assert_eq!(machine.problems, [""; 0]);
    assert!(machine.records.windows(2).all(|pair| pair[0].to_ns == pair[1].from_ns));
    let summary = Summary::of(&machine, ["GPU-b", "GPU-elsewhere"]).unwrap();
    assert!(summary.joined && summary.devices.len() == 1 && summary.devices[0].index == 1);
    assert!(summary.devices[0].energy_j.unwrap() > 0.0);
    assert!(summary.host.get(Quantity::ProgramMemory).is_some() && summary.cost_share > 0.0);
    let unjoined = Summary::of(&machine, ["MIG-1"]).unwrap();
    assert!(!unjoined.joined && unjoined.devices.len() == 2);
}

#[test]
fn energy_counters_are_read_between_samples_and_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { every: Duration::from_millis(50), ..OPTIONS };
    let sampler = start(dir.path(), options, || Some(Counting(Growing(devices(), 0.0), 0)));
    let counted = |machine: &Machine| {
        let of_devices = machine.records.iter().flat_map(|record| &record.devices);
        of_devices.map(|device| device.energy.len()).sum::<usize>()
    };
    // A reading that took long on a busy machine is followed by a long pause.
    while counted(&wait_for(dir.path(), 3)) < 10 {}
    sampler.finish().unwrap();
    let machine = Machine::read(dir.path());
    assert_eq!(machine.problems, [""; 0]);
    let of = |record: &Record, index| {
        record.devices.iter().find(|device| device.device == index).map_or(0, |device| device.energy.len())
    };
    let (last, whole) = machine.records.split_last().unwrap();
    assert!(whole.iter().all(|record| of(record, 0) == 0));
    assert!(whole.iter().any(|record| of(record, 1) >= 2), "{:?}", machine.records);
    assert!(of(last, 1) >= 1 && last.host.is_empty(), "{last:?}");
    for record in &machine.records {
        let moments = record.devices.iter().flat_map(|device| &device.energy);
        assert!(
            moments.into_iter().all(|(at, _)| (record.from_ns..=record.to_ns).contains(at)),
            "{record:?}"
        );
    }
}

#[test]
fn a_machine_without_devices_has_readings_of_the_host() {
    let dir = tempfile::tempdir().unwrap();
    let sampler = start(dir.path(), OPTIONS, || None::<Growing>);
    let machine = wait_for(dir.path(), 2);
    sampler.finish().unwrap();
    assert_eq!(machine.devices, []);
    assert!(machine.records.iter().all(|record| record.host.get(Quantity::MachineMemory).is_some()));
}

#[test]
fn devices_that_are_found_later_are_read_from_then_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut looks = 0;
    let sampler = start(dir.path(), OPTIONS, move || {
        looks += 1;
        (looks == 4).then(|| Growing(devices(), 0.0))
    });
    let machine = wait_for(dir.path(), 6);
    sampler.finish().unwrap();
    let with: Vec<bool> = machine.records.iter().map(|record| !record.devices.is_empty()).collect();
    // The first sample begins the first record. What the fourth one finds, it reads at once:
    // finding devices takes long, and a program may be over before the next sample.
    assert_eq!(with[..6], [false, false, true, true, true, true]);
}

#[test]
fn a_program_that_is_over_at_once_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { delay: Duration::from_secs(3600), ..OPTIONS };
    start(dir.path(), options, || Some(Growing(devices(), 0.0))).finish().unwrap();
    assert!(!dir.path().join(FILE).exists());
}

#[test]
fn a_driver_that_hangs_does_not_hold_up_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let (told, hears) = std::sync::mpsc::channel();
    let sampler = start(dir.path(), OPTIONS, move || {
        told.send(()).unwrap();
        Some(Hanging(devices()))
    });
    hears.recv().unwrap();
    sampler.finish().unwrap();
}

#[test]
fn a_file_that_cannot_be_made_is_said_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join(FILE)).unwrap();
    let (told, hears) = std::sync::mpsc::channel();
    let sampler = start(dir.path(), OPTIONS, move || {
        let _ = told.send(());
        None::<Growing>
    });
    // The channel is closed when the thread has ended.
    while hears.recv().is_ok() {}
    assert!(sampler.finish().is_err());
}
