//! Symbolization: from addresses in executable files to functions and lines.
//!
//! A session names the files that a program's call stacks go through, and addresses in them.
//! [`Symbols`] opens such a file, where it is still the same ([`Build`]), and tells what is at an
//! address: by DWARF, functions that were inlined included; by the symbol table where the file has
//! no DWARF or no line for the address. Separate debug files are looked for where distributions put
//! them, by the build identifier. Compressed debug sections and split DWARF are not read.
//!
//! Invariants:
//!
//! 1. Any bytes are a file: one that makes no sense has no symbols.
//! 2. Only regular files are opened, and at most [`MOST_BYTES`] of one are read.
//! 3. What is not known is not guessed: a function without a name is `None`.

mod elf;

use apex_kernel_names::host_function_name;
use elf::File;
use gimli::{EndianArcSlice, LittleEndian, SectionId};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum number of bytes of a file's sections that are read.
pub const MOST_BYTES: u64 = 1 << 30;

/// The folder in which distributions keep debug files, by build identifier.
const DEBUG_FILES: &str = "/usr/lib/debug/.build-id";

/// Highest address that is looked up.
const MOST_ADDRESS: u64 = 1 << 62;

/// Maximum number of functions that were inlined into each other and are told of one address.
const MOST_INLINED: usize = 64;

type Slice = EndianArcSlice<LittleEndian>;

/// The identity of a build of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Build {
    /// The build identifier in hexadecimal digits; where it is empty, length and time count.
    pub id: String,
    /// Length of the file, bytes.
    pub bytes: u64,
    /// The time of its last modification, in nanoseconds since 1970.
    pub modified_ns: u64,
}

/// A function at an address, or one that was inlined there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The function's name in its language, without parameters; `None` if unknown.
    pub function: Option<String>,
    /// Its name as the linker knows it; `None` if unknown.
    pub symbol: Option<String>,
    /// Path of the source file; `None` if unknown.
    pub file: Option<String>,
    /// Line in it; `None` if unknown.
    pub line: Option<u32>,
}

/// The addresses of symbols that the file at `path` exports, from its first byte on as it is
/// loaded; `None` if the file cannot be read.
pub fn exported<const N: usize>(path: &Path, wanted: [&str; N]) -> Option<[Option<u64>; N]> {
    let file = File::open_sections(path)?;
    Some(file.exported(wanted).map(|address| address.map(|address| address.wrapping_sub(file.start()))))
}

/// The functions that a file exports. Their names stay in the file, so that large libraries take
/// little memory.
pub struct Exports(File);

impl Exports {
    /// Those of the file at `path`; `None` if it cannot be read.
    pub fn of(path: &Path) -> Option<Exports> {
        let mut file = File::open_sections(path)?;
        file.read_exported_functions();
        Some(Exports(file))
    }

    /// The name, in its language and without parameters, of the function that holds `address`;
    /// `None` if the file exports none there.
    pub fn at(&self, address: u64) -> Option<String> {
        let mut place = Place::default();
        place.name(self.0.exported_at(address)?);
        place.function
    }
}

/// The symbols of a file.
pub struct Symbols {
    file: File,
    lines: Option<addr2line::Context<Slice>>,
}

impl Symbols {
    /// Those of the file at `path`, if that is the build in question.
    pub fn of(path: &Path, build: &Build) -> Option<Symbols> {
        let file = File::open(path)?;
        let is_same = if build.id.is_empty() {
            build.bytes > 0 && file.length() == build.bytes && file.modified_ns() == build.modified_ns
        } else {
            file.build_id().as_deref() == Some(build.id.as_str())
        };
        if !is_same {
            return None;
        }
        let separate = || {
            let (folder, name) = build.id.split_at_checked(2)?;
            let path = PathBuf::from(format!("{DEBUG_FILES}/{folder}/{name}.debug"));
            File::open(&path).filter(|file| file.build_id().as_deref() == Some(build.id.as_str()))
        };
        let lines = lines(&file).or_else(|| lines(&separate()?));
        Some(Symbols { file, lines })
    }

    /// Those of a program's own file, as it is now: `None` if it is longer than `most_bytes`,
    /// cannot be read, or has neither a symbol table nor lines.
    pub fn of_program(path: &Path, most_bytes: u64) -> Option<Symbols> {
        let sections = File::open_sections(path)?;
        if sections.length() > most_bytes || !(sections.has(".symtab") || sections.has(".debug_line")) {
            return None;
        }
        let file = File::open(path)?;
        let lines = lines(&file);
        Some(Symbols { file, lines })
    }

    /// Returns the functions at `address`: the innermost inlined one first, the one that the linker
    /// knows last. Empty where nothing is known.
    pub fn at(&self, address: u64) -> Vec<Place> {
        // (The library adds to it.)
        if address > MOST_ADDRESS {
            return Vec::new();
        }
        let mut places = self.lines.as_ref().map_or_else(Vec::new, |lines| by_dwarf(lines, address));
        if let Some(symbol) = self.file.symbol_at(address) {
            if places.is_empty() {
                places.push(Place::default());
            }
            // DWARF of lines alone has names without what they are defined in.
            places.last_mut().into_iter().for_each(|outermost| outermost.name(symbol.to_owned()));
        }
        places
    }
}

impl Place {
    /// Names it. Compilers name parts and copies of a function by suffixes (`.cold`, `.isra.0`).
    fn name(&mut self, mut symbol: String) {
        let end = symbol.find('.').filter(|&end| end > 0).unwrap_or(symbol.len());
        symbol.truncate(end);
        self.function = Some(host_function_name(&symbol));
        self.symbol = Some(symbol);
    }
}

/// Returns the functions that DWARF gives for an address.
fn by_dwarf(lines: &addr2line::Context<Slice>, address: u64) -> Vec<Place> {
    let mut places = Vec::new();
    let Ok(mut frames) = lines.find_frames(address).skip_all_loads() else { return places };
    while let Ok(Some(frame)) = frames.next() {
        let location = frame.location.as_ref();
        let mut place = Place {
            file: location.and_then(|location| location.file).map(ToOwned::to_owned),
            line: location.and_then(|location| location.line).filter(|&line| line > 0),
            ..Place::default()
        };
        let symbol = frame.function.as_ref().and_then(|function| function.raw_name().ok());
        if let Some(symbol) = symbol {
            place.name(symbol.into_owned());
        }
        places.push(place);
        if places.len() == MOST_INLINED {
            break;
        }
    }
    places.retain(|place| *place != Place::default());
    places
}

/// The file's DWARF, if it tells of lines.
fn lines(file: &File) -> Option<addr2line::Context<Slice>> {
    let mut left = MOST_BYTES;
    let mut load = |id: SectionId| -> Option<Slice> {
        let bytes = file.section(id.name(), left).unwrap_or_default();
        left -= bytes.len() as u64;
        Some(EndianArcSlice::new(Arc::from(bytes), LittleEndian))
    };
    load(SectionId::DebugLine).filter(|lines| !gimli::Reader::is_empty(lines))?;
    let dwarf = gimli::Dwarf::load(|id| load(id).ok_or(gimli::Error::Io)).ok()?;
    addr2line::Context::from_dwarf(dwarf).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::MetadataExt;

    /// This test's executable file, and which build it is.
    fn own() -> (PathBuf, Build) {
        let path = std::env::current_exe().expect("a path");
        let file = std::fs::metadata(&path).expect("a file");
        let modified_ns = (file.mtime() * 1_000_000_000 + file.mtime_nsec()) as u64;
        (path, Build { id: String::new(), bytes: file.len(), modified_ns })
    }

    #[inline(never)]
    fn somewhere() {}

    /// The address of `somewhere` as the file counts.
    fn address() -> u64 {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("mappings");
        let own = own().0.to_str().expect("text").to_owned();
        let first = maps.lines().find(|line| line.ends_with(&own)).expect("a mapping");
        let base = first.split('-').next().and_then(|base| u64::from_str_radix(base, 16).ok());
        somewhere as *const () as u64 - base.expect("an address")
    }

    #[test]
    fn an_address_has_its_function_and_line() {
        let (path, build) = own();
        let symbols = Symbols::of(&path, &build).expect("symbols");
        let places = symbols.at(address());
        let [place] = &places[..] else { panic!("{places:?}") };
        assert!(place.function.as_ref().expect("a name").ends_with("tests::somewhere"), "{place:?}");
        assert!(place.file.as_ref().expect("a file").ends_with("symbolization/src/lib.rs"), "{place:?}");
        let line = include_str!("lib.rs").lines().position(|line| line.contains("fn somewhere"));
        assert_eq!(place.line, line.map(|line| line as u32 + 1));
        assert_eq!(symbols.at(u64::MAX), []);
    }

    #[test]
    fn exported_symbols_have_the_address_at_which_they_are_loaded() {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("mappings");
        let library = maps.lines().find(|line| line.contains("/libc.so")).expect("the C library");
        let base = u64::from_str_radix(library.split('-').next().expect("an address"), 16).expect("a number");
        let path = Path::new(&library[library.find('/').expect("a path")..]);
        let [environment, missing] = exported(path, ["environ", "no_such_symbol"]).expect("a file");
        unsafe extern "C" {
            static environ: *const *const std::ffi::c_char;
        }
        assert_eq!((environment.map(|at| base + at), missing), (Some(&raw const environ as u64), None));
        assert_eq!(exported(Path::new("/proc/self/maps"), ["environ"]), None);
        let exports = Exports::of(path).expect("a file");
        let [qsort] = exported(path, ["qsort"]).expect("a file");
        assert_eq!(exports.at(qsort.expect("a function") + 1).as_deref(), Some("qsort"));
        assert_eq!((exports.at(0), exports.at(u64::MAX)), (None, None));
    }

    #[test]
    fn another_build_has_no_symbols() {
        let (path, build) = own();
        for other in [
            Build { bytes: build.bytes + 1, ..build.clone() },
            Build { modified_ns: 1, ..build.clone() },
            Build { id: "00".into(), ..build },
            Build::default(),
        ] {
            assert!(Symbols::of(&path, &other).is_none(), "{other:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
        #[test]
        fn a_damaged_file_is_no_fault(
            damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..40),
            in_header in any::<bool>(),
            address in 0..1u64 << 22,
        ) {
            let mut bytes = std::fs::read("/proc/self/exe").expect("this test");
            let sections = u64::from_le_bytes(bytes[40..48].try_into().expect("eight bytes")) as usize;
            for (at, byte) in damage {
                let places = if in_header { sections..bytes.len() } else { 0..bytes.len() };
                let at = places.start + at.index(places.len());
                bytes[at] = byte;
            }
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("damaged");
            std::fs::write(&path, &bytes).expect("a file");
            if let Some(file) = File::open(&path) {
                let build = Build { id: file.build_id().unwrap_or_default(), ..Build::default() };
                if let Some(symbols) = Symbols::of(&path, &build) {
                    let _ = symbols.at(address);
                }
            }
        }
    }
}
