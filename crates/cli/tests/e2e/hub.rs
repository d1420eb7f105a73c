//! `apex hub` and `apex run --hub`: what a hub shows is what the session's report says, and nothing
//! is lost where the hub is not there.

use crate::common::{APEX, Running, Sandbox, installed, output, program, text};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A hub that runs, and its address without `http://` and the last `/`.
pub fn hub(sandbox: &Sandbox, arguments: &[&str]) -> (Running, String) {
    let all = [&["hub", "--listen", "127.0.0.1:0", "--database", "hub.db"], arguments].concat();
    let mut running = Running::start(&mut sandbox.apex(&all));
    let url = running.read_until("http://");
    (running, url["http://".len()..].trim_end_matches('/').to_owned())
}

/// Status and body of an answer.
pub fn get(address: &str, path: &str, token: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    let bearer = if token.is_empty() { String::new() } else { format!("Authorization: Bearer {token}\r\n") };
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{bearer}\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

pub fn document(address: &str, path: &str) -> Value {
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
    let job = document(&address, "/api/v1/jobs/1");
    // It is the CPU device's time, and nobody's GPU-hour.
    let (times, profile) = (&job["cpu_device"], &report["profile"]);
    assert_eq!(
        (&job["job"]["times"]["held_us"], &job["job"]["cpu_device_us"]),
        (&0.into(), &times["held_us"])
    );
    assert_eq!(document(&address, "/api/v1/report")["times"]["held_us"], 0);
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
    let asked = |options: &[&str], code: i32| -> Value {
        let all = [&["hub", "deliver", "--json", "--spool", "spool"], options].concat();
        serde_json::from_slice(&output(&mut sandbox.apex(&all), code).stdout).unwrap()
    };
    let deliver = |address: &str, code: i32| asked(&["--hub", address], code);
    let failed = deliver(url, 1);
    assert_eq!((&failed["confirmed"], &failed["waiting"]), (&0.into(), &1.into()));
    // Without --hub, it is the one that the message is for.
    assert_eq!(asked(&[], 1), failed);
    // The message is for that hub and for no other, until somebody says that it has moved.
    let (_running, address) = hub(&sandbox, &[]);
    let here = format!("http://{address}");
    let kept = deliver(&here, 1);
    assert_eq!((&kept["confirmed"], &kept["waiting"], &kept["elsewhere"]), (&0.into(), &0.into(), &1.into()));
    let waiting = json!({"hub": url, "token_hash": null, "messages": 1});
    assert_eq!(asked(&["--list"], 1)["waiting"], json!([waiting]));
    let list = output(&mut sandbox.apex(&["hub", "deliver", "--list", "--spool", "spool"]), 1);
    assert_eq!(text(&list.stdout), format!("1 message waits for {url} with any token\n"));
    // A server that is no hub confirms nothing, whatever its status.
    let mut other = Running::start(&mut sandbox.apex(&["dashboard", "--no-open", "s"]));
    let dashboard = other.read_until("http://");
    let moved = ["--also-for", url, "--hub"];
    asked(&[&moved[..], &[dashboard.trim_end_matches('/')]].concat(), 1);
    let done = asked(&[&moved[..], &[here.as_str()]].concat(), 0);
    assert_eq!((&done["confirmed"], &done["waiting"], &done["elsewhere"]), (&1.into(), &0.into(), &0.into()));
    assert_eq!(asked(&["--list"], 0)["waiting"], json!([]));
    assert_eq!(document(&address, "/api/v1/jobs")["jobs"][0]["launches"], 10);
    // Without a hub, the spool holds.
    let run = sandbox.apex(&["run", "--device", "cpu", "-o", "t", "-q", "--spool", "spool", "--"]);
    let mut run = run;
    output(run.arg(program()).args(["launch", "5"]), 0);
    assert_eq!(asked(&["--hub", &here], 0)["confirmed"], 1);
    let nothing = output(&mut sandbox.apex(&["hub", "deliver", "--spool", "spool"]), 0);
    assert_eq!(text(&nothing.stdout), "nothing waits\n");
    assert_eq!(document(&address, "/api/v1/jobs")["jobs"].as_array().unwrap().len(), 2);
}

#[test]
fn what_cannot_work_is_said_and_leaves_nothing() {
    let sandbox = Sandbox::new();
    let refused = |arguments: &[&str], code: i32, said: &str| {
        let ended = output(&mut sandbox.apex(&[&["hub"], arguments].concat()), code);
        let stderr = text(&ended.stderr).to_owned();
        assert!(stderr.contains(said), "{arguments:?}: {stderr}");
        stderr
    };
    // A hub that does not start makes no database.
    refused(&["--listen", "0.0.0.0:0", "--database", "nt.db"], 125, "token --database nt.db add NAME");
    let (_running, address) = hub(&sandbox, &[]);
    refused(&["--listen", &address, "--database", "nt.db"], 125, "cannot listen on");
    assert!(!sandbox.path("nt.db").exists());
    refused(&["--price-per-gpu-hour=-1"], 2, "write a number such as 2.50");
    // A report is of a tenant that there is, and says in which forms it comes.
    refused(&["report"], 2, "--html <FILE>|--json");
    let json_of = ["report", "--database", "hub.db", "--json"];
    refused(&json_of, 125, "no job has sent anything to this hub yet");
    for tenant in ["physics", "chemistry"] {
        output(&mut sandbox.apex(&["hub", "token", "--database", "hub.db", "add", tenant]), 0);
    }
    refused(&json_of, 125, "name one of the tenants with --tenant: chemistry, physics");
    refused(&[&json_of[..], &["--tenant", "local"]].concat(), 125, "no tenant local: there are chemistry");
    let mailed = ["report", "--database", "hub.db", "--tenant", "physics", "--html", "week.html"];
    refused(&[&mailed[..], &["--url", "hub"]].concat(), 2, "write an address such as");
    output(&mut sandbox.apex(&[&["hub"], &mailed[..]].concat()), 0);
    // Nothing is delivered from a folder that is not there, and no address is quoted.
    let url = format!("http://{address}");
    refused(&["deliver", "--hub", &url, "--spool", "nosuch"], 125, "there is no folder nosuch");
    assert!(!sandbox.path("nosuch").exists());
    let named = refused(&["deliver", "--hub", "https://me:SECRET@hub/"], 125, "a user's name or password");
    assert!(!named.contains("SECRET"), "{named}");
    // Certificates and keys come together, and are what they are called.
    refused(&["--tls-certificate", "hub.crt"], 2, "--tls-key <FILE>");
    std::fs::write(sandbox.path("none.pem"), "no certificate").unwrap();
    let pair = ["--tls-certificate", "none.pem", "--tls-key", "none.pem", "--database", "nt.db"];
    refused(&pair, 125, "the certificate cannot be used");
    refused(
        &["--tls-certificate", "gone", "--tls-key", "gone", "--database", "nt.db"],
        125,
        "cannot read gone",
    );
    assert!(!sandbox.path("nt.db").exists());
    let of = ["deliver", "--hub", "https://hub", "--hub-ca", "none.pem"];
    refused(&of, 125, "--hub-ca none.pem: no certificate in it can be used");
    // Segments are written into folders and stores of one interface.
    let stored = ["export", "--database", "hub.db", "--tenant", "physics", "--segments", "gs://bucket/apex"];
    refused(&stored, 125, "is neither a folder nor s3://BUCKET/PREFIX");
}

/// The only job of a hub, once this holds of it.
pub fn job_where(address: &str, holds: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..6000 {
        let job = document(address, "/api/v1/jobs")["jobs"][0].clone();
        if holds(&job) {
            return job;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("no such job: {}", document(address, "/api/v1/jobs"));
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
    let ranks = document(&address, "/api/v1/jobs/1")["ranks"].clone();
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
    // And TLS, or a word that something else protects the token.
    let beyond = ["hub", "--listen", "0.0.0.0:0", "--database", "hub.db"];
    let refused = output(&mut sandbox.apex(&beyond), 125);
    let said = text(&refused.stderr);
    assert!(said.contains("--tls-certificate and --tls-key") && said.contains("--without-tls"), "{said}");
    let mut plain = Running::start(&mut sandbox.apex(&[&beyond[..], &["--without-tls"]].concat()));
    plain.read_until("http://");
    drop(plain);
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

/// A certificate or key of the hub's tests.
pub fn certificate(name: &str) -> String {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fleet/hub/tests/certificates");
    folder.join(name).display().to_string()
}

#[test]
fn a_hub_with_a_certificate_is_reached_by_those_who_trust_it() {
    let sandbox = Sandbox::new();
    let pair = ["own.crt", "own.key"].map(certificate);
    let added = output(&mut sandbox.apex(&["hub", "token", "--database", "hub.db", "add", "physics"]), 0);
    let token = text(&added.stdout).trim().to_owned();
    let options = ["hub", "--listen", "0.0.0.0:0", "--database", "hub.db"];
    let tls = ["--tls-certificate", &pair[0], "--tls-key", &pair[1]];
    let mut running = Running::start(&mut sandbox.apex(&[&options[..], &tls[..]].concat()));
    let url = running.read_until("https://");
    let port = url.trim_end_matches('/').rsplit_once(':').unwrap().1.to_owned();
    let run = |options: &[&str]| {
        let url = format!("https://127.0.0.1:{port}");
        let begin = ["run", "--device", "cpu", "--hub", &url, "--spool", "spool"];
        let mut run = sandbox.apex(&[&begin[..], options, &["--", "sh", "-c"]].concat());
        run.arg(format!("{} launch 3", program().display())).env("APEX_HUB_TOKEN", &token);
        text(&output(&mut run, 0).stderr).to_owned()
    };
    // (The system's authorities do not know it.)
    let untrusted = run(&[]);
    assert!(untrusted.contains("1 message waits"), "{untrusted}");
    let trusted = run(&["--hub-ca", &pair[0]]);
    assert!(!trusted.contains("wait"), "{trusted}");
    let mut deliver = sandbox.apex(&["hub", "deliver", "--spool", "spool"]);
    assert_eq!(text(&output(&mut deliver, 0).stdout), "nothing waits\n");
    drop(running);
    let report = ["hub", "report", "--database", "hub.db", "--json"];
    assert_eq!(sandbox.json(&report)["jobs"].as_array().unwrap().len(), 2);
}

/// Posts a message, and returns the status of the answer.
pub fn post(address: &str, message: &Value) -> u16 {
    let body = message.to_string();
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!(
        "POST /api/v1/aggregates HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    write!(stream, "{head}{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_job_that_wastes_gpus_reaches_the_receivers_until_it_ends() {
    let sandbox = Sandbox::new();
    let (_running, address) = hub(&sandbox, &[]);
    let now_ns = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    let mut message = json!({
        "schema": "apex.aggregate/1", "recording": "0".repeat(32), "sequence": 1, "job": {"id": "wasteful"},
        "owner": "ada", "started_ns": now_ns - 3_600_000_000_000u64, "as_of_ns": now_ns,
        "devices": [{"name": "NVIDIA H200", "uuid": "GPU-1"}],
        "uses": [{"device": 0, "times": {
            "kernels_us": 0, "collectives_us": 0, "waiting_us": 0, "copies_us": 0, "idle_us": [0, 0, 0, 0, 0, 0, 0, 0],
            "unknown_us": 0, "outside_us": 3_600_000_000u64,
        }}],
    });
    assert_eq!(post(&address, &message), 200);
    let alerts = ["hub", "alerts", "--database", "hub.db", "--url", "http://hub.example"];
    let once = output(&mut sandbox.apex(&[&alerts[..], &["--once"]].concat()), 1);
    let said = "alert lost: wasteful of ada: 100.0% of 1.00 h of GPU time is lost, to: before the first and after the \
                last work 100.0%\n  next: http://hub.example/jobs/1\n";
    assert_eq!(text(&once.stdout), said);
    let mut watching = sandbox.apex(&alerts);
    watching.args(["--interval", "50ms", "--exec", "cat >> told; echo >> told"]);
    let _watching = Running::start(&mut watching);
    let told = |reason: &str| {
        for _ in 0..6000 {
            let told = std::fs::read_to_string(sandbox.path("told")).unwrap_or_default();
            let documents = told.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            if let Some(found) = documents.into_iter().find(|document| document["reason"] == reason) {
                return found;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("nobody was told: {reason}");
    };
    let fired = told("new");
    assert_eq!(
        (&fired["schema"], &fired["job"], &fired["owner"]),
        (&"apex.hub/1".into(), &"wasteful".into(), &"ada".into())
    );
    (message["sequence"], message["ended"]) =
        (json!(2), json!({"at_ns": now_ns, "status": 0, "signal": null}));
    assert_eq!(post(&address, &message), 200);
    assert_eq!(told("resolved")["since"], fired["since"]);
    output(&mut sandbox.apex(&[&alerts[..], &["--once"]].concat()), 0);
}

#[test]
fn tables_and_copies_of_a_running_hub_are_made() {
    let sandbox = Sandbox::new();
    let (_running, address) = hub(&sandbox, &[]);
    let url = format!("http://{address}");
    output(&mut sandbox.record(&["--hub", &url, "--spool", "spool", "--job", "=1+1"], &["launch", "10"]), 0);
    let export = |options: &[&str]| {
        let all = [&["hub", "export", "--database", "hub.db"], options].concat();
        text(&output(&mut sandbox.apex(&all), 0).stdout).to_owned()
    };
    let job: Value = serde_json::from_str(&export(&["jobs"])).unwrap();
    assert_eq!((&job["job"], &job["launches"], &job["kernels_us"]), (&"=1+1".into(), &10.into(), &0.into()));
    let csv = export(&["jobs", "--csv"]);
    let lines: Vec<&str> = csv.lines().collect();
    assert!(lines.len() == 2 && lines[0].contains("job,owner") && lines[1].contains("'=1+1,"), "{csv}");
    assert!(export(&["uses"]).contains("\"device\":\"APEX CPU device"));
    assert_eq!(export(&["jobs", "--csv"]).lines().count(), 2);
    let segments = export(&["--segments", "segments"]);
    assert_eq!(segments, "0 written (0 in the place of others), 0 unchanged\n", "today has not ended");
    assert!(sandbox.path("segments/jobs").is_dir());
    let backup = ["hub", "backup", "--database", "hub.db", "copy.db"];
    output(&mut sandbox.apex(&backup), 0);
    let again = output(&mut sandbox.apex(&backup), 125);
    assert!(text(&again.stderr).contains("is there already"), "{}", text(&again.stderr));
    let report = sandbox.json(&["hub", "report", "--database", "copy.db", "--json"]);
    assert_eq!(report["jobs"].as_array().unwrap().len(), 1);
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
pub fn deployed(name: &str) -> std::path::PathBuf {
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
    std::fs::write(folder.join("hub-ca.crt"), "").unwrap();
    assert!(printed("").ends_with(&format!("export APEX_HUB_CA={}\n", folder.join("hub-ca.crt").display())));
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
    for name in ["apex-hub.service", "apex-deliver.service", "apex-segments.service"] {
        let unit = unit(name);
        let [command] = values(&unit, "ExecStart=/usr/bin/apex ")[..] else { panic!("{name}: one command") };
        let mut words: Vec<&str> = command.split(' ').collect();
        // The help of the same options: a wrong one would be an error.
        words.push("--help");
        output(&mut sandbox.apex(&words), 0);
    }
    assert_eq!(values(&unit("apex-deliver.timer"), "OnUnitActiveSec="), ["10min"]);
    assert_eq!(values(&unit("apex-segments.timer"), "OnCalendar="), ["hourly"]);
    let has_systemd = std::path::Path::new("/usr/bin/systemd-analyze").exists();
    let units = ["hub.service", "deliver.service", "deliver.timer", "segments.service", "segments.timer"];
    for name in units.map(|name| format!("apex-{name}")).iter().filter(|_| has_systemd) {
        // (Its user and its program need not be here.)
        let mut verify = sandbox.command("systemd-analyze");
        let verified =
            verify.args(["verify", "--man=no"]).arg(deployed(&format!("systemd/{name}"))).output().unwrap();
        let said = text(&verified.stderr);
        let wrong = |line: &&str| line.contains(name.as_str()) && !line.contains("is not executable");
        assert_eq!(said.lines().find(wrong), None, "{said}");
    }
}

/// The documents of a manifest of Kubernetes.
fn manifest(sandbox: &Sandbox, python: &std::path::Path, name: &str) -> Vec<Value> {
    let mut read = sandbox.command(python);
    read.args([
        "-c",
        "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))",
    ]);
    serde_json::from_slice(&output(read.arg(deployed(&format!("kubernetes/{name}"))), 0).stdout).unwrap()
}

/// Words of a member that is a list.
pub fn words(of: &Value) -> Vec<&str> {
    of.as_array().into_iter().flatten().map(|word| word.as_str().unwrap()).collect()
}

#[test]
fn the_manifests_of_kubernetes_fit_together_and_deliver() {
    let Some(python) = installed("schemathesis/bin/python") else { return };
    let sandbox = Sandbox::new();
    let (mut apex, mut delivers) = (Vec::new(), String::new());
    for name in ["hub.yaml", "job.yaml", "deliver.yaml"] {
        for pod in
            manifest(&sandbox, &python, name).iter().filter_map(|of| of["spec"]["template"].get("spec"))
        {
            let names = |of: &Value| -> std::collections::BTreeSet<String> {
                of.as_array()
                    .into_iter()
                    .flatten()
                    .map(|of| of["name"].as_str().unwrap().to_owned())
                    .collect()
            };
            let of = |kind: &str| pod[kind].as_array().cloned().unwrap_or_default();
            for container in of("initContainers").iter().chain(&of("containers")) {
                assert!(names(&container["volumeMounts"]).is_subset(&names(&pod["volumes"])), "{name}");
                let image = container["image"].as_str().unwrap();
                assert!(image == "registry.example/apex:0.1.0" || name == "job.yaml", "{name}: {image}");
                let (command, arguments) = (words(&container["command"]), words(&container["args"]));
                match command[..] {
                    [] => apex.push(arguments.join(" ")),
                    ["/apex/bin/apex", ref rest @ ..] => apex.push(rest.join(" ")),
                    ["/bin/sh", "-c", script] if name == "deliver.yaml" => delivers = script.to_owned(),
                    ["/bin/sh", "-c", script] => {
                        let lines = script.replace("| grep -q . ||", "").replace("> /data/first-token", "");
                        apex.extend(
                            lines
                                .lines()
                                .filter_map(|line| line.trim().strip_prefix("apex "))
                                .map(str::to_owned),
                        );
                    }
                    _ => assert_eq!(command[0], "cp"),
                }
            }
        }
    }
    assert_eq!(apex.len(), 4, "{apex:?}");
    for command in apex {
        let mut words: Vec<&str> = command.split_whitespace().take_while(|word| *word != "--").collect();
        words.push("--help");
        output(&mut sandbox.apex(&words), 0);
    }
    // What a pod left in its spool is delivered by the script as it stands there.
    std::fs::create_dir(sandbox.path("spools")).unwrap();
    output(&mut sandbox.record(&["--spool", "spools/pod"], &["launch", "10"]), 0);
    let (_running, address) = hub(&sandbox, &[]);
    let script = delivers.replace("/spool", &sandbox.path("spools").display().to_string());
    let script = script.replace("/opt/apex/bin/apex", APEX).replace("sleep 600", "exit 0");
    // (Only root may leave its groups.)
    let script = script.replace("--clear-groups", "--keep-groups");
    let mut deliver = sandbox.command("/bin/sh");
    deliver.args(["-c", &script]).env("APEX_HUB", format!("http://{address}"));
    let said = output(&mut deliver, 0);
    assert_eq!(document(&address, "/api/v1/jobs")["jobs"][0]["launches"], 10, "{}", text(&said.stderr));
}
