//! Segments: files of days that have ended, which DuckDB reads as the rows that the hub exports.

use crate::common::{Running, message, now_ns};
use crate::views::exported;
use apex_aggregate::Aggregate;
use apex_hub::export::Table;
use apex_hub::segments::{Local, Verified, Written, verify};
use apex_hub::{LOCAL, Store};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use test_process::Command;

const DAY_NS: u64 = 86_400_000_000_000;

/// A message of a recording that began so many days ago.
fn days_ago(recording: u64, sequence: u64, days: u64) -> Aggregate {
    let started_ns = now_ns() - days * DAY_NS;
    Aggregate { started_ns, as_of_ns: started_ns + 1_000_000_000, ..message(recording, sequence) }
}

/// Files below a folder, with their bytes.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for table in ["jobs", "days", "kernels"] {
        for entry in std::fs::read_dir(folder.join(table)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
            found.insert(name, std::fs::read(path).unwrap());
        }
    }
    found
}

/// Rows of a statement by DuckDB; `None` where it is not installed.
fn by_duckdb(folder: &Path, statement: &str) -> Option<Vec<Value>> {
    let script = "import json, sys\ntry:\n    import duckdb\nexcept ImportError as error:\n    print(error); sys.exit(77)\n\
        found = duckdb.sql(sys.argv[1])\nprint(json.dumps([dict(zip(found.columns, row)) for row in found.fetchall()]))";
    let output = Command::new("python3").args(["-c", script, statement]).current_dir(folder).output();
    match output {
        Ok(output) if output.status.code() != Some(77) => {
            let said = String::from_utf8_lossy(&output.stderr);
            Some(serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{statement}: {said}")))
        }
        other => {
            test_skip::missing_dependency(format!("no duckdb ({other:?})"));
            None
        }
    }
}

#[test]
fn a_day_is_written_once_and_again_when_something_of_it_comes() {
    let folder = tempfile::tempdir().unwrap();
    let (database, segments) = (folder.path().join("hub.db"), folder.path().join("segments"));
    let hub = Running::start(&database);
    // Two jobs of 20 days ago, one of 3, one of now, which has no segment.
    for (recording, days) in [(0, 20), (4, 20), (8, 3), (12, 0)] {
        assert_eq!(hub.post(&days_ago(recording, 1, days).to_bytes()).status, 200);
    }
    let store = Store::open(&database).unwrap();
    let write = |since_day| {
        let place = Local::to_write(&segments).unwrap();
        store.write_segments(LOCAL, &place, since_day, now_ns()).unwrap().unwrap()
    };
    let first = write(0);
    let all = files(&segments);
    assert_eq!((first.new, first.unchanged, first.replaced), (all.len() as u64, 0, 0));
    let of_table = |name: &str| all.keys().filter(|path| path.starts_with(name)).count();
    // (The week of 3 days ago may not have ended.)
    assert_eq!((of_table("jobs"), of_table("days")), (2, 2), "{:?}", all.keys());
    assert!((1..=2).contains(&of_table("kernels")));
    assert_eq!(write(0), Written { unchanged: first.new, ..Written::default() });
    assert_eq!(files(&segments), all);
    // A late message changes its day and its week, and nothing else.
    assert_eq!(hub.post(&days_ago(0, 2, 20).to_bytes()).status, 200);
    let again = write(0);
    assert_eq!((again.new, again.replaced, again.unchanged), (3, 3, first.new - 3));
    let changed = files(&segments);
    assert_eq!(changed.len(), all.len());
    let dates = |files: &BTreeMap<String, Vec<u8>>| -> BTreeSet<String> {
        files.keys().map(|path| path[..path.len() - 25].to_owned()).collect()
    };
    assert_eq!(dates(&changed), dates(&all));
    // What is older than asked for is left as it is.
    assert_eq!(hub.post(&days_ago(0, 3, 20).to_bytes()).status, 200);
    assert_eq!(write(now_ns() / DAY_NS - 10).replaced, 0);
}

#[test]
fn an_export_removes_what_a_killed_one_left_and_damage_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let (database, segments) = (folder.path().join("hub.db"), folder.path().join("segments"));
    let hub = Running::start(&database);
    assert_eq!(hub.post(&days_ago(0, 1, 20).to_bytes()).status, 200);
    let store = Store::open(&database).unwrap();
    let write = || {
        let place = Local::to_write(&segments).unwrap();
        // Nobody else writes meanwhile, and readers may.
        let refused = Local::to_write(&segments).unwrap_err().to_string();
        assert!(refused.contains("another export"), "{refused}");
        store.write_segments(LOCAL, &place, 0, now_ns()).unwrap().unwrap()
    };
    let verified = || verify(&Local::to_read(&segments)).unwrap();
    assert_eq!(write().new, 3);
    assert_eq!(verified(), Verified { sound: 3, ..Verified::default() });
    let names = files(&segments);
    // A file that was begun, the earlier file of a day, what is nobody's, and a flipped bit.
    let of_jobs = names.keys().find(|name| name.starts_with("jobs/")).unwrap();
    let earlier = format!("{}-0123456789abcdef.parquet", &of_jobs[..15]);
    std::fs::write(segments.join("jobs/.apex-7-0.part"), b"PAR").unwrap();
    std::fs::write(segments.join("jobs/README"), b"ours").unwrap();
    std::fs::write(segments.join(&earlier), b"PAR1").unwrap();
    let of_days = names.keys().find(|name| name.starts_with("days/")).unwrap();
    let mut bytes = names[of_days].clone();
    bytes[9] ^= 4;
    std::fs::write(segments.join(of_days), bytes).unwrap();
    let found = verified();
    let mut both = [earlier.clone(), of_jobs.clone()];
    both.sort();
    assert_eq!((found.sound, &found.twice), (2, &both.to_vec()));
    assert_eq!(found.damaged, [earlier, of_days.clone()]);
    std::fs::remove_file(segments.join(of_days)).unwrap();
    assert_eq!(write(), Written { new: 1, unchanged: 2, replaced: 1 });
    assert_eq!(verified(), Verified { sound: 3, ..Verified::default() });
    std::fs::remove_file(segments.join("jobs/README")).unwrap();
    assert_eq!(files(&segments), names, "what was begun is gone");
}

#[test]
fn duckdb_reads_the_rows_that_are_exported() {
    let folder = tempfile::tempdir().unwrap();
    let (database, segments) = (folder.path().join("hub.db"), folder.path().join("segments"));
    let hub = Running::start(&database);
    for recording in 0..40 {
        assert_eq!(
            hub.post(&days_ago(recording, 1 + recording % 5, 20 + recording / 8).to_bytes()).status,
            200
        );
    }
    let store = Store::open(&database).unwrap();
    let place = Local::to_write(&segments).unwrap();
    store.write_segments(LOCAL, &place, 0, now_ns()).unwrap().unwrap();
    for (table, name, order) in [
        (Table::Jobs, "jobs", "started_ns, id"),
        (Table::Days, "days", "day, owner"),
        (Table::Kernels, "kernels", "week, kernel"),
    ] {
        let statement = format!("SELECT * FROM '{name}/*.parquet' ORDER BY {order}");
        let Some(read) = by_duckdb(&segments, &statement) else { return };
        assert_eq!(read, exported(&store, table), "{name}");
    }
    let sums = "SELECT sum(energy_mj) AS mj, sum(metered_us) AS us FROM 'jobs/*.parquet'";
    let read = by_duckdb(&segments, sums).unwrap();
    let all = (0..40).map(|recording| days_ago(recording, 1 + recording % 5, 20).energy());
    let (mj, us) = all.fold((0, 0), |(mj, us), of| (mj + of.mj, us + of.metered_us));
    assert_eq!(read, [json!({"mj": mj, "us": us})]);
}
