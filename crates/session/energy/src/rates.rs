//! What energy costs, in money and in carbon dioxide.

use crate::Estimate;
use serde::Serialize;

/// Joules in a kilowatt-hour.
const KWH: f64 = 3.6e6;

/// The user's rates. APEX knows none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rates {
    /// Price of a kilowatt-hour, in the user's currency.
    pub price_per_kwh: Option<f64>,
    /// Grams of carbon dioxide of a kilowatt-hour.
    pub grams_per_kwh: Option<f64>,
}

/// Costs of energy, computed with the user's rates.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// In the currency of the price.
    pub money: Option<Estimate>,
    /// Grams of carbon dioxide.
    pub co2_grams: Option<Estimate>,
}

impl Rates {
    /// Whether there is a rate.
    pub fn any(&self) -> bool {
        self.price_per_kwh.is_some() || self.grams_per_kwh.is_some()
    }

    /// The cost of an energy in joules; `None` without a rate.
    pub fn cost(&self, joules: Estimate) -> Option<Cost> {
        let of = |rate: Option<f64>| rate.map(|rate| joules.scaled(rate / KWH));
        let cost = Cost { money: of(self.price_per_kwh), co2_grams: of(self.grams_per_kwh) };
        (cost.money.is_some() || cost.co2_grams.is_some()).then_some(cost)
    }
}
