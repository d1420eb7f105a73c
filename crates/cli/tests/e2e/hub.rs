//! `apex hub` and `apex run --hub`: what a hub shows is what the session's report says, and nothing
//! is lost where the hub is not there.

use crate::common::{APEX, Running, Sandbox, installed, output, program, text};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A hub that runs, and its address without `http://` and the last `/`.
fn hub(sandbox: &Sandbox, arguments: &[&str]) -> (Running, String) {
    let all = [&["hub", "--listen", "127.0.0.1:0", "--database", "hub.db"], arguments].concat();
    let mut running = Running::start(&mut sandbox.apex(&all));
    let url = running.read_until("http://");
    (running, url["http://".len()..].trim_end_matches('/').to_owned())
}

/// Status and body of an answer.
fn get(address: &str, path: &str, token: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    let bearer = if token.is_empty() { String::new() } else { format!("Authorization: Bearer {token}\r\n") };
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{bearer}\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn json(address: &str, path: &str) -> Value {
    let (status, body) = get(address, path, "");
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).unwrap()
}

/// Microseconds of a figure of a report.
fn us(figure: &Value) -> u64 {
    (figure["value"].as_f64().unwrap() / 1000.0).round() as u64
}

#[test]
fn the_page_of_a_job_has_the_figures_of_its_report() {
    let sandbox = Sandbox::new();
    let (_running, address) = hub(&sandbox, &["--price-per-gpu-hour", "3"]);
    let url = format!("http://{address}");
    let mut run = sandbox
        .apex(&["run", "--device", "cpu", "-o", "s", "--to", &url, "--spool", "spool", "--job", "demo 1"]);
    run.args(["--", APEX, "demo", "--bare", "bad"]).env("USER", "ada");
    output(&mut run, 0);
    let report = sandbox.json(&["report", "--json", "s"]);
    let job = json(&address, "/api/v1/jobs/1");
    let (times, profile) = (&job["job"]["times"], &report["profile"]);
    assert_eq!((&job["job"]["job"], &job["job"]["owner"]), (&"demo 1".into(), &"ada".into()));
    let activities = profile["activities"].as_array().unwrap();
    for part in ["kernels", "collectives", "waiting", "copies", "unknown"] {
        let expected: u64 = activities.iter().map(|of| us(&of["accounts"][part])).sum();
        assert_eq!(times[format!("{part}_us")], expected, "{part}");
    }
    for cause in [
        "launching",
        "allocating",
        "transferring",
        "synchronising",
        "loading",
        "capturing",
        "other_calls",
        "host_code",
    ] {
        let idle = activities.iter().filter_map(|of| of["accounts"]["idle"].get(cause)).map(us);
        assert_eq!(times[format!("idle_{cause}_us")], idle.sum::<u64>(), "{cause}");
    }
    let run = &report["run"];
    let wall_ns = run["ended_real_ns"].as_u64().unwrap() - run["started_real_ns"].as_u64().unwrap();
    // Each part is rounded by itself.
    assert!(times["held_us"].as_u64().unwrap().abs_diff(wall_ns / 1000) <= 14);
    let launches = profile["totals"]["launches"].as_u64().unwrap()
        + profile["totals"]["graph_kernels"].as_u64().unwrap();
    assert_eq!(job["job"]["launches"], launches);
    let rules = |findings: &Value| -> Vec<String> {
        let mut rules: Vec<String> =
            findings.as_array().unwrap().iter().map(|of| of["rule"].as_str().unwrap().to_owned()).collect();
        rules.sort();
        rules
    };
    let mut told = rules(&report["advice"]["findings"]);
    told.truncate(16);
    assert_eq!(rules(&job["recordings"][0]["findings"]), told);
    assert!(told.len() > 3, "{told:?}");
    let session = sandbox.path("s").canonicalize().unwrap();
    assert!(job["recordings"][0]["open"].as_str().unwrap().ends_with(&*session.to_string_lossy()));
    // The page says the same, and nothing waits.
    let (_, page) = get(&address, "/jobs/1", "");
    // (Thousands stand apart.)
    let page = page.replace('\u{202f}', "");
    assert!(page.contains("demo 1") && page.contains(&format!(">{launches}<")), "{page}");
    let waiting = std::fs::read_dir(sandbox.path("spool")).unwrap().flatten();
    assert!(waiting.into_iter().all(|file| !file.file_name().to_string_lossy().ends_with(".message")));
}

#[test]
fn a_run_without_its_hub_waits_in_the_spool_and_a_second_hub_gets_it() {
    let sandbox = Sandbox::new();
    // Nobody listens there.
    let url = "http://127.0.0.1:9";
    let options = ["--hub", url, "--spool", "spool"];
    let run = output(&mut sandbox.record(&options, &["launch", "10"]), 0);
    let said = text(&run.stderr);
    assert!(said.contains("cannot be reached") && said.contains("1 message waits in"), "{said}");
    let deliver = |address: &str, code: i32| {
        output(&mut sandbox.apex(&["hub", "deliver", "--json", "--spool", "spool", "--hub", address]), code)
    };
    let failed: Value = serde_json::from_slice(&deliver(url, 1).stdout).unwrap();
    assert_eq!((&failed["confirmed"], &failed["waiting"]), (&0.into(), &1.into()));
    // A server that is no hub confirms nothing, whatever its status.
    let mut other = Running::start(&mut sandbox.apex(&["dashboard", "--no-open", "s"]));
    let dashboard = other.read_until("http://");
    deliver(dashboard.trim_end_matches('/'), 1);
    let (_running, address) = hub(&sandbox, &[]);
    let done: Value = serde_json::from_slice(&deliver(&format!("http://{address}"), 0).stdout).unwrap();
    assert_eq!((&done["confirmed"], &done["waiting"]), (&1.into(), &0.into()));
    assert_eq!(json(&address, "/api/v1/jobs")["jobs"][0]["launches"], 10);
    // Without a hub, the spool holds.
    let run = sandbox.apex(&["run", "--device", "cpu", "-o", "t", "-q", "--spool", "spool", "--"]);
    let mut run = run;
    output(run.arg(program()).args(["launch", "5"]), 0);
    deliver(&format!("http://{address}"), 0);
    assert_eq!(json(&address, "/api/v1/jobs")["jobs"].as_array().unwrap().len(), 2);
}

/// The only job of a hub, once this holds of it.
fn job_where(address: &str, holds: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..6000 {
        let job = json(address, "/api/v1/jobs")["jobs"][0].clone();
        if holds(&job) {
            return job;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("no such job: {}", json(address, "/api/v1/jobs"));
}

#[test]
fn ranks_are_told_while_they_run_and_when_they_end_or_are_killed() {
    let sandbox = Sandbox::new();
    let (_running, address) = hub(&sandbox, &[]);
    let url = format!("http://{address}");
    let start = |rank: &str| {
        let mut run =
            sandbox.apex(&["run", "--device", "cpu", "-o", rank, "--hub", &url, "--hub-interval", "200ms"]);
        let program = format!("{} launch 40; while [ ! -e go ]; do sleep 0.1; done", program().display());
        run.args(["--spool", "spool", "--", "sh", "-c", &program]);
        let of_slurm = [
            ("SLURM_JOB_ID", "9"),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_STEP_NUM_TASKS", "2"),
            ("SLURM_PROCID", rank),
        ];
        run.envs(of_slurm);
        Running::start(&mut run)
    };
    let (killed, mut ends) = (start("0"), start("1"));
    let job = job_where(&address, |job| job["running"] == 2 && job["launches"] == 80);
    assert_eq!(
        (&job["job"], &job["launcher"], &job["ranks_started"]),
        (&"9.0".into(), &"slurm".into(), &2.into())
    );
    drop(killed);
    std::fs::write(sandbox.path("go"), "").unwrap();
    assert!(ends.0.wait().unwrap().success());
    let job = job_where(&address, |job| job["running"] == 1);
    assert_eq!((&job["launches"], &job["recordings"], &job["failed"]), (&80.into(), &2.into(), &0.into()));
    let ranks = json(&address, "/api/v1/jobs/1")["ranks"].clone();
    let ranks: Vec<u64> = ranks.as_array().unwrap().iter().map(|of| of["rank"].as_u64().unwrap()).collect();
    assert_eq!(ranks, [0, 1]);
}

#[test]
fn a_hub_for_others_demands_a_token_and_the_program_does_not_get_it() {
    let sandbox = Sandbox::new();
    let refused = output(&mut sandbox.apex(&["hub", "--listen", "0.0.0.0:0", "--database", "hub.db"]), 125);
    assert!(
        text(&refused.stderr).contains("apex hub token --database hub.db add NAME"),
        "{}",
        text(&refused.stderr)
    );
    let added = output(&mut sandbox.apex(&["hub", "token", "--database", "hub.db", "add", "physics"]), 0);
    let token = text(&added.stdout).trim().to_owned();
    assert_eq!(token.len(), 64);
    let (_running, address) = hub(&sandbox, &[]);
    let url = format!("http://{address}");
    let run = |token: &str| {
        let mut run =
            sandbox.apex(&["run", "--device", "cpu", "--hub", &url, "--spool", "spool", "--", "sh", "-c"]);
        run.arg(format!("echo token=$APEX_HUB_TOKEN; {} launch 3", program().display()));
        if !token.is_empty() {
            run.env("APEX_HUB_TOKEN", token);
        }
        output(&mut run, 0)
    };
    let without = run("");
    assert!(text(&without.stderr).contains("status 401"), "{}", text(&without.stderr));
    let with = run(&token);
    assert!(text(&with.stdout).contains("token=\n"), "{}", text(&with.stdout));
    assert!(!text(&with.stderr).contains("wait"), "{}", text(&with.stderr));
    assert_eq!(get(&address, "/api/v1/jobs", "").0, 401);
    let jobs: Value = serde_json::from_str(&get(&address, "/api/v1/jobs", &token).1).unwrap();
    // The run that was refused waited in the spool, and came with the second one.
    assert_eq!(jobs["jobs"].as_array().unwrap().len(), 2);
    let list = sandbox.json(&["hub", "token", "--database", "hub.db", "list", "--json"]);
    assert_eq!((&list["tenants"][0]["name"], &list["tenants"][0]["tokens"]), (&"physics".into(), &1.into()));
    let report =
        ["hub", "report", "--database", "hub.db", "--tenant", "physics", "--json", "--html", "week.html"];
    assert_eq!(sandbox.json(&report)["jobs"].as_array().unwrap().len(), 2);
    assert!(std::fs::read_to_string(sandbox.path("week.html")).unwrap().contains("Who lost most"));
    output(&mut sandbox.apex(&["hub", "token", "--database", "hub.db", "revoke", "physics"]), 0);
    output(&mut sandbox.apex(&["hub", "token", "--database", "hub.db", "revoke", "physics"]), 1);
    assert_eq!(get(&address, "/api/v1/jobs", &token).0, 401);
}

#[test]
fn schemathesis_finds_nothing_in_the_hub() {
    let Some(schemathesis) = installed("schemathesis/bin/schemathesis") else { return };
    let sandbox = Sandbox::new();
    let (_running, address) = hub(&sandbox, &[]);
    let url = format!("http://{address}");
    output(&mut sandbox.record(&["--hub", &url, "--spool", "spool"], &["launch", "10"]), 0);
    let mut command = sandbox.command(&schemathesis);
    command.args(["run", &format!("{url}/api/v1/openapi.json"), "--url", &url, "--request-timeout", "30"]);
    command.args(["--phases", "coverage,fuzzing", "--max-examples", "20", "--seed", "15"]);
    // (A description does not say every bound of a message.)
    command.args(["--checks", "all", "--exclude-checks", "positive_data_acceptance"]);
    command.args(["--continue-on-failure", "--no-color"]);
    let judged = command.output().unwrap();
    let printed = text(&judged.stdout);
    assert!(judged.status.success() && printed.contains(" passed"), "{printed}{}", text(&judged.stderr));
}

/// The files of `deploy/`.
fn deployed(name: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name)
}

#[test]
fn the_prolog_of_slurm_sets_the_variables_and_never_fails() {
    let sandbox = Sandbox::new();
    let (folder, home) = (sandbox.path("etc"), sandbox.path("home"));
    std::fs::create_dir_all(home.join(".config/apex")).unwrap();
    std::fs::create_dir(&folder).unwrap();
    let printed = |already: &str| {
        let mut prolog = sandbox.command(deployed("slurm/task-prolog"));
        prolog.env("APEX_HUB_FOLDER", &folder).env("HOME", &home).env("APEX_HUB", already);
        text(&output(&mut prolog, 0).stdout).to_owned()
    };
    assert_eq!(printed(""), "");
    std::fs::write(folder.join("hub"), "http://hub.example:8765\n").unwrap();
    assert_eq!(printed(""), "export APEX_HUB=http://hub.example:8765\n");
    std::fs::write(folder.join("hub-token"), "0123456789abcdef").unwrap();
    std::fs::write(home.join(".config/apex/hub-token"), "").unwrap();
    assert!(printed("").ends_with("export APEX_HUB_TOKEN=0123456789abcdef\n"));
    std::fs::write(home.join(".config/apex/hub-token"), "fedcba9876543210\n").unwrap();
    assert!(printed("").ends_with("export APEX_HUB_TOKEN=fedcba9876543210\n"));
    assert_eq!(printed("http://other"), "", "the user's choice stays");
    std::fs::write(folder.join("hub"), "http://hub; rm -rf ~\n").unwrap();
    assert_eq!(printed(""), "", "what is no address is not passed on");
}

/// Values of a unit's lines that begin so.
fn values<'a>(unit: &'a str, beginning: &'a str) -> Vec<&'a str> {
    unit.lines().filter_map(|line| line.strip_prefix(beginning)).collect()
}

#[test]
fn the_units_of_systemd_start_commands_that_there_are() {
    let sandbox = Sandbox::new();
    let unit = |name: &str| std::fs::read_to_string(deployed(&format!("systemd/{name}"))).unwrap();
    for name in ["apex-hub.service", "apex-deliver.service"] {
        let unit = unit(name);
        let [command] = values(&unit, "ExecStart=/usr/bin/apex ")[..] else { panic!("{name}: one command") };
        let mut words: Vec<&str> = command.split(' ').collect();
        // The help of the same options: a wrong one would be an error.
        words.push("--help");
        output(&mut sandbox.apex(&words), 0);
    }
    assert_eq!(values(&unit("apex-deliver.timer"), "OnUnitActiveSec="), ["10min"]);
    let has_systemd = std::path::Path::new("/usr/bin/systemd-analyze").exists();
    for name in
        ["apex-hub.service", "apex-deliver.service", "apex-deliver.timer"].into_iter().filter(|_| has_systemd)
    {
        // (Its user and its program need not be here.)
        let mut verify = sandbox.command("systemd-analyze");
        let verified =
            verify.args(["verify", "--man=no"]).arg(deployed(&format!("systemd/{name}"))).output().unwrap();
        let said = text(&verified.stderr);
        let wrong = |line: &&str| line.contains(name) && !line.contains("is not executable");
        assert_eq!(said.lines().find(wrong), None, "{said}");
    }
}
