//! Launches as numbers, the models' inputs.
//!
//! A feature set is written once, as a function that puts names and values into a [`Sink`]: so
//! names and values cannot come apart. Quantities that span decades are logarithms to base 2. What
//! is not known is 0, and a feature says that it is not known.
//!
//! * [`small`]: the launch alone, eight numbers.
//! * [`full`]: all that is known of a launch.
//! * [`what_if`]: a launch that was measured, and the same kernel launched in another way.

mod full;
mod small;
mod what_if;
mod work;

pub use what_if::Measured;

use crate::case::Placed;

/// The receiver of features.
trait Sink {
    /// The next feature. Its name is that of its group and its own.
    fn put(&mut self, group: &'static str, name: &'static str, value: f64);
}

/// Keeps values.
struct Values<'a>(&'a mut Vec<f32>);

impl Sink for Values<'_> {
    fn put(&mut self, _: &'static str, _: &'static str, value: f64) {
        self.0.push(value as f32);
    }
}

/// Keeps names.
struct Names(Vec<String>);

impl Sink for Names {
    fn put(&mut self, group: &'static str, name: &'static str, _: f64) {
        self.0.push(if group.is_empty() { name.to_owned() } else { format!("{group}_{name}") });
    }
}

/// The group of what a device has to give.
const DEVICE: &str = "device";

/// Whether a feature says what a device has to give, and nothing of the launch.
pub fn is_of_device(name: &str) -> bool {
    name.strip_prefix(DEVICE).is_some_and(|rest| rest.starts_with('_'))
}

/// A set of features that a model takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// [`small`].
    Small,
    /// [`full`].
    Full,
    /// [`what_if`].
    WhatIf,
}

impl Set {
    /// All of them.
    pub const ALL: [Set; 3] = [Set::Small, Set::Full, Set::WhatIf];

    /// As model files have it.
    pub fn name(self) -> &'static str {
        match self {
            Set::Small => "launch",
            Set::Full => "full",
            Set::WhatIf => "what-if",
        }
    }

    /// Raised whenever a feature is added, removed, moved or computed in another way.
    pub fn version(self) -> u32 {
        1
    }

    /// The features' names, in order.
    pub fn names(self) -> Vec<String> {
        let (device, case) = crate::case::example();
        let placed = Placed::new(&device, &case).expect("the example can run");
        let mut names = Names(Vec::new());
        match self {
            Set::Small => small::put(&placed, &mut names),
            Set::Full => full::put(&placed, &mut names),
            Set::WhatIf => what_if::put(&placed, &Measured { duration_us: 1.0 }, &placed, &mut names),
        }
        names.0
    }
}

/// The eight features of a launch alone; replaces what `features` held.
pub fn small(placed: &Placed<'_>, features: &mut Vec<f32>) {
    features.clear();
    small::put(placed, &mut Values(features));
}

/// All features of a launch; replaces what `features` held.
pub fn full(placed: &Placed<'_>, features: &mut Vec<f32>) {
    features.clear();
    full::put(placed, &mut Values(features));
}

/// Features of a launch `to`, of whose kernel a launch `from` was measured; replaces what
/// `features` held.
pub fn what_if(from: &Placed<'_>, measured: &Measured, to: &Placed<'_>, features: &mut Vec<f32>) {
    features.clear();
    what_if::put(from, measured, to, &mut Values(features));
}

/// The logarithm of a count: 0 for nothing, and about that to base 2 for much.
fn log(count: f64) -> f64 {
    (1.0 + count.max(0.0)).log2()
}
