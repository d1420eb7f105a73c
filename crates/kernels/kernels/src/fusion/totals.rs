//! The kernel behind one with column sums: it adds the rows of partial sums that blocks left.
//!
//! A block has 32 columns. Each of its warps adds the rows that are its own, four at a time in sums
//! of their own; then the first warp adds the sums of all warps. The order is that of the rows'
//! numbers: results are the same in each run.

use std::fmt::Write;

use super::emit::Code;
use super::graph::ElementType;
use super::nest::{Access, Memory};

/// Columns of a block, and its warps.
const COLUMNS: usize = 32;
const WARPS: usize = 32;
/// Rows that a warp reads before it adds them.
const AT_ONCE: usize = 4;

/// Column sums of one kernel.
#[derive(Clone, Debug)]
pub struct Totals {
    /// The partial sums.
    pub partials: Vec<Access>,
    /// The destination of each sum, with its number; one sum may be several outputs.
    pub totals: Vec<(usize, Access)>,
    /// Rows of partial sums, and their columns.
    pub rows: usize,
    pub length: usize,
}

impl Totals {
    /// Returns the totals of a nest whose kernel leaves partial sums.
    pub fn of(writes: &[Access], totals: &[Access], rows: usize, length: usize) -> Option<Totals> {
        let is_partial = |write: &&Access| matches!(write.memory, Memory::Partials(_));
        let partials: Vec<Access> = writes.iter().filter(is_partial).cloned().collect();
        let of = |total: &Access| {
            let sum = partials.iter().position(|partial| partial.value == total.value);
            sum.map(|sum| (sum, total.clone()))
        };
        let totals: Vec<_> = totals.iter().filter_map(of).collect();
        (!totals.is_empty()).then_some(Totals { partials, totals, rows, length })
    }

    pub fn grid(&self) -> usize {
        self.blocks() * self.partials.len()
    }

    pub fn block(&self) -> usize {
        COLUMNS * WARPS
    }

    /// Blocks of one sum.
    fn blocks(&self) -> usize {
        self.length.div_ceil(COLUMNS)
    }

    /// Bytes that it reads and writes.
    pub fn bytes(&self) -> usize {
        let totals = self.totals.iter().map(|(_, total)| total);
        self.partials.iter().chain(totals).map(Access::bytes).sum()
    }

    /// PTX of the kernel called `name`. Its parameters are the partial sums, then the totals.
    pub fn emit(&self, name: &str) -> Code {
        let (count, blocks) = (self.partials.len(), self.blocks());
        let parameters = (0..count + self.totals.len()).map(|place| format!("\t.param .u64 p{place}"));
        let mut text = format!(
            ".version 7.8\n.target sm_80\n.address_size 64\n\n.visible .entry {name}(\n{}\n)\n.maxntid {}, 1, 1\n{{\n\
             \t.reg .b16 %h<1>;\n\t.reg .b32 %r<12>;\n\t.reg .b64 %d<6>;\n\t.reg .f32 %f<{}>;\n\t.reg .pred %p<{}>;\n\
             \t.shared .align 4 .b8 sums[{}];\n",
            parameters.collect::<Vec<_>>().join(",\n"),
            self.block(),
            3 * AT_ONCE,
            AT_ONCE + 4,
            4 * COLUMNS * WARPS,
        );
        let mut line = |text_of: std::fmt::Arguments<'_>| {
            writeln!(text, "\t{text_of}").expect("a string takes everything");
        };
        // Which sum, which column, which warp.
        line(format_args!("mov.u32 %r0, %ctaid.x;"));
        line(format_args!("div.u32 %r1, %r0, {blocks};"));
        line(format_args!("rem.u32 %r2, %r0, {blocks};"));
        line(format_args!("mov.u32 %r3, %tid.x;"));
        line(format_args!("and.b32 %r4, %r3, 31;"));
        line(format_args!("shr.u32 %r5, %r3, 5;"));
        line(format_args!("mad.lo.u32 %r6, %r2, {COLUMNS}, %r4;"));
        line(format_args!("setp.lt.u32 %p0, %r6, {};", self.length));
        for sum in 0..count {
            line(format_args!("setp.eq.u32 %p1, %r1, {sum};"));
            line(format_args!("@%p1 ld.param.u64 %d0, [p{sum}];"));
        }
        line(format_args!("cvta.to.global.u64 %d0, %d0;"));
        line(format_args!("mad.wide.u32 %d0, %r6, 4, %d0;"));
        line(format_args!("mad.wide.u32 %d0, %r5, {}, %d0;", 4 * self.length));
        for own in 0..AT_ONCE {
            line(format_args!("mov.f32 %f{own}, 0f00000000;"));
        }
        // %r7: the row that is added next.
        line(format_args!("mov.u32 %r7, %r5;"));
        line(format_args!("setp.ge.u32 %p2, %r7, {};", self.rows));
        line(format_args!("@%p2 bra DONE;"));
        line(format_args!("AGAIN:"));
        let (row, turn) = (4 * self.length, WARPS * AT_ONCE);
        for own in 0..AT_ONCE {
            line(format_args!("add.u32 %r8, %r7, {};", own * WARPS));
            line(format_args!("setp.lt.and.u32 %p{}, %r8, {}, %p0;", 3 + own, self.rows));
            line(format_args!("mov.f32 %f{}, 0f00000000;", AT_ONCE + own));
            line(format_args!(
                "@%p{} ld.global.f32 %f{}, [%d0+{}];",
                3 + own,
                AT_ONCE + own,
                own * WARPS * row
            ));
        }
        for own in 0..AT_ONCE {
            line(format_args!("add.f32 %f{own}, %f{own}, %f{};", AT_ONCE + own));
        }
        line(format_args!("add.u64 %d0, %d0, {};", turn * row));
        line(format_args!("add.u32 %r7, %r7, {turn};"));
        line(format_args!("setp.lt.u32 %p2, %r7, {};", self.rows));
        line(format_args!("@%p2 bra AGAIN;"));
        line(format_args!("DONE:"));
        for own in 1..AT_ONCE {
            line(format_args!("add.f32 %f0, %f0, %f{own};"));
        }
        line(format_args!("mov.u32 %r9, sums;"));
        line(format_args!("mad.lo.u32 %r10, %r3, 4, %r9;"));
        line(format_args!("st.shared.f32 [%r10], %f0;"));
        line(format_args!("bar.sync 0;"));
        line(format_args!("setp.eq.and.u32 %p0, %r5, 0, %p0;"));
        line(format_args!("@!%p0 bra END;"));
        for warp in 1..WARPS {
            line(format_args!("ld.shared.f32 %f1, [%r10+{}];", 4 * COLUMNS * warp));
            line(format_args!("add.f32 %f0, %f0, %f1;"));
        }
        for (place, (sum, total)) in self.totals.iter().enumerate() {
            line(format_args!("setp.eq.u32 %p1, %r1, {sum};"));
            line(format_args!("ld.param.u64 %d1, [p{}];", count + place));
            line(format_args!("cvta.to.global.u64 %d1, %d1;"));
            line(format_args!("mad.wide.u32 %d2, %r6, {}, %d1;", total.element.size()));
            match total.element {
                ElementType::Bf16 | ElementType::F16 => {
                    let kind = if total.element == ElementType::F16 { "f16" } else { "bf16" };
                    line(format_args!("cvt.rn.{kind}.f32 %h0, %f0;"));
                    line(format_args!("@%p1 st.global.b16 [%d2], %h0;"));
                }
                ElementType::F32 | ElementType::U32 => {
                    line(format_args!("@%p1 st.global.f32 [%d2], %f0;"));
                }
            }
        }
        line(format_args!("END:"));
        line(format_args!("ret;"));
        Code { ptx: text + "}\n", shared: 0 }
    }
}
