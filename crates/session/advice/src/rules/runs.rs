//! Runs of light kernels: operations of PyTorch or CuPy that follow each other in a repeated sequence, each
//! of which reads and writes whole tensors and computes next to nothing. One kernel could do the
//! work of a run.

use std::collections::BTreeMap;

use super::by_name::is_any;
use apex_profile::names::{Operation, Owner};
use apex_profile::{Kernel, Profile, Sequence};

/// Light kernels that follow each other, as places in the profile.
pub(super) struct Run {
    /// In their order; a kernel may come more than once.
    pub kernels: Vec<usize>,
    /// The kernels that are launched before and after them.
    pub before: Option<usize>,
    pub after: Option<usize>,
    /// The number of repetitions.
    pub repeats: u64,
}

impl Run {
    /// Whether one of its kernels is such.
    pub fn any(&self, profile: &Profile, is: impl Fn(&Kernel) -> bool) -> bool {
        self.kernels.iter().any(|&row| is(&profile.kernels[row]))
    }
}

/// All runs of the sequences that repeat.
pub(super) fn runs(profile: &Profile) -> Vec<Run> {
    profile.sequences.iter().flat_map(|sequence| runs_of(profile, sequence)).collect()
}

/// Returns the share of each kernel's launches in all sequences that `runs` hold.
pub(super) fn shares<'a>(profile: &Profile, runs: impl Iterator<Item = &'a Run>) -> BTreeMap<usize, f64> {
    let mut within: BTreeMap<usize, f64> = BTreeMap::new();
    for run in runs {
        run.kernels.iter().for_each(|&row| *within.entry(row).or_default() += run.repeats as f64);
    }
    let mut all: BTreeMap<usize, f64> = BTreeMap::new();
    for sequence in &profile.sequences {
        sequence.kernels.iter().for_each(|&row| *all.entry(row).or_default() += sequence.repeats as f64);
    }
    within.iter_mut().for_each(|(row, launches)| *launches = (*launches / all[row].max(1.0)).min(1.0));
    within
}

fn runs_of(profile: &Profile, sequence: &Sequence) -> Vec<Run> {
    let known = |row: &usize| *row < profile.kernels.len();
    let mut kernels: Vec<usize> = sequence.kernels.iter().copied().filter(known).collect();
    let light = |row: usize| is_light(&profile.kernels[row]);
    // A sequence that is known in full goes round: begin where no run is cut.
    let whole = sequence.length == kernels.len() as u64;
    if let Some(first) = kernels.iter().position(|&row| !light(row)).filter(|_| whole) {
        kernels.rotate_left(first);
    }
    let round = |at: Option<usize>| at.or(whole.then_some(0)).and_then(|at| kernels.get(at).copied());
    let mut runs = Vec::new();
    let mut start = 0;
    while start < kernels.len() {
        let length = kernels[start..].iter().take_while(|&&row| light(row)).count();
        if length > 0 {
            let end = start + length;
            runs.push(Run {
                kernels: kernels[start..end].to_vec(),
                before: start.checked_sub(1).map(|at| kernels[at]),
                after: round(Some(end).filter(|&end| end < kernels.len())).filter(|&row| !light(row)),
                repeats: sequence.repeats,
            });
        }
        start += length.max(1);
    }
    runs
}

/// Whether a kernel of PyTorch or CuPy goes over its tensors once and computes next to nothing.
fn is_light(kernel: &Kernel) -> bool {
    use Operation::{Cast, Copy, Elementwise, Fill, Normalization, Random, Reduction, Softmax};
    let light = [Elementwise, Reduction, Softmax, Normalization, Copy, Cast, Fill, Random]
        .contains(&kernel.traits.operation)
        || is_any(kernel, &["roll", "flip"]);
    let owners = [Owner::PyTorch, Owner::CuPy];
    light && owners.contains(&kernel.traits.owner) && !kernel.traits.many_tensors
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{named, profile_of};
    use super::{runs, shares};
    use apex_profile::{Profile, Sequence};

    const ADD: &str = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3>>(int)";

    #[test]
    fn runs_end_at_other_kernels_and_go_round() {
        let profile = profile_of([named(ADD), named("ampere_sgemm_128x64_tn"), named(ADD)]);
        let sequence = Sequence { length: 4, repeats: 10, kernels: vec![0, 2, 1, 0], ..Sequence::default() };
        let round = Profile { sequences: vec![sequence.clone()], ..profile };
        let found = runs(&round);
        assert_eq!((found.len(), &found[0].kernels[..]), (1, &[0, 0, 2][..]));
        assert_eq!((found[0].before, found[0].after), (Some(1), Some(1)));
        assert_eq!(shares(&round, found.iter()).into_iter().collect::<Vec<_>>(), [(0, 1.0), (2, 1.0)]);
        // Of a longer one only the beginning is known.
        let cut = Profile { sequences: vec![Sequence { length: 5, ..sequence }], ..round };
        let kernels: Vec<_> = runs(&cut).into_iter().map(|run| run.kernels).collect();
        assert_eq!(kernels, [vec![0, 2], vec![0]]);
    }
}
