//! Loads and stores: every width, space, vector and qualifier.
//!
//! A thread has 16 bytes of input. A load reads a part of the 16 bytes of another thread (or of its
//! own, in local memory); its registers are as wide as they may be, so that sign and zero extension
//! show. A store writes registers over 16 bytes with a pattern in them, and all 16 are compared.

use super::expand;
use crate::case::{Case, Rule};
use crate::kernel::Kernel;
use crate::random::Random;
use crate::values::Values;
use std::fmt::Write;

const BLOCK: u32 = 32;

/// The tested forms. `{space}` is filled in afterwards.
pub(super) fn generate(cases: &mut Vec<Case>) {
    let types = "{.b8,.u8,.s8,.b16,.u16,.s16,.b32,.u32,.s32,.b64,.u64,.s64,.f32,.f64}";
    let mut loads = expand(&format!("ld{{.global,.shared,.local,.const,}}{{.v2,.v4,}}{types}"));
    loads.extend(expand("ld.global.nc{.L1::no_allocate,}{.v2,.v4,}{.u8,.s16,.b32,.f64}"));
    loads.extend(expand("ld{.volatile,.weak,.relaxed.cta,.relaxed.gpu,.relaxed.sys,.acquire.cta,.acquire.gpu,.acquire.sys}{.global,.shared,}{.u8,.s16,.u32,.b64}"));
    loads.extend(expand("ld.global{.ca,.cg,.cs,.lu,.cv}{.v2,}{.s8,.u32,.f64}"));
    loads.extend(expand(
        "ld.global{.L1::evict_normal,.L1::evict_first,.L1::evict_last}{.L2::64B,.L2::128B,}.u32",
    ));
    loads.extend(expand("ldu.global{.v2,.v4,}{.u8,.s16,.u32,.f32}"));
    loads.extend(expand("ld{.weak,}.global{.L2::64B,.L2::128B,.L2::256B}{.v2,}{.s8,.b16,.u32,.f64}"));
    loads.extend(expand("ld.global.nc{.L2::64B,.L2::256B}{.v4,}{.u8,.s16,.f32}"));
    loads.extend(expand(
        "ld{.relaxed.gpu,.acquire.sys}.global{.L1::no_allocate,}{.L2::128B,}{.v2,}{.u16,.b32}",
    ));
    loads.extend(expand("ld.mmio.relaxed.sys{.global,}{.u8,.s16,.u32,.b64}"));
    for form in loads {
        cases.extend(load(&form));
    }
    let types = "{.b8,.u16,.s32,.b64,.f32,.f64}";
    let mut stores = expand(&format!("st{{.global,.shared,.local,}}{{.v2,.v4,}}{types}"));
    stores.extend(expand("st{.volatile,.weak,.relaxed.cta,.relaxed.gpu,.relaxed.sys,.release.cta,.release.gpu,.release.sys}{.global,.shared,}{.u8,.u16,.u32,.b64}"));
    stores.extend(expand("st.global{.wb,.cg,.cs,.wt}{.v2,}{.u8,.u32,.f64}"));
    stores
        .extend(expand("st.global{.L1::evict_normal,.L1::evict_first,.L1::evict_last,.L1::no_allocate}.u32"));
    stores.extend(expand(
        "st{.relaxed.gpu,.release.sys}.global{.L1::no_allocate,.L1::evict_last}{.v2,}{.u16,.b32}",
    ));
    stores.extend(expand("st.mmio.relaxed.sys{.global,}{.u8,.u16,.u32,.b64}"));
    for form in stores {
        cases.extend(store(&form));
    }
}

/// Bytes of an element, elements, and whether the element is a signed integer; nothing if it is
/// more than 16 bytes.
fn shape(form: &str) -> Option<(usize, usize, bool)> {
    let ty = form.rsplit('.').next()?;
    let bytes = ty[1..].parse::<usize>().ok()? / 8;
    let elements = if form.contains(".v2") {
        2
    } else if form.contains(".v4") {
        4
    } else {
        1
    };
    (bytes * elements <= 16).then_some((bytes, elements, ty.starts_with('s')))
}

/// The PTX version that has a form.
fn version(form: &str) -> &'static str {
    if form.contains(".mmio") { "8.2" } else { "8.0" }
}

fn space(form: &str) -> &'static str {
    ["global", "shared", "local", "const"]
        .into_iter()
        .find(|space| form.contains(&format!(".{space}")))
        .unwrap_or("")
}

fn load(form: &str) -> Option<Case> {
    let (bytes, elements, _) = shape(form)?;
    let mut kernel = Kernel::new(2, BLOCK);
    kernel.set_target(version(form), "sm_80");
    let size = bytes * elements;
    let address = source(&mut kernel, form, size);
    // Integers may be loaded into wider registers.
    let float = form.ends_with(".f32") || form.ends_with(".f64");
    let widths: &[usize] = match bytes {
        1 | 2 => &[16, 32, 64],
        4 if !float => &[32, 64],
        4 => &[32],
        _ => &[64],
    };
    for &width in widths {
        let registers: Vec<String> = (0..elements).map(|_| kernel.register(width)).collect();
        kernel.line(format!("{form} {}, [{address}];", vector(&registers)));
        let values = match width {
            16 => Values::B16,
            32 => Values::B32,
            _ => Values::B64,
        };
        for (index, register) in registers.iter().enumerate() {
            kernel.store(&format!("element {index} in {width} bits"), values, Rule::Exact, register);
        }
    }
    Some(kernel.finish(format!("{form}/0")))
}

fn vector(registers: &[String]) -> String {
    match registers {
        [one] => one.clone(),
        several => format!("{{{}}}", several.join(", ")),
    }
}

/// Fills the space that `form` loads from; the address of `size` bytes in it that this thread
/// loads.
fn source(kernel: &mut Kernel, form: &str, size: usize) -> String {
    let threads = kernel.threads();
    let column = kernel.column(Values::B64, 2 * threads);
    let address = kernel.register(64);
    let [index, within] = [0, 1].map(|_| kernel.register(32));
    // Which 16 bytes, and where in them.
    kernel.line(format!(
        "mad.lo.u32 {index}, thread, 13, 5;\nand.b32 {index}, {index}, {};\nand.b32 {within}, row, {};\nmul.lo.u32 \
         {within}, {within}, {size};\nmad.lo.u32 {index}, {index}, 16, {within};",
        BLOCK - 1,
        16 / size - 1,
    ));
    let [low, high] = [0, 1].map(|_| kernel.register(64));
    let mine = kernel.register(64);
    kernel.line(format!("mad.wide.u32 {mine}, row, 16, in;\nadd.u64 {mine}, {mine}, {column};"));
    match space(form) {
        "global" => {
            kernel.line(format!(
                "mad.wide.u32 {address}, {index}, 1, in;\nadd.u64 {address}, {address}, {column};"
            ));
        }
        "" => {
            // Generic: half of the threads read shared memory, the others global.
            fill_shared(kernel, &mine, &low, &high);
            let (base, shared) = (kernel.register(64), kernel.register(1));
            kernel.line(format!(
                "mov.u64 {address}, pool;\ncvta.shared.u64 {address}, {address};\ncvta.global.u64 {base}, in;\nadd.u64 \
                 {base}, {base}, {column};\nand.b32 {within}, thread, 4;\nsetp.ne.u32 {shared}, {within}, 0;\nselp.b64 \
                 {address}, {address}, {base}, {shared};\nmad.wide.u32 {address}, {index}, 1, {address};"
            ));
        }
        "shared" => {
            fill_shared(kernel, &mine, &low, &high);
            kernel.line(format!("mov.u64 {address}, pool;\nmad.wide.u32 {address}, {index}, 1, {address};"));
        }
        "local" => {
            kernel.declarations += ".local .align 16 .b8 own[64];\n";
            kernel.line(format!("ld.global.v2.b64 {{{low}, {high}}}, [{mine}];"));
            for (at, pair) in
                [(0, [&low, &high]), (16, [&high, &low]), (32, [&low, &low]), (48, [&high, &low])]
            {
                kernel.line(format!("st.local.v2.b64 [own+{at}], {{{}, {}}};", pair[0], pair[1]));
            }
            kernel.line(format!(
                "and.b32 {index}, {index}, 63;\nmov.u64 {address}, own;\nmad.wide.u32 {address}, {index}, 1, {address};"
            ));
        }
        _ => {
            let mut random = Random::named("constants");
            let mut bytes = String::new();
            for _ in 0..16 * BLOCK {
                let _ = write!(bytes, "{}, ", random.next() as u8);
            }
            let bytes = bytes.trim_end_matches(", ");
            kernel.module += &format!(".const .align 16 .b8 pool[{}] = {{{bytes}}};\n", 16 * BLOCK);
            kernel.line(format!("mov.u64 {address}, pool;\nmad.wide.u32 {address}, {index}, 1, {address};"));
        }
    }
    address
}

/// Copies each thread's 16 bytes at `mine` to its place in the shared variable `pool`.
fn fill_shared(kernel: &mut Kernel, mine: &str, low: &str, high: &str) {
    kernel.declarations += &format!(".shared .align 16 .b8 pool[{}];\n", 16 * BLOCK);
    let place = kernel.register(64);
    kernel.line(format!(
        "ld.global.v2.b64 {{{low}, {high}}}, [{mine}];\nmov.u64 {place}, pool;\nmad.wide.u32 {place}, thread, 16, \
         {place};\nst.shared.v2.b64 [{place}], {{{low}, {high}}};\nbar.sync 0;"
    ));
}

fn store(form: &str) -> Option<Case> {
    let (bytes, elements, _) = shape(form)?;
    let size = bytes * elements;
    let mut kernel = Kernel::new(2, BLOCK);
    kernel.set_target(version(form), "sm_80");
    let values = match bytes {
        1 | 2 => Values::B16,
        4 => Values::B32,
        _ => Values::B64,
    };
    let registers: Vec<String> = (0..elements).map(|_| kernel.load(values)).collect();
    let slot = kernel.slot("16 bytes", Values::B64, 2 * kernel.threads(), Rule::Exact);
    let [place, end] = [0, 1].map(|_| kernel.register(64));
    let within = kernel.register(32);
    let [low, high] = [0, 1].map(|_| kernel.register(64));
    kernel.line(format!(
        "and.b32 {within}, row, {};\nmul.lo.u32 {within}, {within}, {size};\nmad.wide.u32 {end}, row, 16, out;\nadd.u64 \
         {end}, {end}, {slot};",
        16 / size - 1
    ));
    // `through` is where the 16 bytes are written before they are read back.
    let (through, space) = match space(form) {
        "shared" => {
            kernel.declarations += &format!(".shared .align 16 .b8 pool[{}];\n", 16 * BLOCK);
            kernel.line(format!("mov.u64 {place}, pool;\nmad.wide.u32 {place}, thread, 16, {place};"));
            (place, ".shared")
        }
        "local" => {
            kernel.declarations += ".local .align 16 .b8 own[16];\n";
            kernel.line(format!("mov.u64 {place}, own;"));
            (place, ".local")
        }
        "" => {
            kernel.line(format!("cvta.global.u64 {place}, {end};"));
            (place, "")
        }
        _ => (end.clone(), ".global"),
    };
    let target = kernel.register(64);
    kernel.line(format!(
        "mov.b64 {low}, 0x1122334455667788;\nmov.b64 {high}, 0x99aabbccddeeff00;\nst{space}.v2.b64 [{through}], {{{low}, \
         {high}}};\nmad.wide.u32 {target}, {within}, 1, {through};\n{form} [{target}], {};\nld{space}.v2.b64 {{{low}, \
         {high}}}, [{through}];\nst.global.v2.b64 [{end}], {{{low}, {high}}};",
        vector(&registers)
    ));
    Some(kernel.finish(format!("{form}/0")))
}
