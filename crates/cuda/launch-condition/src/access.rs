//! The memory that launches of a kernel access, in a form that can be serialised: an analysis of
//! the PTX computes it, and the injected library evaluates it to addresses at each launch.

use crate::given::Given;
use crate::plan::{Damaged, Out, Rest};
use crate::range::Range;

/// First bytes of a table: name and version.
const MAGIC: &[u8; 8] = b"APEXACC1";
/// Maximum number of spans of a launch.
const MOST_SPANS: usize = 24;
/// Smaller numbers are not addresses (Linux: `vm.mmap_min_addr`).
const LEAST_ADDRESS: u64 = 1 << 16;

/// A kernel, and the memory that its launches access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelAccess {
    /// Its name in the PTX.
    pub name: String,
    /// Bytes from the beginning of the parameter space to each parameter.
    pub parameters: Vec<u32>,
    /// The memory; `None` if it is unknown, so that no launch may run beside others.
    pub memory: Option<Vec<AccessedMemory>>,
}

/// Memory whose address is computed from one word of the parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessedMemory {
    /// The offset of the word, which has 8 bytes, in the parameter space.
    pub offset: u32,
    /// Whether it may be written.
    pub is_written: bool,
    /// The ranges in which all accesses lie, and whether each may be written; `None` if the code
    /// does not determine them. Then the accesses lie in the allocation that the word points into.
    pub ranges: Option<Vec<(bool, Range)>>,
}

/// A range of addresses that a launch accesses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The first address.
    pub start: u64,
    /// The address after the last one.
    pub end: u64,
    /// Whether they may be written.
    pub is_written: bool,
}

impl Span {
    /// Bytes between two spans; 0 if they touch.
    fn distance(&self, other: &Span) -> u64 {
        self.start.max(other.start).saturating_sub(self.end.min(other.end))
    }
}

/// The addresses that a launch accesses, if they are known.
#[derive(Clone, Copy, Debug)]
pub struct Spans {
    spans: [Span; MOST_SPANS],
    /// More than there is room for, if nothing is known.
    count: usize,
}

/// Allocations that share no memory with each other.
pub trait Allocations {
    /// The allocation that contains an address: its first address, and the address after its last.
    fn around(&self, address: u64) -> Option<(u64, u64)>;
}

impl KernelAccess {
    /// What a launch accesses. `allocations` are the only memory that launches may share without
    /// order: a launch that may access other memory has unknown spans.
    pub fn spans(&self, given: &Given<'_>, allocations: &impl Allocations) -> Spans {
        let mut spans = Spans { spans: [Span::default(); MOST_SPANS], count: 0 };
        let is_known =
            self.memory.iter().flatten().all(|memory| memory.add(given, allocations, &mut spans).is_some());
        if self.memory.is_some() && is_known { spans } else { Spans::UNKNOWN }
    }
}

impl AccessedMemory {
    /// Adds what a launch accesses; `None` if that is not known.
    fn add(&self, given: &Given<'_>, allocations: &impl Allocations, spans: &mut Spans) -> Option<()> {
        if let Some(ranges) = &self.ranges
            && ranges.iter().all(|(_, range)| range.at(given).is_some())
        {
            return ranges.iter().try_for_each(|range| add_range(range, given, allocations, spans));
        }
        let word = given.word(self.offset, 8)?;
        // (A pointer to the end of an allocation is one of this allocation, and equal to one to the
        // beginning of the next.)
        let holding = allocations.around(word);
        let ending = word.checked_sub(1).and_then(|last| allocations.around(last));
        for (start, end) in holding.into_iter().chain(ending.filter(|ending| Some(*ending) != holding)) {
            spans.push(Span { start, end, is_written: self.is_written })?;
        }
        (holding.is_some() || ending.is_some() || word < LEAST_ADDRESS).then_some(())
    }
}

/// Adds the addresses of a range, which lie in one allocation.
fn add_range(
    (is_written, range): &(bool, Range),
    given: &Given<'_>,
    allocations: &impl Allocations,
    spans: &mut Spans,
) -> Option<()> {
    let std::ops::Range { start, end } = range.at(given)?;
    if start >= end {
        return Some(());
    }
    let (_, end_of_allocation) = allocations.around(start)?;
    (end <= end_of_allocation).then_some(())?;
    spans.push(Span { start, end, is_written: *is_written })
}

impl Spans {
    /// Any memory.
    pub const UNKNOWN: Spans =
        Spans { spans: [Span { start: 0, end: 0, is_written: false }; MOST_SPANS], count: MOST_SPANS + 1 };

    /// Adds a span. It becomes part of one of its kind that it touches. Where there is no room, it
    /// becomes part of the nearest one, with the memory between them: more than what is accessed
    /// costs order, and is never wrong.
    fn push(&mut self, span: Span) -> Option<()> {
        let known = self.spans.get_mut(..self.count)?;
        let of_its_kind = known.iter_mut().filter(|known| known.is_written == span.is_written);
        let nearest = of_its_kind.min_by_key(|known| known.distance(&span));
        let has_room = self.count < MOST_SPANS;
        if let Some(known) = nearest.filter(|known| !has_room || known.distance(&span) == 0) {
            (known.start, known.end) = (known.start.min(span.start), known.end.max(span.end));
            return Some(());
        }
        *self.spans.get_mut(self.count)? = span;
        self.count += 1;
        Some(())
    }

    /// The spans; `None` if nothing is known.
    pub fn known(&self) -> Option<&[Span]> {
        self.spans.get(..self.count)
    }
}

/// Serialises kernels.
pub fn access_to_bytes(kernels: &[KernelAccess]) -> Vec<u8> {
    let mut out = Out(MAGIC.to_vec());
    out.list(kernels, |out, kernel| {
        out.text(&kernel.name);
        out.list(&kernel.parameters, |out, offset| out.number(*offset));
        out.flag(kernel.memory.is_some());
        kernel.memory.iter().for_each(|memory| out.list(memory, write_memory));
    });
    out.0
}

fn write_memory(out: &mut Out, memory: &AccessedMemory) {
    out.number(memory.offset);
    out.flag(memory.is_written);
    out.flag(memory.ranges.is_some());
    memory.ranges.iter().for_each(|ranges| {
        out.list(ranges, |out, (is_written, range)| {
            out.flag(*is_written);
            out.sum(&range.start);
            out.sum(&range.bytes);
            out.list(&range.at_most, |out, (less, more)| {
                out.sum(less);
                out.sum(more);
            });
        });
    });
}

/// Reads what [`access_to_bytes`] wrote.
///
/// # Errors
/// If the bytes are not complete and valid.
pub fn access_from_bytes(bytes: &[u8]) -> Result<Vec<KernelAccess>, Damaged> {
    let mut rest = Rest(bytes.strip_prefix(MAGIC).ok_or(Damaged)?);
    let kernels = rest.list(|rest| {
        Ok(KernelAccess {
            name: rest.text()?,
            parameters: rest.list(Rest::number)?,
            memory: if rest.flag()? { Some(rest.list(read_memory)?) } else { None },
        })
    })?;
    if rest.0.is_empty() { Ok(kernels) } else { Err(Damaged) }
}

fn read_memory(rest: &mut Rest<'_>) -> Result<AccessedMemory, Damaged> {
    let (offset, is_written) = (rest.number()?, rest.flag()?);
    let range = |rest: &mut Rest<'_>| {
        let is_written = rest.flag()?;
        let (start, bytes) = (rest.sum()?, rest.sum()?);
        let at_most = rest.list(|rest| Ok((rest.sum()?, rest.sum()?)))?;
        Ok((is_written, Range { start, bytes, at_most }))
    };
    let ranges = if rest.flag()? { Some(rest.list(range)?) } else { None };
    Ok(AccessedMemory { offset, is_written, ranges })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::{Sum, Term};
    use cuda_launch::LaunchConfig;

    /// Two allocations next to each other, and one apart.
    struct Three;

    const ALLOCATIONS: [(u64, u64); 3] =
        [(0x10_0000, 0x10_1000), (0x10_1000, 0x10_2000), (0x20_0000, 0x20_1000)];

    impl Allocations for Three {
        fn around(&self, address: u64) -> Option<(u64, u64)> {
            ALLOCATIONS.into_iter().find(|&(start, end)| (start..end).contains(&address))
        }
    }

    const N: Term = Term::Parameter { offset: 16, bytes: 4, signed: true };

    fn pointer(offset: u32, is_written: bool, has_range: bool) -> AccessedMemory {
        let start = Sum::of(1, Term::Parameter { offset, bytes: 8, signed: false });
        let range = Range { start, bytes: Sum::of(4, N), at_most: vec![(Sum::constant(0), Sum::of(1, N))] };
        AccessedMemory { offset, is_written, ranges: has_range.then(|| vec![(is_written, range)]) }
    }

    fn kernel(has_ranges: bool) -> KernelAccess {
        let memory = Some(vec![pointer(0, true, has_ranges), pointer(8, false, has_ranges)]);
        KernelAccess { name: "copy".into(), parameters: vec![0, 8, 16], memory }
    }

    fn spans(kernel: &KernelAccess, to: u64, from: u64, n: i32) -> Option<Vec<(u64, u64, bool)>> {
        let parameters = [&to.to_le_bytes()[..], &from.to_le_bytes(), &n.to_le_bytes()].concat();
        let given = Given { config: LaunchConfig::new(4, 32), parameters: &parameters };
        let spans = kernel.spans(&given, &Three);
        spans.known().map(|spans| spans.iter().map(|span| (span.start, span.end, span.is_written)).collect())
    }

    #[test]
    fn what_the_code_tells_is_a_span_and_the_rest_is_an_allocation() {
        assert_eq!(
            spans(&kernel(true), 0x10_0010, 0x20_0000, 16),
            Some(vec![(0x10_0010, 0x10_0050, true), (0x20_0000, 0x20_0040, false)])
        );
        assert_eq!(
            spans(&kernel(false), 0x10_0010, 0x20_0004, 16),
            Some(vec![(0x10_0000, 0x10_1000, true), (0x20_0000, 0x20_1000, false)])
        );
        assert_eq!(spans(&kernel(true), 0x10_0010, 0x20_0000, 0), Some(vec![]), "nothing is accessed");
        let both = spans(&kernel(false), 0x10_1000, 0, 16).unwrap();
        assert_eq!(both, [(0x10_0000, 0x10_2000, true)], "the end of one allocation begins the next");
        assert_eq!(spans(&kernel(false), 0x20_1000, 0, 16).unwrap(), [(0x20_0000, 0x20_1000, true)]);
        // The range says nothing about a negative number.
        assert_eq!(
            spans(&kernel(true), 0x10_0010, 0x20_0000, -1),
            spans(&kernel(false), 0x10_0010, 0x20_0000, 1)
        );
    }

    fn pushed(spans: impl IntoIterator<Item = (u64, u64, bool)>) -> Spans {
        let mut all = Spans { spans: [Span::default(); MOST_SPANS], count: 0 };
        let mut is_taken = true;
        for (start, end, is_written) in spans {
            is_taken &= all.push(Span { start, end, is_written }).is_some();
        }
        if is_taken { all } else { Spans::UNKNOWN }
    }

    #[test]
    fn spans_that_touch_are_one() {
        let found = pushed([(10, 20, true), (20, 30, true), (5, 12, true), (28, 40, false), (50, 60, true)]);
        let found: Vec<_> = found.known().unwrap().iter().map(|span| (span.start, span.end)).collect();
        assert_eq!(found, [(5, 30), (28, 40), (50, 60)]);
    }

    #[test]
    fn many_spans_cover_all_that_is_accessed() {
        let parts = (0..100).map(|at| (1000 * (at * 37 % 100), 1000 * (at * 37 % 100) + 10, at % 3 == 0));
        let found = pushed(parts.clone());
        let found = found.known().unwrap();
        assert_eq!(found.len(), MOST_SPANS);
        for (start, end, is_written) in parts {
            let holds = |span: &Span| span.start <= start && end <= span.end && span.is_written == is_written;
            assert!(found.iter().any(holds), "{start}");
        }
        let of_one_kind = (0..MOST_SPANS as u64).map(|at| (100 * at, 100 * at + 10, true));
        assert!(pushed(of_one_kind.chain([(7, 9, false)])).known().is_none(), "no span of its kind");
    }

    #[test]
    fn memory_that_is_no_known_allocation_makes_a_launch_unknown() {
        assert_eq!(spans(&kernel(true), 0x30_0000, 0x20_0000, 16), None);
        assert_eq!(spans(&kernel(true), 0x10_0ff0, 0x20_0000, 16), None, "beyond the end of its allocation");
        assert_eq!(spans(&kernel(false), 0x10_0000, 0x30_0000, 16), None);
        assert!(spans(&kernel(false), 0x10_0000, 1000, 16).is_some(), "a number");
        assert_eq!(spans(&KernelAccess { memory: None, ..kernel(true) }, 0x10_0000, 0x20_0000, 16), None);
        let none = Given { config: LaunchConfig::new(1, 1), parameters: &[] };
        assert!(kernel(true).spans(&none, &Three).known().is_none(), "too few parameters");
    }

    #[test]
    fn kernels_are_read_as_they_were_written() {
        let kernels = [
            kernel(true),
            kernel(false),
            KernelAccess { name: "any".into(), parameters: vec![], memory: None },
        ];
        let bytes = access_to_bytes(&kernels);
        assert_eq!(access_from_bytes(&bytes).unwrap(), kernels);
        for end in 0..bytes.len() {
            assert_eq!(access_from_bytes(&bytes[..end]), Err(Damaged), "cut at {end}");
        }
        let mut longer = bytes;
        longer.push(0);
        assert_eq!(access_from_bytes(&longer), Err(Damaged));
    }
}
