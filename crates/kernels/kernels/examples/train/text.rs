//! The text to learn, and batches of it.

use std::io::{Error, Result};
use std::path::Path;

use apex_gpu::Device;
use apex_random::Random;

use crate::model::{Batch, Config};

/// The bytes of a file, or of all Markdown files in a folder, in the order of their names.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    let of = |path: &Path| {
        let path = path.display().to_string();
        move |error: Error| Error::new(error.kind(), format!("{path}: {error}"))
    };
    if !path.is_dir() {
        return std::fs::read(path).map_err(of(path));
    }
    let entries = std::fs::read_dir(path).map_err(of(path))?;
    let files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>();
    let mut files = files.map_err(of(path))?;
    files.retain(|file| file.extension().is_some_and(|ending| ending == "md"));
    files.sort();
    let texts = files.iter().map(|file| std::fs::read(file).map_err(of(file))).collect::<Result<Vec<_>>>()?;
    Ok(texts.concat())
}

/// Sequences from random places in the text, which is longer than a sequence.
pub fn batch(
    text: &[u8],
    config: &Config,
    random: &mut Random,
    device: &Device,
) -> apex_kernels::Result<Batch> {
    let (mut inputs, mut targets) = (vec![], vec![]);
    for _ in 0..config.batch {
        let start = random.index(text.len() - config.length);
        let tokens = text[start..][..config.length + 1].iter().copied().map(u32::from);
        inputs.extend(tokens.clone().take(config.length));
        targets.extend(tokens.skip(1));
    }
    Ok(Batch { inputs: device.upload(&inputs)?, targets: device.upload(&targets)? })
}
