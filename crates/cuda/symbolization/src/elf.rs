//! Files in the Executable and Linkable Format, of 64 bits and little-endian: sections, the build
//! identifier, and the table of functions.

use apex_ordered::Order;
use apex_untrusted::read;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// Maximum length of a file that is opened: what is read of it is bounded by itself.
const MOST_FILE_BYTES: u64 = 1 << 40;
/// Maximum number of bytes of symbols and their names.
const MOST_TABLE_BYTES: u64 = 1 << 28;
/// Maximum number of sections.
const MOST_SECTIONS: u64 = 1 << 16;
/// Maximum number of bytes of a section's notes.
const MOST_NOTE_BYTES: u64 = 4096;

/// Maximum number of bytes of a name that is read alone.
const MOST_NAME_BYTES: u64 = 4096;
/// Maximum number of segments.
const MOST_SEGMENTS: u64 = 1 << 10;

const HEADER_BYTES: usize = 64;
const SEGMENT_BYTES: usize = 56;
/// `PT_LOAD`
const LOADED: u32 = 1;
const SECTION_BYTES: usize = 64;
const SYMBOL_BYTES: usize = 24;
/// `SHF_COMPRESSED`
const COMPRESSED: u64 = 0x800;
/// `SHT_NOBITS`
const NO_BITS: u32 = 8;
/// `STT_FUNC`
const FUNCTION: u8 = 2;
/// `NT_GNU_BUILD_ID`
const BUILD_ID: u32 = 3;

/// An open file.
pub struct File {
    file: fs::File,
    metadata: fs::Metadata,
    sections: Vec<Section>,
    /// The address at which the file's first byte is loaded.
    start: u64,
    functions: Vec<Function>,
    /// Names of functions.
    names: Vec<u8>,
}

struct Section {
    name: String,
    kind: u32,
    flags: u64,
    offset: u64,
    bytes: u64,
}

struct Function {
    begin: u64,
    bytes: u64,
    /// The start of its name.
    name: u32,
}

impl File {
    /// The file at `path` with its functions; `None` if it cannot be read or is of another format.
    pub fn open(path: &Path) -> Option<File> {
        let mut file = File::open_sections(path)?;
        file.read_functions(".symtab", ".strtab");
        if file.functions.is_empty() {
            file.read_functions(".dynsym", ".dynstr");
        }
        Some(file)
    }

    /// The file at `path` without its functions.
    pub fn open_sections(path: &Path) -> Option<File> {
        let file = read::open(path, MOST_FILE_BYTES).ok()?;
        let metadata = file.metadata().ok()?;
        let header = piece(&file, 0, HEADER_BYTES as u64)?;
        if header[..6] != *b"\x7fELF\x02\x01" {
            return None;
        }
        let (count, names) = (u64::from(u16_at(&header, 60)), usize::from(u16_at(&header, 62)));
        let table = piece(&file, u64_at(&header, 40), count.min(MOST_SECTIONS) * SECTION_BYTES as u64)?;
        let (entries, _) = table.as_chunks::<SECTION_BYTES>();
        let names = entries.get(names)?;
        let names = piece(&file, u64_at(names, 24), u64_at(names, 32).min(MOST_TABLE_BYTES))?;
        let section = |entry: &[u8; SECTION_BYTES]| Section {
            name: text(&names, u32_at(entry, 0)).unwrap_or_default().to_owned(),
            kind: u32_at(entry, 4),
            flags: u64_at(entry, 8),
            offset: u64_at(entry, 24),
            bytes: u64_at(entry, 32),
        };
        let sections = entries.iter().map(section).collect();
        let start = start(&file, &header);
        Some(File { file, metadata, sections, start, functions: Vec::new(), names: Vec::new() })
    }

    /// Reads the functions that the file exports, and leaves their names in it.
    pub fn read_exported_functions(&mut self) {
        self.read_functions(".dynsym", ".dynstr");
        self.names = Vec::new();
    }

    /// The name of the exported function that holds `address`, read from the file.
    pub fn exported_at(&self, address: u64) -> Option<String> {
        let names = self.sections.iter().find(|section| section.name == ".dynstr")?;
        let name = u64::from(self.function_at(address)?.name);
        let left = names.bytes.checked_sub(name)?.min(MOST_NAME_BYTES);
        let bytes = piece(&self.file, names.offset.checked_add(name)?, left)?;
        text(&bytes, 0).map(ToOwned::to_owned)
    }

    /// The address at which the file's first byte is loaded; 0 if it is not loaded.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The addresses of symbols that the file exports; `None` for each that it does not.
    pub fn exported<const N: usize>(&self, wanted: [&str; N]) -> [Option<u64>; N] {
        let tables = (self.section(".dynsym", MOST_TABLE_BYTES), self.section(".dynstr", MOST_TABLE_BYTES));
        let (Some(table), Some(names)) = tables else { return [None; N] };
        let mut found = [None; N];
        for entry in table.as_chunks::<SYMBOL_BYTES>().0 {
            let name = text(&names, u32_at(entry, 0)).filter(|_| u16_at(entry, 6) != 0);
            if let Some(at) = name.and_then(|name| wanted.iter().position(|wanted| *wanted == name)) {
                found[at] = Some(u64_at(entry, 8));
            }
        }
        found
    }

    /// Its length, bytes.
    pub fn length(&self) -> u64 {
        self.metadata.len()
    }

    /// Returns the time of its last modification, in nanoseconds since 1970.
    pub fn modified_ns(&self) -> u64 {
        let ns =
            self.metadata.mtime().saturating_mul(1_000_000_000).saturating_add(self.metadata.mtime_nsec());
        ns.try_into().unwrap_or(0)
    }

    /// Its build identifier in hexadecimal digits.
    pub fn build_id(&self) -> Option<String> {
        let notes = self.section(".note.gnu.build-id", MOST_NOTE_BYTES)?;
        let (head, rest) = notes.split_at_checked(16)?;
        let is_build_id = u32_at(head, 8) == BUILD_ID && head[12..] == *b"GNU\0";
        let content = rest.get(..u32_at(head, 4) as usize).filter(|_| is_build_id)?;
        Some(content.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Whether it has a section of this name.
    pub fn has(&self, name: &str) -> bool {
        self.sections.iter().any(|section| section.name == name)
    }

    /// The content of a section; `None` if there is none, or one that is compressed or longer than
    /// `most` bytes.
    pub fn section(&self, name: &str, most: u64) -> Option<Vec<u8>> {
        let section = self.sections.iter().find(|section| section.name == name)?;
        let is_readable = section.flags & COMPRESSED == 0 && section.kind != NO_BITS && section.bytes <= most;
        is_readable.then(|| piece(&self.file, section.offset, section.bytes)).flatten()
    }

    /// The name of the function that holds `address`.
    pub fn symbol_at(&self, address: u64) -> Option<&str> {
        text(&self.names, self.function_at(address)?.name)
    }

    fn function_at(&self, address: u64) -> Option<&Function> {
        let behind = self.functions.partition_point(|function| function.begin <= address);
        let last = &self.functions[..behind];
        let begin = last.last()?.begin;
        // Several names of one function: the first in the table.
        let same = last.iter().rev().take_while(|function| function.begin == begin);
        same.filter(|function| address - begin < function.bytes).last()
    }

    fn read_functions(&mut self, symbols: &str, names: &str) {
        let Some(table) = self.section(symbols, MOST_TABLE_BYTES) else { return };
        let Some(names) = self.section(names, MOST_TABLE_BYTES) else { return };
        let (entries, _) = table.as_chunks::<SYMBOL_BYTES>();
        let is_function =
            |entry: &&[u8; SYMBOL_BYTES]| entry[4] & 0x0f == FUNCTION && u16_at(&entry[..], 6) != 0;
        let function = |entry: &[u8; SYMBOL_BYTES]| Function {
            begin: u64_at(entry, 8),
            bytes: u64_at(entry, 16),
            name: u32_at(entry, 0),
        };
        self.functions = entries.iter().filter(is_function).map(function).collect();
        self.functions.order_by_key(|function| function.begin);
        self.names = names;
    }
}

/// The address at which the file's first byte is loaded, by its program headers.
fn start(file: &fs::File, header: &[u8]) -> u64 {
    let count = u64::from(u16_at(header, 56)).min(MOST_SEGMENTS);
    let segments = piece(file, u64_at(header, 32), count * SEGMENT_BYTES as u64).unwrap_or_default();
    let (segments, _) = segments.as_chunks::<SEGMENT_BYTES>();
    let is_first =
        |segment: &&[u8; SEGMENT_BYTES]| u32_at(&segment[..], 0) == LOADED && u64_at(&segment[..], 8) == 0;
    segments.iter().find(is_first).map_or(0, |segment| u64_at(segment, 16))
}

/// `bytes` bytes of the file from `offset` on; `None` if it has not as many.
fn piece(file: &fs::File, offset: u64, bytes: u64) -> Option<Vec<u8>> {
    let length = file.metadata().ok()?.len();
    if offset.checked_add(bytes)? > length {
        return None;
    }
    let mut piece = Vec::new();
    piece.try_reserve_exact(usize::try_from(bytes).ok()?).ok()?;
    piece.resize(bytes as usize, 0);
    file.read_exact_at(&mut piece, offset).ok()?;
    Some(piece)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |bytes| u16::from_le_bytes(bytes.try_into().unwrap_or_default()))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |bytes| u32::from_le_bytes(bytes.try_into().unwrap_or_default()))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap_or_default()))
}

/// The text at `at`, up to its zero.
fn text(bytes: &[u8], at: u32) -> Option<&str> {
    let bytes = bytes.get(at as usize..)?;
    let end = bytes.iter().position(|&byte| byte == 0)?;
    std::str::from_utf8(&bytes[..end]).ok().filter(|text| !text.is_empty())
}
