//! The space of a kernel: the rows of a block, the elements of a thread, and their positions.
//!
//! In the row form, element `((chunk · cluster + rank) · threads + thread) · vector + lane` of the
//! row belongs to a thread of a block of the cluster, or of the blocks that share the row otherwise
//! (`parts`). In the flat form a thread has one vector of
//! columns in as many rows along the last outer dimension as it has chunks, so that what does not
//! vary along it is read once; without outer dimensions its chunks follow each other by blocks.

use std::fmt::Write;

use super::super::graph::{Op, Value};
use super::super::nest::{Access, Place};
use super::super::schedule::{Held, Schedule, Shape};
use super::{At, Class, Emitter, line, streams};

/// The base of an address.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Base {
    /// The start of the tensor.
    Tensor,
    /// The start of the row.
    Row,
    /// The thread's first element.
    Thread,
    /// The same in this iteration of a loop over the row.
    Iteration,
}

/// Registers that say where a thread is.
#[derive(Default)]
pub struct Space {
    /// Thread within its row.
    pub thread: String,
    /// Row within the block.
    pub row_of_block: String,
    /// Column of the thread's first element.
    pub column: String,
    /// Indices along the outer dimensions.
    pub coordinates: Vec<String>,
    /// Number of the row; of the first row of the block.
    pub row: String,
    pub first_row: String,
    /// Number of the block, or of the blocks that share a row.
    pub block: String,
    /// The predicate that the thread has a row at all; `None` if all have.
    pub has_row: Option<String>,
    /// Columns that a loop over the row has passed.
    passed: Option<String>,
}

impl Emitter<'_> {
    /// A register with a special register's value.
    pub(super) fn special(&mut self, name: &str) -> String {
        let register = self.register(Class::Word);
        line!(self, "mov.u32 {register}, %{name};");
        register
    }

    pub(super) fn word(&mut self, instruction: &str, operands: &[&str]) -> String {
        let register = self.register(Class::Word);
        line!(self, "{instruction} {register}, {};", operands.join(", "));
        register
    }

    pub(super) fn compare(&mut self, comparison: &str, x: &str, y: impl std::fmt::Display) -> String {
        let register = self.register(Class::Predicate);
        line!(self, "setp.{comparison}.u32 {register}, {x}, {y};");
        register
    }

    /// Both, of those that there are.
    pub(super) fn both(&mut self, one: Option<String>, other: Option<String>) -> Option<String> {
        match (one, other) {
            (Some(one), Some(other)) => {
                let register = self.register(Class::Predicate);
                line!(self, "and.pred {register}, {one}, {other};");
                Some(register)
            }
            (one, other) => one.or(other),
        }
    }

    /// Addresses of all tensors.
    pub(super) fn enter(&mut self) {
        let nest = self.nest;
        for (place, access) in nest.reads.iter().chain(&nest.writes).enumerate() {
            let (generic, global) = (self.register(Class::Long), self.register(Class::Long));
            line!(self, "ld.param.u64 {generic}, [p{place}];");
            line!(self, "cvta.to.global.u64 {global}, {generic};");
            self.bases.insert((access.memory, Base::Tensor), global);
        }
    }

    /// Emits the position of the thread in its row.
    pub(super) fn tid_space(&mut self) {
        if !self.space.thread.is_empty() {
            return;
        }
        let tid = self.special("tid.x");
        let (threads, vector) = (self.schedule.threads.to_string(), self.schedule.vector.to_string());
        if self.schedule.rows_per_block == 1 {
            self.space.thread = tid;
        } else {
            self.space.row_of_block = self.word("div.u32", &[&tid, &threads]);
            self.space.thread = self.word("rem.u32", &[&tid, &threads]);
        }
        let mut place = self.space.thread.clone();
        let rank = match self.schedule {
            Schedule { cluster: 2.., .. } => Some(self.special("cluster_ctarank")),
            Schedule { parts: parts @ 2.., .. } => {
                let block = self.special("ctaid.x");
                Some(self.word("rem.u32", &[&block, &parts.to_string()]))
            }
            _ => None,
        };
        if let Some(rank) = rank {
            place = self.word("mad.lo.u32", &[&rank, &threads, &place]);
        }
        self.space.column = self.word("mul.lo.u32", &[&place, &vector]);
    }

    /// Enters the first row; the label where the next one begins.
    pub(super) fn row_space(&mut self) -> String {
        self.tid_space();
        let per_block = self.schedule.rows_per_block;
        let mut block =
            if self.schedule.cluster > 1 { self.special("clusterid.x") } else { self.special("ctaid.x") };
        if self.schedule.parts > 1 {
            block = self.word("div.u32", &[&block, &self.schedule.parts.to_string()]);
        }
        let first_row = self.word("mul.lo.u32", &[&block, &per_block.to_string()]);
        self.space.block = block;
        self.space.first_row.clone_from(&first_row);
        if self.schedule.ahead {
            self.read_first_row();
        }
        let again = self.label("ROW");
        if self.schedule.persistent.is_some() {
            line!(self, "{again}:");
        }
        self.space.row = self.row_of(&first_row);
        let rows = self.nest.rows();
        if !rows.is_multiple_of(per_block) {
            let row = self.space.row.clone();
            self.space.has_row = Some(self.compare("lt", &row, rows));
            // The others compute the last row too, so that whole warps shuffle, and store nothing.
            self.space.row = self.word("min.u32", &[&row, &(rows - 1).to_string()]);
        }
        self.split_row();
        let nest = self.nest;
        for access in nest.reads.iter().chain(&nest.writes).filter(|access| access.place == Place::Main) {
            self.base(access, Base::Thread);
        }
        if self.schedule.ahead {
            self.read_next_row();
        }
        again
    }

    /// The thread's row, of the rows that begin with this one.
    pub(super) fn row_of(&mut self, first_row: &str) -> String {
        if self.schedule.rows_per_block == 1 {
            return first_row.to_owned();
        }
        let own = self.space.row_of_block.clone();
        self.word("add.u32", &[first_row, &own])
    }

    /// The row's indices along the outer dimensions.
    pub(super) fn split_row(&mut self) {
        let outer = &self.nest.outer;
        let mut rest = self.space.row.clone();
        self.space.coordinates = vec![String::new(); outer.len()];
        for axis in (0..outer.len()).rev() {
            self.space.coordinates[axis] = self.next_coordinate(&mut rest, outer[axis], axis == 0);
        }
    }

    fn next_coordinate(&mut self, rest: &mut String, size: usize, is_last: bool) -> String {
        if is_last {
            return rest.clone();
        }
        let size = size.to_string();
        let coordinate = self.word("rem.u32", &[rest, &size]);
        *rest = self.word("div.u32", &[rest, &size]);
        coordinate
    }

    /// Goes on to the next row of a persistent block.
    pub(super) fn next_row(&mut self, again: &str) {
        if self.schedule.persistent.is_none() {
            return;
        }
        if self.barriers == 1 {
            // The one barrier of a row does not keep the next row's partial results away.
            line!(self, "bar.sync 0;");
        }
        let first_row = self.space.first_row.clone();
        line!(self, "add.u32 {first_row}, {first_row}, {};", self.schedule.rows_at_once());
        let goes_on = self.compare("lt", &first_row, self.nest.rows());
        line!(self, "@{goes_on} bra {again};");
    }

    pub(super) fn flat_space(&mut self) {
        let (tid, block, size) = (self.special("tid.x"), self.special("ctaid.x"), self.schedule.threads);
        let (vector, chunks) = (self.schedule.vector, self.schedule.chunks);
        let outer = &self.nest.outer;
        self.space.thread.clone_from(&tid);
        if outer.is_empty() {
            let vectors = (size * chunks).to_string();
            let place = self.word("mad.lo.u32", &[&block, &vectors, &tid]);
            self.space.column = self.word("mul.lo.u32", &[&place, &vector.to_string()]);
            return;
        }
        let mut rest = self.word("mad.lo.u32", &[&block, &size.to_string(), &tid]);
        let last = outer.len() - 1;
        let groups = outer[last].div_ceil(chunks);
        let threads = self.nest.length / vector * groups * outer[..last].iter().product::<usize>();
        if !threads.is_multiple_of(size) {
            self.space.has_row = Some(self.compare("lt", &rest, threads));
        }
        let column = self.next_coordinate(&mut rest, self.nest.length / vector, false);
        self.space.column = self.word("mul.lo.u32", &[&column, &vector.to_string()]);
        self.space.coordinates = vec![String::new(); outer.len()];
        let group = self.next_coordinate(&mut rest, groups, last == 0);
        self.space.coordinates[last] = self.word("mul.lo.u32", &[&group, &chunks.to_string()]);
        for axis in (0..last).rev() {
            self.space.coordinates[axis] = self.next_coordinate(&mut rest, outer[axis], axis == 0);
        }
    }

    /// Elements from one chunk to the next, in a tensor with these strides.
    pub(super) fn step(&self, strides: &[usize]) -> usize {
        let last = strides.len() - 1;
        match self.schedule.shape {
            Shape::Flat if last > 0 => strides[last - 1],
            _ => strides[last] * self.schedule.span(),
        }
    }

    /// The register of an address.
    pub(super) fn base(&mut self, access: &Access, base: Base) -> String {
        if let Some(known) = self.bases.get(&(access.memory, base)) {
            return known.clone();
        }
        let last = access.strides.len() - 1;
        let size = access.element.size();
        let mut address = match base {
            Base::Tensor => unreachable!("tensors' addresses are parameters"),
            Base::Row => self.base(access, Base::Tensor),
            Base::Thread => self.base(access, Base::Row),
            Base::Iteration => self.base(access, Base::Thread),
        };
        match base {
            Base::Tensor => {}
            Base::Row => {
                for axis in (0..last).filter(|&axis| access.strides[axis] > 0) {
                    let coordinate = self.space.coordinates[axis].clone();
                    address = self.further(address, &coordinate, access.strides[axis] * size);
                }
            }
            Base::Thread => {
                let column = match access.place {
                    Place::Short => self.space.thread.clone(),
                    _ => self.space.column.clone(),
                };
                address = self.further(address, &column, access.strides[last] * size);
            }
            Base::Iteration => {
                if let Some(passed) = self.space.passed.clone() {
                    address = self.further(address, &passed, access.strides[last] * size);
                }
            }
        }
        self.bases.insert((access.memory, base), address.clone());
        address
    }

    pub(super) fn further(&mut self, address: String, index: &str, bytes: usize) -> String {
        if bytes == 0 {
            return address;
        }
        let further = self.register(Class::Long);
        line!(self, "mad.wide.u32 {further}, {index}, {bytes}, {address};");
        further
    }

    /// Returns the predicate that the thread has an element in this chunk; `None` if all have.
    pub(super) fn guard(&mut self, chunk: usize) -> Option<String> {
        if let Some(known) = self.guards.get(&chunk) {
            return known.clone();
        }
        let (length, span, chunks) = (self.nest.length, self.schedule.span(), self.schedule.chunks);
        let guard = if self.schedule.shape == Shape::Flat && !self.nest.outer.is_empty() {
            let last = self.nest.outer.len() - 1;
            let rows = self.nest.outer[last];
            let within = (!rows.is_multiple_of(chunks)).then(|| {
                let row = self.space.coordinates[last].clone();
                let row = self.word("add.u32", &[&row, &chunk.to_string()]);
                self.compare("lt", &row, rows)
            });
            let has_row = self.space.has_row.clone();
            self.both(has_row, within)
        } else {
            let is_full = match self.schedule.held {
                Held::Registers if self.schedule.shape == Shape::Rows => (chunk + 1) * span <= length,
                _ => length % (span * chunks) == 0,
            };
            (!is_full).then(|| {
                let column = self.column(chunk);
                self.compare("lt", &column, length)
            })
        };
        self.guards.insert(chunk, guard.clone());
        guard
    }

    /// The column of the first element of a chunk.
    pub(super) fn column(&mut self, chunk: usize) -> String {
        let mut column = self.space.column.clone();
        if let Some(passed) = self.space.passed.clone() {
            column = self.word("add.u32", &[&column, &passed]);
        }
        let is_step_in_row = self.schedule.shape == Shape::Rows || self.nest.outer.is_empty();
        match if is_step_in_row { chunk * self.schedule.span() } else { 0 } {
            0 => column,
            further => self.word("add.u32", &[&column, &further.to_string()]),
        }
    }

    /// An index along a dimension.
    pub(super) fn index(&mut self, value: Value, at: At) -> String {
        debug_assert!(matches!(self.graph.nodes[value.0].op, Op::Index { .. }));
        let strides = self.nest.indices[&value].clone();
        let last = strides.len() - 1;
        let mut index = self.word("mov.u32", &["0"]);
        for (axis, stride) in strides[..last].iter().enumerate().filter(|(_, stride)| **stride > 0) {
            let coordinate = self.space.coordinates[axis].clone();
            index = self.word("mad.lo.u32", &[&coordinate, &stride.to_string(), &index]);
        }
        if strides[last] > 0 {
            let column = self.column(at.chunk);
            index = self.word("add.u32", &[&index, &column]);
            index = self.word("add.u32", &[&index, &at.lane.to_string()]);
        }
        if self.schedule.is_flat() && last > 0 && strides[last - 1] > 0 {
            index = self.word("add.u32", &[&index, &(at.chunk * strides[last - 1]).to_string()]);
        }
        let number = self.register(Class::Float);
        line!(self, "cvt.rn.f32.u32 {number}, {index};");
        number
    }

    /// Begins a loop over the row; its label.
    pub(super) fn open_loop(&mut self, pass: usize) -> String {
        self.is_staging = pass == 0;
        let again = self.label("PASS");
        let passed = self.word("mov.u32", &["0"]);
        line!(self, "{again}:");
        self.space.passed = Some(passed);
        self.forget_iteration();
        again
    }

    pub(super) fn close_loop(&mut self, again: &str) {
        let passed = self.space.passed.take().expect("a loop is open");
        let step = self.schedule.span() * self.schedule.chunks;
        line!(self, "add.u32 {passed}, {passed}, {step};");
        let goes_on = self.compare("lt", &passed, self.nest.length);
        line!(self, "@{goes_on} bra {again};");
        self.forget_iteration();
    }

    /// Forgets what belongs to one iteration.
    fn forget_iteration(&mut self) {
        let nest = self.nest;
        self.known.retain(|(value, _), _| nest.place_of_operand(*value) != Place::Main);
        self.packed.clear();
        self.guards.clear();
        self.bases.retain(|(_, base), _| *base != Base::Iteration);
    }

    /// Returns the cache hint of an access.
    pub(super) fn hint(&self, access: &Access, is_store: bool) -> &'static str {
        match (self.schedule.streaming && streams(access), is_store) {
            (false, _) => "",
            (true, false) => ".L1::no_allocate",
            (true, true) => ".cs",
        }
    }
}
