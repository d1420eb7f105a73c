//! `apex collect` on the CPU device: whole, interrupted, killed, with a stand-in for the profiler,
//! and refused.

use crate::common::{Running, Sandbox, output, send, text, wait_until};
use apex_collect::ncu::{METRICS, THROUGHPUT};
use apex_dataset::{DataSet, DeviceKind, LaunchRow};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use test_process::Command;

/// Runs `apex collect` into `d`, with `rows` rows of kernels that the CPU device executes quickly.
fn collect(sandbox: &Sandbox, rows: u32, options: &[&str]) -> Command {
    collect_of(sandbox, "copy,scan,branch", rows, options)
}

fn collect_of(sandbox: &Sandbox, families: &str, rows: u32, options: &[&str]) -> Command {
    let mut command = sandbox.apex(&["collect", "-o", "d", "--device", "cpu", "--rows", &rows.to_string()]);
    command.args(["--families", families]).args(options);
    command
}

fn data_set(sandbox: &Sandbox) -> DataSet {
    DataSet::read(&sandbox.path("d")).unwrap_or_else(|error| panic!("{error}"))
}

/// Row number and time of everything that is on its way.
fn partial_times(sandbox: &Sandbox) -> BTreeMap<u64, String> {
    let text = std::fs::read_to_string(sandbox.path("d/partial/times-0.csv")).unwrap_or_default();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole).to_owned();
    let fields = |line: &str| {
        let mut fields = line.split(',');
        Some((fields.next()?.parse().ok()?, fields.nth(1)?.to_owned()))
    };
    whole.lines().skip(1).filter_map(fields).collect()
}

fn time(row: &LaunchRow) -> String {
    row.timing.time_us.map_or_else(String::new, |time| time.to_string())
}

#[test]
fn a_collection_is_a_data_set() {
    let sandbox = Sandbox::new();
    // Matrices take most of the time: a few launches of each kernel.
    let printed = output(&mut collect_of(&sandbox, "copy,scan,branch,tensor", 27, &["--json"]), 0);
    let document: serde_json::Value = serde_json::from_slice(&printed.stdout).unwrap();
    assert_eq!(document["schema"], "apex.collect/1");
    assert_eq!((&document["launches"], &document["complete"]), (&27.into(), &true.into()));
    assert_eq!(document["device_kind"], "cpu-device");
    assert!(text(&printed.stderr).contains("times only: the CPU device has no counters"));

    let data_set = data_set(&sandbox);
    assert_eq!(data_set.manifest.device_kind, DeviceKind::CpuDevice);
    assert_eq!(data_set.launches.len(), 27);
    assert!(data_set.launches.iter().enumerate().all(|(number, row)| row.row == number as u64));
    assert!(data_set.launches.iter().any(|row| row.timing.time_us.is_some_and(|time| time > 0.0)));
    assert!(data_set.launches.iter().all(|row| row.theoretical_occupancy_percent.is_some_and(|of| of > 0.0)));
    assert!(data_set.launches.iter().all(|row| row.counters.achieved_occupancy_percent.is_none()));
    let copy = data_set.kernels.iter().find(|kernel| kernel.kernel == "copy_f32").unwrap();
    let mix = copy.ptx.0.as_ref().unwrap();
    assert_eq!((mix.global_load_bytes, mix.global_store_bytes, mix.loops), (4, 4, 1));
}

#[test]
fn a_killed_collection_goes_on_where_it_was() {
    let sandbox = Sandbox::new();
    let mut killed = Running::start(&mut collect(&sandbox, 150, &[]));
    wait_until("some rows are measured", || partial_times(&sandbox).len() > 20);
    killed.0.kill().unwrap();
    assert_eq!(killed.0.wait().unwrap().signal(), Some(libc::SIGKILL));
    let before = partial_times(&sandbox);

    // As if the last write had been cut off.
    let path = sandbox.path("d/partial/times-0.csv");
    let torn = std::fs::read_to_string(&path).unwrap().trim_end().to_owned() + "\n149,0,12.";
    std::fs::write(&path, torn).unwrap();

    // Between the two, what there is can be read.
    assert!(!data_set(&sandbox).manifest.complete);
    output(&mut collect(&sandbox, 150, &[]), 0);
    let data_set = data_set(&sandbox);
    assert!(data_set.manifest.complete);
    let numbers: Vec<u64> = data_set.launches.iter().map(|row| row.row).collect();
    assert_eq!(numbers, (0..150).collect::<Vec<_>>());
    for (row, known) in before {
        assert_eq!(
            time(&data_set.launches[row as usize]),
            known,
            "row {row} was measured before and not again"
        );
    }
    assert_ne!(time(&data_set.launches[149]), "12.", "what was torn is measured again");

    // More of the same: what there is stays.
    output(&mut collect(&sandbox, 160, &[]), 0);
    assert_eq!(self::data_set(&sandbox).launches[..150], data_set.launches);
    assert_eq!(self::data_set(&sandbox).launches.len(), 160);
}

#[test]
fn an_interrupted_collection_leaves_what_it_has() {
    let sandbox = Sandbox::new();
    let mut stopped = Running::start(&mut collect(&sandbox, 4000, &[]));
    wait_until("some rows are measured", || partial_times(&sandbox).len() > 20);
    send(stopped.0.id(), libc::SIGINT);
    assert_eq!(stopped.0.wait().unwrap().code(), Some(1));
    let data_set = data_set(&sandbox);
    assert!(data_set.launches.len() > 20 && data_set.launches.len() < 4000);
    assert!(!data_set.manifest.complete && data_set.manifest.counts.rows == data_set.launches.len() as u64);
}

/// A program that takes the profiler's arguments, runs what it is given, and prints a table of the
/// batch with what it was asked for. It ends at the first launch of the kernel that `FAIL_AT`
/// names, and notes in `asked` how many launches it was asked for what metrics of.
fn stand_in(sandbox: &Sandbox) -> String {
    const SCRIPT: &str = r#"#!/usr/bin/env bash
[ "$1" = --version ] && { echo "Version 1.2.3"; exit; }
while [ "$1" != --log-file ]; do
  [ "$1" = --metrics ] && metrics=$2
  shift
done
log=$2; shift 2
[ -z "$NO_PERMISSION" ] || { echo "==ERROR== ERR_NVGPUCTRPERM: no permission" > "$log"; exit 1; }
batch=${*: -1}
"$@" || exit 3
echo "$(($(wc -l < "$batch") - 1)) $metrics" >> "${0%/*}/asked"
{
  echo '==PROF== Connected to process 1'
  awk -F, -v fail="$FAIL_AT" -v metrics="$metrics" '
    BEGIN {
      count = split(metrics, names, ",")
      printf "\"ID\",\"Kernel Name\",\"Block Size\",\"Grid Size\",\"profiler__replayer_passes\""
      for (i = 1; i <= count; i++) printf ",\"%s\"", names[i]
      print "\n\"\",\"\",\"\",\"\",\"pass\""
      value["gpu__time_duration.sum"] = "2,500"
      value["sm__cycles_active.avg"] = "1,000"
      value["sm__throughput.avg.pct_of_peak_sustained_elapsed"] = "62.5"
      value["gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"] = "31.25"
    }
    NR > 1 && $2 == fail { exit 9 }
    NR > 1 {
      printf "\"%d\",\"%s\",\"(%d, %d, %d)\",\"(%d, %d, %d)\",\"%d\"", NR - 2, $2, $8, $9, $10, $5, $6, $7, (count > 2) ? 1 : 9
      value["sm__warps_active.avg.pct_of_peak_sustained_active"] = ($1 % 100) ".5"
      for (i = 1; i <= count; i++) printf ",\"%s\"", (names[i] in value) ? value[names[i]] : "n/a"
      print ""
    }
  ' "$batch"
} > "$log" || { echo "==ERROR== it does not like this kernel" >> "$log"; exit 9; }
"#;
    let path = sandbox.path("ncu");
    std::fs::write(&path, SCRIPT).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn counters_find_their_rows_and_failures_their_reasons() {
    let sandbox = Sandbox::new();
    let ncu = stand_in(&sandbox);
    output(collect(&sandbox, 21, &["--ncu", &ncu]).env("FAIL_AT", "scan_shuffle"), 0);
    let data_set = data_set(&sandbox);
    assert!(data_set.manifest.complete);
    assert_eq!(data_set.manifest.counters.as_ref().unwrap().tool, "Nsight Compute 1.2.3");
    assert_eq!(data_set.manifest.counters.as_ref().unwrap().passes, Some(1));
    for row in &data_set.launches {
        assert!(row.timing.time_us.is_some() || row.missing.contains("too short"), "times are kept");
        if row.kernel == "scan_shuffle" {
            assert_eq!(row.counters.achieved_occupancy_percent, None);
            assert!(row.missing.contains("it does not like this kernel"), "{}", row.missing);
        } else {
            assert_eq!(row.counters.achieved_occupancy_percent, Some((row.row % 100) as f64 + 0.5));
            assert_eq!(row.counters.sm_active_cycles, Some(1000.0));
        }
    }
    assert!(data_set.launches.iter().any(|row| row.kernel == "scan_shuffle"));
}

/// Launches and metrics of each run of the stand-in since the last time.
fn asked(sandbox: &Sandbox) -> Vec<(u32, String)> {
    let text = std::fs::read_to_string(sandbox.path("asked")).unwrap_or_default();
    let _ = std::fs::remove_file(sandbox.path("asked"));
    let pair =
        |line: &str| line.split_once(' ').map(|(rows, metrics)| (rows.parse().unwrap(), metrics.to_owned()));
    text.lines().filter_map(pair).collect()
}

#[test]
fn throughput_is_a_stage_of_its_own_that_can_be_taken_later() {
    let sandbox = Sandbox::new();
    let ncu = stand_in(&sandbox);
    output(&mut collect(&sandbox, 40, &["--ncu", &ncu]), 0);
    let before = data_set(&sandbox);
    assert_eq!((before.manifest.counts.counted, before.manifest.counts.throughput), (40, 0));
    assert_eq!(before.manifest.throughput, None);
    let counters = METRICS.join(",");
    let runs = asked(&sandbox);
    assert!(runs.len() > 1 && runs.iter().all(|(_, metrics)| *metrics == counters), "{runs:?}");
    assert_eq!(before.manifest.empty_kernel_profiled_us, [2.5], "the first run is of empty kernels");

    // The same with more: only throughput is counted, and nothing else changes.
    output(collect(&sandbox, 40, &["--ncu", &ncu, "--throughput"]).env("FAIL_AT", "scan_shuffle"), 0);
    let after = data_set(&sandbox);
    let throughput = THROUGHPUT.join(",");
    assert!(asked(&sandbox).iter().all(|(_, metrics)| *metrics == throughput));
    let used = after.manifest.throughput.as_ref().unwrap();
    assert_eq!((used.passes, &used.metrics[..]), (Some(9), &THROUGHPUT.map(str::to_owned)[..]));
    assert_eq!(after.manifest.counters, before.manifest.counters);
    assert!(after.manifest.complete);
    let failed = |row: &&LaunchRow| row.kernel == "scan_shuffle";
    assert!(after.launches.iter().filter(failed).count() > 0);
    assert_eq!(
        after.manifest.counts.throughput as usize,
        40 - after.launches.iter().filter(failed).count(),
        "{:?}",
        after.manifest.counts
    );
    for (mut row, old) in after.launches.into_iter().zip(before.launches) {
        let found = [row.counters.sm_throughput_percent, row.counters.memory_throughput_percent];
        if failed(&&row) {
            assert!(row.missing.contains("throughput: ncu ended with"), "{}", row.missing);
            row.missing.clone_from(&old.missing);
        } else {
            assert_eq!(found, [Some(62.5), Some(31.25)]);
        }
        (row.counters.sm_throughput_percent, row.counters.memory_throughput_percent) = (None, None);
        assert_eq!(row, old);
    }

    // All is known, with and without the wish; more rows get all of it.
    output(&mut collect(&sandbox, 40, &["--ncu", &ncu, "--throughput"]), 0);
    output(&mut collect(&sandbox, 40, &["--ncu", &ncu]), 0);
    assert_eq!(asked(&sandbox), []);
    let document = output(&mut collect(&sandbox, 50, &["--ncu", &ncu, "--throughput", "--json"]), 0);
    let runs = asked(&sandbox);
    assert!(runs.contains(&(10, counters)) && runs.contains(&(10, throughput)), "{runs:?}");
    let document: serde_json::Value = serde_json::from_slice(&document.stdout).unwrap();
    assert_eq!(document["counted"], 50);
    assert_eq!(document["throughput"], data_set(&sandbox).manifest.counts.throughput);
}

#[test]
fn counters_that_nobody_may_read_are_said_once_and_can_be_taken_later() {
    let sandbox = Sandbox::new();
    let ncu = stand_in(&sandbox);
    let refused = || {
        let mut command = collect(&sandbox, 14, &["--ncu", &ncu]);
        command.env("NO_PERMISSION", "1");
        command
    };
    let said = text(&output(&mut refused(), 0).stderr);
    assert_eq!(said.matches("no counters from here: ncu ended with").count(), 1, "{said}");
    assert!(said.contains("ERR_NVGPUCTRPERM"), "{said}");
    assert_eq!(data_set(&sandbox).manifest.counters, None);
    assert_eq!(data_set(&sandbox).manifest.counts.counted, 0);
    output(refused().args(["--counters", "require"]), 125);
    output(&mut collect(&sandbox, 14, &["--ncu", &ncu]), 0);
    assert_eq!(data_set(&sandbox).manifest.counts.counted, 14);
}

#[test]
fn a_profiler_that_never_works_is_given_up() {
    let sandbox = Sandbox::new();
    let nothing = sandbox.path("ncu");
    std::fs::write(&nothing, "#!/bin/sh\n[ \"$1\" = --version ]\n").unwrap();
    std::fs::set_permissions(&nothing, std::fs::Permissions::from_mode(0o755)).unwrap();
    let said = output(&mut collect(&sandbox, 20, &["--ncu", nothing.to_str().unwrap()]), 0);
    assert!(text(&said.stderr).contains("no counters from here"), "{}", text(&said.stderr));
    let data_set = data_set(&sandbox);
    let tried = data_set.launches.iter().filter(|row| row.missing.contains("counters: ")).count();
    assert_eq!((data_set.launches.len(), tried), (20, 3));
}

#[test]
fn what_cannot_be_collected_is_refused() {
    let sandbox = Sandbox::new();
    output(&mut collect(&sandbox, 8, &[]), 0);
    for (options, code, expected) in [
        (&["--seed", "2"][..], 125, "its seed is 1, not 2"),
        (&["--families", "copy"], 125, "its list of families is"),
        (&["--families", "cpoy"], 125, "there is no family `cpoy`"),
        (&["--counters", "require"], 125, "the CPU device has no counters"),
        (&["--counters", "off", "--throughput"], 125, "do without --throughput or --counters off"),
        (&["--device", "gpu:x"], 2, "`x` is not the number of a GPU"),
    ] {
        let mut command = sandbox.apex(&["collect", "-o", "d", "--rows", "8"]);
        let refused = output(command.env("APEX_COLLECT_DEVICE", "cpu").args(options), code);
        assert!(text(&refused.stderr).contains(expected), "{options:?}: {}", text(&refused.stderr));
    }
    assert_eq!(data_set(&sandbox).launches.len(), 8, "nothing was changed");
    std::fs::create_dir(sandbox.path("other")).unwrap();
    std::fs::write(sandbox.path("other/file"), "").unwrap();
    for (folder, expected) in
        [("other", "other holds other files"), ("other/file", "file is not a folder: name a new one")]
    {
        let refused = output(&mut sandbox.apex(&["collect", "-o", folder, "--device", "cpu"]), 125);
        assert!(text(&refused.stderr).contains(expected), "{}", text(&refused.stderr));
    }
    assert_eq!(std::fs::read_dir(sandbox.path("other")).unwrap().count(), 1, "nothing was added");
}

#[test]
fn a_folder_has_one_collection_at_a_time() {
    let sandbox = Sandbox::new();
    let mut first = Running::start(&mut collect(&sandbox, 4000, &[]));
    wait_until("some rows are measured", || partial_times(&sandbox).len() > 2);
    let refused = output(&mut collect(&sandbox, 4000, &[]), 125);
    assert!(text(&refused.stderr).contains("another `apex collect` is at work"), "{}", text(&refused.stderr));
    first.0.kill().unwrap();
    first.0.wait().unwrap();
}

#[test]
fn damaged_data_sets_are_refused_and_named() {
    let sandbox = Sandbox::new();
    output(&mut collect(&sandbox, 8, &[]), 0);
    let damage = |file: &str, change: &dyn Fn(String) -> String| {
        let path = sandbox.path("d").join(file);
        let good = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, change(good.clone())).unwrap();
        let error = DataSet::read(&sandbox.path("d")).unwrap_err().to_string();
        std::fs::write(&path, good).unwrap();
        assert!(error.contains(file), "{error}");
        error
    };
    let cut = |text: String| text[..text.len() - 7].to_owned();
    assert!(damage("launches.csv", &cut).contains("line 9: the file ends in the middle of this line"));
    assert!(damage("kernels.csv", &cut).contains("the file ends in the middle of this line"));
    assert!(damage("manifest.json", &cut).contains("not JSON"));
    let without_last = |text: String| text.lines().take(8).map(|line| format!("{line}\n")).collect();
    assert!(damage("launches.csv", &without_last).contains("7 launches and manifest.json says 8"));
    let newer = |text: String| text.replacen("\"version\": 1", "\"version\": 2", 1);
    assert!(damage("manifest.json", &newer).contains("use a newer APEX"));
    let foreign = |_| "{\"format\": \"something else\"}".to_owned();
    assert!(damage("manifest.json", &foreign).contains("no data set of APEX"));
    let letters = |text: String| text.replacen("0,copy_f32,", "0,copy_f32,x", 1);
    assert!(damage("launches.csv", &letters).contains("line 2: column n: `x"));
    let stranger = |text: String| text.replacen("copy_f32", "copy_f33", 1);
    assert!(damage("launches.csv", &stranger).contains("`copy_f33`, which kernels.csv does not have"));
    assert!(DataSet::read(&sandbox.path("d")).is_ok());
}

#[test]
fn the_list_names_families_and_kernels() {
    let sandbox = Sandbox::new();
    let list = text(&output(&mut sandbox.apex(&["collect", "--list"]), 0).stdout);
    assert!(list.lines().count() >= 30 && list.contains("transpose        transpose_naive"), "{list}");
    let document = sandbox.json(&["collect", "--list", "--json"]);
    assert_eq!(document["families"].as_array().unwrap().len(), list.lines().count());
}
