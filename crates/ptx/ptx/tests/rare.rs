//! Rare PTX that the verifier must take, and wrong PTX near it that it must refuse; ptxas agrees on
//! both.

mod common;

use std::collections::BTreeMap;

const HEAD: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";

fn problems(source: &str) -> Vec<String> {
    let module = ptx::parse(source).unwrap_or_else(|error| panic!("{}", error.render("rare", source)));
    ptx::verify(&module).into_iter().map(|problem| problem.message).collect()
}

/// A kernel of these statements.
fn kernel(statements: &str) -> String {
    format!(
        "{HEAD}.global .b32 elsewhere;\n.global .b32 table[4];\n.func one(.param .b32 a)\n{{\n\tret;\n}}\n.entry k(.param .u64 out)\n{{\n\t\
         .reg .pred %p<4>;\n\t.reg .b16 %h<4>;\n\t.reg .b32 %r<4>;\n\t.reg .b64 %d<4>;\n\t.shared .b32 near;\n\t\
         .local .b32 mine;\n\t.param .b32 word;\n\t{statements}\n\tret;\n}}\n"
    )
}

#[test]
fn rare_ptx_is_fine() {
    let declared_then_defined =
        format!("{HEAD}.extern .global .b32 g;\n.visible .global .b32 g;\n.entry k() {{ ret; }}\n");
    let alias = format!(
        "{HEAD}.visible .func real(.param .b32 a)\n{{\n\tret;\n}}\n.visible .func other(.param .b32 a);\n.alias other, real;\n"
    );
    let targets = kernel("mov.u64 %d1, one;\n\ttable: .calltargets one;\n\tcall %d1, (word), table;");
    let environment = kernel("mov.b32 %r1, %envreg0;\n\tmov.b32 %r2, %envreg31;");
    let opaque = format!(
        "{HEAD}.entry k(.param .u64 t)\n{{\n\t.reg .pred %p<4>;\n\t.reg .b64 %d<4>;\n\tld.param.u64 %d1, [t];\n\t\
         istypep.texref %p1, %d1;\n\tistypep.samplerref %p2, %d1;\n\tistypep.surfref %p3, %d1;\n\tret;\n}}\n"
    );
    let halves = kernel("mov.u16 %h1, %tid.x;\n\tmov.u16 %h2, %ctaid.y;\n\tmov.u16 %h3, %ntid.z;");
    let matrices = kernel("ldmatrix.sync.aligned.x4.m8n8.shared.b16 {%r0, %r1, %r2, %r3}, [near];");
    let elements = kernel(
        ".shared .align 8 .b32 many[4];\n\tld.shared.b32 %r1, many[%r2];\n\tst.shared.b32 many[%h1+1], %r1;\n\t\
         ld.b32 %r1, many[%d1+(1 << 2)];\n\tmov.u64 %d1, many[%laneid+-1];\n\tcvta.shared.u64 %d1, many[%r1];\n\t\
         ldu.global.b32 %r1, table[%r2+WARP_SZ];\n\tld.shared.v2.b32 {%r1, %r2}, many[2];",
    );
    // What nvcc writes for `wmma` in `.f64`, and other orders of the modifiers.
    let orders = [
        "wmma.mma.sync.aligned.row.row.m8n8k4.f64.f64.f64.f64.rn",
        "wmma.mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64.rn",
        "wmma.mma.sync.aligned.f64.f64.m8n8k4.col.f64.rz.f64.row",
    ];
    let orders = orders.map(|name| format!("{name} {{%e0, %e1}}, {{%e2}}, {{%e3}}, {{%e0, %e1}};"));
    let orders = kernel(&format!(".reg .f64 %e<4>;\n\t{}", orders.join("\n\t")));
    let stored = kernel(
        "st.global.v2.u32 [%d1], {%laneid, %ctaid.z};\n\tst.global.v2.u32 [%d1], {%r1, 1.5};\n\t\
         bar.sync 15, 64;\n\tbar.red.and.pred %p1, 0, 1;",
    );
    let ptxas = common::Ptxas::find();
    let sources = [declared_then_defined, alias, targets, environment, opaque, halves, matrices, elements];
    for source in sources.into_iter().chain([orders, stored]) {
        assert_eq!(problems(&source), [] as [String; 0], "{source}");
        if let Some(ptxas) = &ptxas {
            assert_eq!(ptxas.errors(&source, "compute_80"), BTreeMap::new(), "{source}");
        }
    }
}

#[test]
fn what_is_wrong_beside_it_is_refused() {
    let ptxas = common::Ptxas::find();
    for statement in [
        "selp.b32 %r1, %r2, %r3, _;",
        "setp.eq.and.u32 %p1, %r1, %r2, _;",
        "mov.b32 %r1, %envreg32;",
        "mov.u16 %h1, %clock64;",
        "mov.u16 %h1, %laneid;",
        "mov.u16 %h1, %nsmid;",
        "istypep.texref %r1, %d1;",
        "istypep.texref %p1, %r1;",
        "istypep.texref %p1, near;",
        "ld.global.b32 %r1, elsewhere[%r2];",
        "ld.global.b32 %r1, elsewhere[1];",
        "ld.global.b32 %r1, table[%p1];",
        "ld.shared.b32 %r1, table[%r2];",
        "ld.global.b32 %r1, table[one];",
        "ld.global.b32 %r1, %d1[1];",
        "atom.global.add.u32 %r1, table[%r2], 1;",
        "red.global.add.u32 table[1], 1;",
        "prefetch.global.L1 table[%r2];",
        "add.u64 %d1, %d2, table[%r2];",
        "istypep.texref %p1, word;",
        "istypep.texref %p1, %clock64;",
        "call one, (elsewhere);",
        "call one, (near);",
        "call one, (mine);",
        "table: .calltargets missing;\n\tcall %d1, (word), table;",
    ] {
        let source = kernel(statement);
        let said = problems(&source);
        assert!(!said.is_empty(), "`{statement}` passes");
        if let Some(ptxas) = &ptxas {
            assert!(
                !ptxas.errors(&source, "compute_80").is_empty(),
                "ptxas takes `{statement}`, here: {said:?}"
            );
        }
    }
}

/// A module of a version and target: declarations, parameters and statements of a kernel.
fn module(version: &str, target: &str, [declared, parameters, statements]: [&str; 3]) -> String {
    format!(
        ".version {version}\n.target {target}\n.address_size 64\n{declared}\n.entry k({parameters})\n{{\n\t.reg .pred %p<4>;\n\t\
         .reg .b32 %r<4>;\n\t{statements}\n\tret;\n}}\n"
    )
}

#[test]
fn limits_and_retired_instructions_are_those_of_ptxas() {
    let shfl = ["", "", "shfl.idx.b32 %r0, %r1, 0, 31;"];
    let vote = ["", "", "vote.all.pred %p0, %p1;"];
    let sync = ["", "", "shfl.sync.idx.b32 %r0, %r1, 0, 31, -1;"];
    let parameters =
        |bytes| ["", [".param .b8 p[4352]", ".param .b8 p[4353]", ".param .b8 p[32765]"][bytes], ""];
    let own = |bytes| ["", "", [".shared .b8 a[49152];", ".shared .b8 a[49153];"][bytes]];
    let read = "ld.shared.b32 %r0, [a];";
    let large = ".shared .b8 a[50000];";
    let called = ".shared .b8 a[50000];\n.func f() {\n.reg .b32 %r;\nld.shared.b32 %r, [a];\nret;\n}";
    let constants = |bytes| [[".const .b8 c[65536];", ".const .b8 c[65537];"][bytes], "", ""];
    for (version, target, parts, is_taken) in [
        ("6.3", "sm_75", shfl, true),
        ("6.4", "sm_70", shfl, false),
        ("8.0", "sm_80", shfl, false),
        ("8.0", "sm_60", shfl, true),
        ("8.0", "sm_80", vote, false),
        ("8.0", "sm_80", sync, true),
        ("8.0", "sm_80", parameters(0), true),
        ("8.0", "sm_80", parameters(1), false),
        ("8.1", "sm_80", parameters(1), true),
        ("8.1", "sm_60", parameters(1), false),
        ("8.1", "sm_80", parameters(2), false),
        ("8.0", "sm_80", own(0), true),
        ("8.0", "sm_80", own(1), false),
        ("8.0", "sm_80", [large, "", ""], true),
        ("8.0", "sm_80", [large, "", read], false),
        ("8.0", "sm_80", [called, "", ""], true),
        ("8.0", "sm_80", [called, "", "call f, ();"], false),
        ("8.0", "sm_80", constants(0), true),
        ("8.0", "sm_80", constants(1), false),
    ] {
        let source = module(version, target, parts);
        let said = problems(&source);
        assert_eq!(said.is_empty(), is_taken, "{source}{said:?}");
    }
}
