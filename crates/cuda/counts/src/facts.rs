//! Kinds of facts about the cost of a kernel's code.

/// A part of a kernel's code that costs time, by what the code alone says. Each kind says what the
/// share, the cost and the least cost of a fact of it are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum FactKind {
    /// Accesses to global memory that touch more than twice as many sectors as they need. Share of
    /// all such accesses; cost and least: sectors of a request.
    StridedAccesses,
    /// Accesses to shared memory that conflict. Share of all such accesses; cost and least:
    /// wavefronts.
    BankConflicts,
    /// Loads from constant memory at several addresses of a warp. Share of all instructions.
    DivergentConstants,
    /// Integer divisions and remainders of 64 bits by a number that the compiler does not know.
    /// Share of the machine's instructions.
    LongDivisions,
    /// Arithmetic in FP64. Share of floating-point arithmetic; cost: conversions for each
    /// operation; least: operations for each load from global memory.
    Doubles,
    /// The kernel sets up generators of cuRAND that skip ahead.
    GeneratorSetUp,
    /// Calls of `malloc`.
    DeviceHeap,
    /// Stores to global memory, at an address that their loop does not change, in each round. Share
    /// of the accesses to global memory in that loop, loads at the address included.
    SumInMemory,
    /// A matrix product in FP32 without tensor cores: products of two loaded numbers are summed,
    /// each loaded number is used at least twice, and most are in a loop. Share of all
    /// instructions; cost: products in a round of the loop; least: numbers loaded for them.
    ScalarProduct,
    /// Calls of `printf`. Cost: 1 where each thread calls it, but for bounds of indices, and 0
    /// where data, or the number of a lane, decide. Least: instructions of a thread, 0 if there are
    /// loops.
    Printf,
    /// A sum or another reduction through shared memory with a barrier in each step. Share of all
    /// instructions; cost: loads from global memory outside of it for each time that it is made.
    BarrierReduction,
    /// Accesses along a row of each thread's own, which begins where a table says. Share of the
    /// accesses to global memory; cost and least: sectors of a request.
    RowsByThread,
    /// Atomic sums in floating point or 64 bits by all threads at one address. Share of the
    /// accesses to global and shared memory.
    OneTotal,
    /// Loads from global memory in loops that go along a table until a loaded value compares: a
    /// linear search. Share of the accesses to global memory.
    LinearSearch,
    /// Atomic sums in global memory at addresses of which neither data nor the number of a block
    /// chooses any, but for [`Self::OneTotal`]: all blocks add to the same ones. Share likewise.
    SharedSums,
    /// Sums in floating point by a loop of compare-and-swap. Share likewise.
    SumBySwap,
    /// Loops of compare-and-swap that take a lock, by each thread or by one for its block. Share
    /// likewise.
    Lock,
    /// Fences for the whole device in each round of a loop. Share: fences for each access to global
    /// or shared memory.
    FenceInLoop,
    /// Accesses to global memory in loops that one thread of a block executes. Share of the
    /// accesses to global memory.
    OneThread,
    /// Accesses to arrays in local memory at indices that the compiler does not know. Share of the
    /// accesses to global, shared and local memory.
    LocalArray,
    /// Calls by address (virtual functions, pointers to functions) in loops. Share of the
    /// instructions of the kernel and of what it calls by name.
    IndirectCalls,
    /// The path that sine and cosine take for large arguments, in FP32 beyond 105,615 and in FP64
    /// beyond 2^31. Share of the instructions that stand in it.
    ArgumentReduction,
    /// Loads from global memory whose address the round before of their loop has loaded: a linked
    /// list. Share of the accesses to global memory.
    ChainOfLoads,
    /// A matrix product out of global memory without tiles. Share of all instructions: products and
    /// their loads.
    UntiledProduct,
    /// Products of all pairs of loaded numbers in FP32, which shuffles add up across threads: a
    /// matrix product by hand. Share of all instructions; cost: products in a round of the loop;
    /// least: numbers that are their factors.
    ProductAcrossThreads,
    /// `powf`: a logarithm and an exponential in FP32 with extended precision. Share of all
    /// instructions, about.
    Powers,
    /// Products on tensor cores in a loop that also loads from global memory into registers, in a
    /// kernel without asynchronous copies: each round waits for its loads. Share of the loop's
    /// instructions among all.
    UnstagedProduct,
    /// Accesses to global memory of one byte for each thread, side by side. Share of all such
    /// accesses; cost: sectors of a request, of which a warp could have 16.
    NarrowAccesses,
}
