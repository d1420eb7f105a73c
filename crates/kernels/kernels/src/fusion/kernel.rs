//! One kernel of a plan: its computation, its launch, and its description.

use std::fmt;

use super::emit::Code;
use super::graph::ElementType;
use super::nest::{Access, Memory, Nest, Place};
use super::schedule::{Held, Schedule, Shape};
use super::totals::Totals;

/// A kernel of a plan.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Its name in [`Kernel::ptx`].
    pub name: String,
    pub(super) reads: Vec<Access>,
    pub(super) writes: Vec<Access>,
    pub(super) work: Work,
    pub(super) code: Code,
    pub(super) operations: Vec<&'static str>,
}

/// The work of a kernel.
#[derive(Clone, Debug)]
pub enum Work {
    /// The nodes of a nest.
    Nest(Box<Nest>, Schedule),
    /// The sum of what the kernel before it left.
    Totals(Totals),
}

impl Kernel {
    /// The module that holds it.
    pub fn ptx(&self) -> &str {
        &self.code.ptx
    }

    /// Blocks of its launch; none if there is nothing to compute.
    pub fn grid(&self) -> usize {
        match &self.work {
            Work::Nest(nest, schedule) => schedule.grid(nest),
            Work::Totals(totals) => totals.grid(),
        }
    }

    /// Threads of a block.
    pub fn block(&self) -> usize {
        match &self.work {
            Work::Nest(_, schedule) => schedule.block(),
            Work::Totals(totals) => totals.block(),
        }
    }

    /// Dynamic shared memory of a block, in bytes.
    pub fn shared(&self) -> usize {
        self.code.shared
    }

    /// Its parameters, all pointers: tensors to read, then tensors to write.
    pub fn parameters(&self) -> impl Iterator<Item = Memory> {
        self.reads.iter().chain(&self.writes).map(|access| access.memory)
    }

    /// Bytes that it reads and writes, each tensor once.
    pub fn bytes(&self) -> usize {
        self.reads.iter().chain(&self.writes).map(Access::bytes).sum()
    }

    /// The operations that it computes.
    pub fn operations(&self) -> &[&'static str] {
        &self.operations
    }

    /// Tensors that it leaves for other kernels, and their bytes.
    pub fn leaves(&self) -> impl Iterator<Item = (Memory, usize)> {
        let is_left = |write: &&Access| matches!(write.memory, Memory::Between(_) | Memory::Partials(_));
        self.writes.iter().filter(is_left).map(|write| (write.memory, write.bytes()))
    }

    /// Outputs that must hold zeros before.
    pub(super) fn counts(&self) -> impl Iterator<Item = Memory> {
        self.writes.iter().filter(|write| write.place == Place::Whole).map(|write| write.memory)
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}: ", self.name, self.operations.join(" + "))?;
        match &self.work {
            Work::Nest(nest, schedule) => write_nest(out, nest, schedule)?,
            Work::Totals(Totals { rows, length, .. }) => {
                write!(out, "partial sums of {rows} × {length}, ")?;
            }
        }
        write!(out, "grid {}, block {}; {} bytes", self.grid(), self.block(), self.bytes())
    }
}

fn write_nest(out: &mut fmt::Formatter<'_>, nest: &Nest, schedule: &Schedule) -> fmt::Result {
    let widest = nest.reads.iter().chain(&nest.writes).map(|access| access.element.size()).min();
    let bytes = schedule.vector * widest.unwrap_or(ElementType::F32.size());
    match schedule.shape {
        Shape::Flat => write!(out, "each element for itself, ")?,
        Shape::Rows => {
            write!(out, "{} rows of {}, ", nest.rows(), nest.length)?;
            match schedule.cluster * schedule.parts {
                1 => write!(out, "{} threads", schedule.threads)?,
                blocks => write!(out, "{blocks} blocks of {} threads", schedule.threads)?,
            }
            let held = match schedule.held {
                Held::Registers => "in registers",
                Held::Shared => "in shared memory",
                Held::Memory => "read again in each pass",
            };
            write!(out, " a row, {held}, passes {}, ", nest.pass_count())?;
        }
    }
    if nest.has_column_sums() {
        let ahead = if schedule.ahead { ", the next row read ahead" } else { "" };
        let (blocks, rows) = (schedule.resident, schedule.partials(nest));
        write!(out, "column sums: blocks a multiprocessor {blocks}, rows of partial sums {rows}{ahead}; ")?;
    }
    write!(out, "accesses of {bytes} bytes, ")
}
