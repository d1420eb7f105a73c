//! The state of the machine while a program ran, in words.
//!
//! All of it is measured. Figures of a device are of everything that ran on it, and the words say
//! so.

use apex_machine::{DeviceSummary, Quantity, Readings, Summary};
use apex_profile::units;

/// Maximum number of devices in the text; a document has all.
const DEVICES: usize = 8;
/// A unit that is busy for less is idle.
const IDLE_UNIT: f64 = 0.005;
/// Bytes in a second of a link below which it is not worth a word.
const LEAST_RATE: f64 = 1e9;
/// A reason for low clocks that held for less is not worth a word.
const SHARE: f64 = 0.005;

/// Sentences for a report, one for each device and one for the host.
pub fn sentences(summary: &Summary, cpus: Option<u32>) -> Vec<String> {
    let mut sentences: Vec<String> = summary.devices.iter().take(DEVICES).map(of_device).collect();
    if summary.devices.len() > DEVICES {
        let more = summary.devices.len() - DEVICES;
        sentences.push(format!("{more} more devices: `apex report --json` has them."));
    }
    if !summary.devices.is_empty() && !summary.joined {
        sentences.push(
            "These are all devices of the machine; it is unknown which of them the program used (MIG has \
                other UUIDs)."
                .to_owned(),
        );
    }
    sentences.extend(of_host(summary, cpus));
    sentences
}

/// What a device does, in a short line: `412 of 700 W · SM 1755 MHz · power capped 43% · 61 °C ·
/// 58.0 of 141 GiB`.
pub fn line(device: &DeviceSummary) -> String {
    let readings = &device.readings;
    let reasons = told_reasons(device).into_iter().map(|(reason, share)| format!("{reason} {share}"));
    let parts = [
        lost(readings).then(|| "LOST BY THE DRIVER".to_owned()),
        power(readings).map(|watts| format!("{watts:.0}{} W", of_limit(readings))),
        mean(readings, Quantity::SmClock).map(|clock| format!("SM {clock:.0} MHz")),
    ];
    let rest = [
        most(readings, Quantity::Temperature).map(|degrees| format!("{degrees:.0} °C")),
        most(readings, Quantity::MemoryUsed).map(|used| memory(used, device.device.memory_bytes)),
    ];
    let parts = parts.into_iter().flatten().chain(reasons).chain(rest.into_iter().flatten());
    parts.collect::<Vec<_>>().join(" · ")
}

/// What the host does, in a short line: `program 1.8 CPUs, 4.50 GiB · machine 3.0 CPUs`.
pub fn host_line(summary: &Summary) -> Option<String> {
    let host = &summary.host;
    let cpus = |quantity| mean(host, quantity).map(|cpus| format!("{cpus:.1} CPUs"));
    let bytes = |quantity| mean(host, quantity).map(|used| units::bytes(used as u64));
    let of = |who: &str, cpus: Option<String>, bytes: Option<String>| {
        let parts: Vec<String> = [cpus, bytes].into_iter().flatten().collect();
        (!parts.is_empty()).then(|| format!("{who} {}", parts.join(", ")))
    };
    let program = of("program", cpus(Quantity::ProgramCpus), bytes(Quantity::ProgramMemory));
    let machine = of("machine", cpus(Quantity::MachineCpus), bytes(Quantity::MachineMemory));
    let parts: Vec<String> = [program, machine].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("host: {}", parts.join(" · ")))
}

fn of_device(device: &DeviceSummary) -> String {
    let readings = &device.readings;
    let name = if device.device.name.is_empty() { "device" } else { &device.device.name };
    let parts = [
        lost(readings).then(|| "the driver lost it".to_owned()),
        of_power(device),
        of_clocks(device),
        most(readings, Quantity::Temperature).map(|degrees| format!("{degrees:.0} °C at most")),
        most(readings, Quantity::MemoryUsed)
            .map(|used| format!("{} of memory at most", memory(used, device.device.memory_bytes))),
    ];
    let state = parts.into_iter().flatten().collect::<Vec<_>>().join("; ");
    let counted = of_counters(readings);
    let uuid = device.device.uuid.chars().take(12).collect::<String>();
    format!("{name} ({uuid}), measuredᵐ with all processes on it: {state}.{counted}")
}

/// Power on average and at its peak, its limit, and the energy.
fn of_power(device: &DeviceSummary) -> Option<String> {
    let readings = &device.readings;
    let average = power(readings)?;
    let peak = most(readings, Quantity::Power).map_or(String::new(), |peak| {
        let limit = mean(readings, Quantity::PowerLimit);
        let limit = limit.map_or(String::new(), |limit| format!(" of a limit of {limit:.0} W"));
        format!(", {peak:.0} W at most{limit}")
    });
    let energy = device.energy_j.map_or(String::new(), |joules| format!(", {}", energy(joules)));
    Some(format!("{average:.0} W on average{peak}{energy}"))
}

/// The SM clock, and why it was lower than it could be.
fn of_clocks(device: &DeviceSummary) -> Option<String> {
    let clock = device.readings.get(Quantity::SmClock)?;
    let highest =
        device.device.max_sm_clock_mhz.map_or(String::new(), |highest| format!(", {highest} is the highest"));
    let span = if clock.least < clock.most {
        format!(" ({:.0} to {:.0}{highest})", clock.least, clock.most)
    } else {
        highest.replace(", ", " (") + if highest.is_empty() { "" } else { ")" }
    };
    let reasons =
        told_reasons(device).into_iter().map(|(reason, share)| format!(", {reason} {share} of the time"));
    Some(format!("SM clock {:.0} MHz{span}{}", clock.mean, reasons.collect::<String>()))
}

/// Reasons for low clocks that held for long enough, with their share of the samples.
fn told_reasons(device: &DeviceSummary) -> Vec<(String, String)> {
    let told = device.reasons().into_iter().filter(|(_, share)| *share >= SHARE);
    let bits = device.readings.get(Quantity::OtherClockReasonBits);
    let label = |reason: Quantity| match (reason, bits) {
        (Quantity::OtherClockReason, Some(bits)) => format!("{} {:#x}", reason.label(), bits.most as u64),
        _ => reason.label().to_owned(),
    };
    told.map(|(reason, share)| (label(reason), units::share(share))).collect()
}

/// How busy the units of the program's devices were on average, by GPM; `None` where it does not
/// tell. Links that move little are left out.
pub fn busy_units(summary: &Summary) -> Option<String> {
    let of = |quantity| {
        let each: Vec<f64> =
            summary.devices.iter().filter_map(|device| mean(&device.readings, quantity)).collect();
        (!each.is_empty()).then(|| each.iter().sum::<f64>() / each.len() as f64)
    };
    let dram = of(Quantity::DramBandwidth).filter(|_| summary.joined)?;
    let mut parts = vec![format!("DRAM at {}ᵐ of its peak", units::share(dram))];
    parts.extend(of(Quantity::TensorActivity).map(|share| match share < IDLE_UNIT {
        true => "tensor cores idle".to_owned(),
        false => format!("tensor cores at {}ᵐ", units::share(share)),
    }));
    for (link, received, sent) in [
        ("PCIe", Quantity::PcieReceived, Quantity::PcieSent),
        ("NVLink", Quantity::NvlinkReceived, Quantity::NvlinkSent),
    ] {
        let rate = of(received).unwrap_or(0.0) + of(sent).unwrap_or(0.0);
        if rate >= LEAST_RATE {
            parts.push(format!("{link} at {}/sᵐ", units::bytes(rate as u64)));
        }
    }
    Some(format!("Units of the GPU, with all processes on it: {}.", parts.join(", ")))
}

/// Readings of GPM and of the links' counters.
fn of_counters(readings: &Readings) -> String {
    let shares = [
        ("SMs busy", Quantity::SmUtilization),
        ("SM occupancy", Quantity::SmOccupancy),
        ("tensor activity", Quantity::TensorActivity),
        ("DRAM bandwidth", Quantity::DramBandwidth),
    ];
    let share = |(name, quantity)| Some(format!("{name} {}", units::share(mean(readings, quantity)?)));
    let mut told: Vec<String> = shares.into_iter().filter_map(share).collect();
    if told.is_empty() {
        told.extend(
            mean(readings, Quantity::GpuUtilization)
                .map(|busy| format!("kernels ran {} of the time", units::share(busy))),
        );
    }
    for (link, received, sent) in [
        ("PCIe", Quantity::PcieReceived, Quantity::PcieSent),
        ("NVLink", Quantity::NvlinkReceived, Quantity::NvlinkSent),
    ] {
        if let (Some(received), Some(sent)) = (mean(readings, received), mean(readings, sent))
            && received + sent > 0.0
        {
            let [received, sent] = [received, sent].map(|rate| units::bytes(rate as u64));
            told.push(format!("{link} {received}/s received, {sent}/s sent"));
        }
    }
    if told.is_empty() { String::new() } else { format!(" On average: {}.", told.join("; ")) }
}

fn of_host(summary: &Summary, cpus: Option<u32>) -> Option<String> {
    let host = &summary.host;
    let of_all = cpus.filter(|&cpus| cpus > 0).map_or(String::new(), |cpus| format!(" of {cpus}"));
    let parts = [
        host.get(Quantity::ProgramCpus).map(|busy| {
            format!("the program kept {:.1}{of_all} CPUs busy ({:.1} at most)", busy.mean, busy.most)
        }),
        mean(host, Quantity::MachineCpus).map(|busy| format!("the whole machine {busy:.1}")),
        most(host, Quantity::ProgramMemory)
            .map(|bytes| format!("the program had {} of memory at most", units::bytes(bytes as u64))),
        most(host, Quantity::MachineMemory)
            .map(|bytes| format!("the machine used {}", units::bytes(bytes as u64))),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("Host, measuredᵐ: {}.", parts.join("; ")))
}

/// Power over the time: by the counter of energy, else the mean of what was sampled.
fn power(readings: &Readings) -> Option<f64> {
    mean(readings, Quantity::AveragePower).or_else(|| mean(readings, Quantity::Power))
}

fn of_limit(readings: &Readings) -> String {
    mean(readings, Quantity::PowerLimit).map_or(String::new(), |limit| format!(" of {limit:.0}"))
}

fn lost(readings: &Readings) -> bool {
    most(readings, Quantity::Lost).is_some_and(|lost| lost > 0.0)
}

fn mean(readings: &Readings, quantity: Quantity) -> Option<f64> {
    readings.get(quantity).map(|span| span.mean)
}

fn most(readings: &Readings, quantity: Quantity) -> Option<f64> {
    readings.get(quantity).map(|span| span.most)
}

/// `20.0 GiB of 80.0 GiB`.
fn memory(used: f64, all: Option<u64>) -> String {
    let used = units::bytes(used as u64);
    all.map_or(used.clone(), |all| format!("{used} of {}", units::bytes(all)))
}

/// `1.50 kJ`.
fn energy(joules: f64) -> String {
    match joules {
        x if x < 1e3 => format!("{joules:.0} J"),
        x if x < 1e6 => format!("{} kJ", units::ratio(joules / 1e3)),
        _ => format!("{} MJ", units::ratio(joules / 1e6)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apex_machine::{Device, DeviceRecord, Machine, Record};

    const SECOND: u64 = 1_000_000_000;

    /// A device in a run of four seconds, in the last of which its power is capped.
    fn machine(quantities: &[(Quantity, f64)]) -> Machine {
        let device = Device {
            uuid: "GPU-01010101-01".into(),
            name: "NVIDIA H200".into(),
            memory_bytes: Some(80 << 30),
            max_sm_clock_mhz: Some(1980),
            ..Device::default()
        };
        let record = |second: u64| {
            let capped = second == 3;
            let mut readings = Readings::default();
            readings.set(Quantity::Power, if capped { 700.0 } else { 400.0 });
            readings.set(Quantity::AveragePower, if capped { 690.0 } else { 410.0 });
            readings.set(Quantity::SmClock, if capped { 1500.0 } else { 1980.0 });
            readings.set(Quantity::PowerCapped, f64::from(u8::from(capped)));
            quantities.iter().for_each(|&(quantity, value)| readings.set(quantity, value));
            let mut host = Readings::default();
            host.set(Quantity::ProgramCpus, 1.0 + second as f64 / 2.0);
            host.set(Quantity::MachineCpus, 3.0);
            let devices = vec![DeviceRecord { device: 0, readings, ..DeviceRecord::default() }];
            Record { from_ns: second * SECOND, to_ns: (second + 1) * SECOND, cost_ns: 0, host, devices }
        };
        Machine { devices: vec![device], records: (0..4).map(record).collect(), problems: Vec::new() }
    }

    fn summary(quantities: &[(Quantity, f64)]) -> Summary {
        Summary::of(&machine(quantities), ["GPU-01010101-01"]).unwrap()
    }

    #[test]
    fn the_units_of_a_busy_device_are_told_where_gpm_tells_them() {
        let gpm = [
            (Quantity::DramBandwidth, 0.11),
            (Quantity::TensorActivity, 0.001),
            (Quantity::PcieReceived, 50e9),
            (Quantity::PcieSent, 1e6),
            (Quantity::NvlinkSent, 1e6),
        ];
        let said = busy_units(&summary(&gpm)).expect("a sentence");
        assert!(said.contains("DRAM at 11%ᵐ of its peak, tensor cores idle, PCIe at "), "{said}");
        assert!(!said.contains("NVLink"), "{said}");
        let tensor = busy_units(&summary(&[(Quantity::DramBandwidth, 0.5), (Quantity::TensorActivity, 0.4)]));
        assert!(tensor.expect("a sentence").contains("tensor cores at 40%ᵐ"));
        assert_eq!(busy_units(&summary(&[(Quantity::PcieSent, 5e10)])), None, "no GPM");
        assert_eq!(busy_units(&Summary { joined: false, ..summary(&gpm) }), None, "another program's device");
    }

    #[test]
    fn an_unknown_clock_reason_is_told_by_its_bits() {
        let bits = [(Quantity::OtherClockReason, 1.0), (Quantity::OtherClockReasonBits, 6144.0)];
        let told = line(&summary(&bits).devices[0]);
        assert!(told.contains("unknown clock reason 0x1800 100%"), "{told}");
        let told = line(&summary(&[(Quantity::BoardLimit, 1.0)]).devices[0]);
        assert!(told.contains("board limit 100%") && !told.contains("unknown"), "{told}");
    }

    #[test]
    fn a_device_and_the_host_have_a_sentence_each() {
        let all = [
            (Quantity::PowerLimit, 700.0),
            (Quantity::Temperature, 61.0),
            (Quantity::MemoryUsed, f64::from(20 << 10) * 1_048_576.0),
            (Quantity::SmUtilization, 0.9),
            (Quantity::SmOccupancy, 0.45),
            (Quantity::PcieReceived, 2_097_152.0),
            (Quantity::PcieSent, 1_048_576.0),
        ];
        assert_eq!(
            sentences(&summary(&all), Some(16)),
            [
                "NVIDIA H200 (GPU-01010101), measuredᵐ with all processes on it: 480 W on average, 700 W at most of a \
                 limit of 700 W, 1.92 kJ; SM clock 1860 MHz (1500 to 1980, 1980 is the highest), power capped 25% of the \
                 time; 61 °C at most; 20.0 GiB of 80.0 GiB of memory at most. On average: SMs busy 90%; SM occupancy 45%; \
                 PCIe 2.00 MiB/s received, 1.00 MiB/s sent.",
                "Host, measuredᵐ: the program kept 1.8 of 16 CPUs busy (2.5 at most); the whole machine 3.0.",
            ]
        );
        assert_eq!(
            line(&summary(&all).devices[0]),
            "480 of 700 W · SM 1860 MHz · power capped 25% · 61 °C · 20.0 GiB of 80.0 GiB"
        );
        let host = host_line(&summary(&all));
        assert_eq!(host.as_deref(), Some("host: program 1.8 CPUs · machine 3.0 CPUs"));
    }

    #[test]
    fn what_a_device_does_not_tell_is_left_out() {
        let told = sentences(&summary(&[]), None);
        assert!(!told[0].contains("limit") && !told[0].contains("On average"), "{told:?}");
        assert_eq!(line(&summary(&[]).devices[0]), "480 W · SM 1860 MHz · power capped 25%");
        assert!(line(&summary(&[(Quantity::Lost, 1.0)]).devices[0]).starts_with("LOST BY THE DRIVER"));
    }

    #[test]
    fn devices_that_are_not_known_to_be_the_programs_are_said_to_be_the_machines() {
        let summary = Summary::of(&machine(&[]), ["GPU-other"]).unwrap();
        assert!(sentences(&summary, None)[1].contains("unknown"));
    }
}
