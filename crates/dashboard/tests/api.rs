//! The interface over HTTP: answers, errors, events, and that `openapi.json` says the same.

use apex_dashboard::{Dashboard, Sides, TIMELINE_PARAMETERS, WHAT_IF_PARAMETERS, Wanted};
use apex_http::{Options, Server, Stop};
use apex_trace::counts::file::CountsFile;
use apex_trace::counts::{Counts, LaunchCounts, Line, LineCounts};
use cuda_launch::LaunchConfig;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;
use test_session::{LEGACY, Recording};

/// What a test waits for at most: a server that hangs fails it.
const PATIENCE: Duration = Duration::from_secs(60);

/// The kernel of the sessions.
const KERNEL: &str = "ncclDevKernel_AllReduce";

/// A server of sessions with these names, in a folder that is removed with it.
struct Serving {
    folder: tempfile::TempDir,
    address: String,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    /// As [`Self::new`], with a program recorded in each session.
    fn recorded(names: &[&str]) -> Self {
        let serving = Self::new(names);
        names.iter().for_each(|name| serving.record(name));
        serving
    }

    fn new(names: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let dirs: Vec<PathBuf> = names.iter().map(|name| folder.path().join(name)).collect();
        for dir in &dirs {
            std::fs::create_dir(dir).unwrap();
        }
        let dashboard = Dashboard::new(move || dirs.clone());
        let server = Server::bind(Options::default()).unwrap();
        let (address, stop) = (server.address().to_string(), Stop::default());
        let stopper = stop.clone();
        let thread = std::thread::spawn(move || {
            server.run_until(&stopper, move |request| dashboard.answer(request)).unwrap();
        });
        Self { folder, address, stop, thread: Some(thread) }
    }

    fn request(&self, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        stream
    }

    /// Status, head, and body of an answer.
    fn get(&self, path: &str) -> (u16, String, String) {
        let mut answer = String::new();
        self.request(path).read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), head.to_owned(), body.to_owned())
    }

    fn json(&self, path: &str) -> Value {
        let (status, head, body) = self.get(path);
        assert_eq!(status, 200, "{path}: {body}");
        assert!(head.contains("content-type: application/json\r\n"), "{head}");
        serde_json::from_str(&body).unwrap()
    }

    /// Identifiers of the sessions.
    fn ids(&self) -> Vec<String> {
        let list = self.json("/api/v1/sessions");
        let sessions = list["sessions"].as_array().unwrap();
        sessions.iter().map(|session| session["id"].as_str().unwrap().to_owned()).collect()
    }

    /// The folder of a session.
    fn dir(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Records a program in a session, with the lines of its kernel.
    fn record(&self, name: &str) {
        let dir = self.dir(name);
        let mut recording = Recording::new(&dir);
        launch(&mut recording, 10);
        recording.exit();
        let counts = LineCounts { warp_instructions: 6, ..LineCounts::default() };
        let line = Line { file: "a.cu".into(), line: 7, counts };
        let launch = LaunchCounts {
            kernel: KERNEL.to_owned(),
            launch: LaunchConfig::new(264, 256),
            counts: Counts::default(),
            hotspots: Vec::new(),
            lines: vec![line],
            lines_left_out: 0,
            watched: 6,
            executed: 6,
        };
        CountsFile::create(&dir).unwrap().launch(&launch).unwrap();
        test_session::open(dir);
    }

    /// The identifier of the kernel of a session.
    fn kernel(&self, id: &str) -> String {
        let document = self.json(&format!("/api/v1/sessions/{id}/document"));
        document["kernels"]["list"][0]["id"].as_str().unwrap().to_owned()
    }

    /// The timeline, when it is ready.
    fn timeline(&self, id: &str, query: &str) -> Value {
        loop {
            let timeline = self.json(&format!("/api/v1/sessions/{id}/timeline{query}"));
            if timeline["state"] == "ready" {
                return timeline;
            }
            std::thread::yield_now();
        }
    }

    fn events(&self, id: &str, query: &str) -> Events {
        let mut lines = BufReader::new(self.request(&format!("/api/v1/sessions/{id}/events{query}")));
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            assert!(lines.read_line(&mut line).unwrap() > 0, "the head has no end");
        }
        Events(lines)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Launches the kernel.
fn launch(recording: &mut Recording, times: usize) {
    let kernel = recording.function(KERNEL);
    let kernel = recording.config(kernel, 264, 256);
    for _ in 0..times {
        recording.timed(kernel, LEGACY, 20_000);
        recording.synchronise(LEGACY, 30_000);
    }
}

/// A stream of events, in chunks.
struct Events(BufReader<TcpStream>);

impl Events {
    /// The next event of this name.
    fn next_named(&mut self, name: &str) -> Value {
        loop {
            let (found, data) = self.next();
            if found == name {
                return data;
            }
        }
    }

    /// The next event: its name and data.
    fn next(&mut self) -> (String, Value) {
        let (mut name, mut line) = (String::new(), String::new());
        loop {
            line.clear();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the stream ended");
            if let Some(event) = line.strip_prefix("event: ") {
                name = event.trim_end().to_owned();
            } else if let Some(data) = line.strip_prefix("data: ") {
                return (name, serde_json::from_str(data).unwrap());
            }
        }
    }
}

#[test]
fn the_page_and_its_policy_are_served() {
    let serving = Serving::new(&[]);
    let (status, head, body) = serving.get("/");
    assert_eq!(status, 200);
    assert!(body.starts_with("<!doctype html>"));
    let policy = head.lines().find_map(|line| line.strip_prefix("content-security-policy: ")).unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'sha256-"), "{policy}");
    assert!(
        policy.contains("; connect-src 'self'; ") && policy.ends_with("; frame-ancestors 'none'"),
        "{policy}"
    );
    assert_eq!(serving.get("/favicon.ico").0, 204);
    assert_eq!(serving.json("/api/v1/sessions")["sessions"], Value::Array(Vec::new()));
}

#[test]
fn sessions_have_names_and_requests_reach_nothing_else() {
    let serving = Serving::new(&["one", "<b>two\u{1b}[2J"]);
    std::fs::write(serving.folder.path().join("secret"), "secret").unwrap();
    let list = serving.json("/api/v1/sessions");
    assert_eq!(list["schema"], "apex.sessions/1");
    let sessions = list["sessions"].as_array().unwrap();
    let names: Vec<&str> = sessions.iter().map(|session| session["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["one", "<b>two\\x1b[2J"]);
    for id in ["one", "..%2fsecret", "../one", "%2fetc", "0000000000000000", "", "%00"] {
        let (status, _, body) = serving.get(&format!("/api/v1/sessions/{id}/document"));
        assert_eq!(status, 404, "{id}: {body}");
    }
    for path in
        ["/api/v1/", "/api/v1/sessions/", "/api/v2/sessions", "//", "/index.html", "/..%2f..%2fetc%2fpasswd"]
    {
        assert_eq!(serving.get(path).0, 404, "{path}");
    }
}

#[test]
fn parameters_select_a_part_and_nonsense_does_not() {
    let serving = Serving::recorded(&["s"]);
    let id = serving.ids().remove(0);
    let path = |what: &str, query: &str| format!("/api/v1/sessions/{id}/{what}{query}");
    let notes = |query: &str| serving.json(&path("document", query))["notes"].to_string();
    let filtered = notes("?phase=all&kernel=nccl*&kernel=a+b&window=0s..1s&rank=0");
    assert!(filtered.contains("rank 0 · the window 0 ns..1.00 s · kernels `nccl*`, `a b`"), "{filtered}");
    assert!(notes("?last=5").contains("The last seconds: from "));
    for (query, why) in [
        ("?last=0", "whole seconds from 1 to 3600"),
        ("?last=3601", "whole seconds"),
        ("?last=x", "whole seconds"),
        ("?last=5&last=6", "given twice"),
        ("?last=5&window=1s..", "exclude each other"),
        ("?phase=never", "phase: use startup, warmup, steady, all"),
        ("?window=2..1", "window: "),
        ("?rank=a", "rank: use numbers"),
        ("?kernel=", "kernel: "),
        ("?%1b[2J=1", "there is no parameter \\x1b[2J"),
    ] {
        for what in ["document", "events"] {
            let (status, head, body) = serving.get(&path(what, query));
            assert_eq!(status, 400, "{query}");
            assert!(body.contains(why) && head.contains("text/plain"), "{query}: {body}");
        }
    }
    for (query, why) in
        [("?kernel=gemm", "no kernel matches `gemm`"), ("?rank=7", "--rank 7: the session has one")]
    {
        let (status, _, body) = serving.get(&path("document", query));
        assert!(status == 404 && body.contains(why), "{query}: {status} {body}");
        let condition = serving.events(&id, query).next_named("condition");
        assert!(
            condition["state"].is_null() && condition["message"].as_str().unwrap().contains(why),
            "{condition}"
        );
    }
}

#[test]
fn events_tell_how_a_session_is_and_what_is_new() {
    let serving = Serving::new(&["s"]);
    let id = serving.ids().remove(0);
    let dir = serving.dir("s");
    let mut recording = Recording::new(&dir);
    launch(&mut recording, 1);
    let mut events = serving.events(&id, "");
    let condition = |state: &str, running: &[u32], message: Option<&str>| serde_json::json!({"state": state, "running": running, "message": message});
    assert_eq!(events.next_named("condition"), condition("running", &[std::process::id()], None));
    let launches = |document: Value| document["key"]["launches"].as_u64().unwrap();
    assert_eq!(launches(events.next_named("document")), 1);
    launch(&mut recording, 2);
    assert_eq!(launches(events.next_named("document")), 3);
    // It ends, and its last files come with that: it is not taken for one that others record.
    recording.exit();
    assert_eq!(events.next_named("condition"), condition("ended", &[], None));
    std::fs::write(dir.join("2.rec"), "more").unwrap();
    assert_eq!(events.next_named("condition"), condition("growing", &[], None));
    // Nothing more comes: it has ended after all.
    assert_eq!(events.next_named("condition"), condition("ended", &[], None));
    for file in std::fs::read_dir(&dir).unwrap() {
        std::fs::remove_file(file.unwrap().path()).unwrap();
    }
    assert_eq!(events.next_named("condition")["state"], "unreadable");
    assert_eq!(serving.get(&format!("/api/v1/sessions/{id}/document?last=5")).0, 422);
    std::fs::remove_dir_all(&dir).unwrap();
    assert_eq!(
        events.next_named("condition"),
        condition("deleted", &[], Some("the folder of the session s is gone"))
    );
    assert_eq!(serving.get(&format!("/api/v1/sessions/{id}/document")).0, 410);
    assert_eq!(serving.ids(), [id], "it stays in the list");
}

#[test]
fn sessions_are_compared() {
    let serving = Serving::recorded(&["one", "two", "three"]);
    let ids = serving.ids();
    let get = |query: &str| serving.get(&format!("/api/v1/compare{query}"));
    let both = format!("?before={}&after={},{}&phase=all&kernel=nccl*", ids[0], ids[1], ids[2]);
    let (status, _, body) = get(&both);
    assert_eq!(status, 200, "{body}");
    let compared: Value = serde_json::from_str(&body).unwrap();
    let names = |side: &str| -> Vec<String> {
        let paths = compared[side].as_array().unwrap().iter();
        paths.map(|path| path.as_str().unwrap().rsplit('/').next().unwrap().to_owned()).collect()
    };
    assert_eq!((&compared["schema"], names("before")), (&"apex.diff/2".into(), vec!["one".to_owned()]));
    assert_eq!(names("after"), ["two", "three"]);
    assert_eq!(compared["filters"]["kernels"][0], "nccl*");
    let many = vec![ids[0].as_str(); 17].join(",");
    for (query, status, why) in [
        (String::new(), 400, "before: use 1 to 16 identifiers"),
        (format!("?before={}", ids[0]), 400, "after: use 1 to 16"),
        (format!("?before={many}&after={}", ids[0]), 400, "before: use 1 to 16"),
        (format!("?before={0}&before={0}&after={0}", ids[0]), 400, "before is given twice"),
        (format!("{both}&last=5"), 400, "there is no parameter last"),
        (format!("?before={0}&after={0}&phase=never", ids[0]), 400, "phase: use"),
        (format!("?before={}&after=../one", ids[0]), 404, "there is no such session"),
        (format!("?before={0}&after={0}&kernel=gemm", ids[0]), 404, "no kernel matches `gemm`"),
    ] {
        let (found, _, body) = get(&query);
        assert!(found == status && body.contains(why), "{query}: {found} {body}");
    }
    std::fs::remove_dir_all(serving.dir("three")).unwrap();
    assert_eq!(get(&format!("?before={}&after={}", ids[2], ids[0])).0, 410);
    for file in std::fs::read_dir(serving.dir("two")).unwrap() {
        std::fs::remove_file(file.unwrap().path()).unwrap();
    }
    assert_eq!(get(&format!("?before={}&after={}", ids[1], ids[0])).0, 422);
}

#[test]
fn a_kernel_is_asked_about_in_other_configurations() {
    let serving = Serving::recorded(&["s"]);
    let id = serving.ids().remove(0);
    let kernel = serving.kernel(&id);
    let path = |query: &str| format!("/api/v1/sessions/{id}/kernels/{kernel}/what-if{query}");
    let answer = serving.json(&path("?block=32,8&registers=40&shared=1024&phase=all"));
    let asked = ["block", "registers", "dynamic_shared_bytes"].map(|name| answer[name].clone());
    assert_eq!(asked, [serde_json::json!([32, 8, 1]), 40.into(), 1024.into()]);
    assert_eq!(serving.json(&path("?phase=all"))["block"], serde_json::json!([256, 1, 1]));
    for (query, status, why) in [
        ("?block=", 400, "block: use one to three whole numbers from 1 to 9999"),
        ("?block=0", 400, "block"),
        ("?block=1,2,3,4", 400, "block"),
        ("?block=32&block=64", 400, "block is given twice"),
        ("?registers=0", 400, "registers: use a whole number from 1 to 255"),
        ("?registers=+9", 400, "registers"),
        ("?shared=1048577", 400, "shared: use a whole number from 0 to 1048576"),
        ("?grid=5", 400, "there is no parameter grid"),
        ("?phase=never", 400, "phase: use"),
    ] {
        let (found, _, body) = serving.get(&path(query));
        assert!(found == status && body.contains(why), "{query}: {found} {body}");
    }
    let other = serving.get(&format!("/api/v1/sessions/{id}/kernels/bb/what-if"));
    assert_eq!((other.0, other.2.as_str()), (404, "the session has no such kernel\n"));
    // What was read serves while the session is gone; of a part that was not, nothing is known.
    std::fs::remove_dir_all(serving.dir("s")).unwrap();
    assert_eq!(serving.get(&path("?phase=startup")).0, 410);
}

#[test]
fn the_lines_of_a_kernel_are_asked_for() {
    let serving = Serving::recorded(&["s"]);
    let id = serving.ids().remove(0);
    let own = &serving.kernel(&id);
    let path = |kernel: &str, query: &str| format!("/api/v1/sessions/{id}/kernels/{kernel}/lines{query}");
    assert_eq!(serving.json(&path(own, "?phase=all"))["files"][0]["rows"][0]["line"], 7);
    for (kernel, query, status, why) in [
        ("bb", "", 404, "no such kernel"),
        // A path leads nowhere but to sessions.
        ("..%2f..%2fetc%2fpasswd", "", 404, "no such kernel"),
        (own, "?block=32", 400, "there is no parameter block"),
        (own, "?file=/etc/passwd", 400, "there is no parameter file"),
        (own, "?phase=never", 400, "phase: use"),
    ] {
        let (found, _, body) = serving.get(&path(kernel, query));
        assert!(found == status && body.contains(why), "{kernel}{query}: {found} {body}");
    }
    std::fs::remove_dir_all(serving.dir("s")).unwrap();
    assert_eq!(serving.get(&path(own, "?phase=startup")).0, 410);
}

#[test]
fn the_description_is_true() {
    let serving = Serving::recorded(&["s"]);
    let description = serving.json("/api/v1/openapi.json");
    let id = serving.ids().remove(0);
    let kernel = serving.kernel(&id);
    let building = serving.json(&format!("/api/v1/sessions/{id}/timeline"));
    conforms(&description, &description["components"]["schemas"]["Timeline"], &building, "building");
    let timeline = serving.timeline(&id, "?events=0");
    let lanes = timeline["lanes"].as_array().unwrap();
    let stream = lanes.iter().find(|lane| lane["kind"] == "stream").unwrap();
    let launch = format!("?lane={}&at={}", stream["id"].as_str().unwrap(), stream["start_ns"]);
    let columns = &description["components"]["schemas"]["Timeline"];
    conforms(&description, columns, &timeline, "columns");
    let paths = description["paths"].as_object().unwrap();
    assert_eq!(paths.len(), 10);
    for (path, methods) in paths {
        let operation = &methods["get"];
        assert_eq!(methods.as_object().unwrap().len(), 1, "{path}");
        let parameters = operation["parameters"].as_array().map_or(&[][..], Vec::as_slice);
        let names = parameters.iter().map(|parameter| parameter["$ref"].as_str().unwrap());
        let names: Vec<&str> = names.map(|name| name.rsplit('/').next().unwrap()).collect();
        let takes = match path.split_once("{id}").map(|(_, what)| what) {
            None if path == "/api/v1/compare" => Sides::PARAMETERS.to_vec(),
            None => Vec::new(),
            Some("/kernels/{kernel_id}/what-if") => {
                [&["id", "kernel_id"], &Wanted::PARAMETERS[..], &WHAT_IF_PARAMETERS[..]].concat()
            }
            Some("/kernels/{kernel_id}/lines") => [&["id", "kernel_id"], &Wanted::PARAMETERS[..]].concat(),
            Some("/timeline") => [&["id"], TIMELINE_PARAMETERS[0]].concat(),
            Some("/timeline/span") => [&["id"], TIMELINE_PARAMETERS[1]].concat(),
            Some("/timeline/launch") => [&["id"], TIMELINE_PARAMETERS[2]].concat(),
            Some(_) => [&["id"], &Wanted::PARAMETERS[..]].concat(),
        };
        assert_eq!(names, takes, "{path}");
        for status in ["401", "403", "421", "503"] {
            assert!(operation["responses"][status].is_object(), "{path}: {status}");
        }
        let path = match path.as_str() {
            "/api/v1/compare" => format!("{path}?before={id}&after={id}"),
            path => path.replace("{id}", &id).replace("{kernel_id}", &kernel),
        };
        if path.ends_with("/events") {
            let (name, condition) = serving.events(&id, "").next();
            assert_eq!(name, "condition");
            conforms(&description, &description["components"]["schemas"]["Condition"], &condition, &path);
        } else {
            let schema = &operation["responses"]["200"]["content"]["application/json"]["schema"];
            let query = match path.rsplit('/').next() {
                Some("launch") => &launch,
                Some("what-if") => "?block=32",
                _ => "",
            };
            let answer = serving.json(&format!("{path}{query}"));
            assert!(!path.ends_with("/launch") || answer["event"]["collective"].is_object(), "{answer}");
            conforms(&description, schema, &answer, &path);
        }
    }
}

#[test]
fn a_timeline_is_asked_for_by_lanes_and_moments() {
    let serving = Serving::new(&["s", "empty"]);
    serving.record("s");
    let ids = serving.ids();
    let id = &ids[0];
    let whole = serving.timeline(id, "");
    let lanes: Vec<&str> =
        whole["lanes"].as_array().unwrap().iter().map(|lane| lane["id"].as_str().unwrap()).collect();
    assert_eq!(lanes.iter().map(|id| &id[..1]).collect::<String>(), "dst");
    assert_eq!(whole["lanes"][1]["events"]["basis"][0], "measured");
    let part = serving.timeline(id, &format!("?lane={}&columns=16&events=0&series=time&rank=0", lanes[1]));
    assert!(part["lanes"][0]["columns"].is_null() && part["lanes"][1]["columns"]["count"].is_null());
    assert!(part["column_count"].as_u64().unwrap() <= 16);
    let path = format!("/api/v1/sessions/{id}/timeline");
    for (query, status, why) in [
        ("?columns=0", 400, "columns: use a whole number from 1 to 4096"),
        ("?columns=4097", 400, "columns"),
        ("?from=+1", 400, "from: use a whole number"),
        ("?from=9007199254740992", 400, "from"),
        ("?from=5&to=5", 400, "from has to be before to"),
        ("?from=1&from=2", 400, "given twice"),
        ("?rank=a", 400, "rank: use numbers"),
        ("?series=all", 400, "series: use time"),
        ("?events=2001", 400, "events"),
        ("?%1b=1", 400, "there is no parameter \\x1b"),
        ("?lane=s99", 404, "no lane s99"),
        ("?rank=7", 404, "no rank 7"),
        ("/span?columns=5", 400, "there is no parameter columns"),
        ("/launch", 400, "lane is missing"),
        ("/launch?lane=s1", 400, "at is missing"),
        ("/launch?lane=s1&at=1&step=up", 400, "step: use next or previous"),
        ("/launch?lane=s99&at=0", 404, "no lane s99"),
        ("/span?lane=s99", 404, "no lane s99"),
        ("/other", 404, "nothing here"),
        ("/launch/more", 404, "nothing here"),
    ] {
        let (found, _, body) = serving.get(&format!("{path}{query}"));
        assert!(found == status && body.contains(why), "{query}: {found} {body}");
    }
    let many = format!("{path}?{}", "lane=s1&".repeat(65));
    assert_eq!(serving.get(&many).0, 400);
}

#[test]
fn a_timeline_that_is_not_there_is_an_answer_that_says_why() {
    let serving = Serving::new(&["s", "empty"]);
    serving.record("s");
    let ids = serving.ids();
    let description = serving.json("/api/v1/openapi.json");
    let all = |id: &str, lane: &str| {
        let of = |(what, schema): (&str, &str)| {
            let path = format!("/api/v1/sessions/{id}/timeline{what}");
            let answer = serving.json(&path);
            conforms(&description, &description["components"]["schemas"][schema], &answer, &path);
            answer
        };
        let launch = format!("/launch?lane={lane}&at=0");
        [("", "Timeline"), ("/span", "TimelineSpan"), (&launch, "TimelineLaunch")].map(of)
    };
    let timeline = serving.timeline(&ids[0], "");
    let stream = timeline["lanes"].as_array().unwrap().iter().find(|lane| lane["kind"] == "stream");
    let stream = stream.unwrap()["id"].as_str().unwrap();
    let [whole, span, launch] = all(&ids[0], stream);
    assert!(whole["message"].is_null() && span["message"].is_null(), "{whole} {span}");
    assert_eq!((&launch["state"], &launch["event"]), (&"ready".into(), &Value::Null));
    assert_eq!(launch["message"], format!("The lane {stream} has no event at this moment."));
    // One that cannot be read is tried, and tried again.
    loop {
        let answers = all(&ids[1], "s1");
        for answer in &answers {
            let is_unreadable = answer["state"] == "unreadable";
            assert!(is_unreadable || answer["state"] == "building", "{answer}");
            assert_eq!(is_unreadable, answer["message"].as_str().is_some_and(|why| why.contains("session")));
        }
        if answers.iter().all(|answer| answer["state"] == "unreadable") {
            break;
        }
        std::thread::yield_now();
    }
    std::fs::remove_dir_all(serving.dir("s")).unwrap();
    for gone in all(&ids[0], stream) {
        assert_eq!((&gone["state"], &gone["version"]), (&"deleted".into(), &"".into()));
        assert_eq!(gone["message"], "the folder of the session s is gone");
    }
    let nonsense = serving.get(&format!("/api/v1/sessions/{}/timeline?columns=0", ids[0]));
    assert_eq!(nonsense.0, 400, "{}", nonsense.2);
}

#[test]
fn the_samples_of_the_page_are_what_the_description_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    let description: Value = serde_json::from_str(&read("openapi.json")).unwrap();
    let page = read("../../docs/api.md");
    let (_, rest) = page.split_once("```json\n").unwrap();
    let sessions = serde_json::from_str(rest.split_once("```").unwrap().0).unwrap();
    let condition = page.lines().find_map(|line| line.strip_prefix("data: {\"state\"")).unwrap();
    let condition = serde_json::from_str(&format!("{{\"state\"{condition}")).unwrap();
    let after = |heading: &str| {
        let (_, rest) = page.split_once(heading).unwrap();
        let (_, sample) = rest.split_once("```json\n").unwrap();
        serde_json::from_str(sample.split_once("```").unwrap().0).unwrap()
    };
    let samples = [
        ("Sessions", sessions),
        ("Condition", condition),
        ("Timeline", after("## Timeline")),
        ("TimelineSpan", after("### What lies between two moments")),
        ("TimelineLaunch", after("### One launch")),
        ("WhatIf", after("## What if")),
    ];
    for (name, sample) in samples {
        conforms(&description, &description["components"]["schemas"][name], &sample, name);
    }
    let timelines = TIMELINE_PARAMETERS.into_iter().flatten();
    let others = Sides::PARAMETERS.iter().chain(&WHAT_IF_PARAMETERS);
    for parameter in Wanted::PARAMETERS.iter().chain(others).chain(timelines) {
        assert!(page.contains(&format!("| `{parameter}=")), "{parameter} is not in the page");
    }
}

/// Checks a value against the words of JSON Schema that the description uses.
fn conforms(description: &Value, schema: &Value, value: &Value, at: &str) {
    if let Some(reference) = schema["$ref"].as_str() {
        return conforms(description, description.pointer(&reference[1..]).unwrap(), value, at);
    }
    if let Some(constant) = schema.get("const") {
        assert_eq!(constant, value, "{at}");
        return;
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let kinds =
        schema["type"].as_array().map_or_else(|| vec![&schema["type"]], |kinds| kinds.iter().collect());
    let allows = |allowed: &&Value| **allowed == kind || (kind == "integer" && **allowed == "number");
    assert!(kinds.iter().any(allows), "{at}: {value} is none of {kinds:?}");
    for item in value.as_array().into_iter().flatten() {
        conforms(description, &schema["items"], item, &format!("{at}[]"));
    }
    let others = &schema["additionalProperties"];
    for (name, member) in value.as_object().into_iter().flatten().filter(|_| others.is_object()) {
        conforms(description, others, member, &format!("{at}.{name}"));
    }
    if let (Some(members), Some(properties)) = (value.as_object(), schema["properties"].as_object()) {
        let required = schema["required"].as_array().unwrap();
        assert!(required.iter().all(|name| members.contains_key(name.as_str().unwrap())), "{at}: {value}");
        for (name, member) in members {
            match properties.get(name) {
                Some(property) => conforms(description, property, member, &format!("{at}.{name}")),
                None => assert_eq!(others, true, "{at}.{name} is not described"),
            }
        }
    }
}
