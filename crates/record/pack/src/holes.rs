//! Writes a file with holes where it has nothing but zeros.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};

/// Bytes that become a hole if all of them are zeros.
const PAGE: usize = 4096;

/// Appends these bytes, at a multiple of [`PAGE`] except at the end.
pub(crate) fn append(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    for page in bytes.chunks(PAGE) {
        if page.iter().all(|&byte| byte == 0) {
            file.seek(SeekFrom::Current(page.len() as i64))?;
        } else {
            file.write_all(page)?;
        }
    }
    Ok(())
}

/// Gives the file its length: zeros at its end are none that were written.
pub(crate) fn finish(file: &mut File) -> io::Result<()> {
    let length = file.stream_position()?;
    file.set_len(length)
}
