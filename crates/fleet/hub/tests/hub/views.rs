//! What pages and documents show, and that the description of the interface has all of it.

use crate::common::{Running, message, now_ns};
use apex_aggregate::{Aggregate, Reading, Step};
use apex_hub::Store;
use apex_hub::export::Table;
use serde_json::Value;

fn filled() -> (tempfile::TempDir, Running, Vec<Aggregate>) {
    let folder = tempfile::tempdir().unwrap();
    let hub = Running::start(&folder.path().join("hub.db"));
    let all: Vec<Aggregate> = (0..8).map(|recording| message(recording, 4 + recording % 2)).collect();
    for of in &all {
        assert_eq!(hub.post(&of.to_bytes()).status, 200);
    }
    (folder, hub, all)
}

#[test]
fn a_job_has_the_sums_of_its_ranks() {
    let (_folder, hub, all) = filled();
    let jobs = hub.json("/api/v1/jobs");
    assert_eq!(jobs["schema"], "apex.hub/1");
    let jobs = jobs["jobs"].as_array().unwrap();
    assert_eq!(jobs.len(), 2);
    for job in jobs {
        let of = all.iter().filter(|of| of.job.id == job["job"].as_str().unwrap());
        let held: u64 = of.clone().map(|of| of.times().held_us()).sum();
        let busy: u64 = of.clone().map(|of| of.times().busy_us()).sum();
        assert_eq!(job["times"]["held_us"], held);
        assert_eq!(job["times"]["busy_us"], busy);
        assert_eq!((&job["ranks"], &job["hosts"], &job["recordings"]), (&4.into(), &2.into(), &4.into()));
        let failed = of.filter(|of| !of.ended.unwrap().is_success()).count();
        assert_eq!(job["failed"], failed);
        let page = hub.json(&format!("/api/v1/jobs/{}", job["id"]));
        let ranks: Vec<u64> =
            page["ranks"].as_array().unwrap().iter().map(|r| r["rank"].as_u64().unwrap()).collect();
        assert_eq!(ranks, [0, 1, 2, 3]);
        let gemm =
            page["kernels"].as_array().unwrap().iter().find(|kernel| kernel["name"] == "gemm").unwrap();
        let launches: u64 = all.iter().filter(|of| of.job.id == job["job"]).map(|of| of.sequence).sum();
        assert_eq!(gemm["launches"], launches);
        assert_eq!(page["recordings"][0]["open"], "ssh -- host0 apex report -- ''\\''/data/a session'\\'''");
    }
    let owners = hub.json("/api/v1/owners");
    let held: u64 =
        owners["owners"].as_array().unwrap().iter().map(|of| of["times"]["held_us"].as_u64().unwrap()).sum();
    assert_eq!(held, all.iter().map(|of| of.times().held_us()).sum::<u64>());
}

#[test]
fn pages_follow_each_other_without_gap() {
    let (_folder, hub, _) = filled();
    for recording in 100..110 {
        let mut of = message(recording, 1);
        // Some begin at the same moment.
        of.started_ns = now_ns() / 10_000_000_000 * 10_000_000_000 - recording / 3;
        of.job.id = format!("alone {recording}");
        assert_eq!(hub.post(&of.to_bytes()).status, 200);
    }
    let (mut seen, mut before) = (Vec::new(), String::new());
    loop {
        let page = hub.json(&format!("/api/v1/jobs?limit=5&before={before}"));
        seen.extend(page["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_u64().unwrap()));
        match page["before"].as_str() {
            Some(next) => before = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(seen.len(), 12);
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 12);
}

#[test]
fn a_slower_job_is_a_change_with_its_commits() {
    let folder = tempfile::tempdir().unwrap();
    let hub = Running::start(&folder.path().join("hub.db"));
    for run in 0..16u64 {
        let mut of = message(1000 + 4 * run, 4);
        of.owner = "somebody".to_owned();
        let slower = if run >= 9 { 1.3 } else { 1.0 };
        of.started_ns += run * 60_000_000_000;
        of.code_version = if run >= 9 { "b".repeat(40) } else { "a".repeat(40) };
        let ns = 1e6 * slower * (1.0 + 0.002 * (run % 5) as f64);
        of.step = Some(Step { ns, low_ns: ns, high_ns: ns, count: 50 });
        of.ended = Some(apex_aggregate::End { at_ns: now_ns(), status: Some(0), signal: None });
        of.devices[0].name = "H200".to_owned();
        assert_eq!(hub.post(&of.to_bytes()).status, 200);
    }
    let changes = hub.json("/api/v1/changes");
    let change = &changes["changes"][0];
    assert_eq!(
        (&change["of"], &change["runs_before"], &change["runs_after"]),
        (&"step".into(), &9.into(), &7.into())
    );
    let factor = |name: &str| change[name].as_f64().unwrap();
    assert!(factor("low") < 1.3 && 1.3 < factor("high") && (factor("factor") - 1.3).abs() < 0.02, "{change}");
    assert_eq!(change["after"]["code_version"], "b".repeat(40));
    let page = hub.get("/changes").body;
    assert!(page.contains("aaaaaaaaaaaa → bbbbbbbbbbbb") && page.contains("+30"), "{page}");
    assert!(hub.get("/report").body.contains("Jobs that became slower"));
}

/// Changes of a job of two hosts, whose second one has a clock that is an hour ahead from the tenth
/// run on; the runs then take so many times as long.
fn changes_of_two_hosts(slower: f64) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let hub = Running::start(&folder.path().join("hub.db"));
    for run in 0..16u64 {
        let (is_late, begun_ns) = (run >= 9, now_ns() - (20 - run) * 3_600_000_000_000);
        for rank in 0..2u64 {
            let mut of = message(1000 + 4 * run + rank, 4);
            of.owner = "somebody".to_owned();
            of.host = format!("node{rank}");
            of.started_ns = begun_ns + if is_late { rank * 3_600_000_000_000 } else { 0 };
            let seconds = 600.0 * (1.0 + 0.002 * (run % 5) as f64) * if is_late { slower } else { 1.0 };
            of.as_of_ns = of.started_ns + (seconds * 1e9) as u64;
            of.ended = Some(apex_aggregate::End { at_ns: of.as_of_ns, status: Some(0), signal: None });
            of.devices[0].name = "H200".to_owned();
            of.step = None;
            assert_eq!(hub.post(&of.to_bytes()).status, 200);
        }
    }
    hub.json("/api/v1/changes")["changes"].as_array().unwrap().clone()
}

#[test]
fn a_clock_that_is_wrong_makes_no_job_slower() {
    assert_eq!(changes_of_two_hosts(1.0), Vec::<Value>::new());
    let changes = changes_of_two_hosts(1.3);
    assert_eq!((changes.len(), &changes[0]["of"], &changes[0]["runs_after"]), (1, &"run".into(), &7.into()));
    assert!((changes[0]["factor"].as_f64().unwrap() - 1.3).abs() < 0.02, "{changes:?}");
}

#[test]
fn a_report_is_a_page_by_itself() {
    let (folder, hub, all) = filled();
    let store = Store::open(&folder.path().join("hub.db")).unwrap();
    let page = store.report_html(apex_hub::LOCAL, 7, Some(2.0), None).unwrap();
    assert!(page.contains("<style>:root") && !page.contains("<link") && page.contains("cost"));
    // What is mailed has no link that leads nowhere.
    assert!(page.contains("owner1") && !page.contains("href"), "{page}");
    let linked = store.report_html(apex_hub::LOCAL, 7, None, Some("https://hub.example/")).unwrap();
    assert!(linked.contains("<a href=\"https://hub.example/jobs/1\">") && !linked.contains("href=\"/"));
    let report: Value = serde_json::from_str(&store.report_json(apex_hub::LOCAL, 7).unwrap()).unwrap();
    assert_eq!(report["times"]["held_us"], all.iter().map(|of| of.times().held_us()).sum::<u64>());
    assert_eq!(report["times_before"]["held_us"], 0);
    assert_eq!(hub.json("/api/v1/report")["times"], report["times"]);
    assert_eq!(store.report_html("nobody", 7, None, None).unwrap().matches("<td").count(), 0);
}

#[test]
fn pages_say_what_there_is_not_and_count_in_words() {
    let (_folder, hub, _) = filled();
    for (path, said) in [
        ("/?owner=nobody", "No job of this owner has sent anything"),
        ("/?before=0-0", "There are no older jobs"),
        ("/owners?days=1", "in the last 1 day."),
        ("/kernels?weeks=1", "in the last 1 week."),
        ("/kernels?weeks=2", "in the last 2 weeks."),
        ("/changes?days=1", "in the last 1 day,"),
        ("/report?days=1", "The 1 day before:"),
    ] {
        let page = hub.get(path).body;
        assert!(page.contains(said), "{path}: {page}");
    }
    let folder = tempfile::tempdir().unwrap();
    let empty = Running::start(&folder.path().join("hub.db"));
    assert!(empty.get("/").body.contains("No job has sent anything yet"));
}

#[test]
fn metrics_are_well_formed() {
    let (_folder, hub, _) = filled();
    let metrics = hub.get("/metrics");
    assert!(metrics.head.contains("text/plain; version=0.0.4"));
    for line in metrics.body.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(name.starts_with("apex_hub_") && value.parse::<f64>().is_ok(), "{line}");
    }
    assert!(metrics.body.contains("apex_hub_messages_total{outcome=\"added\"} 8\n"));
}

#[test]
fn gpus_that_run_have_metrics_by_the_names_of_opentelemetry() {
    let (_folder, hub, _) = filled();
    let reading = |uuid: &str, name: &str, mean: f64| Reading {
        uuid: uuid.to_owned(),
        name: name.to_owned(),
        mean,
        ..Reading::default()
    };
    let mut of = message(0, 9);
    of.machine = vec![
        reading("GPU-0", "gpu_utilization", 0.25),
        reading("GPU-0", "memory_used_bytes", 8e9),
        reading("GPU-0", "memory_utilization", 0.5),
        reading("", "cpu_busy", 3.0),
    ];
    assert_eq!(hub.post(&of.to_bytes()).status, 200);
    assert!(!hub.get("/metrics").body.contains("hw_gpu"), "it has ended");
    of = Aggregate { sequence: 10, ended: None, host: "a\"b\\\n".to_owned(), ..of };
    assert_eq!(hub.post(&of.to_bytes()).status, 200);
    let labels = "{hw_id=\"GPU-0\",hw_type=\"gpu\",hw_name=\"H200\",hw_gpu_task=\"general\",\
                  host_name=\"a\\\"b\\\\\\n\",apex_job=\"job 0\",apex_owner=\"owner0\"}";
    let body = hub.get("/metrics").body;
    for line in [
        format!("hw_gpu_utilization_ratio{labels} 0.25"),
        format!("hw_gpu_memory_usage_bytes{labels} 8000000000"),
    ] {
        assert!(body.lines().any(|found| found == line), "{line}\n{body}");
    }
    assert!(!body.contains("0.5") && !body.contains("cpu_busy"), "{body}");
}

/// Members of a schema, `$ref` followed.
fn members<'a>(api: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str() {
        Some(reference) => members(api, api.pointer(reference.trim_start_matches('#')).unwrap()),
        None => schema,
    }
}

/// Compares a document with its schema: each member is described, and each described one is there.
fn agree(api: &Value, schema: &Value, found: &Value, place: &str) {
    let schema = members(api, schema);
    match found {
        Value::Object(found) if schema["properties"].is_object() => {
            let described = schema["properties"].as_object().unwrap();
            for (name, value) in found {
                let of = described.get(name).unwrap_or_else(|| panic!("{place}.{name} is not described"));
                agree(api, of, value, &format!("{place}.{name}"));
            }
            for name in described.keys() {
                assert!(found.contains_key(name), "{place}.{name} is described, and not there");
            }
        }
        Value::Array(found) => {
            found.iter().for_each(|of| agree(api, &schema["items"], of, &format!("{place}[]")));
        }
        _ => {
            let of_type = match found {
                Value::Null => "null",
                Value::Bool(_) => "boolean",
                Value::String(_) => "string",
                Value::Number(number) if number.is_u64() || number.is_i64() => "integer",
                Value::Number(_) => "number",
                _ => "object",
            };
            let allowed = &schema["type"];
            let is_allowed = |of: &Value| of == of_type || (of == "number" && of_type == "integer");
            let fits =
                allowed.as_array().map_or_else(|| is_allowed(allowed), |all| all.iter().any(is_allowed));
            assert!(fits, "{place} is {of_type}, and described as {allowed}");
        }
    }
}

#[test]
fn the_description_of_the_interface_agrees_with_the_answers() {
    let (_folder, hub, _) = filled();
    let api = hub.json("/api/v1/openapi.json");
    let paths = api["paths"].as_object().unwrap();
    let mut looked = 0;
    for (path, methods) in paths {
        let Some(get) = methods.get("get") else { continue };
        let Some(schema) = get.pointer("/responses/200/content/application~1json/schema") else { continue };
        let found = hub.json(&path.replace("{id}", "1"));
        agree(&api, schema, &found, path);
        looked += 1;
    }
    assert_eq!(looked, 7);
    let taken: Value = serde_json::from_str(&hub.post(&message(50, 1).to_bytes()).body).unwrap();
    let schema = &api["paths"]["/api/v1/aggregates"]["post"]["responses"]["200"]["content"]["application/json"]
        ["schema"];
    agree(&api, schema, &taken, "taken");
    let sent: Value = serde_json::from_slice(&message(50, 1).to_bytes()).unwrap();
    let request =
        &api["paths"]["/api/v1/aggregates"]["post"]["requestBody"]["content"]["application/json"]["schema"];
    agree(&api, request, &sent, "sent");
}

/// All rows of a table.
pub fn exported(store: &Store, table: Table) -> Vec<Value> {
    let mut rows = Vec::new();
    let take = |record| {
        rows.push(serde_json::to_value(record).unwrap());
        Ok(())
    };
    store.export(apex_hub::LOCAL, table, 0..u64::MAX, take).unwrap().unwrap();
    rows
}

#[test]
fn exported_tables_add_up_to_the_sums() {
    let (folder, _hub, all) = filled();
    let store = Store::open(&folder.path().join("hub.db")).unwrap();
    let sum = |rows: &[Value], name: &str| rows.iter().map(|row| row[name].as_u64().unwrap()).sum::<u64>();
    let kernels_us: u64 = all.iter().map(|of| of.times().kernels_us).sum();
    for (table, count) in [(Table::Jobs, 2), (Table::Days, 3), (Table::Uses, 8)] {
        let rows = exported(&store, table);
        assert_eq!((rows.len(), sum(&rows, "kernels_us")), (count, kernels_us), "{table:?}");
    }
    let gemm: u64 = all.iter().map(|of| of.sequence).sum();
    let kernels = exported(&store, Table::Kernels);
    let of_gemm: Vec<Value> = kernels.iter().filter(|row| row["kernel"] == "gemm").cloned().collect();
    assert_eq!(sum(&of_gemm, "launches"), gemm);
    let day = &exported(&store, Table::Days)[0]["day"];
    assert_eq!(day.as_str().unwrap().len(), 10, "{day}");
    // What is older than asked for is left out, another tenant has nothing, and who takes may stop.
    let count = |tenant: &str, since_ns: u64| {
        let mut count = 0;
        let take = |_| {
            count += 1;
            Ok(())
        };
        store.export(tenant, Table::Jobs, since_ns..u64::MAX, take).unwrap().unwrap();
        count
    };
    assert_eq!((count(apex_hub::LOCAL, now_ns()), count("another", 0)), (0, 0));
    let stopped = store
        .export(apex_hub::LOCAL, Table::Jobs, 0..u64::MAX, |_| Err(std::io::Error::other("full")))
        .unwrap();
    assert_eq!(stopped.unwrap_err().to_string(), "full");
}

#[test]
fn a_backup_of_a_running_hub_is_whole() {
    let (folder, hub, all) = filled();
    let (database, copy) = (folder.path().join("hub.db"), folder.path().join("copy.db"));
    Store::open(&database).unwrap().back_up(&copy).unwrap();
    let expected = crate::totals::totals(&database);
    // It is what was there at that moment, and takes what was sent since.
    assert_eq!(hub.post(&message(900, 1).to_bytes()).status, 200);
    assert_eq!(crate::totals::totals(&copy), expected);
    drop(hub);
    let restored = Running::start(&copy);
    assert_eq!(restored.post(&all[0].to_bytes()).status, 200);
    assert_eq!(restored.count("repeated"), 1);
    assert_eq!(restored.post(&message(900, 1).to_bytes()).status, 200);
    drop(restored);
    assert_eq!(crate::totals::totals(&copy), crate::totals::totals(&database));
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
    // No file is written over.
    assert!(Store::open(&database).unwrap().back_up(&copy).is_err());
    assert_eq!(crate::totals::totals(&copy), crate::totals::totals(&database));
}
