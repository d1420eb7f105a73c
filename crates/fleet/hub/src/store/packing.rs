//! Messages as the database holds them: compressed, because names of kernels and members repeat.

use apex_aggregate::MOST_BYTES;

/// The message, compressed, behind its length.
pub fn packed(message: &[u8]) -> Vec<u8> {
    lz4_flex::block::compress_prepend_size(message)
}

/// The message that was compressed; `None` if the bytes are damaged.
pub fn unpacked(packed: &[u8]) -> Option<Vec<u8>> {
    let (length, rest) = lz4_flex::block::uncompressed_size(packed).ok()?;
    if length > MOST_BYTES {
        return None;
    }
    lz4_flex::block::decompress(rest, length).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_comes_back_and_damage_is_noticed_or_bounded() {
        let message = br#"{"kernels":[{"name":"gemm"},{"name":"gemm_2"},{"name":"gemm_3"}]}"#.repeat(20);
        let kept = packed(&message);
        assert!(kept.len() < message.len() / 4);
        assert_eq!(unpacked(&kept), Some(message));
        assert_eq!(unpacked(&packed(b"")), Some(Vec::new()));
        for cut in 0..kept.len() {
            assert!(unpacked(&kept[..cut]).is_none_or(|found| found.len() <= MOST_BYTES));
        }
        assert_eq!(unpacked(&[255; 40]), None);
    }
}
