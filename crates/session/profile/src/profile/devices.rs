//! Names of devices, and of the processes that use them, in views.
//!
//! [`Profile::devices`] is in the order of first use, so that a place in it tells a user nothing.
//! The name is what the program itself uses: the CUDA ordinal, `GPU 0`. Where processes see
//! different devices under the same ordinal (`CUDA_VISIBLE_DEVICES`, several hosts), it is the rank
//! that uses the device, and otherwise the UUID, as `nvidia-smi -L` prints it.

use apex_ordered::Order;
use apex_trace::own_pid;

use super::{Activity, Device, Profile};

/// Digits of a UUID that tell the devices of a job apart.
const DIGITS: usize = 8;

/// Names of all devices of a profile, of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceNames {
    /// Heading of a column of [`Self::cells`]: `GPU`, or `rank`.
    pub heading: &'static str,
    /// The text of the column for each device: `0`.
    pub cells: Vec<String>,
}

impl DeviceNames {
    /// The device as a sentence names it: `GPU 0`, `the GPU of rank 0`; empty if it is unknown.
    pub fn in_words(&self, device: Option<usize>) -> String {
        match device.and_then(|device| self.cells.get(device)) {
            None => String::new(),
            Some(cell) if self.heading == RANK => format!("the GPU of rank {cell}"),
            Some(cell) => format!("GPU {cell}"),
        }
    }

    /// Returns the text for a column; `?` if the device is unknown.
    pub fn cell(&self, device: Option<usize>) -> String {
        device.and_then(|device| self.cells.get(device)).map_or_else(|| "?".to_owned(), Clone::clone)
    }
}

const RANK: &str = "rank";

impl Profile {
    /// Returns the names of its devices.
    pub fn device_names(&self) -> DeviceNames {
        let named = |heading, cells: Option<Vec<String>>| {
            let cells = cells.filter(|cells| are_distinct(cells))?;
            Some(DeviceNames { heading, cells })
        };
        let ordinals = self.devices.iter().map(|device| match device.ordinals[..] {
            [ordinal] => Some(ordinal.to_string()),
            _ => None,
        });
        let ranks = (0..self.devices.len()).map(|device| {
            let rank = self.processes.get(self.only_user(device)?.process)?.rank?;
            Some(rank.to_string())
        });
        let uuid = |device: &Device| device.uuid.trim_start_matches("GPU-").chars().take(DIGITS).collect();
        named("GPU", ordinals.collect())
            .or_else(|| named(RANK, ranks.collect()))
            .or_else(|| named("GPU", Some(self.devices.iter().map(uuid).collect())))
            .unwrap_or_else(|| DeviceNames {
                heading: "GPU",
                cells: (1..=self.devices.len()).map(|place| format!("#{place}")).collect(),
            })
    }

    /// The activity of the only process that uses a device; `None` if there are more.
    pub fn only_user(&self, device: usize) -> Option<&Activity> {
        let mut users = self.activities.iter().filter(|activity| activity.device == Some(device));
        users.next().filter(|_| users.next().is_none())
    }

    /// A process as a sentence names it: `rank 0 (process 650)`; `None` if there is none with this
    /// index.
    pub fn process_in_words(&self, process: usize) -> Option<String> {
        let process = self.processes.get(process)?;
        let name = format!("process {}", own_pid(process.pid));
        Some(process.rank.map_or_else(|| name.clone(), |rank| format!("rank {rank} ({name})")))
    }

    /// The process and device of an activity: `rank 0 (process 650, GPU 0)`.
    pub fn user_in_words(&self, activity: &Activity) -> String {
        let gpu = match activity.ordinal {
            Some(ordinal) => format!("GPU {ordinal}"),
            None => self.device_names().in_words(activity.device),
        };
        let process = self.processes.get(activity.process);
        match process.map(|process| (process.pid, process.rank)) {
            None => gpu,
            Some((pid, rank)) => {
                let process = format!("process {}", own_pid(pid));
                let who = rank.map_or_else(|| process.clone(), |rank| format!("rank {rank}"));
                let details = [rank.map(|_| process), Some(gpu).filter(|gpu| !gpu.is_empty())];
                let details: Vec<String> = details.into_iter().flatten().collect();
                if details.is_empty() { who } else { format!("{who} ({})", details.join(", ")) }
            }
        }
    }
}

fn are_distinct(cells: &[String]) -> bool {
    let mut sorted: Vec<&String> = cells.iter().collect();
    sorted.order_by(Ord::cmp);
    sorted.windows(2).all(|pair| pair[0] != pair[1])
}

#[cfg(test)]
mod tests {
    use super::super::Process;
    use super::*;

    /// Devices with these ordinals, each used by one process: the processes are in the opposite
    /// order.
    fn job<const N: usize>(ordinals: [u32; N], ranked: bool) -> Profile {
        let device = |(at, ordinal): (usize, u32)| Device {
            ordinals: vec![ordinal],
            uuid: format!("GPU-{at:08x}-0000-0000-0000-000000000000"),
            ..Device::default()
        };
        let process =
            |at: usize| Process { pid: 650 + at as u32, rank: ranked.then_some(at), ..Process::default() };
        let activity = |(at, ordinal): (usize, u32)| Activity {
            process: N - 1 - at,
            device: Some(at),
            ordinal: Some(ordinal),
            ..Activity::default()
        };
        Profile {
            devices: ordinals.into_iter().enumerate().map(device).collect(),
            processes: (0..N).map(process).collect(),
            activities: ordinals.into_iter().enumerate().map(activity).collect(),
            ..Profile::default()
        }
    }

    #[test]
    fn a_device_has_the_name_that_the_program_uses() {
        let names = job([1, 0], true).device_names();
        assert_eq!((names.heading, &names.cells[..]), ("GPU", &["1".to_owned(), "0".to_owned()][..]));
        assert_eq!((names.in_words(Some(0)), names.in_words(None)), ("GPU 1".into(), String::new()));
        assert_eq!((names.cell(Some(1)), names.cell(None)), ("0".into(), "?".into()));
    }

    #[test]
    fn where_every_rank_sees_one_device_the_rank_tells_them_apart() {
        let names = job([0, 0], true).device_names();
        assert_eq!((names.heading, &names.cells[..]), ("rank", &["1".to_owned(), "0".to_owned()][..]));
        assert_eq!(names.in_words(Some(1)), "the GPU of rank 0");
        let names = job([0, 0], false).device_names();
        assert_eq!(names.cells, ["00000000", "00000001"], "without ranks, the UUID");
        assert_eq!(names.in_words(Some(1)), "GPU 00000001");
        let mut shared = job([0, 0], true);
        shared.activities[1].device = Some(0);
        shared.devices.iter_mut().for_each(|device| device.uuid.clear());
        assert_eq!(shared.device_names().cells, ["#1", "#2"], "nothing tells them apart");
    }

    #[test]
    fn a_device_with_two_ordinals_is_not_named_by_either() {
        let mut job = job([0, 1], true);
        job.devices[0].ordinals.push(1);
        assert_eq!(job.device_names().heading, "rank");
    }

    #[test]
    fn a_user_is_named_by_rank_process_and_device() {
        let mut job = job([1, 0], true);
        let said = |job: &Profile| job.user_in_words(&job.activities[1]);
        assert_eq!(said(&job), "rank 0 (process 650, GPU 0)");
        job.processes[0].rank = None;
        assert_eq!(said(&job), "process 650 (GPU 0)");
        job.activities[1].ordinal = None;
        assert_eq!(said(&job), "process 650 (GPU 0)", "the device's name");
        job.activities[1].device = None;
        assert_eq!(said(&job), "process 650");
        job.processes.clear();
        assert_eq!(said(&job), "");
    }
}
