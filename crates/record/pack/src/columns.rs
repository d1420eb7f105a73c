//! A process file field by field: the same field of all records, one after the other.
//!
//! The file is seven columns, each after its length in 64 bits: sizes (unit of times, length of
//! the file), header page with the headers of chunks, definitions, heads of records, payloads,
//! starts, durations. Numbers of several bytes are stored as *planes*: the first byte of each, the
//! second byte of each, and so on.
//!
//! 1. Times are stored in units.
//! 2. A start is stored as its distance from the end of the record before it. Records whose start
//!    is that of another one ([`Record::is_late`]) are a sequence of their own, without durations.
//! 3. Times are sorted by what is called, and by what was called before it: calls of the same
//!    function have similar times. The order follows from heads and payloads, so it is not stored.

use crate::process_file::{CHUNK_HEADER_BYTES, Chunk, Content, ProcessFile, Record};
use apex_trace::layout::{CHUNK_BYTES, HEADER_BYTES, SLOT_BYTES};
use std::collections::BTreeMap;
use std::io::{Error, Result};

/// Bytes of a payload, of a start, of a duration.
const WIDTHS: [usize; 3] = [2 * SLOT_BYTES - 16, 8, 4];

/// Bytes of a record's head.
const HEAD_BYTES: usize = 4;
/// Bytes of a file that is decoded, at most.
const MOST_BYTES: u64 = 1 << 30;
/// Ticks of a unit of times, at most.
const MOST_UNIT: u64 = 1 << 16;

/// The columns of a file whose times are multiples of `unit` ticks.
pub fn encode(file: &ProcessFile, unit: u64) -> Vec<u8> {
    let records: Vec<Record> = file.chunks.iter().flat_map(|chunk| chunk.records()).copied().collect();
    let sizes = [unit, file.length].map(u64::to_le_bytes).concat();
    let headers = file.chunks.iter().flat_map(|chunk| chunk.header);
    let frame = file.header.iter().copied().chain(headers).collect();
    let definitions = file.chunks.iter().flat_map(|chunk| chunk.bytes()).copied().collect();
    let heads = planes(&records.iter().map(|record| record.head.to_vec()).collect::<Vec<_>>());
    let order = Order::of(&records);
    let starts = distances(&records, unit);
    let starts: Vec<_> = order.by_pair.iter().map(|&at| starts[at].to_le_bytes().to_vec()).collect();
    let duration = |&at: &usize| duration_in(unit, &records[at]).to_le_bytes().to_vec();
    let durations: Vec<_> = order.by_call.iter().map(duration).collect();
    let columns = [sizes, frame, definitions, heads, payloads(&records), planes(&starts), planes(&durations)];
    columns.iter().flat_map(|column| [&(column.len() as u64).to_le_bytes(), &column[..]].concat()).collect()
}

/// The file of these columns.
///
/// # Errors
/// If they are no columns that [`encode`] wrote.
pub fn decode(bytes: &[u8]) -> Result<ProcessFile> {
    let mut rest = bytes;
    let mut column = || -> Result<&[u8]> {
        let length = u64::from_le_bytes(take(&mut rest, 8)?.try_into().map_err(Error::other)?);
        take(&mut rest, length as usize)
    };
    let mut sizes = column()?.chunks_exact(8).map(|number| u64::from_le_bytes(number.try_into().unwrap()));
    let [Some(unit), Some(length)] = [sizes.next(), sizes.next()] else { return Err(cut()) };
    let (mut frame, mut definitions) = (column()?, column()?);
    if !(1..=MOST_UNIT).contains(&unit) || length > most_bytes(frame) {
        return Err(Error::other("the columns claim a size or a unit that they cannot have"));
    }
    let (heads, payloads, starts, durations) = (column()?, column()?, column()?, column()?);
    let [_, start_bytes, duration_bytes] = WIDTHS;
    let count = heads.len() / HEAD_BYTES;
    if starts.len() != count * start_bytes || durations.len() != count * duration_bytes {
        return Err(cut());
    }
    let mut records = with_heads(heads)?;
    read_payloads(payloads, &mut records)?;
    read_times(starts, durations, unit, &mut records);
    let header = take(&mut frame, HEADER_BYTES)?.to_vec();
    let mut records = records.into_iter();
    let mut chunks = Vec::new();
    for header in frame.chunks_exact(CHUNK_HEADER_BYTES) {
        let committed = Chunk::committed(header);
        let content = if Chunk::holds_records(header) {
            Content::Records(next_records(&mut records, committed))
        } else {
            Content::Bytes(take(&mut definitions, committed)?.to_vec())
        };
        chunks.push(Chunk { header: header.try_into().map_err(Error::other)?, content });
    }
    Ok(ProcessFile { length, header, chunks })
}

/// Bytes of a file with this header page and these headers of chunks, at most.
fn most_bytes(frame: &[u8]) -> u64 {
    let chunks = (frame.len().saturating_sub(HEADER_BYTES) / CHUNK_HEADER_BYTES) as u64;
    chunks.saturating_mul(CHUNK_BYTES as u64).saturating_add(HEADER_BYTES as u64).min(MOST_BYTES)
}

impl Chunk {
    fn records(&self) -> &[Record] {
        if let Content::Records(records) = &self.content { records } else { &[] }
    }

    fn bytes(&self) -> &[u8] {
        if let Content::Bytes(bytes) = &self.content { bytes } else { &[] }
    }
}

/// Orders in which times are stored: positions of records.
struct Order {
    /// By the called entry point.
    by_call: Vec<usize>,
    /// By the previous and the called entry point.
    by_pair: Vec<usize>,
}

impl Order {
    fn of(records: &[Record]) -> Order {
        let call = |at: usize| (records[at].head[0], &records[at].payload[..4]);
        let mut by_call: Vec<usize> = (0..records.len()).collect();
        let mut by_pair = by_call.clone();
        by_call.sort_by_key(|&at| call(at));
        by_pair.sort_by_key(|&at| (call(at.saturating_sub(1)), call(at)));
        Order { by_call, by_pair }
    }
}

/// A duration as it is stored.
fn duration_in(unit: u64, record: &Record) -> u32 {
    if record.duration_is_in_ticks() { record.duration / unit as u32 } else { record.duration }
}

/// The end of a record from where the next distance counts, in units.
fn end(record: &Record, unit: u64) -> u64 {
    let in_ticks = !record.is_late() && record.duration_is_in_ticks();
    let duration = if in_ticks { u64::from(record.duration) } else { 0 };
    record.start.wrapping_add(duration) / unit
}

/// The starts as distances, zigzag: small numbers for small distances of either sign.
fn distances(records: &[Record], unit: u64) -> Vec<u64> {
    let mut ends = [0u64; 2];
    let distance = |record: &Record| {
        let before = &mut ends[usize::from(record.is_late())];
        let distance = (record.start / unit).wrapping_sub(*before) as i64;
        *before = end(record, unit);
        ((distance << 1) ^ (distance >> 63)) as u64
    };
    records.iter().map(distance).collect()
}

/// Sets starts and durations of records whose heads and payloads are known.
fn read_times(starts: &[u8], durations: &[u8], unit: u64, records: &mut [Record]) {
    let order = Order::of(records);
    let [_, start_bytes, duration_bytes] = WIDTHS;
    for (&at, duration) in order.by_call.iter().zip(numbers(durations, duration_bytes)) {
        let record = &mut records[at];
        let unit = if record.duration_is_in_ticks() { unit } else { 1 };
        record.duration = (duration * unit) as u32;
    }
    let mut distances = vec![0; records.len()];
    order.by_pair.iter().zip(numbers(starts, start_bytes)).for_each(|(&at, number)| distances[at] = number);
    let mut ends = [0u64; 2];
    for (record, zigzag) in records.iter_mut().zip(distances) {
        let before = &mut ends[usize::from(record.is_late())];
        let distance = (zigzag >> 1) ^ (zigzag & 1).wrapping_neg();
        record.start = before.wrapping_add(distance).wrapping_mul(unit);
        *before = end(record, unit);
    }
}

/// The payloads of each kind and size, kind by kind.
fn payloads(records: &[Record]) -> Vec<u8> {
    let mut kinds: BTreeMap<[u8; 2], Vec<Vec<u8>>> = BTreeMap::new();
    for record in records {
        let payload = record.payload[..record.payload_bytes()].to_vec();
        kinds.entry([record.head[0], record.head[1]]).or_default().push(payload);
    }
    kinds.values().flat_map(|payloads| planes(payloads)).collect()
}

fn read_payloads(mut bytes: &[u8], records: &mut [Record]) -> Result<()> {
    let mut kinds: BTreeMap<[u8; 2], Vec<usize>> = BTreeMap::new();
    for (at, record) in records.iter().enumerate() {
        kinds.entry([record.head[0], record.head[1]]).or_default().push(at);
    }
    for positions in kinds.into_values() {
        let width = records[positions[0]].payload_bytes();
        let column = take(&mut bytes, width * positions.len())?;
        for (index, &at) in positions.iter().enumerate() {
            for byte in 0..width {
                records[at].payload[byte] = column[byte * positions.len() + index];
            }
        }
    }
    Ok(())
}

/// Records of which only the heads are known.
fn with_heads(column: &[u8]) -> Result<Vec<Record>> {
    let record = |head: u64| Record {
        head: (head as u32).to_le_bytes(),
        duration: 0,
        start: 0,
        payload: [0; WIDTHS[0]],
    };
    let records: Vec<Record> = numbers(column, HEAD_BYTES).map(record).collect();
    match records.iter().all(|record| matches!(record.head[1], 1 | 2)) {
        true => Ok(records),
        false => Err(Error::other("a record has not one or two slots")),
    }
}

/// The next records, until they take this many bytes.
fn next_records(records: &mut impl Iterator<Item = Record>, committed: usize) -> Vec<Record> {
    let mut left = committed;
    let mut next = Vec::new();
    while left > 0 {
        let Some(record) = records.next() else { break };
        left = left.saturating_sub(usize::from(record.head[1]) * SLOT_BYTES);
        next.push(record);
    }
    next
}

/// The first byte of each, the second byte of each, and so on; all have one length.
fn planes(values: &[Vec<u8>]) -> Vec<u8> {
    let width = values.first().map_or(0, Vec::len);
    (0..width).flat_map(|byte| values.iter().map(move |value| value[byte])).collect()
}

/// The numbers of these planes.
fn numbers(planes: &[u8], width: usize) -> impl Iterator<Item = u64> {
    let count = planes.len() / width;
    (0..count).map(move |at| (0..width).map(|byte| u64::from(planes[byte * count + at]) << (8 * byte)).sum())
}

/// Takes the first bytes off.
fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Result<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(length).ok_or_else(cut)?;
    *bytes = rest;
    Ok(taken)
}

fn cut() -> Error {
    Error::other("the columns are cut off")
}
