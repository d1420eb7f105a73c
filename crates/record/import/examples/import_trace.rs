//! Imports traces into a new folder: `import_trace TRACE… FOLDER`. `scripts/import_speed.py`
//! measures it.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let folder = apex_untrusted::Folder::make(&paths.pop().ok_or("name a folder")?)?;
    let imported = apex_import::import(&paths, &folder)?;
    println!("{} kernels, {} calls", imported.kernels, imported.calls);
    Ok(())
}
