//! Known causes in profiles: what is matched, what is claimed, and which finding comes first.

use std::collections::{BTreeMap, BTreeSet};

use super::super::fixture::{
    activity, assert_clear_in, assert_finds_in, call, called, idle_during, named, profile_of, profile_with,
    timed,
};
use super::super::{RULES, Rule};
use super::{CALLS, KERNELS, VARIABLES, remedy_of_waits};
use crate::advise::{Options, advise};
use crate::finding::Finding;
use apex_knowledge::Knowledge;
use apex_profile::{
    Activity, CallStack, Frame, IdleCause, Iterations, Kernel, Process, Profile, Sequence, StackCount, Totals,
};
use apex_trace::layout::CallClass;

const CAT: &str = "_ZN2at6native40_GLOBAL__N__0f1a8107_8_Shape_cu_49f7391c19CatArrayBatchedCopyINS1_10OpaqueTypeILj4EEEjLi3ELi64ELi64EEEvPT_NS1_25CatArrInputTensorMetadataIS5_T0_XT2_EXT3_EEENS1_16TensorSizeStrideIS8_Lj4EEEiS8_";
const ATTENTION: &str = "_Z39fmha_cutlassF_f32_aligned_64x64_rf_sm80N22PyTorchMemEffAttention15AttentionKernelIfN7cutlass4arch4Sm80ELb1ELi64ELi64ELi64ELb1ELb1EE6ParamsE";
const OWN: &str = "_Z6kernelPf";

fn cause(finding: &Finding) -> &str {
    finding.cause.as_ref().map_or("", |cause| &cause.id)
}

fn shares(symbol: &str, share: f64) -> Profile {
    profile_of([timed(named(symbol), share * 1e6), timed(named(OWN), (1.0 - share) * 1e6)])
}

#[test]
fn a_kernel_that_takes_enough_time_is_named_with_its_remedy() {
    let finding = assert_finds_in(&KERNELS, shares(CAT, 0.5));
    assert_eq!(
        (cause(&finding), &finding.title[..]),
        ("pytorch-cat-in-loop", "Tensors grow by concatenation")
    );
    assert!(finding.change.contains("torch.stack"), "{}", finding.change);
    assert!(finding.verify.contains("cat_array_batched_copy"), "{}", finding.verify);
    let saved = finding.saving.of_kernel.expect("timed");
    assert!((saved.value - 0.85).abs() < 1e-9, "{saved:?}");
    assert_clear_in(&KERNELS, shares(CAT, 0.1));
}

#[test]
fn a_cause_stands_in_place_of_the_finding_that_it_explains() {
    let advice = advise(&shares(ATTENTION, 0.9), &Options::default());
    assert_eq!(cause(&advice.findings[0]), "pytorch-fp32-attention");
    assert!(advice.findings.iter().all(|finding| finding.slug != "fp32-products"));
}

#[test]
fn a_sequence_is_matched_where_it_occurs_and_not_elsewhere() {
    let strided = |functor: &str| {
        format!(
            "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::{functor}>(int)::{{lambda(int)#1}}>(int)"
        )
    };
    let symbols = [
        strided("CUDAFunctor_add<float>"),
        "void at::native::vectorized_elementwise_kernel<4, at::native::pow_tensor_scalar_kernel_impl<float, float>(int)::{lambda(float)#1}, int>(int)".to_owned(),
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::func_wrapper_t<float, at::native::sum_functor<float, float, float>::operator()(int)::{lambda(float, float)#1}>, unsigned int, float, 4, 4> >(int)".to_owned(),
    ];
    let profile = |order: [usize; 3]| {
        let kernels = [0, 1, 2].map(|row| timed(named(&symbols[row]), 1e6));
        let sequence = Sequence { length: 3, repeats: 100, kernels: order.to_vec(), ..Sequence::default() };
        Profile { sequences: vec![sequence], ..profile_of(kernels) }
    };
    let finding = assert_finds_in(&KERNELS, profile([0, 1, 2]));
    assert_eq!((cause(&finding), finding.kernels.len()), ("pytorch-distances-by-broadcast", 3));
    assert_eq!(cause(&assert_finds_in(&KERNELS, profile([2, 0, 1]))), cause(&finding), "a sequence goes on");
    assert_clear_in(&KERNELS, profile([1, 0, 2]));
}

/// A second with iterations, idle in host code for this share.
fn steps(count: u64, idle: f64, calls: Vec<apex_profile::Call>) -> Profile {
    let iterations = Some(Iterations { count, launches: 10.0, ..Iterations::default() });
    let busy = Activity { iterations, launches: 10 * count, ..idle_during(IdleCause::HostCode, 1e9, idle) };
    Profile {
        calls,
        kernels: vec![Kernel { name: "k".into(), ..called(named(OWN), 10 * count, 3e3) }],
        ..profile_with([busy])
    }
}

#[test]
fn a_call_in_every_iteration_is_named_and_a_rare_one_is_not() {
    let instantiating =
        |count| steps(1000, 0.3, vec![call("cuGraphInstantiateWithFlags", CallClass::Graph, count)]);
    let finding = assert_finds_in(&CALLS, instantiating(4_000));
    assert_eq!(cause(&finding), "graph-instantiated-each-step");
    assert!(finding.change.contains("cudaGraphExecUpdate"), "{}", finding.change);
    assert!((finding.saving.time_ns.expect("measured").value - 80e6).abs() < 1.0, "{:?}", finding.saving);
    assert_clear_in(&CALLS, instantiating(300));
    assert_clear_in(&CALLS, steps(1000, 0.3, Vec::new()));
}

fn from(file: &str) -> CallStack {
    let frame = Frame { file: file.to_owned(), line: Some(7), function: "f".to_owned() };
    CallStack { frames: vec![frame], ..CallStack::default() }
}

#[test]
fn a_call_belongs_to_the_most_particular_cause() {
    let loading = |file: &str| {
        let mut copying = call("cuMemcpyHtoD_v2", CallClass::Copy, 100);
        copying.stacks = vec![StackCount { stack: 0, first_seen: 1, sampled: 9 }];
        let calls = vec![call("cuModuleLoadData", CallClass::Module, 4_000), copying];
        Profile { call_stacks: vec![from(file)], ..steps(1000, 0.5, calls) }
    };
    let of = |file: &str| assert_finds_in(&CALLS, loading(file)).cause.map(|cause| cause.id);
    let packages = "/x/lib/python3.12/site-packages";
    assert_eq!(of(&format!("{packages}/cupy/fft/_fft.py")).as_deref(), Some("cupy-fft-plans"));
    assert_eq!(of(&format!("{packages}/cupy/_creation/basic.py")).as_deref(), Some("cupy-source-each-step"));
    assert_eq!(of("main.cpp").as_deref(), Some("modules-loaded-each-step"));
}

/// Launch-bound for 80% of a second; of ten launches so many are made by a parametrisation that the
/// program's line calls.
fn launching_weights(of_ten: u64) -> Profile {
    let frame = |file: &str, function: &str| Frame {
        file: file.to_owned(),
        line: Some(23),
        function: function.to_owned(),
    };
    let library = |file: &str, function: &str| frame(&format!("/x/site-packages/torch/{file}"), function);
    let line = || frame("/home/me/vocoder.py", "forward");
    let stack = |frames| CallStack { frames, ..CallStack::default() };
    let weights = library("nn/utils/parametrize.py", "ParametrizationList.forward");
    let call_stacks = vec![
        stack(vec![weights.clone(), library("nn/modules/conv.py", "Conv1d.forward"), line()]),
        stack(vec![library("nn/modules/conv.py", "Conv1d.forward"), line()]),
        // What a parametrisation calls back is the program's own.
        stack(vec![line(), weights, line()]),
    ];
    let launched = |launches, stack| Kernel {
        stacks: vec![StackCount { stack, first_seen: 1, sampled: 0 }],
        ..called(timed(named(OWN), 2e3), launches, 3e3)
    };
    let kernels =
        profile_of([launched(1_000 * of_ten, 0), launched(9_000 - 1_000 * of_ten, 1), launched(1_000, 2)]);
    Profile {
        kernels: kernels.kernels,
        totals: Totals { launches: 10_000, ..profile_with([activity(1e9, 0.8)]).totals },
        call_stacks,
        ..profile_with([Activity { launches: 10_000, ..activity(1e9, 0.8) }])
    }
}

#[test]
fn a_function_that_makes_a_sixth_of_the_launches_leads_what_is_launch_bound() {
    let advice = advise(&launching_weights(2), &Options::default());
    let first = &advice.findings[0];
    assert_eq!((cause(first), &first.rule[..]), ("pytorch-parametrised-weights", CALLS.id));
    assert!(
        first.summary.starts_with(
            "20% of the launches are made in `torch.nn.utils.parametrize.ParametrizationList.forward`, called from \
                vocoder.py:23 forward, and the GPU waits for launches 80% of the time: "
        ),
        "{}",
        first.summary
    );
    // 90% of a fifth of all time, because the host launches while the device is busy, too. The rest
    // of the idle time is left to launching.
    let claims = |rule: &str| {
        let finding = advice.findings.iter().find(|finding| finding.rule == rule).expect("it is found");
        finding.saving.of_job.expect("a share").value
    };
    assert!((claims(CALLS.id) - 0.9 * 0.2).abs() < 1e-9, "{}", claims(CALLS.id));
    assert!((claims("APEX-T24") - (0.8 - 0.9 * 0.2)).abs() < 1e-9, "{}", claims("APEX-T24"));
    // A tenth is named within, with its remedy.
    let advice = advise(&launching_weights(1), &Options::default());
    let first = &advice.findings[0];
    assert_eq!(first.rule, "APEX-T24");
    assert!(first.summary.contains("; 10% of that time passes while the host makes 10% of the launches in"));
    assert!(first.change.contains("remove_parametrizations"), "{}", first.change);
    assert_clear_in(&CALLS, launching_weights(0));
}

#[test]
fn launches_that_a_known_function_needs_are_no_cause() {
    // A transform launches its kernels, whether its plan is made anew or not.
    let mut one = launching_weights(8);
    one.call_stacks[0].frames[0].file = "/x/site-packages/cupy/fft/_fft.py".to_owned();
    assert_clear_in(&CALLS, one);
}

#[test]
fn kernels_whose_remedy_saves_launches_lead_what_is_launch_bound() {
    let unfolding = "void at::native::im2col_kernel<double>(long, double const*, long, long, long, long, long, long, long, long, long, long, long, long, double*)";
    let of = |launches| {
        let kernels = [
            called(timed(named(unfolding), 2e3), launches, 3e3),
            called(timed(named(OWN), 2e3), 10_000 - launches, 3e3),
        ];
        Profile {
            kernels: profile_of(kernels).kernels,
            totals: Totals {
                launches: 10_000,
                gpu_time_ns: Some(apex_profile::Figure::measured(20e6)),
                ..profile_with([activity(1e9, 0.8)]).totals
            },
            ..profile_with([Activity { launches: 10_000, ..activity(1e9, 0.8) }])
        }
    };
    let first = |profile: &Profile| advise(profile, &Options::default()).findings.swap_remove(0);
    let leads = first(&of(3_500));
    assert_eq!(cause(&leads), "pytorch-slow-conv2d");
    // 70% of 35% of the idle time, beside its kernels.
    assert!((0.196..0.21).contains(&leads.saving.of_job.expect("a share").value), "{:?}", leads.saving);
    assert!(leads.summary.contains("(3,500 launches, 35% of all launches)"), "{}", leads.summary);
    let led = first(&of(1_500));
    assert!(
        led.summary.contains("15% of that time goes with “Convolution without cuDNN”"),
        "{}",
        led.summary
    );
}

#[test]
fn a_variable_is_named_first_where_it_costs() {
    let with = |value: &str, idle| {
        let environment = BTreeMap::from([("CUDA_LAUNCH_BLOCKING".to_owned(), value.to_owned())]);
        let processes = vec![Process { environment, ..Process::default() }];
        Profile { processes, ..profile_with([activity(1e9, idle)]) }
    };
    let advice = advise(&with("1", 0.8), &Options::default());
    let first = &advice.findings[0];
    assert_eq!((cause(first), first.rule.as_str()), ("launch-blocking", VARIABLES.id));
    assert!(first.summary.starts_with("CUDA_LAUNCH_BLOCKING=1 is set"), "{}", first.summary);
    assert_clear_in(&VARIABLES, with("0", 0.8));
    assert_clear_in(&VARIABLES, with("1", 0.01));
}

#[test]
fn launches_that_wait_are_seen_without_the_variable() {
    let profile = |call_ns: f64| {
        let kernels = [8e3, 10e3, 12e3].map(|each| called(timed(named(OWN), each), 1000, call_ns));
        let activities = vec![activity(100e6, 0.5)];
        let of_kernels = profile_of(kernels);
        let totals = Totals { span_ns: 100e6, ..of_kernels.totals.clone() };
        Profile { activities, totals, ..of_kernels }
    };
    let finding = assert_finds_in(&VARIABLES, profile(20e3));
    assert_eq!(cause(&finding), "launch-blocking");
    assert_clear_in(&VARIABLES, profile(11e3));
}

#[test]
fn a_known_function_is_named_if_half_of_the_waits_come_from_it() {
    let call_stacks =
        vec![from("/lib/python3/site-packages/torch/distributions/distribution.py"), from("train.py")];
    let profile = Profile { call_stacks, ..Profile::default() };
    let counts = |known, other| {
        [(0, known), (1, other)].map(|(stack, sampled)| StackCount { stack, first_seen: 1, sampled })
    };
    let remedy = |known, other| remedy_of_waits(&profile, &counts(known, other));
    assert!(remedy(3, 3).is_some_and(|change| change.contains("validate_args=False")));
    assert_eq!(remedy(3, 4), None);
    assert_eq!(remedy_of_waits(&profile, &[]), None);
}

#[test]
fn the_variables_of_the_table_are_those_that_sessions_keep() {
    let knowledge = Knowledge::shipped();
    let named: BTreeSet<&str> =
        knowledge.causes().iter().filter_map(|cause| cause.variable.as_deref()).collect();
    let kept: BTreeSet<&str> = apex_trace::environment::NAMES.iter().copied().collect();
    assert_eq!(named, kept);
    assert_eq!(kept.len(), apex_trace::environment::NAMES.len(), "a name occurs twice");
}

#[test]
fn rules_that_the_table_names_exist() {
    let knowledge = Knowledge::shipped();
    let explained = knowledge.causes().iter().flat_map(|cause| &cause.explains).map(String::as_str);
    let of_rules = knowledge.remedies_of_rules().map(|(name, _)| name);
    for name in explained.chain(of_rules) {
        let slug = name.split('/').next().unwrap_or(name);
        assert!(RULES.iter().any(|rule: &Rule| rule.slug == slug), "there is no rule `{slug}`");
    }
}

#[test]
fn statements_of_cpp_are_no_statements_of_python() {
    let profile = profile_of([]);
    let knowledge = Knowledge::current();
    let of = |file: &str, quote: &str| {
        let is_about_it = |cause: &apex_knowledge::Cause| cause.names_host_line(quote);
        super::cause_of_statement(&profile, &knowledge, file, is_about_it).map(|(cause, _)| cause.id.clone())
    };
    assert_eq!(of("/home/me/load.py", "rows = open(path)").as_deref(), Some("file-loaded-in-step"));
    assert_eq!(of("/home/me/solver.cpp", "int main() { gpu_open(); step(); }"), None);
    assert!(of("/home/me/solver.cu", "x[i] = rng.normal(0, 1);").is_some(), "it has a remedy in C++");
}
