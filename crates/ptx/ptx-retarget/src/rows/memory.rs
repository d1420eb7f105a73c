//! Accesses to memory: wide ones, vectors of atomics, matrices, hints, copies.

use ptx::syntax::tree::Operand;

use crate::code::{Code, is_sink};
use crate::site::Site;

/// Bytes that a vector of 128 bits has.
const HALF: i64 = 16;

/// `ld.global.v8.b32 {…}, [a]`: two accesses of half as many elements.
pub(super) fn wide(site: &Site<'_, '_>, code: &mut Code) -> Option<()> {
    let place = match site.opcode() {
        "ld" => 1,
        "st" => 0,
        _ => return None,
    };
    let is_wide = site.has("v8") || site.has("v4") && site.last().ends_with("64");
    if !is_wide {
        return None;
    }
    let mnemonic = site.rewritten(|word| match word {
        "v8" => Some("v4"),
        "v4" => Some("v2"),
        "L2::evict_normal" | "L2::evict_first" | "L2::evict_last" => None,
        word => Some(word),
    });
    let elements = site.elements(1 - place)?;
    let policy = site.operand(2).map_or(String::new(), |policy| format!(", {policy}"));
    let mut addresses = [site.address(place, 0)?, site.address(place, HALF)?];
    if let Some(base) = overwritten(site, place, elements) {
        addresses = copied_base(site, code, place, base)?;
    }
    for (half, address) in elements.chunks(elements.len() / 2).zip(addresses) {
        let texts: Vec<String> = half.iter().map(ToString::to_string).collect();
        let vector = format!("{{{}}}", texts.join(", "));
        // A vector that nobody wants needs no access.
        if half.iter().all(is_sink) {
            continue;
        }
        match place {
            1 => code.op(format!("{mnemonic} {vector}, {address}{policy}")),
            _ => code.op(format!("{mnemonic} {address}, {vector}{policy}")),
        }
    }
    Some(())
}

/// The register from which the address starts, if the instruction writes it.
fn overwritten(site: &Site<'_, '_>, place: usize, written: &[Operand]) -> Option<String> {
    let (base, _) = site.base_register(place)?;
    (place == 1 && written.iter().any(|element| element.to_string() == base)).then_some(base)
}

/// The two addresses from a copy of their register.
fn copied_base(site: &Site<'_, '_>, code: &mut Code, place: usize, base: String) -> Option<[String; 2]> {
    let (_, ty) = site.base_register(place)?;
    let copy = code.copy(if ty.bytes() == 8 { "b64" } else { "b32" }, &base);
    Some([0, HALF].map(|bytes| format!("[{copy}+{}]", site.offset(place) + bytes)))
}

/// `red.global.add.v4.f32 [a], {…}`: one operation for each element.
pub(super) fn vector_atomics(site: &Site<'_, '_>, code: &mut Code) -> Option<()> {
    let place = match site.opcode() {
        "atom" => 1,
        "red" => 0,
        _ => return None,
    };
    let is_vector = ["v2", "v4", "v8"].iter().any(|word| site.has(word));
    let values = site.elements(place + 1).filter(|_| is_vector)?;
    let mnemonic =
        site.rewritten(|word| (!matches!(word, "v2" | "v4" | "v8" | "L2::cache_hint")).then_some(word));
    let bytes = match site.last() {
        "f16" | "bf16" => 2,
        _ => 4,
    };
    let ty = if bytes == 2 { "b16" } else { "b32" };
    let mut results = Vec::new();
    for (index, value) in values.iter().enumerate() {
        let address = site.address(place, bytes * index as i64)?;
        if place == 0 {
            code.op(format!("{mnemonic} {address}, {value}"));
            continue;
        }
        let result = code.register(ty);
        code.op(format!("{mnemonic} {result}, {address}, {value}"));
        results.push(result);
    }
    if place == 1 {
        for (to, from) in site.elements(0)?.iter().zip(results).filter(|(to, _)| !is_sink(to)) {
            code.op(format!("mov.{ty} {to}, {from}"));
        }
    }
    Some(())
}

/// The address operand as a register of 32 bits that holds an address in shared memory.
fn shared_address(site: &Site<'_, '_>, code: &mut Code, place: usize) -> Option<String> {
    let address = code.register("b32");
    let is_shared = site.has("shared") || site.has("shared::cta");
    match site.base_register(place) {
        Some((base, ty)) if ty.bytes() == 8 => {
            let wide = code.copy("b64", &base);
            if !is_shared {
                code.op(format!("cvta.to.shared.u64 {wide}, {wide}"));
            }
            code.op(format!("cvt.u32.u64 {address}, {wide}"));
        }
        Some((base, _)) if is_shared => code.op(format!("mov.b32 {address}, {base}")),
        Some(_) => return None,
        None => {
            let Operand::Address(whole) = site.operands().get(place)? else { return None };
            let ptx::syntax::tree::AddressBase::Name(variable) = &whole.base else { return None };
            code.op(format!("mov.u32 {address}, {variable}"));
        }
    }
    code.op(format!("add.u32 {address}, {address}, {}", site.offset(place)));
    Some(address)
}

/// `stmatrix.sync.aligned.m8n8.x4.b16`: lanes 8 i to 8 i + 7 have the addresses of the rows of
/// matrix i; lane l holds the elements 2 (l % 4) and 2 (l % 4) + 1 of row l / 4, or with `.trans`
/// those of this column.
pub(super) fn store_matrix(site: &Site<'_, '_>, code: &mut Code) -> Option<()> {
    if site.opcode() != "stmatrix" || !site.has("m8n8") || site.last() != "b16" {
        return None;
    }
    let single = &site.operands()[1..2];
    let matrices = site.elements(1).unwrap_or(single);
    let address = shared_address(site, code, 0)?;
    let [lane, quarter, part] = [code.register("b32"), code.register("b32"), code.register("b32")];
    code.op(format!("mov.u32 {lane}, %laneid"));
    code.op(format!("shr.u32 {quarter}, {lane}, 2"));
    code.op(format!("and.b32 {part}, {lane}, 3"));
    for (matrix, fragment) in matrices.iter().enumerate() {
        if !site.has("trans") {
            let row = row_address(code, &address, &quarter, 8 * matrix);
            code.op(format!("mad.lo.u32 {row}, {part}, 4, {row}"));
            code.op(format!("st.shared.b32 [{row}], {fragment}"));
            continue;
        }
        let halves = code.halves("b32", "b16", &fragment.to_string());
        let first = code.register("b32");
        code.op(format!("shl.b32 {first}, {part}, 1"));
        for (half, element) in halves.iter().enumerate() {
            let row = row_address(code, &address, &first, 8 * matrix + half);
            code.op(format!("mad.lo.u32 {row}, {quarter}, 2, {row}"));
            code.op(format!("st.shared.b16 [{row}], {element}"));
        }
    }
    Some(())
}

/// The address that lane `lane + plus` has.
fn row_address(code: &mut Code, address: &str, lane: &str, plus: usize) -> String {
    let [source, row] = [code.register("b32"), code.register("b32")];
    code.op(format!("add.u32 {source}, {lane}, {plus}"));
    code.op(format!("shfl.sync.idx.b32 {row}, {address}, {source}, 31, 0xffffffff"));
    row
}

/// `st.bulk [a], size, 0`.
pub(super) fn bulk_store(site: &Site<'_, '_>, code: &mut Code) -> Option<()> {
    if site.opcode() != "st" || !site.has("bulk") {
        return None;
    }
    let [place, left] = [code.register("b64"), code.register("b64")];
    match site.base_register(0) {
        Some((base, ty)) if ty.bytes() == 8 => code.op(format!("mov.b64 {place}, {base}")),
        Some((base, _)) => code.op(format!("cvt.u64.u32 {place}, {base}")),
        None => return None,
    }
    code.op(format!("add.u64 {place}, {place}, {}", site.offset(0)));
    code.op(format!("mov.u64 {left}, {}", site.operand(1)?));
    let more = code.register("pred");
    let space = if site.has("shared::cta") { ".shared" } else { "" };
    code.region(|code, start, _| {
        code.op(format!("setp.ge.u64 {more}, {left}, 8"));
        code.when(&more, format!("st{space}.b64 [{place}], 0"));
        code.op(format!("add.u64 {place}, {place}, 8"));
        code.op(format!("sub.u64 {left}, {left}, 8"));
        code.when(&more, format!("bra {start}"));
    });
    Some(())
}

/// Hints for caches: the access without them, or nothing.
pub(super) fn hints(site: &Site<'_, '_>, code: &mut Code) -> Option<()> {
    match site.opcode() {
        "prefetch" if !site.has("tensormap") => return Some(()),
        "applypriority" | "discard" => return Some(()),
        "cp" if site.has("bulk") && site.has("prefetch") && !site.has("tensor") => return Some(()),
        "createpolicy" => {
            code.op(format!("mov.b64 {}, 0", site.operand(0)?));
            return Some(());
        }
        "ld" | "st" | "atom" | "red" | "cp" => {}
        _ => return None,
    }
    let is_hint = |word: &str| matches!(word, "L2::cache_hint" | "L2::64B" | "L2::128B" | "L2::256B");
    if !site.words.iter().any(|word| is_hint(word)) {
        return None;
    }
    let mnemonic = site.rewritten(|word| (!is_hint(word)).then_some(word));
    let count = site.operands().len() - usize::from(site.has("L2::cache_hint"));
    let operands: Vec<String> = site.operands()[..count].iter().map(ToString::to_string).collect();
    code.op(format!("{mnemonic} {}", operands.join(", ")));
    Some(())
}

/// `cp.async.ca.shared.global [a], [b], bytes` and the instructions that wait for it.
pub(super) fn asynchronous(site: &Site<'_, '_>, code: &mut Code) -> Option<()> {
    if site.opcode() != "cp" || !site.has("async") || site.has("bulk") || site.has("mbarrier") {
        return None;
    }
    if ["commit_group", "wait_group", "wait_all"].iter().any(|word| site.has(word)) {
        return Some(());
    }
    let bytes = site.operand(2).filter(|_| site.operands().len() == 3)?;
    let (vector, words) = match &*bytes {
        "4" => ("", 1),
        "8" => (".v2", 2),
        "16" => (".v4", 4),
        _ => return None,
    };
    let words: Vec<String> = (0..words).map(|_| code.register("b32")).collect();
    let vector_operand =
        if words.len() == 1 { words[0].clone() } else { format!("{{{}}}", words.join(", ")) };
    code.op(format!("ld.global{vector}.b32 {vector_operand}, {}", site.operand(1)?));
    code.op(format!("st.shared{vector}.b32 {}, {vector_operand}", site.operand(0)?));
    Some(())
}
