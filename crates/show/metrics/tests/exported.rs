//! The exported metrics of a session, and the files for Prometheus and Grafana that are made for
//! them.

use apex_live::Follower;
use apex_machine::{Device, DeviceRecord, Record, Writer};
use apex_metrics::{Exporter, METRICS, MetricKind};
use apex_trace::layout::{MemoryKind, flags};
use apex_untrusted::Folder;
use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use test_process::Command;
use test_session::{LEGACY, Recording};

const UUID: &str = "GPU-30313233-3435-3637-3839-616263646566";

/// Steps of 10 ms in which a kernel runs for 1 ms.
fn record(recording: &mut Recording, name: &str, steps: u32) {
    let function = recording.function(name);
    let config = recording.config(function, 264, 256);
    for _ in 0..steps {
        let start = recording.launch(config, LEGACY);
        recording.timing(config, LEGACY, start, 1_000_000, flags::STREAM_WAS_IDLE);
        recording.now += 10_000_000;
    }
}

fn follower(dir: &Path) -> Follower {
    Follower::new(dir, Duration::ZERO)
}

/// The value of a series that is written so.
fn value(text: &str, series: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

#[test]
fn a_session_adds_up_and_a_look_at_its_rest_adds_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let mut recording = Recording::new(dir.path());
    recording.allocate(MemoryKind::Device, 0x1000, 4096, 1_000);
    record(&mut recording, "first", 100);
    recording.copy(MemoryKind::Device, MemoryKind::Pinned, 1000, false, 10_000);
    test_session::open(&dir);
    let (mut exporter, mut follower) = (Exporter::new(1), follower(dir.path()));
    exporter.look("s", &mut follower).unwrap();
    let before = exporter.text("1.2.3");
    let launches = |text: &str, name: &str, operation: &str| {
        let labels = format!("session=\"s\",UUID=\"{UUID}\",kernel=\"{name}\",operation=\"{operation}\"");
        value(text, &format!("apex_kernel_launches_total{{{labels}}}"))
    };
    assert_eq!(launches(&before, "first", "unknown"), Some(100.0));
    assert_eq!(value(&before, "apex_build_info{version=\"1.2.3\"}"), Some(1.0));
    let copied = "apex_copied_bytes_total{session=\"s\",direction=\"host_to_device\"}";
    assert_eq!(value(&before, copied), Some(1000.0));
    assert_eq!(value(&before, "apex_allocations_total{session=\"s\",memory=\"device\"}"), Some(1.0));

    // The second kernel has more launches, but the series are given away.
    record(&mut recording, "second", 200);
    recording.exit();
    exporter.look("s", &mut follower).unwrap();
    let after = exporter.text("1.2.3");
    assert_eq!(launches(&after, "first", "unknown"), Some(100.0));
    assert_eq!(launches(&after, "other", "other"), Some(200.0));
    assert_counters_grow(&before, &after);
    exporter.look("s", &mut follower).unwrap();
    assert_eq!(exporter.text("1.2.3"), after, "nothing happened");
}

/// Adds readings of the counters of the session's device and of another one: 4.5 J in all, and in
/// between the driver is loaded again, and counts from zero.
fn read_energy(dir: &TempDir) {
    let begin = apex_profile::origin_ns(&test_session::open(dir));
    let mut writer = Writer::new(Folder::open(dir.path()).unwrap(), 1 << 20);
    for uuid in [UUID, "GPU-other"] {
        writer.device(&Device { uuid: uuid.into(), ..Device::default() }).unwrap();
    }
    let counted = [[(1, 5_000), (2, 6_500)], [(2, 6_500), (3, 9_000)], [(4, 100), (5, 600)]];
    for (energy, at) in counted.into_iter().zip(0..) {
        let energy: Vec<(u64, u64)> = energy.map(|(at, millijoules)| (begin + at, millijoules)).into();
        let of = |device| DeviceRecord { device, energy: energy.clone(), ..DeviceRecord::default() };
        let (from_ns, devices) = (begin + at * 1_000_000, vec![of(0), of(1)]);
        writer.record(Record { from_ns, to_ns: from_ns + 1_000_000, devices, ..Record::default() }).unwrap();
    }
}

#[test]
fn the_energy_counter_of_the_device_is_followed() {
    let dir = tempfile::tempdir().unwrap();
    let mut recording = Recording::new(dir.path());
    record(&mut recording, "f", 100);
    recording.exit();
    read_energy(&dir);
    let mut exporter = Exporter::new(1);
    exporter.look("s", &mut follower(dir.path())).unwrap();
    let text = exporter.text("1");
    let joules =
        |uuid| value(&text, &format!("apex_gpu_energy_joules_total{{session=\"s\",UUID=\"{uuid}\"}}"));
    assert_eq!(joules(UUID), Some(4.5), "{text}");
    assert_eq!(joules("GPU-other"), None, "the session does not use it");
}

#[test]
fn the_accounts_of_looks_add_up_to_those_of_the_session() {
    let dir = tempfile::tempdir().unwrap();
    let mut recording = Recording::new(dir.path());
    record(&mut recording, "f", 300);
    recording.exit();
    test_session::open(&dir);
    let mut exporter = Exporter::new(1);
    exporter.look("s", &mut follower(dir.path())).unwrap();
    let text = exporter.text("1");
    let device = |metric: &str, label: &str| {
        value(&text, &format!("apex_gpu_{metric}_seconds_total{{session=\"s\",UUID=\"{UUID}\"{label}}}"))
            .unwrap()
    };
    let (busy, idle) = (device("busy", ",work=\"kernels\""), device("idle", ",cause=\"host_code\""));
    assert!((busy - 0.3).abs() < 0.01, "{busy}");
    assert!((idle - 2.7).abs() < 0.05, "{idle}");
    assert!(device("unknown", "") < 0.001);
}

/// Every counter of `before` is in `after`, and no smaller.
fn assert_counters_grow(before: &str, after: &str) {
    let gauges: BTreeSet<_> =
        METRICS.iter().filter(|metric| metric.kind == MetricKind::Gauge).map(|metric| metric.name).collect();
    for line in before.lines().filter(|line| !line.starts_with('#')) {
        let (series, old) = line.rsplit_once(' ').unwrap();
        if gauges.contains(series.split('{').next().unwrap()) {
            continue;
        }
        let new = value(after, series).unwrap_or_else(|| panic!("{series} is gone"));
        assert!(new >= old.parse().unwrap(), "{series}: {new} after {old}");
    }
}

#[test]
fn foreign_names_stay_in_their_labels() {
    let dir = tempfile::tempdir().unwrap();
    let mut recording = Recording::new(dir.path());
    record(&mut recording, "a\"} 1\nevil{x=\"\\\u{1b}[31m", 3);
    recording.exit();
    test_session::open(&dir);
    let mut exporter = Exporter::new(10);
    exporter.look("a\"\n\\", &mut follower(dir.path())).unwrap();
    let text = exporter.text("1");
    assert!(text.lines().all(|line| line.starts_with('#') || line.starts_with("apex_")), "{text}");
    assert!(!text.contains('\u{1b}'));
    promtool(&["check", "metrics"], &text, "foreign_names_stay_in_their_labels");
}

#[test]
fn promtool_finds_nothing_to_say() {
    let dir = tempfile::tempdir().unwrap();
    let mut recording = Recording::new(dir.path());
    record(&mut recording, "f", 30);
    recording.allocate(MemoryKind::Pool, 0x10, 10, 1_000);
    recording.copy(MemoryKind::Pageable, MemoryKind::Device, 10, false, 1_000);
    recording.exit();
    read_energy(&dir);
    let mut exporter = Exporter::new(10);
    exporter.look("s", &mut follower(dir.path())).unwrap();
    let text = exporter.text("1");
    for metric in METRICS {
        assert!(text.contains(&format!("# TYPE {} {}", metric.name, metric.kind.name())), "{}", metric.name);
    }
    promtool(&["check", "metrics"], &text, "promtool_finds_nothing_to_say");
}

fn contrib(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../contrib/metrics").join(name)
}

#[test]
fn rules_and_dashboard_use_metrics_that_there_are() {
    for name in ["grafana.json", "alerts.yml", "alerts_test.yml"] {
        let text = std::fs::read_to_string(contrib(name)).unwrap();
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let used: BTreeSet<_> = words.filter(|word| word.starts_with("apex_")).collect();
        assert!(!used.is_empty());
        for word in used {
            assert!(METRICS.iter().any(|metric| metric.name == word), "{name} uses {word}");
        }
    }
}

#[test]
fn rules_are_sound_and_fire_where_they_should() {
    for (name, check) in [("alerts.yml", "check"), ("alerts_test.yml", "test")] {
        let path = contrib(name);
        promtool(&[check, "rules", path.to_str().unwrap()], "", "rules_are_sound_and_fire_where_they_should");
    }
}

/// Runs promtool, which has to find nothing wrong.
fn promtool(arguments: &[&str], input: &str, test: &str) {
    let mut command = Command::new("promtool");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        return test_skip::missing_dependency(format!("{test} needs promtool"));
    };
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success(), "promtool {}: {said:?}", arguments.join(" "));
}
