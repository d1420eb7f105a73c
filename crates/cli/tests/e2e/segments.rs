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
use test_process::Command;

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

/// A store that runs, and the exports into it.
struct Stored<'a> {
    sandbox: &'a Sandbox,
    url: String,
    store: Store,
    server: Seaweed,
}

impl<'a> Stored<'a> {
    /// Starts a store on what an earlier one left in the folder; `None` where it is not installed.
    fn start(sandbox: &'a Sandbox) -> Option<Self> {
        let server = Seaweed::start(&sandbox.path(""), None)?;
        let url = format!("http://127.0.0.1:{}", server.port);
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
        Some(Self { sandbox, url, store, server })
    }

    fn export(&self, place: &str, options: &[&str]) -> Command {
        let all = [&["hub", "export", "--segments", place], options].concat();
        let mut export = self.sandbox.apex(&all);
        export.env("AWS_ENDPOINT_URL", &self.url).env("AWS_ACCESS_KEY_ID", KEYS.0);
        export.env("AWS_SECRET_ACCESS_KEY", KEYS.1);
        export
    }

    /// What an export says that ends with this status.
    fn said(&self, place: &str, options: &[&str], code: i32) -> String {
        let ended = output(&mut self.export(place, options), code);
        format!("{}{}", text(&ended.stdout), text(&ended.stderr))
    }

    /// The names of a table's segments in the folder `folder`, and in the store.
    fn names(&self, table: &str) -> [BTreeSet<String>; 2] {
        let local = std::fs::read_dir(self.sandbox.path("folder").join(table)).unwrap();
        let local = local.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        [local.collect(), self.store.names(table).unwrap().into_iter().collect()]
    }

    /// An export is running, and has put some segments.
    fn amid(&self, place: &str, database: &[&str]) -> Running {
        let mut running = Running::start(&mut self.export(place, database));
        let mut has_put = || {
            std::thread::sleep(Duration::from_millis(5));
            // (One that finds all of it there ends at once.)
            self.store.names("jobs").unwrap().len() > 4 || running.0.try_wait().unwrap().is_some()
        };
        assert!((0..12_000).any(|_| has_put()));
        running
    }
}

#[test]
fn a_store_has_the_segments_of_a_folder_though_exports_and_the_store_were_killed() {
    let sandbox = Sandbox::new();
    let Some(stored) = Stored::start(&sandbox) else { return };
    let (_running, hub_address) = hub(&sandbox, &[]);
    for recording in 0..24 {
        assert_eq!(post(&hub_address, &message(recording, 1, 20 + recording)), 200);
    }
    let (database, place) = (["--database", "hub.db"], format!("s3://{PLACE}"));
    // An export is killed amid its work, and the store amid the next one.
    drop(stored.amid(&place, &database));
    let mut failing = stored.amid(&place, &database);
    let Stored { server, .. } = stored;
    drop(server);
    // (It may have put all before.)
    assert!(matches!(failing.0.wait().unwrap().code(), Some(0 | 125)));
    let Some(stored) = Stored::start(&sandbox) else { return };
    stored.said(&place, &database, 0);
    assert!(stored.said("folder", &database, 0).contains(" 0 unchanged"));
    for table in ["jobs", "days", "kernels"] {
        let [local, there] = stored.names(table);
        assert_eq!(local, there, "{table}");
        assert!(local.len() >= 3, "{table}");
    }
    let sound = stored.said(&place, &["--verify"], 0);
    assert!(sound.contains("0 damaged, 0 of days"), "{sound}");
    assert_eq!(stored.said("folder", &["--verify"], 0), sound);
    assert!(stored.said(&place, &database, 0).starts_with("0 written"));
    // A day changes, in both places alike.
    assert_eq!(post(&hub_address, &message(3, 2, 23)), 200);
    assert!(stored.said(&place, &database, 0).starts_with("2 written (2 in the place of others)"));
    stored.said("folder", &database, 0);
    let [local, there] = stored.names("jobs");
    assert!(local == there && local.len() == 24);
    // Other bytes in the place of a segment are found.
    let name = format!("jobs/{}", there.first().unwrap());
    stored.store.put(&name, b"PAR1").unwrap();
    assert!(stored.said(&place, &["--verify"], 1).contains(&format!("damaged: {name}")));
}

#[test]
fn segments_are_verified_where_variables_name_a_database() {
    let sandbox = Sandbox::new();
    std::fs::create_dir_all(sandbox.path("folder/jobs")).unwrap();
    std::fs::write(sandbox.path("folder/jobs/2026-11-29-9e107d9d372bb682.parquet"), b"PAR1").unwrap();
    let mut verify = sandbox.apex(&["hub", "export", "--segments", "folder", "--verify"]);
    verify.env("APEX_DATABASE", "none.db").env("APEX_TENANT", "physics").env("APEX_DAYS", "40");
    let said = output(&mut verify, 1);
    assert!(text(&said.stdout).contains("0 sound, 1 damaged"), "{said:?}");
}

#[test]
fn what_is_wrong_with_a_store_is_said() {
    let sandbox = Sandbox::new();
    let Some(stored) = Stored::start(&sandbox) else { return };
    let (_running, hub_address) = hub(&sandbox, &[]);
    assert_eq!(post(&hub_address, &message(1, 1, 20)), 200);
    let (database, place) = (["--database", "hub.db"], format!("s3://{PLACE}"));
    let refused = |name: &str, value: &str| {
        let ended = output(stored.export(&place, &database).env(name, value), 125);
        text(&ended.stderr).to_owned()
    };
    let said = refused("AWS_SECRET_ACCESS_KEY", "another");
    assert!(said.contains("SignatureDoesNotMatch") && !said.contains("another"), "{said}");
    assert!(refused("AWS_ACCESS_KEY_ID", "").contains("AWS_ACCESS_KEY_ID is not set"));
    assert!(refused("AWS_ENDPOINT_URL", "store:9000").contains("the store's address (AWS_ENDPOINT_URL)"));
    assert!(stored.said("s3://nosuch/x", &database, 125).contains("make the bucket"));
    assert!(stored.said("s3://a/../b", &database, 125).contains("is no place in a store"));
}
