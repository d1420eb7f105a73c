//! Phases of a program, by what it launches.
//!
//! A period belongs to the phase whose kernels it launches in the same proportions. A period that
//! matches no known phase begins a new one.

use std::collections::BTreeMap;

/// Minimum cosine between the launch counts of a period and of a phase for these to match.
const ALIKE: f64 = 0.95;
/// Maximum number of phases; further periods without a match belong to the last one.
const MOST_PHASES: usize = 16;

/// Launches by process and function.
pub type Counts = BTreeMap<(u32, u32), u64>;

/// The phases that were seen.
#[derive(Clone, Debug, Default)]
pub struct Phases {
    /// The launches of each.
    known: Vec<Counts>,
}

impl Phases {
    /// The phase of a period in which these kernels were launched; adds them to it.
    pub fn of(&mut self, launched: &Counts) -> usize {
        let alike = self.known.iter().map(|known| cosine(known, launched)).enumerate();
        let best = alike.max_by(|a, b| a.1.total_cmp(&b.1)).filter(|best| best.1 >= ALIKE);
        let phase = match best {
            Some((phase, _)) => phase,
            None if self.known.len() < MOST_PHASES => {
                self.known.push(Counts::new());
                self.known.len() - 1
            }
            None => MOST_PHASES - 1,
        };
        for (kernel, launches) in launched {
            *self.known[phase].entry(*kernel).or_default() += launches;
        }
        phase
    }
}

fn cosine(a: &Counts, b: &Counts) -> f64 {
    let length = |of: &Counts| of.values().map(|count| (*count as f64).powi(2)).sum::<f64>().sqrt();
    let both = a.iter().filter_map(|(kernel, count)| Some(*count as f64 * *b.get(kernel)? as f64));
    let product = length(a) * length(b);
    if product > 0.0 { both.sum::<f64>() / product } else { 0.0 }
}
