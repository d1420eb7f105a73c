//! The binaries that are checked in come from the sources that are checked in:
//! `binaries/manifest.txt`, which `scripts/kernels.sh` writes, has a hash of every file that each
//! of them was made from.

#[test]
fn binaries_belong_to_the_sources() {
    let folder = "crates/kernels/kernels/binaries";
    let listed = test_manifest::check(&format!("{folder}/manifest.txt"), "scripts/kernels.sh");
    let mut present = test_manifest::files(folder, "");
    assert!(present.remove(&format!("{folder}/manifest.txt")));
    assert_eq!(present, listed.outputs, "every binary is in the manifest, and nothing else");
}
