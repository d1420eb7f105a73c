//! `apex hub export --segments s3://…` and a real store.

#[path = "../../../base/objects/tests/seaweed/mod.rs"]
mod seaweed;

use crate::common::{Running, Sandbox, output, text};
use crate::hub::{hub, post};
use apex_objects::{Keys, Server, Store};
use apex_push::Target;
use seaweed::{BUCKET, KEYS, Seaweed};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

const DAY_NS: u64 = 86_400_000_000_000;
const PLACE: &str = "fleet/some/where";

/// A message of a recording that began so many days ago.
fn message(recording: u64, sequence: u64, days: u64) -> Value {
    let now_ns = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    let started_ns = now_ns - days * DAY_NS;
    json!({
        "schema": "apex.aggregate/1", "recording": format!("{recording:032x}"), "sequence": sequence,
        "job": {"id": format!("job {recording}")}, "owner": "ada",
        "started_ns": started_ns, "as_of_ns": started_ns + 1_000_000_000,
        "devices": [{"name": "NVIDIA H200", "uuid": "GPU-1"}],
        "uses": [{"device": 0, "times": {
            "kernels_us": 1000 * sequence, "collectives_us": 0, "waiting_us": 0, "copies_us": 0,
            "idle_us": [0, 0, 0, 0, 0, 0, 0, 0], "unknown_us": 0, "outside_us": 7,
        }}],
    })
}

#[test]
fn a_store_has_the_segments_of_a_folder_though_an_export_was_killed() {
    let sandbox = Sandbox::new();
    let Some(server) = Seaweed::start(&sandbox.path(""), None) else { return };
    let url = format!("http://127.0.0.1:{}", server.port);
    let export = |place: &str, options: &[&str]| {
        let all = [&["hub", "export", "--segments", place], options].concat();
        let mut export = sandbox.apex(&all);
        export.env("AWS_ENDPOINT_URL", &url).env("AWS_ACCESS_KEY_ID", KEYS.0);
        export.env("AWS_SECRET_ACCESS_KEY", KEYS.1);
        export
    };
    let said = |place: &str, options: &[&str], code: i32| {
        let ended = output(&mut export(place, options), code);
        format!("{}{}", text(&ended.stdout), text(&ended.stderr))
    };
    let address = Target::new(&url, "").unwrap();
    let keys = Keys { id: KEYS.0.to_owned(), secret: KEYS.1.to_owned(), session: None };
    let pause = Duration::from_millis(100);
    let asked = Server { address, region: "us-east-1".to_owned(), keys, pause };
    let store = Store::new(asked, format!("s3://{PLACE}").parse().unwrap());
    // The bucket is made a moment after the start.
    let is_there = || {
        std::thread::sleep(pause);
        store.names("jobs").is_ok()
    };
    assert!((0..600).any(|_| is_there()), "{BUCKET}");
    let (_running, hub_address) = hub(&sandbox, &[]);
    for recording in 0..40 {
        assert_eq!(post(&hub_address, &message(recording, 1, 20 + recording)), 200);
    }
    let (database, place) = (["--database", "hub.db"], format!("s3://{PLACE}"));
    // An export is killed amid its work.
    let killed = Running::start(&mut export(&place, &database));
    assert!((0..6000).any(|_| store.names("jobs").unwrap().len() > 4));
    drop(killed);
    said(&place, &database, 0);
    assert!(said("folder", &database, 0).contains(" 0 unchanged"));
    let names = |table: &str| -> [BTreeSet<String>; 2] {
        let local = std::fs::read_dir(sandbox.path("folder").join(table)).unwrap();
        let local = local.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        [local.collect(), store.names(table).unwrap().into_iter().collect()]
    };
    for table in ["jobs", "days", "kernels"] {
        let [local, stored] = names(table);
        assert_eq!(local, stored, "{table}");
        assert!(local.len() >= 6, "{table}");
    }
    assert!(said(&place, &database, 0).starts_with("0 written"));
    // A day changes, in both places alike.
    assert_eq!(post(&hub_address, &message(3, 2, 23)), 200);
    assert!(said(&place, &database, 0).starts_with("2 written (2 in the place of others)"));
    said("folder", &database, 0);
    let [local, stored] = names("jobs");
    assert!(local == stored && local.len() == 40);
    let sound = said(&place, &["--verify"], 0);
    assert!(sound.contains("0 damaged, 0 of days"), "{sound}");
    assert_eq!(said("folder", &["--verify"], 0), sound);
    // Other bytes in the place of a segment are found.
    let name = format!("jobs/{}", stored.first().unwrap());
    store.put(&name, b"PAR1").unwrap();
    assert!(said(&place, &["--verify"], 1).contains(&format!("damaged: {name}")));
    // What is wrong is said before anything is written.
    let mut other = export(&place, &database);
    let refused = output(other.env("AWS_SECRET_ACCESS_KEY", "another"), 125);
    let refused = text(&refused.stderr);
    assert!(refused.contains("SignatureDoesNotMatch") && !refused.contains("another"), "{refused}");
    let mut without = export(&place, &database);
    let refused = output(without.env_remove("AWS_ACCESS_KEY_ID"), 125);
    assert!(text(&refused.stderr).contains("AWS_ACCESS_KEY_ID is not set"), "{}", text(&refused.stderr));
    assert!(said("s3://nosuch/x", &database, 125).contains("make the bucket"));
    assert!(said("s3://a/../b", &database, 125).contains("is no place in a store"));
}
