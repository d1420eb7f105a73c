//! The fatbin itself: its header, its entries, and their payloads.

use std::borrow::Cow;
use std::io::Read;

use crate::{FATBIN_MAGIC, ImageError, MAX_BYTES, u16_at, u32_at, u64_at};

pub(crate) const HEADER_BYTES: usize = 16;
pub(crate) const KIND_PTX: u16 = 1;
pub(crate) const KIND_CUBIN: u16 = 2;
pub(crate) const KIND_LTO_IR: u16 = 8;
pub(crate) const FLAG_LZ4: u64 = 0x2000;
const FLAG_ZSTD: u64 = 0x8000;

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
    payload: &'a [u8],
    /// The length of the payload once decompressed; 0 when it is not compressed.
    expanded_bytes: u64,
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
        let is_compressed = self.flags & (FLAG_LZ4 | FLAG_ZSTD) != 0;
        Ok(if is_compressed { Cow::Owned(self.decompress()?) } else { Cow::Borrowed(self.payload) })
    }

    fn decompress(&self) -> Result<Vec<u8>, ImageError> {
        if self.expanded_bytes > MAX_BYTES {
            return Err(ImageError::Corrupt);
        }
        let expanded = if self.flags & FLAG_ZSTD != 0 { self.unpack_zstd()? } else { self.unpack_lz4()? };
        if expanded.len() as u64 == self.expanded_bytes { Ok(expanded) } else { Err(ImageError::Corrupt) }
    }

    fn unpack_lz4(&self) -> Result<Vec<u8>, ImageError> {
        expand_lz4(self.payload, self.expanded_bytes)
    }

    fn unpack_zstd(&self) -> Result<Vec<u8>, ImageError> {
        let decoder =
            ruzstd::decoding::StreamingDecoder::new(self.payload).map_err(|_| ImageError::Corrupt)?;
        let mut expanded = Vec::new();
        decoder.take(self.expanded_bytes + 1).read_to_end(&mut expanded).map_err(|_| ImageError::Corrupt)?;
        Ok(expanded)
    }
}

/// A block of LZ4, which expands to so many bytes.
pub(crate) fn expand_lz4(block: &[u8], expanded_bytes: u64) -> Result<Vec<u8>, ImageError> {
    // LZ4 expands at most 255 times: a larger claim is corrupt, and must not be allocated for.
    if expanded_bytes > MAX_BYTES || expanded_bytes > block.len() as u64 * 256 {
        return Err(ImageError::Corrupt);
    }
    let expanded = lz4_flex::block::decompress(block, expanded_bytes as usize);
    expanded.ok().filter(|bytes| bytes.len() as u64 == expanded_bytes).ok_or(ImageError::Corrupt)
}

/// The entries of a fatbin, in file order.
pub(crate) struct Entries<'a> {
    pub(crate) rest: &'a [u8],
}

impl<'a> Entries<'a> {
    pub(crate) fn of(image: &'a [u8]) -> Result<Entries<'a>, ImageError> {
        let header = Header::read(image)?;
        let start = header.header_bytes as usize;
        let end =
            header.header_bytes.checked_add(header.payload_bytes).and_then(|end| usize::try_from(end).ok());
        let rest = image.get(start..end.ok_or(ImageError::Truncated)?).ok_or(ImageError::Truncated)?;
        Ok(Entries { rest })
    }

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
        let payload = if flags & (FLAG_LZ4 | FLAG_ZSTD) == 0 {
            padded_payload
        } else {
            padded_payload.get(..compressed).ok_or(ImageError::Truncated)?
        };
        let expanded_bytes = u64_at(entry, 56).unwrap_or(0);
        self.rest = &entry[end..];
        Ok(Entry {
            kind: u16_at(entry, 0)?,
            architecture: u32_at(entry, 28)?,
            flags,
            payload,
            expanded_bytes,
        })
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, ImageError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let entry = self.read_next();
        if entry.is_err() {
            self.rest = &[];
        }
        Some(entry)
    }
}
