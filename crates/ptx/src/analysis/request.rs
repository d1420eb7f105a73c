//! What an access of a warp costs, from the addresses of its lanes.

use super::value::{LANES, Value};

/// Bytes of a sector of global memory.
const SECTOR: u64 = 32;
/// Banks of shared memory, each a word of four bytes wide.
const BANKS: usize = 32;
const WORD: u64 = 4;

/// Lanes of a mask.
fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    (0..LANES).filter(move |lane| mask >> lane & 1 == 1)
}

/// Sectors that the lanes of `mask` touch, each `bytes` from its address on.
pub(super) fn sectors(addresses: &Value, mask: u32, bytes: u64) -> usize {
    if addresses.uniform {
        let (first, last) = ends(addresses.lanes[0], bytes);
        return (last - first + 1) as usize;
    }
    touched(addresses, mask, bytes, &mut [0; MOST_TOUCHED])
}

/// The sectors of an address: the first and the last.
fn ends(address: u64, bytes: u64) -> (u64, u64) {
    (address / SECTOR, address.saturating_add(bytes - 1) / SECTOR)
}

/// Sectors that 32 lanes touch at most: 128 bytes of each, at any alignment.
pub(super) const MOST_TOUCHED: usize = LANES * 5;

/// Writes the sectors that lanes touch to the beginning of `touched`, each once; how many they are.
pub(super) fn touched(addresses: &Value, mask: u32, bytes: u64, touched: &mut [u64; MOST_TOUCHED]) -> usize {
    let mut count = 0;
    let mut sorted = true;
    for lane in lanes(mask) {
        let (first, last) = ends(addresses.lane(lane), bytes);
        for sector in (first..=last).take(5) {
            if count > 0 && touched[count - 1] == sector {
                continue;
            }
            sorted &= count == 0 || touched[count - 1] < sector;
            touched[count] = sector;
            count += 1;
        }
    }
    if sorted { count } else { distinct(&mut touched[..count]) }
}

/// Brings the different ones of some values to their beginning; how many they are.
fn distinct(values: &mut [u64]) -> usize {
    values.sort_unstable();
    let mut count = 0;
    for index in 0..values.len() {
        if count == 0 || values[count - 1] != values[index] {
            values[count] = values[index];
            count += 1;
        }
    }
    count
}

/// Sectors of local memory that the lanes touch. There, word for word, the lanes' words lie side by side: a word of all lanes is
/// four sectors, and each sector has a word of eight lanes.
pub(super) fn local_sectors(addresses: &Value, mask: u32, bytes: u64) -> usize {
    let own = Value::of_lanes(|lane| {
        let word = addresses.lane(lane) / WORD;
        word.wrapping_mul(LANES as u64 * WORD).wrapping_add(lane as u64 * WORD)
    });
    // Further words lie a whole row of lanes further on.
    let first = addresses.lane(mask.trailing_zeros() as usize % LANES) % WORD;
    let words = (first + bytes).div_ceil(WORD);
    sectors(&own, mask, WORD) * words as usize
}

/// Different addresses that lanes have: reads of constant memory are served one address at a time.
pub(super) fn addresses(addresses: &Value, mask: u32) -> usize {
    if addresses.uniform {
        return 1;
    }
    let mut sorted = [0; LANES];
    let mut count = 0;
    for lane in lanes(mask) {
        sorted[count] = addresses.lanes[lane];
        count += 1;
    }
    distinct(&mut sorted[..count])
}

/// Passes through the banks of shared memory that the lanes of `mask` need.
///
/// Lanes of up to four bytes are served together, of eight in halves, of sixteen in quarters; a bank gives one word in a pass,
/// to all lanes that want it.
pub(super) fn wavefronts(addresses: &Value, mask: u32, bytes: u64) -> usize {
    let together = (LANES as u64 * WORD / bytes.next_power_of_two().max(WORD)).max(1) as usize;
    if addresses.uniform {
        return (0..LANES).step_by(together).filter(|&from| group(mask, from, together) != 0).count();
    }
    (0..LANES).step_by(together).map(|from| conflicts(addresses, group(mask, from, together), bytes)).sum()
}

/// The lanes of `mask` from `from` on, `count` of them.
fn group(mask: u32, from: usize, count: usize) -> u32 {
    mask & ((((1u64 << count) - 1) << from) as u32)
}

/// The most words that any bank has to give.
fn conflicts(addresses: &Value, mask: u32, bytes: u64) -> usize {
    let mut words = [0; LANES * 2];
    let mut count = 0;
    // The first word of each bank, and one more than its number; nothing more is to do if no bank has another.
    let mut first = [0; BANKS];
    let mut alone = true;
    for lane in lanes(mask) {
        let address = addresses.lanes[lane];
        for word in (address / WORD..=address.saturating_add(bytes - 1) / WORD).take(words.len() - count) {
            let known = &mut first[(word % BANKS as u64) as usize];
            if *known == word + 1 {
                continue;
            }
            alone &= *known == 0;
            *known = word + 1;
            words[count] = word;
            count += 1;
        }
    }
    if alone {
        return count.min(1);
    }
    let words = &mut words[..count];
    words.sort_unstable();
    let mut load = [0; BANKS];
    for word in words.chunk_by(|a, b| a == b) {
        load[(word[0] % BANKS as u64) as usize] += 1;
    }
    load.into_iter().max().unwrap_or(0)
}

/// The most lanes of `mask` that have the same address.
pub(super) fn sharers(addresses: &Value, mask: u32) -> usize {
    if addresses.uniform {
        return mask.count_ones() as usize;
    }
    let mut sorted = [0; LANES];
    let mut count = 0;
    for lane in lanes(mask) {
        sorted[count] = addresses.lanes[lane];
        count += 1;
    }
    let sorted = &mut sorted[..count];
    sorted.sort_unstable();
    sorted.chunk_by(|a, b| a == b).map(<[u64]>::len).max().unwrap_or(0)
}
