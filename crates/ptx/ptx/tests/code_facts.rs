//! Facts about compiled kernels: those with a fault, and those without.

use cuda_launch::LaunchConfig;
use proptest::prelude::*;
use ptx::{Fact, FactKind, Function, Module};
use ptx_estimate::Estimator;
use std::path::{Path, PathBuf};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

fn module(path: &Path) -> Module {
    let source = std::fs::read_to_string(path).unwrap();
    ptx::parse(&source).unwrap_or_else(|error| panic!("{}", error.render("kernel", &source)))
}

fn facts_of(module: &Module, kernel: &Function) -> Vec<Fact> {
    let launch = LaunchConfig::new([1000, 4, 1], [128, 1, 1]);
    ptx::facts(module, kernel, &Estimator::new(module, kernel).probe(kernel, &launch))
}

/// The facts about the kernel of a file whose name contains `kernel`.
fn facts(file: &str, kernel: &str) -> Vec<Fact> {
    let module = module(&folder("code_facts").join(format!("{file}.ptx")));
    let found = module.kernels().find(|found| found.name.contains(kernel)).expect("the kernel");
    facts_of(&module, found)
}

/// The fact of this kind about a kernel.
fn fact(file: &str, kernel: &str, kind: FactKind) -> Fact {
    let all = facts(file, kernel);
    let found = all.iter().find(|fact| fact.kind == kind).cloned();
    found.unwrap_or_else(|| panic!("{file}, {kernel}: {kind:?} is not among {all:?}"))
}

#[test]
fn faults_are_found_where_they_are() {
    use FactKind::{
        BankConflicts, BarrierReduction, DeviceHeap, DivergentConstants, Doubles, LongDivisions, Printf,
        RowsByThread, ScalarProduct, StridedAccesses, SumInMemory, UntiledProduct,
    };
    let faults = [
        ("bank_conflicts", "Li32E", BankConflicts, 0.9, "bank_conflicts.cu", 14),
        ("constant_table", "Lb0E", DivergentConstants, 0.1, "constant_table.cu", 19),
        ("double_literals", "evaluateIdE", Doubles, 0.9, "double_literals.cu", 9),
        ("hashed_slots", "Lb0E", LongDivisions, 0.6, "hashed_slots.cu", 11),
        ("malloc_in_kernel", "Lb1E", DeviceHeap, 1.0, "malloc_in_kernel.cu", 10),
        ("naive_product", "tiled", ScalarProduct, 0.5, "naive_product.cu", 30),
        ("naive_product", "simple", UntiledProduct, 0.2, "naive_product.cu", 11),
        ("printing_kernel", "limit", Printf, 1.0, "printing_kernel.cu", 11),
        ("strided_reads", "8row_sums", StridedAccesses, 0.9, "strided_reads.cu", 9),
        ("structures", "P8Particle", StridedAccesses, 0.9, "structures.cu", 12),
        ("sum_in_memory", "Lb0E", SumInMemory, 0.6, "sum_in_memory.cu", 13),
        ("table_of_pointers", "5norms", RowsByThread, 0.9, "table_of_pointers.cu", 11),
        ("transpose", "naive", StridedAccesses, 0.4, "transpose.cu", 8),
        ("triton_sum_column", "sum_column", StridedAccesses, 0.9, "triton_kernels.py", 18),
        ("volatile_sums", "4sums", BarrierReduction, 0.6, "volatile_sums.cu", 13),
    ];
    for (file, kernel, kind, least, source, line) in faults {
        let fact = fact(file, kernel, kind);
        assert!((least..=1.0).contains(&fact.share), "{file}: {fact:?}");
        assert_eq!(fact.place, Some((source.to_owned(), line)), "{file}: {kind:?}");
    }
}

#[test]
fn kernels_without_the_fault_have_no_such_fact() {
    let remedies = [
        ("bank_conflicts", "Li33E"),
        ("double_literals", "evaluateIfE"),
        ("hashed_slots", "Lb1E"),
        ("malloc_in_kernel", "Lb0E"),
        ("strided_reads", "row_sums_by_warps"),
        ("structures", "drift_arrays"),
        ("sum_in_memory", "Lb1E"),
        ("table_of_pointers", "norms_by_warps"),
        ("transpose", "tiled"),
        ("triton_sum_columns", "sum_columns"),
        ("triton_product_tf32", "product"),
        ("volatile_sums", "sums_in_registers"),
    ];
    for (file, kernel) in remedies {
        assert_eq!(facts(file, kernel), [], "{file}, {kernel}");
    }
    // The table is copied to shared memory once.
    assert!(fact("constant_table", "Lb1E", FactKind::DivergentConstants).share < 0.01);
}

/// The kernels of limits.cu that have a costly construct, and that.
const COSTLY: [(&str, FactKind); 12] = [
    ("tree_sums", FactKind::BarrierReduction),
    ("tree_maxima", FactKind::BarrierReduction),
    ("summed_first", FactKind::BarrierReduction),
    ("total_by_threads", FactKind::OneTotal),
    ("exchanged_sums", FactKind::SumBySwap),
    ("locked_bins", FactKind::Lock),
    ("local_histogram", FactKind::LocalArray),
    ("one_adds", FactKind::OneThread),
    ("fenced", FactKind::FenceInLoop),
    ("untiled_product", FactKind::UntiledProduct),
    ("rows_by_threads", FactKind::RowsByThread),
    ("prints", FactKind::Printf),
];

/// Each kernel of limits.cu has its own construct, and no kernel that is like it has it.
#[test]
fn constructs_are_told_apart_from_their_likes() {
    let module = module(&folder("code_facts").join("limits.ptx"));
    let constructs: Vec<FactKind> = COSTLY.iter().map(|(_, kind)| *kind).collect();
    let mut found = Vec::new();
    for kernel in module.kernels() {
        let facts = facts_of(&module, kernel).into_iter().filter(|fact| constructs.contains(&fact.kind));
        found.extend(facts.map(|fact| (kernel.name.to_string(), fact.kind)));
    }
    let expected = COSTLY.map(|(name, kind)| (name.to_owned(), kind));
    assert_eq!(found, expected);
    assert!(module.kernels().count() >= 2 * COSTLY.len());
}

#[test]
fn what_a_reduction_costs_is_what_is_loaded_for_it() {
    let loads = |kernel: &str| fact("limits", kernel, FactKind::BarrierReduction).cost;
    assert_eq!((loads("tree_sums"), loads("tree_maxima"), loads("summed_first")), (1.0, 1.0, 8.0));
}

#[test]
fn a_call_that_all_threads_make_is_told_apart() {
    assert_eq!(fact("limits", "prints", FactKind::Printf).cost, 1.0);
    assert_eq!(fact("printing_kernel", "limit", FactKind::Printf).cost, 0.0);
}

/// Short rows lie in the same sectors.
#[test]
fn rows_are_as_long_as_a_parameter_says() {
    for (file, kernel) in [("limits", "rows_by_threads"), ("table_of_pointers", "5norms")] {
        let rows = fact(file, kernel, FactKind::RowsByThread);
        assert_eq!((rows.cost, rows.least, rows.by_parameter), (32.0, 4.0, true));
    }
}

#[test]
fn what_a_parameter_decides_is_told_apart() {
    assert!(fact("transpose", "naive", FactKind::StridedAccesses).by_parameter);
    assert!(!fact("structures", "P8Particle", FactKind::StridedAccesses).by_parameter);
    let strided = fact("triton_sum_column", "sum_column", FactKind::StridedAccesses);
    assert_eq!((strided.cost, strided.least), (32.0, 4.0));
}

/// A kernel of one thread's accesses: `body` computes `%at`, a 32-bit index, from `%i`, the
/// thread's number.
fn loading(body: &str, parameters: &str) -> Vec<Fact> {
    let source = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 p{parameters}) {{
         .reg .b32 %i, %at, %n, %m, %v; .reg .b64 %p, %o, %a;
         ld.param.u64 %p, [p]; cvta.to.global.u64 %p, %p; mov.u32 %i, %tid.x; {body}
         mul.wide.u32 %o, %at, 4; add.s64 %a, %p, %o; ld.global.u32 %v, [%a]; ret; }}"
    );
    let module = ptx::parse(&source).unwrap_or_else(|error| panic!("{}", error.render("k", &source)));
    let kernel = module.kernels().next().expect("the kernel");
    facts_of(&module, kernel)
}

/// Whether a kernel that adds at `index`, computed in `%at`, has blocks that add to the same
/// numbers. `%i` and `%b` are the thread's and the block's number.
fn shares_sums(index: &str) -> bool {
    let source = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 p) {{
         .reg .b32 %i, %b, %at, %m; .reg .f32 %f; .reg .b64 %p, %o, %a;
         ld.param.u64 %p, [p]; cvta.to.global.u64 %p, %p; mov.u32 %i, %tid.x; mov.u32 %b, %ctaid.x;
         ld.global.u32 %m, [%p]; mov.f32 %f, 0f3F800000; {index}
         mul.wide.u32 %o, %at, 4; add.s64 %a, %p, %o; red.global.add.f32 [%a], %f; ret; }}"
    );
    let module = ptx::parse(&source).unwrap_or_else(|error| panic!("{}", error.render("k", &source)));
    let kernel = module.kernels().next().expect("the kernel");
    facts_of(&module, kernel).iter().any(|fact| fact.kind == FactKind::SharedSums)
}

/// Whether a kernel searches in a loop of this body, in which `%a` is the place in a table and `%x`
/// what is searched.
fn searches(body: &str) -> bool {
    let source = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 p, .param .f32 x) {{
         .reg .f32 %f, %x, %s; .reg .b64 %p, %a; .reg .pred %q, %r;
         ld.param.u64 %p, [p]; ld.param.f32 %x, [x]; cvta.to.global.u64 %a, %p; mov.f32 %s, %x;
         again: {body} add.s64 %a, %a, 4; @%q bra again;
         st.global.f32 [%a], %s; ret; }}"
    );
    let module = ptx::parse(&source).unwrap_or_else(|error| panic!("{}", error.render("k", &source)));
    let kernel = module.kernels().next().expect("the kernel");
    facts_of(&module, kernel).iter().any(|fact| fact.kind == FactKind::LinearSearch)
}

#[test]
fn a_linear_search_is_told_apart() {
    assert!(searches("ld.global.f32 %f, [%a]; setp.lt.f32 %q, %f, %x;"));
    let sums = "ld.global.f32 %f, [%a]; setp.lt.f32 %q, %f, %x; add.f32 %s, %s, %f;";
    assert!(!searches(sums), "the values are used");
    let one = "ld.global.f32 %f, [%p]; setp.lt.f32 %q, %f, %x;";
    assert!(!searches(one), "a flag that is waited for");
    let count = "ld.global.f32 %f, [%a]; setp.lt.f32 %r, %f, %x; @%r add.f32 %s, %s, 0f3F800000; \
                 setp.lt.s64 %q, %a, 4096;";
    assert!(!searches(count), "values are counted, and all are read");
    let bounded =
        "ld.global.f32 %f, [%a]; setp.lt.f32 %r, %f, %x; setp.lt.s64 %q, %a, 4096; and.pred %q, %q, %r;";
    assert!(searches(bounded), "the table has an end, too");
}

#[test]
fn blocks_that_add_to_the_same_numbers_are_told_apart() {
    assert!(shares_sums("and.b32 %at, %i, 127;"));
    assert!(!shares_sums("mad.lo.u32 %at, %b, 128, %i;"), "each block has its own");
    assert!(!shares_sums("add.u32 %at, %m, %i;"), "data choose");
    assert!(!shares_sums("mov.u32 %at, 3;"), "one number for all is another fact");
}

proptest! {
    /// A stride of `stride` words touches as many sectors as arithmetic says.
    #[test]
    fn strides_cost_what_they_touch(stride in 1u64..64, offset in 0u64..1000) {
        let facts = loading(&format!("mad.lo.u32 %at, %i, {stride}, {offset};"), "");
        let mut sectors: Vec<u64> = (0..32).map(|lane| lane * stride * 4 / 32).collect();
        sectors.dedup();
        match &facts[..] {
            [] => prop_assert!(sectors.len() <= 8, "{}", sectors.len()),
            [fact] => {
                prop_assert_eq!(fact.kind, FactKind::StridedAccesses);
                prop_assert_eq!((fact.cost, fact.least), (sectors.len() as f64, 4.0));
                prop_assert!(!fact.by_parameter);
            }
            more => prop_assert!(false, "{:?}", more),
        }
    }

    /// A stride that is a parameter is told as such; data decide nothing.
    #[test]
    fn parameters_and_data(shift in 0u32..3) {
        let by_parameter = loading("ld.param.u32 %n, [n]; mul.lo.u32 %at, %i, %n;", ", .param .u32 n");
        prop_assert_eq!(by_parameter.len(), 1);
        prop_assert!(by_parameter[0].by_parameter);
        let by_data = format!(
            "mul.wide.u32 %o, %i, 4; add.s64 %a, %p, %o; ld.global.u32 %m, [%a]; shl.b32 %at, %m, {shift};"
        );
        prop_assert_eq!(loading(&by_data, ""), []);
    }

    /// A structure that a thread reads as a whole wastes no sector.
    #[test]
    fn members_of_structures_count_together(members in 2u64..9) {
        let loads: String = (1..members).map(|member| format!("ld.global.u32 %v, [%a+{}];", 4 * member)).collect();
        let body = format!("mul.lo.u32 %at, %i, {members}; mul.wide.u32 %o, %at, 4; add.s64 %a, %p, %o; \
                            ld.global.u32 %m, [%a]; {loads}");
        // The last load goes through another register, and is one of many.
        let facts = loading(&body, "");
        prop_assert!(facts.iter().all(|fact| fact.share <= 1.0 / members as f64), "{:?}", facts);
    }
}

/// All kernels of this crate's tests: none makes it panic, shares are shares, and the same code has
/// the same facts.
#[test]
fn any_code_has_facts() {
    let corpus = test_manifest::ptx_corpus().into_iter();
    let mut modules: Vec<Module> = corpus.map(|(_, text)| ptx::parse(&text).unwrap()).collect();
    for name in ["facts", "code_facts"] {
        let paths = std::fs::read_dir(folder(name)).unwrap().map(|entry| entry.unwrap().path());
        let is_ptx = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "ptx");
        modules.extend(paths.filter(is_ptx).map(|path| module(&path)));
    }
    let mut kernels_seen = 0;
    for module in &modules {
        for kernel in module.kernels() {
            let facts = facts_of(module, kernel);
            assert!(facts.iter().all(|fact| (0.0..=1.0).contains(&fact.share)), "{facts:?}");
            assert_eq!(facts, facts_of(module, kernel), "{}", kernel.name);
            kernels_seen += 1;
        }
    }
    assert!(kernels_seen > 50, "{kernels_seen}");
}

/// A library of vendor code whose kernels skip ahead, and their like.
#[test]
fn generators_are_told_by_their_tables() {
    let source = ".version 8.0\n.target sm_80\n.address_size 64\n
        .global .align 4 .b8 precalc_xorwow_matrix[102400];
        .global .align 4 .b8 _ZN4mineL10mrg32k3aM1E[2304];
        .visible .entry draws(.param .u64 p) { .reg .b64 %a; mov.u64 %a, precalc_xorwow_matrix; ret; }
        .visible .entry in_a_namespace(.param .u64 p) { .reg .b64 %a; mov.u64 %a, _ZN4mineL10mrg32k3aM1E; ret; }
        .visible .entry does_not(.param .u64 p) { .reg .b64 %a; ld.param.u64 %a, [p]; ret; }";
    let module = ptx::parse(source).unwrap();
    let kinds: Vec<Vec<FactKind>> = module
        .kernels()
        .map(|kernel| facts_of(&module, kernel).iter().map(|fact| fact.kind).collect())
        .collect();
    assert_eq!(kinds, [vec![FactKind::GeneratorSetUp], vec![FactKind::GeneratorSetUp], vec![]]);
}

/// A loop that calls by address, a call by address outside of loops, and a loop that calls by name.
/// No kernel has the table of a function that only a call by address might reach.
#[test]
fn calls_by_address_are_told_in_loops_and_lend_no_facts() {
    let source = ".version 8.0\n.target sm_80\n.address_size 64\n
        .global .align 4 .b8 precalc_xorwow_matrix[102400];
        .func other() { .reg .b64 %a; mov.u64 %a, precalc_xorwow_matrix; ret; }
        .func named() { ret; }
        .visible .entry looped(.param .u64 p) {
            .reg .b64 %f; .reg .b32 %i; .reg .pred %q;
            ld.param.u64 %f, [p]; mov.u32 %i, 0;
            again: prototype: .callprototype ()_(); call %f, prototype;
            add.s32 %i, %i, 1; setp.lt.s32 %q, %i, 10; @%q bra again; ret; }
        .visible .entry straight(.param .u64 p) {
            .reg .b64 %f; ld.param.u64 %f, [p];
            prototype: .callprototype ()_(); call %f, prototype; ret; }
        .visible .entry by_name(.param .u64 p) {
            .reg .b32 %i; .reg .pred %q; mov.u32 %i, 0;
            again: call named; add.s32 %i, %i, 1; setp.lt.s32 %q, %i, 10; @%q bra again; ret; }";
    let module = ptx::parse(source).unwrap();
    let kinds: Vec<Vec<FactKind>> = module
        .kernels()
        .map(|kernel| facts_of(&module, kernel).iter().map(|fact| fact.kind).collect())
        .collect();
    assert_eq!(kinds, [vec![FactKind::IndirectCalls], vec![], vec![]]);
}

#[test]
fn bytes_side_by_side_are_narrow_and_words_are_not() {
    // Each thread reads one byte of a row; the other accesses are of words, once.
    let bytes = fact("limits", "local_histogram", FactKind::NarrowAccesses);
    assert!(bytes.share > 0.5 && bytes.cost <= 2.0, "{bytes:?}");
    assert!(facts("structures", "drift_arrays").iter().all(|fact| fact.kind != FactKind::NarrowAccesses));
}

#[test]
fn the_slow_path_of_sine_is_neither_an_array_nor_arithmetic_in_doubles() {
    let has = |kernel, kind| facts("limits", kernel).iter().any(|fact| fact.kind == kind);
    assert!(has("sines", FactKind::ArgumentReduction) && !has("sines", FactKind::LocalArray));
    assert!(!has("sines", FactKind::Doubles));
    assert!(!has("local_histogram", FactKind::ArgumentReduction));
}

/// A kernel around a loop; `%r1` is a thread's index, `%rd1` an address.
fn with_loop(body: &str) -> Vec<FactKind> {
    let source = format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry kernel(.param .u64 in, .param .u64 out) {{\n\
         .reg .pred %p<9>;\n.reg .b32 %r<19>;\n.reg .b64 %rd<19>;\n\
         ld.param.u64 %rd1, [in];\nld.param.u64 %rd2, [out];\nmov.u32 %r1, %tid.x;\nsetp.eq.u32 %p1, %r1, 0;\n\
         {body}\nst.global.u32 [%rd2], %r2;\nret;\n}}\n"
    );
    let module = ptx::parse(&source).unwrap_or_else(|error| panic!("{}", error.render("kernel", &source)));
    let kernel = module.kernels().next().expect("the kernel");
    facts_of(&module, kernel).into_iter().map(|fact| fact.kind).collect()
}

#[test]
fn one_thread_takes_a_lock_for_its_block() {
    let spin = |more: &str| {
        format!(
            "$L1:\n@%p1 atom.global.acq_rel.gpu.cas.b32 %r2, [%rd1], 0, 1;\n{more}@%p1 st.shared.u32 [0], %r2;\n\
             bar.sync 0;\nld.shared.u32 %r3, [0];\nsetp.eq.u32 %p2, %r3, 1;\n@%p2 bra $L1;"
        )
    };
    assert_eq!(with_loop(&spin("")), [FactKind::Lock]);
    // A loop that also works is none that waits.
    assert!(!with_loop(&spin("ld.global.u32 %r4, [%rd2+4];\n")).contains(&FactKind::Lock));
}

#[test]
fn a_linked_list_is_a_chain_of_loads() {
    let walk = |next: &str| {
        format!(
            "mov.u32 %r2, 0;\n$L1:\nmul.wide.s32 %rd4, %r1, 4;\nadd.s64 %rd5, %rd1, %rd4;\nld.global.u32 %r4, [%rd5];\n\
             add.s32 %r2, %r2, %r4;\n{next}\nsetp.gt.s32 %p2, %r1, -1;\n@%p2 bra $L1;"
        )
    };
    assert!(with_loop(&walk("mov.u32 %r1, %r4;")).contains(&FactKind::ChainOfLoads));
    assert!(!with_loop(&walk("add.s32 %r1, %r1, -1;")).contains(&FactKind::ChainOfLoads));
    // What is loaded decides how far the search goes, and not where the next load is.
    let search = "setp.gt.s32 %p3, %r4, 7;\nselp.s32 %r5, 1, 2, %p3;\nsub.s32 %r1, %r1, %r5;";
    assert!(!with_loop(&walk(search)).contains(&FactKind::ChainOfLoads));
}

#[test]
fn products_that_shuffles_add_up_are_told() {
    let kernel = |products: &str, shuffles: &str| {
        format!(
            "$L1:\nld.shared.v4.b32 {{%r3, %r4, %r5, %r6}}, [0];\nld.shared.v4.b32 {{%r7, %r8, %r9, %r10}}, [16];\n\
             {products}{shuffles}setp.gt.s32 %p2, %r2, 7;\n@%p2 bra $L1;"
        )
    };
    let pairs = |factors: &[usize]| {
        let pair = |(a, b): (usize, usize)| format!("mul.f32 %r{}, %r{a}, %r{b};\n", 11 + (a + b) % 4);
        factors.iter().flat_map(|&a| (7..11).map(move |b| pair((a, b)))).collect::<String>()
    };
    let shuffled = |times: usize| {
        let one = "shfl.sync.bfly.b32 %r15, %r11, 8, 31, -1;\nadd.f32 %r2, %r15, %r11;\n";
        one.repeat(times)
    };
    let has = |products: &str, shuffles: &str| {
        with_loop(&kernel(products, shuffles)).contains(&FactKind::ProductAcrossThreads)
    };
    assert!(has(&pairs(&[3, 4, 5, 6]), &shuffled(16)));
    // Sums of one thread's own products, and products of elements with their like.
    assert!(!has(&pairs(&[3, 4, 5, 6]), &shuffled(4)));
    assert!(!has(&pairs(&[3]), &shuffled(16)));
}

#[test]
fn powers_are_known_by_their_polynomial() {
    let power = |coefficient: &str| {
        format!(
            "$L1:\nmov.b32 %r3, {coefficient};\nfma.rn.f32 %r4, %r3, %r2, 0f3AAF85ED;\nadd.f32 %r2, %r4, %r4;\n\
             setp.gt.s32 %p2, %r2, 7;\n@%p2 bra $L1;"
        )
    };
    assert!(with_loop(&power("0f391FCB8E")).contains(&FactKind::Powers));
    assert!(!with_loop(&power("0f391FCB8F")).contains(&FactKind::Powers));
}

#[test]
fn a_product_waits_for_tiles_that_its_own_round_loads() {
    let round = |load: &str| {
        format!(
            "$L1:\n{load}\nmma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {{%r2, %r5, %r6, %r7}}, {{%r3, %r3, %r3, %r3}}, \
             {{%r3, %r3}}, {{%r2, %r5, %r6, %r7}};\nsetp.gt.s32 %p2, %r2, 7;\n@%p2 bra $L1;"
        )
    };
    let has = |load: &str| with_loop(&round(load)).contains(&FactKind::UnstagedProduct);
    assert!(has("ld.global.b32 %r3, [%rd1];"));
    // Out of shared memory, and with copies ahead.
    assert!(!has("ld.shared.b32 %r3, [0];"));
    assert!(!has("ld.global.b32 %r3, [%rd1];\ncp.async.ca.shared.global [0], [%rd1], 16;"));
}
