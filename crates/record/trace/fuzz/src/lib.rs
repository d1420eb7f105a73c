//! Compact inputs, and the process files that they stand for.
//!
//! An input is a byte of switches, the first [`HEADER_PART`] bytes of a file, and then the first
//! [`CHUNK_PART`] bytes of each chunk; what lies between is zero. The switches decide whether the
//! file starts as it should whatever the input says (or else few inputs get past its first bytes),
//! and whether it ends where the input does.

use apex_trace::layout::{CHUNK_BYTES, HEADER_BYTES, MAGIC, VERSION};

/// Bytes of an input for the header page: a little more than the header.
pub const HEADER_PART: usize = 704;
/// Bytes of an input for a chunk.
pub const CHUNK_PART: usize = 1024;
/// Chunks of a file, at most.
const MAX_CHUNKS: usize = 6;

const KEEP_MAGIC: u8 = 1;
const CUT: u8 = 2;

/// The process file that `input` stands for.
pub fn expand(input: &[u8]) -> Vec<u8> {
    let Some((&switches, input)) = input.split_first() else { return Vec::new() };
    let (header, chunks) = input.split_at(input.len().min(HEADER_PART));
    let mut file = Vec::new();
    let mut end = put(&mut file, 0, HEADER_BYTES, header);
    for (index, chunk) in chunks.chunks(CHUNK_PART).take(MAX_CHUNKS).enumerate() {
        end = put(&mut file, HEADER_BYTES + index * CHUNK_BYTES, CHUNK_BYTES, chunk);
    }
    if switches & KEEP_MAGIC == 0 {
        file[..8].copy_from_slice(&MAGIC);
        file[8..12].copy_from_slice(&VERSION.to_le_bytes());
    }
    if switches & CUT != 0 {
        file.truncate(end);
    }
    file
}

/// The input that stands for the beginning of `file`.
pub fn compact(file: &[u8]) -> Vec<u8> {
    let mut input = vec![KEEP_MAGIC];
    input.extend(&file[..HEADER_PART]);
    for chunk in file[HEADER_BYTES..].chunks(CHUNK_BYTES).take(MAX_CHUNKS) {
        input.extend(&chunk[..CHUNK_PART.min(chunk.len())]);
    }
    input
}

/// Makes `file` `bytes` longer, with `content` at `start`; where that ends.
fn put(file: &mut Vec<u8>, start: usize, bytes: usize, content: &[u8]) -> usize {
    file.resize(start + bytes, 0);
    file[start..start + content.len()].copy_from_slice(content);
    start + content.len()
}
