//! Places in a program, from the recorder to the report.

use crate::common::*;
use test_process::Command;

/// Launches a kernel from two functions, one of which is called three times as often.
pub const PROGRAM: &str = r#"import ctypes
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
    assert driver.cuLaunchKernel(function, 128, 1, 1, 24, 1, 1, 0, None, parameters, None) == 0
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
pub fn interpreter() -> Option<&'static str> {
    let minor = |name: &&str| {
        let answer = Command::new(name).args(["-c", "import sys; print(*sys.version_info[:2])"]).output();
        let answer = answer.ok().and_then(|answer| String::from_utf8(answer.stdout).ok()).unwrap_or_default();
        answer.trim().strip_prefix("3 ").and_then(|minor| minor.parse::<u32>().ok()).unwrap_or(0)
    };
    let found =
        ["python3", "python3.11", "python3.12"].into_iter().find(|name| (9..=14).contains(&minor(name)));
    if found.is_none() {
        test_skip::missing_dependency("no Python interpreter from 3.9 to 3.14");
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
    let functions = |stack: &serde_json::Value| -> Vec<(String, u64)> {
        let frames = stack["frames"].as_array().unwrap().iter();
        frames
            .map(|frame| (frame["function"].as_str().unwrap().to_owned(), frame["line"].as_u64().unwrap()))
            .collect()
    };
    let launching = [("launch", 13), ("forward", 15), ("train_step", 18), ("<module>", 20)];
    let launching = launching.map(|(function, line)| (function.to_owned(), line));
    let stacks = json["profile"]["call_stacks"].as_array().unwrap();
    assert!(stacks.iter().any(|stack| functions(stack) == launching), "{stacks:?}");
    let calls = json["profile"]["calls"].as_array().unwrap();
    let waiting = calls.iter().find(|call| call["name"] == "cuCtxSynchronize").expect("the program waits");
    let place = waiting["stacks"][0]["stack"].as_u64().unwrap() as usize;
    assert_eq!(functions(&stacks[place]), [("<module>".to_owned(), 21)]);
}

#[test]
fn a_report_says_which_function_of_a_compiled_program_launches_a_kernel_and_waits() {
    let sandbox = Sandbox::new();
    sandbox.recorded(&[], &["launch", "10"]);
    let places = text(&output(&mut sandbox.apex(&["report", "s", "--by", "place"]), 0).stdout);
    assert!(places.contains("main.rs:") && places.contains(" launch"), "{places}");
    let json = sandbox.json(&["report", "s", "--json"]);
    let function = |stack: &serde_json::Value| {
        let stack = &json["profile"]["call_stacks"][stack["stack"].as_u64().unwrap() as usize];
        stack["native"][0]["function"].as_str().unwrap_or_default().to_owned()
    };
    let calls = json["profile"]["calls"].as_array().unwrap();
    let mut stacks = calls.iter().flat_map(|call| call["stacks"].as_array().unwrap());
    assert!(stacks.any(|stack| !function(stack).is_empty()), "{calls:?}");
}
