//! Tables of a real session, in each format, read back by somebody else.

mod common;

use apex_export::csv::Csv;
use apex_export::json::Json;
use apex_export::parquet::Parquet;
use apex_export::table::Sink;
use apex_export::{Reading, rows};
use apex_trace::Session;
use common::{SYMBOLS, Written, session};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use serde_json::Value;
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

fn field<'r>(row: &'r Row, name: &str) -> &'r Field {
    row.get_column_iter().find(|(column, _)| *column == name).unwrap_or_else(|| panic!("no column {name}")).1
}

#[test]
fn launches_in_parquet_are_what_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let (session, written) = session(dir.path(), 500, 1);
    let bytes = bytes::Bytes::from(launches_as_parquet(&session));
    let reader = SerializedFileReader::new(bytes).unwrap();
    let rows: Vec<Row> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
    assert_eq!(rows.len(), written.len() + 1);
    for (row, launch) in rows.iter().zip(&written) {
        check_launch(row, launch);
    }
    let graph = rows.last().unwrap();
    assert_eq!(field(graph, "kind"), &Field::Str("graph".into()));
    assert_eq!(field(graph, "graph_kernels"), &Field::Long(7));
    assert_eq!(field(graph, "kernel"), &Field::Null);
    assert_eq!(field(graph, "cooperative"), &Field::Null);
}

fn check_launch(row: &Row, launch: &Written) {
    let long = |value: u64| Field::Long(value as i64);
    let first = launch.config == 1;
    assert_eq!(field(row, "process"), &long(std::process::id().into()));
    assert_eq!(field(row, "kind"), &Field::Str("kernel".into()));
    assert_eq!(field(row, "symbol"), &Field::Str(SYMBOLS[launch.config as usize - 1].into()));
    assert_eq!(field(row, "grid_x"), &long(if first { 64 } else { 7 }));
    assert_eq!(field(row, "block_x"), &long(100));
    assert_eq!(field(row, "cluster_x"), &if first { long(2) } else { Field::Null });
    assert_eq!(
        field(row, "registers"),
        &if first { long(31) } else { Field::Null },
        "unknown is null, not 0"
    );
    assert_eq!(field(row, "result"), &long(launch.result.into()));
    assert_eq!(field(row, "cooperative"), &Field::Bool(true));
    assert_eq!(field(row, "device_name"), &Field::Str("Test Device".into()));
    assert_eq!(field(row, "stream_handle"), &long(0xabc));
    assert_eq!(field(row, "api"), &Field::Str("cuLaunchKernel".into()));
    let measured = launch.timed.map(|(raw, pair)| (long(raw), long(raw.saturating_sub(pair.into()))));
    let (raw, gpu) = measured.unwrap_or((Field::Null, Field::Null));
    assert_eq!((field(row, "gpu_raw_ns"), field(row, "gpu_ns")), (&raw, &gpu));
    let kernel = if first { "saxpy(float, float const*, float*, int)" } else { SYMBOLS[1] };
    assert_eq!(field(row, "kernel"), &Field::Str(kernel.into()));
}

/// The same file through another implementation of the format. Skipped where pyarrow is not
/// installed.
#[test]
fn pyarrow_reads_the_same_rows() {
    let dir = tempfile::tempdir().unwrap();
    let (session, written) = session(dir.path(), 300, 2);
    let path = dir.path().join("launches.parquet");
    std::fs::write(&path, launches_as_parquet(&session)).unwrap();
    let script = "import sys, json\n\
        try:\n    import pyarrow.parquet as parquet\nexcept ImportError as error:\n    print(error); sys.exit(77)\n\
        table = parquet.read_table(sys.argv[1])\n\
        print(json.dumps({'rows': table.num_rows, 'columns': table.column_names,\n\
            'gpu': table['gpu_raw_ns'].to_pylist(), 'symbol': table['symbol'].to_pylist(),\n\
            'meaning': parquet.read_metadata(sys.argv[1]).metadata[b'apex.gpu_ns'].decode()}))";
    let output = match Command::new("python3").args(["-c", script]).arg(&path).output() {
        Ok(output) if output.status.code() != Some(77) => output,
        other => return test_skip::missing_dependency(format!("no pyarrow ({other:?})")),
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let read: Value = serde_json::from_str(&text)
        .unwrap_or_else(|_| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(read["rows"], written.len() + 1);
    let columns: Vec<_> = rows::launches::COLUMNS.iter().map(|column| column.name).collect();
    assert_eq!(read["columns"], serde_json::json!(columns));
    assert!(read["meaning"].as_str().unwrap().contains("measured"));
    for (i, launch) in written.iter().enumerate() {
        assert_eq!(read["gpu"][i], serde_json::json!(launch.timed.map(|(raw, _)| raw)));
        assert_eq!(read["symbol"][i], SYMBOLS[launch.config as usize - 1]);
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
