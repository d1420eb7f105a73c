//! A toolkit's headers, read: what they declare and which entry points the driver exports.
//!
//! The system's C preprocessor does the macros, with `__CUDA_API_VERSION_INTERNAL` defined, which
//! makes `cuda.h` declare every version of everything. It sees no system header: the few names that
//! NVIDIA's headers need from the C library, OpenGL, EGL and VDPAU come from [`STAND_INS`], so the
//! outcome depends on the toolkit alone.

use crate::c::{self, Prototype, Unit};
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The headers that declare entry points: name, and the name of `cuda_abi::Header`'s variant.
const HEADERS: [(&str, &str); 5] = [
    ("cuda.h", "Core"),
    ("cudaGL.h", "Gl"),
    ("cudaEGL.h", "Egl"),
    ("cudaVDPAU.h", "Vdpau"),
    // Not in the wheels: its three functions come from its typedefs.
    ("cudaProfilerTypedefs.h", "Profiler"),
];

/// The headers that give each entry point's version: `PFN_<base>_v<version>[_ptsz|_ptds]`.
const TYPEDEF_HEADERS: [&str; 5] = [
    "cudaTypedefs.h",
    "cudaGLTypedefs.h",
    "cudaEGLTypedefs.h",
    "cudaVDPAUTypedefs.h",
    "cudaProfilerTypedefs.h",
];

/// The declarations that NVIDIA's headers take from others, by file.
const STAND_INS: [(&str, &str); 7] = [
    ("stdlib.h", "typedef unsigned long size_t;\n"),
    (
        "stdint.h",
        "typedef signed char int8_t; typedef unsigned char uint8_t; typedef short int16_t;\n\
         typedef unsigned short uint16_t; typedef int int32_t; typedef unsigned int uint32_t;\n\
         typedef long int64_t; typedef unsigned long uint64_t; typedef unsigned long uintptr_t;\n",
    ),
    ("GL/gl.h", "typedef unsigned int GLuint;\ntypedef unsigned int GLenum;\n"),
    ("EGL/egl.h", "typedef int EGLint;\ntypedef unsigned int EGLBoolean;\ntypedef void *EGLDisplay;\n"),
    ("EGL/eglext.h", "typedef void *EGLImageKHR;\ntypedef void *EGLStreamKHR;\ntypedef void *EGLSyncKHR;\n"),
    (
        "vdpau/vdpau.h",
        "typedef unsigned int VdpDevice;\ntypedef unsigned int VdpVideoSurface;\n\
         typedef unsigned int VdpOutputSurface;\n\
         typedef int VdpGetProcAddress(VdpDevice device, unsigned int function, void **address);\n",
    ),
    (
        "cudaProfiler.h",
        "typedef enum CUoutput_mode_enum { CU_OUT_KEY_VALUE_PAIR, CU_OUT_CSV } CUoutput_mode;\n",
    ),
];

/// A toolkit's headers.
#[derive(Debug)]
pub struct Toolkit {
    /// `CUDA_VERSION`, such as 13050.
    pub version: u32,
    /// Everything declared.
    pub unit: Unit,
    /// The exported functions, sorted by symbol.
    pub entries: Vec<Entry>,
    /// The folder that was read.
    pub include: PathBuf,
}

/// An exported function.
#[derive(Clone, Debug)]
pub struct Entry {
    /// As exported.
    pub symbol: String,
    /// As `cuGetProcAddress` knows it.
    pub base: String,
    /// The CUDA version that brought it.
    pub version: u32,
    /// Whether it is a `_ptsz` or `_ptds` form.
    pub per_thread: bool,
    /// The variant of `cuda_abi::Header`.
    pub header: &'static str,
    /// Its type; `None` for a symbol that no header declares.
    pub prototype: Option<Prototype>,
}

impl Toolkit {
    /// Reads the headers in `include`.
    ///
    /// # Errors
    /// No `cuda.h` there, no C preprocessor, or declarations that cannot be understood or paired.
    pub fn read(include: &Path) -> Result<Toolkit> {
        let header = include.join("cuda.h");
        ensure!(
            header.is_file(),
            "{} is not a file: name the folder that holds cuda.h (in the wheel nvidia-cuda-runtime: nvidia/cu13/include)",
            header.display()
        );
        let text = preprocess(include)?;
        let source = c::lex::lex(&text)?;
        let mut unit = c::parse::parse(&source)?;
        let version = macro_value(&mut unit, "CUDA_VERSION")?;
        let entries = entries(&unit)?;
        Ok(Toolkit { version, unit, entries, include: include.to_owned() })
    }

    /// Whether `place` is in one of this toolkit's own headers.
    pub fn own(&self, place: &c::Place) -> bool {
        Path::new(&*place.file).starts_with(&self.include)
    }

    /// `13.5` for 13050.
    pub fn name(&self) -> String {
        format!("{}.{}", self.version / 1000, self.version % 1000 / 10)
    }

    /// Adds symbols that the driver exports and no header declares. One that a header does declare
    /// is left out.
    pub fn add_undeclared<'a>(&mut self, symbols: impl Iterator<Item = &'a str>) {
        for symbol in symbols {
            if self.entries.iter().any(|entry| entry.symbol == symbol) {
                eprintln!("note: the headers of CUDA {} declare {symbol}: no longer undeclared", self.name());
                continue;
            }
            self.entries.push(Entry {
                symbol: symbol.to_owned(),
                base: symbol.to_owned(),
                version: 0,
                per_thread: Name::split(symbol).suffix.is_some(),
                header: "Undeclared",
                prototype: None,
            });
        }
        self.entries.sort_by(|a, b| a.symbol.cmp(&b.symbol));
    }
}

fn macro_value(unit: &mut Unit, name: &str) -> Result<u32> {
    let body = unit.macros.iter().find(|m| m.name == name).map(|m| m.body.clone());
    let body = body.with_context(|| format!("the headers do not define {name}"))?;
    Ok(u32::try_from(c::parse::constant_of(unit, &body)?.value)?)
}

/// The compiler whose preprocessor is used.
fn compiler() -> String {
    std::env::var("CC").unwrap_or_else(|_| "cc".to_owned())
}

/// A folder with the stand-ins.
fn stand_ins() -> Result<tempfile::TempDir> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    for (name, text) in STAND_INS {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap_or(folder.path()))?;
        std::fs::write(&path, format!("#pragma once\n{text}"))?;
    }
    Ok(folder)
}

/// A C file that includes all headers that are there. The stand-ins come first: cudaVDPAU.h uses
/// VDPAU's types without including them.
fn main_file(include: &Path) -> String {
    let present = |name: &&str| include.join(name).is_file();
    let headers = HEADERS.iter().map(|(name, _)| *name).chain(TYPEDEF_HEADERS).filter(present);
    STAND_INS
        .iter()
        .map(|(name, _)| *name)
        .chain(headers)
        .map(|name| format!("#include <{name}>\n"))
        .collect()
}

/// Runs the preprocessor over all headers.
fn preprocess(include: &Path) -> Result<String> {
    let stand_ins = stand_ins()?;
    let main_path = stand_ins.path().join("all.c");
    std::fs::write(&main_path, main_file(include))?;
    let compiler = compiler();
    let output = Command::new(&compiler)
        .args(["-E", "-dD", "-nostdinc", "-undef", "-D__LP64__=1", "-D__STDC_VERSION__=201710L"])
        .args(["-D__GNUC__=4", "-D__CUDA_API_VERSION_INTERNAL"])
        .arg("-I")
        .arg(stand_ins.path())
        .arg("-I")
        .arg(include)
        .arg(&main_path)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run the C preprocessor `{compiler}` (set CC to name another)"))?;
    if !output.status.success() {
        bail!(
            "`{compiler} -E` failed on {}:\n{}",
            include.display(),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    String::from_utf8(output.stdout).context("the preprocessed headers are not UTF-8")
}

/// A symbol taken apart: `cuMemcpyHtoD_v2_ptds` is `cuMemcpyHtoD`, 2, `ptds`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name<'a> {
    /// Without `_vN` and suffix.
    pub base: &'a str,
    /// The number after `_v`; 1 without one.
    pub number: u32,
    /// `ptsz` or `ptds`, if per-thread.
    pub suffix: Option<&'a str>,
}

impl<'a> Name<'a> {
    /// Takes a symbol apart.
    pub fn split(symbol: &'a str) -> Name<'a> {
        let (rest, suffix) = match symbol.rsplit_once('_') {
            Some((rest, suffix @ ("ptsz" | "ptds"))) => (rest, Some(suffix)),
            _ => (symbol, None),
        };
        let numbered = rest.rsplit_once("_v").and_then(|(base, digits)| Some((base, digits.parse().ok()?)));
        let (base, number) = numbered.unwrap_or((rest, 1));
        Name { base, number, suffix }
    }
}

/// An entry point's name without its version: the n-th symbol of a family belongs to its n-th
/// version.
type Family = (String, Option<String>);

/// Pairs the functions with the versions that the typedefs give.
fn entries(unit: &Unit) -> Result<Vec<Entry>> {
    let mut versions = versions(unit);
    let mut families: BTreeMap<Family, Vec<(u32, String, Prototype, &'static str)>> = BTreeMap::new();
    for (symbol, prototype, header) in functions(unit) {
        let name = Name::split(&symbol);
        let family = (name.base.to_owned(), name.suffix.map(str::to_owned));
        families.entry(family).or_default().push((name.number, symbol.clone(), prototype, header));
    }
    let mut entries = Vec::new();
    for (family, mut symbols) in families {
        symbols.sort_by_key(|symbol| symbol.0);
        let versions = versions.remove(&family).unwrap_or_default();
        ensure!(
            versions.len() == symbols.len(),
            "{}: {} symbols but {} versions in the typedefs",
            family.0,
            symbols.len(),
            versions.len()
        );
        for ((_, symbol, prototype, header), (version, typedef)) in symbols.into_iter().zip(versions) {
            ensure!(
                unit.canonical_prototype(&prototype) == unit.canonical_prototype(&typedef),
                "{symbol} is declared otherwise than its typedef of version {version}"
            );
            let (base, per_thread) = (family.0.clone(), family.1.is_some());
            entries.push(Entry { symbol, base, version, per_thread, header, prototype: Some(prototype) });
        }
    }
    if let Some((family, _)) = versions.first_key_value() {
        bail!("{} has a version in the typedefs but no declaration", family.0);
    }
    entries.sort_by(|a, b| a.symbol.cmp(&b.symbol));
    Ok(entries)
}

/// All functions declared in the five headers, with the header's variant.
fn functions(unit: &Unit) -> Vec<(String, Prototype, &'static str)> {
    let variant = |place: &c::Place| {
        let file = Path::new(&*place.file).file_name()?.to_str()?;
        HEADERS.iter().find(|(name, _)| *name == file).map(|(_, variant)| *variant)
    };
    let declared = unit.functions.iter().filter_map(|function| {
        Some((function.name.clone(), function.prototype.clone(), variant(&function.place)?))
    });
    let profiler = unit.typedefs.iter().filter_map(|typedef| {
        let (base, _, _) = pointer_typedef(&typedef.name)?;
        let header = variant(&typedef.place)?;
        Some((base.to_owned(), pointed_prototype(typedef)?.clone(), header))
    });
    declared.chain(profiler).collect()
}

/// `PFN_cuMemcpy_v7000_ptds` is `cuMemcpy`, 7000, `ptds`.
fn pointer_typedef(name: &str) -> Option<(&str, u32, Option<&str>)> {
    let name = Name::split(name.strip_prefix("PFN_")?);
    (name.number >= 1000).then_some((name.base, name.number, name.suffix))
}

fn pointed_prototype(typedef: &c::Typedef) -> Option<&Prototype> {
    match &typedef.ty {
        c::Type::Pointer { to, .. } => match &**to {
            c::Type::Function(prototype) => Some(prototype),
            _ => None,
        },
        _ => None,
    }
}

/// The versions of each family in ascending order, with their types.
fn versions(unit: &Unit) -> BTreeMap<Family, Vec<(u32, Prototype)>> {
    let mut versions: BTreeMap<Family, Vec<(u32, Prototype)>> = BTreeMap::new();
    for typedef in &unit.typedefs {
        let (Some((base, version, suffix)), Some(prototype)) =
            (pointer_typedef(&typedef.name), pointed_prototype(typedef))
        else {
            continue;
        };
        let family = (base.to_owned(), suffix.map(str::to_owned));
        versions.entry(family).or_default().push((version, prototype.clone()));
    }
    versions.values_mut().for_each(|family| family.sort_by_key(|version| version.0));
    versions
}

#[cfg(test)]
mod tests;
