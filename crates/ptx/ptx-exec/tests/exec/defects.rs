//! Reports of defects: their order, their origins, and one report for each mistake.
//! `tests/ptx/defects.ptx` has which are found.

use apex_counts::Defect;
use cuda_launch::LaunchConfig;
use ptx_exec::LaunchParams;

use crate::device::{Device, pack};

/// The defects of a kernel of 64 threads with this body. It has two shared arrays, `first` and
/// `second`, of a word for each thread; `%r1` is the thread, `%r2` and `%r3` its words, `%rd1` its
/// word of a buffer.
fn defects(body: &str) -> Vec<Defect> {
    let source = format!(
        ".version 7.0\n.target sm_80\n.address_size 64\n.file 1 \"kernel.cu\"\n.visible .entry kernel(.param .u64 out)\n{{\n\
         .shared .align 4 .b8 first[256];\n.shared .align 4 .b8 second[256];\n.local .align 4 .b8 own[8];\n\
         .reg .pred %p<4>;\n.reg .b32 %r<20>;\n.reg .b64 %rd<20>;\n\
         ld.param.u64 %rd1, [out];\nmov.u32 %r1, %tid.x;\nmul.lo.u32 %r4, %r1, 4;\nmov.u32 %r2, first;\n\
         add.u32 %r2, %r2, %r4;\nmov.u32 %r3, second;\nadd.u32 %r3, %r3, %r4;\nmul.wide.u32 %rd2, %r1, 4;\n\
         add.u64 %rd1, %rd1, %rd2;\n{body}\nret;\n}}\n"
    );
    let device = Device::default();
    let linked = device.load(&source);
    let kernel = linked.program().kernel("kernel").unwrap();
    let out = device.upload(&[0; 256]).to_le_bytes().to_vec();
    let params = LaunchParams {
        config: LaunchConfig::new(2, 64),
        cooperative: false,
        stack: 0,
        workers: 2,
        params: &pack(&linked, kernel, &[out]),
    };
    let (outcome, seen) = device.watch(&linked, kernel, &params);
    outcome.unwrap_or_else(|fault| panic!("{fault}"));
    seen.defects.into_iter().map(|group| group.defect).collect()
}

/// Steps of a loop that was unrolled: each puts a word into both arrays and reads those of the
/// neighbours. There is a barrier behind the stores, and none behind the loads.
fn unrolled(lines: bool) -> String {
    let loc = |line: u32| if lines { format!(".loc 1 {line} 3\n") } else { String::new() };
    let step = |step: u32| {
        let loads = (1..8).map(|lane| {
            let [first, second] =
                ["first", "second"].map(|array| format!("ld.shared.u32 %r6, [{array}+{}];\n", 4 * lane));
            format!("{}{first}{}{second}", loc(13), loc(14))
        });
        let loads: String = loads.collect();
        format!(
            "add.u32 %r5, %r1, {step};\n{}st.shared.u32 [%r2], %r5;\n{}st.shared.u32 [%r3], %r5;\n{}bar.sync 0;\n{loads}",
            loc(10),
            loc(11),
            loc(12)
        )
    };
    (0..6).map(step).collect()
}

#[test]
fn one_missing_barrier_in_unrolled_code_is_one_defect() {
    for lines in [true, false] {
        let found = defects(&unrolled(lines));
        assert_eq!(found.len(), 1, "lines: {lines}: {found:#?}");
        let Defect { kind, place, other, count, places, .. } = &found[0];
        assert_eq!((&**kind, place.line != 0), ("shared-race", lines));
        // Each of the 14 loads of five steps races with a store of the next one.
        assert!((70..=*count).contains(places), "{found:#?}");
        assert!(place.ptx_line > other.as_ref().unwrap().ptx_line, "{found:#?}");
    }
}

#[test]
fn two_mistakes_are_two_defects() {
    let found = defects(
        ".loc 1 20 3\nst.shared.u32 [%r2], %r1;\n.loc 1 21 3\nld.shared.u32 %r5, [first];\n.loc 1 22 3\nbar.sync 0;\n\
         .loc 1 23 3\nst.shared.u32 [%r2], %r4;\n.loc 1 24 3\nld.shared.u32 %r5, [first+8];",
    );
    let lines: Vec<u32> = found.iter().map(|defect| defect.place.line).collect();
    assert_eq!(lines, [21, 24], "{found:#?}");
    assert!(found.iter().all(|defect| defect.places == 1));
}

#[test]
fn a_race_is_told_in_the_order_of_its_places() {
    // In the first the load comes later in the code and in time, in the second the store.
    for (body, verbs, instructions) in [
        (
            "st.shared.u32 [%r2], %r1;\nld.shared.u32 %r5, [first+4];",
            ["reads", "writes"],
            ["ld.shared.u32", "st.shared.u32"],
        ),
        (
            "st.shared.u32 [%r2], %r1;\nbar.sync 0;\nld.shared.u32 %r5, [first+4];\nst.shared.u32 [%r2], %r4;",
            ["writes", "reads"],
            ["st.shared.u32", "ld.shared.u32"],
        ),
    ] {
        let found = defects(body);
        let [Defect { text, place, other: Some(other), .. }] = &found[..] else { panic!("{found:#?}") };
        assert_eq!([&*place.instruction, &*other.instruction], instructions);
        let (told, then) = text.split_once(", which thread ").unwrap_or_else(|| panic!("{text}"));
        assert!(told.contains(verbs[0]) && then.contains(verbs[1]), "{text}");
        assert!(
            told.contains("byte 4 of the 256 of `first`") && then.ends_with("with no barrier between"),
            "{text}"
        );
    }
}

#[test]
fn an_undefined_value_is_told_with_its_use_and_its_load() {
    let found = defects(
        ".loc 1 5 3\nld.local.u32 %r5, [own+4];\n.loc 1 6 3\nadd.u32 %r5, %r5, 1;\n.loc 1 7 3\nst.global.u32 [%rd1], %r5;",
    );
    let [Defect { kind, text, place, other: Some(loaded), count, .. }] = &found[..] else {
        panic!("{found:#?}")
    };
    assert_eq!((&**kind, place.line, loaded.line, *count), ("uninitialized-read", 7, 5, 128));
    for part in
        ["thread (0,0,0) stores a value of 4 bytes that nobody has written", "byte 4 of the 8 of `own`"]
    {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn unrolled_uses_of_one_variable_are_one_defect() {
    let body: String = (0..8)
        .map(|word| format!("ld.shared.u32 %r5, [first+{}];\nst.global.u32 [%rd1], %r5;\n", 4 * word))
        .collect();
    let found = defects(&body);
    assert_eq!(found.iter().map(|defect| (defect.places, defect.count)).collect::<Vec<_>>(), [(8, 1024)]);
}
