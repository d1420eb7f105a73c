//! Reports on recorded programs: what they must contain, how they fit, and the demo.

use crate::common::{Running, Sandbox, output, send, text, wait_until};
use apex_trace::definition::{Definition, Function, Graph};
use apex_trace::layout::{GraphLaunch, Slots};
use apex_trace::{Lane, ProcessFile};

#[test]
fn the_demo_reports_on_a_real_run() {
    let sandbox = Sandbox::new();
    let output = output(&mut sandbox.apex(&["demo", "--device", "cpu", "-o", "s"]), 0);
    let page = text(&output.stdout);
    let programs = text(&self::output(&mut sandbox.apex(&["demo", "--list"]), 0).stdout);
    for program in programs.lines().filter_map(|line| line.split_whitespace().next()) {
        assert!(page.contains(&format!("{program} ")), "{program} has not run: {page}");
    }
    for part in
        ["launches", "0 dropped", "of the host's time", "kernels, by", "occupancyᶜ", "Advice:", "ᵐ measured"]
    {
        assert!(page.contains(part), "no {part}: {page}");
    }
    assert!(
        page.lines().filter(|line| !line.contains("demo --bare")).all(|line| line.chars().count() <= 100),
        "{page}"
    );
    let report = sandbox.json(&["report", "--json", "s"]);
    assert_eq!(report["schema"], "apex.report/4");
    let sentences: Vec<&str> =
        report["verdict"].as_array().unwrap().iter().filter_map(|line| line.as_str()).collect();
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        !sentences.is_empty() && words(&page).contains(&words(&sentences.join(" "))),
        "{sentences:?}: {page}"
    );
    let findings = report["advice"]["findings"].as_array().unwrap();
    assert!(findings.iter().all(|finding| !finding["remedy"].as_str().unwrap().is_empty()));
    let rules: Vec<_> = findings.iter().map(|finding| finding["rule"].as_str().unwrap()).collect();
    assert!(rules.contains(&"APEX-L01"), "the bad program's blocks are no multiple of a warp: {rules:?}");
}

#[test]
fn bare_programs_run_without_recording() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.apex(&["run", "--device", "cpu", "-q", "-o", "s", "--", crate::common::APEX]);
    let page = text(&output(command.args(["demo", "--bare", "vector_add"]), 0).stdout);
    assert_eq!(page.lines().count(), 1);
    assert!(page.starts_with("vector_add"), "{page}");
}

#[test]
fn tables_fit_the_width_and_keep_what_matters() {
    let sandbox = Sandbox::new();
    sandbox.recorded(&["--timing", "all"], &["launch", "64"]);
    let always = ["kernel", "launches", "GPU timeᵐ", "share"];
    let from_80 = ["configuration", "occupancyᶜ", "wavesᶜ"];
    let from_100 = ["tailᶜ", "eff.ᶜ"];
    for width in [60usize, 80, 100, 200] {
        let mut command = sandbox.apex(&["report", "s"]);
        let page = text(&output(command.env("COLUMNS", width.to_string()), 0).stdout);
        // What was run is given in full.
        let lines = page.lines().filter(|line| !line.contains("cuda-program"));
        let too_wide: Vec<_> = lines.filter(|line| line.chars().count() > width).collect();
        assert!(too_wide.is_empty(), "{width}: {too_wide:#?}");
        let from_80 = from_80.iter().filter(|_| width >= 80);
        for heading in always.iter().chain(from_80).chain(from_100.iter().filter(|_| width >= 100)) {
            assert!(page.contains(heading), "{width}: no {heading}: {page}");
        }
        let row = page.lines().find(|line| line.starts_with("nothing ")).unwrap();
        let samples = row.rsplit('×').next().unwrap().split_whitespace().next().unwrap();
        assert!((1..=64).contains(&samples.parse::<u32>().unwrap()), "how many samples: {row}");
    }
}

/// A pipe has no width: whoever searches in it finds whole names and all columns.
#[test]
fn a_pipe_gets_whole_tables() {
    let sandbox = Sandbox::new();
    sandbox.recorded(&["--timing", "all"], &["launch", "64"]);
    let page = |arguments: &[&str], columns: Option<&str>| {
        let mut command = sandbox.apex(arguments);
        command.env_remove("COLUMNS").envs(columns.map(|columns| ("COLUMNS", columns)));
        text(&output(&mut command, 0).stdout)
    };
    let whole = page(&["report", "s"], None);
    let header = whole.lines().find(|line| line.starts_with("kernel ")).unwrap();
    for heading in ["wavesᶜ", "tailᶜ", "eff.ᶜ", "GPU timeᵐ", "share", "CPU timeᵐ"] {
        assert!(header.contains(heading), "no {heading}: {header}");
    }
    assert!(!whole.contains('…'), "{whole}");
    let paragraphs = whole.lines().filter(|line| line.starts_with("    "));
    assert!(paragraphs.clone().count() > 0);
    assert!(paragraphs.clone().all(|line| line.chars().count() <= 100), "{whole}");
    // On a narrow page, the column that the table is sorted by stays.
    let cpu = |arguments: &[&str]| page(arguments, Some("80")).contains("CPU timeᵐ");
    assert!(!cpu(&["report", "s"]) && cpu(&["report", "--sort", "cpu", "s"]));
}

#[test]
fn colours_only_where_they_are_wanted() {
    let sandbox = Sandbox::new();
    sandbox.recorded(&[], &["launch", "10"]);
    let page = |arguments: &[&str], variables: &[(&str, &str)]| {
        text(&output(sandbox.apex(arguments).envs(variables.iter().copied()), 0).stdout)
    };
    assert!(!page(&["report"], &[]).contains('\x1b'), "stdout is no terminal");
    assert!(page(&["report", "--color", "always"], &[]).contains('\x1b'));
    assert!(page(&["report"], &[("APEX_COLOR", "always")]).contains('\x1b'));
    assert!(!page(&["report", "--color", "never"], &[]).contains('\x1b'));
}

#[test]
fn kernels_are_ranked_as_asked() {
    let sandbox = Sandbox::new();
    sandbox.recorded(&[], &["launch", "10"]);
    for sort in ["time", "count", "cpu"] {
        let page = text(&output(&mut sandbox.apex(&["report", "--sort", sort, "--top", "1"]), 0).stdout);
        assert!(page.contains("1 of 1 kernel,"), "{page}");
    }
}

#[test]
fn a_report_can_be_had_while_the_program_runs_and_after_apex_was_killed() {
    let sandbox = Sandbox::new();
    let words = ["launch", "12", "await", "end"];
    let mut apex = Running::start(&mut sandbox.record(&["--quiet"], &words));
    apex.read_until("waiting");
    let page = || text(&output(&mut sandbox.apex(&["report"]), 0).stdout);
    assert!(page().contains("12 launches") && page().contains("(running)"), "{}", page());
    send(apex.0.id(), libc::SIGKILL);
    apex.0.wait().unwrap();
    assert!(page().contains("(running)"), "the program goes on: {}", page());
    std::fs::write(sandbox.path("end"), "").unwrap();
    wait_until("the program ends", || page().contains("apex was killed"));
}

#[test]
fn advice_can_be_suppressed() {
    let sandbox = Sandbox::new();
    sandbox.recorded(&[], &["launch", "200"]);
    let rules = |arguments: &[&str]| {
        let advice = sandbox.json(arguments);
        let findings = advice["advice"]["findings"].as_array().unwrap();
        findings.iter().map(|finding| finding["rule"].as_str().unwrap().to_string()).collect::<Vec<_>>()
    };
    let all = rules(&["advise", "--json", "s"]);
    let first = all.first().expect("one block of an empty kernel has faults").clone();
    let fewer = rules(&["advise", "--json", "--suppress", &first, "s"]);
    let said = text(&output(&mut sandbox.apex(&["advise", "--suppress", "", "s"]), 0).stderr);
    assert!(said.contains("an empty name suppresses no rule"), "{said}");
    assert!(!fewer.contains(&first) && fewer.len() == all.len() - 1, "{all:?} {fewer:?}");
    let short = first.strip_prefix("APEX-").expect("identifiers begin like this").to_lowercase();
    assert_eq!(rules(&["report", "--json", "--suppress", &short, "s"]), fewer);
    let output = output(&mut sandbox.apex(&["advise", "--suppress", "NO-SUCH-RULE", "s"]), 0);
    assert!(text(&output.stderr).contains("NO-SUCH-RULE"));
}

#[test]
fn the_doctor_checks_this_machine() {
    let sandbox = Sandbox::new();
    let report = sandbox.apex(&["doctor", "--json"]).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!(report["schema"], "apex.doctor/1");
    let status = |report: &serde_json::Value, id: &str| {
        let checks = report["checks"].as_array().unwrap();
        checks.iter().find(|check| check["id"] == id).unwrap_or_else(|| panic!("no check {id}"))["status"]
            .clone()
    };
    assert_eq!(status(&report, "session-folder"), "ok");
    assert_eq!(std::fs::read_dir(sandbox.path("")).unwrap().count(), 0, "nothing is left behind");
    let mut disabled = sandbox.apex(&["doctor", "--json"]);
    let disabled: serde_json::Value =
        serde_json::from_slice(&output(disabled.env("APEX_DISABLE", "1"), 1).stdout).unwrap();
    assert_eq!(status(&disabled, "apex-settings"), "fail");
    let mut profiled = sandbox.apex(&["doctor"]);
    let page = profiled.env("CUDA_INJECTION64_PATH", "/opt/other.so").output().unwrap();
    assert!(text(&page.stdout).contains("CUDA_INJECTION64_PATH=/opt/other.so"));
    assert_eq!(sandbox.apex(&["doctor", "--dir", "/proc"]).output().unwrap().status.code(), Some(1));
}

/// The CPU device stands in for an installed driver: it is a `libcuda.so.1` like any other.
#[test]
fn the_doctor_tries_the_driver() {
    let sandbox = Sandbox::new();
    let library = std::path::Path::new(crate::common::APEX).with_file_name("deps/libapex_cpu_device.so");
    std::os::unix::fs::symlink(library, sandbox.path("libcuda.so.1")).unwrap();
    let mut command = sandbox.apex(&["doctor"]);
    let page = command.env("LD_LIBRARY_PATH", sandbox.path("")).output().unwrap();
    let page = text(&page.stdout);
    let line = page.lines().find(|line| line.contains("driver ")).unwrap();
    assert!(
        line.starts_with("ok ") && line.contains("CUDA 13") && line.contains("APEX CPU device"),
        "{page}"
    );
    std::fs::remove_file(sandbox.path("libcuda.so.1")).unwrap();
    std::fs::write(sandbox.path("libcuda.so.1"), "no library").unwrap();
    let page = text(&command.output().unwrap().stdout);
    assert!(page.lines().any(|line| line.contains("driver ") && !line.starts_with("ok ")), "{page}");
}

#[test]
fn a_rule_is_explained_without_a_session() {
    let sandbox = Sandbox::new();
    let page = text(&output(&mut sandbox.apex(&["explain", "launch-bound", "L19"]), 0).stdout);
    assert!(page.starts_with("APEX-T24 launch-bound: "), "{page}");
    assert!(page.contains("APEX-L19 synchronous-calls: ") && page.contains("Detects: "), "{page}");
    let list = text(&output(&mut sandbox.apex(&["explain"]), 0).stdout);
    assert!(list.contains("APEX-C84") && list.lines().count() > 40, "{list}");
    let unknown = output(&mut sandbox.apex(&["explain", "APEX-X99", "L19"]), 1);
    assert!(
        text(&unknown.stderr)
            .contains("there is no rule or cause `APEX-X99`; `apex explain` lists all rules")
    );
    assert!(text(&unknown.stdout).starts_with("APEX-L19"), "what is known is explained");
}

/// The device runs the body of a conditional node as often as it decides.
#[test]
fn kernels_that_nobody_can_count_are_mentioned() {
    let sandbox = Sandbox::new();
    let folder = sandbox.path("s");
    std::fs::create_dir(&folder).unwrap();
    let file = ProcessFile::create(&folder, None).unwrap();
    assert!(file.define(&Definition::Name { id: 1, text: "cuGraphLaunch".into() }));
    assert!(file.define(&Definition::Function(Function { id: 1, name: "step".into(), attributes: None })));
    assert!(file.define(&Definition::Graph(Graph { id: 1, opaque: 2, ..Graph::default() })));
    let mut lane = Lane::default();
    for start in [apex_trace::now(), apex_trace::now() + 9_000] {
        let head = GraphLaunch::head(0, start, start + 3_000);
        assert!(lane.record(&file, &GraphLaunch { head, graph: 1, stream: 0, result: 0, api: 1 }));
    }
    drop(lane);
    let page = text(&output(&mut sandbox.apex(&["report", "s"]), 0).stdout);
    assert!(page.contains("Not counted: kernels inside 4 launched graph nodes"), "{page}");
    assert!(!page.contains("Checked and fine"), "{page}");
    assert!(page.contains("at least 0 launches"), "{page}");
    // Documents have the number of such nodes; the page and the dashboard have the note.
    let document = sandbox.json(&["report", "--json", "s"]);
    assert_eq!(document["profile"]["graphs"][0]["opaque"], 2);
    output(&mut sandbox.apex(&["report", "--html", "page.html", "s"]), 0);
    let page = std::fs::read_to_string(sandbox.path("page.html")).unwrap();
    assert!(page.contains("Not counted: kernels inside 4 launched graph nodes"));
}

#[test]
fn a_sandbox_that_hides_call_stacks_is_named() {
    let sandbox = Sandbox::new();
    let mut recorded = sandbox.record(&[], &["launch", "3"]);
    output(recorded.refuse(libc::SYS_process_vm_readv, libc::EPERM), 0);
    let said = text(&output(&mut sandbox.apex(&["report", "s"]), 0).stderr);
    assert!(said.contains("call stacks were not recorded") && said.contains("process_vm_readv"), "{said}");
    let mut doctor = sandbox.apex(&["doctor"]);
    let doctor = doctor.refuse(libc::SYS_process_vm_readv, libc::EPERM).output().unwrap();
    assert!(text(&doctor.stdout).contains("process_vm_readv is refused"), "{}", text(&doctor.stdout));
}
