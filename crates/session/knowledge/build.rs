//! Deflates the files of causes, which are half a megabyte.

fn main() {
    println!("cargo::rerun-if-changed=entries");
    let entries = std::fs::read_dir("entries").expect("the crate has a folder of causes");
    apex_deflated::files(entries.map(|entry| entry.expect("the folder can be listed").path()));
}
