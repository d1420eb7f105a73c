//! The message, and the check of its bounds.

use crate::refusal::Refusal;
use crate::times::{MOST_US, Times};
use apex_conventions::cpu_device;
use apex_conventions::documents::AGGREGATE;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Most bytes of a message.
pub const MOST_BYTES: usize = 256 << 10;
/// Most bytes of a text.
pub const MOST_TEXT: usize = 512;
/// Most words of a command.
pub const MOST_COMMAND: usize = 64;
/// Most devices.
pub const MOST_DEVICES: usize = 64;
/// Most uses of a device by a process.
pub const MOST_USES: usize = 256;
/// Most kernels with an entry of their own.
pub const MOST_KERNELS: usize = 32;
/// Most findings.
pub const MOST_FINDINGS: usize = 16;
/// Most readings of the machine.
const MOST_READINGS: usize = 64;
/// Most of any count.
const MOST_COUNT: u64 = 1 << 53;
/// Most power of a device, milliwatts: ten kilowatts.
const MOST_MW: u64 = 10_000_000;
/// Most energy of a device, millijoules.
const MOST_MJ: u64 = MOST_US * (MOST_MW / 1_000_000);
/// Most ranks of a job.
const MOST_RANK: u32 = 1 << 24;

/// What a recording tells, from its start up to [`Self::as_of_ns`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Aggregate {
    /// The form of the message.
    pub schema: String,
    /// The APEX that wrote it.
    pub apex_version: String,
    /// 32 hexadecimal digits that no other recording has.
    pub recording: String,
    /// From 1; a later message of the same recording has a higher one and replaces this.
    pub sequence: u64,
    /// The job that the recording is part of.
    pub job: Job,
    /// The user's name.
    pub owner: String,
    /// The host's name.
    pub host: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The commit that the program's folder has checked out; empty if there is none.
    pub code_version: String,
    /// The session's folder on the host.
    pub session: String,
    /// The start, in nanoseconds since 1970 by the host's clock.
    pub started_ns: u64,
    /// The moment that the figures reach to, by the same clock.
    pub as_of_ns: u64,
    /// The end; `None` while the program runs.
    pub ended: Option<End>,
    /// Devices that were used.
    pub devices: Vec<Device>,
    /// GPUs that a scheduler gave to the job on this host; `None` where nobody says so.
    pub allocation: Option<Allocation>,
    /// Uses of the devices by processes.
    pub uses: Vec<Use>,
    /// Uses that had no room in [`Self::uses`], together.
    pub other_uses: Times,
    /// Kernels.
    pub kernels: Kernels,
    /// Findings, in the order of the report.
    pub findings: Vec<Finding>,
    /// The step of the steady state; `None` where nothing repeats.
    pub step: Option<Step>,
    /// Means of the machine's readings, by name.
    pub machine: Vec<Reading>,
    /// Highest allocated memory of one process, bytes.
    pub peak_memory_bytes: u64,
    /// Records that were lost.
    pub lost_records: u64,
}

/// The job that a recording is part of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Job {
    /// Its name; recordings of one tenant with the same name are one job.
    pub id: String,
    /// The program that started the ranks: `slurm`, `torchrun`; empty if there is none.
    pub launcher: String,
    /// The rank of this recording; `None` if it holds all ranks that it knows.
    pub rank: Option<u32>,
    /// The number of ranks of the job; 0 if it is not known.
    pub ranks: u32,
}

/// The end of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct End {
    /// In nanoseconds since 1970 by the host's clock.
    pub at_ns: u64,
    /// The exit status; `None` if a signal ended it.
    pub status: Option<i32>,
    /// The signal.
    pub signal: Option<i32>,
}

impl End {
    /// Whether the program succeeded.
    pub fn is_success(&self) -> bool {
        self.status == Some(0)
    }
}

/// A device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Device {
    /// Name, such as `NVIDIA H200`.
    pub name: String,
    /// UUID, as `GPU-…`.
    pub uuid: String,
    /// Its kind.
    pub kind: Kind,
    /// Energy that it took; `None` where no counter tells, or too little time passed to say.
    pub energy: Option<Metered>,
}

/// Energy that a device took, with everything that ran on it: measured by its counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Metered {
    /// Millijoules.
    pub mj: u64,
    /// Time that they are of, microseconds.
    pub us: u64,
    /// Power while nothing ran on it, milliwatts: measured; `None` where it was never seen idle.
    pub idle_mw: Option<u64>,
}

/// Energy of a recording's uses of GPUs, or a sum of such energies. Like the times, it has the
/// energy of a device once for each use where processes share it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Energy {
    /// Millijoules, of the time in [`Self::metered_us`].
    pub mj: u64,
    /// The device time that they are of, microseconds.
    pub metered_us: u64,
    /// The part of them that devices took at least while nothing ran, millijoules: idle power by
    /// idle time.
    pub idle_mj: u64,
}

impl Energy {
    /// Adds another energy. Saturates.
    pub fn add(&mut self, other: &Self) {
        self.mj = self.mj.saturating_add(other.mj);
        self.metered_us = self.metered_us.saturating_add(other.metered_us);
        self.idle_mj = self.idle_mj.saturating_add(other.idle_mj);
    }
}

impl Metered {
    fn is_possible(&self) -> bool {
        let most_mj = self.us.saturating_mul(MOST_MW / 1_000_000);
        self.us <= MOST_US && self.mj <= most_mj && self.idle_mw.is_none_or(|mw| mw <= MOST_MW)
    }

    /// The energy of a device that was active for so long, and whose uses held it for so long
    /// altogether, within a recording of `took_us`.
    fn of_uses(&self, active_us: u64, held_us: u64, took_us: u64) -> Energy {
        let nanojoules =
            u128::from(self.idle_mw.unwrap_or(0)) * u128::from(self.us.saturating_sub(active_us));
        let idle_mj = u64::try_from(nanojoules / 1_000_000).unwrap_or(u64::MAX).min(self.mj);
        let uses = |of: u64| {
            let times = u128::from(of) * u128::from(held_us.max(took_us)) / u128::from(took_us.max(1));
            u64::try_from(times).unwrap_or(MOST_MJ).min(MOST_MJ)
        };
        Energy { mj: uses(self.mj), metered_us: uses(self.us), idle_mj: uses(idle_mj) }
    }
}

/// Description of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A GPU.
    #[default]
    Gpu,
    /// The CPU device of APEX: nobody pays for it by the GPU-hour.
    Cpu,
}

impl Device {
    /// Whether it is the CPU device, also where a message names no kind.
    pub fn is_cpu(&self) -> bool {
        self.kind == Kind::Cpu || cpu_device::is(&self.name)
    }
}

/// GPUs that a scheduler gave.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Allocation {
    /// The variable that says so, such as `SLURM_JOB_GPUS`.
    pub source: String,
    /// Each one's index or UUID.
    pub devices: Vec<String>,
}

/// A device that a recording held, from its start on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The device: its UUID, otherwise host and index.
    pub device: String,
    /// Start, microseconds since 1970.
    pub from_us: u64,
    /// End: no more than the device's times say, and no more than the recording took.
    pub until_us: u64,
    /// Excess of the device's times over that: processes of the recording shared it.
    pub shared_us: u64,
}

/// The use of a device by a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Use {
    /// The process's rank in the job.
    pub rank: Option<u32>,
    /// The process.
    pub pid: u32,
    /// Index into [`Aggregate::devices`]; `None` if it is not known.
    pub device: Option<u32>,
    /// Launch calls and graph launches that ran.
    pub launches: u64,
    /// Accounts of its time.
    pub times: Times,
}

/// The kernels of a recording: those that took most time, and the sum of the others. Counts and
/// times of several recordings add up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Kernels {
    /// The costliest functions, the costliest first.
    pub listed: Vec<Kernel>,
    /// All others.
    pub others: Kernel,
    /// Whether GPU times are known.
    pub timed: bool,
}

/// A function, in all configurations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Kernel {
    /// Short name.
    pub name: String,
    /// Launches that ran.
    pub launches: u64,
    /// GPU time, measured on a sample of the launches.
    pub gpu_us: u64,
}

/// A finding.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Finding {
    /// The rule's identifier.
    pub rule: String,
    /// The fault.
    pub title: String,
    /// The change to make.
    pub remedy: String,
    /// Importance: `info`, `low`, `medium`, `high`.
    pub severity: String,
    /// Share of the job's time that the change saves, with the ends of its interval: predicted.
    pub saving: Option<[f64; 3]>,
}

/// The step of a program that repeats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Step {
    /// Mean duration, nanoseconds: predicted by the model of the device.
    pub ns: f64,
    /// The ends of its 90% interval.
    pub low_ns: f64,
    /// See [`Self::low_ns`].
    pub high_ns: f64,
    /// Number of steps.
    pub count: u64,
}

impl Step {
    fn is_possible(&self) -> bool {
        let within = |ns: f64| (0.0..=MOST_COUNT as f64).contains(&ns);
        self.ns > 0.0 && [self.ns, self.low_ns, self.high_ns].into_iter().all(within)
    }
}

/// A reading of the machine, averaged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reading {
    /// The device's index in the machine; `None` for the host.
    pub device: Option<u32>,
    /// The device's UUID; empty for the host.
    pub uuid: String,
    /// The quantity's name.
    pub name: String,
    /// Mean over the recording, in the unit that the name states: measured.
    pub mean: f64,
    /// Highest value.
    pub most: f64,
}

/// The text, cut at a character if it has more than [`MOST_TEXT`] bytes.
pub fn shortened(text: &str) -> String {
    const END: &str = "…";
    if text.len() <= MOST_TEXT {
        return text.to_owned();
    }
    let mut end = MOST_TEXT - END.len();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{END}", &text[..end])
}

impl Aggregate {
    /// The message as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain data")
    }

    /// Reads a message and checks every bound.
    ///
    /// # Errors
    /// Says why it is refused.
    pub fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        /// Members that every version begins with.
        #[derive(Deserialize)]
        struct Head {
            schema: String,
        }
        if bytes.len() > MOST_BYTES {
            return Err(Refusal::Bounds("it has more than 256 KiB"));
        }
        let malformed = |error: serde_json::Error| {
            Refusal::Malformed(format!("line {}, column {}", error.line(), error.column()))
        };
        let head: Head = serde_json::from_slice(bytes).map_err(malformed)?;
        if head.schema != AGGREGATE.to_string() {
            let found: String = head.schema.chars().filter(char::is_ascii_graphic).take(40).collect();
            return Err(Refusal::Version { found, reads: AGGREGATE.to_string() });
        }
        let read: Self = serde_json::from_slice(bytes).map_err(malformed)?;
        read.check().map_err(Refusal::Bounds)?;
        Ok(read)
    }

    /// The times of all uses of GPUs.
    pub fn times(&self) -> Times {
        self.times_where(false)
    }

    /// The times of all uses of the CPU device.
    pub fn cpu_device_times(&self) -> Times {
        self.times_where(true)
    }

    fn times_where(&self, is_cpu: bool) -> Times {
        let mut sum = if self.is_on_cpu() == is_cpu { self.other_uses } else { Times::default() };
        let uses = self.uses.iter().filter(|of| self.is_use_of_cpu(of) == is_cpu);
        uses.for_each(|of| sum.add(&of.times));
        sum
    }

    /// The energy of all uses of GPUs, as far as it is known.
    pub fn energy(&self) -> Energy {
        let took_us = self.as_of_ns.saturating_sub(self.started_ns) / 1000;
        let mut sum = Energy::default();
        for (at, device) in self.devices.iter().enumerate().filter(|(_, device)| !device.is_cpu()) {
            let Some(metered) = device.energy else { continue };
            let uses = self.uses.iter().filter(|of| of.device == Some(at as u32));
            let (active_us, held_us) = uses.fold((0, 0), |(active, held), of| {
                (of.times.active_us().saturating_add(active), of.times.held_us().saturating_add(held))
            });
            sum.add(&metered.of_uses(active_us, held_us, took_us));
        }
        sum
    }

    /// Whether it used the CPU device alone.
    pub fn is_on_cpu(&self) -> bool {
        !self.devices.is_empty() && self.devices.iter().all(Device::is_cpu)
    }

    fn is_use_of_cpu(&self, of: &Use) -> bool {
        let device = of.device.and_then(|at| self.devices.get(at as usize));
        device.map_or_else(|| self.is_on_cpu(), Device::is_cpu)
    }

    /// The GPUs that it held. Uses whose device is not known are in none.
    pub fn holds(&self) -> Vec<Hold> {
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        for used in self.uses.iter().filter(|of| !self.is_use_of_cpu(of)) {
            let Some((at, device)) = used.device.and_then(|at| Some((at, self.devices.get(at as usize)?)))
            else {
                continue;
            };
            let own = || format!("{} {at}", self.host);
            let device = if device.uuid.is_empty() { own() } else { device.uuid.clone() };
            let sum = sums.entry(device).or_default();
            *sum = sum.saturating_add(used.times.held_us());
        }
        let (from_us, took_us) =
            (self.started_ns / 1000, self.as_of_ns.saturating_sub(self.started_ns) / 1000);
        let of = |(device, sum): (String, u64)| Hold {
            device,
            from_us,
            until_us: from_us + sum.min(took_us),
            shared_us: sum.saturating_sub(took_us),
        };
        sums.into_iter().map(of).collect()
    }

    /// The ranks that the recording holds; at least one.
    pub fn ranks_held(&self) -> u64 {
        let ranks: std::collections::BTreeSet<_> =
            self.uses.iter().map(|of| (of.rank, of.rank.map_or(of.pid, |_| 0))).collect();
        (ranks.len() as u64).max(1)
    }

    /// The first bound that it exceeds.
    fn check(&self) -> Result<(), &'static str> {
        let within = |is_within: bool, what| if is_within { Ok(()) } else { Err(what) };
        let is_id = |id: &str| id.len() == 32 && id.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
        within(is_id(&self.recording), "recording is not 32 hexadecimal digits")?;
        within((1..=MOST_COUNT).contains(&self.sequence), "sequence is not between 1 and 2^53")?;
        within(!self.job.id.is_empty(), "job.id is empty")?;
        within(self.command.len() <= MOST_COMMAND, "command has more than 64 words")?;
        within(self.devices.len() <= MOST_DEVICES, "devices are more than 64")?;
        let allocated = self.allocation.as_ref().map_or(0, |of| of.devices.len());
        within(allocated <= MOST_DEVICES, "allocation has more than 64 devices")?;
        within(self.uses.len() <= MOST_USES, "uses are more than 256")?;
        within(self.kernels.listed.len() <= MOST_KERNELS, "kernels.listed are more than 32")?;
        within(self.findings.len() <= MOST_FINDINGS, "findings are more than 16")?;
        within(self.machine.len() <= MOST_READINGS, "machine has more than 64 readings")?;
        within(self.texts().all(|text| text.len() <= MOST_TEXT), "a text has more than 512 bytes")?;
        within(self.counts().all(|count| count <= MOST_COUNT), "a count is above 2^53")?;
        within(self.moments().all(|moment| moment <= i64::MAX as u64), "a moment is after the year 2262")?;
        within(self.all_us().all(|us| us <= MOST_US), "a time is above 2^47 µs")?;
        within(self.all_times().held_us() <= MOST_US, "the times of all uses are above 2^47 µs")?;
        within(self.all_ranks().all(|rank| rank < MOST_RANK), "a rank is above 2^24")?;
        let known = |device: u32| (device as usize) < self.devices.len();
        let devices = self.uses.iter().filter_map(|of| of.device);
        within(devices.into_iter().all(known), "uses name a device that is not listed")?;
        within(self.step.as_ref().is_none_or(Step::is_possible), "step is not between 0 and 2^53 ns")?;
        let mut metered = self.devices.iter().filter_map(|device| device.energy);
        within(metered.all(|of| of.is_possible()), "the energy of a device is more than 10 kW take")?;
        within(self.numbers().all(f64::is_finite), "a number is not finite")
    }

    fn all_times(&self) -> Times {
        let mut sum = self.times();
        sum.add(&self.cpu_device_times());
        sum
    }

    fn texts(&self) -> impl Iterator<Item = &str> {
        let Self { schema, apex_version, job, owner, host, code_version, session, .. } = self;
        let single = [schema, apex_version, &job.id, &job.launcher, owner, host, code_version, session];
        let devices = self.devices.iter().flat_map(|device| [&device.name, &device.uuid]);
        let kernels = self.kernels.listed.iter().chain([&self.kernels.others]).map(|kernel| &kernel.name);
        let findings = self
            .findings
            .iter()
            .flat_map(|found| [&found.rule, &found.title, &found.remedy, &found.severity]);
        let readings = self.machine.iter().flat_map(|reading| [&reading.name, &reading.uuid]);
        let allocated = self.allocation.iter().flat_map(|of| of.devices.iter().chain([&of.source]));
        let all = single.into_iter().chain(&self.command).chain(devices).chain(allocated).chain(kernels);
        all.chain(findings).chain(readings).map(String::as_str)
    }

    fn counts(&self) -> impl Iterator<Item = u64> {
        let kernels = self.kernels.listed.iter().chain([&self.kernels.others]).map(|kernel| kernel.launches);
        let steps = self.step.iter().map(|step| step.count);
        let uses = self.uses.iter().map(|of| of.launches);
        kernels.chain(steps).chain(uses).chain([self.peak_memory_bytes, self.lost_records])
    }

    fn moments(&self) -> impl Iterator<Item = u64> {
        [self.started_ns, self.as_of_ns].into_iter().chain(self.ended.map(|end| end.at_ns))
    }

    fn all_us(&self) -> impl Iterator<Item = u64> {
        let uses = self.uses.iter().map(|of| &of.times).chain([&self.other_uses]);
        let kernels = self.kernels.listed.iter().chain([&self.kernels.others]).map(|kernel| kernel.gpu_us);
        uses.flat_map(Times::parts).chain(kernels)
    }

    fn all_ranks(&self) -> impl Iterator<Item = u32> {
        let uses = self.uses.iter().filter_map(|of| of.rank);
        uses.chain(self.job.rank).chain([self.job.ranks])
    }

    fn numbers(&self) -> impl Iterator<Item = f64> {
        let savings = self.findings.iter().filter_map(|found| found.saving).flatten();
        let steps = self.step.iter().flat_map(|step| [step.ns, step.low_ns, step.high_ns]);
        let readings = self.machine.iter().flat_map(|reading| [reading.mean, reading.most]);
        savings.chain(steps).chain(readings)
    }
}
