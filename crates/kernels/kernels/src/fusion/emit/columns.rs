//! Column sums, by blocks that walk through rows.
//!
//! Each thread has a register for the sum of each of its columns, from the first row of its block
//! to the last. Then each block leaves one row of partial sums, which
//! [`totals`](super::super::totals) adds up. Where a block computes several rows at once, they meet
//! in shared memory before. Every number is added in an order that the schedule alone decides.
//!
//! A block reads a row before it computes the one before it, if the schedule says so: the loads of
//! a row are behind the moves of the row before it, and nothing waits for them until the next turn.

use std::fmt::Write;

use super::super::graph::Value;
use super::super::nest::Place;
use super::layout::Base;
use super::{At, Class, Emitter, line, words};

/// The values that are opaque to ptxas in a pass.
#[derive(Clone)]
pub struct Hidden {
    /// A zero.
    pub zero: String,
    /// The operands of `prmt` that widen the lower and the upper half of a word from bf16 to f32.
    pub halves: [String; 2],
}

impl Emitter<'_> {
    /// Stores the zero that each pass loads anew.
    pub(super) fn hide_zero(&mut self) {
        let Some(place) = self.zero else { return };
        let (base, thread) = (self.word("mov.u32", &["scratch"]), self.special("tid.x"));
        let is_first = self.compare("eq", &thread, 0);
        line!(self, "@{is_first} st.shared.u32 [{base}+{place}], 0;");
        line!(self, "bar.sync 0;");
    }

    /// Loads it for a pass after the first.
    pub(super) fn load_hidden(&mut self, pass: usize) -> Option<Hidden> {
        self.zero.filter(|_| pass > 0).map(|place| {
            let (base, zero) = (self.word("mov.u32", &["scratch"]), self.register(Class::Word));
            line!(self, "ld.volatile.shared.u32 {zero}, [{base}+{place}];");
            let halves = ["0x1044", "0x3244"].map(|bytes| self.word("or.b32", &[&zero, bytes]));
            Hidden { zero, halves }
        })
    }

    pub(super) fn begin_column_sums(&mut self) {
        for (value, _) in self.nest.column_sums(self.graph) {
            for at in self.elements_of_thread() {
                let sum = self.register(Class::Float);
                line!(self, "mov.f32 {sum}, 0f00000000;");
                self.sums.insert((value, at), sum);
            }
        }
    }

    fn elements_of_thread(&self) -> Vec<At> {
        let lanes = |chunk| (0..self.schedule.vector).map(move |lane| At { chunk, lane });
        (0..self.schedule.chunks).flat_map(lanes).collect()
    }

    /// Adds a chunk of a row. Columns beyond the last one add up to anything, and are not stored.
    pub(super) fn add_to_columns(&mut self, value: Value, of: Value, chunk: usize) {
        let at = self.space.has_row.clone().map_or(String::new(), |has_row| format!("@{has_row} "));
        for lane in 0..self.schedule.vector {
            let number = self.element(of, At { chunk, lane });
            let sum = self.sums[&(value, At { chunk, lane })].clone();
            line!(self, "{at}add.f32 {sum}, {sum}, {number};");
        }
    }

    /// Leaves the block's row of partial sums.
    pub(super) fn leave_column_sums(&mut self) {
        let nest = self.nest;
        let writes = nest.writes.iter().filter(|write| write.place == Place::Columns);
        for (place, write) in writes.enumerate() {
            let (base, block) = (self.bases[&(write.memory, Base::Tensor)].clone(), self.space.block.clone());
            let row = self.further(base, &block, 4 * nest.length);
            if self.schedule.rows_per_block > 1 {
                if place > 0 {
                    line!(self, "bar.sync 0;"); // the sums before have been read
                }
                self.meet(write.value, &row);
            } else {
                let column = self.space.column.clone();
                let address = self.further(row, &column, 4);
                self.store_sums(write.value, "global", &address, true);
            }
        }
    }

    /// Stores the thread's sums; those of columns that there are, if they are guarded.
    fn store_sums(&mut self, value: Value, space: &str, address: &str, guarded: bool) {
        let (vector, span) = (self.schedule.vector, self.schedule.span());
        for chunk in 0..self.schedule.chunks {
            let numbers: Vec<String> =
                (0..vector).map(|lane| self.sums[&(value, At { chunk, lane })].clone()).collect();
            let packed = self.moved("mov.b32", &numbers);
            let guard = if guarded { self.guard(chunk) } else { None };
            self.stores(space, address, 4 * chunk * span, 4 * vector, &packed, guard);
        }
    }

    /// Adds the sums of the rows that the block computes at once, and stores them in this row.
    fn meet(&mut self, value: Value, row: &str) {
        let columns = self.schedule.span() * self.schedule.chunks;
        let (own, column) = (self.space.row_of_block.clone(), self.space.column.clone());
        let place = self.word("mad.lo.u32", &[&own, &columns.to_string(), &column]);
        let base = self.word("mov.u32", &["scratch"]);
        let address = self.word("mad.lo.u32", &[&place, "4", &base]);
        let address = self.word("add.u32", &[&address, &self.slots.to_string()]);
        self.store_sums(value, "shared", &address, false);
        line!(self, "bar.sync 0;");
        let (start, length, rows) = (self.slots, self.nest.length, self.schedule.rows_per_block);
        self.each_word(start, length, |emitter, column, address| {
            let sum = emitter.register(Class::Float);
            line!(emitter, "ld.shared.f32 {sum}, [{address}];");
            for slot in 1..rows {
                let number = emitter.register(Class::Float);
                line!(emitter, "ld.shared.f32 {number}, [{address}+{}];", 4 * slot * columns);
                line!(emitter, "add.f32 {sum}, {sum}, {number};");
            }
            let to = emitter.further(row.to_owned(), column, 4);
            line!(emitter, "st.global.f32 [{to}], {sum};");
        });
    }

    /// Reads the first row of the block.
    pub(super) fn read_first_row(&mut self) {
        let nest = self.nest;
        for read in nest.reads.iter().filter(|read| read.is_read_ahead()) {
            for chunk in 0..self.schedule.chunks {
                let count = words(read.element, self.schedule.vector);
                let registers = (0..count).map(|_| self.register(Class::Word)).collect();
                self.next.insert((read.value, chunk), registers);
            }
        }
        let first_row = self.space.first_row.clone();
        self.read_row(&first_row, None);
    }

    /// Takes the row that was read, and reads the next one.
    pub(super) fn read_next_row(&mut self) {
        for (place, registers) in self.next.clone() {
            let taken = registers.iter().map(|register| self.word("mov.b32", &[register])).collect();
            self.packed.insert(place, taken);
        }
        let (first_row, further) = (self.space.first_row.clone(), self.schedule.rows_at_once().to_string());
        let next = self.word("add.u32", &[&first_row, &further]);
        let is_row = self.compare("lt", &next, self.nest.rows());
        self.read_row(&next, Some(is_row));
    }

    /// Reads the thread's row, of the rows that begin with this one, if the guard holds.
    fn read_row(&mut self, first_row: &str, is_row: Option<String>) {
        let nest = self.nest;
        let (bases, row, coordinates) =
            (self.bases.clone(), self.space.row.clone(), self.space.coordinates.clone());
        self.bases.retain(|(_, base), _| *base == Base::Tensor);
        self.space.row = self.row_of(first_row);
        if !nest.rows().is_multiple_of(self.schedule.rows_per_block) {
            let row = self.space.row.clone();
            self.space.row = self.word("min.u32", &[&row, &(nest.rows() - 1).to_string()]);
        }
        self.split_row();
        for read in nest.reads.iter().filter(|read| read.is_read_ahead()) {
            let address = self.base(read, Base::Thread);
            let bytes = read.element.size() * self.schedule.vector;
            for chunk in 0..self.schedule.chunks {
                let guard = self.guard(chunk);
                let guard = self.both(guard, is_row.clone());
                let offset = chunk * self.step(&read.strides) * read.element.size();
                let space = format!("global{}", self.hint(read, false));
                let registers = self.next[&(read.value, chunk)].clone();
                self.loads_into(&registers, &space, &address, offset, bytes, guard);
            }
        }
        self.bases = bases;
        self.space.row = row;
        self.space.coordinates = coordinates;
    }
}
