//! What a shared library says of itself: its SONAME, what it needs, and what it exports.
//!
//! For tests that hold a stand-in for `libcuda.so.1` against the table, and for code that must tell
//! such a library from another. Reads the section headers of 64-bit little-endian ELF files. Any
//! bytes give a [`Library`] or an [`Error`], never a panic; names that are not UTF-8 are left out.

/// Why a file could not be read as a shared library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// It does not begin like a 64-bit little-endian ELF file.
    NotElf64,
    /// Something lies outside the file.
    Truncated,
    /// It has no dynamic section or no dynamic symbols: a static program, an object file, or
    /// stripped of headers.
    NotDynamic,
}

impl core::fmt::Display for Error {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Error::NotElf64 => "not a 64-bit little-endian ELF file",
            Error::Truncated => "the ELF file is truncated or its headers are corrupt",
            Error::NotDynamic => "the ELF file has no dynamic section or no dynamic symbols",
        })
    }
}

impl core::error::Error for Error {}

/// A shared library's dynamic section and symbols.
#[derive(Clone, Copy, Debug)]
pub struct Library<'a> {
    /// Pairs of tag and value, 16 bytes each.
    dynamic: Table<'a>,
    /// Symbols, 24 bytes each.
    symbols: Table<'a>,
}

/// A section and the strings it refers to.
#[derive(Clone, Copy, Debug)]
struct Table<'a> {
    bytes: &'a [u8],
    strings: &'a [u8],
}

const SHT_DYNAMIC: u32 = 6;
const SHT_DYNSYM: u32 = 11;
const DT_NEEDED: u64 = 1;
const DT_SONAME: u64 = 14;

impl<'a> Library<'a> {
    /// Reads a whole file.
    ///
    /// # Errors
    /// The file is not a shared library, or it is corrupt.
    pub fn parse(file: &'a [u8]) -> Result<Library<'a>, Error> {
        // Magic number, 64 bits, little-endian.
        if !file.starts_with(b"\x7fELF\x02\x01") {
            return Err(Error::NotElf64);
        }
        let dynamic = Table::find(file, SHT_DYNAMIC)?;
        let symbols = Table::find(file, SHT_DYNSYM)?;
        Ok(Library { dynamic, symbols })
    }

    /// The name under which the loader knows it.
    pub fn soname(&self) -> Option<&'a str> {
        self.dynamic_strings(DT_SONAME).next()
    }

    /// The libraries that it asks the loader for.
    pub fn needed(&self) -> impl Iterator<Item = &'a str> {
        self.dynamic_strings(DT_NEEDED)
    }

    fn dynamic_strings(&self, wanted: u64) -> impl Iterator<Item = &'a str> {
        let table = self.dynamic;
        let entries = table.bytes.chunks_exact(16);
        let offsets = entries
            .filter(move |entry| number::<8>(entry, 0) == Some(wanted))
            .filter_map(|entry| number::<8>(entry, 8));
        offsets.filter_map(move |offset| string(table.strings, offset))
    }

    /// The symbols that it defines for others: global or weak, and not hidden.
    pub fn exports(&self) -> impl Iterator<Item = &'a str> {
        let table = self.symbols;
        let exported = table.bytes.chunks_exact(24).filter(|symbol| {
            let (binding, visibility, section) = (symbol[4] >> 4, symbol[5] & 3, &symbol[6..8]);
            matches!(binding, 1 | 2) && matches!(visibility, 0 | 3) && section != [0, 0]
        });
        exported.filter_map(move |symbol| string(table.strings, number::<4>(symbol, 0)?))
    }
}

impl<'a> Table<'a> {
    /// The first section of a kind, with the string table that it links to.
    fn find(file: &'a [u8], kind: u32) -> Result<Table<'a>, Error> {
        let headers = number::<8>(file, 0x28).ok_or(Error::Truncated)?;
        let count = number::<2>(file, 0x3c).ok_or(Error::Truncated)?;
        let header = |at: u64| {
            let start = headers.checked_add(at.checked_mul(64)?)?;
            slice(file, start, 64)
        };
        for at in 0..count {
            let found = header(at).ok_or(Error::Truncated)?;
            if number::<4>(found, 4) == Some(u64::from(kind)) {
                let strings =
                    number::<4>(found, 40).and_then(header).and_then(|linked| section(file, linked));
                let table = section(file, found).zip(strings);
                return table.map(|(bytes, strings)| Table { bytes, strings }).ok_or(Error::Truncated);
            }
        }
        Err(Error::NotDynamic)
    }
}

/// What a section header points to.
fn section<'a>(file: &'a [u8], header: &[u8]) -> Option<&'a [u8]> {
    slice(file, number::<8>(header, 24)?, number::<8>(header, 32)?)
}

fn slice(bytes: &[u8], start: u64, len: u64) -> Option<&[u8]> {
    let end = start.checked_add(len)?;
    bytes.get(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
}

/// A little-endian number of `N` bytes, at most 8.
fn number<const N: usize>(bytes: &[u8], at: u64) -> Option<u64> {
    let digits = slice(bytes, at, N as u64)?;
    Some(digits.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

/// The string that begins at `offset` and ends before the next NUL.
fn string(strings: &[u8], offset: u64) -> Option<&str> {
    let rest = strings.get(usize::try_from(offset).ok()?..)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    core::str::from_utf8(&rest[..end]).ok()
}
