//! The host's activity while the GPU is idle: sessions with samples of the host's call stacks.

use crate::common::{PTX, Sandbox, output, text};
use crate::places::interpreter;
use crate::verdicts::record;
use apex_host_stacks::{Doing, FrameKind, Span, WaitsFor};
use serde_json::Value;
use std::path::Path;
use test_session::{HostSampler, LEGACY, OnHost, Recording};

const MS: u64 = 1_000_000;
const MAIN: OnHost<'_> = (FrameKind::Python, "main", "/home/me/train.py", 41);
const SAVE: OnHost<'_> =
    (FrameKind::Python, "save", "/v/lib/python3.12/site-packages/torch/serialization.py", 850);
const WRITE: OnHost<'_> = (FrameKind::Native, "write", "/usr/lib/x86_64-linux-gnu/libc.so.6", 0);
const IMPORT: OnHost<'_> = (FrameKind::Python, "_find_and_load", "<frozen importlib._bootstrap>", 1176);

/// Steps of a kernel, after each of which the host parses JSON, for two seconds.
const PARSING: &str = r#"import ctypes, json, time
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
text = json.dumps([{"number": number, "name": str(number)} for number in range(20_000)])
def step():
    assert driver.cuLaunchKernel(function, 128, 1, 1, 24, 1, 1, 0, None, parameters, None) == 0
    assert driver.cuCtxSynchronize() == 0
    return len(json.loads(text))
began = time.monotonic()
while time.monotonic() < began + 2:
    step()
"#;

/// Steps of 10 ms on the GPU, after each of which the host saves for 20 ms; before them a second of
/// imports between two kernels.
fn saving(program: &mut Recording) {
    let [function, first] = ["gelu", "fill"].map(|name| program.function(name));
    let (config, first) = (program.config(function, 1056, 256), program.config(first, 1056, 256));
    program.timed(first, LEGACY, 1_000);
    program.synchronise(LEGACY, 2_000);
    program.now += 1_000 * MS;
    for _ in 0..101 {
        program.timed(config, LEGACY, 10 * MS);
        program.synchronise(LEGACY, 10 * MS);
        program.now += 20 * MS;
    }
}

/// Writes that session into a folder, and its samples.
fn sampled(dir: &Path) {
    std::fs::create_dir_all(dir).unwrap();
    record(dir, saving);
    test_session::open(dir);
    let mut host = HostSampler::new(dir, MS);
    let thread = host.main;
    host.samples(thread, (MS, 1_000 * MS), &[MAIN, IMPORT], &Doing::Running);
    for step in 0..101 {
        let end = 1_000 * MS + (step + 1) * 30 * MS;
        host.samples(thread, (end - 20 * MS, end - MS), &[MAIN, SAVE, WRITE], &Doing::Running);
    }
    host.finish();
}

/// Adds samples of a program that waits for the interpreter's lock and for data, some of which
/// could not be read to the end, to the session in a folder: a value for each member of a document.
pub(crate) fn add_samples(dir: &Path) {
    let mut host = HostSampler::new(dir, MS);
    let thread = host.main;
    let other = host.thread(0, 77, "prefetch");
    let waits = |r#for| Doing::Waiting { syscall: None, r#for };
    for part in 10_000..11_800 {
        let (from, to) = (part * MS, (part + 1) * MS);
        let doing = if part % 2 == 0 { waits(WaitsFor::Gil { holder: Some(77) }) } else { Doing::Running };
        host.samples(thread, (from, to), &[MAIN, SAVE, WRITE], &doing);
        host.samples(other, (from, to), &[MAIN], &Doing::Running);
    }
    let (first_ns, last_ns) = (11_800 * MS, 11_900 * MS);
    let span = Span { thread, first_ns, last_ns, samples: 100, stands_for: 1, ..Span::default() };
    host.span(span, &[MAIN], &Doing::Running);
    host.finish();
}

#[test]
fn the_first_finding_names_the_function_and_the_line() {
    let sandbox = Sandbox::new();
    sampled(&sandbox.path("s"));
    let page = text(&output(sandbox.apex(&["report", "s"]).env("COLUMNS", "80"), 0).stdout);
    let words = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("while the host runs `torch.serialization.save`, called from train.py:41 main"),
        "{page}"
    );
    let advice = words.split("Advice:").nth(1).expect("advice");
    assert!(advice.contains(" 1 Checkpoints are written in the loop"), "{page}");
    assert!(advice.contains(" 2 Host function on the critical path"), "{page}");
    let first = "idle 67% of each step: while the host is in `torch.serialization.save`, called from train.py:41 main.";
    assert!(words.contains(first), "{page}");
    let section = page.split("Host functions while the GPU is idle").nth(1).expect("a table");
    let table: Vec<&str> = section.lines().take_while(|line| !line.starts_with("Advice")).collect();
    assert!(table.iter().all(|line| line.chars().count() <= 80), "{page}");
    for name in ["write (libc.so.6)", "torch.serialization.save"] {
        assert!(table.iter().any(|line| line.contains(name)), "{page}");
    }
    assert!(table.iter().any(|line| line.contains("main (train.py:41)")), "{page}");
    assert!(!page.contains("_find_and_load"), "the start-up is no part of a step: {page}");
    let startup = text(&output(&mut sandbox.apex(&["report", "--phase", "startup", "s"]), 0).stdout);
    assert!(startup.contains("importlib._bootstrap"), "{startup}");
}

#[test]
fn documents_and_exports_have_the_functions() {
    let sandbox = Sandbox::new();
    sampled(&sandbox.path("s"));
    let report = output(&mut sandbox.apex(&["report", "--json", "s"]), 0).stdout;
    let report: Value = serde_json::from_slice(&report).unwrap();
    let account = &report["idle_functions"][0];
    assert_eq!(account["cause"], "host_code");
    let functions = account["functions"].as_array().unwrap();
    let save = functions.iter().find(|function| function["function"] == "save").expect("torch.save");
    let total = save["total_share"]["value"].as_f64().unwrap();
    assert!(total > 0.9 && save["total_share"]["low"].as_f64().unwrap() < total, "{save}");
    let folded = text(&output(&mut sandbox.apex(&["export", "--format", "collapsed", "s"]), 0).stdout);
    let line = folded.lines().find(|line| line.contains("serialization")).expect("the stack");
    assert!(
        line.starts_with(
            "idle: host code;thread python;train.py:41 main;serialization.py:850 save;libc.so.6 write "
        ),
        "{line}"
    );
    let stacks = sandbox.json(&["export", "--format", "speedscope", "s"]);
    assert_eq!(stacks["profiles"][0]["name"], "idle: host code");
    let idle = stacks["profiles"][0]["endValue"].as_f64().unwrap();
    assert!(idle > 0.9 * account["idle_ns"]["value"].as_f64().unwrap(), "{idle}");
    output(&mut sandbox.apex(&["export", "--format", "pprof", "-o", "idle.pb", "s"]), 0);
    let stacks = std::fs::read(sandbox.path("idle.pb")).unwrap();
    let name = b"torch.serialization.save";
    assert!(stacks.windows(name.len()).any(|bytes| bytes == name), "the function is missing");
    let firefox = sandbox.json(&["export", "--format", "firefox", "s"]);
    assert_eq!(firefox["threads"][0]["samples"]["weightType"], "tracing-ms");
    let names = firefox["threads"][0]["stringArray"].as_array().unwrap();
    assert!(names.iter().any(|name| name == "torch.serialization.save" || name == "save"), "{names:?}");
    output(&mut sandbox.apex(&["report", "--html", "page.html", "s"]), 0);
    let page = std::fs::read_to_string(sandbox.path("page.html")).unwrap();
    assert!(page.contains(r#""idle":{"root":{"name":"program""#), "the tree of idle time is missing");
}

#[test]
fn a_recorded_program_names_what_its_host_does() {
    let Some(python) = interpreter() else { return };
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("fill.ptx"), PTX).unwrap();
    std::fs::write(sandbox.path("parse.py"), PARSING).unwrap();
    let options = ["run", "--device", "cpu", "--timing", "all", "-o", "s", "--", python, "parse.py"];
    output(&mut sandbox.apex(&options), 0);
    let report = sandbox.json(&["report", "--phase", "all", "--json", "s"]);
    let lost = report["profile"]["host_sampling"]["lost"].as_array();
    if lost.is_some_and(|lost| !lost.is_empty()) {
        return test_skip::impossible_here("this machine does not allow reading another process's stacks");
    }
    let accounts = report["idle_functions"].as_array().expect("samples");
    let host_code = accounts.iter().find(|account| account["cause"] == "host_code").expect("host code");
    let functions = host_code["functions"].as_array().unwrap();
    let of = |name: &str| functions.iter().find(|function| function["function"] == name);
    let loads = of("loads").unwrap_or_else(|| panic!("{host_code:#}"));
    assert!(loads["file"].as_str().unwrap().ends_with("json/__init__.py") && loads["is_of_library"] == true);
    // Parsing takes nearly all of it. On a busy machine there are few samples.
    let known = 1.0 - host_code["unknown_share"].as_f64().unwrap();
    assert!(loads["total_share"]["value"].as_f64().unwrap() > known / 4.0, "{host_code:#}");
    let step = of("step").expect("the program's own function");
    assert!(step["line"] == 16 && step["is_of_library"] == false, "{step}");
}

#[test]
fn without_samples_nothing_is_said_of_the_host() {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.path("s")).unwrap();
    record(&sandbox.path("s"), saving);
    test_session::open(sandbox.path("s"));
    let page = text(&output(&mut sandbox.apex(&["report", "s"]), 0).stdout);
    assert!(!page.contains("Host functions") && page.contains("Host-bound"), "{page}");
    let report = text(&output(&mut sandbox.apex(&["report", "--json", "s"]), 0).stdout);
    assert!(!report.contains("idle_functions") && !report.contains("host_samples"));
    assert!(text(&output(&mut sandbox.apex(&["export", "--format", "collapsed", "s"]), 0).stdout).is_empty());
}
