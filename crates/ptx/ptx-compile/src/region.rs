//! A region: the part of a function that becomes machine code.
//!
//! Its registers are variables of one thread. Each has a place in the frame of its warp, where it is
//! found when the region is entered and put when the region is left.

use ptx_lower::Meaning;

/// A register of a region, by index into [`Region::registers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reg(pub u32);

/// The kind of values that a register holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// 32 bits.
    Word,
    /// 64 bits.
    Long,
    /// One bit.
    Predicate,
}

/// A register and its place in the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register {
    /// The kind of its values.
    pub class: Class,
    /// The index of its place in the frame's file of the class.
    pub place: u32,
}

/// The threads that act: those in which a predicate is true, or false.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Guard {
    /// The predicate.
    pub predicate: Reg,
    /// Whether those act in which it is false.
    pub negated: bool,
}

/// An address, before the offset and the start of its space are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A word without a sign.
    Word(Reg),
    /// A long.
    Long(Reg),
    /// A word, shifted; what is to be added is the same in all threads.
    Indexed {
        /// The word.
        index: Reg,
        /// Whether it has a sign.
        signed: bool,
        /// Bits by which it is shifted to the left.
        shift: u8,
    },
}

impl Address {
    /// The register.
    pub fn register(self) -> Reg {
        match self {
            Address::Word(reg) | Address::Long(reg) | Address::Indexed { index: reg, .. } => reg,
        }
    }
}

/// An element of memory, and the register that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Element {
    /// A byte or two, in the lowest bits of a word. A load extends them.
    Narrow {
        /// One or two.
        bytes: u8,
        /// Whether a load extends them by their sign.
        signed: bool,
    },
    /// Four bytes: a word.
    Word,
    /// Eight bytes: a long.
    Long,
}

impl Element {
    /// Its bytes.
    pub fn bytes(self) -> i64 {
        match self {
            Element::Narrow { bytes, .. } => bytes.into(),
            Element::Word => 4,
            Element::Long => 8,
        }
    }
}

/// An access to memory: of one element, or of several that follow each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The number by which the region's user knows it.
    pub site: u32,
    /// Accesses with different keys have different windows.
    pub key: u64,
    /// The address.
    pub address: Address,
    /// Added to the address.
    pub offset: i64,
    /// The registers that are loaded or stored.
    pub data: Vec<Reg>,
    /// What each of them has of memory.
    pub element: Element,
    /// Whether it stores.
    pub store: bool,
    /// Whether each lane accesses memory of its own, whose start is added to the address:
    /// [`Frame::lanes`](crate::Frame::lanes).
    pub of_lane: bool,
}

impl Access {
    /// The bytes that a thread accesses.
    pub fn bytes(&self) -> i64 {
        self.element.bytes() * self.data.len() as i64
    }
}

/// The operation of an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Computes a register of others.
    Compute {
        /// The meaning, which [`supports`](crate::supports) knows.
        meaning: Meaning,
        /// The result.
        d: Reg,
        /// The sources.
        sources: Vec<Reg>,
    },
    /// Accesses memory.
    Access(Access),
}

/// An instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// The threads that act; all if there is none.
    pub guard: Option<Guard>,
    /// The operation.
    pub operation: Operation,
}

impl Instruction {
    /// The registers that it reads, that of the guard included. A guarded instruction reads what it
    /// writes in part.
    pub fn uses(&self) -> Vec<Reg> {
        let mut uses: Vec<Reg> = self.guard.iter().map(|guard| guard.predicate).collect();
        match &self.operation {
            Operation::Compute { sources, .. } => uses.extend(sources),
            Operation::Access(access) => {
                uses.push(access.address.register());
                uses.extend(access.data.iter().filter(|_| access.store));
            }
        }
        if self.guard.is_some() {
            uses.extend(self.definitions());
        }
        uses
    }

    /// The registers that it writes.
    pub fn definitions(&self) -> Vec<Reg> {
        match &self.operation {
            Operation::Compute { d, .. } => vec![*d],
            Operation::Access(access) if !access.store => access.data.clone(),
            Operation::Access(_) => Vec::new(),
        }
    }
}

/// The place at which execution goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A block of the region.
    Block(u32),
    /// Outside, by index into [`Region::exits`].
    Exit(u32),
}

/// What is done at a place where strips meet: those of a warp have all come, with their registers
/// in the frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meeting {
    /// Nothing is done, but all warps have to come before any goes on.
    Barrier,
    /// The user executes a step for the warp: see [`MEETING`](crate::MEETING).
    Step {
        /// The registers that it reads.
        uses: Vec<Reg>,
        /// The registers that it writes.
        definitions: Vec<Reg>,
    },
    /// Each lane takes a word of a lane that is known beforehand.
    Shuffle {
        /// The result.
        d: Reg,
        /// A predicate, which becomes `inside`.
        valid: Option<Reg>,
        /// The words.
        a: Reg,
        /// The lane that each lane reads.
        from: [u8; 32],
        /// The lanes whose `valid` becomes true, as bits.
        inside: u32,
    },
    /// The warp goes one of two ways if all its threads take the same, else it stops.
    Branch(Guard),
}

impl Meeting {
    /// The registers that it reads.
    pub fn uses(&self) -> Vec<Reg> {
        match self {
            Meeting::Barrier => Vec::new(),
            Meeting::Step { uses, .. } => uses.clone(),
            Meeting::Shuffle { a, .. } => vec![*a],
            Meeting::Branch(guard) => vec![guard.predicate],
        }
    }

    /// The registers that it writes.
    pub fn definitions(&self) -> Vec<Reg> {
        match self {
            Meeting::Barrier | Meeting::Branch(_) => Vec::new(),
            Meeting::Step { definitions, .. } => definitions.clone(),
            Meeting::Shuffle { d, valid, .. } => [*d].into_iter().chain(*valid).collect(),
        }
    }
}

/// The end of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Goes on there.
    Jump(Target),
    /// Goes to `taken` if the guard lets all threads act, to `next` if it lets none. There is no
    /// third case, because the caller checks that on entry; except that a negated guard which lets
    /// only some threads act leads to `next`, a block whose [`Mask`] is the predicate.
    Branch {
        /// The condition.
        guard: Guard,
        /// Target if the condition holds.
        taken: Target,
        /// Target if the condition does not hold.
        next: Target,
    },
    /// Waits until the other strips have come too.
    Meet {
        /// What is done then, by index into [`Region::meetings`].
        meeting: u32,
        /// Target of a [`Meeting::Branch`] if its guard lets all threads act.
        taken: Option<Target>,
        /// Target otherwise.
        next: Target,
    },
}

impl Default for End {
    fn default() -> End {
        End::Jump(Target::Exit(0))
    }
}

impl End {
    /// Returns the possible targets.
    pub fn targets(self) -> Vec<Target> {
        match self {
            End::Jump(target) => vec![target],
            End::Branch { taken, next, .. } => vec![taken, next],
            End::Meet { taken, next, .. } => taken.into_iter().chain([next]).collect(),
        }
    }
}

/// A loop of one block that threads leave one by one. A thread that has left goes on computing until
/// all have, with a guard on accesses and on what is needed afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneLoop {
    /// A predicate of its own: the threads that have not left.
    pub mask: Reg,
    /// A word of its own: how often each thread has executed the block.
    pub laps: Reg,
    /// The number of the loop.
    pub index: u32,
}

/// Which threads are in a block, while others wait for them at later blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mask {
    /// A predicate of its own: the threads in the block. It guards operations that other threads
    /// must not do.
    pub here: Reg,
    /// Predicates of its own, at most [`LATER`]: the threads that continue at each later block. All
    /// other threads wait where the threads reconverge.
    pub later: Vec<Reg>,
}

/// Maximum number of blocks at which threads of a strip wait for others.
pub const LATER: usize = 7;

/// A basic block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// The loop that the block is, if threads leave it one by one; it ends with a branch to itself,
    /// which the remaining threads take.
    pub lane_loop: Option<LaneLoop>,
    /// The threads in the block, if others may have gone another way.
    pub mask: Option<Mask>,
    /// The threads that are counted at the end: those that a branch diverts.
    pub counted: Option<Guard>,
    /// The instructions.
    pub instructions: Vec<Instruction>,
    /// Its last step: the blocks that may follow.
    pub end: End,
}

impl Block {
    /// The number of its accesses.
    pub(crate) fn accesses(&self) -> usize {
        let is_access = |one: &&Instruction| matches!(one.operation, Operation::Access(_));
        self.instructions.iter().filter(is_access).count()
    }
}

/// A region. It is entered at its first block; a jump to a block that is not further on is a loop.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Region {
    /// The registers.
    pub registers: Vec<Register>,
    /// The blocks.
    pub blocks: Vec<Block>,
    /// For each exit the registers that are needed after it.
    pub exits: Vec<Vec<Reg>>,
    /// What is done where strips meet. Each is at the end of one block, which has no instructions
    /// and no [`Mask`].
    pub meetings: Vec<Meeting>,
}

impl Region {
    /// The registers that the region writes.
    pub fn definitions(&self) -> impl Iterator<Item = Reg> {
        let instructions = self.blocks.iter().flat_map(|block| &block.instructions);
        let of_meetings = self.meetings.iter().flat_map(Meeting::definitions);
        instructions.flat_map(Instruction::definitions).chain(of_meetings)
    }

    /// What is done at the end of a block, if strips meet there.
    pub(crate) fn meeting(&self, block: usize) -> Option<&Meeting> {
        match self.blocks[block].end {
            End::Meet { meeting, .. } => Some(&self.meetings[meeting as usize]),
            _ => None,
        }
    }

    /// Whether lanes access memory of their own.
    pub(crate) fn has_memory_of_lanes(&self) -> bool {
        let mut instructions = self.blocks.iter().flat_map(|block| &block.instructions);
        instructions.any(|one| matches!(&one.operation, Operation::Access(access) if access.of_lane))
    }

    /// The number of loops that threads leave one by one.
    pub fn lane_loops(&self) -> usize {
        self.blocks.iter().filter(|block| block.lane_loop.is_some()).count()
    }
}
