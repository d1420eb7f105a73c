//! Machine code for parts of kernels, beside the interpreter.
//!
//! [`crate::compile`] finds the *regions* of a kernel: steps that follow each other, compute,
//! access memory or exchange words within a warp, wait at barriers if all warps of the block are
//! there, and branch only on what is the same in all threads. A region that is entered
//! often becomes code ([`ptx_compile`]), which warps execute instead of the steps. It works on the
//! registers in their frames, so that before and after it everything is as the interpreter wants
//! it.
//!
//! Invariants:
//!
//! 1. Only whole warps enter, and only if the registers on which the region's branches depend are
//!    the same in all their threads, so that these take the same way; other branches only lead
//!    forward, and threads reconverge. The instructions of threads are counted exactly. Those of
//!    warps, and branches, are exact where all threads take the same way; elsewhere each eight
//!    threads that execute one count as a quarter.
//! 2. An access that is not allowed is not executed: its warp goes on in the interpreter at that
//!    very step, which reports it. Within a warp, the threads that would fault first go first.
//!    Warps before it go on before it, those after it after it, as in [`crate::warp::batch`].
//! 3. What a thread does in a region does not wait for others: a backward branch depends on nothing
//!    that its loop loads. So it needs no fuel; an endless loop ends when its launch is cancelled.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use apex_conventions::variables::CPU_ENGINE;
use ptx::ScalarType;
use ptx_compile::{Code, Element, Meeting, Operation, Region, Register, Target, WARPS};
use ptx_lower::Meaning;

use crate::operands::{Class, Reg};

/// The way in which kernels are executed. Results and faults are the same, and so are the counts of
/// launches whose events are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Step by step.
    Interpreter,
    /// As machine code, from the first time on, wherever there can be code.
    Compiled,
    /// As machine code where it is executed often.
    Auto,
}

impl Engine {
    /// The engines, in the order in which messages name them.
    pub const ALL: [Engine; 3] = [Engine::Auto, Engine::Interpreter, Engine::Compiled];

    /// The name in `APEX_CPU_ENGINE`.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Auto => "auto",
            Engine::Interpreter => "interpreted",
            Engine::Compiled => "compiled",
        }
    }

    /// The engine with this name.
    pub fn named(name: &str) -> Option<Engine> {
        Engine::ALL.into_iter().find(|engine| engine.name() == name)
    }

    /// The engine that the variable `APEX_CPU_ENGINE` names; [`Engine::Auto`] if it is not set.
    ///
    /// # Errors
    ///
    /// The variable names no engine. The error is a message with the names that it may have.
    pub fn of_environment() -> Result<Engine, String> {
        static ENGINE: OnceLock<Result<Engine, String>> = OnceLock::new();
        ENGINE.get_or_init(|| CPU_ENGINE.value().map_or(Ok(Engine::Auto), |name| chosen(&name))).clone()
    }
}

/// The engine that a value of the variable names.
fn chosen(value: &OsStr) -> Result<Engine, String> {
    value.to_str().and_then(Engine::named).ok_or_else(|| {
        let [first, second, third] = Engine::ALL.map(Engine::name);
        let (variable, value) = (CPU_ENGINE.name, value.display());
        format!("{variable}={value} names no engine; it may be {first}, {second} or {third}")
    })
}

/// Times that a batch enters a region before it becomes code, unless that is forced: generating code
/// takes as long as interpreting some of them.
const OFTEN: u32 = 16;

/// Description of a step for the generator of machine code.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Lowered {
    /// Something that only the interpreter knows.
    #[default]
    Other,
    /// It computes a register of others.
    Computes(Meaning),
    /// It loads or stores values of a type, without order among threads.
    Moves(ScalarType),
}

/// Why a step of a kernel is in no region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outside {
    /// The generator of machine code does not know the operation.
    Unknown,
    /// It branches on a value that is likely to differ between the threads of a block.
    Branch,
    /// It is next to such a step, and the part is too short for a region.
    Short,
}

/// Whether this machine can execute machine code of regions.
pub(crate) fn is_possible() -> bool {
    static POSSIBLE: OnceLock<bool> = OnceLock::new();
    *POSSIBLE
        .get_or_init(|| ptx_compile::is_available() && Engine::of_environment() != Ok(Engine::Interpreter))
}

/// The regions of a function.
#[derive(Clone, Debug, Default)]
pub(crate) struct Native {
    regions: Vec<NativeRegion>,
    /// For warps of any number, and for all warps of a block.
    at: [Starts; 2],
    /// For each step, why it is in no region.
    outside: Vec<Option<Outside>>,
}

/// Where regions begin: for each step the index plus one of the region that begins there, first
/// only of regions that are worth compiling, then of all. Empty if there is none.
#[derive(Clone, Debug, Default)]
struct Starts([Vec<u32>; 2]);

impl Starts {
    /// Those of regions whose indices begin with `first`, in a function with so many steps.
    fn of(regions: &[NativeRegion], first: usize, steps: usize) -> Starts {
        let table = |of: &dyn Fn(&NativeRegion) -> bool| {
            let mut at = vec![0; if regions.iter().any(of) { steps } else { 0 }];
            let chosen = regions.iter().enumerate().filter(|(_, region)| of(region));
            chosen.for_each(|(index, region)| at[region.start as usize] = (first + index) as u32 + 1);
            at
        };
        Starts([table(&|region| region.is_worth_it(WARPS)), table(&|_| true)])
    }
}

impl Native {
    /// `of_blocks` are the regions that all warps of a block enter together, if these are others.
    /// `outside` has for each step why it would be in no region.
    pub(crate) fn new(
        mut regions: Vec<NativeRegion>,
        of_blocks: Option<Vec<NativeRegion>>,
        mut outside: Vec<Option<Outside>>,
    ) -> Native {
        let starts = Starts::of(&regions, 0, outside.len());
        let of_blocks = of_blocks.map_or_else(
            || starts.clone(),
            |others| {
                let starts = Starts::of(&others, regions.len(), outside.len());
                regions.extend(others);
                starts
            },
        );
        for region in &regions {
            outside[region.start as usize..][..region.steps()].fill(None);
        }
        Native { regions, at: [starts, of_blocks], outside }
    }

    /// Why a step is in no region; `None` if it is in one, or if no regions were looked for.
    pub(crate) fn outside(&self, step: usize) -> Option<Outside> {
        self.outside.get(step).copied().flatten()
    }

    /// Whether a region that is worth compiling begins at a step.
    pub(crate) fn is_worth_it(&self, pc: u32) -> bool {
        [false, true].into_iter().any(|whole| self.at(pc, Engine::Auto, whole).is_some())
    }

    /// Steps in regions that have become code, and in all regions.
    pub(crate) fn extent(&self) -> [usize; 2] {
        let covered = |of: &dyn Fn(&NativeRegion) -> bool| {
            let mut steps = vec![false; self.outside.len()];
            for region in self.regions.iter().filter(|region| of(region)) {
                steps[region.start as usize..][..region.steps()].fill(true);
            }
            steps.into_iter().filter(|covered| *covered).count()
        };
        [covered(&|region| matches!(region.code.get(), Some(Some(_)))), covered(&|_| true)]
    }

    pub(crate) fn region(&self, index: usize) -> &NativeRegion {
        &self.regions[index]
    }

    /// The region that begins at a step and that an engine may make code of; `whole` tells that all
    /// warps of the block that are left are to enter it together.
    #[inline(always)]
    pub(crate) fn at(&self, pc: u32, engine: Engine, whole: bool) -> Option<usize> {
        let Starts([worth_it, all]) = &self.at[usize::from(whole)];
        let table = match engine {
            Engine::Interpreter => return None,
            Engine::Auto => worth_it,
            Engine::Compiled => all,
        };
        match table.get(pc as usize) {
            None | Some(0) => None,
            Some(&index) => Some(index as usize - 1),
        }
    }
}

/// A block of a region, as the interpreter counts it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    pub(crate) start: u32,
    pub(crate) steps: u64,
    /// Steps without a guard.
    pub(crate) unguarded: u64,
    /// Whether it ends with a jump without a guard.
    pub(crate) jumps: bool,
    /// Whether it ends with a branch that threads take differently.
    pub(crate) divides: bool,
    /// Whether threads may be elsewhere meanwhile.
    pub(crate) is_masked: bool,
    /// The number of the loop that threads leave one by one, if it is one.
    pub(crate) lane_loop: Option<usize>,
}

/// An access of a region.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    /// Its step.
    pub(crate) step: u32,
    pub(crate) element: Element,
    /// Whether its address is that of an element at the index of a deferred prologue.
    pub(crate) is_at_index: bool,
    /// In a block that some threads may have gone past, or a loop that they may have left: the
    /// steps at which they may wait. At the last one are all that are nowhere else.
    pub(crate) waiting: Vec<u32>,
}

/// The places at which warps may leave a region.
#[derive(Clone, Debug)]
pub(crate) struct Exits {
    /// The step at which each exit goes on, then the step of each meeting.
    pub(crate) steps: Vec<u32>,
    /// The numbers of the region's barriers.
    pub(crate) barriers: Vec<u32>,
}

/// A region of a function.
pub(crate) struct NativeRegion {
    pub(crate) start: u32,
    pub(crate) region: Region,
    pub(crate) blocks: Vec<Counted>,
    pub(crate) exits: Exits,
    /// The accesses.
    pub(crate) sites: Vec<Site>,
    /// Registers that have to be the same in all threads.
    pub(crate) uniform: Vec<(Class, Reg)>,
    /// Whether it reads something of a deferred prologue beside the index.
    pub(crate) reads_prologue: bool,
    /// What machine code saves, for each warp; `None` if it has a loop.
    saved: Option<usize>,
    entered: AtomicU32,
    code: OnceLock<Option<Code>>,
}

impl NativeRegion {
    pub(crate) fn new(
        start: u32,
        region: Region,
        blocks: Vec<Counted>,
        exits: Exits,
        sites: Vec<Site>,
        uniform: Vec<(Class, Reg)>,
        reads_prologue: bool,
    ) -> NativeRegion {
        let (entered, code) = (AtomicU32::new(0), OnceLock::new());
        let saved = saved(&region, &sites);
        NativeRegion { saved, start, region, blocks, exits, sites, uniform, reads_prologue, entered, code }
    }

    /// The step of a meeting.
    pub(crate) fn meeting(&self, index: usize) -> u32 {
        self.exits.steps[self.region.exits.len() + index]
    }

    /// The number of its steps.
    fn steps(&self) -> usize {
        self.blocks.iter().map(|block| block.steps as usize).sum()
    }

    /// Whether some warps are to enter it together: there is code, or it is worth to be made now.
    pub(crate) fn is_ready(&self, engine: Engine, warps: usize) -> bool {
        let forced = engine == Engine::Compiled;
        let often = || forced || self.entered.fetch_add(1, Ordering::Relaxed) >= OFTEN;
        (forced || self.is_worth_it(warps)) && self.code.get().map_or_else(often, Option::is_some)
    }

    /// Whether machine code saves some warps more than it costs to enter it. The weights are from
    /// measurements.
    fn is_worth_it(&self, warps: usize) -> bool {
        self.saved.is_none_or(|saved| saved * warps > 96 + 14 * warps)
    }

    /// The code, which is made if it is not there yet. `starts_same` guesses for a register whether
    /// the threads of a strip have the same value.
    pub(crate) fn code(&self, starts_same: &dyn Fn(&Register) -> bool) -> Option<&Code> {
        self.code.get_or_init(|| Code::generate(&self.region, starts_same).ok()).as_ref()
    }
}

/// What machine code of a region saves for each warp, of what the interpreter needs to execute its
/// steps and to find the addresses that it does not know beforehand; `None` if it has a loop.
fn saved(region: &Region, sites: &[Site]) -> Option<usize> {
    let Region { blocks, .. } = region;
    let has_loop = blocks.iter().enumerate().any(|(at, block)| {
        block.end.targets().iter().any(|to| matches!(to, Target::Block(to) if *to as usize <= at))
    });
    let operations = blocks.iter().flat_map(|block| &block.instructions).map(|one| &one.operation);
    let (mut saved, mut addresses) = (0, BTreeSet::new());
    let shuffles = region.meetings.iter().filter(|one| matches!(one, Meeting::Shuffle { .. }));
    saved += 4 * shuffles.count();
    for operation in operations {
        match operation {
            Operation::Compute { .. } => saved += 4,
            Operation::Access(access) => {
                saved += 3;
                if !sites[access.site as usize].is_at_index {
                    addresses.insert((access.address.register(), access.key));
                }
            }
        }
    }
    (!has_loop).then_some(saved + 4 * addresses.len())
}

impl Clone for NativeRegion {
    fn clone(&self) -> Self {
        NativeRegion::new(
            self.start,
            self.region.clone(),
            self.blocks.clone(),
            self.exits.clone(),
            self.sites.clone(),
            self.uniform.clone(),
            self.reads_prologue,
        )
    }
}

impl fmt::Debug for NativeRegion {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let generated = self.code.get().is_some();
        out.debug_struct("NativeRegion").field("start", &self.start).field("generated", &generated).finish()
    }
}
