//! Selection of the functions in a host stack that tell what the host does.
//!
//! A user acts upon two frames: the innermost line that is not a library's, and the function of a
//! library that this line calls. Many functions between the two only pass a call on: wrappers of
//! modules, decorators, loops of trainers, the import system. They are on nearly every stack and
//! say nothing about the work. This module names them once; they are called *silent*.
//!
//! Invariants: a silent function is never named; a function that is found behind silent ones is on
//! at least half of the samples of its place.

use std::collections::BTreeMap;

use super::{HostFrame, HostStack};

/// Names of files that begin so are the interpreter.
const INTERPRETERS: [&str; 2] = ["python", "libpython"];

/// Silent functions: the end of a path, or a folder with `/` at its end, and the last parts of the
/// functions' names; all functions of the file or folder where no name is given.
const SILENT: &[(&str, &[&str])] = &[
    // Python.
    ("contextlib.py", &[]),
    ("functools.py", &[]),
    ("runpy.py", &[]),
    ("threading.py", &["run", "_bootstrap", "_bootstrap_inner"]),
    ("concurrent/futures/thread.py", &["run", "_worker"]),
    ("multiprocessing/", &["run", "_bootstrap", "_launch", "_main", "spawn_main"]),
    ("importlib/", &[]),
    ("asyncio/runners.py", &[]),
    ("asyncio/base_events.py", &["run_forever", "run_until_complete", "_run_once"]),
    ("asyncio/events.py", &["_run"]),
    // PyTorch.
    ("torch/nn/modules/module.py", &["_wrapped_call_impl", "_call_impl", "inner"]),
    ("torch/nn/modules/container.py", &["forward"]),
    ("torch/utils/_contextlib.py", &[]),
    ("torch/autograd/grad_mode.py", &["decorate_context"]),
    ("torch/amp/autocast_mode.py", &["decorate_autocast", "decorate_fwd", "decorate_bwd"]),
    ("torch/optim/optimizer.py", &["wrapper", "_use_grad", "maybe_fallback"]),
    ("torch/optim/lr_scheduler.py", &["wrapper"]),
    ("torch/autograd/function.py", &["apply", "wrapper"]),
    ("torch/_jit_internal.py", &["fn"]),
    ("torch/_dynamo/eval_frame.py", &["_fn", "__call__", "compile_wrapper"]),
    ("torch/_compile.py", &[]),
    ("torch/_ops.py", &["__call__"]),
    ("torch/overrides.py", &[]),
    ("torch/nn/parallel/distributed.py", &["forward", "_run_ddp_forward"]),
    ("accelerate/utils/operations.py", &[]),
    ("transformers/trainer.py", &["train", "_inner_training_loop", "training_step"]),
    ("transformers/utils/generic.py", &["wrapper"]),
    ("lightning/pytorch/trainer/", &[]),
    ("lightning/pytorch/loops/", &[]),
    ("lightning/pytorch/strategies/", &[]),
    ("pytorch_lightning/trainer/", &[]),
    ("pytorch_lightning/loops/", &[]),
    ("pytorch_lightning/strategies/", &[]),
    // JAX, TensorFlow, others.
    ("jax/_src/traceback_util.py", &[]),
    ("jax/_src/profiler.py", &["wrapper"]),
    ("jax/_src/util.py", &["wrapper", "wrapped"]),
    ("jax/_src/linear_util.py", &[]),
    ("jax/_src/pjit.py", &[]),
    ("jax/_src/api.py", &["cache_miss", "reraise_with_filtered_traceback"]),
    ("jax/_src/core.py", &[]),
    ("jax/_src/interpreters/pxla.py", &["__call__"]),
    ("tensorflow/python/util/", &[]),
    ("keras/src/utils/traceback_utils.py", &[]),
    ("numba/core/dispatcher.py", &["_compile_for_args"]),
    ("decorator.py", &["fun"]),
    ("wrapt/", &[]),
];

/// A function without its line.
pub(super) type Function<'p> = (&'p str, &'p str, bool);

pub(super) fn function_of(frame: &HostFrame) -> Function<'_> {
    (&frame.frame.file, &frame.frame.function, frame.is_native)
}

/// The innermost function that is not a library's, and the frames inside of it, innermost first;
/// all frames where no function is the user's.
fn user_and_inner(stack: &HostStack) -> (Option<&HostFrame>, &[HostFrame]) {
    let user = stack.frames.iter().position(|frame| !frame.is_of_library());
    (user.map(|at| &stack.frames[at]), &stack.frames[..user.unwrap_or(stack.frames.len())])
}

/// The innermost function that is not a library's, and the function of a library that it calls
/// itself; that is `None` where the user's own code runs and where it calls a silent function.
pub(super) fn user_and_called(stack: &HostStack) -> (Option<&HostFrame>, Option<&HostFrame>) {
    let (user, inner) = user_and_inner(stack);
    let called = inner.iter().rev().find(|frame| !is_unnamed(frame));
    (user, called.filter(|frame| !is_silent(frame)))
}

/// The innermost function that is not a library's, and the outermost function of a library inside
/// of it that tells something.
pub(super) fn user_and_library(stack: &HostStack) -> (Option<&HostFrame>, Option<&HostFrame>) {
    let (user, inner) = user_and_inner(stack);
    (user, inner.iter().rev().find(|frame| tells(frame)))
}

/// The function of a library that at least half of these samples are in, as the outermost one that
/// tells something.
pub(super) fn mostly_in<'p>(stacks: &[(&'p HostStack, u64)]) -> Option<&'p HostFrame> {
    let all = stacks.iter().map(|&(_, samples)| samples).fold(0, u64::saturating_add);
    let mut found: BTreeMap<Function<'p>, (u64, &'p HostFrame)> = BTreeMap::new();
    for &(stack, samples) in stacks {
        let Some(frame) = user_and_library(stack).1 else { continue };
        let (sum, _) = found.entry(function_of(frame)).or_insert((0, frame));
        *sum = sum.saturating_add(samples);
    }
    let most = found.into_values().max_by_key(|&(samples, _)| samples)?;
    Some(most).filter(|&(samples, _)| samples.saturating_mul(2) >= all).map(|(_, frame)| frame)
}

/// Whether a function of a library says something about the work that it does.
fn tells(frame: &HostFrame) -> bool {
    !is_unnamed(frame) && !is_silent(frame)
}

/// Compiled code of the interpreter, or without a name.
fn is_unnamed(frame: &HostFrame) -> bool {
    let file = frame.frame.file.rsplit('/').next().unwrap_or_default();
    let is_interpreter = INTERPRETERS.iter().any(|name| file.starts_with(name));
    frame.is_native && (is_interpreter || frame.frame.function.is_empty())
}

fn is_silent(frame: &HostFrame) -> bool {
    let (file, function) = (&frame.frame.file, &frame.frame.function);
    let last = function.rsplit('.').next().unwrap_or_default();
    let is_listed = |&(end, names): &(&str, &[&str])| {
        is_in_file(file, end) && (names.is_empty() || names.contains(&last))
    };
    let is_loader = file.starts_with("<frozen importlib") || file.starts_with("<frozen runpy");
    !frame.is_native && (is_loader || SILENT.iter().any(is_listed))
}

/// Whether a path ends with this file, or goes through this folder, by whole names.
fn is_in_file(path: &str, end: &str) -> bool {
    let begins = |at: usize| path[..at].ends_with('/');
    match end.ends_with('/') {
        true => path.match_indices(end).any(|(at, _)| begins(at)),
        false => path.strip_suffix(end).is_some_and(|before| begins(before.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Frame;
    use super::*;

    const PACKAGES: &str = "/v/lib/python3.12/site-packages";

    fn python(file: &str, line: u32, function: &str) -> HostFrame {
        let frame = Frame { file: file.into(), line: Some(line), function: function.into() };
        HostFrame { frame, is_native: false }
    }

    fn of_package(file: &str, function: &str) -> HostFrame {
        python(&format!("{PACKAGES}/{file}"), 1, function)
    }

    fn native(file: &str, function: &str) -> HostFrame {
        let frame = Frame { file: file.into(), line: None, function: function.into() };
        HostFrame { frame, is_native: true }
    }

    fn train() -> HostFrame {
        python("/home/me/train.py", 41, "main")
    }

    fn wrapped() -> HostFrame {
        of_package("torch/nn/modules/module.py", "Module._wrapped_call_impl")
    }

    fn stack(frames: &[&HostFrame]) -> HostStack {
        let frames = frames.iter().map(|&frame| frame.clone()).collect();
        HostStack { frames, is_settled: true, ..HostStack::default() }
    }

    #[test]
    fn a_place_is_the_users_line_and_the_outermost_function_of_a_library() {
        let loads = python("/usr/lib/python3.11/json/__init__.py", 346, "loads");
        let decode = python("/usr/lib/python3.11/json/decoder.py", 337, "JSONDecoder.decode");
        let train = train();
        let eval = native("/usr/bin/python3.11", "_PyEval_EvalFrameDefault");
        let wait = native("/usr/lib/x86_64-linux-gnu/libc.so.6", "clock_nanosleep");
        for (frames, user, library) in [
            (vec![&decode, &loads, &train], Some(&train), Some(&loads)),
            (vec![&wait, &eval, &train], Some(&train), Some(&wait)),
            (vec![&train], Some(&train), None),
            (vec![&decode, &loads], None, Some(&loads)),
            (vec![], None, None),
        ] {
            let found = stack(&frames);
            assert_eq!(user_and_library(&found), (user, library));
            assert_eq!(user_and_called(&found), (user, library));
        }
    }

    #[test]
    fn functions_that_pass_a_call_on_are_not_named() {
        let linear = of_package("torch/nn/modules/linear.py", "Linear.forward");
        for silent in [
            wrapped(),
            of_package("torch/nn/modules/module.py", "Module._call_impl"),
            of_package("torch/nn/modules/container.py", "Sequential.forward"),
            of_package("torch/utils/_contextlib.py", "context_decorator.<locals>.decorate_context"),
            of_package("torch/optim/optimizer.py", "Optimizer.profile_hook_step.<locals>.wrapper"),
            of_package("lightning/pytorch/loops/fit_loop.py", "_FitLoop.advance"),
            python("/usr/lib/python3.12/contextlib.py", 81, "ContextDecorator.__call__.<locals>.inner"),
            python("/usr/lib/python3.12/functools.py", 9, "_make_key"),
            python("<frozen importlib._bootstrap>", 3, "_load"),
        ] {
            let train = train();
            assert_eq!(user_and_called(&stack(&[&silent, &train])), (Some(&train), None), "{silent:?}");
            let inside = stack(&[&linear, &silent, &train]);
            assert_eq!(user_and_called(&inside).1, None);
            assert_eq!(user_and_library(&inside).1, Some(&linear), "{silent:?}");
        }
        // Other functions of these files, and files whose names only end so.
        for told in [
            of_package("torch/nn/modules/module.py", "Module.to"),
            of_package("torch/optim/optimizer.py", "Optimizer.zero_grad"),
            of_package("mine/mycontextlib.py", "f"),
        ] {
            assert_eq!(user_and_called(&stack(&[&told, &train()])).1, Some(&told));
        }
    }

    #[test]
    fn behind_silent_functions_the_one_of_half_of_the_samples_is_named() {
        let linear = of_package("torch/nn/modules/linear.py", "Linear.forward");
        let norm = of_package("torch/nn/modules/normalization.py", "LayerNorm.forward");
        let (of_linear, of_norm) =
            (stack(&[&linear, &wrapped(), &train()]), stack(&[&norm, &wrapped(), &train()]));
        let own = stack(&[&train()]);
        let name = |linear: u64, norm: u64, of_own: u64| {
            let found = mostly_in(&[(&of_linear, linear), (&of_norm, norm), (&own, of_own)]);
            found.map(|frame| frame.frame.function.clone())
        };
        assert_eq!(name(50, 30, 20).as_deref(), Some("Linear.forward"));
        assert_eq!(name(49, 30, 21), None);
        assert_eq!(name(0, 60, 40).as_deref(), Some("LayerNorm.forward"));
        assert_eq!(name(0, 0, 10), None);
    }
}
