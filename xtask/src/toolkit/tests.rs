//! Toolkits of our own making, and a real one: `scripts/test-deps.sh` installs its headers, and
//! `APEX_TEST_CUDA_INCLUDE` may name those of another.

use super::*;
use crate::render;
use std::fmt::Write;

/// A folder with these headers; `None`, said aloud, where there is no preprocessor.
fn folder(headers: &[(&str, &str)]) -> Option<tempfile::TempDir> {
    if Command::new(compiler()).arg("--version").output().is_err() {
        test_skip::missing_dependency(format!("no C compiler `{}`", compiler()));
        return None;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, text) in headers {
        std::fs::write(folder.path().join(name), text).expect("a header");
    }
    Some(folder)
}

const CUDA_H: &str = r#"
#pragma once
#include <stdlib.h>
#define CUDA_VERSION 4020
#define CU_SIZE 0x10
#define CU_NOBODY ((CUthing)-1)
#ifdef __CUDA_API_VERSION_INTERNAL
#define PTSZ(api) api ## _ptsz
#else
#define PTSZ(api) api
#endif
#define cuThingMake cuThingMake_v2
#define cuThingWait PTSZ(cuThingWait)
typedef enum cuda_result { CUDA_SUCCESS = 0, CUDA_ERROR_LATE = 7 } CUresult;
typedef enum { CU_LEVEL_LOW = -1, CU_LEVEL_HIGH } CUlevel;
typedef struct CUthing_st *CUthing;
typedef struct CUsetup_st {
    CUlevel level;
    union { int fn; void (*call)(size_t in); };
    char pad[CU_SIZE - sizeof(CUlevel)];
} CUsetup_v1;
typedef CUsetup_v1 CUsetup;
CUresult cuThingMake(CUthing *thing, const CUsetup *setup, size_t type);
CUresult cuThingWait(CUthing thing);
#ifdef __CUDA_API_VERSION_INTERNAL
#undef cuThingMake
#undef cuThingWait
CUresult cuThingMake(CUthing *thing, const CUsetup *setup);
CUresult cuThingWait(CUthing thing);
#endif
"#;

const TYPEDEFS_H: &str = "
#include <cuda.h>
typedef CUresult (*PFN_cuThingMake_v3020)(CUthing *, const CUsetup_v1 *, size_t);
typedef CUresult (*PFN_cuThingMake_v2000)(CUthing *, const CUsetup_v1 *);
typedef CUresult (*PFN_cuThingWait_v7000_ptsz)(CUthing);
typedef CUresult (*PFN_cuThingWait_v2000)(CUthing);
";

#[test]
fn symbols_are_paired_with_versions_and_rendered() {
    let Some(folder) = folder(&[("cuda.h", CUDA_H), ("cudaTypedefs.h", TYPEDEFS_H)]) else { return };
    let mut toolkit = Toolkit::read(folder.path()).expect("the headers are right");
    toolkit.add_undeclared(["cuHidden_v2_ptds", "cuThingMake"].into_iter());
    let entries = toolkit.entries.iter();
    let entries: Vec<_> =
        entries.map(|e| (e.symbol.as_str(), e.base.as_str(), e.version, e.per_thread, e.header)).collect();
    let expected = [
        ("cuHidden_v2_ptds", "cuHidden_v2_ptds", 0, true, "Undeclared"),
        ("cuThingMake", "cuThingMake", 2000, false, "Core"),
        ("cuThingMake_v2", "cuThingMake", 3020, false, "Core"),
        ("cuThingWait", "cuThingWait", 2000, false, "Core"),
        ("cuThingWait_ptsz", "cuThingWait", 7000, true, "Core"),
    ];
    assert_eq!(entries, expected);
    assert_eq!((toolkit.version, toolkit.name().as_str()), (4020, "4.2"));

    let files: BTreeMap<_, _> = render::files(&toolkit).into_iter().collect();
    let contains = |file: &str, text: &str| assert!(files[file].contains(text), "{file}:\n{}", files[file]);
    let make = "pub type cuThingMake_v2 = unsafe extern \"C\" fn(thing: *mut CUthing, setup: *const CUsetup, r#type: usize) -> CUresult;";
    contains("signature.rs", make);
    contains("types.rs", "pub type CUlevel = i32;");
    contains("types.rs", "pub type CUthing = *mut CUthing_st;");
    contains(
        "types.rs",
        "pub union CUsetup_v1_anonymous {\n    pub r#fn: i32,\n    pub call: Option<unsafe extern \"C\" fn(r#in: usize)>,",
    );
    contains("types.rs", "plain!(CUsetup_v1: 32, 8;\n    level at 0, anonymous at 8, pad at 16\n);");
    contains("constants.rs", "pub const CU_LEVEL_LOW: CUlevel = -1;");
    contains("constants.rs", "pub const CU_SIZE: u32 = 16;");
    contains("constants.rs", "    (CUDA_ERROR_LATE, \"CUDA_ERROR_LATE\"),");
    contains(
        "table.rs",
        "(0, cuHidden_v2_ptds, cuHidden_v2_ptds, 0, PerThread, Undeclared),\n            (1, cuThingMake, cuThingMake, 2000, Legacy, Core),",
    );
    contains("table.rs", "BY_BASE: [u16; 4] = [1, 2, 3, 4];");
    contains("table.rs", "(4, cuThingWait_ptsz, cuThingWait, 7000, PerThread, Core),");
    assert!(!files["signature.rs"].contains("cuHidden"), "what no header declares has no signature");
}

/// Reads the headers with `from` replaced by `to`, which must fail.
fn failure(from: &str, to: &str) -> Option<String> {
    let headers = [("cuda.h", CUDA_H.replace(from, to)), ("cudaTypedefs.h", TYPEDEFS_H.replace(from, to))];
    let folder = folder(&headers.each_ref().map(|(name, text)| (*name, text.as_str())))?;
    Some(format!("{:#}", Toolkit::read(folder.path()).expect_err("an error")))
}

#[test]
fn what_does_not_pair_is_an_error_that_says_so() {
    let cases = [
        ("typedef CUresult (*PFN_cuThingWait_v2000)(CUthing);", "", "cuThingWait: 1 symbols but 0 versions"),
        ("PFN_cuThingWait_v2000", "PFN_cuThingRest_v2000", "cuThingWait: 1 symbols but 0 versions"),
        (
            "PFN_cuThingWait_v2000)(CUthing)",
            "PFN_cuThingWait_v2000)(CUthing, int)",
            "cuThingWait is declared otherwise",
        ),
        ("#define CUDA_VERSION 4020", "", "do not define CUDA_VERSION"),
        (
            "CUresult cuThingWait(CUthing thing);",
            "CUresult cuThingWait(CUthing thing, ...);",
            "variable arguments",
        ),
        ("#include <stdlib.h>", "#include <nowhere.h>", "nowhere.h"),
    ];
    for (from, to, expected) in cases {
        let Some(message) = failure(from, to) else { return };
        assert!(message.contains(expected), "{message}");
    }
    let extra = "typedef CUresult (*PFN_cuThingRest_v2000)(CUthing);\ntypedef CUresult (*PFN_cuThingWait_v2000)(CUthing);";
    let Some(message) = failure("typedef CUresult (*PFN_cuThingWait_v2000)(CUthing);", extra) else { return };
    assert!(message.contains("cuThingRest has a version in the typedefs but no declaration"), "{message}");
}

#[test]
fn names_come_apart() {
    let name = |base, number, suffix| Name { base, number, suffix };
    assert_eq!(Name::split("cuMemcpyHtoD_v2_ptds"), name("cuMemcpyHtoD", 2, Some("ptds")));
    assert_eq!(Name::split("cuLaunchKernel_ptsz"), name("cuLaunchKernel", 1, Some("ptsz")));
    assert_eq!(Name::split("cuInit"), name("cuInit", 1, None));
    assert_eq!(Name::split("cuA_v"), name("cuA_v", 1, None));
    assert_eq!(Name::split("cuA_vB"), name("cuA_vB", 1, None));
    assert_eq!(Name::split("_ptsz"), name("", 1, Some("ptsz")));
}

/// The real headers: those that the environment names, or that `scripts/test-deps.sh` installs.
fn real() -> Option<Toolkit> {
    let installed =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/test-deps/cuda-headers/nvidia/cu13/include");
    let include = std::env::var_os("APEX_TEST_CUDA_INCLUDE").map_or(installed, PathBuf::from);
    if !include.join("cuda.h").exists() {
        test_skip::missing_dependency(format!("no {}", include.join("cuda.h").display()));
        return None;
    }
    Some(crate::abi_gen::read(&include).expect("headers that can be read"))
}

/// Returns the offset of each member of a record, as C names it from outside; members of nameless
/// records inside are members of the record itself.
fn members(unit: &Unit, tag: &str, prefix: &str, base: u64) -> Vec<(String, u64)> {
    let record = &unit.records[tag];
    let (Some(fields), Some(layout)) = (&record.fields, &record.layout) else { return Vec::new() };
    let mut members = Vec::new();
    for (field, offset) in fields.iter().zip(&layout.offsets) {
        let at = base + offset;
        let path = format!("{prefix}{}", field.name);
        let inner_prefix = if field.name.is_empty() { prefix.to_owned() } else { format!("{path}.") };
        if let c::Type::Record(inner) = &field.ty {
            members.extend(self::members(unit, inner, &inner_prefix, at));
        }
        if !field.name.is_empty() {
            members.push((path, at));
        }
    }
    members
}

/// C that compiles only if every record is laid out as computed, and how many members it speaks of.
fn assertions(unit: &Unit) -> (String, usize) {
    let (mut text, mut count) = (String::new(), 0);
    for typedef in &unit.typedefs {
        let c::Type::Record(tag) = &typedef.ty else { continue };
        let (Some(layout), name) = (&unit.records[tag].layout, &typedef.name) else { continue };
        let c::layout::Layout { size, align } = layout.whole;
        let _ = writeln!(text, "_Static_assert(sizeof({name}) == {size}, \"size of {name}\");");
        let _ = writeln!(text, "_Static_assert(_Alignof({name}) == {align}, \"alignment of {name}\");");
        for (member, offset) in members(unit, tag, "", 0) {
            let found = format!("__builtin_offsetof({name}, {member})");
            let _ = writeln!(text, "_Static_assert({found} == {offset}, \"{name}.{member}\");");
            count += 1;
        }
    }
    (text, count)
}

/// Sizes, alignments and offsets are computed here and asserted in the generated types; a C
/// compiler agrees.
#[test]
fn layouts_are_those_of_a_c_compiler() {
    let Some(toolkit) = real() else { return };
    let (assertions, count) = assertions(&toolkit.unit);
    assert!(count > 300, "only {count} members of the driver's records were seen");
    let folder = stand_ins().expect("a temporary folder");
    let path = folder.path().join("layouts.c");
    std::fs::write(&path, main_file(&toolkit.include) + &assertions).expect("the program");
    let include = |folder: &Path| format!("-I{}", folder.display());
    let output = Command::new(compiler())
        .args(["-fsyntax-only", "-std=c17", "-D__CUDA_API_VERSION_INTERNAL"])
        .args([include(folder.path()), include(&toolkit.include)])
        .arg(&path)
        .output()
        .expect("the compiler that preprocessed the headers runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The committed files are what the generator makes of the toolkit that they name.
#[test]
fn the_committed_table_is_the_generated_one() {
    let Some(toolkit) = real() else { return };
    let source = crate::abi_gen::abi_folder().join("src");
    let named = format!("pub const TOOLKIT_VERSION: u32 = {};", toolkit.version);
    let table = std::fs::read_to_string(source.join("table.rs")).expect("the table");
    if !table.contains(&named) {
        return test_skip::missing_dependency(format!(
            "the committed table is of another toolkit than {}",
            toolkit.name()
        ));
    }
    for (name, text) in render::files(&toolkit) {
        let committed = std::fs::read_to_string(source.join(name)).expect("a committed file");
        let fresh = crate::abi_gen::rustfmt(&text).expect("rustfmt");
        assert!(committed == fresh, "{name} is not what `cargo xtask abi-gen` writes");
    }
}
