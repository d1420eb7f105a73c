//! The integrity check by which libcudart recognises a driver that it can use.
//!
//! The answer is a keyed hash of data that both sides know: HMAC (RFC 2104) over MD2 (RFC 1319)
//! with a fixed key, of versions, process, thread, addresses of the export tables, time, and
//! devices. libcudart compares it byte by byte. It contains no secret.

/// The size of a block of MD2, in bytes.
const BLOCK: usize = 16;

/// The secret that libcudart and the driver share.
const KEY: [u8; BLOCK] =
    [0x14, 0x6a, 0xdd, 0xae, 0x53, 0xa9, 0xa7, 0x52, 0xaa, 0x08, 0x41, 0x36, 0x0b, 0xf5, 0x5a, 0x9f];

/// The data that both sides know and that the hash covers.
pub struct Facts {
    /// `cuDriverGetVersion`.
    pub driver_version: u32,
    /// The number of the question that libcudart asks.
    pub question: u32,
    /// The process.
    pub process: u32,
    /// The low half of `pthread_self`.
    pub thread: u32,
    /// The address of the table of functions that libcudart calls.
    pub runtime_table: u64,
    /// The address of the table that has this question.
    pub check_table: u64,
    /// The address of the function that answers.
    pub check_function: u64,
    /// The time, as the question tells it.
    pub seconds: u64,
    /// The only device's UUID; its place on the PCI bus is all zeros.
    pub device: [u8; 16],
}

/// The answer to libcudart's question.
pub fn answer(facts: &Facts) -> [u64; 2] {
    // Two forms of the question have fixed answers.
    match facts.question % 10 {
        0 => return [0x3341_181c_03cb_675c, 0x8ed3_83aa_1f4c_d1e8],
        1 => return [0x1841_181c_03cb_675c, 0x8ed3_83aa_1f4c_d1e8],
        _ => {}
    }
    let mut message = Vec::new();
    for word in [facts.driver_version, facts.question, facts.process, facts.thread] {
        message.extend_from_slice(&word.to_le_bytes());
    }
    for long in [facts.runtime_table, facts.check_table, facts.check_function, facts.seconds] {
        message.extend_from_slice(&long.to_le_bytes());
    }
    message.extend_from_slice(&facts.device);
    message.extend_from_slice(&[0; 12]);
    let digest = hmac_md2(&KEY, &message);
    let (low, high) = digest.split_at(8);
    [low, high].map(|half| u64::from_le_bytes(half.try_into().expect("half of 16 bytes")))
}

fn hmac_md2(key: &[u8; BLOCK], message: &[u8]) -> [u8; BLOCK] {
    let inner = md2(&[&key.map(|byte| byte ^ 0x36), message].concat());
    md2(&[key.map(|byte| byte ^ 0x5c), inner].concat())
}

fn md2(message: &[u8]) -> [u8; BLOCK] {
    let padding = BLOCK - message.len() % BLOCK;
    let mut text = message.to_vec();
    text.resize(message.len() + padding, padding as u8);
    text.extend_from_slice(&checksum(&text));

    let mut state = [0u8; 3 * BLOCK];
    for block in text.chunks(BLOCK) {
        for (place, byte) in block.iter().enumerate() {
            state[BLOCK + place] = *byte;
            state[2 * BLOCK + place] = *byte ^ state[place];
        }
        let mut carry = 0u8;
        for round in 0..18 {
            for byte in &mut state {
                *byte ^= SUBSTITUTION[usize::from(carry)];
                carry = *byte;
            }
            carry = carry.wrapping_add(round);
        }
    }
    state[..BLOCK].try_into().expect("a block is 16 bytes")
}

fn checksum(text: &[u8]) -> [u8; BLOCK] {
    let mut checksum = [0u8; BLOCK];
    let mut last = 0;
    for block in text.chunks(BLOCK) {
        for (sum, byte) in checksum.iter_mut().zip(block) {
            *sum ^= SUBSTITUTION[usize::from(byte ^ last)];
            last = *sum;
        }
    }
    checksum
}

/// RFC 1319's table, made from the digits of pi: a shuffle in which they say what is swapped with
/// what.
const SUBSTITUTION: [u8; 256] = [
    41, 46, 67, 201, 162, 216, 124, 1, 61, 54, 84, 161, 236, 240, 6, 19, 98, 167, 5, 243, 192, 199, 115, 140,
    152, 147, 43, 217, 188, 76, 130, 202, 30, 155, 87, 60, 253, 212, 224, 22, 103, 66, 111, 24, 138, 23, 229,
    18, 190, 78, 196, 214, 218, 158, 222, 73, 160, 251, 245, 142, 187, 47, 238, 122, 169, 104, 121, 145, 21,
    178, 7, 63, 148, 194, 16, 137, 11, 34, 95, 33, 128, 127, 93, 154, 90, 144, 50, 39, 53, 62, 204, 231, 191,
    247, 151, 3, 255, 25, 48, 179, 72, 165, 181, 209, 215, 94, 146, 42, 172, 86, 170, 198, 79, 184, 56, 210,
    150, 164, 125, 182, 118, 252, 107, 226, 156, 116, 4, 241, 69, 157, 112, 89, 100, 113, 135, 32, 134, 91,
    207, 101, 230, 45, 168, 2, 27, 96, 37, 173, 174, 176, 185, 246, 28, 70, 97, 105, 52, 64, 126, 15, 85, 71,
    163, 35, 221, 81, 175, 58, 195, 92, 249, 206, 186, 197, 234, 38, 44, 83, 13, 110, 133, 40, 132, 9, 211,
    223, 205, 244, 65, 129, 77, 82, 106, 220, 55, 200, 108, 193, 171, 250, 36, 225, 123, 8, 12, 189, 177, 74,
    120, 136, 149, 139, 227, 99, 232, 109, 233, 203, 213, 254, 59, 0, 29, 57, 242, 239, 183, 14, 102, 88,
    208, 228, 166, 119, 114, 248, 235, 117, 75, 10, 49, 68, 80, 180, 143, 237, 31, 26, 219, 153, 141, 51,
    159, 17, 131, 20,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn the_hash_is_md2() {
        // The test suite of RFC 1319, section A.5.
        for (message, digest) in [
            ("", "8350e5a3e24c153df2275c9f80692773"),
            ("a", "32ec01ec4a6dac72c0ab96fb34c0b5d1"),
            ("abc", "da853b0d3f88d99b30283a69e6ded6bb"),
            ("message digest", "ab4f496bfb2a530b219ff33031fe06b0"),
            ("abcdefghijklmnopqrstuvwxyz", "4e8ddff3650292ab5a4108c3aa47940b"),
            (
                "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789",
                "da33def2a42df13975352846c30338cd",
            ),
        ] {
            assert_eq!(hex(&md2(message.as_bytes())), digest, "{message:?}");
        }
    }
}
