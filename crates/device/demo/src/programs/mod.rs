//! The bundled programs, one module each.

use crate::error::Result;
use crate::outcome::Outcome;
use apex_driver::device::Device;

mod bad;
mod histogram;
mod matmul;
mod pipeline;
mod reduce;
mod saxpy;
mod vector_add;

/// A bundled program.
pub struct Program {
    /// The name on the command line.
    pub name: &'static str,
    /// A description in one line.
    pub summary: &'static str,
    /// Runs it.
    pub run: fn(&Device) -> Result<Outcome>,
}

/// All of them, the simplest first.
pub const PROGRAMS: &[Program] = &[
    Program { name: "vector_add", summary: "adds two vectors", run: vector_add::run },
    Program { name: "saxpy", summary: "a x + y with a grid-stride loop, many times", run: saxpy::run },
    Program { name: "reduce", summary: "sums a vector through shuffles and shared memory", run: reduce::run },
    Program {
        name: "matmul",
        summary: "multiplies matrices through tiles in shared memory",
        run: matmul::run,
    },
    Program { name: "histogram", summary: "counts bytes with atomics", run: histogram::run },
    Program {
        name: "pipeline",
        summary: "overlaps copies and kernels in four streams, then replays a graph",
        run: pipeline::run,
    },
    Program {
        name: "bad",
        summary: "does everything wrong that still computes the right result",
        run: bad::run,
    },
];

/// Blocks of `threads` threads that cover `count` elements, one to a thread.
fn blocks(count: u32, threads: u32) -> [u32; 3] {
    [count.div_ceil(threads), 1, 1]
}
