//! `cargo xtask abi-gen`: writes the generated files of `cuda-abi`.

use crate::render;
use crate::toolkit::Toolkit;
use anyhow::{Context, Result, ensure};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Regenerates the table from the headers in `include`, and says what was written.
///
/// # Errors
/// The headers cannot be read, `rustfmt` cannot be run, or a file cannot be written.
pub fn run(include: &Path) -> Result<()> {
    let toolkit = read(include)?;
    let source = abi_folder().join("src");
    for (name, text) in render::files(&toolkit) {
        let path = source.join(name);
        std::fs::write(&path, rustfmt(&text)?).with_context(|| format!("cannot write {}", path.display()))?;
        println!("wrote {}", path.display());
    }
    println!("CUDA {}: {} entry points", toolkit.name(), toolkit.entries.len());
    Ok(())
}

/// The headers in `include`, with the undeclared symbols added.
///
/// # Errors
/// As [`Toolkit::read`], or the list of undeclared symbols cannot be read.
pub fn read(include: &Path) -> Result<Toolkit> {
    let mut toolkit = Toolkit::read(include)?;
    let list = abi_folder().join("undeclared.txt");
    let text = std::fs::read_to_string(&list).with_context(|| format!("cannot read {}", list.display()))?;
    let symbols = text.lines().map(|line| line.split('#').next().unwrap_or("").trim());
    toolkit.add_undeclared(symbols.filter(|symbol| !symbol.is_empty()));
    Ok(toolkit)
}

/// The repository.
fn root() -> &'static Path {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask)
}

/// `crates/cuda/cuda-abi`
pub fn abi_folder() -> PathBuf {
    root().join("crates/cuda/cuda-abi")
}

/// `text` in the house's format.
///
/// # Errors
/// `rustfmt` is not there, or the text is not Rust.
pub fn rustfmt(text: &str) -> Result<String> {
    let mut child = Command::new("rustfmt")
        .args(["--edition", "2024", "--config-path"])
        .arg(root().join("rustfmt.toml"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run rustfmt (rustup component add rustfmt)")?;
    let mut stdin = child.stdin.take().context("rustfmt has no input")?;
    let text = text.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(text.as_bytes()));
    let output = child.wait_with_output()?;
    writer.join().ok().context("the thread that feeds rustfmt ended")??;
    ensure!(output.status.success(), "rustfmt refuses the generated text");
    Ok(String::from_utf8(output.stdout)?)
}
