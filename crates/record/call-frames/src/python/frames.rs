//! Walks the frames of a thread.

use super::Interpreter;
use super::code::{HEAD_BYTES, Head};
use super::layout::{Innermost, Instruction, MOST_OFFSET};
use crate::memory::{Memory, PIECES, half_at, word_at};

/// Most frames of a stack that are kept, the innermost ones.
pub const MOST: usize = 64;

/// Steps from frame to frame for each frame that is kept: frames that are not Python's lie between.
const STEPS: usize = 4;

/// Bytes of a frame that are read; all offsets lie within.
const FRAME_BYTES: u64 = MOST_OFFSET as u64;
/// Bytes that are read at once where frames follow each other in memory: some twenty frames.
const WINDOW_BYTES: usize = 4096;

/// A frame.
#[derive(Clone, Copy, Default)]
pub struct Frame {
    /// The frame's address.
    pub address: u64,
    /// Address of its code object.
    pub code: u64,
    /// The instruction that it executes, bytes after the first.
    pub offset: i32,
    /// The fields of its code object.
    pub head: Head,
}

/// The frames of a stack, the innermost `N` of them, innermost first.
pub struct Frames<const N: usize = MOST> {
    frames: [Frame; N],
    count: usize,
    /// Whether there are more.
    pub is_cut: bool,
}

impl<const N: usize> Default for Frames<N> {
    fn default() -> Self {
        Frames { frames: [Frame::default(); N], count: 0, is_cut: false }
    }
}

impl<const N: usize> Frames<N> {
    /// Keeps the outermost frames only.
    pub fn keep_outermost(&mut self, count: usize) {
        let inner = self.count.saturating_sub(count);
        self.frames.copy_within(inner..self.count, 0);
        self.count -= inner;
    }

    /// Returns the frames that were found.
    pub fn found(&self) -> &[Frame] {
        &self.frames[..self.count]
    }
}

/// A stretch of the interpreter's memory, read at once: frames lie next to each other, the caller's
/// below the callee's.
struct Window {
    bytes: [u8; WINDOW_BYTES],
    start: u64,
    length: usize,
}

impl Window {
    /// Returns the bytes of the frame at `address`.
    fn frame(&mut self, memory: &Memory, address: u64) -> Option<&[u8]> {
        let is_inside = |window: &Window| {
            let end = window.start + window.length as u64;
            address >= window.start && address.checked_add(FRAME_BYTES).is_some_and(|last| last <= end)
        };
        if !is_inside(self) {
            // Up to the end of this frame; where memory begins only after that, the frame alone.
            let end = address.checked_add(FRAME_BYTES)?;
            self.start = end.saturating_sub(WINDOW_BYTES as u64);
            self.length = WINDOW_BYTES;
            if !memory.read(self.start, &mut self.bytes) {
                self.start = address;
                self.length = memory.read_some(address, &mut self.bytes[..FRAME_BYTES as usize]);
            }
        }
        self.bytes.get((address - self.start) as usize..self.length)
    }
}

impl Interpreter {
    /// The frames of the thread with the state at this address, without heads. What is no code
    /// object is still among them, until [`Interpreter::keep_code_objects`].
    pub fn walk<const N: usize>(&self, state: u64, found: &mut Frames<N>) {
        (found.count, found.is_cut) = (0, false);
        self.walk_from(self.innermost(state).unwrap_or(0), found);
    }

    fn innermost(&self, state: u64) -> Option<u64> {
        let at = |address: u64, offset: usize| self.memory.word(address.checked_add(offset as u64)?);
        match self.layout.innermost {
            Innermost::At(offset) => at(state, offset),
            Innermost::Through(outer, inner) => at(at(state, outer)?, inner),
        }
    }

    /// Notes what each frame from `frame` outwards executes.
    fn walk_from<const N: usize>(&self, mut frame: u64, found: &mut Frames<N>) {
        let layout = &self.layout;
        let mut window = Window { bytes: [0; WINDOW_BYTES], start: 0, length: 0 };
        for _ in 0..STEPS * N {
            if frame == 0 {
                return;
            }
            let Some(bytes) = window.frame(&self.memory, frame) else { return };
            // In 3.14 the lowest bits tell how the reference is counted.
            let code = word_at(bytes, layout.executable) & !3;
            let is_pythons =
                layout.owner.is_none_or(|owner| bytes.get(owner).is_some_and(|&owner| owner < 3));
            if is_pythons && code != 0 {
                let Some(place) = found.frames.get_mut(found.count) else { break };
                let offset = offset(bytes, code, layout.instruction);
                *place = Frame { address: frame, code, offset, ..Frame::default() };
                found.count += 1;
            }
            frame = word_at(bytes, layout.previous);
        }
        found.is_cut = true;
    }

    /// Reads what the code objects say, each once, and leaves out frames whose code is none.
    pub fn keep_code_objects<const N: usize>(&self, found: &mut Frames<N>) {
        let (mut kept, mut at) = (0, 0);
        while at < found.count {
            let (mut codes, mut heads) = ([0; PIECES], [[0; HEAD_BYTES]; PIECES]);
            let mut distinct = 0;
            let end = (at..found.count).find(|&at| {
                let code = found.frames[at].code;
                let is_new = !codes[..distinct].contains(&code);
                if is_new && distinct < PIECES {
                    codes[distinct] = code;
                    distinct += 1;
                    return false;
                }
                is_new
            });
            let end = end.unwrap_or(found.count);
            if !self.memory.read_all(&codes[..distinct], &mut heads) {
                break;
            }
            for at in at..end {
                let frame = found.frames[at];
                let head = codes[..distinct].iter().zip(&heads).find(|(code, _)| **code == frame.code);
                if let Some(head) = head.and_then(|(_, bytes)| self.head(bytes)) {
                    found.frames[kept] = Frame { head, ..frame };
                    kept += 1;
                }
            }
            at = end;
        }
        found.count = kept;
    }
}

/// The instruction that a frame executes.
fn offset(frame: &[u8], code: u64, instruction: Instruction) -> i32 {
    match instruction {
        Instruction::Bytes(at) => half_at(frame, at) as i32,
        Instruction::Number(at) => (half_at(frame, at) as i32).saturating_mul(2),
        Instruction::Address(at, first) => {
            let after = word_at(frame, at).wrapping_sub(code).wrapping_sub(first) as i64;
            i32::try_from(after).unwrap_or(i32::MAX)
        }
    }
}
