//! Rates of devices, fitted to measured durations, and loads, fitted to measured throughput.

use crate::Error;
use crate::fit::{Fit, rounded};
use apex_predict::throughput::{Load, Loads, Occupation};
use apex_predict::timing::{Demand, Rate, Rates};
use std::sync::atomic::AtomicBool;

/// The demand of a launch, the microseconds that it took, and the number of its device.
pub(crate) type Launch<'a> = (&'a Demand, f64, usize);

/// Fits rates to launches, in at most `steps` steps: rates of each device up to the last that has
/// launches. Errors are of logarithms to base 2.
///
/// # Errors
/// [`Error::Stopped`].
pub(crate) fn fit(launches: &[Launch<'_>], steps: usize, stop: &AtomicBool) -> Result<Vec<Rates>, Error> {
    let Some(last) = launches.iter().map(|(.., device)| *device).max() else { return Ok(Vec::new()) };
    let errors = |moved: &[f64]| -> Vec<f64> {
        let rates: Vec<Rates> = (0..=last).map(|device| rates(moved, device)).collect();
        let error = |(demand, us, device): &Launch<'_>| (demand.computed(&rates[*device]).us / us).log2();
        launches.iter().map(error).collect()
    };
    let moved = Fit { errors, small: 0.15, prior: 0.003 }.run(Rate::COUNT + last, steps, stop)?;
    Ok((0..=last).map(|device| Rates(rates(&moved, device).0.map(rounded))).collect())
}

/// Rates of a device. Moved are all rates of the first, then the others' time to start a kernel,
/// which no attribute of a device tells. All else is the same for all.
fn rates(moved: &[f64], device: usize) -> Rates {
    let start = if device == 0 { Rate::Start as usize } else { Rate::COUNT - 1 + device };
    let place = |rate: usize| if rate == Rate::Start as usize { start } else { rate };
    Rates(std::array::from_fn(|rate| Rates::PRIOR.0[rate] * moved[place(rate)].exp()))
}

/// The load of a launch on the multiprocessors, the microseconds that it takes, and its throughput.
pub(crate) type Busy<'a> = (&'a Occupation, f64, f64);

/// Fits loads to launches, in at most `steps` steps. Errors are in points.
///
/// # Errors
/// [`Error::Stopped`].
pub(crate) fn loads(launches: &[Busy<'_>], steps: usize, stop: &AtomicBool) -> Result<Loads, Error> {
    if launches.is_empty() {
        return Ok(Loads::PRIOR);
    }
    let loads = |moved: &[f64]| Loads(std::array::from_fn(|load| Loads::PRIOR.0[load] * moved[load].exp()));
    let errors = |moved: &[f64]| -> Vec<f64> {
        let loads = loads(moved);
        let error =
            |(occupation, us, share): &Busy<'_>| 100.0 * (occupation.utilisation(&loads, *us) - share);
        launches.iter().map(error).collect()
    };
    let moved = Fit { errors, small: 4.0, prior: 0.004 }.run(Load::COUNT, steps, stop)?;
    Ok(Loads(loads(&moved).0.map(rounded)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_device_has_its_time_to_start_and_all_else_in_common() {
        let mut moved = vec![0.0; Rate::COUNT + 2];
        moved[Rate::Start as usize] = 0.1;
        moved[Rate::COUNT + 1] = 0.3;
        let [first, second, third] = [0, 1, 2].map(|device| rates(&moved, device));
        let starts =
            [first, second, third].map(|rates| rates.get(Rate::Start) / Rates::PRIOR.get(Rate::Start));
        for (start, moved) in starts.into_iter().zip([0.1, 0.0, 0.3]) {
            assert!((start.ln() - moved).abs() < 1e-12, "{starts:?}");
        }
        assert_eq!(first.0[1..], third.0[1..]);
    }
}
