//! The state of the machine while a program ran: on a stand-in for NVML, with the CPU device in the
//! place of a GPU's driver.

use crate::common::{Running, Sandbox, cpu_device, output, program, text, wait_until};
use apex_machine::{FILE, Machine, Quantity};
use serde_json::Value;
use std::path::Path;

/// Returns the state of the machine once the session has `records` records of it.
fn wait_for(session: &Path, records: usize) -> Machine {
    wait_until("the machine is read", || Machine::read(session).records.len() >= records);
    Machine::read(session)
}

/// Records the program on what `apex run` takes for a GPU, until there are three records of the
/// machine; with these variables.
fn recorded(sandbox: &Sandbox, variables: &[(&str, &str)]) -> Machine {
    let libraries = sandbox.path("libraries");
    std::fs::create_dir(&libraries).unwrap();
    std::fs::copy(test_build::library("fake-nvml"), libraries.join("libnvidia-ml.so.1")).unwrap();
    // By another name it is a driver like others.
    let driver = libraries.join("driver.so");
    std::os::unix::fs::symlink(cpu_device(), &driver).unwrap();
    let mut command = sandbox.apex(&["run", "--device", "gpu", "-o", "s", "--"]);
    command.arg(program()).args(["launch", "10", "await", "end"]);
    command.env("LD_LIBRARY_PATH", &libraries).env("APEX_DRIVER", &driver);
    command.envs(variables.iter().copied());
    let mut running = Running::start(&mut command);
    running.read_until("waiting");
    let machine = wait_for(&sandbox.path("s"), 3);
    std::fs::write(sandbox.path("end"), "").unwrap();
    assert!(running.0.wait().unwrap().success());
    machine
}

#[test]
fn devices_and_host_are_read_while_the_program_runs_and_nothing_is_set() {
    let sandbox = Sandbox::new();
    sandbox.recorded(&["--no-machine"], &["launch", "1"]);
    let uuid = sandbox.json(&["report", "--json", "s"])["profile"]["devices"][0]["uuid"].clone();
    std::fs::remove_dir_all(sandbox.path("s")).unwrap();
    let changes = sandbox.path("changes");
    let variables = [
        ("FAKE_NVML_UUID", uuid.as_str().unwrap()),
        ("FAKE_NVML_DEVICES", "2"),
        ("FAKE_NVML_CHANGES", changes.to_str().unwrap()),
        ("FAKE_NVML_ERRORS", "nvmlDeviceGetTemperature=4,nvmlGpmSampleGet=3"),
    ];
    let machine = recorded(&sandbox, &variables);
    assert!(!changes.exists(), "{}", std::fs::read_to_string(&changes).unwrap());
    assert_eq!(machine.problems, [""; 0]);
    assert_eq!(machine.devices.len(), 2);
    let last = machine.records.last().unwrap();
    let readings = last.device(0).expect("the first device");
    assert!(readings.get(Quantity::Power).is_some() && readings.get(Quantity::AveragePower).is_some());
    assert!(readings.get(Quantity::Temperature).is_none(), "it is refused");
    assert!(readings.get(Quantity::SmOccupancy).is_none(), "it is not supported");
    assert!(last.host.get(Quantity::ProgramCpus).is_some());

    let report = text(&output(&mut sandbox.apex(&["report", "s"]), 0).stdout);
    assert!(report.contains("NVIDIA Stand-in (GPU-"), "{report}");
    assert!(
        report.contains("with all processes on it") && report.contains("of a limit of 700 W"),
        "{report}"
    );
    assert!(report.contains("Host, measuredᵐ: the program kept"), "{report}");
    let json = sandbox.json(&["report", "--json", "s"]);
    let Value::Array(devices) = &json["machine"]["devices"] else { panic!("{json}") };
    assert_eq!(devices.len(), 1, "the other device is not the program's");
    assert_eq!((&devices[0]["uuid"], &json["machine"]["joined"]), (&uuid, &Value::from(true)));
    assert_eq!(devices[0]["readings"]["power_limit_w"]["mean"], 700.0);
    // The program's launches take milliseconds: the counter does not resolve that.
    let whole = &json["energy"]["devices"][0]["whole"];
    assert!(whole["joules"].is_null() && whole["seconds"].as_f64().unwrap() > 0.0, "{whole}");
    assert!(report.contains("Energy of "), "{report}");
    let counted = machine.records.iter().flat_map(|record| &record.devices).map(|one| one.energy.len());
    assert!(counted.sum::<usize>() >= 2, "the counter is read between samples, and at the end");
    let top = text(&output(&mut sandbox.apex(&["top", "--once", "--last", "60s", "s"]), 0).stdout);
    assert!(top.contains("GPU: ") && top.contains("of 700 W") && top.contains("host: program"), "{top}");
}

#[test]
fn the_cpu_device_leaves_gpus_alone_and_a_switch_leaves_all_alone() {
    let sandbox = Sandbox::new();
    std::fs::copy(test_build::library("fake-nvml"), sandbox.path("libnvidia-ml.so.1")).unwrap();
    let mut command = sandbox.record(&[], &["launch", "10", "await", "end"]);
    let mut running = Running::start(command.env("LD_LIBRARY_PATH", sandbox.path("")));
    running.read_until("waiting");
    let machine = wait_for(&sandbox.path("s"), 1);
    std::fs::write(sandbox.path("end"), "").unwrap();
    assert!(running.0.wait().unwrap().success());
    assert_eq!(machine.devices, []);
    assert!(machine.records[0].host.get(Quantity::ProgramMemory).is_some());

    let mut command = sandbox.apex(&["run", "--device", "cpu", "-o", "quiet", "--no-machine", "--"]);
    output(command.arg(program()).args(["launch", "1"]), 0);
    assert!(!sandbox.path("quiet").join(FILE).exists());
}

#[test]
fn a_damaged_file_of_the_machine_is_a_problem_of_it_alone() {
    let sandbox = Sandbox::new();
    sandbox.recorded(&["--no-machine"], &["launch", "5"]);
    std::fs::write(sandbox.path("s").join(FILE), "\u{1b}[2J{\n").unwrap();
    let report = output(&mut sandbox.apex(&["report", "s"]), 0);
    assert!(text(&report.stdout).contains("5 launches"), "{}", text(&report.stdout));
    let said = text(&report.stderr);
    assert!(said.contains("machine.jsonl") && said.contains("line 1") && !said.contains('\u{1b}'), "{said}");
}
