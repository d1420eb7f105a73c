//! Memory of which a launch can access what its sets say.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use ptx_access::{Given, Use};
use ptx_exec::{LaunchParams, Linked, Memory, Region, Shadow, launch};

/// Bytes of a buffer.
pub const BUFFER: usize = 32 << 10;
/// Buffers that kernels get as `a`, `b` and `c`.
pub const BUFFERS: usize = 3;

/// Addresses that may be accessed: by the first one of each piece, its end and what is done there.
#[derive(Clone, Debug, Default)]
pub struct Allowed(BTreeMap<u64, (u64, Use)>);

impl Allowed {
    pub fn all(arena: &Arena) -> Allowed {
        let mut all = Allowed::default();
        let start = arena.buffer(0);
        all.add(start..start + (BUFFERS * BUFFER) as u64, Use { read: true, written: true, atomic: true });
        all
    }

    pub fn add(&mut self, range: Range<u64>, access: Use) {
        if range.is_empty() {
            return;
        }
        self.split(range.start);
        self.split(range.end);
        let mut next = range.start;
        let known: Vec<(u64, u64)> =
            self.0.range(range.clone()).map(|(start, (end, _))| (*start, *end)).collect();
        for (start, end) in known.into_iter().chain([(range.end, range.end)]) {
            if next < start {
                self.0.insert(next, (start, access));
            }
            if let Some((_, known)) = self.0.get_mut(&start).filter(|_| start < range.end) {
                known.read |= access.read;
                known.written |= access.written;
                known.atomic |= access.atomic;
            }
            next = end;
        }
    }

    fn split(&mut self, at: u64) {
        let Some((_, around)) = self.0.range_mut(..at).next_back() else { return };
        if around.0 > at {
            let behind = *around;
            around.0 = at;
            self.0.insert(at, behind);
        }
    }

    /// What may be done with all of these bytes.
    fn of(&self, bytes: Range<u64>) -> Option<Region> {
        let (&start, &(end, access)) = self.0.range(..=bytes.start).next_back()?;
        if end <= bytes.start {
            return None;
        }
        if bytes.end <= end {
            return Some(Region { start, end, writable: access.is_written() });
        }
        // Over more than one piece: these bytes alone.
        let rest = self.of(end..bytes.end)?;
        let writable = access.is_written() && rest.writable;
        Some(Region { start: bytes.start, end: bytes.end, writable })
    }

    /// Whether the bytes at each place are written and not read.
    fn unread(&self, arena: &Arena) -> Vec<bool> {
        let first = arena.buffer(0);
        let mut unread = vec![false; BUFFERS * BUFFER];
        let place = |address: u64| (address.saturating_sub(first) as usize).min(unread.len());
        let pieces = self.0.iter().filter(|(_, (_, access))| access.is_written() && !access.is_read());
        let places: Vec<Range<usize>> = pieces.map(|(start, (end, _))| place(*start)..place(*end)).collect();
        places.into_iter().for_each(|places| unread[places].fill(true));
        unread
    }

    /// The bytes with others where nothing is read.
    pub fn with_other_contents(&self, bytes: &[u8], arena: &Arena) -> Vec<u8> {
        let other = |(byte, unread): (&u8, bool)| if unread { byte ^ 0xa5 } else { *byte };
        bytes.iter().zip(self.unread(arena)).map(other).collect()
    }

    /// Whether two runs from contents that differ where nothing is read have left the same: each
    /// byte is the same, or neither run has written it.
    pub fn is_same(&self, arena: &Arena, one: [&[u8]; 2], other: [&[u8]; 2]) -> bool {
        let unread = self.unread(arena);
        (0..unread.len()).all(|at| {
            let is_kept = one[0][at] == one[1][at] && other[0][at] == other[1][at];
            one[1][at] == other[1][at] || unread[at] && is_kept
        })
    }
}

/// Three buffers, at addresses that never change.
pub struct Arena {
    words: Vec<u128>,
    allowed: Allowed,
}

impl Arena {
    pub fn new() -> Arena {
        Arena { words: vec![0; BUFFERS * BUFFER / 16], allowed: Allowed::default() }
    }

    /// The address of a buffer.
    pub fn buffer(&self, index: usize) -> u64 {
        self.words.as_ptr() as u64 + (index * BUFFER) as u64
    }

    /// The address of the buffer around an address.
    pub fn buffer_around(&self, address: u64) -> Option<u64> {
        let index = address.checked_sub(self.buffer(0))? / BUFFER as u64;
        (index < BUFFERS as u64).then(|| self.buffer(index as usize))
    }

    /// What a launch leaves; nothing if it faults.
    pub fn run(
        &mut self,
        bytes: &[u8],
        allowed: Allowed,
        linked: &Linked,
        given: &Given<'_>,
    ) -> Option<Vec<u8>> {
        self.bytes().copy_from_slice(bytes);
        self.allowed = allowed;
        let kernel = linked.program().kernel("k").expect("the kernel is called k");
        let params = LaunchParams {
            config: given.config,
            cooperative: false,
            stack: 1024,
            workers: 1,
            params: given.parameters,
        };
        launch(linked, kernel, &params, &*self, &Arc::default()).ok()?;
        Some(self.bytes().to_vec())
    }

    fn bytes(&mut self) -> &mut [u8] {
        let bytes = self.words.len() * 16;
        // SAFETY: words are as many bytes, of any values, and are borrowed as long.
        unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), bytes) }
    }
}

// SAFETY: the arena lives and stays where it is as long as the launch borrows it, and what is
// allowed lies in it, as its buffers and the ranges in them do.
unsafe impl Memory for Arena {
    fn region(&self, address: u64, bytes: u64) -> Option<Region> {
        let (start, end) = (self.buffer(0), self.buffer(BUFFERS));
        let asked = address..address.checked_add(bytes)?;
        let region = self.allowed.of(asked.clone())?;
        let inside = Region { start: region.start.max(start), end: region.end.min(end), ..region };
        (inside.start <= asked.start && asked.end <= inside.end).then_some(inside)
    }

    fn describe(&self, _: u64) -> String {
        "not in the access sets".to_owned()
    }

    fn malloc(&self, _: u64) -> u64 {
        0
    }

    fn free(&self, _: u64) -> Result<(), String> {
        Err("nothing is allocated".to_owned())
    }

    fn print(&self, _: &[u8]) {}

    fn shadow(&self, _: u64) -> Option<Arc<Shadow>> {
        None
    }
}
