//! The reader of shared libraries, on the C library that this test runs with, and on what can
//! become of a file.

use cuda_abi::elf::{Error, Library};
use std::path::PathBuf;

/// The C library mapped into this process.
fn libc() -> (PathBuf, Vec<u8>) {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc is mounted");
    let paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    let path = paths.into_iter().find(|path| path.contains("libc.so") || path.contains("libc-2"));
    let path = PathBuf::from(path.expect("the C library is mapped"));
    let bytes = std::fs::read(&path).expect("the C library can be read");
    (path, bytes)
}

#[test]
fn a_real_library_is_read() {
    let (path, bytes) = libc();
    let library = Library::parse(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(library.soname(), Some("libc.so.6"));
    assert!(library.needed().any(|name| name.starts_with("ld-linux")));
    for symbol in ["malloc", "memcpy", "open"] {
        assert!(library.exports().any(|name| name == symbol), "{symbol}");
    }
    // Undefined here: the loader defines it.
    assert!(!library.exports().any(|name| name == "__tls_get_addr"));
}

#[test]
fn what_is_no_shared_library_is_an_error() {
    assert_eq!(Library::parse(b"").unwrap_err(), Error::NotElf64);
    assert_eq!(Library::parse(b"#!/bin/sh\n").unwrap_err(), Error::NotElf64);
    let (_, bytes) = libc();
    assert_eq!(Library::parse(&bytes[..64]).unwrap_err(), Error::Truncated);
    assert_eq!(Library::parse(&bytes[..bytes.len() / 2]).unwrap_err(), Error::Truncated);
    let mut without_sections = bytes.clone();
    without_sections[0x3c..0x3e].fill(0);
    assert_eq!(Library::parse(&without_sections).unwrap_err(), Error::NotDynamic);
}

/// Every header and table damaged at random: a result, never a panic.
#[test]
fn damage_does_not_panic() {
    let (_, mut bytes) = libc();
    let sections = usize::from_le_bytes(bytes[0x28..0x30].try_into().expect("eight bytes"));
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        usize::try_from(random % below as u64).expect("below fits")
    };
    let headers = bytes.len() - sections;
    let mut failed = 0;
    for _ in 0..2000 {
        let places: [usize; 4] =
            std::array::from_fn(|_| if draw(2) == 0 { draw(64) } else { sections + draw(headers) });
        let saved = places.map(|place| bytes[place]);
        places.iter().for_each(|&place| bytes[place] = draw(256) as u8);
        match Library::parse(&bytes) {
            Ok(library) => {
                let seen = library.soname().map_or(0, str::len)
                    + library.needed().count()
                    + library.exports().count();
                assert!(seen < bytes.len());
            }
            Err(_) => failed += 1,
        }
        places.iter().zip(saved).rev().for_each(|(&place, byte)| bytes[place] = byte);
    }
    assert!((1..2000).contains(&failed), "{failed} of 2000 damaged files were refused");
}
