//! Figures with the mark of their provenance.

use apex_profile::units;
use apex_profile::{Figure, Provenance};

/// A share with its interval, if it is predicted, and the mark of its provenance.
pub fn share(figure: &Figure) -> String {
    let shown = match figure.interval() {
        Some((low, high)) => units::percent_between(figure.value, low, high),
        None => units::percent(figure.value),
    };
    format!("{shown}{}", mark(figure.provenance()))
}

/// The mark that the legend explains.
pub fn mark(provenance: Provenance) -> char {
    match provenance {
        Provenance::Measured => 'ᵐ',
        Provenance::Computed => 'ᶜ',
        Provenance::Predicted => 'ᵖ',
    }
}

/// A time with its interval, if it is predicted, and the mark of its provenance.
pub fn time(time: &Figure) -> String {
    format!("{}{}", unmarked_time(time), mark(time.provenance()))
}

/// As [`time`], in a column whose heading has the mark.
pub fn unmarked_time(time: &Figure) -> String {
    match time.interval() {
        Some((low, high)) => units::time_between(time.value, low, high),
        None => units::time(time.value),
    }
}

/// A share in whole percent with its interval, if it is predicted, in a column whose heading has
/// the mark.
pub fn unmarked_share(share: &Figure) -> String {
    match share.interval() {
        Some((low, high)) => units::share_between(share.value, low, high),
        None => units::share(share.value),
    }
}
