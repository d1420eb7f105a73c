//! How busy the units of the GPU were while it was busiest, by the readings of the machine's state.
//!
//! The readings are those of the whole GPU, all processes on it included. A session with several
//! GPUs has none, because its kernels could not be assigned to one of them.

use apex_machine::{FILE, Machine, Quantity, Readings};
use std::path::Path;

/// Minimum share of the busiest reading for another one to be of the steady state: readings are
/// made each second, and the first ones are of the program's start.
const STEADY: f64 = 0.7;

/// Shares of the peaks of the GPU's units, by NVML's GPM, with all processes on it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UnitActivity {
    /// Multiprocessors that were busy.
    pub sms: f64,
    /// Active warps against the most that there can be.
    pub occupancy: f64,
    /// Time in which tensor cores worked.
    pub tensor: f64,
    /// Bandwidth of the device memory.
    pub dram: f64,
}

/// The means of the readings in which the session's only GPU was about as busy as ever; `None`
/// where it is not read by GPM, or where there are several.
pub(super) fn of_session(dir: &Path) -> Option<UnitActivity> {
    if !dir.join(FILE).exists() {
        return None;
    }
    let machine = Machine::read(dir);
    let [_] = &machine.devices[..] else { return None };
    let readings = machine.records.iter().filter_map(|record| record.device(0));
    of_readings(&readings.filter_map(activity).collect::<Vec<_>>())
}

fn activity(readings: &Readings) -> Option<UnitActivity> {
    let mean = |quantity| readings.get(quantity).map(|span| span.mean);
    Some(UnitActivity {
        sms: mean(Quantity::SmUtilization)?,
        occupancy: mean(Quantity::SmOccupancy)?,
        tensor: mean(Quantity::TensorActivity)?,
        dram: mean(Quantity::DramBandwidth)?,
    })
}

fn of_readings(all: &[UnitActivity]) -> Option<UnitActivity> {
    let most = all.iter().map(|one| one.sms).fold(0.0, f64::max);
    let steady: Vec<&UnitActivity> = all.iter().filter(|one| one.sms >= STEADY * most).collect();
    let mean = |of: fn(&UnitActivity) -> f64| {
        steady.iter().map(|one| of(one)).sum::<f64>() / steady.len().max(1) as f64
    };
    (most > 0.0).then(|| UnitActivity {
        sms: mean(|one| one.sms),
        occupancy: mean(|one| one.occupancy),
        tensor: mean(|one| one.tensor),
        dram: mean(|one| one.dram),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_of_the_start_do_not_count() {
        let of = |sms: f64| UnitActivity { sms, occupancy: sms / 2.0, tensor: 0.0, dram: sms / 4.0 };
        assert_eq!(of_readings(&[of(0.1), of(0.9), of(0.7)]), Some(of(0.8)));
        assert_eq!(of_readings(&[of(0.0)]), None);
        assert_eq!(of_readings(&[]), None);
    }

    #[test]
    fn a_session_without_readings_has_none() {
        assert_eq!(of_session(Path::new("/no/such/session")), None);
    }
}
