//! Cubins: machine code as ELF files of 64 bits. Where their tables and contents lie.

use crate::{ImageError, u16_at, u32_at, u64_at};

/// Bytes of the file's header.
pub const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: u64 = 56;
const SECTION_HEADER_BYTES: u64 = 64;
/// Sections without bytes in the file.
const SHT_NOBITS: u32 = 8;

/// Where the headers of segments and sections lie.
pub struct Tables {
    segments: (u64, u64),
    sections: (u64, u64),
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
        })
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
        for index in 0..self.sections.1 {
            let at = (self.sections.0 + index * SECTION_HEADER_BYTES) as usize;
            if u32_at(file, at + 4)? != SHT_NOBITS {
                reach(u64_at(file, at + 24)?, u64_at(file, at + 32)?)?;
            }
        }
        Ok(end)
    }
}
