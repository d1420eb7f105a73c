//! The packages of a small tree: what tools that read them find in them.

use super::needs::Version;
use super::tree::{Entry, Tree};
use super::*;
use std::io::{Cursor, Read};

const TIME: u64 = 1_790_000_001;

fn release() -> Release {
    let kernels = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&kernels, b"kernels").unwrap();
    let entry = |bytes: &[u8], mode| Entry { bytes: bytes.to_vec(), mode };
    let files = BTreeMap::from([
        ("bin/apex".to_owned(), entry(b"#!/bin/sh\necho it runs\n", 0o755)),
        ("lib/apex/libapex.so".to_owned(), entry(&[7; 70_001], 0o755)),
        ("share/doc/apex/README.md".to_owned(), entry(b"read", 0o644)),
    ]);
    let glibc = Version { major: 2, minor: 28 };
    Release {
        version: "1.2.3".to_owned(),
        time: TIME,
        glibc,
        tree: Tree { files },
        modules: modules(kernels.path()).unwrap(),
    }
}

/// Path, mode and size of each file in a compressed tar file.
fn listed(tar_gz: &[u8]) -> Vec<(String, u32, u64)> {
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(tar_gz));
    let entries = archive.entries().unwrap().map(|entry| {
        let header = entry.unwrap().header().clone();
        assert_eq!((header.mtime().unwrap(), header.uid().unwrap(), header.gid().unwrap()), (TIME, 0, 0));
        let path = header.path().unwrap().to_string_lossy().into_owned();
        (path, header.mode().unwrap(), header.size().unwrap())
    });
    entries.filter(|(path, ..)| !path.ends_with('/')).collect()
}

#[test]
fn the_same_tree_gives_the_same_packages() {
    for make in [archive::bytes, deb::bytes, wheel::bytes] {
        assert!(make(&release()).unwrap() == make(&release()).unwrap());
    }
}

#[test]
fn the_archive_holds_the_tree_below_one_folder() {
    let (name, bytes) = archive::bytes(&release()).unwrap();
    assert_eq!(name, "apex-1.2.3-x86_64-linux.tar.gz");
    let expected = [
        ("bin/apex", 0o755, 23),
        ("lib/apex/libapex.so", 0o755, 70_001),
        ("share/doc/apex/README.md", 0o644, 4),
    ];
    let expected = expected.map(|(path, mode, size)| (format!("apex-1.2.3-x86_64-linux/{path}"), mode, size));
    assert_eq!(listed(&bytes), expected);
}

#[test]
fn the_wheel_lists_every_file_with_its_checksum() {
    let (name, bytes) = wheel::bytes(&release()).unwrap();
    assert_eq!(name, "apex_cuda-1.2.3-py3-none-manylinux_2_28_x86_64.whl");
    let mut zip = zip::ZipArchive::new(Cursor::new(bytes)).unwrap();
    let mut text = |name: &str| {
        let mut text = String::new();
        zip.by_name(name).unwrap().read_to_string(&mut text).unwrap();
        text
    };
    let record = text("apex_cuda-1.2.3.dist-info/RECORD");
    assert!(text("apex_cuda-1.2.3.dist-info/WHEEL").contains("Tag: py3-none-manylinux_2_28_x86_64\n"));
    assert!(text("apex_cuda-1.2.3.dist-info/METADATA").contains("Name: apex-cuda\nVersion: 1.2.3\n"));
    assert!(
        text("apex_cuda-1.2.3.dist-info/entry_points.txt").contains("apex_cuda = apex_cuda.pytest_plugin\n")
    );
    // From `printf read | openssl dgst -sha256 -binary | basenc --base64url`.
    let line = "apex_cuda-1.2.3.data/data/share/doc/apex/README.md,sha256=MxY0jbrft7EcfC6iNZSUGeI_n6iYrSwZj5mWF5EqmSU,4";
    let listed: Vec<_> =
        record.lines().filter_map(|line| line.split(',').next()).map(str::to_owned).collect();
    let names: Vec<_> = zip.file_names().map(str::to_owned).collect();
    assert_eq!(listed, names, "{record}");
    assert!(record.lines().any(|found| found == line), "{record}");
    let kernels = ["kernels/__init__.py", "kernels/_torch.py", "kernels/libapex_kernels_c.so"];
    let modules = ["__init__.py", "__main__.py", "py.typed", "log.py", "callbacks/keras.py"];
    for module in modules.into_iter().chain(kernels) {
        assert!(names.contains(&format!("apex_cuda/{module}")), "{names:?}");
    }
    let command = zip.by_name("apex_cuda-1.2.3.data/scripts/apex").unwrap();
    assert_eq!(command.unix_mode().unwrap() & 0o777, 0o755);
}

#[test]
fn dpkg_reads_the_debian_package() {
    if Command::new("dpkg-deb").arg("--version").output().is_err() {
        return test_skip::missing_dependency("no dpkg-deb");
    }
    let folder = tempfile::tempdir().unwrap();
    let (name, bytes) = deb::bytes(&release()).unwrap();
    let file = folder.path().join(&name);
    std::fs::write(&file, bytes).unwrap();
    assert_eq!(name, "apex-cuda_1.2.3_amd64.deb");
    let field = |field: &str| output(Command::new("dpkg-deb").arg("-f").arg(&file).arg(field)).unwrap();
    assert_eq!((field("Package").trim(), field("Version").trim()), ("apex-cuda", "1.2.3"));
    assert_eq!(field("Depends").trim(), "libc6 (>= 2.28), libgcc-s1");
    let root = folder.path().join("root");
    output(Command::new("dpkg-deb").arg("-x").arg(&file).arg(&root)).unwrap();
    assert_eq!(std::fs::read(root.join("usr/lib/apex/libapex.so")).unwrap(), [7; 70_001]);
    assert_eq!(output(&mut Command::new(root.join("usr/bin/apex"))).unwrap(), "it runs\n");
}
