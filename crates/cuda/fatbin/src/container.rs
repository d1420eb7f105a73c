//! The fatbin itself: its header, its entries, and their payloads.
//!
//! Since 13.4, nvcc and nvFatbin write concatenated entries (`--concat`, `-concat`): an entry holds
//! several parts, each an entry of its own in all other fatbins. Its header ends with a table of
//! the parts' headers, and its payload, which is compressed as a whole, has the payloads of the
//! parts one after the other.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::io::Read;
use std::rc::Rc;
use std::vec;

use crate::{FATBIN_MAGIC, ImageError, MAX_BYTES, u16_at, u32_at, u64_at};

pub(crate) const HEADER_BYTES: usize = 16;
pub(crate) const KIND_PTX: u16 = 1;
pub(crate) const KIND_CUBIN: u16 = 2;
pub(crate) const KIND_LTO_IR: u16 = 8;
/// An entry of several parts.
pub(crate) const KIND_CONCATENATED: u16 = 0x100;
pub(crate) const FLAG_LZ4: u64 = 0x2000;
const FLAG_ZSTD: u64 = 0x8000;
const COMPRESSED: u64 = FLAG_LZ4 | FLAG_ZSTD;
/// Bytes of an entry's header, and of a part's, without what may follow: options and identifiers.
const ENTRY_BYTES: usize = 64;
/// Offset of the table of parts in the header of a concatenated entry: their number and the bytes
/// of the table (u32 each, these eight bytes included), then the headers of the parts.
const TABLE: usize = ENTRY_BYTES;

pub(crate) struct Header {
    pub(crate) header_bytes: u64,
    pub(crate) payload_bytes: u64,
}

impl Header {
    pub(crate) fn read(image: &[u8]) -> Result<Header, ImageError> {
        if u32_at(image, 0)? != FATBIN_MAGIC {
            return Err(ImageError::Unrecognised);
        }
        let header_bytes = u64::from(u16_at(image, 6)?);
        if header_bytes < HEADER_BYTES as u64 {
            return Err(ImageError::Truncated);
        }
        Ok(Header { header_bytes, payload_bytes: u64_at(image, 8)? })
    }
}

pub(crate) struct Entry<'a> {
    pub(crate) kind: u16,
    pub(crate) architecture: u32,
    flags: u64,
    payload: Payload<'a>,
    /// The length of the payload once decompressed; 0 when it is not compressed.
    expanded_bytes: u64,
    /// The headers of the parts of a concatenated entry.
    table: &'a [u8],
}

/// The place of an entry's bytes.
enum Payload<'a> {
    /// In the fatbin.
    Stored(&'a [u8]),
    /// A part of the payload of a concatenated entry: start and length.
    Part(Rc<Concatenated<'a>>, usize, usize),
}

/// The payload of a concatenated entry, decompressed when the first part is wanted.
struct Concatenated<'a> {
    entry: Entry<'a>,
    expanded: OnceCell<Result<Cow<'a, [u8]>, ImageError>>,
}

impl<'a> Entry<'a> {
    /// Whether to run this rather than `other`: the newest of those up to `newest`, else the
    /// oldest. If two are for the same architecture, the later one counts, as it does for the
    /// driver.
    pub(crate) fn suits_better(&self, other: &Entry<'_>, newest: u32) -> bool {
        match (self.architecture <= newest, other.architecture <= newest) {
            (true, true) => self.architecture >= other.architecture,
            (false, false) => self.architecture < other.architecture,
            (fits, _) => fits,
        }
    }

    /// The entry's PTX, decompressed and without the zero bytes that pad it.
    pub(crate) fn text(&self) -> Result<Cow<'a, [u8]>, ImageError> {
        let bytes = self.expanded()?;
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        Ok(match bytes {
            Cow::Borrowed(bytes) => Cow::Borrowed(&bytes[..end]),
            Cow::Owned(mut bytes) => {
                bytes.truncate(end);
                Cow::Owned(bytes)
            }
        })
    }

    /// The entry's payload, decompressed.
    pub(crate) fn expanded(&self) -> Result<Cow<'a, [u8]>, ImageError> {
        let stored = match &self.payload {
            Payload::Stored(bytes) => Cow::Borrowed(*bytes),
            Payload::Part(whole, from, bytes) => Cow::Owned(whole.bytes(*from, *bytes)?.to_vec()),
        };
        if self.flags & COMPRESSED == 0 { Ok(stored) } else { self.decompress(&stored).map(Cow::Owned) }
    }

    fn decompress(&self, payload: &[u8]) -> Result<Vec<u8>, ImageError> {
        if self.expanded_bytes > MAX_BYTES {
            return Err(ImageError::Corrupt);
        }
        let expanded = match self.flags & FLAG_ZSTD != 0 {
            true => expand_zstd(payload, self.expanded_bytes)?,
            false => expand_lz4(payload, self.expanded_bytes)?,
        };
        if expanded.len() as u64 == self.expanded_bytes { Ok(expanded) } else { Err(ImageError::Corrupt) }
    }

    /// The parts of a concatenated entry; of any other the entry itself.
    pub(crate) fn parts(self) -> Result<Vec<Entry<'a>>, ImageError> {
        if self.kind != KIND_CONCATENATED {
            return Ok(vec![self]);
        }
        let count = u32_at(self.table, 0)?;
        let bytes = u32_at(self.table, 4)? as usize;
        let mut rest = self.table.get(8..bytes).ok_or(ImageError::Truncated)?;
        let whole = Rc::new(Concatenated { entry: self, expanded: OnceCell::new() });
        let mut parts = Vec::new();
        let mut next = None;
        for _ in 0..count {
            rest = part_from(rest, next)?;
            let (from, bytes) = (u32_at(rest, 4)? as usize, u64_at(rest, 8)?);
            let bytes = usize::try_from(bytes).map_err(|_| ImageError::Truncated)?;
            let end = from.checked_add(bytes).ok_or(ImageError::Truncated)?;
            let flags = u64_at(rest, 40)?;
            let stored =
                if flags & COMPRESSED == 0 { bytes } else { (u32_at(rest, 16)? as usize).min(bytes) };
            parts.push(Entry {
                kind: u16_at(rest, 0)?,
                architecture: u32_at(rest, 28)?,
                flags,
                payload: Payload::Part(Rc::clone(&whole), from, stored),
                expanded_bytes: u64_at(rest, 56)?,
                table: &[],
            });
            next = Some((u16_at(rest, 2)?, end));
            rest = &rest[ENTRY_BYTES..];
        }
        Ok(parts)
    }
}

/// The next header of a part: the first header, or what comes after the last one's options and
/// identifier. Their length is not stated, so the header is told by its version and by the offset
/// of its payload, which begins where the last one ends.
fn part_from(table: &[u8], last: Option<(u16, usize)>) -> Result<&[u8], ImageError> {
    let (mut rest, Some((version, end))) = (table, last) else { return Ok(table) };
    loop {
        if u16_at(rest, 2)? == version && u32_at(rest, 4)? as usize == end {
            return Ok(rest);
        }
        rest = rest.get(8..).ok_or(ImageError::Truncated)?;
    }
}

impl Concatenated<'_> {
    fn bytes(&self, from: usize, bytes: usize) -> Result<&[u8], ImageError> {
        let expanded =
            self.expanded.get_or_init(|| self.entry.expanded()).as_ref().map_err(|error| *error)?;
        let end = from.checked_add(bytes).ok_or(ImageError::Truncated)?;
        expanded.get(from..end).ok_or(ImageError::Truncated)
    }
}

fn expand_zstd(payload: &[u8], expanded_bytes: u64) -> Result<Vec<u8>, ImageError> {
    let decoder = ruzstd::decoding::StreamingDecoder::new(payload).map_err(|_| ImageError::Corrupt)?;
    let mut expanded = Vec::new();
    decoder.take(expanded_bytes + 1).read_to_end(&mut expanded).map_err(|_| ImageError::Corrupt)?;
    Ok(expanded)
}

/// Expands a block of LZ4 to `expanded_bytes` bytes.
pub(crate) fn expand_lz4(block: &[u8], expanded_bytes: u64) -> Result<Vec<u8>, ImageError> {
    // LZ4 expands at most 255 times: a larger claim is corrupt, and must not be allocated for.
    if expanded_bytes > MAX_BYTES || expanded_bytes > block.len() as u64 * 256 {
        return Err(ImageError::Corrupt);
    }
    let expanded = lz4_flex::block::decompress(block, expanded_bytes as usize);
    expanded.ok().filter(|bytes| bytes.len() as u64 == expanded_bytes).ok_or(ImageError::Corrupt)
}

/// The entries of a fatbin, in file order; the parts of concatenated ones in their place.
pub(crate) struct Entries<'a> {
    pub(crate) rest: &'a [u8],
    parts: vec::IntoIter<Entry<'a>>,
}

impl<'a> Entries<'a> {
    pub(crate) fn of(image: &'a [u8]) -> Result<Entries<'a>, ImageError> {
        let header = Header::read(image)?;
        let start = header.header_bytes as usize;
        let end =
            header.header_bytes.checked_add(header.payload_bytes).and_then(|end| usize::try_from(end).ok());
        let rest = image.get(start..end.ok_or(ImageError::Truncated)?).ok_or(ImageError::Truncated)?;
        Ok(Entries { rest, parts: Vec::new().into_iter() })
    }

    /// The next entry, concatenated or not.
    ///
    /// An entry's header: kind u16 at 0, header bytes u32 at 4, padded payload bytes u64 at 8,
    /// compressed bytes u32 at 16, architecture u32 at 28, flags u64 at 40, expanded bytes u64 at
    /// 56.
    pub(crate) fn read_next(&mut self) -> Result<Entry<'a>, ImageError> {
        let entry = self.rest;
        let header_bytes = u32_at(entry, 4)? as usize;
        let padded = usize::try_from(u64_at(entry, 8)?).map_err(|_| ImageError::Truncated)?;
        let end = header_bytes.checked_add(padded).filter(|&end| end > 0).ok_or(ImageError::Truncated)?;
        let padded_payload = entry.get(header_bytes..end).ok_or(ImageError::Truncated)?;
        let flags = u64_at(entry, 40)?;
        let compressed = u32_at(entry, 16)? as usize;
        let payload = if flags & COMPRESSED == 0 {
            padded_payload
        } else {
            padded_payload.get(..compressed).ok_or(ImageError::Truncated)?
        };
        let expanded_bytes = u64_at(entry, 56).unwrap_or(0);
        let table = entry.get(TABLE..header_bytes).unwrap_or(&[]);
        self.rest = &entry[end..];
        Ok(Entry {
            kind: u16_at(entry, 0)?,
            architecture: u32_at(entry, 28)?,
            flags,
            payload: Payload::Stored(payload),
            expanded_bytes,
            table,
        })
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, ImageError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(part) = self.parts.next() {
                return Some(Ok(part));
            }
            if self.rest.is_empty() {
                return None;
            }
            match self.read_next().and_then(Entry::parts) {
                Ok(parts) => self.parts = parts.into_iter(),
                Err(error) => {
                    self.rest = &[];
                    return Some(Err(error));
                }
            }
        }
    }
}
