//! `apex run --universal`: PTX of newer GPUs on the CPU device, which is an 8.0 and refuses it as a
//! driver does.

use crate::common::{Sandbox, output, text};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt as _;

const WAYS: [&str; 6] = [
    "cuModuleLoad",
    "cuModuleLoadData",
    "cuModuleLoadDataEx",
    "cuModuleLoadFatBinary",
    "cuLibraryLoadData",
    "cuLibraryLoadFromFile",
];

/// A kernel that writes 3 times the thread's number plus 1, and says which lane was elected.
fn kernel(header: &str, more: &str) -> String {
    format!(
        "{header}\n.address_size 64\n.visible .entry k(.param .u64 to) {{\n\
         .reg .b64 %rd<4>; .reg .b32 %r<6>; .reg .f32 %f<4>; .reg .b16 %h<2>; .reg .pred %p;\n\
         ld.param.u64 %rd0, [to]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd1, %r0, 4; add.u64 %rd0, %rd0, %rd1;\n\
         mad.lo.u32 %r1, %r0, 3, 1;\n{more}\nst.global.u32 [%rd0], %r1;\nret;\n}}\n"
    )
}

const NEWER: &str = ".version 8.8\n.target sm_100a";
const PAIRS: &str = "cvt.rn.f32.u32 %f0, %r1; mov.b64 %rd2, {%f0, %f0};\n\
                     add.f32x2 %rd2, %rd2, %rd2;\nelect.sync %r2|%p, 0xffffffff;\n\
                     mov.b64 {%f1, %f2}, %rd2; cvt.rzi.u32.f32 %r1, %f2; @%p add.u32 %r1, %r1, %r2;";

/// What the client prints.
fn loaded(sandbox: &Sandbox, options: &[&str], way: &str) -> String {
    loaded_with("", sandbox, options, way)
}

/// What the client prints where `ptxas` is the newer one.
fn loaded_with(ptxas: &str, sandbox: &Sandbox, options: &[&str], way: &str) -> String {
    let mut command = sandbox.apex(&["run", "--device", "cpu", "-o"]);
    command.env("APEX_PTXAS", sandbox.path(ptxas));
    let session = sandbox.path("s");
    let _ = std::fs::remove_dir_all(&session);
    command.arg(session).args(options).arg("--").arg(test_build::program("driver-client"));
    text(&output(command.args(["newer", "k.ptx", way]), 0).stdout)
}

fn written(value: impl Fn(u32) -> u32) -> String {
    format!("0\n{:?}\n", (0..32).map(value).collect::<Vec<_>>())
}

#[test]
fn modules_are_lowered_in_every_way_of_loading_and_the_report_says_so() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("k.ptx"), kernel(NEWER, PAIRS)).unwrap();
    for way in WAYS {
        assert_eq!(loaded(&sandbox, &[], way), "218\n", "{way}");
        assert_eq!(loaded(&sandbox, &["--universal"], way), written(|thread| 6 * thread + 2), "{way}");
    }
    let report = text(&output(&mut sandbox.apex(&["report", "s"]), 0).stdout);
    let told = report.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        told.contains("the module of k (PTX 8.8, sm_100a) was lowered to PTX 7.0, sm_75: elect (exact) at line 10; f32x2 (exact) at line 9"),
        "{report}"
    );
    let json = text(&output(&mut sandbox.apex(&["report", "--json", "s"]), 0).stdout);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["run"]["universal"][0]["changes"][0]["form"], "add.f32x2");
    assert!(!sandbox.path("s/universal.sock").exists());
}

#[test]
fn a_header_alone_is_lowered_for_a_version_and_for_a_target() {
    let sandbox = Sandbox::new();
    for (header, code) in
        [(".version 9.6\n.target sm_80", "222\n"), (".version 8.0\n.target sm_90a", "218\n")]
    {
        std::fs::write(sandbox.path("k.ptx"), kernel(header, "")).unwrap();
        assert_eq!(loaded(&sandbox, &[], "cuModuleLoadData"), code);
        assert_eq!(loaded(&sandbox, &["--universal"], "cuModuleLoadData"), written(|thread| 3 * thread + 1));
    }
}

/// Writes a program that says to be the ptxas of CUDA 13.6. The CPU device loads no machine code,
/// so this one gives PTX in its place, through the filter.
fn write_ptxas(sandbox: &Sandbox, name: &str, filter: &str) {
    let told = "echo Cuda compilation tools, release 13.6, V13.6.1";
    let script = format!("#!/bin/sh\n[ $1 = --version ] && exec {told}\necho $2 >>asked\n{filter} <$5 >$4\n");
    std::fs::write(sandbox.path(name), script).unwrap();
    std::fs::set_permissions(sandbox.path(name), std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_newer_ptxas_comes_first_and_what_the_driver_refuses_of_it_is_lowered() {
    let sandbox = Sandbox::new();
    write_ptxas(&sandbox, "good", "sed s/9.6/7.0/");
    write_ptxas(&sandbox, "bad", "tr a-z b-za");
    write_ptxas(&sandbox, "failing", "echo no such PTX >&2; false");
    write_ptxas(&sandbox, "empty", "true");
    std::fs::write(sandbox.path("k.ptx"), kernel(".version 9.6\n.target sm_80", "")).unwrap();
    for (ptxas, told) in [
        (
            "good",
            "(PTX 9.6, sm_80) was loaded unchanged, as machine code by ptxas 13.6, which is newer than the driver",
        ),
        (
            "bad",
            "(PTX 9.6, sm_80) was loaded with another header: PTX 7.0, sm_75; the driver refused the machine code of",
        ),
        ("failing", "/failing failed (exit status: 1): no such PTX"),
        ("empty", "/empty gave no machine code"),
        ("missing", "/missing is no ptxas: it did not tell its release"),
    ] {
        let printed = loaded_with(ptxas, &sandbox, &["--universal"], "cuLibraryLoadData");
        assert_eq!(printed, written(|thread| 3 * thread + 1), "{ptxas}");
        let report = text(&output(&mut sandbox.apex(&["report", "s"]), 0).stdout);
        assert!(report.split_whitespace().collect::<Vec<_>>().join(" ").contains(told), "{ptxas}: {report}");
    }
    assert_eq!(std::fs::read_to_string(sandbox.path("asked")).unwrap(), "sm_80\n".repeat(4));
    assert!(
        std::fs::read_dir(sandbox.path("s"))
            .unwrap()
            .all(|entry| { !entry.unwrap().file_name().to_string_lossy().starts_with("universal") })
    );
}

#[test]
fn chosen_libraries_are_told_another_capability() {
    let sandbox = Sandbox::new();
    let asked = |options: &[&str]| {
        let _ = std::fs::remove_dir_all(sandbox.path("s"));
        let mut command = sandbox.apex(&["run", "--device", "cpu", "-o"]);
        command.arg(sandbox.path("s")).args(options).arg("--").arg(test_build::program("driver-client"));
        text(&output(command.arg("capability"), 0).stdout)
    };
    assert_eq!(asked(&[]), "8.0 8.0 32\n");
    assert_eq!(asked(&["--capability", "12.1"]), "12.1 12.1 32\n");
    assert_eq!(asked(&["--capability", "12.1", "--capability-for", "libother"]), "8.0 8.0 32\n");
    assert_eq!(asked(&["--capability", "9.0", "--capability-for", "libother:driver-client"]), "9.0 9.0 32\n");
    let report = text(&output(&mut sandbox.apex(&["report", "s"]), 0).stdout);
    let told = report.split_whitespace().collect::<Vec<_>>().join(" ");
    // The minor number is the driver's.
    assert!(told.contains("driver-client was told 9.0 in place of 8.0 by cuDeviceComputeCapability, 9 in place of 8 by cuDeviceGetAttribute(COMPUTE_CAPABILITY_MAJOR)"), "{report}");
    let json = text(&output(&mut sandbox.apex(&["report", "--json", "s"]), 0).stdout);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["run"]["capability"][0]["told"], "9.0");
    let wrong = output(&mut sandbox.apex(&["run", "--capability", "sm_120", "--", "true"]), 125);
    assert!(text(&wrong.stderr).contains("two numbers, such as 12.0"));
}

#[test]
fn a_target_is_nothing_for_ptxas() {
    let sandbox = Sandbox::new();
    write_ptxas(&sandbox, "good", "sed s/9.6/7.0/");
    std::fs::write(sandbox.path("k.ptx"), kernel(NEWER, PAIRS)).unwrap();
    assert_eq!(
        loaded_with("good", &sandbox, &["--universal"], "cuModuleLoadData"),
        written(|thread| 6 * thread + 2)
    );
    assert!(!sandbox.path("asked").exists());
}

#[test]
fn the_programs_error_stays_where_nothing_exact_suffices() {
    let sandbox = Sandbox::new();
    let rounded = "cvt.u16.u32 %h0, %r1;\ntanh.approx.bf16 %h0, %h0;";
    std::fs::write(sandbox.path("k.ptx"), kernel(NEWER, rounded)).unwrap();
    assert_eq!(loaded(&sandbox, &["--universal"], "cuLibraryLoadData"), "218\n");
    assert_ne!(loaded(&sandbox, &["--universal=approximate"], "cuLibraryLoadData"), "218\n");
    for wrong in ["nonsense;", "tcgen05.wait::ld.sync.aligned;"] {
        std::fs::write(sandbox.path("k.ptx"), kernel(NEWER, wrong)).unwrap();
        assert_eq!(loaded(&sandbox, &["--universal=approximate"], "cuModuleLoadData"), "218\n", "{wrong}");
    }
    std::fs::write(sandbox.path("k.ptx"), "{{{{").unwrap();
    assert_eq!(loaded(&sandbox, &["--universal"], "cuModuleLoadData"), "218\n");
}
