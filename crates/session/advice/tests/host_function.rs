//! The rule that names the host's function that the device waits for, on profiles with samples.

use apex_advice::{Advice, Finding, Options, advise};
use apex_profile::{
    Accounts, Activity, Basis, CallStack, Device, Distribution, Figure, Frame, GpuTime, Graph, HostFrame,
    HostStack, HostState, IdleCause, IdleSamples, IdleStack, Kernel, Launches, Other, PhaseKind, Process,
    Profile, StackCount, Totals,
};

const RULE: &str = "APEX-T87";
const HOST_BOUND: &str = "APEX-T41";
const GPU_GAP: &str = "APEX-T16";
const LAUNCH_BOUND: &str = "APEX-T24";
const KNOWN_HOST_WORK: &str = "APEX-L96";

fn judge(profile: &Profile) -> Advice {
    advise(profile, &Options::default())
}

fn find(rule: &str, profile: &Profile) -> Option<Finding> {
    judge(profile).findings.into_iter().find(|finding| finding.rule == rule)
}

fn assert_finds_in(rule: &str, profile: Profile) -> Finding {
    find(rule, &profile).unwrap_or_else(|| panic!("{rule} finds nothing"))
}

fn assert_clear_in(rule: &str, profile: Profile) {
    let found = find(rule, &profile);
    assert!(found.is_none(), "{rule} finds: {found:?}");
}

fn evidence(finding: &Finding, name: &str) -> Figure {
    let named = finding.evidence.iter().find(|evidence| evidence.name == name);
    named.unwrap_or_else(|| panic!("no {name} in {finding:?}")).figure
}

/// Modelled, and idle while the host runs its own code.
fn activity(span_ns: f64, idle: f64) -> Activity {
    let idle_ns = idle * span_ns;
    let known = |part: f64| Figure::predicted(part, (0.9 * part, (1.1 * part).min(span_ns)));
    Activity {
        accounts: Accounts {
            span_ns,
            kernels: known(span_ns - idle_ns),
            idle: [(IdleCause::HostCode, known(idle_ns))].into(),
            ..Accounts::default()
        },
        idle_by: [(IdleCause::HostCode, idle_ns)].into(),
        device: Some(0),
        span_ns,
        timed_share: 1.0,
        streams: 1,
        idle_share: Some(Figure::predicted(idle, (0.9 * idle, (1.1 * idle).min(1.0)))),
        ..Activity::default()
    }
}

/// A profile of one process with this activity.
fn profile_with(activity: Activity) -> Profile {
    Profile {
        devices: vec![Device { name: "NVIDIA H100".into(), ..Device::default() }],
        processes: vec![Process { pid: 1, ..Process::default() }],
        totals: Totals { span_ns: activity.span_ns, ..Totals::default() },
        activities: vec![activity],
        ..Profile::default()
    }
}

fn frame(file: &str, line: u32, function: &str) -> HostFrame {
    let frame = Frame { file: file.into(), line: Some(line), function: function.into() };
    HostFrame { frame, is_native: false }
}

fn stack(thread: &str, frames: Vec<HostFrame>) -> HostStack {
    HostStack { frames, thread: thread.into(), process: "worker".into(), is_settled: true }
}

const MAIN: usize = 0;
const SAVE: usize = 1;
const LOADS: usize = 2;
const NEXT: usize = 3;
const WORDS: usize = 4;
const COMPILE: usize = 5;
const IMPORT: usize = 6;
const DUMPS: usize = 7;
const STEP: usize = 8;
const NOISE_19: usize = 9;
const NOISE_20: usize = 10;
const BACKWARD: usize = 11;
const LOADS_IN_STEP: usize = 12;
const LINEAR: usize = 13;
const CALL_BACK: usize = 14;
const LAUNCHER: usize = 15;

fn stacks() -> Vec<HostStack> {
    let main = || frame("/home/me/train.py", 41, "main");
    let packages = "/v/lib/python3.12/site-packages";
    vec![
        stack("python", vec![main()]),
        stack("python", vec![frame(&format!("{packages}/torch/serialization.py"), 8, "save"), main()]),
        stack("python", vec![frame(&format!("{packages}/acme/wkb.py"), 3, "loads"), main()]),
        stack(
            "python",
            vec![frame(&format!("{packages}/torch/utils/data/dataloader.py"), 7, "__next__"), main()],
        ),
        stack("words", vec![frame("/home/me/words.py", 9, "count")]),
        stack(
            "python",
            vec![
                frame(&format!("{packages}/torch/_dynamo/convert_frame.py"), 7, "_compile"),
                frame(&format!("{packages}/torch/nn/modules/module.py"), 7, "Module._call_impl"),
                main(),
            ],
        ),
        stack("python", vec![frame("<frozen importlib._bootstrap>", 3, "_load"), main()]),
        stack("python", vec![frame("/usr/lib/python3.12/json/__init__.py", 3, "dumps"), main()]),
        stack("python", vec![step()]),
        stack("python", vec![frame(NOISE, 19, "share_of_noise"), step()]),
        stack("python", vec![frame(NOISE, 20, "share_of_noise"), step()]),
        stack(
            "python",
            vec![frame(&format!("{packages}/torch/autograd/graph.py"), 7, "_engine_run_backward"), main()],
        ),
        stack("python", vec![frame(&format!("{packages}/acme/wkb.py"), 3, "loads"), step()]),
        stack("python", vec![frame(&format!("{packages}/torch/nn/functional.py"), 3, "linear"), step()]),
        stack(
            "python",
            vec![
                frame("/home/me/train.py", 60, "show"),
                frame(&format!("{packages}/jax/_src/callback.py"), 3, "_wrapped_callback"),
                main(),
            ],
        ),
        stack("tf_XLA", Vec::new()),
    ]
}

const NOISE: &str = "/home/me/noise.py";

/// The line that launches.
fn step() -> HostFrame {
    frame("/home/me/train.py", 50, "step")
}

/// A stack, its samples, what its thread did, and whom it waited for.
type Found = (usize, u64, HostState, Option<(Other, usize)>);

/// Idle for 60% of the time, in pauses; samples as given, of 600.
fn sampled(found: &[Found]) -> Profile {
    let samples = IdleSamples {
        phase: PhaseKind::Whole,
        cause: IdleCause::HostCode,
        is_pause: true,
        idle_ns: 6e8,
        sampled_ns: 6e8,
        read: found.iter().map(|one| one.1).sum(),
        stacks: found
            .iter()
            .map(|&(stack, samples, state, other)| IdleStack { samples, stack, state, other })
            .collect(),
    };
    let activity = Activity { launches: 100, host_samples: vec![samples], ..activity(1e9, 0.6) };
    Profile { host_stacks: stacks(), ..profile_with(activity) }
}

#[test]
fn names_the_function_of_a_library_and_the_line_that_calls_it() {
    let one = sampled(&[(LOADS, 500, HostState::Running, None), (MAIN, 100, HostState::Running, None)]);
    let finding = assert_finds_in(RULE, one);
    assert_eq!(
        finding.summary,
        "the GPU waits 50% of the time while the host runs `acme.wkb.loads`, called from train.py:41 main"
    );
    assert_eq!(
        finding.remedy,
        "Move `acme.wkb.loads` (train.py:41 main) off the critical path: call it less often, before the loop, or in a thread or process that runs while the device works"
    );
    assert!(finding.change.ends_with("call it once and keep the result"), "{}", finding.change);
    assert!(
        (evidence(&finding, "idle at `acme.wkb.loads`, called from train.py:41 main").value - 0.5).abs()
            < 1e-9
    );
    assert!((evidence(&finding, "idle at train.py:41 main").value - 0.1).abs() < 1e-9);
    let saving = finding.saving.of_job.expect("a share");
    let (low, high) = saving.interval().expect("an interval");
    assert!((saving.value - 0.6).abs() < 1e-9 && (0.2..0.3).contains(&low) && high <= 1.0, "{saving:?}");
}

#[test]
fn names_both_threads_where_one_waits_for_the_lock_of_the_other() {
    let one = sampled(&[(MAIN, 600, HostState::WaitsForGil, Some((Other::Holder, WORDS)))]);
    let finding = assert_finds_in(RULE, one);
    assert_eq!(
        finding.summary,
        "the GPU waits 60% of the time while train.py:41 main waits for the interpreter's lock (GIL), which thread \
            `words` holds in words.py:9 count"
    );
    assert!(finding.change.starts_with("Run words.py:9 count in another process"), "{}", finding.change);
}

#[test]
fn names_the_line_of_the_thread_for_which_one_without_lines_waits() {
    let one = sampled(&[(LAUNCHER, 600, HostState::WaitsForLock, Some((Other::Thread, MAIN)))]);
    let finding = assert_finds_in(RULE, one);
    assert_eq!(
        finding.summary,
        "the GPU waits 60% of the time while thread `python` runs train.py:41 main, for which the launching thread waits"
    );
    assert!(finding.change.starts_with("Move train.py:41 main off the critical path"), "{}", finding.change);
    assert!(finding.change.contains("one call work on all of them"), "{}", finding.change);
}

#[test]
fn names_what_workers_do_for_which_the_host_waits() {
    let one = sampled(&[(NEXT, 600, HostState::WaitsForData, Some((Other::Worker, WORDS)))]);
    let finding = assert_finds_in(RULE, one);
    assert_eq!(
        finding.summary,
        "the GPU waits 60% of the time while the host waits for data in `torch.utils.data.dataloader.__next__`, called \
            from train.py:41 main; meanwhile process `worker` runs words.py:9 count"
    );
    assert!(finding.change.contains("num_workers"), "{}", finding.change);
}

#[test]
fn tells_compiling_saving_and_importing_from_other_code() {
    for (stack, word) in [(SAVE, "Save less often"), (COMPILE, "Compile"), (IMPORT, "Import modules")] {
        let finding = assert_finds_in(RULE, sampled(&[(stack, 600, HostState::Running, None)]));
        assert!(finding.change.starts_with(word), "{}", finding.change);
    }
    // Imports come after everything else, however long they take.
    let one = sampled(&[(IMPORT, 400, HostState::Running, None), (SAVE, 200, HostState::Running, None)]);
    assert!(assert_finds_in(RULE, one).summary.contains("torch.serialization.save"));
}

#[test]
fn the_boundaries_are_a_tenth_of_the_time_and_ten_samples() {
    let of = |samples, sampled_ns| {
        let mut one = sampled(&[(LOADS, samples, HostState::Running, None)]);
        one.activities[0].host_samples[0].sampled_ns = sampled_ns;
        one
    };
    assert_finds_in(RULE, of(100, 1e8));
    assert_clear_in(RULE, of(100, 0.99e8));
    assert_finds_in(RULE, of(10, 6e8));
    assert_clear_in(RULE, of(9, 6e8));
}

#[test]
fn time_between_launches_is_left_to_launching() {
    let mut one = sampled(&[(LOADS, 600, HostState::Running, None)]);
    one.activities[0].launches = 1_000_000;
    one.activities[0].host_samples[0].is_pause = false;
    assert_clear_in(RULE, one.clone());
    one.activities[0].launches = 100;
    assert_finds_in(RULE, one);
}

#[test]
fn replaces_findings_that_name_no_function() {
    let one = sampled(&[(LOADS, 600, HostState::Running, None)]);
    let rules = |profile: &Profile| -> Vec<String> {
        judge(profile).findings.into_iter().map(|finding| finding.rule).collect()
    };
    let found = rules(&one);
    assert_eq!(found.first().map(String::as_str), Some(RULE));
    assert!(!found.contains(&HOST_BOUND.to_owned()) && !found.contains(&GPU_GAP.to_owned()));
    let mut many = one.clone();
    many.host_stacks =
        (0..20).map(|line| stack("python", vec![frame("/home/me/train.py", line, "main")])).collect();
    many.activities[0].host_samples[0].stacks = (0..20)
        .map(|stack| IdleStack { samples: 30, stack, state: HostState::Running, other: None })
        .collect();
    let general = assert_finds_in(HOST_BOUND, many);
    assert!(general.change.contains("py-spy"), "no place has a tenth: {}", general.change);
    let mut unsampled = Profile { host_stacks: Vec::new(), ..one };
    unsampled.activities[0].host_samples.clear();
    assert!(rules(&unsampled).contains(&HOST_BOUND.to_owned()));
    let unjudged = judge(&unsampled).unjudged;
    assert!(
        unjudged.iter().any(|one| one.rule == RULE && one.because.contains("no samples")),
        "{unjudged:?}"
    );
}

/// As [`sampled`], without a pause: so many launches of 20 µs or less come from the line of
/// [`step`], which a launch-bound program has 30 µs for.
fn without_pauses(found: &[Found], launches: u64) -> Profile {
    let mut one = sampled(found);
    one.activities[0].host_samples[0].is_pause = false;
    one.activities[0].launches = 20_000;
    one.totals.graph_launches = 20_000;
    let graph = |launches, stack| Graph {
        launches,
        stacks: vec![StackCount { stack, first_seen: 1, sampled: 30 }],
        ..Graph::default()
    };
    one.graphs = vec![graph(launches, 0), graph(20_000 - launches, 1)];
    let by_line = CallStack { frames: vec![step().frame], ..CallStack::default() };
    let backward = CallStack { thread: "pt_autograd_0".into(), ..CallStack::default() };
    one.call_stacks = vec![by_line, backward];
    one
}

fn rules(profile: &Profile) -> Vec<String> {
    judge(profile).findings.into_iter().map(|finding| finding.rule).collect()
}

#[test]
fn a_function_that_launches_nothing_comes_before_launching_without_a_pause() {
    let running = |stack, samples| (stack, samples, HostState::Running, None);
    let one = without_pauses(&[running(NOISE_19, 200), running(STEP, 400)], 20_000);
    assert_eq!(rules(&one)[..2], [RULE, LAUNCH_BOUND]);
    let finding = assert_finds_in(RULE, one);
    assert_eq!(
        finding.summary,
        "the GPU waits 20% of the time while the host runs noise.py:19 share_of_noise"
    );
    let saving = finding.saving.of_job.expect("a share");
    assert!((saving.value - 0.2).abs() < 1e-9, "what launches is no part of it: {saving:?}");
    let fewer = without_pauses(&[running(NOISE_19, 199), running(STEP, 401)], 20_000);
    assert_eq!(rules(&fewer)[0], LAUNCH_BOUND);
    assert_clear_in(RULE, fewer);
    // The lines of a function count together.
    let two = without_pauses(&[running(NOISE_19, 110), running(NOISE_20, 90), running(STEP, 400)], 20_000);
    assert_eq!(rules(&two)[0], RULE);
}

#[test]
fn lines_that_launch_are_launch_bound() {
    for stack in [STEP, LINEAR, LOADS_IN_STEP] {
        let one = without_pauses(&[(stack, 600, HostState::Running, None)], 20_000);
        assert_eq!(rules(&one)[0], LAUNCH_BOUND, "30 µs for each launch from this line");
        assert_clear_in(RULE, one);
    }
    // A backward pass launches in a thread without lines.
    let one = without_pauses(&[(BACKWARD, 600, HostState::WaitsForLock, None)], 0);
    assert_eq!(rules(&one)[0], LAUNCH_BOUND);
    assert_clear_in(RULE, one);
}

#[test]
fn what_launching_does_not_explain_at_a_line_is_its_own_work() {
    let of = |stack, launches| {
        let one = without_pauses(&[(stack, 600, HostState::Running, None)], launches);
        find(RULE, &one).map(|finding| finding.saving.of_job.expect("a share").value)
    };
    // 75 µs for each launch, of which 40 are the launch's: where a library beside the framework was
    // seen, what is left is its work.
    let left = of(LOADS_IN_STEP, 8_000).expect("a finding");
    assert!((left - 0.28).abs() < 1e-9, "{left}");
    assert_eq!(of(STEP, 8_000), None, "operations in C have no frames");
    assert_eq!(of(LINEAR, 8_000), None);
    // 40 + 20 µs: a fifth of the time is needed.
    assert_eq!(of(LOADS_IN_STEP, 10_001), None);
    // More than 100 µs for each launch: no framework needs as much.
    assert!(of(STEP, 5_999).is_some() && of(LINEAR, 5_999).is_some());
}

#[test]
fn short_waits_in_other_calls_are_left_to_the_rules_about_these() {
    let mut one = without_pauses(&[(NOISE_19, 600, HostState::Running, None)], 20_000);
    assert_finds_in(RULE, one.clone());
    one.activities[0].host_samples[0].cause = IdleCause::Allocating;
    assert_clear_in(RULE, one.clone());
    one.activities[0].host_samples[0].is_pause = true;
    assert_finds_in(RULE, one);
}

#[test]
fn a_known_function_keeps_its_claim_beside_a_larger_place() {
    let one = sampled(&[(MAIN, 450, HostState::Running, None), (DUMPS, 150, HostState::Running, None)]);
    let saving = assert_finds_in(KNOWN_HOST_WORK, one).saving.of_job.expect("a share");
    assert!((saving.value - 0.12).abs() < 1e-9, "{saving:?}");
}

#[test]
fn a_known_function_gives_its_cause_and_contains_the_finding_about_its_line() {
    let one = sampled(&[(DUMPS, 500, HostState::Running, None), (MAIN, 100, HostState::Running, None)]);
    assert_eq!(rules(&one)[0], KNOWN_HOST_WORK);
    let known = assert_finds_in(KNOWN_HOST_WORK, one.clone());
    assert_eq!(known.cause.as_ref().map(|cause| &*cause.id), Some("json-each-step"));
    assert!(
        known.summary.starts_with(
            "the GPU waits 50% of the time while the host is in `json.dumps`, called from train.py:41 main: "
        ),
        "{}",
        known.summary
    );
    assert!((evidence(&known, "idle in `json.dumps`").value - 0.5).abs() < 1e-9);
    let saving = known.saving.of_job.expect("a share");
    let (low, high) = saving.interval().expect("an interval");
    // At most also the idle time elsewhere: a host that is not held up runs ahead.
    assert!((saving.value - 0.4).abs() < 1e-9 && low < 0.2 && (0.6..0.7).contains(&high), "{saving:?}");
    assert_eq!(assert_finds_in(RULE, one).within.as_deref(), Some(KNOWN_HOST_WORK));
    // A worker that keeps the host waiting counts too.
    let worker = sampled(&[(NEXT, 600, HostState::WaitsForData, Some((Other::Worker, DUMPS)))]);
    assert_finds_in(KNOWN_HOST_WORK, worker);
    // 10 samples are needed, and 2% of the time.
    assert_clear_in(KNOWN_HOST_WORK, sampled(&[(DUMPS, 9, HostState::Running, None)]));
    let rare = [(DUMPS, 20, HostState::Running, None), (MAIN, 1200, HostState::Running, None)];
    assert_clear_in(KNOWN_HOST_WORK, sampled(&rare));
}

#[test]
fn a_cause_that_makes_host_and_device_wait_claims_the_idle_time_from_a_part_of_it_on() {
    let of = |samples| {
        let found =
            [(CALL_BACK, samples, HostState::Running, None), (MAIN, 600 - samples, HostState::Running, None)];
        let known = assert_finds_in(KNOWN_HOST_WORK, sampled(&found));
        assert_eq!(known.cause.map(|cause| cause.id).as_deref(), Some("jax-host-callback"));
        known.saving.of_job.expect("a share").value
    };
    // 90% of 60%, or at most of the part of it in which the call back was seen.
    assert!((of(31) - 0.54).abs() < 1e-9, "{}", of(31));
    assert!(of(29) <= 0.0261, "{}", of(29));
}

#[test]
fn a_known_function_of_a_fifth_comes_before_launching() {
    let running = |stack, samples| (stack, samples, HostState::Running, None);
    let of = |samples| without_pauses(&[running(DUMPS, samples), running(STEP, 600 - samples)], 20_000);
    for samples in [260, 101] {
        assert_eq!(rules(&of(samples))[0], KNOWN_HOST_WORK, "{samples}");
    }
    // It claims its part first, and launching what is left.
    let share = |rule| assert_finds_in(rule, of(101)).saving.of_job.expect("a share").value;
    // The host is busy all the time, also while the device is: it is in the function for that
    // share.
    let known = 0.8 * 0.101 / 0.6;
    let left = 0.6 - known;
    assert!((share(KNOWN_HOST_WORK) - known).abs() < 1e-9, "{}", share(KNOWN_HOST_WORK));
    assert!((share(LAUNCH_BOUND) - left).abs() < 1e-9, "{}", share(LAUNCH_BOUND));
}

#[test]
fn a_known_function_of_less_than_a_sixth_is_named_within_what_is_launch_bound() {
    let running = |stack, samples| (stack, samples, HostState::Running, None);
    let of = |samples| without_pauses(&[running(DUMPS, samples), running(STEP, 600 - samples)], 20_000);
    let first = judge(&of(90)).findings.swap_remove(0);
    assert_eq!(first.rule, LAUNCH_BOUND);
    let within = "; 15% of that time passes while the host is in `json.dumps`, called from train.py:41 main";
    assert!(first.summary.ends_with(within), "{}", first.summary);
    assert!(first.change.contains(". For 15% of that time: "), "{}", first.change);
    // Too little to be named: the line with most of the time is.
    let first = judge(&of(15)).findings.swap_remove(0);
    assert!(
        first.summary.ends_with("; the largest part of it at train.py:50 step (98%)"),
        "{}",
        first.summary
    );
}

#[test]
fn time_without_samples_counts_neither_for_a_function_nor_against_it() {
    let running = |stack, samples| (stack, samples, HostState::Running, None);
    let mut one = without_pauses(&[running(DUMPS, 120), running(STEP, 480)], 20_000);
    // Two thirds of the idle time were not sampled, so that the function has 7% of all of it.
    one.activities[0].host_samples[0].sampled_ns /= 3.0;
    assert_eq!(rules(&one)[0], KNOWN_HOST_WORK);
}

#[test]
fn what_a_forked_worker_inherits_is_no_activity_of_its_own() {
    let loader = |line, function| {
        frame("/v/lib/python3.12/site-packages/torch/utils/data/dataloader.py", line, function)
    };
    let started = loader(1192, "_MultiProcessingDataLoaderIter.__init__");
    let bootstrap = frame("/usr/lib/python3.12/multiprocessing/process.py", 314, "BaseProcess._bootstrap");
    let of = |frames| {
        let mut one = sampled(&[(NEXT, 600, HostState::WaitsForData, Some((Other::Worker, WORDS)))]);
        one.host_stacks[WORDS] = stack("words", frames);
        find(KNOWN_HOST_WORK, &one).and_then(|finding| finding.cause).map(|cause| cause.id)
    };
    let count = frame("/home/me/words.py", 9, "count");
    assert_eq!(of(vec![count.clone(), bootstrap, started.clone()]), None);
    assert_eq!(of(vec![count, started]).as_deref(), Some("dataloader-restarts"));
}

/// A function of PyTorch's data loader.
fn of_loader(file: &str, function: &str) -> HostFrame {
    frame(&format!("/v/lib/python3.12/site-packages/torch/utils/data/{file}.py"), 7, function)
}

const DATASET: &str = "/home/me/table.py";

/// A loop whose batches come from a data loader in the same process: `inner` is what the loader
/// calls to take a row, in six samples of seven.
fn loading(inner: Vec<HostFrame>) -> Profile {
    let mut one = sampled(&[(MAIN, 600, HostState::Running, None), (STEP, 100, HostState::Running, None)]);
    let inside = |inner: Vec<HostFrame>| {
        let loads = [
            of_loader("_utils/fetch", "_MapDatasetFetcher.fetch"),
            of_loader("dataloader", "_SingleProcessDataLoaderIter._next_data"),
            frame("/home/me/train.py", 50, "step"),
        ];
        stack("python", inner.into_iter().chain(loads).collect())
    };
    one.host_stacks[MAIN] = inside(inner);
    one.host_stacks[STEP] = inside(vec![of_loader("_utils/collate", "collate_tensor_fn")]);
    one
}

/// A dataset's function, whose line has this text.
fn takes_row(text: &str) -> Profile {
    let mut one = loading(vec![frame(DATASET, 9, "Table.__getitem__")]);
    one.quotes.insert((DATASET.into(), 9), text.into());
    one
}

#[test]
fn a_loader_in_the_main_process_calls_the_dataset_and_not_the_reverse() {
    let known = assert_finds_in(KNOWN_HOST_WORK, takes_row("return decode(self.rows[i])"));
    let starts = "the GPU waits 60% of the time while the host is in \
        `torch.utils.data.dataloader._SingleProcessDataLoaderIter._next_data`, which calls table.py:9 Table.__getitem__: ";
    assert!(known.summary.starts_with(starts), "{}", known.summary);
    assert!(known.change.contains("num_workers=…"), "{}", known.change);
}

#[test]
fn rows_of_tensors_are_indexed_once_for_a_batch_instead_of_loaded_by_workers() {
    let known = |one| assert_finds_in(KNOWN_HOST_WORK, one);
    let slices = known(takes_row("return self.rows[i], self.labels[i]"));
    assert!(slices.summary.contains("it takes rows of tensors in memory one by one"), "{}", slices.summary);
    assert!(slices.change.starts_with("Index the tensors once for each batch"), "{}", slices.change);
    // What the line does is unknown, unless the batch is put together on the device.
    let mut unknown = loading(vec![frame(DATASET, 9, "Table.__getitem__")]);
    assert!(known(unknown.clone()).change.starts_with("Load in workers"));
    let collate = of_loader("_utils/collate", "collate_tensor_fn").frame;
    unknown.call_stacks = vec![CallStack { frames: vec![collate], ..CallStack::default() }];
    let launches = Launches { calls: 10, ..Launches::default() };
    let stacks = vec![StackCount { stack: 0, sampled: 1, first_seen: 1 }];
    unknown.kernels = vec![Kernel { launches, stacks, ..Kernel::default() }];
    let on_device = known(unknown);
    assert!(on_device.summary.contains("rows of tensors on the GPU one by one"), "{}", on_device.summary);
    assert!(on_device.change.starts_with("Index the tensors once for each batch"), "{}", on_device.change);
    // Work of another library is what workers are for.
    let opened = frame("/v/lib/python3.12/site-packages/PIL/Image.py", 3, "open");
    let pictures = loading(vec![opened, frame(DATASET, 9, "Table.__getitem__")]);
    assert!(known(pictures).change.contains("num_workers=…"));
}

#[test]
fn kernels_that_an_autotuner_measures_are_saved_with_its_idle_time() {
    let bench =
        || frame("/v/lib/python3.12/site-packages/triton/runtime/autotuner.py", 7, "Autotuner._bench");
    let mut one = sampled(&[(MAIN, 600, HostState::Running, None)]);
    one.host_stacks[MAIN] = stack("python", vec![bench(), step()]);
    one.kernels = vec![Kernel {
        launches: Launches { calls: 10, ..Launches::default() },
        gpu: Some(GpuTime {
            each: Distribution::default(),
            deviation_ns: None,
            basis: Basis::Queued,
            queued_samples: 10,
            busy_samples: 0,
            idle_samples: 0,
            correction_ns: 0.0,
            total_ns: Figure::measured(4e8),
        }),
        stacks: vec![
            StackCount { stack: 0, sampled: 3, first_seen: 0 },
            StackCount { stack: 1, sampled: 1, first_seen: 0 },
        ],
        ..Kernel::default()
    }];
    one.totals.gpu_time_ns = Some(Figure::measured(4e8));
    let launched = |frames| CallStack { frames, ..CallStack::default() };
    one.call_stacks = vec![launched(vec![bench().frame, step().frame]), launched(vec![step().frame])];
    let known = assert_finds_in(KNOWN_HOST_WORK, one.clone());
    assert_eq!(known.cause.map(|cause| cause.id).as_deref(), Some("triton-autotunes"));
    // 90% of the idle time of 60%, and of three quarters of the kernels' 40%.
    let saving = known.saving.of_job.expect("a share").value;
    assert!((saving - 0.9 * (0.6 + 0.3)).abs() < 1e-6, "{saving}");
    one.call_stacks.swap(0, 1);
    let saving = assert_finds_in(KNOWN_HOST_WORK, one).saving.of_job.expect("a share").value;
    assert!((saving - 0.9 * (0.6 + 0.1)).abs() < 1e-6, "{saving}");
}
