//! Kernels whose accesses ask for too much: the change that is found is the expected one, and where
//! it was counted, both kernels are executed: memory is the same, and what the executor counts
//! falls by what was stated.

#[path = "../../reshape/tests/shapes/arena.rs"]
#[allow(dead_code, reason = "launches are watched here")]
mod arena;

use apex_counts::Space;
use arena::Arena;
use cuda_launch::LaunchConfig;
use ptx_estimate::Argument;
use ptx_exec::{LaunchParams, WatchOptions, watch};
use ptx_requests::{Change, Counted, Remedy, Report};
use std::sync::atomic::AtomicBool;

/// A kernel `k(a, b)` of two pointers, whose code is `body`.
fn kernel(body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.extern .shared .align 16 .b8 dynamic[];\n\
         .visible .entry k(\n.param .u64 k_param_0,\n.param .u64 k_param_1\n)\n{{\n\
         .reg .pred %p<4>;\n.reg .b32 %r<30>;\n.reg .f32 %f<10>;\n.reg .f64 %d<10>;\n.reg .b64 %q<30>;\n\
         ld.param.u64 %q1, [k_param_0];\nld.param.u64 %q2, [k_param_1];\n\
         cvta.to.global.u64 %q3, %q1;\ncvta.to.global.u64 %q4, %q2;\n\
         mov.u32 %r1, %tid.x;\nmov.u32 %r2, %tid.y;\nmov.u32 %r3, %ctaid.x;\nmov.u32 %r4, %ctaid.y;\n\
         mov.u32 %r5, %ntid.x;\nmov.u32 %r6, %ntid.y;\n\
         mad.lo.s32 %r7, %r3, %r5, %r1;\nmad.lo.s32 %r8, %r4, %r6, %r2;\n{}\nret;\n}}\n",
        body.replace("; ", ";\n")
    )
}

/// Row x, column y of a matrix of 64 columns.
const COLUMN: &str = "mad.lo.s32 %r9, %r7, 64, %r8; mul.wide.s32 %q5, %r9, 4; add.s64 %q6, %q3, %q5; \
    add.s64 %q7, %q4, %q5; ld.global.f32 %f1, [%q6]; add.f32 %f2, %f1, %f1; st.global.f32 [%q7], %f2;";

/// A tile of 32 by 32 words in shared memory: written along rows, read along columns.
const TILE: &str = ".shared .align 4 .b8 tile[4096]; mad.lo.s32 %r9, %r2, 32, %r1; mul.wide.s32 %q5, %r9, 4; \
    add.s64 %q6, %q3, %q5; ld.global.f32 %f1, [%q6]; mov.u32 %r10, tile; shl.b32 %r11, %r9, 2; \
    add.s32 %r12, %r10, %r11; st.shared.f32 [%r12], %f1; bar.sync 0; mad.lo.s32 %r13, %r1, 32, %r2; \
    shl.b32 %r14, %r13, 2; add.s32 %r15, %r10, %r14; ld.shared.f32 %f2, [%r15]; add.s64 %q7, %q4, %q5; \
    st.global.f32 [%q7], %f2;";

/// Four members of a structure of four words.
const MEMBERS: &str = "mul.wide.s32 %q5, %r7, 16; add.s64 %q6, %q3, %q5; ld.global.nc.f32 %f1, [%q6]; \
    ld.global.nc.f32 %f2, [%q6+4]; add.f32 %f5, %f1, %f2; ld.global.nc.f32 %f3, [%q6+12]; \
    ld.global.nc.f32 %f4, [%q6+8]; add.f32 %f6, %f3, %f4; add.f32 %f7, %f5, %f6; mul.wide.s32 %q7, %r7, 4; \
    add.s64 %q8, %q4, %q7; st.global.f32 [%q8], %f7;";

/// Two neighbouring stores, the second of which is computed between them.
const STORES: &str = "mul.wide.s32 %q5, %r7, 8; add.s64 %q6, %q3, %q5; ld.global.v2.f32 {%f1, %f2}, [%q6]; \
    add.s64 %q7, %q4, %q5; st.global.f32 [%q7], %f1; add.f32 %f3, %f2, %f1; st.global.f32 [%q7+4], %f3;";

/// Loads that a store between them may change.
const BETWEEN: &str = "mul.wide.s32 %q5, %r7, 8; add.s64 %q6, %q3, %q5; ld.global.f32 %f1, [%q6]; \
    st.global.f32 [%q6+4], %f1; ld.global.f32 %f2, [%q6+4]; st.global.f32 [%q4], %f2;";

/// One member of a structure of three words.
const MEMBER: &str = "mul.wide.s32 %q5, %r7, 12; add.s64 %q6, %q3, %q5; ld.global.f32 %f1, [%q6]; \
    mul.wide.s32 %q7, %r7, 4; add.s64 %q8, %q4, %q7; st.global.f32 [%q8], %f1;";

/// Each thread goes along its own 64 words.
const ROWS: &str = "mul.wide.s32 %q5, %r7, 256; add.s64 %q6, %q3, %q5; mov.u32 %r9, 0; mov.f32 %f1, 0f00000000; \
    $L: ld.global.f32 %f2, [%q6]; add.f32 %f1, %f1, %f2; add.s64 %q6, %q6, 4; add.s32 %r9, %r9, 1; \
    setp.lt.s32 %p1, %r9, 64; @%p1 bra $L; mul.wide.s32 %q7, %r7, 4; add.s64 %q8, %q4, %q7; st.global.f32 [%q8], %f1;";

struct Case {
    source: String,
    launch: LaunchConfig,
}

impl Case {
    fn new(body: &str, grid: impl Into<cuda_launch::Dim3>, block: impl Into<cuda_launch::Dim3>) -> Case {
        Case { source: kernel(body), launch: LaunchConfig::new(grid, block) }
    }

    fn module(&self) -> ptx::Module {
        ptx::parse(&self.source).unwrap_or_else(|error| panic!("{}", error.render("k", &self.source)))
    }

    fn report(&self) -> Report {
        let arguments = [Argument::Pointer, Argument::Pointer];
        Report::of(&self.module(), "k", &self.launch, &arguments).expect("there is a kernel")
    }

    fn remedies(&self) -> Vec<Remedy> {
        self.report().remedies
    }
}

/// The next address that is aligned as allocations are: a buffer has room for that.
fn aligned(address: u64) -> u64 {
    address.next_multiple_of(256)
}

/// Memory after a launch, and the sectors and wavefronts that the executor counts.
fn executed(arena: &mut Arena, module: &ptx::Module, launch: LaunchConfig) -> (Vec<u128>, u64, u64) {
    // (The text is what a user gets.)
    let text = module.to_string();
    let module = ptx::parse(&text).unwrap_or_else(|error| panic!("{}", error.render("k", &text)));
    let found = ptx::verify(&module);
    assert!(found.is_empty(), "{found:?}\n{text}");
    let linked = arena::compile(&module, &text);
    let words: Vec<u128> =
        (0..arena.words() as u128).map(|word| word * 0x3f80_0001_4000_0003_4080_0007).collect();
    arena.fill(&words);
    let params: Vec<u8> =
        [0, 1].iter().flat_map(|&buffer| aligned(arena.buffer(buffer)).to_le_bytes()).collect();
    let params =
        LaunchParams { config: launch, cooperative: false, stack: 1024, workers: 1, params: &params };
    let kernel = linked.program().kernel("k").expect("there is a kernel");
    let options = WatchOptions { count: true, sample: None, check: false };
    let (outcome, seen) = watch(&linked, kernel, &params, &*arena, &AtomicBool::new(false), options);
    outcome.unwrap_or_else(|fault| panic!("{fault:?}\n{text}"));
    let counts = seen.counts.expect("they are counted").counts;
    let traffic = |space| counts.all_traffic(space).transactions;
    (arena.contents(), traffic(Space::Global), traffic(Space::Shared))
}

/// Executes a kernel before and after a change: memory is the same, and the counts fall as stated.
fn check(case: &Case, report: &Report, counted: &Counted) {
    let mut arena = Arena::new();
    let (memory, sectors, wavefronts) = executed(&mut arena, &case.module(), case.launch);
    let (changed, fewer_sectors, fewer_wavefronts) = executed(&mut arena, &counted.module, counted.launch);
    assert!(memory == changed, "{}", counted.module);
    let (before, after) = (&report.totals, &counted.totals);
    assert_eq!(sectors * after.sectors, fewer_sectors * before.sectors, "{}", counted.module);
    assert_eq!(wavefronts * after.wavefronts, fewer_wavefronts * before.wavefronts, "{}", counted.module);
    assert!(fewer_sectors < sectors || fewer_wavefronts < wavefronts);
}

/// The only remedy of a case, counted and executed.
fn mended(case: &Case) -> (Change, u64, u64) {
    let report = case.report();
    let [remedy] = &report.remedies[..] else { panic!("{} remedies", report.remedies.len()) };
    let counted = remedy.counted.as_ref().expect("it is counted");
    check(case, &report, counted);
    (remedy.change.clone(), counted.before, counted.after)
}

#[test]
fn axes_are_exchanged_in_square_blocks() {
    let (change, before, after) = mended(&Case::new(COLUMN, (4, 4, 1), (16, 16, 1)));
    assert_eq!((change, before, after), (Change::ExchangeAxes, 32, 8));
}

#[test]
fn a_flat_block_stays_where_the_proof_allows_it() {
    let case = Case::new(COLUMN, (1, 32, 1), (64, 2, 1));
    let (change, before, after) = mended(&case);
    assert_eq!((change, before, after), (Change::ExchangeAxes, 64, 8));
    let counted = case.remedies()[0].counted.clone().unwrap();
    assert_eq!(counted.launch.block, case.launch.block);
    assert!(counted.conditional);
    // With a shuffle, warps must stay as they are.
    let body = COLUMN.replace("add.f32 %f2, %f1, %f1", "shfl.sync.idx.b32 %f2, %f1, 0, 31, -1");
    let remedies = Case::new(&body, (2, 8, 1), (32, 8, 1)).remedies();
    assert!(remedies.iter().all(|remedy| remedy.change != Change::ExchangeAxes));
}

#[test]
fn rows_of_a_tile_are_padded() {
    let expected =
        |name: &str| (Change::PadRows { variable: name.to_owned(), row_bytes: 128, padding: 4 }, 32, 1);
    assert_eq!(mended(&Case::new(TILE, 1, (32, 32, 1))), expected("tile"));
    let body = TILE.replace(".shared .align 4 .b8 tile[4096]; ", "").replace("tile", "dynamic");
    let mut case = Case::new(&body, 1, (32, 32, 1));
    case.launch.dynamic_shared_bytes = 4096;
    assert_eq!(mended(&case), expected("dynamic"));
    // An address that leaves the kernel's own accesses forbids it.
    let body = TILE.replace("bar.sync 0;", "cvta.shared.u64 %q9, %q5; bar.sync 0;");
    assert!(Case::new(&body, 1, (32, 32, 1)).remedies().is_empty());
}

#[test]
fn neighbouring_accesses_become_vectors() {
    let four = Change::Vectorize { elements: 4, alignment: 16 };
    assert_eq!(mended(&Case::new(MEMBERS, 8, 64)), (four, 64, 16));
    let two = Change::Vectorize { elements: 2, alignment: 8 };
    assert_eq!(mended(&Case::new(STORES, 8, 64)), (two, 16, 8));
    let remedies = Case::new(BETWEEN, 8, 64).remedies();
    assert!(remedies.iter().all(|remedy| !matches!(remedy.change, Change::Vectorize { .. })));
}

#[test]
fn changes_of_data_and_loops_are_named_and_not_counted() {
    let named = |body: &str| {
        let remedies = Case::new(body, 2, 64).remedies();
        assert!(remedies.iter().all(|remedy| remedy.counted.is_none()));
        remedies.into_iter().map(|remedy| remedy.change).collect::<Vec<_>>()
    };
    assert_eq!(named(MEMBER), [Change::StructureOfArrays { structure_bytes: 12 }]);
    assert_eq!(named(ROWS), [Change::ExchangeLoops]);
    let by = |words: &str| COLUMN.replace("%r7, 64, %r8", &format!("%r7, {words}, 0"));
    assert_eq!(named(&by("2")), []);
    assert_eq!(named(&by("32")), [Change::StructureOfArrays { structure_bytes: 128 }]);
    assert_eq!(named(&by("64")), [Change::TransposeTile]);
}

/// Addresses that depend on data are listed, and nothing is said of them.
#[test]
fn data_dependent_accesses_are_not_judged() {
    let body = "mul.wide.s32 %q5, %r7, 4; add.s64 %q6, %q3, %q5; ld.global.u32 %r9, [%q6]; \
        mul.wide.s32 %q7, %r9, 4; add.s64 %q8, %q4, %q7; st.global.u32 [%q8], %r9;";
    let report = Case::new(body, 2, 64).report();
    assert_eq!(report.accesses.len(), 2);
    assert!(report.accesses[0].cost.is_some() && report.accesses[1].cost.is_none());
    assert!(report.remedies.is_empty() && report.totals.unknown == 1);
}

#[test]
fn addresses_that_fall_with_the_thread_ask_for_no_more() {
    let body = "mul.wide.s32 %q5, %r1, 4; sub.s64 %q6, %q3, %q5; ld.global.f32 %f1, [%q6]; \
        st.global.f32 [%q4], %f1;";
    let case = Case::new(body, (4, 1, 1), (64, 1, 1));
    assert_eq!(case.report().accesses[0].cost.map(|cost| (cost.count, cost.least)), Some((4, 4)));
}
