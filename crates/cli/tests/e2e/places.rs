//! Places in a Python program, from the recorder to the report.

use crate::common::*;
use std::process::Command;

/// Launches a kernel from two functions, one of which is called three times as often.
const PROGRAM: &str = r#"import ctypes
driver = ctypes.CDLL("libcuda.so.1")
context, module, function, memory = (ctypes.c_void_p() for _ in range(4))
assert driver.cuInit(0) == 0
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert driver.cuCtxSetCurrent(context) == 0
assert driver.cuModuleLoadData(ctypes.byref(module), open("fill.ptx", "rb").read() + b"\0") == 0
assert driver.cuModuleGetFunction(ctypes.byref(function), module, b"fill") == 0
assert driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(4096)) == 0
count = ctypes.c_uint(1024)
parameters = (ctypes.c_void_p * 2)(*(ctypes.addressof(value) for value in (memory, count)))
def launch():
    assert driver.cuLaunchKernel(function, 8, 1, 1, 128, 1, 1, 0, None, parameters, None) == 0
def forward():
    launch()
def train_step():
    for _ in range(3):
        forward()
for _ in range(2000):
    train_step()
assert driver.cuCtxSynchronize() == 0
"#;

/// An interpreter whose frames are read.
fn interpreter() -> Option<&'static str> {
    let minor = |name: &&str| {
        let answer = Command::new(name).args(["-c", "import sys; print(*sys.version_info[:2])"]).output();
        let answer = answer.ok().and_then(|answer| String::from_utf8(answer.stdout).ok()).unwrap_or_default();
        answer.trim().strip_prefix("3 ").and_then(|minor| minor.parse::<u32>().ok()).unwrap_or(0)
    };
    let found =
        ["python3", "python3.11", "python3.12"].into_iter().find(|name| (10..=14).contains(&minor(name)));
    if found.is_none() {
        test_skip::impossible_here("no Python interpreter from 3.10 to 3.14");
    }
    found
}

#[test]
fn a_report_says_which_line_of_a_python_program_launches_a_kernel() {
    let Some(python) = interpreter() else { return };
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("fill.ptx"), PTX).unwrap();
    std::fs::write(sandbox.path("train.py"), PROGRAM).unwrap();
    output(&mut sandbox.apex(&["run", "--device", "cpu", "-o", "s", "--", python, "train.py"]), 0);

    let report = text(&output(&mut sandbox.apex(&["report", "s"]), 0).stdout);
    assert!(report.contains("\nPlaces\n") && report.contains("train.py:13 launch"), "{report}");
    assert!(report.contains("Launched from train.py:13 launch"), "{report}");
    let advice = text(&output(&mut sandbox.apex(&["advise", "s"]), 0).stdout);
    assert!(advice.contains("launches from train.py:13 launch"), "{advice}");
    let places = text(&output(&mut sandbox.apex(&["report", "s", "--by", "place"]), 0).stdout);
    assert!(places.contains("1 of 1 places") && places.contains("train.py:13 launch"), "{places}");

    let json = sandbox.json(&["report", "s", "--json"]);
    assert_eq!(json["places"][0]["place"], "train.py:13 launch");
    assert_eq!(json["places"][0]["launches"], 6000.0);
    assert!(json["places"][0]["samples"].as_u64().unwrap() > 0);
    let functions: Vec<_> = json["profile"]["call_stacks"][0]["frames"]
        .as_array()
        .unwrap()
        .iter()
        .map(|frame| (frame["function"].as_str().unwrap(), frame["line"].as_u64().unwrap()))
        .collect();
    let module = ("<module>", 20);
    assert_eq!(functions, [("launch", 13), ("forward", 15), ("train_step", 18), module]);
}

#[test]
fn a_session_without_call_stacks_says_so() {
    let sandbox = Sandbox::new();
    sandbox.recorded(&[], &["launch", "10"]);
    let report = text(&output(&mut sandbox.apex(&["report", "s"]), 0).stdout);
    assert!(!report.contains("Places"), "{report}");
    let places = text(&output(&mut sandbox.apex(&["report", "s", "--by", "place"]), 0).stdout);
    assert!(places.contains("No call stack was read"), "{places}");
}
