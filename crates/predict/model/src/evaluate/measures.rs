//! Measures of agreement between predictions and measurements.
//!
//! All take predictions and measurements case by case, in the same order; a case whose measurement
//! is not a number is left out. `None` means that no case is left, or that the measure is not
//! defined for what is.

/// Pearson's coefficient of correlation: covariance over the product of the deviations. `None`
/// where either side does not vary.
///
/// # Panics
/// When the lengths differ.
pub fn pearson(predicted: &[f32], measured: &[f32]) -> Option<f64> {
    let pairs: Vec<(f64, f64)> = known(predicted, measured).collect();
    let count = pairs.len() as f64;
    let mean = |side: fn(&(f64, f64)) -> f64| pairs.iter().map(side).sum::<f64>() / count;
    let (mean_x, mean_y) = (mean(|pair| pair.0), mean(|pair| pair.1));
    let (mut xx, mut yy, mut xy) = (0.0, 0.0, 0.0);
    for (x, y) in pairs {
        let (x, y) = (x - mean_x, y - mean_y);
        xx += x * x;
        yy += y * y;
        xy += x * y;
    }
    (xx > 0.0 && yy > 0.0).then(|| (xy / (xx * yy).sqrt()).clamp(-1.0, 1.0))
}

/// The value below which the part `level` of `values` lies, between neighbours by a straight line.
pub fn quantile(values: &[f64], level: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = level.clamp(0.0, 1.0) * (sorted.len().checked_sub(1)? as f64);
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    Some(low + (high - low) * at.fract())
}

/// The part of the cases that lie in their intervals, ends included.
///
/// # Panics
/// When the lengths differ.
pub fn coverage(intervals: &[(f32, f32)], measured: &[f32]) -> Option<f64> {
    assert_eq!(intervals.len(), measured.len(), "one interval for each measurement");
    let known = intervals.iter().zip(measured).filter(|(_, value)| !value.is_nan());
    let inside = known.clone().filter(|((low, high), value)| (*low..=*high).contains(*value)).count();
    let count = known.count();
    (count > 0).then(|| inside as f64 / count as f64)
}

fn known(predicted: &[f32], measured: &[f32]) -> impl Iterator<Item = (f64, f64)> {
    assert_eq!(predicted.len(), measured.len(), "one prediction for each measurement");
    let pairs = predicted.iter().zip(measured).filter(|(_, measured)| !measured.is_nan());
    pairs.map(|(&predicted, &measured)| (f64::from(predicted), f64::from(measured)))
}
