//! Environment variables and parent processes that change what a program loads.

use super::Check;
use apex_conventions::variables;
use std::path::Path;

pub(super) fn checks() -> Vec<Check> {
    vec![profilers(), preloads(), visible_devices(), own_settings()]
}

/// Other profilers: they see the same calls, and CUPTI's users share one subscription with them.
fn profilers() -> Check {
    const ID: &str = "profilers";
    let injected = ["CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"]
        .into_iter()
        .filter_map(|name| Some(format!("{name}={}", std::env::var_os(name)?.to_string_lossy())));
    let parents =
        ancestors().into_iter().filter(|name| is_profiler(name)).map(|name| format!("running under {name}"));
    let found: Vec<_> = injected.chain(parents).collect();
    if found.is_empty() {
        return Check::ok(ID, "no other profiler");
    }
    let advice = "APEX can record at the same time (it uses no CUPTI), but its measurements then include \
        that profiler's overhead";
    Check::warn(ID, found.join("; "), advice)
}

fn is_profiler(name: &str) -> bool {
    matches!(name, "nsys" | "ncu" | "nvprof" | "compute-sanitiz" | "cuda-gdb" | "rocprof" | "vtune")
}

/// Names of the processes above this one, nearest first.
fn ancestors() -> Vec<String> {
    let parent_of = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (head, tail) = stat.rsplit_once(')')?;
        let name = head.split_once('(')?.1.to_string();
        Some((name, tail.split_whitespace().nth(1)?.parse::<u32>().ok()?))
    };
    let first = parent_of(std::process::id()).map(|(_, parent)| parent);
    std::iter::successors(first.and_then(parent_of), |(_, parent)| parent_of(*parent))
        .map(|(name, _)| name)
        .collect()
}

fn preloads() -> Check {
    const ID: &str = "preload";
    let everywhere = std::fs::read_to_string("/etc/ld.so.preload").unwrap_or_default();
    let here = std::env::var("LD_PRELOAD").unwrap_or_default();
    let entries: Vec<_> = [here, everywhere]
        .iter()
        .flat_map(|list| list.split([':', ' ', '\n']))
        .filter(|entry| !entry.is_empty() && !file_name(entry).starts_with("libapex"))
        .map(ToString::to_string)
        .collect();
    let hooks_cuda: Vec<_> = entries.iter().filter(|entry| hooks_cuda(entry)).cloned().collect();
    if !hooks_cuda.is_empty() {
        let advice =
            "it also replaces the CUDA driver; if the program fails with both, try it without this one";
        return Check::warn(ID, hooks_cuda.join(" "), advice);
    }
    Check::ok(
        ID,
        if entries.is_empty() { "LD_PRELOAD is free".into() } else { format!("kept: {}", entries.join(" ")) },
    )
}

/// Libraries known to put themselves between programs and the CUDA driver.
fn hooks_cuda(entry: &str) -> bool {
    let name = file_name(entry);
    ["libvgpu", "libnvshare", "libzluda", "zluda", "libcuda", "libhami", "libparcagpu", "libsnapshot"]
        .iter()
        .any(|part| name.starts_with(part))
}

fn file_name(path: &str) -> &str {
    Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or(path)
}

fn visible_devices() -> Check {
    const ID: &str = "visible-devices";
    let none = |value: &str| matches!(value, "" | "-1" | "void" | "none" | "NoDevFiles");
    for name in ["CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"] {
        if let Ok(value) = std::env::var(name)
            && none(&value)
        {
            return Check::warn(ID, format!("{name}={value:?} hides every GPU"), format!("unset {name}"));
        }
    }
    let value = std::env::var("CUDA_VISIBLE_DEVICES");
    Check::ok(ID, value.map_or("all".into(), |value| format!("CUDA_VISIBLE_DEVICES={value}")))
}

fn own_settings() -> Check {
    const ID: &str = "apex-settings";
    if variables::DISABLE.is_on() {
        return Check::fail(ID, "APEX_DISABLE=1: the injected library does nothing", "unset APEX_DISABLE");
    }
    if let Some(session) = std::env::var_os(variables::SESSION.name) {
        let found = format!("this shell runs inside the session {}", session.to_string_lossy());
        return Check::warn(
            ID,
            found,
            "an `apex run` in this shell records into that session unless -o is given",
        );
    }
    Check::ok(ID, "no environment variable prevents recording")
}
