//! A cache of forecasts by their features.
//!
//! A program launches few configurations many times. A [`Cache`] belongs to one thread and to one
//! forecaster at a time; if another forecaster is used (the model was replaced), the cache is
//! cleared. It compares all features, so it returns exactly what the forecaster would return. A
//! case may be in any of the [`WAYS`] entries of one set; a new case replaces the oldest one.

use crate::Error;
use crate::forecast::{Forecast, ForecastScratch, Forecaster};
use std::sync::Arc;

/// Entries of a set: as many hashes as a cache line takes together with the set's turn.
pub const WAYS: usize = 4;

/// The hashes of a set's entries, which are never 0, or 0 where an entry is empty; and the entry
/// that is replaced next.
#[derive(Clone, Copy, Debug, Default)]
struct Set {
    hashes: [u64; WAYS],
    turn: usize,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Cache {
    owner: Option<Arc<Forecaster>>,
    /// A power of two of them.
    sets: Vec<Set>,
    /// For each entry: the features; the forecasts.
    features: Vec<f32>,
    forecasts: Vec<Forecast>,
    scratch: ForecastScratch,
}

impl Cache {
    /// Room for `entries` cases, or for the next power of two, at least [`WAYS`]. Most memory is
    /// taken when it is first used.
    pub fn new(entries: usize) -> Cache {
        Cache {
            owner: None,
            sets: vec![Set::default(); entries.div_ceil(WAYS).next_power_of_two()],
            features: Vec::new(),
            forecasts: Vec::new(),
            scratch: ForecastScratch::default(),
        }
    }

    /// Returns the forecast of `forecaster` for `features`. Allocates when it is asked with this
    /// forecaster for the first time.
    ///
    /// # Errors
    /// As [`Forecaster::forecast`].
    pub fn forecast(&mut self, forecaster: &Arc<Forecaster>, features: &[f32]) -> Result<&[Forecast], Error> {
        if !self.owner.as_ref().is_some_and(|owner| Arc::ptr_eq(owner, forecaster)) {
            self.adopt(forecaster);
        }
        let (width, targets) = (forecaster.inputs(), forecaster.targets());
        Error::check_length("the features", width, features.len())?;
        let hash = hash(features) | 1;
        // The lowest bit is always set, the others are equally good.
        let place = (hash >> 1) as usize & (self.sets.len() - 1);
        let set = &mut self.sets[place];
        let way = set.hashes.iter().position(|&other| other == hash);
        let known = |way: usize| (place * WAYS + way) * width..(place * WAYS + way + 1) * width;
        let found = way.filter(|&way| same(&self.features[known(way)], features));
        let way = found.unwrap_or(way.unwrap_or(set.turn));
        let forecasts = &mut self.forecasts[(place * WAYS + way) * targets..][..targets];
        if found.is_none() {
            set.hashes[way] = 0;
            forecaster.forecast(features, &mut self.scratch, forecasts)?;
            self.features[known(way)].copy_from_slice(features);
            set.hashes[way] = hash;
            set.turn = (way + 1) % WAYS;
        }
        Ok(forecasts)
    }

    /// Forgets all and belongs to `forecaster`. Holding it alive keeps its address from being
    /// another one's.
    fn adopt(&mut self, forecaster: &Arc<Forecaster>) {
        self.owner = Some(Arc::clone(forecaster));
        self.sets.fill(Set::default());
        let entries = self.sets.len() * WAYS;
        self.features.resize(entries * forecaster.inputs(), 0.0);
        self.forecasts.resize(entries * forecaster.targets(), Forecast::default());
    }
}

/// Whether all bits are the same. Looking at all of them is faster than stopping at the first
/// difference.
fn same(one: &[f32], other: &[f32]) -> bool {
    one.iter().zip(other).fold(0, |difference, (a, b)| difference | (a.to_bits() ^ b.to_bits())) == 0
}

/// A hash of all bits: the sum of the products of neighbours, each with a key of its place added
/// (NH: Black et al., 1999), which no product has to wait for; then the sum's bits are mixed.
fn hash(features: &[f32]) -> u64 {
    // Odd, with no pattern: the constants of SplitMix64.
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    const MIX: u64 = 0xbf58_476d_1ce4_e5b9;
    let (mut sum, mut key) = (0u64, 0u64);
    let mut add = |one: f32, other: f32| {
        key = key.wrapping_add(STEP);
        let one = one.to_bits().wrapping_add(key as u32);
        let other = other.to_bits().wrapping_add((key >> 32) as u32);
        sum = sum.wrapping_add(u64::from(one) * u64::from(other));
    };
    let pairs = features.chunks_exact(2);
    let last = pairs.remainder();
    pairs.for_each(|pair| add(pair[0], pair[1]));
    last.iter().for_each(|&one| add(one, 0.0));
    let product = u128::from(sum ^ STEP) * u128::from(MIX);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Precision;
    use crate::forecast::{FeatureSet, Model};
    use crate::network::{Activation, Network, Target};
    use apex_random::Random;

    fn forecaster(inputs: usize, seed: u64) -> Arc<Forecaster> {
        let targets = vec![Target::fraction("a"), Target::real("b")];
        let network = Network::new(inputs, &[9], Activation::Silu, targets, seed).unwrap();
        let seen = crate::Matrix::zeros(1, inputs);
        let features = FeatureSet::seen("test", 1, &vec![""; inputs], &seen).unwrap();
        let model = Model::new(features, network, vec![None; 2], vec![]).unwrap();
        Arc::new(model.ready(Precision::F32))
    }

    #[test]
    fn what_it_gives_is_what_the_forecaster_gives() {
        let mut random = Random::new(1);
        // Forecasters of different sizes by turns, more cases than there is room for, each asked
        // more than once.
        let forecasters = [forecaster(5, 1), forecaster(8, 2), forecaster(61, 3)];
        let mut cache = Cache::new(50);
        for round in 0..30 {
            let forecaster = &forecasters[round / 10];
            for _ in 0..300 {
                let kind = random.index(100) as f32;
                let features: Vec<f32> =
                    (0..forecaster.inputs()).map(|index| (kind * index as f32).sin()).collect();
                let mut fresh = [Forecast::default(); 2];
                forecaster.forecast(&features, &mut ForecastScratch::default(), &mut fresh).unwrap();
                assert_eq!(cache.forecast(forecaster, &features).unwrap(), fresh);
            }
        }
    }

    #[test]
    fn errors_are_not_remembered() {
        let forecaster = forecaster(3, 1);
        let mut cache = Cache::new(0);
        let good = cache.forecast(&forecaster, &[1.0, 2.0, 3.0]).unwrap().to_vec();
        for _ in 0..2 {
            assert!(matches!(
                cache.forecast(&forecaster, &[1.0, f32::NAN, 3.0]),
                Err(Error::NotFinite { .. })
            ));
            assert!(matches!(cache.forecast(&forecaster, &[1.0]), Err(Error::Length { .. })));
        }
        assert_eq!(cache.forecast(&forecaster, &[1.0, 2.0, 3.0]).unwrap(), good);
    }

    /// Launch features are round numbers and their logarithms: their hashes must still spread.
    #[test]
    fn hashes_of_round_numbers_spread() {
        let mut places = vec![0u32; 1 << 12];
        for case in 0..1u32 << 12 {
            let power = |shift: u32| (1u32 << (case >> shift & 15)) as f32;
            let entry = (hash(&[power(0), power(4), power(8), 1.0, 1.0]) >> 1) as usize & 0xfff;
            places[entry] += 1;
        }
        // Random places: a part 1/e stays empty, none is taken often.
        let empty = places.iter().filter(|&&count| count == 0).count() as f64 / 4096.0;
        assert!((empty - 0.368).abs() < 0.04, "{empty}");
        assert!(places.iter().all(|&count| count < 10));
    }
}
