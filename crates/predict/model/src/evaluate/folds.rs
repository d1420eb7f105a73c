//! Cross-validation by whole groups.

use crate::Error;
use apex_random::Random;
use std::collections::BTreeMap;

/// One split: the numbers of the cases to train on and of those to test on, rising.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fold {
    /// Cases of all other groups.
    pub train: Vec<usize>,
    /// Cases of some groups, all of each.
    pub test: Vec<usize>,
}

/// `count` splits of the cases, whose groups are `groups`, such that each group is tested in
/// exactly one of them. Which groups come together is random; the parts are about equally large.
///
/// # Errors
/// [`Error::Range`] when `count` is below 2; [`Error::TooFew`] when there are fewer groups than
/// that.
pub fn folds(groups: &[usize], count: usize, seed: u64) -> Result<Vec<Fold>, Error> {
    Error::check_range(count >= 2, "the number of folds", count as f64, "at least 2")?;
    let mut sizes: BTreeMap<usize, usize> = BTreeMap::new();
    groups.iter().for_each(|&group| *sizes.entry(group).or_default() += 1);
    if sizes.len() < count {
        return Err(Error::TooFew { what: "groups to split", needed: count, found: sizes.len() });
    }
    let mut order: Vec<(usize, usize)> = sizes.into_iter().collect();
    Random::new(seed).shuffle(&mut order);
    // Large groups first, each to where the fewest cases are: the parts come out about equal. The
    // sort keeps the random order of equals.
    order.sort_by_key(|&(_, size)| std::cmp::Reverse(size));
    let mut loads = vec![0; count];
    let mut fold_of = BTreeMap::new();
    for (group, size) in order {
        let least = (0..count).min_by_key(|&fold| loads[fold]).expect("there are at least two folds");
        loads[least] += size;
        fold_of.insert(group, least);
    }
    let fold = |fold| {
        let (test, train) = (0..groups.len()).partition(|&case| fold_of[&groups[case]] == fold);
        Fold { train, test }
    };
    Ok((0..count).map(fold).collect())
}
