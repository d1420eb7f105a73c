//! The parts of 64-bit ELF files that machine code is stored in: headers, segments and sections.

use crate::{ImageError, u16_at, u32_at, u64_at};

/// Bytes of the file's header.
pub const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: u64 = 56;
const SECTION_HEADER_BYTES: u64 = 64;

/// The positions of the headers of segments and sections.
pub struct Tables {
    segments: (u64, u64),
    sections: (u64, u64),
    /// The section that holds the sections' names.
    pub names: u32,
}

/// The header of a section.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// The start of its name in the table of names.
    pub name: u32,
    /// One of the constants below, or another.
    pub kind: u32,
    /// Marks.
    pub flags: u64,
    at: u64,
    /// Bytes of its content, in the file or not.
    pub bytes: u64,
    /// A section that it refers to: of symbols, that of their names.
    pub link: u32,
    /// Another one: that of the code that it belongs to.
    pub info: u32,
}

impl Tables {
    /// Reads the file's header.
    pub fn of(header: &[u8]) -> Result<Tables, ImageError> {
        let (segment_bytes, segments) = (u16_at(header, 54)?, u16_at(header, 56)?);
        let (section_bytes, sections) = (u16_at(header, 58)?, u16_at(header, 60)?);
        let is_right = |count: u16, bytes: u16, right| count == 0 || u64::from(bytes) == right;
        if !is_right(segments, segment_bytes, PROGRAM_HEADER_BYTES)
            || !is_right(sections, section_bytes, SECTION_HEADER_BYTES)
        {
            return Err(ImageError::Truncated);
        }
        Ok(Tables {
            segments: (u64_at(header, 32)?, segments.into()),
            sections: (u64_at(header, 40)?, sections.into()),
            names: u16_at(header, 62)?.into(),
        })
    }

    /// The headers of all sections.
    pub fn sections<'a>(
        &self,
        file: &'a [u8],
    ) -> impl Iterator<Item = Result<Section, ImageError>> + use<'a> {
        let (at, count) = self.sections;
        (0..count).map(move |index| Section::read(file, at, index))
    }

    /// The header of one.
    pub fn section(&self, file: &[u8], index: u32) -> Result<Section, ImageError> {
        let (at, count) = self.sections;
        let index = Some(u64::from(index)).filter(|&index| index < count);
        Section::read(file, at, index.ok_or(ImageError::Truncated)?)
    }

    /// The byte behind header and tables; `None` where it is absurd.
    pub fn end(&self) -> Option<u64> {
        let end = |(at, count): (u64, u64), bytes: u64| match count {
            0 => Some(HEADER_BYTES as u64),
            _ => at.checked_add(count * bytes),
        };
        let tables = end(self.segments, PROGRAM_HEADER_BYTES)?.max(end(self.sections, SECTION_HEADER_BYTES)?);
        Some(tables.max(HEADER_BYTES as u64))
    }

    /// The byte behind the contents of all sections and segments; `file` holds the tables.
    pub fn end_of_contents(&self, file: &[u8]) -> Result<u64, ImageError> {
        let mut end = 0;
        let mut reach = |at: u64, bytes: u64| {
            end = at.checked_add(bytes).ok_or(ImageError::Truncated)?.max(end);
            Ok(())
        };
        for index in 0..self.segments.1 {
            let at = (self.segments.0 + index * PROGRAM_HEADER_BYTES) as usize;
            reach(u64_at(file, at + 8)?, u64_at(file, at + 32)?)?;
        }
        for section in self.sections(file) {
            let section = section?;
            if section.kind != Section::NO_BITS {
                reach(section.at, section.bytes)?;
            }
        }
        Ok(end)
    }
}

impl Section {
    /// Symbols.
    pub const SYMBOLS: u32 = 2;
    /// Without bytes in the file.
    pub const NO_BITS: u32 = 8;
    /// The calls from function to function.
    pub const CALL_GRAPH: u32 = 0x7000_0001;
    /// NVIDIA's attributes of the code.
    pub const INFO: u32 = 0x7000_0000;

    /// The one of this index in the table that begins at `table`.
    fn read(file: &[u8], table: u64, index: u64) -> Result<Self, ImageError> {
        let at = table.checked_add(index * SECTION_HEADER_BYTES).and_then(|at| usize::try_from(at).ok());
        let header = at.and_then(|at| file.get(at..)).ok_or(ImageError::Truncated)?;
        Ok(Self {
            name: u32_at(header, 0)?,
            kind: u32_at(header, 4)?,
            flags: u64_at(header, 8)?,
            at: u64_at(header, 24)?,
            bytes: u64_at(header, 32)?,
            link: u32_at(header, 40)?,
            info: u32_at(header, 44)?,
        })
    }

    /// Its bytes in the file.
    pub fn content<'a>(&self, file: &'a [u8]) -> Result<&'a [u8], ImageError> {
        let end = self.at.checked_add(self.bytes).and_then(|end| usize::try_from(end).ok());
        end.and_then(|end| file.get(self.at as usize..end)).ok_or(ImageError::Truncated)
    }
}
