//! `apex ptx check`, `access` and `requests`: what they say of files, and with which status.

use crate::common::{Sandbox, output, text};
use serde_json::Value;

const KERNELS: &str = ".version 8.8
.target sm_100a
.address_size 64
.visible .entry plain() { ret; }
.visible .entry pairs(.param .u64 p) {
.reg .b64 %rd<3>;
ld.param.u64 %rd0, [p];
add.f32x2 %rd1, %rd0, %rd0;
st.global.b64 [%rd0], %rd1;
ret; }
.func far() {
.reg .b32 %r<2>;
tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r0, 32;
ret; }
.visible .entry tensors() { call far, (); ret; }
";

fn checked(sandbox: &Sandbox, arguments: &[&str], status: i32) -> String {
    let arguments = [&["ptx", "check"], arguments].concat();
    text(&output(&mut sandbox.apex(&arguments), status).stdout)
}

#[test]
fn each_kernel_is_judged_with_the_functions_that_it_calls() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("k.ptx"), KERNELS).unwrap();
    let page = checked(&sandbox, &["k.ptx", "--for", "sm_80,sm_100"], 1);
    assert!(page.contains("f32x2 (exact): add.f32x2 at line 8"), "{page}");
    assert!(page.contains("cost (predicted): "), "{page}");
    assert!(
        page.contains("tcgen05.dealloc.cta_group::1.sync.aligned.b32 needs PTX 8.6 and sm_100a"),
        "{page}"
    );
    let json: Value =
        serde_json::from_str(&checked(&sandbox, &["k.ptx", "--for", "sm_80,sm_100", "--json"], 1)).unwrap();
    assert_eq!(json["schema"], "apex.ptx-check/1");
    let results = |kernel: usize| {
        let gpus = json["images"][0]["kernels"][kernel]["gpus"].as_array().unwrap();
        gpus.iter().map(|gpu| gpu["result"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(results(0), ["lowered", "runs"]);
    assert_eq!(results(1), ["lowered", "runs"]);
    assert_eq!(results(2), ["cannot", "runs"]);
    assert_eq!(json["images"][0]["kernels"][1]["gpus"][0]["header"], "PTX 7.0, sm_75");
    assert_eq!(json["summary"], serde_json::json!({"runs": 3, "lowered": 2, "approximate": 0, "cannot": 1}));
}

#[test]
fn the_status_says_whether_every_gpu_runs_every_kernel() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("k.ptx"), KERNELS).unwrap();
    checked(&sandbox, &["k.ptx", "--for", "sm_100"], 0);
    checked(&sandbox, &["k.ptx", "--for", "sm_100", "--newest", "8.5"], 1);
    for arguments in
        [&["k.ptx"][..], &["k.ptx", "--for", "sm_81"], &["k.ptx", "--for", "sm_80", "--newest", "8"]]
    {
        checked(&sandbox, arguments, 2);
    }
    std::fs::write(sandbox.path("not.ptx"), ".version 8.0\n.target sm_80\n.entry k( {\n").unwrap();
    let wrong = output(&mut sandbox.apex(&["ptx", "check", "not.ptx", "--for", "sm_80"]), 125);
    assert!(text(&wrong.stderr).contains("not.ptx:3:"), "{}", text(&wrong.stderr));
    std::fs::write(sandbox.path("empty"), b"\0\0").unwrap();
    let empty = output(&mut sandbox.apex(&["ptx", "check", "empty", "--for", "sm_80"]), 125);
    assert!(text(&empty.stderr).contains("holds no device code"), "{}", text(&empty.stderr));
}

#[test]
fn headers_that_no_driver_takes_or_that_are_too_new_for_the_driver_are_told() {
    let sandbox = Sandbox::new();
    let kernel = "\n.address_size 64\n.visible .entry k() { ret; }\n";
    std::fs::write(sandbox.path("old.ptx"), format!(".version 7.0\n.target sm_90{kernel}")).unwrap();
    let page = checked(&sandbox, &["old.ptx", "--for", "sm_90,sm_90a,sm_90"], 1);
    assert!(page.contains("PTX 7.0, sm_90 needs PTX 7.8 and sm_90"), "{page}");
    assert_eq!((page.matches("k on sm_90\n").count(), page.matches("k on sm_90a").count()), (1, 1), "{page}");
    std::fs::write(sandbox.path("new.ptx"), format!(".version 9.0\n.target sm_80{kernel}")).unwrap();
    let page = checked(&sandbox, &["new.ptx", "--for", "sm_80", "--newest", "6.3"], 1);
    assert!(page.contains("PTX 9.0, sm_80 needs PTX 7.0 and sm_75"), "{page}");
    checked(&sandbox, &["new.ptx", "--for", "sm_80", "--newest", "7.0"], 0);
    let page = checked(&sandbox, &["new.ptx", "--for", "sm_60", "--newest", "8.0"], 0);
    assert!(page.contains("PTX 7.0, sm_60"), "{page}");
    std::fs::write(
        sandbox.path("f.ptx"),
        ".version 8.0\n.target sm_80\n.address_size 64\n.func f() { ret; }\n",
    )
    .unwrap();
    let none = output(&mut sandbox.apex(&["ptx", "check", "f.ptx", "--for", "sm_80"]), 125);
    assert!(text(&none.stderr).contains("defines no kernel"), "{}", text(&none.stderr));
}

#[test]
fn programs_are_searched_for_fatbins() {
    let sandbox = Sandbox::new();
    let fatbin =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../cuda/fatbin/tests/data/three_ptx_one_cubin_zstd.fatbin");
    let mut program = b"\x7fELF".to_vec();
    program.resize(64, 0);
    program.extend(std::fs::read(fatbin).unwrap());
    std::fs::write(sandbox.path("program"), program).unwrap();
    let page = checked(&sandbox, &["program", "--for", "sm_90,sm_120"], 0);
    assert!(page.contains("runs"), "{page}");
}

/// What the check of a kernel of these declarations and statements says, which cannot run.
fn refused(header: &str, declared: &str, statements: &str) -> String {
    let sandbox = Sandbox::new();
    let source = format!(
        "{header}\n.address_size 64\n.func one(.param .b32 a) {{ ret; }}\n{declared}\n.visible .entry k(.param .u64 p) {{\n\
         .reg .pred %p<2>;\n.reg .b32 %r<4>;\n.reg .b64 %d<4>;\n.param .b64 wide;\n{statements}\nret; }}\n"
    );
    std::fs::write(sandbox.path("k.ptx"), source).unwrap();
    checked(&sandbox, &["k.ptx", "--for", "sm_90"], 1).replace("\n  ", " ")
}

#[test]
fn what_no_driver_takes_does_not_run() {
    const EIGHT: &str = ".version 8.0\n.target sm_80";
    for (declared, statements, reason) in [
        (".global .b32 twice;\n.global .b32 twice;", "", "`twice`"),
        ("", "again: add.u32 %r1, %r1, 1;\nagain: add.u32 %r1, %r1, 1;", "`again`"),
        ("", "call one, (wide);", "`one`"),
        ("", "@%r1 add.u32 %r1, %r1, 1;", "the guard must be a `.pred` register"),
        ("", "shfl.idx.b32 %r0, %r1, 0, 31;", "without `.sync`"),
        ("", ".shared .b8 much[50000];", "50000 bytes of shared memory"),
        (".const .b8 much[70000];", "", "70000 bytes of constants"),
        ("", "add.u32 %undeclared, %r1, 1;", "`%undeclared`"),
        ("", "bra nowhere;", "`nowhere`"),
    ] {
        let page = refused(EIGHT, declared, statements);
        assert!(page.contains("cannot run") && page.contains(reason), "{statements}: {page}");
        assert!(!page.contains("in no table"), "{statements}: {page}");
    }
    let wgmma = refused(".version 8.0\n.target sm_90", "", "wgmma.fence.sync.aligned;");
    assert!(
        wgmma.contains("needs PTX 8.0 and sm_90a in the module's header, which says PTX 8.0, sm_90"),
        "{wgmma}"
    );
    let sandbox = Sandbox::new();
    let kernel = ".version 99.9\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n";
    std::fs::write(sandbox.path("new.ptx"), kernel).unwrap();
    let page = checked(&sandbox, &["new.ptx", "--for", "sm_80"], 0);
    assert!(page.contains("runs lowered") && page.contains("PTX 7.0"), "{page}");
}

#[test]
fn a_cubin_says_which_gpus_run_it() {
    let sandbox = Sandbox::new();
    // The header of a cubin for sm_90, as the interface's versions 7 and 8 have it.
    for (version, marks) in [(7, 0x5a_055a_u32), (8, 0x0600_5a04)] {
        let mut cubin = b"\x7fELF\x02\x01\x01".to_vec();
        cubin.resize(64, 0);
        cubin[8] = version;
        cubin[18] = 190;
        cubin[48..52].copy_from_slice(&marks.to_le_bytes());
        std::fs::write(sandbox.path("k.cubin"), cubin).unwrap();
        let page = checked(&sandbox, &["k.cubin", "--for", "sm_90"], 0);
        assert!(page.contains("runs (machine code)"), "{page}");
        let page = checked(&sandbox, &["k.cubin", "--for", "sm_80"], 1).replace("\n  ", " ");
        assert!(page.contains("machine code for sm_90 runs on GPUs of the same major"), "{page}");
    }
}

/// A kernel whose sets are known, and one that gets its pointer from memory.
const ACCESSES: &str = ".version 8.0
.target sm_80
.address_size 64
.visible .entry scale(.param .u64 to, .param .u64 from, .param .u32 n) {
.reg .pred %p<2>; .reg .b32 %r<7>; .reg .b64 %q<6>;
ld.param.u64 %q1, [to]; ld.param.u64 %q2, [from]; ld.param.u32 %r1, [n];
mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;
mad.lo.s32 %r5, %r2, %r3, %r4;
setp.ge.s32 %p1, %r5, %r1;
@%p1 bra $END;
mul.wide.s32 %q3, %r5, 4;
add.s64 %q4, %q2, %q3;
ld.global.u32 %r6, [%q4];
add.s64 %q5, %q1, %q3;
st.global.u32 [%q5], %r6;
$END: ret; }
.visible .entry follow(.param .u64 list) {
.reg .b64 %q<3>;
ld.param.u64 %q1, [list];
ld.global.u64 %q2, [%q1];
st.global.u64 [%q2], %q1;
ret; }
";

#[test]
fn access_sets_are_told_and_barriers_explained() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("k.ptx"), ACCESSES).unwrap();
    let run = |arguments: &[&str], status| {
        output(&mut sandbox.apex(&[&["ptx", "access"], arguments].concat()), status)
    };
    let page = text(&run(&["k.ptx"], 1).stdout);
    assert!(page.contains("4*n from to") && page.contains("8 from list"), "{page}");
    assert!(page.contains("follow is a barrier: the address may come from memory"), "{page}");
    let json: Value = serde_json::from_str(&text(&run(&["k.ptx", "--json"], 1).stdout)).unwrap();
    assert_eq!(json["schema"], "apex.ptx-access/1");
    assert_eq!(json["summary"], serde_json::json!({"kernels": 2, "barriers": 1}));
    let scale = &json["images"][0]["kernels"][0];
    assert_eq!((&scale["barrier"], &scale["memory"][0]["writes"]), (&Value::Null, &Value::Bool(true)));
    assert_eq!(scale["memory"][1]["ranges"][0]["start"], "from");
    assert_eq!(json["images"][0]["kernels"][1]["barrier"]["reason"], "loaded");
    let known = ACCESSES.split(".visible .entry follow").next().unwrap();
    std::fs::write(sandbox.path("known.ptx"), known).unwrap();
    run(&["known.ptx"], 0);
    run(&[], 2);
    std::fs::write(sandbox.path("empty.ptx"), ".version 8.0\n.target sm_80\n.address_size 64\n").unwrap();
    let empty = run(&["empty.ptx"], 125);
    assert!(text(&empty.stderr).contains("holds no PTX of a kernel"), "{}", text(&empty.stderr));
}

const COLUMNS: &str = ".version 8.0
.target sm_80
.address_size 64
.file 1 \"/src/columns.cu\"
.visible .entry columns(.param .u64 to) {
.reg .b32 %r<4>;
.reg .b64 %rd<4>;
mov.u32 %r1, %tid.x;
mov.u32 %r2, %tid.y;
mad.lo.s32 %r3, %r1, 64, %r2;
ld.param.u64 %rd1, [to];
mul.wide.s32 %rd2, %r3, 4;
add.s64 %rd3, %rd1, %rd2;
.loc 1 7 3
st.global.u32 [%rd3], %r3;
ret; }
";

#[test]
fn accesses_of_a_file_are_counted_with_the_change_that_mends_them() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("k.ptx"), COLUMNS).unwrap();
    let run = |arguments: &[&str], status: i32| {
        let arguments = [&["ptx", "requests", "k.ptx"], arguments].concat();
        output(&mut sandbox.apex(&arguments), status)
    };
    let page = text(&run(&["--grid", "1", "--block", "16,16"], 1).stdout);
    assert!(page.contains("columns.cu:7") && page.contains("16 sectors"), "{page}");
    assert!(
        page.replace("\n   ", " ").contains("4 sectors instead of 16 for each warp (computed)"),
        "{page}"
    );
    let json = text(&run(&["--grid", "1", "--block", "16,16", "--json"], 1).stdout);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["schema"], "apex.ptx-requests/1");
    let kernel = &json["kernels"][0];
    assert_eq!(kernel["remedies"][0]["change"], "exchange_axes");
    assert_eq!(kernel["remedies"][0]["counted"]["after"], 4);
    assert_eq!(kernel["accesses"][0]["least"], 4);
    // One row of threads has nothing to exchange, and stores side by side.
    run(&["--grid", "1", "--block", "1,32"], 0);
    let none = text(&run(&[], 2).stderr);
    assert!(none.contains("add --grid and --block"), "{none}");
    let none = text(&run(&["--grid", "1", "--block", "32", "--kernel", "rows"], 125).stderr);
    assert!(none.contains("no PTX of the kernel rows"), "{none}");
    run(&["--grid", "1"], 2);
    run(&["--grid", "1", "--block", "32", "--arg", "ptr"], 2);
}
