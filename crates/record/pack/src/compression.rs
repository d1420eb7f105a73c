//! The compression of an archive, which its first bytes tell, and the reader's position in the
//! file.

use apex_untrusted::read;
use flate2::bufread::MultiGzDecoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::StreamingDecoder;
use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::rc::Rc;

/// Bytes of an archive that is read, at most: 1 TiB.
pub(crate) const MOST_BYTES: u64 = 1 << 40;
/// Bytes of the compressed file that are read at once.
const BUFFER: usize = 64 << 10;
/// Memory that an archive in xz may ask for, KiB: twice as much as `xz -9` does.
const MOST_MEMORY_KIB: u32 = 136 << 10;
/// Bytes of a block of a tar file.
pub(crate) const BLOCK: usize = 512;
/// Offset of [`MAGIC`] in the header of a file in a tar file.
const MAGIC_AT: usize = 257;
/// The mark of POSIX' and GNU's tar files.
const MAGIC: &[u8] = b"ustar";

/// A file that counts the bytes that were taken from it, not those that lie in its buffer: they say
/// where damage is.
pub(crate) struct Counted {
    file: BufReader<File>,
    read: Rc<Cell<u64>>,
}

impl Read for Counted {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(bytes)?;
        self.read.set(self.read.get() + read as u64);
        Ok(read)
    }
}

impl BufRead for Counted {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.file.fill_buf()
    }

    fn consume(&mut self, bytes: usize) {
        self.read.set(self.read.get() + bytes as u64);
        self.file.consume(bytes);
    }
}

/// The content of an archive, and how many bytes of the archive were read so far.
pub(crate) type Opened = (Box<dyn Read>, Rc<Cell<u64>>);

/// Opens the tar file in an archive.
pub(crate) fn opened(path: &Path) -> io::Result<Opened> {
    let mut head = [0; 6];
    let length = read_up_to(&mut read::open(path, MOST_BYTES)?, &mut head)?;
    let count = Rc::new(Cell::new(0));
    let file = BufReader::with_capacity(BUFFER, read::open(path, MOST_BYTES)?);
    let file = Counted { file, read: Rc::clone(&count) };
    let plain: Box<dyn Read> = match &head[..length] {
        [0x1f, 0x8b, ..] => Box::new(MultiGzDecoder::new(file)),
        [0xfd, b'7', b'z', b'X', b'Z', 0] => Box::new(XzReader::new_mem_limit(file, true, MOST_MEMORY_KIB)),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Box::new(StreamingDecoder::new(file).map_err(io::Error::other)?),
        _ => Box::new(file),
    };
    Ok((plain, count))
}

/// Reads as many bytes as there are, at most as many as fit.
pub(crate) fn read_up_to(from: &mut dyn Read, bytes: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < bytes.len() {
        match from.read(&mut bytes[length..]) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

/// Whether a file is a tar file, maybe compressed. A file that is named like one and damaged at its
/// beginning is one, too, so that it is told what is wrong.
pub fn is_archive(path: &Path) -> bool {
    path.is_file() && (is_named_like_one(path) || begins_like_one(path))
}

/// Whether a path has the name of an archive, whatever is there.
pub fn is_named_like_one(path: &Path) -> bool {
    const ENDINGS: [&str; 6] = [".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.zst"];
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    ENDINGS.iter().any(|ending| name.ends_with(ending))
}

fn begins_like_one(path: &Path) -> bool {
    let mut block = [0; BLOCK];
    let length = opened(path).and_then(|(mut plain, _)| read_up_to(&mut plain, &mut block));
    length.is_ok_and(|length| length == BLOCK) && block[MAGIC_AT..].starts_with(MAGIC)
}
