//! Accesses to memory and exchanges between lanes, which the table of forms cannot write by itself.

use crate::kernel::Bench;
use crate::{PASSES, Row};

/// Something to measure.
struct Access {
    name: &'static str,
    /// The row that it is held against.
    plain: &'static str,
    /// The text before the kernel.
    before: &'static str,
    setup: &'static str,
    body: &'static str,
    instructions: usize,
}

/// Registers that the bodies use; `%cell` is the thread's 8 bytes of the input, `%near` its 4
/// bytes.
const REGISTERS: &str = ".reg .b16 %h<9>; .reg .b32 %w<9>, %offset; .reg .b64 %l<9>, %cell, %near; .reg .f32 %f<9>;\n\
     mov.u64 %cell, %input; mul.wide.u32 %near, %thread, 4; add.u64 %near, %near, %base;\n\
     shl.b32 %offset, %thread, 2; ld.global.b32 %w1, [%cell]; ld.global.b64 %l1, [%cell]; mov.b16 %h1, 7;";

const SHARED: &str = ".shared .align 16 .b8 tile[16384]; .reg .b32 %tile; mov.u32 %tile, tile; add.u32 %offset, %offset, %tile;";
const LOCAL: &str = ".local .align 16 .b8 stack[64]; .reg .b64 %place; mov.u64 %place, stack; \
     st.local.b64 [stack], %l1; st.local.b64 [stack+8], %l1; st.local.b64 [stack+16], %l1; st.local.b64 [stack+24], %l1; \
     .reg .b32 %pick; and.b32 %pick, %w1, 12; .reg .b64 %any; cvt.u64.u32 %any, %pick; add.u64 %any, %any, %place;";

const PLAIN: &str = "ld.global.b32, one after the other";

/// The access whose lanes have no order.
const SCATTERED: &str = "ld.global.b32, scattered";

/// The access that costs what the host's own atomic operations cost.
const ATOMIC: &str = "atom.global.add.u32";

/// A texel as it is, without a filter.
const POINT: &str = "tex.2d.v4.f32.f32, point";

const ACCESSES: &[Access] = &[
    access(PLAIN, PLAIN, "ld.global.b32 %w2, [%near];", 1),
    access("st.global.b32, one after the other", PLAIN, "st.global.b32 [%near], %w1;", 1),
    access("ld.global.b64, one after the other", PLAIN, "ld.global.b64 %l2, [%cell];", 1),
    access("ld.global.v2.b32", PLAIN, "ld.global.v2.b32 {%w2, %w3}, [%cell];", 1),
    access("st.global.v2.b32", PLAIN, "st.global.v2.b32 [%cell], {%w2, %w3};", 1),
    access("ld.global.b32, every second", PLAIN, "ld.global.b32 %w2, [%cell];", 1),
    access("st.global.b32, every second", PLAIN, "st.global.b32 [%cell], %w2;", 1),
    access("ld.global.b32, scattered", SCATTERED, "ld.global.b32 %w2, [%scattered];", 1),
    access("st.global.b32, scattered", SCATTERED, "st.global.b32 [%scattered], %w2;", 1),
    access("ld.global.u8, one after the other", PLAIN, "ld.global.u8 %w2, [%byte];", 1),
    access("ld.global.u8, one in four", PLAIN, "ld.global.u8 %w2, [%near];", 1),
    access(
        "ld.global.u8, four of four",
        PLAIN,
        "ld.global.u8 %h2, [%near]; ld.global.u8 %h3, [%near+1]; ld.global.u8 %h4, [%near+2]; ld.global.u8 %h5, [%near+3];",
        4,
    ),
    access(
        "st.global.u8, four of four",
        PLAIN,
        "st.global.u8 [%near], %h2; st.global.u8 [%near+1], %h3; st.global.u8 [%near+2], %h4; st.global.u8 [%near+3], %h5;",
        4,
    ),
    access("ld.global.s8, scattered", SCATTERED, "ld.global.s8 %w2, [%scattered];", 1),
    access("ld.global.u16, one in two", PLAIN, "ld.global.u16 %w2, [%near];", 1),
    access("st.global.u16, one in two", PLAIN, "st.global.u16 [%near], %w2;", 1),
    access("ld.global.v4.u8", PLAIN, "ld.global.v4.u8 {%h2, %h3, %h4, %h5}, [%near];", 1),
    access("ld.global.b64, scattered", SCATTERED, "ld.global.b64 %l2, [%scattered8];", 1),
    access("ld.volatile.global.b32", SCATTERED, "ld.volatile.global.b32 %w2, [%near];", 1),
    access("st.volatile.global.b32", SCATTERED, "st.volatile.global.b32 [%near], %w2;", 1),
    access("ld.b32", PLAIN, "ld.b32 %w2, [%near];", 1),
    access("ld.const.b32", PLAIN, "ld.const.b32 %w2, [table+4];", 1),
    access("ld.const.b32, by thread", PLAIN, "ld.const.b32 %w2, [%listed];", 1),
    access("ld.shared.b32", PLAIN, "ld.shared.b32 %w2, [%offset];", 1),
    access("st.shared.b32", PLAIN, "st.shared.b32 [%offset], %w2;", 1),
    access("ld.shared.u8, one in four", PLAIN, "ld.shared.u8 %w2, [%offset];", 1),
    access("st.shared.u8, one in four", PLAIN, "st.shared.u8 [%offset], %w2;", 1),
    access("ld.local.b32", PLAIN, "ld.local.b32 %w2, [stack];", 1),
    access("st.local.b32", PLAIN, "st.local.b32 [stack], %w2;", 1),
    access(
        "st.local.b32, ld.local.b32",
        PLAIN,
        "st.local.b32 [stack+4], %w2; ld.local.b32 %w2, [stack+4];",
        2,
    ),
    access("ld.local.b64", PLAIN, "ld.local.b64 %l2, [stack];", 1),
    access("st.local.b64", PLAIN, "st.local.b64 [stack], %l2;", 1),
    access("ld.local.v4.b32", PLAIN, "ld.local.v4.b32 {%w2, %w3, %w4, %w5}, [stack];", 1),
    access("st.local.v4.b32", PLAIN, "st.local.v4.b32 [stack], {%w2, %w3, %w4, %w5};", 1),
    access("ld.local.u8", PLAIN, "ld.local.u8 %w2, [stack];", 1),
    access("ld.local.b32, by index", PLAIN, "ld.local.b32 %w2, [%any];", 1),
    access("st.local.b32, by index", PLAIN, "st.local.b32 [%any], %w2;", 1),
    access("red.global.add.u32", ATOMIC, "red.global.add.u32 [%near], %w1;", 1),
    access("atom.global.add.u32", ATOMIC, "atom.global.add.u32 %w2, [%near], %w1;", 1),
    access("atom.shared.add.u32", SCATTERED, "atom.shared.add.u32 %w2, [%offset], %w1;", 1),
    access("atom.global.add.f32", ATOMIC, "atom.global.add.f32 %f2, [%near], %f1;", 1),
    access("shfl.sync.down.b32", PLAIN, "shfl.sync.down.b32 %w2, %w1, 1, 31, -1;", 1),
    access("shfl.sync.bfly.b32", PLAIN, "shfl.sync.bfly.b32 %w2, %w1, 1, 31, -1;", 1),
    access("shfl.sync.idx.b32", PLAIN, "shfl.sync.idx.b32 %w2, %w1, %w1, 31, -1;", 1),
    access("vote.sync.ballot.b32", PLAIN, "vote.sync.ballot.b32 %w2, %even, -1;", 1),
    access("match.any.sync.b32", SCATTERED, "match.any.sync.b32 %w2, %w1, -1;", 1),
    access("redux.sync.add.u32", PLAIN, "redux.sync.add.u32 %w2, %w1, -1;", 1),
    access("cp.async.ca.shared.global 4", SCATTERED, "cp.async.ca.shared.global [%offset], [%near], 4;", 1),
    access(
        "cp.async.ca.shared.global 16",
        SCATTERED,
        "cp.async.ca.shared.global [%offset16], [%base], 16;",
        1,
    ),
];

/// Fetches from a texture, whose handle is in `%image`, at `%f3` and `%f4`.
const FETCH: &str = "tex.2d.v4.f32.f32 {%f5, %f6, %f7, %f8}, [%image, {%f3, %f4}];";

const fn access(name: &'static str, plain: &'static str, body: &'static str, instructions: usize) -> Access {
    Access { name, plain, before: "", setup: "", body, instructions }
}

/// Everything whose name contains `filter`.
pub fn measure(bench: &Bench, filter: &str) -> Vec<Row> {
    let setup = format!(
        "{REGISTERS}\n{SHARED}\n{LOCAL}\n\
         .reg .b64 %scattered, %scattered8, %byte, %listed; .reg .b32 %offset16; .reg .pred %even;\n\
         and.b32 %w2, %w1, 0x3fc; cvt.u64.u32 %scattered, %w2; add.u64 %scattered, %scattered, %base;\n\
         and.b32 %w2, %w1, 0x7f8; cvt.u64.u32 %scattered8, %w2; add.u64 %scattered8, %scattered8, %base;\n\
         cvt.u64.u32 %byte, %thread; add.u64 %byte, %byte, %base; shl.b32 %offset16, %thread, 4; add.u32 %offset16, %offset16, %tile;\n\
         mov.u64 %listed, table; mad.wide.u32 %listed, %thread, 4, %listed; and.b32 %w2, %w1, 1; setp.eq.u32 %even, %w2, 0;\n\
         mov.b32 %f1, 0f3f800000; mov.b32 %f2, %f1; mov.b16 %h2, 1; mov.b16 %h3, 1; mov.b16 %h4, 1; mov.b16 %h5, 1;\n\
         mov.b32 %w2, 1; mov.b32 %w3, 1; mov.b32 %w4, 1; mov.b32 %w5, 1; mov.b64 %l2, 1;"
    );
    let before = ".const .align 16 .b8 table[1024];";
    let cost = |access: &Access, setup: &str| {
        let (before, setup) = (format!("{before}{}", access.before), format!("{setup}{}", access.setup));
        let cost = bench.nanoseconds(&before, &setup, access.body, access.instructions);
        cost.unwrap_or_else(|| panic!("{} is executed", access.name))
    };
    let image = |linear: bool| {
        let place = "cvt.rn.f32.u32 %f3, %thread; mul.f32 %f3, %f3, 0f3f3d70a4; mov.b32 %f4, 0f4115c28f;";
        format!("{setup} .reg .b64 %image; mov.b64 %image, {}; {place}", bench.image(linear))
    };
    let textures = [(POINT, image(false)), ("tex.2d.v4.f32.f32, linear", image(true))]
        .map(|(name, setup)| (access(name, POINT, FETCH, 1), setup));
    let all: Vec<(&Access, f64)> = ACCESSES
        .iter()
        .map(|access| (access, &setup))
        .chain(textures.iter().map(|(access, setup)| (access, setup)))
        .map(|(access, setup)| {
            let passes = (0..PASSES).map(|_| cost(access, setup));
            (access, passes.fold(f64::INFINITY, f64::min))
        })
        .collect();
    let plain_of =
        |name: &str| all.iter().find(|(access, _)| access.name == name).map_or(f64::NAN, |(_, cost)| *cost);
    let row = |(access, nanoseconds): &(&Access, f64)| Row {
        form: access.name.to_owned(),
        worst: access.body.to_owned(),
        instances: 1,
        nanoseconds: *nanoseconds,
        plain: access.plain.to_owned(),
        plain_nanoseconds: plain_of(access.plain),
    };
    all.iter().filter(|(access, _)| access.name.contains(filter)).map(row).collect()
}
