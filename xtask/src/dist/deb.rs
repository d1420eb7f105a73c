//! The Debian package: an `ar` archive of two compressed tar files, for the prefix `/usr`.

use super::tree::{Entry, Tree};
use super::{Package, Release, SUMMARY};
use std::collections::BTreeMap;

/// The package's name and content.
pub fn bytes(release: &Release) -> anyhow::Result<Package> {
    let control = Tree {
        files: BTreeMap::from([(
            "control".to_owned(),
            Entry { bytes: control(release).into_bytes(), mode: 0o644 },
        )]),
    };
    let members = [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", control.tar_gz("./", release.time)?),
        ("data.tar.gz", release.tree.tar_gz("./usr/", release.time)?),
    ];
    Ok((format!("apex-cuda_{}_amd64.deb", release.version), ar(&members, release.time)))
}

fn control(release: &Release) -> String {
    let size: usize = release.tree.files.values().map(|entry| entry.bytes.len()).sum();
    format!(
        "Package: apex-cuda\nVersion: {}\nArchitecture: amd64\nMaintainer: APEX contributors <apex@localhost>\n\
         Installed-Size: {}\nDepends: libc6 (>= {}), libgcc-s1\nSection: devel\nPriority: optional\n\
         Description: {SUMMARY}\n",
        release.version,
        size.div_ceil(1024),
        release.glibc,
    )
}

/// An `ar` archive. A member's header is 60 characters: name, time, owner, group, mode, size, end;
/// members begin at even offsets.
fn ar(members: &[(&str, Vec<u8>)], time: u64) -> Vec<u8> {
    let mut archive = b"!<arch>\n".to_vec();
    for (name, bytes) in members {
        let header = format!("{name:<16}{time:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, "100644", bytes.len());
        archive.extend(header.into_bytes());
        archive.extend(bytes);
        if bytes.len() % 2 == 1 {
            archive.push(b'\n');
        }
    }
    archive
}
