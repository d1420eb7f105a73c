//! What the proof says about single kernels: the condition as data, and refusals in words.

use apex_reshape::{Change, Launch, Proof, Reason, virtual_architecture};
use cuda_launch::{Dim3, LaunchConfig};
use launch_condition::{Apart, Bound, Product, Region, Sum, Term};

/// `if (i < n) to[i] = a · from[i]`, with lines of a source file.
const SCALE: &str = r#"
.version 8.0
.target sm_86
.address_size 64
.visible .entry scale(.param .u64 to, .param .u64 from, .param .f32 a, .param .u32 n)
.maxntid 512, 1, 1
{
    .reg .pred %p<2>;
    .reg .b32 %r<6>;
    .reg .f32 %f<4>;
    .reg .b64 %rd<8>;
    .loc 1 3 5
    ld.param.u64 %rd1, [to];
    ld.param.u64 %rd2, [from];
    ld.param.f32 %f1, [a];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.s32 %p1, %r5, %r1;
    @%p1 bra $END;
    .loc 1 4 9
    cvta.to.global.u64 %rd3, %rd2;
    mul.wide.s32 %rd4, %r5, 4;
    add.s64 %rd5, %rd3, %rd4;
    ld.global.f32 %f2, [%rd5];
    mul.f32 %f3, %f1, %f2;
    cvta.to.global.u64 %rd6, %rd1;
    add.s64 %rd7, %rd6, %rd4;
    st.global.f32 [%rd7], %f3;
$END:
    ret;
}
.file 1 "scale.cu"
"#;

const N: Term = Term::Parameter { offset: 20, bytes: 4, signed: true };

fn pointer(offset: u32) -> Sum {
    Sum::of(1, Term::Parameter { offset, bytes: 8, signed: false })
}

fn proof(source: &str) -> Result<Proof, apex_reshape::Refusal> {
    let module = ptx::parse(source).unwrap_or_else(|error| panic!("{}", error.render("scale.ptx", source)));
    Proof::of(&module, "scale")
}

#[test]
fn a_guarded_map_has_the_condition_that_one_would_write() {
    let condition = proof(SCALE).unwrap().condition().unwrap();
    assert_eq!(condition.same_threads, [false, true, true], "nothing guards y and z");
    assert_eq!(condition.bounds, [Bound { axis: 0, limit: Sum::of(1, N) }]);
    let region = |offset| Region { start: pointer(offset), bytes: Some(Sum::of(4, N)) };
    assert_eq!(condition.regions, [region(0), region(8)]);
    assert_eq!(condition.apart, [Apart { first: 0, second: 1, or_same: true }]);
    // Threads that differ along y or z alone would store to the same address.
    let one = || Sum(vec![Product { factor: 1, terms: Vec::new() }]);
    for axis in [1, 2] {
        assert!(condition.at_most.contains(&(Sum::of(1, Term::Threads(axis)), one())), "{condition:?}");
    }
}

#[test]
fn members_of_a_structure_are_one_region() {
    let load = "ld.global.f32 %f2, [%rd5];";
    let source = SCALE.replace(
        load,
        "ld.global.f32 %f2, [%rd5+4]; ld.global.f32 %f2, [%rd5+-4]; ld.global.f32 %f2, [%rd5];",
    );
    let condition = proof(&source).unwrap().condition().unwrap();
    assert_eq!(condition.regions.len(), 2, "{condition:?}");
    let sum = |parts: &[(i64, Vec<Term>)]| -> Vec<Product> {
        parts.iter().map(|(factor, terms)| Product { factor: *factor, terms: terms.clone() }).collect()
    };
    let read = &condition.regions[1];
    let from = pointer(8).0[0].terms.clone();
    assert_eq!(read.start.0, sum(&[(-4, Vec::new()), (1, from)]));
    assert_eq!(read.bytes.clone().unwrap().0, sum(&[(8, Vec::new()), (4, vec![N])]));
    assert_eq!(condition.apart, [Apart { first: 0, second: 1, or_same: false }]);
}

#[test]
fn a_refusal_names_the_instruction_and_its_lines() {
    let source = SCALE.replace("mul.f32 %f3, %f1, %f2;", "mul.f32 %f3, %f1, %f2; membar.gl;");
    let refusal = proof(&source).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "no proof covers this instruction: `membar.gl;` (PTX line 28, scale.cu:4)"
    );
    let source = SCALE.replace("%r2, %r3, %r4;", "%r2, 256, %r4;");
    let refusal = proof(&source).unwrap_err();
    assert_eq!(refusal.reason, Reason::Index);
    assert_eq!(refusal.place.source, Some(("scale.cu".to_owned(), 3)));
    assert!(proof(SCALE).is_ok() && Proof::of(&ptx::parse(SCALE).unwrap(), "other").is_err());
}

/// The parameters of a launch of `scale`.
fn parameters(to: u64, from: u64, n: i32) -> Vec<u8> {
    [&to.to_le_bytes()[..], &from.to_le_bytes(), &1f32.to_le_bytes(), &n.to_le_bytes()].concat()
}

fn judged(
    launch: LaunchConfig,
    cooperative: bool,
    given: &[u8],
    block: u32,
) -> Result<(LaunchConfig, Change), Reason> {
    let launch = Launch { config: launch, cooperative, parameters: given, allocation: &|_| None };
    proof(SCALE).unwrap().judge(&launch, block.into()).map_err(|refusal| refusal.reason)
}

#[test]
fn each_launch_is_judged_by_itself() {
    let (launch, given) = (LaunchConfig::new(10, 100), parameters(1 << 20, 1 << 30, 1000));
    let allowed = |grid: u32, block: u32, change| Ok((LaunchConfig::new(grid, block), change));
    assert_eq!(judged(launch, false, &given, 250), allowed(4, 250, Change::SameThreads));
    assert_eq!(judged(launch, false, &given, 512), allowed(2, 512, Change::MoreThreads));
    assert_eq!(judged(launch, false, &given, 544), Err(Reason::Shape), "the kernel allows 512");
    assert_eq!(judged(launch, true, &given, 250), Err(Reason::Launch));
    assert_eq!(judged(LaunchConfig::new(10, 0), false, &given, 250), Err(Reason::Launch));
    assert_eq!(judged(launch, false, &parameters(1 << 20, 1 << 30, 1001), 512), Err(Reason::Bound));
    assert_eq!(judged(launch, false, &parameters(1 << 20, (1 << 20) + 8, 1000), 250), Err(Reason::Overlap));
    assert_eq!(
        judged(launch, false, &parameters(1 << 20, 1 << 20, 1000), 250),
        allowed(4, 250, Change::SameThreads)
    );
    assert_eq!(judged(launch, false, &given[..20], 250), Err(Reason::Overflow), "n is missing");
    let plane = LaunchConfig::new((10, 2, 1), 100);
    assert_eq!(judged(plane, false, &given, 250), Err(Reason::SharedStore));
    let cluster = LaunchConfig { cluster: Dim3::from(2), ..launch };
    assert_eq!(judged(cluster, false, &given, 250), Err(Reason::Launch));
}

#[test]
fn a_call_is_refused_by_its_name() {
    let source = SCALE.replace(
        "mul.f32 %f3, %f1, %f2;",
        "{ .param .b32 a; .param .b32 r; st.param.f32 [a], %f1; call.uni (r), slow, (a); ld.param.f32 %f3, [r]; }",
    );
    let source =
        source.replace(".visible .entry", ".func (.param .b32 r) slow(.param .b32 a);\n.visible .entry");
    let refusal = proof(&source).unwrap_err();
    assert_eq!(refusal.reason, Reason::Instruction);
    assert!(refusal.place.instruction.contains("slow"), "{refusal}");
}

/// What a function returns depends on what it is given alone, or the call is refused.
#[test]
fn a_function_that_computes_by_itself_may_be_called() {
    let calling = |body: &str, argument: &str| {
        let function = format!(
            ".global .align 4 .b8 __cudart_table[64];\n.global .align 4 .b8 table[64];\n\
             .func (.param .b32 r) f(.param .b32 a) {{ .reg .f32 %f<4>; .reg .b32 %r<4>; .reg .b64 %d<4>; \
             ld.param.f32 %f1, [a]; {body} st.param.f32 [r], %f1; ret; }}\n.visible .entry"
        );
        let call = format!(
            "{{ .param .b32 p; .param .b32 q; st.param.f32 [p], {argument}; call.uni (q), f, (p); \
             ld.param.f32 %f3, [q]; }}"
        );
        let source = SCALE.replace("mul.f32 %f3, %f1, %f2;", &call).replacen(".visible .entry", &function, 1);
        proof(&source).map(|_| ()).map_err(|refusal| refusal.reason)
    };
    assert_eq!(calling("mul.f32 %f1, %f1, %f1;", "%f2"), Ok(()));
    let table = |name: &str| format!("mov.u64 %d1, {name}; ld.global.f32 %f1, [%d1+4];");
    assert_eq!(calling(&table("__cudart_table"), "%f2"), Ok(()));
    let refused = Err(Reason::Instruction);
    assert_eq!(calling(&table("table"), "%f2"), refused, "others may write it");
    assert_eq!(calling("mov.u32 %r1, %tid.x; cvt.rn.f32.u32 %f1, %r1;", "%f2"), refused);
    assert_eq!(calling("mov.u32 %r1, %laneid; cvt.rn.f32.u32 %f1, %r1;", "%f2"), refused);
    assert_eq!(calling("mov.u64 %d1, table; st.global.f32 [%d1], %f1;", "%f2"), refused);
    assert_eq!(calling("mov.u64 %d1, table; ld.f32 %f1, [%d1];", "%f2"), refused);
    assert_eq!(calling("bar.sync 0;", "%f2"), refused);
    assert_eq!(calling("mov.f32 %f1, %f2;", "%f2"), refused, "a register that nobody wrote");
    assert_eq!(calling("exit;", "%f2"), refused, "no store for this thread");
    let recursive = "{ .param .b32 p; .param .b32 q; st.param.f32 [p], %f1; call.uni (q), f, (p); ld.param.f32 %f1, [q]; }";
    assert_eq!(calling(recursive, "%f2"), refused);
    assert_eq!(
        calling("mul.f32 %f1, %f1, %f1;", "%r4"),
        Err(Reason::Index),
        "an argument that depends on the block"
    );
}

/// Where a buffer is read in many places, its allocation stands for them.
#[test]
fn many_regions_are_their_allocations() {
    let reads: String = (0..20)
        .map(|at| format!("mul.lo.s32 %r0, %r1, {at}; mul.wide.s32 %rd0, %r0, 4; add.s64 %rd0, %rd3, %rd0; ld.global.f32 %f3, [%rd0];"))
        .collect();
    let source = SCALE.replace("mul.f32 %f3, %f1, %f2;", &format!("{reads} mul.f32 %f3, %f1, %f2;"));
    let condition = proof(&source).unwrap().condition().unwrap();
    assert!(launch_condition::Checked::of(&condition).is_some());
    assert!(condition.regions.iter().any(|region| region.bytes.is_none()), "{:?}", condition.regions);
}

#[test]
fn candidates_are_whole_warps_that_the_kernel_allows() {
    let proof = proof(SCALE).unwrap();
    let line = proof.candidates(&LaunchConfig::new(10, 96));
    assert_eq!(line.len(), 15, "32 to 512 without the launch's own");
    assert!(line.iter().all(|block| block.x % 32 == 0 && block.x <= 512 && block.is_one_dimensional()));
    let plane = proof.candidates(&LaunchConfig::new((4, 4, 1), (16, 16, 1)));
    assert!(plane.contains(&Dim3::from((32, 8, 1))) && plane.contains(&Dim3::from((64, 1, 1))));
    assert!(plane.iter().all(|block| block.count() <= 512 && block.x % 32 == 0));
}

/// Halves of a register do not carry into each other, so their sum is no sum of indices.
#[test]
fn a_packed_sum_is_no_index() {
    let of = |sum: &str| {
        let source = SCALE
            .replace("mul.wide.s32 %rd4, %r5, 4;", &format!("{sum} %r0, %r5, 2; mul.wide.s32 %rd4, %r0, 4;"));
        proof(&source).map(|_| ()).map_err(|refusal| refusal.reason)
    };
    assert_eq!((of("add.s32"), of("add.u16x2")), (Ok(()), Err(Reason::SharedStore)));
}

#[test]
fn the_architecture_is_the_one_that_the_module_names() {
    assert_eq!(virtual_architecture(&ptx::parse(SCALE).unwrap()), Some("sm_86"));
}
