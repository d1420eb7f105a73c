//! Generates machine code from lowered PTX.
//!
//! A [`Region`] is a part of a function: blocks of instructions, each with a
//! [meaning](ptx_lower::Meaning) or an access to memory. [`Code::generate`] makes AVX2 code of it,
//! which executes the region in *strips*: eight threads of a warp go through the whole region,
//! loops included, then the next eight, so that what they compute stays in vector registers. Where
//! lanes communicate, the strips of a warp wait for each other, with their registers in the frame.
//! Registers come from the frames of warps and go back there; between, nobody needs to know that
//! there was other code.
//!
//! | module | content |
//! | --- | --- |
//! | `region` | what code is generated from |
//! | `kind` | the operations that the generator knows, by their meaning |
//! | `liveness` | which registers are live where, and in which vector register each is |
//! | `nans` | where NaNs have to be replaced by PTX's |
//! | `groups` | accesses that are checked together |
//! | `same` | which registers are probably the same in all threads of a strip |
//! | `generate` | writes the code |
//! | `assembler` | encodes instructions |
//! | `executable` | memory that can be executed |
//! | `context` | what code and user share |
//!
//! Invariants:
//!
//! 1. *The bits are those of the interpreter*, in every register that is live where the region is
//!    left, and in memory.
//! 2. *Every access is checked*: it lies in a [`Window`] that the user has allowed, or the user
//!    performs it.
//! 3. *A strip stops before the effect* that the user refuses, with all live registers in the
//!    frame. The other strips of its warp go on until they stop, meet or end too, and later warps
//!    do not begin, or stay behind the barrier that they have passed last.
//! 4. Memory that is executed is never writable.
//!
//! # Limits
//!
//! Code is not cached between processes: making it again is as fast as reading it would be. Regions
//! have no `.f16` arithmetic, no `.ftz` (except in `ex2`), and no divergent backward branches
//! (except at the end of a loop of one block); the interpreter executes these. Of instructions by
//! which lanes communicate, code knows shuffles by constants and barriers; the user executes the
//! others, where all strips of a warp [meet](Meeting). There is no code for AVX-512.

mod assembler;
mod context;
mod executable;
mod generate;
mod groups;
mod kind;
mod liveness;
mod nans;
mod region;
mod same;

use std::ffi::c_void;
use std::io;
use std::mem::MaybeUninit;

pub use context::{Bases, Context, Early, Frame, Group, LOOP, MEETING, STRIPS, Stop, WARPS, Window};
use executable::Executable;
pub use generate::POWERS;
pub use kind::supports;
pub use region::{
    Access, Address, Block, Class, Element, End, Guard, Instruction, LATER, LaneLoop, Mask, Meeting,
    Operation, Reg, Region, Register, Target,
};

/// The machine code of a region.
///
/// It counts, for all strips together: how often block `i` is executed, at `i`; how often the
/// branch at its end is taken, by any thread, at `blocks + i` (if the block has a [`Mask`], the
/// number of threads that execute it); and at `2 * blocks` the threads that execute guarded
/// instructions, plus those that blocks count at their ends.
pub struct Code {
    executable: Executable,
    bytes: Vec<u8>,
    groups: Vec<Group>,
    of_access: Vec<usize>,
    early: Vec<Early>,
    /// The places of words that are read otherwise than as the address of an early group.
    words: Vec<u32>,
    blocks: usize,
    lane_loops: usize,
    /// Whether the code counts how often it executes the first block.
    counts_first: bool,
    has_meetings: bool,
    has_memory_of_lanes: bool,
}

/// The places of words that a region reads otherwise than as the address of an early group. Where
/// only some threads make a guarded access, the helper makes it, and reads the address.
fn words_read(region: &Region, early: &[Early]) -> Vec<u32> {
    let mut words = Vec::new();
    let mut accesses = 0;
    let meetings = region.meetings.iter().flat_map(Meeting::uses);
    let mut read = |reg: Reg| {
        let register = region.registers[reg.0 as usize];
        if register.class == Class::Word && !words.contains(&register.place) {
            words.push(register.place);
        }
    };
    meetings.for_each(&mut read);
    for instruction in region.blocks.iter().flat_map(|block| &block.instructions) {
        let Operation::Access(access) = &instruction.operation else {
            instruction.uses().into_iter().for_each(&mut read);
            continue;
        };
        if instruction.guard.is_some() || !early.iter().any(|early| early.access == accesses) {
            read(access.address.register());
        }
        accesses += 1;
        access.data.iter().filter(|_| access.store || instruction.guard.is_some()).for_each(|reg| read(*reg));
    }
    words
}

/// Performs the access of a site in the threads of a mask: the address's register is in
/// [`Context::address`], words go to or come from [`Context::data`]. A result other than zero stops
/// the strip before the access. For a site with the bit [`LOOP`] it only says whether to stop.
pub type Helper = unsafe extern "sysv64" fn(*mut Context, u32, u32) -> u32;

/// The end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All strips of all warps have left the region by this exit. From the number of exits on, all
    /// wait at a meeting.
    Left(u32),
    /// Warps have left the region by these exits, or wait at these meetings.
    Apart([u32; WARPS]),
    /// Strips of this warp have stopped, or it has at a meeting.
    Stopped {
        /// The warp.
        warp: usize,
        /// The exit or meeting of the other strips.
        exit: u32,
        /// Those of the warps before it.
        exits: [u32; WARPS],
        /// The barrier that the warps after it have passed last, if they have begun.
        passed: Option<u32>,
        /// For each strip where it stopped, if it did.
        stops: [Stop; STRIPS],
    },
}

/// Whether this CPU executes the code.
pub fn is_available() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("f16c")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("popcnt")
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

impl Code {
    /// Generates the code of a region. `starts_same` guesses for a register that the region reads
    /// before it writes it whether the threads of each strip have the same value: code is faster
    /// where they do.
    ///
    /// # Errors
    ///
    /// The region is too large, or the system has no memory that can be executed.
    pub fn generate(region: &Region, starts_same: &dyn Fn(&Register) -> bool) -> io::Result<Code> {
        let generated = generate::generate(region, starts_same);
        let (bytes, groups) = generated.ok_or_else(|| io::Error::other("the region is too large"))?;
        let executable = Executable::new(&bytes)?;
        let of_access = groups.of_access.iter().map(|(group, _)| *group).collect();
        Ok(Code {
            executable,
            bytes,
            groups: groups.all,
            of_access,
            words: words_read(region, &groups.early),
            early: groups.early,
            blocks: region.blocks.len(),
            lane_loops: region.lane_loops(),
            counts_first: generate::is_entered_again(region),
            has_meetings: !region.meetings.is_empty(),
            has_memory_of_lanes: region.has_memory_of_lanes(),
        })
    }

    /// The groups of accesses that are checked together; each has a window.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// The group of each access, in the region's order.
    pub fn group_of(&self) -> &[usize] {
        &self.of_access
    }

    /// The groups that may be checked on entering, for all strips at once: the threads of each
    /// strip access single words at an index that the region does not change.
    pub fn early(&self) -> &[Early] {
        &self.early
    }

    /// Whether the word at this place of the frames has to be there, even if all groups have been
    /// checked on entering.
    pub fn reads_word(&self, place: u32) -> bool {
        self.words.contains(&place)
    }

    /// The number of counters.
    pub fn counters(&self) -> usize {
        2 * self.blocks + 1
    }

    /// The vectors of laps that a warp leaves: for each strip one for each loop that threads leave
    /// one by one. They are zero if the loop was not entered.
    pub fn laps(&self) -> usize {
        STRIPS * self.lane_loops
    }

    /// Whether frames have to tell where each lane's memory is.
    pub fn has_memory_of_lanes(&self) -> bool {
        self.has_memory_of_lanes
    }

    /// The code, for disassemblers.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Executes the region for all threads of some warps.
    ///
    /// # Panics
    ///
    /// If there are no warps or more than [`WARPS`], or other numbers of windows, addresses,
    /// counters and laps than the code has.
    ///
    /// # Safety
    ///
    /// The CPU has what [`is_available`] looks for. Each frame has all places of the region's
    /// registers, and where lanes' memory is if the code asks for it; nobody else accesses them.
    /// What a window allows may be accessed, as its group does, and `helper` may be called with
    /// `user`. `bases` has, for each of the groups of [`early`](Self::early) and each strip, zero
    /// or the host address of its least offset in the first thread: then the threads access
    /// consecutive words from there on, and all that the group's accesses reach may be accessed.
    pub unsafe fn run(
        &self,
        frames: &[Frame],
        windows: &mut [Window],
        bases: &[Bases],
        counters: &mut [u64],
        laps: &mut [[u32; 8]],
        (helper, user): (Helper, *mut c_void),
    ) -> Outcome {
        assert_eq!(laps.len(), frames.len() * self.laps());
        assert!(bases.len() == self.early.len() && frames.len() <= WARPS);
        assert!(
            !frames.is_empty() && windows.len() == self.groups.len() && counters.len() == self.counters()
        );
        let mut room = MaybeUninit::<Context>::uninit();
        let context = room.as_mut_ptr();
        // SAFETY: the fields lie in the context. Those that are left out the code writes before
        // anybody reads them. The code is a function of this type; the caller promises the rest.
        let (stopped, apart, warp, exit, exits, passed, stops) = unsafe {
            (&raw mut (*context).helper).write(helper);
            (&raw mut (*context).user).write(user);
            (&raw mut (*context).frames).write(frames.as_ptr());
            (&raw mut (*context).warps).write(frames.len() as u64);
            (&raw mut (*context).warp).write(0);
            (&raw mut (*context).windows).write(windows.as_mut_ptr());
            (&raw mut (*context).bases).write(bases.as_ptr());
            (&raw mut (*context).counters).write(counters.as_mut_ptr());
            (&raw mut (*context).stopped).write(0);
            (&raw mut (*context).apart).write(0);
            (&raw mut (*context).exit).write(0);
            (&raw mut (*context).exits).write([0; WARPS]);
            (&raw mut (*context).passed).write(0);
            (&raw mut (*context).rounds).write(0);
            (&raw mut (*context).laps).write(laps.as_mut_ptr());
            (&raw mut (*context).stops).write([Stop::default(); STRIPS]);
            let code: unsafe extern "sysv64" fn(*mut Context) = std::mem::transmute(self.executable.start());
            code(context);
            let Context { stopped, apart, warp, exit, exits, passed, stops, .. } = &*context;
            (*stopped, *apart, *warp as usize, *exit as u32, *exits, *passed as u32, *stops)
        };
        let exits = if self.has_meetings { exits } else { [exit; WARPS] };
        if !self.counts_first {
            counters[0] += (frames.len() * STRIPS) as u64;
        }
        match (stopped, apart) {
            (0, 0) => Outcome::Left(exit),
            (0, _) => Outcome::Apart(exits),
            _ => Outcome::Stopped { warp, exit, exits, passed: passed.checked_sub(1), stops },
        }
    }
}
