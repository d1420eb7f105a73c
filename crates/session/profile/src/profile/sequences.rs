//! Repeated sequences of launches.
//!
//! Launches of each stream are collected into *segments*, from one synchronisation (or other call
//! that ends a capture) to the next. A loop that synchronises in each iteration repeats the same
//! segment; segments are counted by content. A loop that does not synchronise gives one long
//! segment, cut after [`LONGEST`] launches, in which the repeating unit is searched.
//! Memory: [`LONGEST`] launches for each stream, [`KEPT`] in different segments and units.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Serialize;

use super::by_id::ById;

/// Launches after which a segment is cut.
const LONGEST: usize = 8192;
/// Maximum launches in all different segments and units of a process.
const KEPT: usize = 1 << 20;

/// A sequence of launches that repeats on one stream without a synchronisation, allocation or
/// synchronous copy inside, so that a CUDA graph can replace it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Sequence {
    /// Index into [`Profile::processes`](super::Profile::processes).
    pub process: usize,
    /// The kernels in order: indices into [`Profile::kernels`](super::Profile::kernels), at most
    /// [`Self::SHOWN`].
    pub kernels: Vec<usize>,
    /// Launches of one repetition.
    pub length: u64,
    /// Repetitions.
    pub repeats: u64,
    /// CPU time in the launch calls of all repetitions.
    pub launch_cpu_ns: f64,
    /// Time from the start of the first launch call to the end of the last, summed over the
    /// repetitions.
    pub elapsed_ns: f64,
}

impl Sequence {
    /// Maximum number of kernels listed.
    pub const SHOWN: usize = 64;

    /// Launches of all repetitions; saturates.
    pub fn covered(&self) -> u64 {
        self.length.saturating_mul(self.repeats)
    }
}

/// Repeated sequences of one process.
#[derive(Default)]
pub(crate) struct Sequences {
    open: ById<Segment>,
    segments: Book,
    units: Book,
}

/// Launches on one stream since the last break.
#[derive(Default)]
struct Segment {
    kernels: Vec<u32>,
    cost: Cost,
    start_ns: f64,
}

/// CPU time and elapsed time of launches.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    cpu_ns: f64,
    elapsed_ns: f64,
}

/// Sequences by content. Ordered, so that the same session gives the same profile.
#[derive(Default)]
struct Book {
    entries: BTreeMap<Vec<u32>, Entry>,
    kept: usize,
}

#[derive(Default)]
struct Entry {
    /// The kernels as they were first seen: for units, the key is another rotation of it.
    kernels: Vec<u32>,
    repeats: u64,
    cost: Cost,
}

impl Sequences {
    /// A launch of a kernel on a stream.
    pub fn launch(&mut self, stream: u32, kernel: usize, start_ns: f64, cpu_ns: f64) {
        let segment = self.open.entry(stream, Segment::default);
        if segment.kernels.is_empty() {
            segment.start_ns = start_ns;
        }
        segment.kernels.push(kernel as u32);
        segment.cost.cpu_ns += cpu_ns;
        segment.cost.elapsed_ns = start_ns + cpu_ns - segment.start_ns;
        if segment.kernels.len() == LONGEST {
            let segment = std::mem::take(segment);
            self.find_unit(&segment.kernels, segment.cost);
        }
    }

    /// Something on this stream (on any, if `None`) that a graph cannot hold.
    pub fn interrupt(&mut self, stream: Option<u32>) {
        let Self { open, segments, .. } = self;
        let mut close = |segment: &mut Segment| {
            if !segment.kernels.is_empty() {
                segments.add(&segment.kernels, &segment.kernels, 1, segment.cost);
                segment.kernels.clear();
                segment.cost = Cost::default();
            }
        };
        match stream {
            Some(stream) => open.get_mut(stream).into_iter().for_each(close),
            None => open.values_mut().for_each(&mut close),
        }
    }

    /// Looks for a unit that repeats within one segment.
    fn find_unit(&mut self, kernels: &[u32], cost: Cost) {
        let Some((run, period)) = periodic_run(kernels) else { return };
        let unit = &kernels[run.start..run.start + period];
        let repeats = run.len() / period;
        let share = (repeats * period) as f64 / kernels.len() as f64;
        let cost = Cost { cpu_ns: cost.cpu_ns * share, elapsed_ns: cost.elapsed_ns * share };
        self.units.add(unit, &least_rotation(unit), repeats as u64, cost);
    }

    /// Returns the repeated sequences. Segments that came once are searched for a unit first.
    pub fn finish(mut self, process: usize) -> Vec<Sequence> {
        self.interrupt(None);
        let segments = std::mem::take(&mut self.segments).entries;
        let (repeated, single): (Vec<_>, Vec<_>) =
            segments.into_values().partition(|entry| entry.repeats > 1);
        for entry in &single {
            self.find_unit(&entry.kernels, entry.cost);
        }
        let units = self.units.entries.into_values().filter(|entry| entry.repeats > 1);
        repeated.into_iter().chain(units).map(|entry| entry.sequence(process)).collect()
    }
}

impl Book {
    fn add(&mut self, kernels: &[u32], key: &[u32], repeats: u64, cost: Cost) {
        if !self.entries.contains_key(key) {
            if self.kept + kernels.len() > KEPT {
                return;
            }
            self.kept += kernels.len();
            self.entries.insert(key.to_vec(), Entry { kernels: kernels.to_vec(), ..Entry::default() });
        }
        if let Some(entry) = self.entries.get_mut(key) {
            entry.repeats += repeats;
            entry.cost.cpu_ns += cost.cpu_ns;
            entry.cost.elapsed_ns += cost.elapsed_ns;
        }
    }
}

impl Entry {
    fn sequence(self, process: usize) -> Sequence {
        Sequence {
            process,
            length: self.kernels.len() as u64,
            kernels: self.kernels.iter().take(Sequence::SHOWN).map(|&kernel| kernel as usize).collect(),
            repeats: self.repeats,
            launch_cpu_ns: self.cost.cpu_ns,
            elapsed_ns: self.cost.elapsed_ns,
        }
    }
}

/// The stretch of `kernels` that repeats with one period, and the period, if at least its middle
/// half does so twice. What comes before (warm-up) and after does not matter.
fn periodic_run(kernels: &[u32]) -> Option<(Range<usize>, usize)> {
    let quarter = kernels.len() / 4;
    let middle = &kernels[quarter..kernels.len() - quarter];
    let period = period_of(middle).filter(|period| 2 * period <= middle.len())?;
    let mut start = quarter;
    while start > 0 && kernels[start - 1] == kernels[start - 1 + period] {
        start -= 1;
    }
    let mut end = kernels.len() - quarter;
    while end < kernels.len() && kernels[end] == kernels[end - period] {
        end += 1;
    }
    Some((start..end, period))
}

/// The smallest period of a sequence: its length less that of its longest border (Knuth, Morris,
/// Pratt).
fn period_of(sequence: &[u32]) -> Option<usize> {
    let mut borders = vec![0usize; sequence.len()];
    for i in 1..sequence.len() {
        let mut border = borders[i - 1];
        while border > 0 && sequence[i] != sequence[border] {
            border = borders[border - 1];
        }
        borders[i] = border + usize::from(sequence[i] == sequence[border]);
    }
    borders.last().map(|border| sequence.len() - border)
}

/// The lexicographically least rotation: the same for all rotations of a unit, so that it does not
/// matter where in the loop a segment was cut (Booth's algorithm in its two-pointer form).
fn least_rotation(unit: &[u32]) -> Vec<u32> {
    let n = unit.len();
    let (mut i, mut j, mut same) = (0, 1, 0);
    while i < n && j < n && same < n {
        let (a, b) = (unit[(i + same) % n], unit[(j + same) % n]);
        if a == b {
            same += 1;
            continue;
        }
        if a > b {
            i += same + 1
        } else {
            j += same + 1
        }
        j += usize::from(i == j);
        same = 0;
    }
    let start = i.min(j);
    [&unit[start..], &unit[..start]].concat()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Launches of 10 ns, 20 ns apart.
    fn launch_all(sequences: &mut Sequences, stream: u32, kernels: impl IntoIterator<Item = usize>) {
        for (i, kernel) in kernels.into_iter().enumerate() {
            sequences.launch(stream, kernel, i as f64 * 20.0, 10.0);
        }
    }

    #[test]
    fn a_loop_that_synchronises_is_counted() {
        let mut sequences = Sequences::default();
        for _ in 0..150 {
            launch_all(&mut sequences, 1, [3, 1, 4, 1, 5]);
            sequences.interrupt(Some(1));
        }
        let found = sequences.finish(7);
        assert_eq!(found.len(), 1);
        let first = &found[0];
        assert_eq!(
            (first.process, &first.kernels[..], first.length, first.repeats),
            (7, &[3, 1, 4, 1, 5][..], 5, 150)
        );
        assert_eq!((first.launch_cpu_ns, first.elapsed_ns), (150.0 * 50.0, 150.0 * 90.0));
    }

    #[test]
    fn a_loop_that_does_not_synchronise_is_found_behind_its_warm_up() {
        let mut sequences = Sequences::default();
        let (warm_up, end) = ([9, 8, 7, 9, 6], [2, 2]);
        let body = (0..200).flat_map(|_| [1, 2, 1, 3]);
        launch_all(&mut sequences, 1, warm_up.into_iter().chain(body).chain(end));
        let found = sequences.finish(0);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].length, found[0].repeats), (4, 200));
    }

    #[test]
    fn where_a_long_loop_is_cut_does_not_matter() {
        let mut sequences = Sequences::default();
        // 7 does not divide the length of a segment, so each one starts elsewhere in the loop.
        launch_all(&mut sequences, 1, (0..5 * LONGEST).map(|i| i % 7));
        let found = sequences.finish(0);
        assert_eq!((found.len(), found[0].length), (1, 7));
        assert_eq!(found[0].repeats, (5 * (LONGEST / 7)) as u64);
    }

    #[test]
    fn streams_do_not_mix() {
        let mut sequences = Sequences::default();
        for _ in 0..100 {
            for i in 0..3 {
                launch_all(&mut sequences, 1, [i]);
                launch_all(&mut sequences, 2, [10 + i]);
            }
            sequences.interrupt(None);
        }
        let mut found: Vec<_> = sequences.finish(0).into_iter().map(|s| (s.kernels, s.repeats)).collect();
        found.sort();
        assert_eq!(found, [(vec![0, 1, 2], 100), (vec![10, 11, 12], 100)]);
    }

    #[test]
    fn what_never_repeats_is_not_listed() {
        let mut sequences = Sequences::default();
        launch_all(&mut sequences, 1, 0..1000);
        assert_eq!(sequences.finish(0), []);
    }

    proptest! {
        #[test]
        fn all_rotations_have_the_same_least_one(unit in prop::collection::vec(0u32..4, 1..20), by in 0usize..20) {
            let mut rotated = unit.clone();
            rotated.rotate_left(by % unit.len());
            let least = least_rotation(&unit);
            prop_assert_eq!(&least, &least_rotation(&rotated));
            let mut all: Vec<Vec<u32>> = (0..unit.len()).map(|by| [&unit[by..], &unit[..by]].concat()).collect();
            all.sort();
            prop_assert_eq!(&least, &all[0]);
        }

        #[test]
        fn a_repeated_unit_is_found(
            unit in prop::collection::vec(0u32..5, 1..12),
            repeats in 8usize..30,
            before in prop::collection::vec(100u32..103, 0..3),
            after in prop::collection::vec(200u32..203, 0..3),
        ) {
            let kernels = [before, unit.repeat(repeats), after].concat();
            let (run, period) = periodic_run(&kernels).expect("it repeats");
            prop_assert_eq!(unit.len() % period, 0);
            prop_assert_eq!(run.len(), unit.len() * repeats);
        }
    }
}
