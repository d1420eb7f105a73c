//! Directories of blocks in the order of their keys, written as they come: up to [`FANOUT`] entries
//! make a directory, which is an entry of a directory above.
//!
//! Memory is bounded by the depth while it is written, and while it is read.

use serde::{Deserialize, Serialize};

use crate::file::{Damaged, Place, Sink, Source};
use crate::leb128::{Taker, put};

/// Entries of a directory.
const FANOUT: usize = 256;
/// Directories above each other: 256⁸ blocks are more than a file can hold.
const MOST_DEPTH: u32 = 8;

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: u64,
    place: Place,
}

/// The position of a tree's blocks.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Root {
    place: Place,
    depth: u32,
}

/// A tree that is being written.
#[derive(Default)]
pub struct TreeWriter {
    levels: Vec<Vec<Entry>>,
}

impl TreeWriter {
    /// Adds a block. Keys do not descend.
    pub fn push(&mut self, sink: &mut Sink, key: u64, place: Place) {
        self.push_at(sink, 0, Entry { key, place });
    }

    fn push_at(&mut self, sink: &mut Sink, level: usize, entry: Entry) {
        if level == self.levels.len() {
            self.levels.push(Vec::new());
        }
        self.levels[level].push(entry);
        if self.levels[level].len() == FANOUT {
            self.close(sink, level);
        }
    }

    fn close(&mut self, sink: &mut Sink, level: usize) {
        let entries = std::mem::take(&mut self.levels[level]);
        let Some(first) = entries.first() else { return };
        let place = sink.block(&encode(&entries));
        self.push_at(sink, level + 1, Entry { key: first.key, place });
    }

    /// Ends the tree; `None` if it has no blocks.
    pub fn finish(mut self, sink: &mut Sink) -> Option<Root> {
        let mut level = 0;
        while level < self.levels.len() {
            let is_top = level + 1 == self.levels.len();
            if let (true, 1.., [only]) = (is_top, level, &self.levels[level][..]) {
                return Some(Root { place: only.place, depth: level as u32 });
            }
            self.close(sink, level);
            level += 1;
        }
        None
    }
}

fn encode(entries: &[Entry]) -> Vec<u8> {
    let mut out = Vec::new();
    let (mut key, mut end) = (0, 0u64);
    for entry in entries {
        put(&mut out, entry.key - key);
        crate::leb128::put_signed(&mut out, entry.place.offset.wrapping_sub(end).cast_signed());
        put(&mut out, entry.place.bytes.into());
        key = entry.key;
        end = entry.place.offset + u64::from(entry.place.bytes);
    }
    out
}

fn decode(bytes: &[u8]) -> Option<Vec<Entry>> {
    let mut taker = Taker(bytes);
    let mut entries = Vec::new();
    let (mut key, mut end) = (0u64, 0u64);
    while !taker.0.is_empty() {
        key = key.checked_add(taker.number()?)?;
        let offset = end.wrapping_add(taker.signed()?.cast_unsigned());
        let place = Place { offset, bytes: taker.small()? };
        end = offset.checked_add(place.bytes.into())?;
        entries.push(Entry { key, place });
    }
    (!entries.is_empty() && entries.len() <= FANOUT).then_some(entries)
}

/// Goes through the blocks of a tree.
pub struct Cursor<'s> {
    source: &'s Source,
    root: Option<Root>,
    /// Open directories from the root down, each with the place of its next entry.
    open: Vec<(Vec<Entry>, usize)>,
}

impl<'s> Cursor<'s> {
    /// Before the first block.
    pub fn new(source: &'s Source, root: Option<Root>) -> Self {
        Self { source, root, open: Vec::new() }
    }

    fn directory(&self, place: Place) -> Result<Vec<Entry>, Damaged> {
        decode(&self.source.block(place)?).ok_or(Damaged)
    }

    /// Goes to the last block of a lesser key than this, so that [`Self::next`] gives it, or to the
    /// first one if there is none.
    ///
    /// # Errors
    /// If the file is damaged.
    pub fn seek(&mut self, key: u64) -> Result<(), Damaged> {
        if let Some((entries, at)) = self.open.last_mut()
            && entries.first().is_some_and(|first| first.key < key)
            && entries.last().is_some_and(|last| last.key >= key)
        {
            *at = entries.partition_point(|entry| entry.key < key) - 1;
            return Ok(());
        }
        self.open.clear();
        let Some(root) = self.root.filter(|root| (1..=MOST_DEPTH).contains(&root.depth)) else {
            return if self.root.is_none() { Ok(()) } else { Err(Damaged) };
        };
        let mut place = root.place;
        for depth in (0..root.depth).rev() {
            let entries = self.directory(place)?;
            let at = entries.partition_point(|entry| entry.key < key).saturating_sub(1);
            place = entries[at].place;
            self.open.push((entries, at + usize::from(depth > 0)));
        }
        Ok(())
    }

    /// The key of the block that [`Self::next`] gives, where its directory is open.
    pub fn peek(&self) -> Option<u64> {
        let (entries, at) = self.open.last()?;
        entries.get(*at).map(|entry| entry.key)
    }

    /// The next block.
    ///
    /// # Errors
    /// If the file is damaged.
    pub fn next(&mut self) -> Result<Option<Vec<u8>>, Damaged> {
        let depth = self.root.map_or(0, |root| root.depth as usize);
        loop {
            let Some((entries, at)) = self.open.last_mut() else { return Ok(None) };
            let Some(entry) = entries.get(*at).copied() else {
                if self.open.iter().all(|(entries, at)| *at >= entries.len()) {
                    return Ok(None);
                }
                self.open.pop();
                continue;
            };
            *at += 1;
            if self.open.len() == depth {
                return self.source.block(entry.place).map(Some);
            }
            let below = self.directory(entry.place)?;
            self.open.push((below, 0));
        }
    }
}
