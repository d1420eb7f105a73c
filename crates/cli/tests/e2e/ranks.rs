//! Ranks of a job are one session, whether one `apex run` records them, each its own into one
//! folder, or `apex merge` joins them.

use crate::common::{Sandbox, output, program, text};
use apex_trace::definition::{Definition, Variable};
use apex_trace::{Session, own_pid};
use serde_json::{Value, json};
use test_process::Command;
use test_session::{NON_BLOCKING, Recording};

const REDUCE: &str = "_Z38ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE";

/// A rank of a job of two, recorded by its own `apex run` into a folder.
fn rank(sandbox: &Sandbox, folder: &str, rank: u32) -> Command {
    let mut run = sandbox.apex(&["run", "--device", "cpu", "-o", folder, "--"]);
    run.arg(program()).args(["launch", "3"]);
    run.env("RANK", rank.to_string()).env("LOCAL_RANK", rank.to_string()).env("WORLD_SIZE", "2");
    run
}

/// Rank and launcher of each process of a session.
fn ranks(report: &Value) -> Vec<(Value, Value)> {
    let processes = report["profile"]["processes"].as_array().unwrap();
    let mut ranks: Vec<_> =
        processes.iter().map(|process| (process["rank"].clone(), process["launcher"].clone())).collect();
    ranks.sort_by_key(|(rank, _)| rank.as_u64());
    ranks
}

fn told(rank: u32) -> Value {
    json!({ "name": "environment", "rank": rank, "local_rank": rank, "world_size": 2, "restarts": 0, "job": null })
}

#[test]
fn ranks_that_record_into_one_folder_are_one_session() {
    let sandbox = Sandbox::new();
    let running: Vec<_> = [1, 0].map(|number| rank(&sandbox, "job", number).spawn().unwrap()).into();
    for mut child in running {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(sandbox.launches("job"), 6);
    let report = sandbox.json(&["report", "--json", "job"]);
    assert_eq!(ranks(&report), [(json!(0), told(0)), (json!(1), told(1))]);
    assert_eq!(report["run"]["exit"], json!({ "code": 0 }));
    assert_eq!(report["by_rank"]["world_size"], 2);
    let selected = sandbox.json(&["report", "--json", "--rank", "1", "job"]);
    assert_eq!(ranks(&selected), [(json!(1), told(1))]);
    let again = output(&mut rank(&sandbox, "job", 1), 125);
    assert!(text(&again.stderr).contains("rank 1 has already been recorded in"), "{}", text(&again.stderr));
    let ctl = output(&mut sandbox.apex(&["ctl", "off", "job"]), 125);
    assert!(text(&ctl.stderr).contains("name the folder of one"), "{}", text(&ctl.stderr));
    for command in [&["advise", "job"][..], &["export", "--format", "perfetto", "-o", "trace.pftrace", "job"]]
    {
        output(&mut sandbox.apex(command), 0);
    }
}

#[test]
fn a_launcher_under_apex_run_gives_one_session_with_its_ranks() {
    let sandbox = Sandbox::new();
    let program = program().display().to_string();
    let script = format!(
        "for rank in 0 1; do RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=2 {program} launch 2 & done; wait"
    );
    output(&mut sandbox.apex(&["run", "--device", "cpu", "-o", "s", "--", "sh", "-c", &script]), 0);
    let report = sandbox.json(&["report", "--json", "s"]);
    assert_eq!(ranks(&report), [(json!(0), told(0)), (json!(1), told(1))]);
}

#[test]
fn sessions_recorded_apart_are_merged_and_a_rank_that_is_there_twice_is_refused() {
    let sandbox = Sandbox::new();
    for (folder, number) in [("a", 0), ("b", 1), ("c", 1)] {
        output(&mut rank(&sandbox, folder, number), 0);
    }
    let merged = sandbox.json(&["merge", "--json", "a", "b", "-o", "job"]);
    assert_eq!((&merged["schema"], &merged["world_size"]), (&json!("apex.merge/1"), &json!(2)));
    let members = merged["members"].as_array().unwrap();
    assert_eq!(members.iter().map(|member| &member["ranks"]).collect::<Vec<_>>(), [&json!([0]), &json!([1])]);
    assert_eq!(merged["notes"], json!([]));
    let session = Session::open(sandbox.path("job")).unwrap();
    assert!(session.problems.is_empty(), "{:?}", session.problems);
    let apart = ["a", "b"].map(|name| Session::open(sandbox.path(name)).unwrap().processes[0].pid);
    let mut joined: Vec<u32> = session.processes.iter().map(|process| own_pid(process.pid)).collect();
    joined.sort_unstable();
    let mut expected = apart.map(own_pid);
    expected.sort_unstable();
    assert_eq!(joined, expected);
    assert_eq!(ranks(&sandbox.json(&["report", "--json", "job"])).len(), 2);
    for (arguments, why) in [
        (&["merge", "a", "b", "c", "-o", "x"][..], "rank 1 is in "),
        (&["merge", "a", "a", "-o", "x"], "is named twice"),
        (&["merge", "job", "b", "-o", "x"], "rank 1 is in "),
        (&["merge", "a", "nowhere", "-o", "x"], "there is no session nowhere"),
        (&["merge", "a", "b", "-o", "job"], "is not empty"),
        (&["merge", "a", "b", "-o", "a/x"], "a/x would be inside of a"),
    ] {
        let refused = output(&mut sandbox.apex(arguments), 125);
        assert!(text(&refused.stderr).contains(why), "{arguments:?}: {}", text(&refused.stderr));
        assert!(!sandbox.path("x").exists(), "{arguments:?}");
    }
    let part = output(&mut sandbox.apex(&["merge", "a", "-o", "part"]), 0);
    assert!(text(&part.stderr).contains("1 of the job's 2 ranks was recorded"), "{}", text(&part.stderr));
}

#[test]
fn a_report_says_what_is_odd_about_the_ranks() {
    let sandbox = Sandbox::new();
    let program = program().display().to_string();
    let ranks_of = |name: &str, processes: &[&str]| {
        let script: String =
            processes.iter().map(|variables| format!("env {variables} {program} launch 2; ")).collect();
        output(&mut sandbox.apex(&["run", "--device", "cpu", "-o", name, "--", "sh", "-c", &script]), 0);
        text(&output(&mut sandbox.apex(&["report", "--ranks", name]), 0).stdout).replace("\n  ", " ")
    };
    let sizes = ranks_of("sizes", &["RANK=0 WORLD_SIZE=2", "RANK=1 WORLD_SIZE=4"]);
    assert!(sizes.contains("jobs of different sizes (2 and 4 processes)"), "{sizes}");
    let twice = ranks_of("twice", &["RANK=1 WORLD_SIZE=2", "RANK=1 WORLD_SIZE=2"]);
    assert!(twice.contains("follow the process identifiers"), "{twice}");
    assert!(twice.contains("is rank 1 of its launcher"), "{twice}");
    let restarted = ["RANK=0", "RANK=1", "TORCHELASTIC_RESTART_COUNT=1 RANK=1"];
    let restarted = ranks_of(
        "restarted",
        &restarted
            .map(|rank| format!("{rank} LOCAL_RANK=0 WORLD_SIZE=2 TORCHELASTIC_RUN_ID=job"))
            .each_ref()
            .map(String::as_str),
    );
    assert!(restarted.contains("1, restarted"), "{restarted}");
    assert!(!sizes.contains("communicator"), "without collectives, none is counted: {sizes}");
}

/// A rank of a job of two, recorded apart: its kernel, and the collective in which it waits.
fn training(sandbox: &Sandbox, name: &str, rank: u32, kernel_ns: u64, collective_ns: u64) {
    std::fs::create_dir(sandbox.path(name)).unwrap();
    let mut program = Recording::new(&sandbox.path(name));
    for ((name, value), id) in [("RANK", rank), ("WORLD_SIZE", 2)].into_iter().zip(1..) {
        let (name, value) = (name.to_owned(), value.to_string());
        program.define(Definition::Variable(Variable { id, name, value }));
    }
    let [train, reduce] = ["train", REDUCE].map(|name| program.function(name));
    let (train, reduce) = (program.config(train, 132 * (1 + rank), 256), program.config(reduce, 24, 544));
    for _ in 0..50 {
        program.timed(train, NON_BLOCKING, kernel_ns);
        program.timed(reduce, NON_BLOCKING, collective_ns);
        program.synchronise(NON_BLOCKING, kernel_ns + collective_ns);
    }
    program.exit();
    test_session::open(sandbox.path(name));
    let meta = json!({
        "schema": 1, "apex_version": "0.1.0", "command": ["train"], "cwd": "/", "started_real_ns": 0, "ended_real_ns": 1,
        "exit": { "code": 0 }, "device": "gpu", "timing": "all", "host": { "name": format!("node{rank}") }
    });
    std::fs::write(sandbox.path(name).join("session.json"), meta.to_string()).unwrap();
}

#[test]
fn the_late_rank_is_named_in_the_first_line_with_its_cause() {
    let sandbox = Sandbox::new();
    training(&sandbox, "a", 0, 1_000_000, 3_000_000);
    training(&sandbox, "b", 1, 3_000_000, 1_000_000);
    output(&mut sandbox.apex(&["merge", "a", "b", "-o", "job"]), 0);
    let report = text(&output(&mut sandbox.apex(&["report", "--ranks", "job"]), 0).stdout);
    let first: String = report.split("\n  ").next().unwrap().replace('\n', " ");
    assert!(first.starts_with("Rank 1 ") && first.contains("more work (2.00 times"), "{report}");
    assert!(report.contains("node0") && report.contains("node1"), "{report}");
    let report = sandbox.json(&["report", "--json", "job"]);
    let late = &report["by_rank"]["late"];
    assert_eq!((&late["cause"], &report["by_rank"]["ranks"][1]["rank"]), (&json!("more_work"), &json!(1)));
    let alone = text(&output(&mut sandbox.apex(&["report", "--ranks", "a"]), 0).stdout);
    assert!(alone.contains("no ranks to compare"), "{alone}");
}

#[test]
fn sessions_of_different_jobs_are_merged_with_a_warning_that_names_them() {
    let sandbox = Sandbox::new();
    training(&sandbox, "a", 0, 1_000_000, 3_000_000);
    training(&sandbox, "b", 1, 3_000_000, 1_000_000);
    let file = sandbox.path("b").join("session.json");
    let meta = std::fs::read_to_string(&file).unwrap();
    let day = 86_400_000_000_000_u64;
    let meta = meta.replace("\"started_real_ns\":0,", &format!("\"started_real_ns\":{day},"));
    std::fs::write(file, meta.replace("[\"train\"]", "[\"python\", \"jobs/other.py\"]")).unwrap();
    let merged = sandbox.json(&["merge", "--json", "a", "b", "-o", "job"]);
    assert_eq!(
        merged["notes"],
        json!([
            "the sessions are of different programs: other.py in b, train in a",
            "a had ended 86400 s before b began: the sessions may be of different runs"
        ])
    );
}

#[test]
fn a_process_is_chosen_by_the_identifier_that_reports_show() {
    let sandbox = Sandbox::new();
    training(&sandbox, "a", 0, 1_000_000, 3_000_000);
    training(&sandbox, "b", 1, 3_000_000, 1_000_000);
    let whole = sandbox.json(&["merge", "--json", "b", "a", "-o", "job"]);
    assert_eq!(whole["notes"], json!([]));
    // (One process has recorded both.)
    let pid = std::process::id().to_string();
    let refused = output(&mut sandbox.apex(&["report", "--rank", &pid, "job"]), 125);
    assert!(text(&refused.stderr).contains("name a rank instead, 0 or 1"), "{}", text(&refused.stderr));
    let alone = text(&output(&mut sandbox.apex(&["report", "--ranks", "--rank", "0,1", "job"]), 0).stdout);
    assert!(alone.contains("Only the ranks that --rank names are compared"), "{alone}");
    assert!(!alone.contains("ranks were recorded"), "{alone}");
    let of_session = sandbox.json(&["report", "--json", "job"])["profile"]["processes"][0]["pid"].to_string();
    assert_eq!(ranks(&sandbox.json(&["report", "--json", "--rank", &of_session, "job"])).len(), 1);
}
