//! Memory that machine code and its user share while it runs.

use crate::region::LATER;

/// The registers of a warp: the start of each file of its frame.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// Words, 32 for each place.
    pub words: *mut u32,
    /// Longs, 32 for each place.
    pub longs: *mut u64,
    /// Predicates, 32 bits for each place.
    pub predicates: *mut u32,
    /// The starts of the memory of each of the 32 lanes, if the region accesses that.
    pub lanes: *const u64,
}

/// The range of addresses in which a group of accesses is known to be allowed. The code adds
/// nothing to an address before it compares.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// The least address.
    pub start: u64,
    /// The number of addresses, from `start` on, at which eight threads may access consecutive
    /// words or longs, by the address of the first.
    pub consecutive: u64,
    /// The number of addresses that one thread may access.
    pub single: u64,
    /// Translation of an address to one of the host.
    pub bias: u64,
}

impl Window {
    /// The window of a group in the host's memory from `start` to `end`: `bias` makes an address of
    /// the group a host address, before the offset of an access is added.
    pub fn new(start: u64, end: u64, bias: u64, group: &Group) -> Window {
        let least = bias.wrapping_add(group.least as u64);
        let room = |bytes: u64| (end - start).checked_sub(bytes).map_or(0, |room| room + 1);
        let bytes = (group.most - group.least) as u64 + group.bytes;
        Window {
            start: start.wrapping_sub(least),
            // An allocation of half the address space is none.
            consecutive: room(bytes + 7 * group.bytes).min(i64::MAX as u64),
            single: room(bytes).min(i64::MAX as u64),
            bias: least,
        }
    }
}

/// Accesses that are checked together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// The least offset.
    pub least: i64,
    /// The largest offset.
    pub most: i64,
    /// The bytes that each accesses.
    pub bytes: u64,
    /// Whether any of them stores.
    pub store: bool,
}

/// A group whose addresses are known on entering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Early {
    /// The group.
    pub group: usize,
    /// Its first access, in the region's order.
    pub access: usize,
}

/// The place at which a strip left the code before its end.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stop {
    /// Whether it did.
    pub stopped: u32,
    /// The site of the access, or [`LOOP`] and the block that was to be entered.
    pub site: u32,
    /// The backward jumps until then: those in `left` count down.
    pub left: u64,
    /// Number of times that they had been counted down to zero.
    pub rounds: u64,
    /// The threads that stopped here, as bits, and those that continue at each of the later blocks
    /// of a [`Mask`](crate::Mask).
    pub masks: [u8; 1 + LATER],
}

impl Stop {
    /// The order in which strips stopped, by the instructions of a thread.
    pub fn time(&self) -> u64 {
        self.rounds * JUMPS + (JUMPS - self.left)
    }
}

/// In the site of a call or stop: a loop, of which the user is asked whether it may go on.
pub const LOOP: u32 = 1 << 31;

/// In the site of a call: the meeting whose step is to be executed for the warp. A result other
/// than zero stops the warp before it.
pub const MEETING: u32 = 1 << 30;

/// Backward jumps until the user is asked, and meetings.
pub const JUMPS: u64 = 1 << 14;

/// Strips of a warp.
pub const STRIPS: usize = 4;

/// Most warps that enter together.
pub const WARPS: usize = 8;

/// The host addresses of a group in the first thread of each strip: zero where nothing is known.
pub type Bases = [u64; WARPS * STRIPS];

/// State that the code reads and writes beside registers and memory.
#[repr(C)]
pub struct Context {
    /// Performs the access of a site in the threads of a mask, or says that it cannot.
    pub(crate) helper: unsafe extern "sysv64" fn(*mut Context, u32, u32) -> u32,
    /// The user's.
    pub user: *mut std::ffi::c_void,
    /// The warps' frames.
    pub(crate) frames: *const Frame,
    /// The number of warps.
    pub(crate) warps: u64,
    /// The warp that is executed.
    pub warp: u64,
    /// The windows of the groups.
    pub(crate) windows: *mut Window,
    /// Counters: see [`Code`](crate::Code).
    pub(crate) counters: *mut u64,
    /// Whether a strip of the warp has stopped.
    pub(crate) stopped: u32,
    /// Whether warps have left the region or meet at different places.
    pub(crate) apart: u32,
    /// The exit that the last strip took, or the number of exits and the meeting at which it is.
    pub(crate) exit: u64,
    /// Rounds of the strip's backward jumps.
    pub(crate) rounds: u64,
    /// Where the laps of the strip's loops go.
    pub(crate) laps: *mut [u32; 8],
    /// The addresses of the groups that may be known on entering.
    pub(crate) bases: *const Bases,
    /// The barrier that all warps have passed last, plus one.
    pub(crate) passed: u64,
    /// The exits of the warps that are done, as [`exit`](Self::exit) tells them.
    pub(crate) exits: [u32; WARPS],
    /// The register of the address, of the strip that calls.
    pub address: [u64; 8],
    /// Words to be stored, or that were loaded: those of each element follow each other. Longs take
    /// two rows.
    pub data: [[u32; 8]; 8],
    /// The starts of the lanes' memory, where an access is to that.
    pub lanes: [u64; 8],
    /// Where each strip stopped.
    pub stops: [Stop; STRIPS],
}

pub(crate) mod at {
    use super::{Context, Stop};
    use std::mem::offset_of;

    pub(crate) const HELPER: i32 = offset_of!(Context, helper) as i32;
    pub(crate) const FRAMES: i32 = offset_of!(Context, frames) as i32;
    pub(crate) const WARPS: i32 = offset_of!(Context, warps) as i32;
    pub(crate) const WARP: i32 = offset_of!(Context, warp) as i32;
    pub(crate) const WINDOWS: i32 = offset_of!(Context, windows) as i32;
    pub(crate) const COUNTERS: i32 = offset_of!(Context, counters) as i32;
    pub(crate) const STOPPED: i32 = offset_of!(Context, stopped) as i32;
    pub(crate) const APART: i32 = offset_of!(Context, apart) as i32;
    pub(crate) const PASSED: i32 = offset_of!(Context, passed) as i32;
    pub(crate) const EXITS: i32 = offset_of!(Context, exits) as i32;
    pub(crate) const EXIT: i32 = offset_of!(Context, exit) as i32;
    pub(crate) const ROUNDS: i32 = offset_of!(Context, rounds) as i32;
    pub(crate) const BASES: i32 = offset_of!(Context, bases) as i32;
    pub(crate) const LAPS: i32 = offset_of!(Context, laps) as i32;
    pub(crate) const ADDRESS: i32 = offset_of!(Context, address) as i32;
    pub(crate) const DATA: i32 = offset_of!(Context, data) as i32;
    pub(crate) const LANES: i32 = offset_of!(Context, lanes) as i32;
    pub(crate) const STOPS: i32 = offset_of!(Context, stops) as i32;
    /// In a stop.
    pub(crate) const MASKS: i32 = offset_of!(Stop, masks) as i32;
}
