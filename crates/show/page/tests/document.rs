//! The document: figures are the profile's, lists are bounded, and nothing foreign is markup.

use apex_advice::{Advice, Options, advise};
use apex_machine::{DeviceRecord, Machine, Quantity, Readings, Record};
use apex_page::{MOST_BYTES, Source, html};
use apex_profile::{
    Activity, CallStack, Device, Frame, Kernel, Launches, MemoryOverTime, OverTime, PlaceOverTime,
    Prediction, Process, Profile, Range, StackCount, Work,
};
use serde_json::Value;
use test_session::{LEGACY, Recording};

/// The page of a profile, and the document in it.
fn page(profile: &Profile, advice: &Advice, words: &[String]) -> (String, Value) {
    page_with(profile, advice, words, &Machine::default())
}

fn page_with(profile: &Profile, advice: &Advice, words: &[String], machine: &Machine) -> (String, Value) {
    let page = html(&Source {
        session: "a session",
        meta: None,
        whole: profile,
        job: profile,
        selected: profile,
        phase: None,
        steps: None,
        iterations: None,
        advice,
        verdict: words.to_vec(),
        notes: words.to_vec(),
        fast: words.to_vec(),
        machine,
        origin_ns: 5_000_000_000,
        tried: &[],
    });
    let (_, rest) = page.split_once("<script id=\"apex-document\" type=\"application/json\">").unwrap();
    let (json, _) = rest.split_once("</script>").unwrap();
    let document = serde_json::from_str(json).unwrap();
    (page, document)
}

fn profile(program: impl FnOnce(&mut Recording)) -> Profile {
    test_session::of_program(program, Profile::from_session)
}

/// Ends the element, makes elements, reverses what follows, is long.
fn hostile(number: usize) -> String {
    let long = "<\u{202e}".repeat(2_000);
    format!("</script><img src=x onerror=alert({number})><!--\u{1b}[2J\u{2028}{long}")
}

#[test]
fn figures_are_the_profiles() {
    let profile = profile(|recording| {
        let function = recording.function("scale");
        let [small, large] = [64, 1000].map(|blocks| recording.config(function, blocks, 256));
        for _ in 0..20 {
            recording.launch(small, LEGACY);
        }
        recording.launch(large, LEGACY);
    });
    let (_, document) = page(&profile, &advise(&profile, &Options::default()), &[]);
    assert_eq!(document["schema"], "apex.page/1");
    let rows = document["kernels"]["list"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    for row in rows {
        let kernel = &profile.kernels[row["kernel"].as_u64().unwrap() as usize];
        assert_eq!(row["launches"], kernel.launches.ran());
        assert_eq!(row["cpu"]["total_ns"], kernel.cpu.total_ns);
        assert_eq!(row["geometry"]["waves"], kernel.geometry.unwrap().waves.waves);
    }
    let device = &document["devices"]["list"][0];
    assert_eq!(device["span_ns"], profile.activities[0].span_ns);
    let lines = device["over_time"]["lines"].as_array().unwrap();
    let share = |line: &Value, part: usize| line["shares"][part].as_u64().unwrap();
    for part in 0..OverTime::PARTS {
        let whole: u64 = lines.iter().map(|line| share(line, part)).sum();
        assert!((9_990..=10_010).contains(&whole), "part {part}: {whole} ten thousandths");
    }
}

#[test]
fn a_goal_has_its_direction() {
    let profile = profile(|recording| {
        let function = recording.function("short");
        let config = recording.config(function, 40, 100);
        for _ in 0..200 {
            recording.timed(config, LEGACY, 2_000);
        }
    });
    let (_, document) = page(&profile, &advise(&profile, &Options::default()), &[]);
    let findings = document["advice"]["findings"].as_array().unwrap();
    let of = |finding: &Value| {
        let kernels = finding["kernels"].as_array().unwrap();
        let all = kernels.iter().chain([finding]).flat_map(|of| of["evidence"].as_array().unwrap().clone());
        all.collect::<Vec<Value>>()
    };
    let evidence: Vec<Value> = findings.iter().flat_map(of).collect();
    assert!(evidence.iter().any(|value| value["goal"].is_number()), "{evidence:?}");
    for value in evidence {
        let direction = value["direction"].as_str();
        assert_eq!(value["goal"].is_number(), matches!(direction, Some("increase" | "decrease")), "{value}");
    }
}

#[test]
fn a_roofline_has_the_roofs_of_the_device_and_what_a_launch_executes() {
    let mut profile = profile(|recording| {
        let function = recording.function("scale");
        let config = recording.config(function, 64, 256);
        recording.launch(config, LEGACY);
    });
    let device = apex_predict::Device::h200();
    let case = apex_predict::Case::of_launch(profile.kernels[0].launch);
    let models = apex_predict::Models::shipped();
    let said = apex_predict_session::recorded::prediction(&models, &device, &case, None).unwrap();
    assert_eq!(said.work, None, "nothing is known of its code");
    let work = Work { warp_instructions: 5120.0, global_bytes: 131_072.0, assumed: false };
    profile.kernels[0].prediction = Some(Prediction { work: Some(work), ..said });
    // 132 multiprocessors issue four instructions in each of 1.98 cycles of a nanosecond.
    profile.devices[0].name = device.name;
    profile.devices[0].attributes = attributes_of_h200();
    let (_, document) = page(&profile, &advise(&profile, &Options::default()), &[]);
    let roofs = &document["machine"]["devices"][0]["roofs"];
    assert!((roofs["warp_instructions"].as_f64().unwrap() - 1045.44).abs() < 1e-6, "{roofs}");
    assert!((roofs["memory_bytes"].as_f64().unwrap() - 4814.304).abs() < 1e-6, "{roofs}");
    let row = &document["kernels"]["list"][0];
    assert_eq!(row["prediction"]["work"]["global_bytes"], 131_072.0);
    assert_eq!(row["id"].as_str().unwrap(), profile.kernels[0].id());
}

/// Pairs of `CUdevice_attribute` and value.
fn attributes_of_h200() -> Vec<(u32, i32)> {
    let csv = include_str!("../../../../data/h200/device/attributes.csv");
    let pair = |line: &str| line.split_once(',').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    csv.lines().filter_map(pair).collect()
}

/// A machine of so many devices in so many seconds, whose power is its second, in watts.
fn machine(devices: usize, seconds: u64, name: &str) -> Machine {
    let device = |number: usize| apex_machine::Device {
        uuid: format!("GPU-{number}"),
        name: name.to_owned(),
        ..apex_machine::Device::default()
    };
    let record = |second: u64| {
        let mut readings = Readings::default();
        for &quantity in Quantity::ALL {
            readings.set(quantity, (second % 100) as f64 / 100.0);
        }
        readings.set(Quantity::Power, second as f64);
        readings.set(Quantity::ThermalSlowdown, 0.0);
        let devices = (0..devices).map(|device| DeviceRecord {
            device,
            readings: readings.clone(),
            ..DeviceRecord::default()
        });
        let [from_ns, to_ns] = [second + 5, second + 6].map(|second| second * 1_000_000_000);
        Record { from_ns, to_ns, cost_ns: 1_000_000, host: readings.clone(), devices: devices.collect() }
    };
    Machine {
        devices: (0..devices).map(device).collect(),
        records: (0..seconds).map(record).collect(),
        problems: Vec::new(),
    }
}

#[test]
fn the_machine_over_time_keeps_extremes_and_has_a_bounded_length() {
    let profile = profile(|_| {});
    let advice = advise(&profile, &Options::default());
    assert_eq!(page(&profile, &advice, &[]).1["machine"]["over_time"], Value::Null);
    for (devices, seconds) in [(1, 5), (2, 10_000), (64, 10_000)] {
        let (page, document) = page_with(&profile, &advice, &[], &machine(devices, seconds, &hostile(0)));
        assert!(page.len() < MOST_BYTES && !page.contains("<img"));
        let over_time = &document["machine"]["over_time"];
        let ends = over_time["to_ns"].as_array().unwrap();
        assert_eq!((over_time["from_ns"].as_f64(), over_time["joined"].as_bool()), (Some(0.0), Some(false)));
        assert_eq!(ends.last().unwrap().as_f64(), Some(seconds as f64 * 1e9));
        let shown = over_time["devices"].as_array().unwrap();
        assert_eq!(shown.len() as u64 + over_time["devices_left_out"].as_u64().unwrap(), devices as u64);
        let series = shown[0]["series"].as_array().unwrap();
        assert!(series.iter().all(|series| series["means"].as_array().unwrap().len() == ends.len()));
        assert!(!series.iter().any(|series| series["quantity"] == "thermal_slowdown"), "it is always 0");
        let power = series.iter().find(|series| series["quantity"] == "power_w").unwrap();
        assert_eq!(power["most"], (seconds - 1) as f64);
        assert_eq!(power["leasts"].is_null(), ends.len() as u64 == seconds);
        if let Some(mosts) = power["mosts"].as_array() {
            let most = mosts.iter().filter_map(Value::as_f64).fold(0.0, f64::max);
            assert_eq!(most, (seconds - 1) as f64);
        }
    }
}

#[test]
fn the_energy_is_told_and_bounded() {
    let mut profile = Profile::default();
    for number in 0..20 {
        let (name, uuid) = (hostile(number), format!("GPU-{number}"));
        profile.devices.push(Device { name, uuid, ..Device::default() });
        profile.activities.push(Activity { device: Some(number), span_ns: 90e9, ..Activity::default() });
    }
    let advice = advise(&profile, &Options::default());
    assert_eq!(page(&profile, &advice, &[]).1["machine"]["energy"], serde_json::json!([]));
    let (page, document) = page_with(&profile, &advice, &[], &machine(20, 100, "device"));
    assert!(page.len() < MOST_BYTES && !page.contains("<img"));
    let energy = document["machine"]["energy"].as_array().unwrap();
    assert_eq!(energy.len(), 9, "eight devices, and how many more there are");
    assert!(energy.iter().all(|sentence| sentence.as_str().unwrap().starts_with("Energy of ")), "{energy:?}");
}

#[test]
fn call_paths_hold_all_launches() {
    let frame = |file: &str, line| Frame { file: file.into(), line: Some(line), function: "f".into() };
    let stack = |frames: &[Frame]| CallStack { frames: frames.to_vec(), ..CallStack::default() };
    let (inner, outer) = (frame("/home/me/a.py", 3), frame("/home/me/main.py", 9));
    let library = frame("/usr/lib/python3.12/site-packages/torch/nn.py", 1);
    let kernel = |calls, stacks: &[(usize, u64)]| Kernel {
        short_name: format!("kernel of {calls}"),
        launches: Launches { calls, ..Launches::default() },
        stacks: stacks.iter().map(|&(stack, sampled)| StackCount { stack, sampled, first_seen: 1 }).collect(),
        ..Kernel::default()
    };
    let profile = Profile {
        call_stacks: vec![
            stack(&[inner.clone(), outer.clone()]),
            stack(&[library, inner, outer]),
            CallStack { thread: "pt_autograd_0".into(), ..CallStack::default() },
        ],
        kernels: vec![
            kernel(100, &[(0, 1), (1, 3)]),
            kernel(50, &[(2, 5)]),
            kernel(7, &[]),
            kernel(3, &[(0, 0), (1, 0)]),
        ],
        ..Profile::default()
    };
    let (_, document) = page(&profile, &Advice::default(), &[]);
    let root = &document["places"]["root"];
    assert_eq!(root["launches"], 160.0);
    let child = |of: &Value, name: &str| -> Value {
        let found = of["children"].as_array().unwrap().iter().find(|child| child["name"] == name);
        found.unwrap_or_else(|| panic!("no {name} in {of}")).clone()
    };
    let inner = child(&child(root, "main.py:9 f"), "a.py:3 f");
    assert_eq!((inner["launches"].as_f64(), &inner["kind"]), (Some(100.0), &Value::from("own")));
    assert_eq!(child(&inner, "kernel of 100")["launches"], 25.0);
    let library = child(&inner, "nn.py:1 f");
    assert_eq!((library["launches"].as_f64(), &library["kind"]), (Some(75.0), &Value::from("library")));
    assert_eq!(child(root, "autograd (backward pass)")["launches"], 50.0);
    assert_eq!(child(root, "unknown: no call stack was read")["launches"], 7.0);
    assert_eq!(child(root, "several places, not sampled")["launches"], 3.0);
}

/// A profile in which every list is longer than a page holds, and every name is hostile.
fn enormous() -> Profile {
    let frame = |at: usize| Frame { file: hostile(at), line: Some(at as u32), function: format!("f{at}") };
    let kernels = (0..2_000).map(|at| Kernel {
        name: hostile(at),
        short_name: hostile(at),
        symbol: format!("k{at}"),
        launches: Launches { calls: 1 + at as u64, ..Launches::default() },
        stacks: vec![StackCount { stack: at % 300, sampled: 1, first_seen: 0 }],
        ..Kernel::default()
    });
    Profile {
        devices: (0..100)
            .map(|at| Device { name: hostile(at), uuid: hostile(at), ..Device::default() })
            .collect(),
        processes: (0..500)
            .map(|at| Process { pid: at, executable: hostile(at as usize), ..Process::default() })
            .collect(),
        kernels: kernels.collect(),
        call_stacks: (0..300)
            .map(|at| CallStack {
                frames: (0..200).map(|depth| frame(at * depth)).collect(),
                ..CallStack::default()
            })
            .collect(),
        ranges: (0..900)
            .map(|at| Range { name: hostile(at), domain: hostile(at), ..Range::default() })
            .collect(),
        activities: (0..200)
            .map(|at| Activity {
                process: at,
                device: Some(at % 100),
                span_ns: 1e9,
                over_time: Some(OverTime {
                    part_ns: 1e9 / OverTime::PARTS as f64,
                    kernels: vec![1_234_567; OverTime::PARTS],
                    copies: vec![2_345_678; OverTime::PARTS],
                    unknown: vec![586_421; OverTime::PARTS],
                    ..OverTime::default()
                }),
                ..Activity::default()
            })
            .collect(),
        memory_over_time: (0..400)
            .map(|at| MemoryOverTime {
                process: at,
                on_host: false,
                start_ns: 0.0,
                part_ns: 1e6,
                peak_bytes: u64::MAX,
                peak_at_ns: 0,
                most: vec![u64::MAX; 240],
                least: vec![u64::MAX; 240],
                allocated: vec![u64::MAX; 240],
                inferred: vec![u64::MAX; 240],
                places: (0..8)
                    .map(|at| PlaceOverTime {
                        place: hostile(at),
                        peak_bytes: u64::MAX,
                        bytes: vec![u64::MAX; 240],
                    })
                    .collect(),
                rest: vec![u64::MAX; 240],
            })
            .collect(),
        ..Profile::default()
    }
}

#[test]
fn a_page_is_small_and_foreign_text_is_no_markup() {
    let profile = enormous();
    let words: Vec<String> = (0..200).map(hostile).collect();
    let (page, document) = page(&profile, &Advice::default(), &words);
    assert!(page.len() <= MOST_BYTES, "{} bytes", page.len());
    assert!(!page.contains("<img"), "a name is markup");
    assert!(
        !page.contains(['\u{202e}', '\u{1b}', '\u{2028}']),
        "a character that nobody sees is in the page"
    );
    let kernels = &document["kernels"];
    let listed = kernels["list"].as_array().unwrap();
    assert!(!listed.is_empty());
    assert_eq!(listed.len() as u64 + kernels["left_out"]["kernels"].as_u64().unwrap(), 2_000);
    let launches: u64 = listed.iter().map(|row| row["launches"].as_u64().unwrap()).sum();
    assert_eq!(launches + kernels["left_out"]["launches"].as_u64().unwrap(), 2_000 * 2_001 / 2);
    assert!(
        listed[0]["name"].as_str().unwrap().starts_with("</script><img src=x onerror=alert(0)><!--\\x1b[2J")
    );
    let devices = &document["devices"];
    let shown = devices["list"].as_array().unwrap().len() as u64;
    assert_eq!(shown + devices["left_out"].as_u64().unwrap(), 200);
    let memory = &document["memory"];
    let shown = memory["over_time"].as_array().unwrap().len() as u64;
    assert!(shown > 0 && shown + memory["over_time_left_out"].as_u64().unwrap() == 400);
    let whole = document["places"]["root"]["launches"].as_f64().unwrap();
    assert!((whole - 2_001_000.0).abs() < 1e-6 * whole, "the tree holds all launches: {whole}");
}
