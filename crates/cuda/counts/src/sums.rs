//! Sums over a launch, or over several.

use std::ops::AddAssign;

use crate::{Direction, Hotspot, InstructionClass, Line, Space, Traffic, Width};

/// Number of classes.
const CLASSES: usize = InstructionClass::ALL.len();

/// The counts of one launch, or of several together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// PTX instructions, each counted once for all threads of a warp that execute it together; by
    /// [`InstructionClass`].
    pub warp_instructions: [u64; CLASSES],
    /// The same, counted for each of these threads.
    pub thread_instructions: [u64; CLASSES],
    /// The part of the latter whose guard predicate did not hold them back.
    pub not_predicated_off: u64,
    /// Floating-point operations by [`Width`]: an addition or a multiplication counts one, a fused
    /// one two, m·n·k of a matrix product 2·m·n·k.
    pub operations: [u64; Width::ALL.len()],
    /// Traffic by [`Space`] and [`Direction`].
    pub traffic: [[Traffic; Direction::ALL.len()]; Space::ALL.len()],
    /// Branch instructions, by warp.
    pub branches: u64,
    /// Branches that threads of a warp took differently.
    pub divergent_branches: u64,
}

impl Counts {
    /// Traffic of one sort.
    pub fn traffic(&self, space: Space, direction: Direction) -> &Traffic {
        &self.traffic[space as usize][direction as usize]
    }

    /// Traffic of a space in all directions.
    pub fn all_traffic(&self, space: Space) -> Traffic {
        let mut sum = Traffic::default();
        self.traffic[space as usize].iter().for_each(|traffic| sum += traffic);
        sum
    }

    /// Traffic of a space by loads and stores, without atomics.
    pub fn loads_and_stores(&self, space: Space) -> Traffic {
        let mut sum = *self.traffic(space, Direction::Load);
        sum += self.traffic(space, Direction::Store);
        sum
    }

    /// Sectors of global memory that loads, stores and atomics moved.
    pub fn global_sectors(&self) -> u64 {
        self.all_traffic(Space::Global).transactions
    }

    /// Instructions of a class by thread.
    pub fn threads_of(&self, class: InstructionClass) -> u64 {
        self.thread_instructions[class as usize]
    }

    /// Instructions by warp, of all classes.
    pub fn total_warp_instructions(&self) -> u64 {
        total(&self.warp_instructions)
    }

    /// Instructions by thread, of all classes.
    pub fn total_thread_instructions(&self) -> u64 {
        total(&self.thread_instructions)
    }

    /// Floating-point operations of all widths.
    pub fn total_operations(&self) -> u64 {
        total(&self.operations)
    }

    /// Threads that execute an instruction together, on average: 32 where no warp ever diverges; 0
    /// if nothing ran.
    pub fn active_threads(&self) -> f64 {
        match self.total_warp_instructions() {
            0 => 0.0,
            warps => self.total_thread_instructions() as f64 / warps as f64,
        }
    }
}

impl AddAssign<&Counts> for Counts {
    fn add_assign(&mut self, other: &Counts) {
        let add = |sum: &mut u64, more: &u64| *sum = sum.saturating_add(*more);
        let lists = [
            (&mut self.warp_instructions[..], &other.warp_instructions[..]),
            (&mut self.thread_instructions, &other.thread_instructions),
            (&mut self.operations, &other.operations),
        ];
        for (sums, more) in lists {
            sums.iter_mut().zip(more).for_each(|(sum, more)| add(sum, more));
        }
        add(&mut self.not_predicated_off, &other.not_predicated_off);
        add(&mut self.branches, &other.branches);
        add(&mut self.divergent_branches, &other.divergent_branches);
        let sums = self.traffic.iter_mut().flatten();
        sums.zip(other.traffic.iter().flatten()).for_each(|(sum, more)| *sum += more);
    }
}

fn total(counts: &[u64]) -> u64 {
    counts.iter().fold(0, |sum, &count| sum.saturating_add(count))
}

/// The counts of a launch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// The sums. They are estimates where not all was counted.
    pub counts: Counts,
    /// The worst places, at most [`crate::MAX_HOTSPOTS`] for each [`crate::Fault`], the worst
    /// first.
    pub hotspots: Vec<Hotspot>,
    /// The counts of each line, at most [`crate::MAX_LINES`]: those that execute most instructions,
    /// by file and line. Empty in files of earlier versions.
    pub lines: Vec<Line>,
    /// Lines beyond these.
    pub lines_left_out: u64,
    /// Instructions of warps that were watched. The counts are exact where that is all that were
    /// executed, else they are scaled from a sample.
    pub watched: u64,
    /// Instructions of warps that were executed.
    pub executed: u64,
}

/// Documents name classes and widths, list the kinds of traffic that occur, and add averages.
#[cfg(feature = "serde")]
impl serde::Serialize for Counts {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;
        use std::collections::BTreeMap;

        #[derive(serde::Serialize)]
        struct Kind<'a> {
            space: Space,
            direction: Direction,
            #[serde(flatten)]
            traffic: &'a Traffic,
            per_request: f64,
        }
        let kinds = Space::ALL.into_iter().flat_map(|space| Direction::ALL.map(|way| (space, way)));
        let kinds = kinds.map(|(space, direction)| {
            let traffic = self.traffic(space, direction);
            Kind { space, direction, traffic, per_request: traffic.per_request() }
        });
        let kinds: Vec<Kind<'_>> = kinds.filter(|kind| kind.traffic.requests > 0).collect();
        let by_class = |counts: &[u64]| -> BTreeMap<&str, u64> {
            InstructionClass::ALL
                .map(InstructionClass::name)
                .into_iter()
                .zip(counts.iter().copied())
                .collect()
        };
        let operations: BTreeMap<&str, u64> =
            Width::ALL.map(Width::name).into_iter().zip(self.operations).collect();
        let mut out = serializer.serialize_struct("Counts", 8)?;
        out.serialize_field("warp_instructions", &by_class(&self.warp_instructions))?;
        out.serialize_field("thread_instructions", &by_class(&self.thread_instructions))?;
        out.serialize_field("not_predicated_off", &self.not_predicated_off)?;
        out.serialize_field("active_threads", &self.active_threads())?;
        out.serialize_field("operations", &operations)?;
        out.serialize_field("traffic", &kinds)?;
        out.serialize_field("branches", &self.branches)?;
        out.serialize_field("divergent_branches", &self.divergent_branches)?;
        out.end()
    }
}

#[cfg(all(test, feature = "serde"))]
mod tests {
    use super::*;

    #[test]
    fn documents_name_what_is_counted() {
        let mut counts = Counts::default();
        counts.warp_instructions[InstructionClass::Half as usize] = 2;
        counts.thread_instructions[InstructionClass::Half as usize] = 33;
        counts.operations[Width::Double as usize] = 7;
        let traffic = Traffic { requests: 2, threads: 3, bytes: 4, transactions: 5, excess: 6 };
        counts.traffic[Space::Shared as usize][Direction::Atomic as usize] = traffic;
        let json = serde_json::to_value(&counts).expect("plain data");
        assert_eq!(json["warp_instructions"]["f16"], 2);
        assert_eq!(json["warp_instructions"].as_object().map(serde_json::Map::len), Some(CLASSES));
        assert_eq!(json["operations"], serde_json::json!({"f16": 0, "f32": 0, "f64": 7, "tensor": 0}));
        assert_eq!(json["active_threads"], 16.5);
        let expected = serde_json::json!([{
            "space": "shared", "direction": "atomic", "requests": 2, "threads": 3, "bytes": 4,
            "transactions": 5, "excess": 6, "per_request": 2.5,
        }]);
        assert_eq!(json["traffic"], expected);
    }
}
