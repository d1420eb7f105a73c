//! The interface over HTTP: answers, errors, events, and that `openapi.json` says the same.

mod description;
mod serving;

use description::conforms;
use serde_json::Value;
use serving::{Serving, launch};
use test_session::Recording;

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
