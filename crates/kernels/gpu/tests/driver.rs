//! The driver that a process gets, and the message if there is none. Each case is a process of its
//! own.

use std::process::Output;
use test_process::Command;

use apex_gpu::{Choice, Device, Error, Kind};

const CASE: &str = "GPU_TEST_CASE";

/// Runs the case `name` of [`cases`] in a process with the given environment.
fn in_process(name: &str, environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["cases", "--exact", "--nocapture"]).env(CASE, name).env_remove("APEX_DEVICE");
    command.envs(environment.iter().copied()).output().unwrap()
}

fn passes(name: &str, environment: &[(&str, &str)]) {
    let output = in_process(name, environment);
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
}

#[test]
fn cases() {
    let Ok(case) = std::env::var(CASE) else { return };
    match &*case {
        "cpu" => {
            let device = Device::open_as(0, Choice::Cpu).unwrap();
            assert!(
                matches!(device.kind(), Kind::Cpu { why } if why.contains("asked for")),
                "{}",
                device.kind()
            );
            assert!(device.name().contains("CPU device"), "{}", device.name());
            let error = Device::open_as(0, Choice::Gpu).unwrap_err();
            assert!(matches!(error, Error::DriverChosen { .. }), "{error}");
            assert!(error.to_string().contains("it cannot use a GPU too"), "{error}");
        }
        "environment" => assert!(matches!(Device::open(0).unwrap().kind(), Kind::Cpu { .. })),
        "hidden" => {
            let device = Device::open(0).unwrap();
            assert!(matches!(device.kind(), Kind::Cpu { why } if why.contains("CUDA_VISIBLE_DEVICES")));
        }
        "nothing" => {
            let error = Device::open_as(0, Choice::Cpu).unwrap_err();
            assert!(matches!(error, Error::NoDevice { .. }));
            let text = error.to_string();
            assert!(text.contains("APEX_CPU_DEVICE names /no/such/file.so, which is no file"), "{text}");
            // A failure is not for ever: what is missing may come.
            assert!(matches!(Device::count(), Err(Error::NoDevice { .. }) | Ok(_)));
        }
        "count" => {
            let count = Device::count().unwrap();
            let error = Device::open(count).unwrap_err();
            assert!(
                matches!(error, Error::NoSuchDevice { ordinal, count: said } if ordinal == count && said == count)
            );
        }
        other => panic!("no case {other}"),
    }
}

#[test]
fn the_cpu_device_can_be_insisted_on() {
    passes("cpu", &[]);
    passes("environment", &[("APEX_DEVICE", "cpu")]);
}

#[test]
fn hidden_gpus_are_none() {
    passes("hidden", &[("CUDA_VISIBLE_DEVICES", "")]);
    passes("hidden", &[("CUDA_VISIBLE_DEVICES", "-1")]);
}

#[test]
fn without_any_driver_the_error_says_what_was_looked_for() {
    passes("nothing", &[("APEX_CPU_DEVICE", "/no/such/file.so")]);
}

#[test]
fn devices_are_counted() {
    passes("count", &[]);
}

#[test]
fn without_a_compiler_the_error_says_where_it_was_looked_for() {
    // The interpreter's packages are found by PATH, a toolkit by its variables.
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["no_compiler", "--exact", "--nocapture"])
        .env("GPU_TEST_NO_COMPILER", "1")
        .env("PATH", "/nowhere")
        .env("CUDA_HOME", "/no/toolkit")
        .env_remove("VIRTUAL_ENV")
        .env_remove("LD_LIBRARY_PATH")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
}

#[test]
fn no_compiler() {
    if std::env::var_os("GPU_TEST_NO_COMPILER").is_none() {
        return;
    }
    match apex_gpu::Module::can_compile() {
        // The system's own loader may know one.
        Ok(()) => {}
        Err(error) => {
            assert!(matches!(error, Error::NoCompiler { .. }));
            let text = error.to_string();
            assert!(text.contains("/no/toolkit/lib64") && text.contains("pip install"), "{text}");
        }
    }
}
