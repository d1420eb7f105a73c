//! Access sets of single kernels.

use launch_condition::{Product, Sum, Term};
use ptx_access::{Base, Reason, Sets, Use, schedulable};

/// `if (i < n) to[i] = table[from[i]]`.
const LOOKUP: &str = ".version 8.0
.target sm_80
.address_size 64
.global .align 4 .b8 table[1024];
.visible .entry lookup(.param .u64 to, .param .align 8 .b8 by[16], .param .u32 n) {
    .reg .pred %p<2>;
    .reg .b32 %r<7>;
    .reg .b64 %q<9>;
    ld.param.u64 %q1, [to];
    ld.param.u64 %q2, [by+8];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.s32 %p1, %r5, %r1;
    @%p1 bra $END;
    mul.wide.s32 %q3, %r5, 4;
    add.s64 %q4, %q2, %q3;
    ld.global.u32 %r6, [%q4];
    mov.u64 %q5, table;
    mul.wide.u32 %q6, %r6, 4;
    add.s64 %q7, %q5, %q6;
    ld.global.u32 %r6, [%q7];
    add.s64 %q8, %q1, %q3;
    st.global.u32 [%q8], %r6;
$END:
    ret;
}
";

fn sets(source: &str) -> Sets {
    let module = ptx::parse(source).unwrap_or_else(|error| panic!("{}", error.render("k.ptx", source)));
    Sets::of(&module, "lookup").expect("there is a kernel lookup")
}

fn barrier(change: (&str, &str)) -> Reason {
    assert!(LOOKUP.contains(change.0));
    sets(&LOOKUP.replace(change.0, change.1)).barrier.expect("a barrier").reason
}

#[test]
fn parameters_members_and_variables_are_told_with_their_ranges() {
    let sets = sets(LOOKUP);
    assert_eq!(sets.barrier, None);
    let [to, from, table] = sets.memory.as_slice() else { panic!("{:?}", sets.memory) };
    let (read, written) = (Use { read: true, ..Use::default() }, Use { written: true, ..Use::default() });
    assert_eq!((&to.base, to.access), (&Base::Parameter { index: 0, offset: 0 }, written));
    assert_eq!((&from.base, from.access), (&Base::Parameter { index: 1, offset: 16 }, read));
    assert_eq!((&table.base, table.access), (&Base::Variable("table".to_owned()), read));
    let [(access, range)] = from.ranges.as_deref().expect("ranges") else { panic!("{from:?}") };
    assert_eq!(*access, read);
    assert_eq!((sets.formula(&range.start), sets.formula(&range.bytes)), ("by[8]".into(), "4*n".into()));
    assert_eq!(table.ranges, None, "the index is anything");
}

#[test]
fn what_is_not_followed_is_a_barrier() {
    let load = "ld.param.u64 %q1, [to];";
    assert_eq!(barrier((load, "ld.param.u64 %q1, [to]; ld.global.u64 %q1, [%q1];")), Reason::Loaded);
    assert_eq!(barrier((load, "mov.u64 %q1, 4096;")), Reason::Absolute);
    let with_function = LOOKUP.replace(".global .align 4", ".func f() { ret; }\n.global .align 4");
    let calls = sets(&with_function.replace(load, "ld.param.u64 %q1, [to]; call f, ();"));
    assert_eq!(calls.barrier.expect("a barrier").reason, Reason::Call);
    assert_eq!(barrier((load, "ld.param.u64 %q1, [to]; griddepcontrol.wait;")), Reason::Instruction);
    assert_eq!(barrier((".address_size 64", ".address_size 32")), Reason::Malformed);
    assert_eq!(barrier((load, "ld.param.u32 %r6, [to]; mov.b64 %q1, {%r6, %r6};")), Reason::Loaded);
}

/// A number may be an address that was put together from pieces, by shifts, products or otherwise.
#[test]
fn numbers_that_may_be_addresses_are_barriers() {
    let load = "add.s64 %q8, %q1, %q3;";
    let pieces = "cvt.u64.u32 %q8, %r6; shl.b64 %q8, %q8, 16; shl.b64 %q8, %q8, 16; add.s64 %q8, %q8, %q3;";
    for number in [
        format!("{pieces} selp.b64 %q8, %q8, %q1, %p1;"),
        format!("{pieces} min.u64 %q8, %q8, %q1;"),
        "selp.b64 %q8, 139637976727552, %q1, %p1;".to_owned(),
        "mov.u64 %q8, %q1; @%p1 mul.wide.u32 %q8, %r6, 65536;".to_owned(),
    ] {
        assert_eq!(barrier((load, &number)), Reason::Absolute, "{number}");
    }
    let by_difference = format!("{pieces} sub.s64 %q8, %q8, %q1; add.s64 %q8, %q8, %q1;");
    assert_eq!(barrier((load, &by_difference)), Reason::Loaded);
    let offset = LOOKUP.replace(load, "selp.b64 %q9, %q3, 0, %p1; add.s64 %q8, %q1, %q9;");
    let offset = offset.replace("%q<9>", "%q<10>");
    assert_eq!(sets(&offset).barrier, None, "an offset may be any number");
}

#[test]
fn a_barrier_names_its_instruction() {
    let source = LOOKUP.replace("ld.param.u64 %q1, [to];", "ld.global.u64 %q1, [%q2];");
    let barrier = sets(&source).barrier.expect("a barrier");
    assert_eq!(
        barrier.to_string(),
        "the address may come from memory: `st.global.u32 [%q8], %r6;` (PTX line 26)"
    );
    assert!(Sets::of(&ptx::parse(LOOKUP).unwrap(), "other").is_none());
}

#[test]
fn parameters_that_are_named_after_their_kernel_have_short_names() {
    let source = LOOKUP.replace("to]", "lookup_param_0]").replace(".u64 to", ".u64 lookup_param_0");
    let sets = sets(&source);
    assert_eq!(sets.name(&sets.memory[0].base), "param_0");
    assert_eq!(sets.parameters[2].name, "n");
}

#[test]
fn formulas_are_in_the_order_of_the_field() {
    let sets = sets(LOOKUP);
    let term = |offset| Term::Parameter { offset, bytes: 8, signed: false };
    let product = |factor, terms: &[Term]| Product { factor, terms: terms.to_vec() };
    let sum = Sum(vec![product(-4, &[]), product(8, &[Term::Threads(1), term(24)]), product(1, &[term(0)])]);
    assert_eq!(sets.formula(&sum), "to + 8*threads.y*n - 4");
    assert_eq!(sets.formula(&Sum::default()), "0");
    assert_eq!(sets.formula(&Sum(vec![product(-1, &[term(0)])])), "-to");
}

/// What the injected library gets of [`LOOKUP`] with a word in place of another.
fn scheduled(what: &str, other: &str) -> launch_condition::KernelAccess {
    let source = LOOKUP.replace(what, other);
    let module = ptx::parse(&source).unwrap_or_else(|error| panic!("{}", error.render("k.ptx", &source)));
    schedulable(&module, || true).remove(0)
}

#[test]
fn a_kernel_that_others_may_see_is_no_kernel_to_schedule() {
    let lookup = scheduled("", "");
    assert_eq!((lookup.name.as_str(), lookup.parameters.as_slice()), ("lookup", &[0, 8, 24][..]));
    let memory = lookup.memory.expect("its memory is known");
    let words: Vec<_> = memory.iter().map(|memory| (memory.offset, memory.is_written)).collect();
    assert_eq!(words, [(0, true), (16, false)], "only kernels write the table, and this one does not");
    assert!(memory.iter().all(|memory| memory.ranges.is_some()));
    let store = "st.global.u32 [%q8], %r6;";
    for other in [
        "st.volatile.global.u32 [%q8], %r6;",
        "st.release.gpu.global.u32 [%q8], %r6;",
        "st.relaxed.sys.global.u32 [%q8], %r6;",
        "st.global.wt.u32 [%q8], %r6;",
        "red.global.add.u32 [%q8], %r6;",
        "membar.gl; st.global.u32 [%q8], %r6;",
        "mov.u64 %q3, %globaltimer; st.global.u32 [%q8], %r6;",
        "mov.u32 %r6, %clock; st.global.u32 [%q8], %r6;",
        "st.global.u32 [%q8], %r6; st.global.u32 [%q7], %r6;",
        "st.global.u32 [%q8], %r6; { membar.sys; }",
    ] {
        assert_eq!(scheduled(store, other).memory, None, "{other}");
    }
    assert!(scheduled(store, "st.weak.global.u32 [%q8], %r6;").memory.is_some());
    let module = ptx::parse(LOOKUP).unwrap();
    assert_eq!(schedulable(&module, || false), []);
}
