//! The archive: unpack it anywhere, and `bin/apex` works from there.

use super::{Package, Release};

/// The archive's name and content.
pub fn bytes(release: &Release) -> anyhow::Result<Package> {
    let folder = format!("apex-{}-x86_64-linux", release.version);
    Ok((format!("{folder}.tar.gz"), release.tree.tar_gz(&format!("{folder}/"), release.time)?))
}
