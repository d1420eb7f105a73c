//! The defects of a launch. Defects with one cause are reported as one.
//!
//! Unrolled code repeats a mistake at many places. Defects of one kind are therefore grouped if
//! they share source lines or, where the PTX names none, the variable; races also if they follow
//! the same barrier, because one more barrier would correct them all. A group is reported with its
//! first place and the number of its places.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

use apex_counts::{Defect, Place};

use crate::memory::shadow::Shadow;
use crate::observe::StepId;
use crate::observe::site::Sites;

/// A defect: its kind, its place, and the place that it has to do with.
type Key = (&'static str, StepId, Option<StepId>);

/// The cause that defects of one kind share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Link {
    /// The last barrier of the whole block before it; none at the start of a kernel.
    Barrier(Option<StepId>),
    /// The variable or allocation.
    Variable(String),
}

/// A defect at its places.
pub(super) struct PlacedDefect {
    text: String,
    count: u64,
    links: Vec<Link>,
    bytes: Vec<CopiedByte>,
}

impl PlacedDefect {
    /// Keeps a byte whose reading makes it a defect.
    pub(super) fn hold(&mut self, byte: CopiedByte) {
        if self.bytes.len() < MAX_BYTES {
            self.bytes.push(byte);
        }
    }
}

/// Copied bytes that are kept of a latent defect at most.
const MAX_BYTES: usize = 256;

/// A byte of device memory into which a kernel copied what nobody had written.
#[derive(Clone, Debug)]
pub struct CopiedByte {
    shadow: Weak<Shadow>,
    address: u64,
}

impl CopiedByte {
    /// The byte at an address of the memory that `shadow` describes.
    pub fn new(shadow: &Arc<Shadow>, address: u64) -> CopiedByte {
        CopiedByte { shadow: Arc::downgrade(shadow), address }
    }

    /// Whether its memory exists and nobody has written the byte since.
    fn is_undefined(&self) -> bool {
        self.shadow.upgrade().is_some_and(|shadow| !shadow.is_written(self.address, 1))
    }
}

/// A store that copied what nobody had written: a defect once the host reads it.
#[derive(Clone, Debug)]
pub struct LatentDefect {
    /// The defect.
    pub group: Group,
    bytes: Vec<CopiedByte>,
}

impl LatentDefect {
    /// Whether the `bytes` bytes from `address` have some of what was copied, still undefined.
    pub fn is_in(&self, address: u64, bytes: u64) -> bool {
        let inside = |byte: &&CopiedByte| byte.address.wrapping_sub(address) < bytes;
        self.bytes.iter().filter(inside).any(CopiedByte::is_undefined)
    }

    /// Follows a copy of `bytes` bytes from `source` to `address`, which has the shadow `shadow`.
    pub fn follow(&mut self, shadow: &Arc<Shadow>, address: u64, source: u64, bytes: u64) {
        let offset = |byte: &CopiedByte| byte.address.wrapping_sub(source);
        let copied = self.bytes.iter().filter(|byte| offset(byte) < bytes && byte.is_undefined());
        let copied: Vec<_> =
            copied.map(|byte| CopiedByte::new(shadow, address.wrapping_add(offset(byte)))).collect();
        self.add(copied);
    }

    /// The same defect was met again.
    pub fn absorb(&mut self, other: LatentDefect) {
        self.group.defect.count = self.group.defect.count.saturating_add(other.group.defect.count);
        self.add(other.bytes);
    }

    /// Keeps more bytes; the oldest make room.
    fn add(&mut self, bytes: Vec<CopiedByte>) {
        self.bytes.retain(CopiedByte::is_undefined);
        self.bytes.extend(bytes);
        let surplus = self.bytes.len().saturating_sub(4 * MAX_BYTES);
        self.bytes.drain(..surplus);
    }
}

/// Defects by what they are and where.
#[derive(Default)]
pub(super) struct Defects {
    found: BTreeMap<Key, PlacedDefect>,
}

/// A defect of a launch, and all places at which it was met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The defect, at the first of the places.
    pub defect: Defect,
    /// Its places, each with the other place that it has to do with.
    pub places: Vec<(Place, Option<Place>)>,
}

impl Defects {
    /// Counts a defect; `describe` says it in words, and what it is connected by.
    pub(super) fn note(
        &mut self,
        kind: &'static str,
        place: StepId,
        other: Option<StepId>,
        times: u64,
        describe: impl FnOnce() -> (String, Vec<Link>),
    ) -> &mut PlacedDefect {
        let found = self.found.entry((kind, place, other)).or_insert_with(|| {
            let (text, links) = describe();
            PlacedDefect { text, count: 0, links, bytes: Vec::new() }
        });
        found.count += times;
        found
    }

    /// Adds what another worker has found.
    pub(super) fn absorb(&mut self, other: Defects) {
        for (key, found) in other.found {
            match self.found.get_mut(&key) {
                Some(known) => {
                    known.count += found.count;
                    found.bytes.into_iter().for_each(|byte| known.hold(byte));
                }
                None => {
                    self.found.insert(key, found);
                }
            }
        }
    }

    /// The defects, grouped.
    pub(super) fn finish(self, kernel: &str, sites: &Sites) -> Vec<Group> {
        self.finish_latent(kernel, sites).into_iter().map(|latent| latent.group).collect()
    }

    /// The same, with the bytes that make each a defect once the host reads them.
    pub(super) fn finish_latent(self, kernel: &str, sites: &Sites) -> Vec<LatentDefect> {
        let mut groups: Vec<LatentDefect> = Vec::new();
        // The group that has a name, by kind and name; groups that turn out to be one are emptied
        // into the first.
        let mut named: HashMap<(&'static str, Name), usize> = HashMap::new();
        for ((kind, place, other), found) in self.found {
            let at = |(function, pc)| sites.place(function, pc);
            let places = (at(place), other.map(at));
            let names = names(&found.links, &places, &at);
            let mut members: Vec<usize> =
                names.iter().filter_map(|name| named.get(&(kind, name.clone())).copied()).collect();
            members.sort_unstable();
            members.dedup();
            let target = members.first().copied().unwrap_or(groups.len());
            if members.is_empty() {
                let (place, other) = places.clone();
                let (kind, kernel) = (kind.to_owned(), kernel.to_owned());
                let defect = Defect { kind, kernel, text: found.text, place, other, count: 0, places: 0 };
                groups.push(LatentDefect { group: Group { defect, places: Vec::new() }, bytes: Vec::new() });
            }
            for &member in members.iter().skip(1) {
                let LatentDefect { group: Group { defect, places }, bytes } = &mut groups[member];
                let (count, mut more) = (std::mem::take(&mut defect.count), std::mem::take(places));
                let mut bytes = std::mem::take(bytes);
                groups[target].group.defect.count += count;
                groups[target].group.places.append(&mut more);
                groups[target].bytes.append(&mut bytes);
                named.values_mut().filter(|group| **group == member).for_each(|group| *group = target);
            }
            groups[target].group.defect.count += found.count;
            groups[target].group.places.push(places);
            groups[target].bytes.extend(found.bytes);
            named.extend(names.into_iter().map(|name| ((kind, name), target)));
        }
        groups.retain(|latent| !latent.group.places.is_empty());
        for LatentDefect { group, .. } in &mut groups {
            group.defect.places = group.places.len() as u64;
        }
        groups
    }
}

/// Something that all members of a group may share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Name {
    Link(Link),
    /// The source line of a barrier.
    BarrierLine(String, u32),
    /// The source lines of the places.
    Lines(Vec<(String, u32)>),
}

fn names(links: &[Link], places: &(Place, Option<Place>), at: &impl Fn(StepId) -> Place) -> Vec<Name> {
    let line = |place: &Place| (place.file.clone(), place.line);
    let both = || std::iter::once(&places.0).chain(&places.1);
    let mut lines: Vec<_> = both().filter(|place| !place.file.is_empty()).map(line).collect();
    // Copies of unrolled code meet in either order.
    lines.sort_unstable();
    let lined = lines.len() == both().count();
    let mut names: Vec<Name> = lined.then_some(Name::Lines(lines)).into_iter().collect();
    for link in links {
        match link {
            Link::Variable(_) if lined => {}
            Link::Barrier(Some(barrier)) if !at(*barrier).file.is_empty() => {
                let (file, line) = line(&at(*barrier));
                names.push(Name::BarrierLine(file, line));
            }
            _ => names.push(Name::Link(link.clone())),
        }
    }
    names
}
