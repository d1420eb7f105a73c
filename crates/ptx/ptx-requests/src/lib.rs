//! Counts what each access of a kernel asks of memory, and finds the one change that mends it.
//!
//! [`Report::of`] counts the sectors of global and the wavefronts of shared memory of each access
//! in a launch (`Estimator::requests` is the counter). For accesses that ask for more than they
//! need it tries changes that can be written into PTX: two to four neighbouring accesses become a
//! vector (`vector`), the axes x and y of the threads are exchanged (`axes`), the rows of a
//! shared array are padded (`pad`). The rewritten kernel is counted by the same counter. Changes
//! of data structures and of loops are named only (`named`).
//!
//! # Invariants
//! 1. *A rewritten kernel computes the same.* A rewrite that is not known to be exact is not made.
//! 2. *A gain is stated only if it was counted*, and if the kernel's sums of sectors and of
//!    wavefronts do not rise.
//! 3. Accesses whose addresses depend on data are listed and never judged.

mod axes;
mod named;
mod pad;
mod tree;
mod vector;

use cuda_launch::LaunchConfig;
use ptx::syntax::{Module, StateSpace};
use ptx_estimate::{Argument, Estimator, RequestCost, Requested};

/// Rounds that a loop is taken to have in [`Totals`].
pub const ROUNDS: u64 = 8;
/// Loops in loops that count.
const MOST_DEPTH: u32 = 4;
/// Most accesses of a kernel that are judged.
const MOST_ACCESSES: usize = 2_000;

/// The requests of a kernel in a launch, and what would mend them.
#[derive(Clone, Debug)]
pub struct Report {
    /// In the order of the code.
    pub accesses: Vec<Requested>,
    /// Sums of all accesses.
    pub totals: Totals,
    /// The most valuable one first; each access belongs to one of them at most.
    pub remedies: Vec<Remedy>,
}

/// Sums over the accesses of one warp, as if each loop had [`ROUNDS`] rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requests to global and shared memory.
    pub requests: u64,
    /// Sectors of global memory, 32 bytes each.
    pub sectors: u64,
    /// Wavefronts of shared memory.
    pub wavefronts: u64,
    /// Accesses whose cost is not known.
    pub unknown: u64,
}

/// The one change that mends some accesses.
#[derive(Clone, Debug)]
pub struct Remedy {
    /// The change.
    pub change: Change,
    /// Places of the accesses in [`Report::accesses`].
    pub accesses: Vec<usize>,
    /// The count of the changed kernel; `None` if the change cannot be written into PTX.
    pub counted: Option<Counted>,
}

/// A change of a kernel or of its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// One access of several neighbouring elements.
    Vectorize {
        /// Elements of the vector: 2 or 4.
        elements: u32,
        /// Alignment that every address must have, bytes.
        alignment: u32,
    },
    /// x and y of threads and blocks are exchanged in the kernel, and the launch has these sides.
    ExchangeAxes,
    /// Each row of a shared array gets additional bytes.
    PadRows {
        /// The array.
        variable: String,
        /// Bytes of a row.
        row_bytes: u64,
        /// Additional bytes of each row.
        padding: u64,
    },
    /// The members of structures become arrays of their own.
    StructureOfArrays {
        /// Bytes of a structure.
        structure_bytes: u64,
    },
    /// Neighbouring threads take neighbouring elements, and each thread's loop steps over all
    /// threads.
    ExchangeLoops,
    /// A tile goes through shared memory, so that global memory is accessed along rows.
    TransposeTile,
}

/// A changed kernel and its count.
#[derive(Clone, Debug)]
pub struct Counted {
    /// Sectors, or wavefronts, of the accesses before.
    pub before: u64,
    /// Those of the same accesses in the changed kernel.
    pub after: u64,
    /// Sums of the changed kernel.
    pub totals: Totals,
    /// The module with the changed kernel.
    pub module: Module,
    /// The launch that does the same with it.
    pub launch: LaunchConfig,
    /// Whether it does the same only where the launch meets the conditions of the proof about
    /// other blocks (crate `reshape`).
    pub conditional: bool,
}

impl Report {
    /// Counts the accesses of a kernel in a launch with these arguments (missing ones are unknown)
    /// and tries the changes; `None` if the module has no code of it.
    pub fn of(
        module: &Module,
        kernel: &str,
        launch: &LaunchConfig,
        arguments: &[Argument],
    ) -> Option<Report> {
        let count = Count { launch: *launch, arguments };
        let accesses = count.accesses(module, kernel)?;
        let totals = Totals::of(&accesses);
        let mut report = Report { accesses, totals, remedies: Vec::new() };
        if report.accesses.len() <= MOST_ACCESSES {
            report.mend(module, kernel, &count);
        }
        Some(report)
    }

    /// Tries the changes, each for the accesses that no better one mends.
    fn mend(&mut self, module: &Module, kernel: &str, count: &Count<'_>) {
        let mut tried = vector::changes(module, kernel, &self.accesses, count.launch);
        tried.extend(axes::changes(module, kernel, &self.accesses, count.launch));
        tried.extend(pad::changes(module, kernel, &self.accesses, count.launch));
        let mut remedies: Vec<Remedy> =
            tried.into_iter().filter_map(|tried| self.counted(tried, kernel, count)).collect();
        remedies.sort_by_key(|remedy| std::cmp::Reverse(remedy.gain()));
        for remedy in remedies {
            if remedy.accesses.iter().all(|at| self.remedy(*at).is_none()) {
                self.remedies.push(remedy);
            }
        }
        for (at, change) in named::changes(&self.accesses) {
            if self.remedy(at).is_some() {
                continue;
            }
            match self.remedies.iter_mut().find(|known| known.counted.is_none() && known.change == change) {
                Some(known) => known.accesses.push(at),
                None => self.remedies.push(Remedy { change, accesses: vec![at], counted: None }),
            }
        }
    }

    /// The change that mends an access.
    pub fn remedy(&self, access: usize) -> Option<&Remedy> {
        self.remedies.iter().find(|remedy| remedy.accesses.contains(&access))
    }

    /// Counts a changed kernel; nothing if it does not ask for less in all.
    fn counted(&self, tried: Tried, kernel: &str, count: &Count<'_>) -> Option<Remedy> {
        let changed = Count { launch: tried.launch, ..*count }.accesses(&tried.module, kernel)?;
        let totals = Totals::of(&changed);
        if !totals.is_better(&self.totals) {
            return None;
        }
        let cost = |access: &Requested| access.cost.map_or(0, |cost| cost.count);
        let same = |access: &Requested| {
            let is_same_place = |other: &&Requested| place(other) == place(access);
            changed.iter().find(is_same_place).map_or(0, cost)
        };
        // Exchanged axes change many accesses: those count that ask for less.
        let accesses: Vec<usize> = match tried.accesses {
            Some(accesses) => accesses,
            None => (0..self.accesses.len())
                .filter(|&at| {
                    is_excessive(&self.accesses[at]) && same(&self.accesses[at]) < cost(&self.accesses[at])
                })
                .collect(),
        };
        let before = accesses.iter().map(|&at| cost(&self.accesses[at])).sum();
        let after = accesses.iter().map(|&at| same(&self.accesses[at])).sum();
        let Tried { change, module, launch, conditional, .. } = tried;
        let counted = Counted { before, after, totals, module, launch, conditional };
        (after < before).then_some(Remedy { change, accesses, counted: Some(counted) })
    }
}

impl Remedy {
    /// Sectors and wavefronts that are saved.
    fn gain(&self) -> u64 {
        self.counted.as_ref().map_or(0, |counted| counted.before.saturating_sub(counted.after))
    }
}

impl Totals {
    fn of(accesses: &[Requested]) -> Totals {
        let mut totals = Totals::default();
        for access in accesses {
            let weight = ROUNDS.pow(access.depth.min(MOST_DEPTH));
            let Some(RequestCost { count, .. }) = access.cost else {
                totals.unknown += 1;
                continue;
            };
            totals.requests += weight;
            let sum = match access.space {
                StateSpace::Shared => &mut totals.wavefronts,
                _ => &mut totals.sectors,
            };
            *sum += weight * count;
        }
        totals
    }

    /// Whether something is less than before and nothing is more.
    fn is_better(&self, before: &Totals) -> bool {
        let pairs = [(self.sectors, before.sectors), (self.wavefronts, before.wavefronts)];
        pairs.iter().all(|(now, then)| now <= then)
            && pairs.iter().any(|(now, then)| now < then)
            && self.unknown <= before.unknown
    }
}

/// A change that is to be counted.
struct Tried {
    change: Change,
    module: Module,
    launch: LaunchConfig,
    conditional: bool,
    /// The accesses that it is for; `None` if the count tells.
    accesses: Option<Vec<usize>>,
}

/// The inputs of a count besides the kernel.
#[derive(Clone, Copy)]
struct Count<'a> {
    launch: LaunchConfig,
    arguments: &'a [Argument],
}

impl Count<'_> {
    fn accesses(&self, module: &Module, kernel: &str) -> Option<Vec<Requested>> {
        let function = module.kernel(kernel)?;
        Some(Estimator::new(module, function).requests(function, &self.launch, self.arguments))
    }
}

/// Where an access stands in the PTX: rewriting keeps this.
fn place(access: &Requested) -> (u32, u32) {
    (access.position.line, access.position.column)
}

/// Whether an access asks for more than it needs: for more than twice the sectors, as rules about
/// uncoalesced accesses count, or for one more wavefront.
pub fn is_excessive(access: &Requested) -> bool {
    access.cost.is_some_and(|cost| match access.space {
        StateSpace::Shared => cost.count > cost.least,
        _ => !cost.uniform && cost.count > 2 * cost.least,
    })
}
