//! The device that is predicted for: named, read from a session or data set, or found here.

use crate::loaded;
use crate::output;
use anyhow::{Context, bail};
use apex_predict::Device;
use apex_predict_session::recorded::Trained;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// The folder in which NVIDIA's driver lists the GPUs: reading it starts nothing.
const GPUS: &str = "/proc/driver/nvidia/gpus";

/// The file of a data set that names its device.
pub const MANIFEST: &str = "manifest.json";

/// The part of a manifest that is needed here.
#[derive(Deserialize)]
struct Manifest {
    device_name: String,
    device_attributes: BTreeMap<u32, i32>,
}

/// The device of this name: `h200`, `h100`, `sm_90`, or the folder of a session or data set.
///
/// # Errors
/// If there is no such device, or there are no predictions for it.
pub fn named(name: &str, trained: Trained) -> anyhow::Result<Device> {
    match name.to_ascii_lowercase().as_str() {
        "auto" => Ok(here()),
        "h200" | "nvidia h200" => Ok(Device::h200()),
        "h100" | "nvidia h100 80gb hbm3" => Ok(Device::h100()),
        lower if lower.starts_with("sm_") => architecture(lower),
        _ => from_folder(Path::new(name), trained),
    }
}

/// The device here, if the shipped models were trained on it; else the first of those that they
/// were trained on. Where there is another GPU here, a remark says that it is not meant.
fn here() -> Device {
    let gpus = std::fs::read_dir(GPUS).into_iter().flatten().flatten();
    let models: Vec<_> = gpus.filter_map(|gpu| model(&gpu.path().join("information"))).collect();
    let known = Device::trained().into_iter().find(|device| models.contains(&device.name));
    known.unwrap_or_else(|| {
        let device = Device::h200();
        if let Some(other) = models.first() {
            let name = &device.name;
            output::remark(format!(
                "predicting for an {name}, on which the models were trained, instead of this machine's {other}"
            ));
        }
        device
    })
}

fn model(information: &Path) -> Option<String> {
    let text = std::fs::read_to_string(information).ok()?;
    let model = text.lines().find_map(|line| line.strip_prefix("Model:"))?;
    Some(model.trim().to_owned())
}

/// The first device that the shipped models were trained on, by its architecture: `sm_90`.
fn architecture(name: &str) -> anyhow::Result<Device> {
    let trained = Device::h200();
    let (major, minor) = trained.limits.attributes.compute_capability;
    let known = format!("sm_{major}{minor}");
    if name.trim_end_matches(['a', 'f']) != known {
        bail!("no predictions for {name}: the models were trained on {known} ({})", trained.name);
    }
    Ok(trained)
}

fn from_folder(path: &Path, trained: Trained) -> anyhow::Result<Device> {
    let manifest = path.join(MANIFEST);
    let known = if manifest.is_file() {
        let text = apex_untrusted::read::read_to_string(&manifest, apex_untrusted::read::MANIFEST)
            .with_context(|| format!("cannot read {}", apex_untrusted::shown(&manifest)))?;
        let Manifest { device_name, device_attributes } = serde_json::from_str(&text).with_context(|| {
            format!("{} is not the manifest of a data set", apex_untrusted::shown(&manifest))
        })?;
        let attributes: Vec<_> = device_attributes.into_iter().collect();
        trained.device(&device_name, &attributes)
    } else if path.exists() {
        trained.among(&loaded::read_all(path)?.profile.devices)
    } else {
        let path = apex_untrusted::shown(path);
        bail!(
            "there is no device or folder {path}: write h200, h100, sm_90, or the folder of a session or data set"
        );
    };
    known.map_err(anyhow::Error::msg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_devices() {
        for name in ["h200", "H200", "NVIDIA H200", "sm_90", "sm_90a", "auto"] {
            assert_eq!(named(name, Trained::Shipped).unwrap(), Device::h200(), "{name}");
        }
        assert_eq!(named("H100", Trained::Shipped).unwrap(), Device::h100());
        for (name, why) in
            [("sm_80", "trained on sm_90"), ("sm_", "trained on sm_90"), ("a100", "write h200")]
        {
            let error = format!("{:#}", named(name, Trained::Shipped).unwrap_err());
            assert!(error.contains(why), "{name}: {error}");
        }
    }

    #[test]
    fn a_data_set_names_its_device() {
        let folder = tempfile::tempdir().unwrap();
        let write = |text: &str| std::fs::write(folder.path().join(MANIFEST), text).unwrap();
        let named =
            |trained| named(folder.path().to_str().unwrap(), trained).map_err(|error| format!("{error:#}"));
        write(r#"{"device_name": "NVIDIA GH200", "device_attributes": {"75": 9, "76": 0}}"#);
        assert!(named(Trained::Shipped).unwrap_err().contains("clocks and caches"));
        let whole = r#""13": 1, "16": 108, "36": 1, "37": 1, "38": 1"#;
        write(&format!(r#"{{"device_name": "A100", "device_attributes": {{"75": 8, "76": 0, {whole}}}}}"#));
        assert!(
            named(Trained::Shipped).unwrap_err().contains("the models were trained on 9.0 (NVIDIA H200, ")
        );
        assert_eq!(named(Trained::Elsewhere).unwrap().name, "A100");
        write(r#"{"device_name": "X", "device_attributes": {"75": 99, "76": 0}}"#);
        assert!(named(Trained::Shipped).unwrap_err().contains("compute capability are not known"));
        write("{");
        assert!(named(Trained::Shipped).unwrap_err().contains("manifest.json is not the manifest"));
    }
}
