//! Tables of a real session, in each format, read back by somebody else.

mod common;

use apex_export::csv::Csv;
use apex_export::json::Json;
use apex_export::parquet::{GROUP_ROWS, Parquet};
use apex_export::table::{Cell, Column, Sink, Type};
use apex_export::{Reading, rows};
use apex_trace::Session;
use common::{SYMBOLS, Written, session};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::ops::Range;
use test_process::Command;

const EVERYTHING: Range<u64> = 0..u64::MAX;

fn launches_to(sink: &mut dyn Sink, session: &Session, window: Range<u64>) {
    rows::launches::write(&mut Reading::new(session, window, &mut |_| {}), sink).unwrap();
    sink.finish().unwrap();
}

fn launches_as_parquet(session: &Session) -> Vec<u8> {
    let mut bytes = Vec::new();
    launches_to(&mut Parquet::new(&mut bytes, &rows::launches::COLUMNS).unwrap(), session, EVERYTHING);
    bytes
}

/// A Parquet file as pyarrow reads it: what the file's metadata says of a column, and the rows as
/// objects. None where pyarrow is not installed.
fn read_by_pyarrow(bytes: &[u8], meaning_of: &str) -> Option<(String, Vec<Value>)> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    let script = "import sys, json\n\
        try:\n    import pyarrow.parquet as parquet\nexcept ImportError as error:\n    print(error); sys.exit(77)\n\
        file = parquet.ParquetFile(sys.argv[1])\n\
        for group in range(file.metadata.num_row_groups):\n    for column in range(file.metadata.num_columns):\n\
        \x20       chunk = file.metadata.row_group(group).column(column)\n\
        \x20       cells = file.read_row_group(group).column(column)\n\
        \x20       assert chunk.statistics.null_count == cells.null_count, chunk\n\
        \x20       known = sorted(cells.drop_null().to_pylist()) if chunk.physical_type == 'INT64' else []\n\
        \x20       assert chunk.statistics.has_min_max == bool(known), chunk\n\
        \x20       assert not known or (chunk.statistics.min, chunk.statistics.max) == (known[0], known[-1]), chunk\n\
        print(json.dumps([file.metadata.metadata[b'apex.' + sys.argv[2].encode()].decode(), file.read().to_pylist()]))";
    let output = Command::new("python3").args(["-c", script]).arg(file.path()).arg(meaning_of).output();
    let output = match output {
        Ok(output) if output.status.code() != Some(77) => output,
        other => {
            test_skip::missing_dependency(format!("no pyarrow ({other:?})"));
            return None;
        }
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let read = serde_json::from_str(&text)
        .unwrap_or_else(|_| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)));
    Some(read)
}

#[test]
fn launches_in_parquet_are_what_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let (session, written) = session(dir.path(), 500, 1);
    let Some((meaning, rows)) = read_by_pyarrow(&launches_as_parquet(&session), "gpu_ns") else { return };
    assert!(meaning.contains("measured"));
    assert_eq!(rows.len(), written.len() + 1);
    for (row, launch) in rows.iter().zip(&written) {
        check_launch(row, launch);
    }
    let graph = rows.last().unwrap();
    let names: BTreeSet<_> = graph.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(names, rows::launches::COLUMNS.iter().map(|column| column.name).collect());
    assert_eq!(graph["kind"], "graph");
    assert_eq!(graph["graph_kernels"], 7);
    assert_eq!(graph["kernel"], Value::Null);
    assert_eq!(graph["cooperative"], Value::Null);
}

fn check_launch(row: &Value, launch: &Written) {
    let first = launch.config == 1;
    let if_first = |number: u64| if first { json!(number) } else { Value::Null };
    assert_eq!(row["process"], std::process::id());
    assert_eq!(row["kind"], "kernel");
    assert_eq!(row["symbol"], SYMBOLS[launch.config as usize - 1]);
    assert_eq!(row["grid_x"], if first { 64 } else { 7 });
    assert_eq!(row["block_x"], 100);
    assert_eq!(row["cluster_x"], if_first(2));
    assert_eq!(row["registers"], if_first(31), "unknown is null, not 0");
    assert_eq!(row["result"], launch.result);
    assert_eq!(row["cooperative"], true);
    assert_eq!(row["device_name"], "Test Device");
    assert_eq!(row["stream_handle"], 0xabc);
    assert_eq!(row["api"], "cuLaunchKernel");
    assert_eq!(row["gpu_raw_ns"], json!(launch.timed.map(|(raw, _)| raw)));
    assert_eq!(row["gpu_ns"], json!(launch.timed.map(|(raw, pair)| raw.saturating_sub(pair.into()))));
    let kernel = if first { "saxpy(float, float const*, float*, int)" } else { SYMBOLS[1] };
    assert_eq!(row["kernel"], kernel);
}

const ALL_TYPES: [Column; 6] = {
    const fn column(name: &'static str, kind: Type) -> Column {
        Column { name, kind, meaning: "what it holds" }
    }
    [
        column("different", Type::Integer),
        column("few", Type::Integer),
        column("name", Type::Text),
        column("real", Type::Real),
        column("flag", Type::Flag),
        column("nothing", Type::Text),
    ]
};

fn parquet_of_all_types(rows: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut file = Parquet::new(&mut bytes, &ALL_TYPES).unwrap();
    for i in 0..rows {
        let cells = [
            Cell::Integer(i as i64 - 5),
            Cell::Integer(i as i64 / 100 % 3 - 1),
            Cell::Text(["first", "", "drei ünf"][i % 3]),
            Cell::Real(i as f64 / 4.0),
            Cell::Flag(i % 2 == 0),
            Cell::Null,
        ];
        file.row(if i % 7 == 0 { &[Cell::Null; 6] } else { &cells }).unwrap();
    }
    file.finish().unwrap();
    file.finish().unwrap();
    drop(file);
    bytes
}

#[test]
fn every_type_comes_back_over_several_row_groups() {
    for rows in [0, 1, 2, 1000, GROUP_ROWS + 1000] {
        let Some((_, read)) = read_by_pyarrow(&parquet_of_all_types(rows), "few") else { return };
        assert_eq!(read.len(), rows);
        for (i, row) in read.iter().enumerate() {
            let name = ["first", "", "drei ünf"][i % 3];
            let expected = json!({
                "different": i as i64 - 5, "few": i as i64 / 100 % 3 - 1, "name": name,
                "real": i as f64 / 4.0, "flag": i % 2 == 0, "nothing": null,
            });
            if i % 7 == 0 {
                assert!(row.as_object().unwrap().values().all(Value::is_null), "{row}");
            } else {
                assert_eq!(*row, expected);
            }
        }
    }
}

#[test]
fn json_and_csv_hold_the_same_cells() {
    let dir = tempfile::tempdir().unwrap();
    let (session, written) = session(dir.path(), 100, 3);
    let columns = &rows::launches::COLUMNS;
    let profile = apex_profile::Profile::from_session(&session);
    let mut json = Vec::new();
    launches_to(
        &mut Json::new(&mut json, &session, &profile, "launches", columns).unwrap(),
        &session,
        EVERYTHING,
    );
    let document: Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(document["schema"], "apex.export/1");
    // Through text, too: reading numbers back may cost the last digit.
    let expected: Value = serde_json::from_slice(&serde_json::to_vec(&profile).unwrap()).unwrap();
    assert!(document["profile"] == expected, "the profile is part of the document");
    let objects = document["launches"].as_array().unwrap();
    assert_eq!(objects.len(), written.len() + 1);

    let mut csv = Vec::new();
    launches_to(&mut Csv::new(&mut csv, columns).unwrap(), &session, EVERYTHING);
    let mut lines = parse_csv(&String::from_utf8(csv).unwrap()).into_iter();
    let header = lines.next().unwrap();
    assert_eq!(header, columns.iter().map(|column| column.name).collect::<Vec<_>>());
    for (line, object) in lines.zip(objects) {
        for (cell, column) in line.iter().zip(columns) {
            let expected = match &object[column.name] {
                Value::Null => String::new(),
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            assert_eq!(*cell, expected, "{}", column.name);
        }
    }
}

/// RFC 4180, the other way.
fn parse_csv(text: &str) -> Vec<Vec<String>> {
    let (mut records, mut record, mut field, mut quoted) = (Vec::new(), Vec::new(), String::new(), false);
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '"' if quoted && characters.next_if_eq(&'"').is_some() => field.push('"'),
            '"' => quoted = !quoted,
            ',' if !quoted => record.push(std::mem::take(&mut field)),
            '\r' if !quoted => {
                assert_eq!(characters.next(), Some('\n'));
                record.push(std::mem::take(&mut field));
                records.push(std::mem::take(&mut record));
            }
            other => field.push(other),
        }
    }
    assert!(!quoted && field.is_empty() && record.is_empty());
    records
}

#[test]
fn the_window_chooses_by_when_calls_began() {
    let dir = tempfile::tempdir().unwrap();
    let (session, _) = session(dir.path(), 200, 4);
    let starts = |window| {
        let mut bytes = Vec::new();
        launches_to(&mut Csv::new(&mut bytes, &rows::launches::COLUMNS).unwrap(), &session, window);
        let text = String::from_utf8(bytes).unwrap();
        parse_csv(&text).iter().skip(1).map(|record| record[2].parse::<u64>().unwrap()).collect::<Vec<_>>()
    };
    let all = starts(EVERYTHING);
    assert!(all.is_sorted());
    let window = all[50]..all[120];
    assert_eq!(starts(window), all[50..120]);
    assert!(starts(0..all[0]).is_empty());
}

#[test]
fn calls_are_listed_with_what_they_moved() {
    let dir = tempfile::tempdir().unwrap();
    let (session, _) = session(dir.path(), 1, 5);
    let mut bytes = Vec::new();
    let mut csv = Csv::new(&mut bytes, &rows::calls::COLUMNS).unwrap();
    rows::calls::write(&mut Reading::new(&session, EVERYTHING, &mut |_| {}), &mut csv).unwrap();
    let records = parse_csv(&String::from_utf8(bytes).unwrap());
    let column = |name: &str| rows::calls::COLUMNS.iter().position(|column| column.name == name).unwrap();
    let cells = |row: usize, names: [&str; 5]| names.map(|name| records[row][column(name)].clone());
    let names = ["class", "api", "memory", "bytes", "asynchronous"];
    assert_eq!(records.len(), 6);
    assert_eq!(cells(1, names), ["allocate", "cuMemAlloc_v2", "device", "1048576", ""]);
    assert_eq!(cells(4, names), ["free", "cuMemFree_v2", "", "", ""]);
    assert_eq!(cells(5, names), ["copy", "cuMemcpyHtoDAsync_v2", "device", "999", "true"]);
    assert_eq!(records[5][column("source_memory")], "pageable");
    assert_eq!(records[5][column("peer")], "", "only copies from device to device");
}

#[test]
fn progress_counts_records() {
    let dir = tempfile::tempdir().unwrap();
    let (session, _) = session(dir.path(), 100_000, 6);
    let mut seen = Vec::new();
    let mut bytes = Vec::new();
    let mut csv = Csv::new(&mut bytes, &rows::calls::COLUMNS).unwrap();
    let mut progress = |records| seen.push(records);
    rows::calls::write(&mut Reading::new(&session, EVERYTHING, &mut progress), &mut csv).unwrap();
    assert!(
        !seen.is_empty() && seen.is_sorted() && *seen.last().unwrap() <= session.processes[0].record_count
    );
}
