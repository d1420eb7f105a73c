//! Parquet's hybrid of run-length encoding and bit packing, for levels and indices of dictionaries:
//! runs of one value, and groups of eight values in `width` bits each.

use super::thrift::varint;

/// Number of values in a group.
const GROUP: usize = 8;

/// Appends values below 2^`width`. The last group is padded with zeros, because readers know the
/// number of values.
pub fn append(out: &mut Vec<u8>, mut values: &[u32], width: u32) {
    while let Some(first) = values.first() {
        let taken = if begins_run(values) {
            let same = values.iter().take_while(|value| *value == first).count();
            append_run(out, same, *first, width);
            same
        } else {
            let taken = before_run(values);
            append_groups(out, &values[..taken], width);
            taken
        };
        values = &values[taken..];
    }
}

fn begins_run(values: &[u32]) -> bool {
    values.len() >= GROUP && values[..GROUP].iter().all(|value| *value == values[0])
}

/// Values up to the first group that begins a run.
fn before_run(values: &[u32]) -> usize {
    (GROUP..values.len()).step_by(GROUP).find(|at| begins_run(&values[*at..])).unwrap_or(values.len())
}

fn append_run(out: &mut Vec<u8>, length: usize, value: u32, width: u32) {
    varint(out, (length as u64) << 1);
    out.extend_from_slice(&value.to_le_bytes()[..width.div_ceil(8) as usize]);
}

fn append_groups(out: &mut Vec<u8>, values: &[u32], width: u32) {
    let groups = values.len().div_ceil(GROUP);
    varint(out, (groups as u64) << 1 | 1);
    let (mut bits, mut held) = (0u64, 0);
    for value in values.iter().copied().chain(std::iter::repeat(0)).take(groups * GROUP) {
        bits |= u64::from(value) << held;
        held += width;
        while held >= 8 {
            out.push(bits as u8);
            bits >>= 8;
            held -= 8;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The format's own example: 0 to 7 in three bits each.
    #[test]
    fn a_group_is_packed_from_the_low_bits() {
        let mut bytes = Vec::new();
        append(&mut bytes, &[0, 1, 2, 3, 4, 5, 6, 7], 3);
        assert_eq!(bytes, [0b11, 0b1000_1000, 0b1100_0110, 0b1111_1010]);
    }

    #[test]
    fn a_run_is_its_length_and_one_value() {
        let mut bytes = Vec::new();
        append(&mut bytes, &[0x1234; 1000], 13);
        assert_eq!(bytes, [0xd0, 0x0f, 0x34, 0x12]);
    }

    fn number(bytes: &mut &[u8]) -> usize {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            value |= usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    }

    fn read(mut bytes: &[u8], width: usize, count: usize) -> Vec<u32> {
        let mut values = Vec::new();
        while values.len() < count {
            let head = number(&mut bytes);
            let (bits, repeats) =
                if head.is_multiple_of(2) { (width.div_ceil(8) * 8, head / 2) } else { (width, 1) };
            let packed = if head.is_multiple_of(2) { 1 } else { head / 2 * GROUP };
            for at in 0..packed {
                let bit = |bit: usize| u32::from(bytes[bit / 8] >> (bit % 8) & 1);
                let value: u32 = (0..bits).map(|i| bit(at * bits + i) << i).sum();
                values.extend(std::iter::repeat_n(value, repeats));
            }
            bytes = &bytes[(packed * bits).div_ceil(8)..];
        }
        assert!(bytes.is_empty() && values[count..].iter().all(|value| *value == 0));
        values.truncate(count);
        values
    }

    proptest! {
        #[test]
        fn values_come_back(
            width in 1u32..=18,
            runs in prop::collection::vec((any::<u32>(), 1usize..20), 0..60),
        ) {
            let values: Vec<u32> = runs
                .iter()
                .flat_map(|(value, length)| std::iter::repeat_n(value % (1 << width), *length))
                .collect();
            let mut bytes = Vec::new();
            append(&mut bytes, &values, width);
            prop_assert_eq!(read(&bytes, width as usize, values.len()), values);
        }
    }
}
