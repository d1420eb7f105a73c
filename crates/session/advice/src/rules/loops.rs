//! What the program writes that makes its launches: the loop that runs many times in each step, and
//! the function that a compiler can take as a whole.
//!
//! Both come from call stacks and, for the loop, from the program's source. They turn "launch less
//! often" into the statement to replace, or the function to compile.

use std::collections::BTreeMap;

use super::percent;
use apex_profile::names::Owner;
use apex_profile::{Frame, Kernel, Profile, Site};

/// Minimum share of the launches that a loop, or a function, makes.
const MOST: f64 = 0.5;
const NEARLY_ALL: f64 = 0.8;
/// Minimum rounds of a loop in each step.
const ROUNDS: f64 = 4.0;
/// Minimum share of a loop's launches for a kernel to show its rounds.
const OFTEN: f64 = 0.05;

/// A loop that makes most launches, many times in each step.
pub(crate) struct Loop<'p> {
    /// A line in it that launches.
    pub line: &'p Frame,
    /// Its own line.
    at: u32,
    /// Its statement.
    statement: &'p str,
    /// How often it runs in each step, about.
    rounds: f64,
    /// Its share of all launches.
    share: f64,
}

impl<'p> Loop<'p> {
    /// The loop that makes most launches of the program; `None` where none is known.
    pub fn of(profile: &'p Profile) -> Option<Self> {
        let steps = profile.steps()?;
        let mut loops: BTreeMap<(&str, u32), (&'p Frame, &'p str, Vec<f64>)> = BTreeMap::new();
        let mut all = 0.0;
        for kernel in &profile.kernels {
            all += kernel.launches.calls as f64;
            for (line, launches) in lines_of(profile, kernel) {
                let Some((at, statement)) = around(profile, line) else { continue };
                let found = loops.entry((&line.file, at)).or_insert((line, statement, Vec::new()));
                found.2.push(launches);
            }
        }
        let sum = |launches: &[f64]| launches.iter().sum::<f64>();
        let ((_, at), (line, statement, launches)) =
            loops.into_iter().max_by(|(_, a), (_, b)| sum(&a.2).total_cmp(&sum(&b.2)))?;
        let made = sum(&launches);
        let often = launches.iter().copied().filter(|of| *of >= OFTEN * made);
        let rounds = often.fold(f64::INFINITY, f64::min) / steps;
        let share = made / f64::max(all, 1.0);
        (share >= MOST && rounds.is_finite() && rounds >= ROUNDS).then_some(Self {
            line,
            at,
            statement,
            rounds,
            share,
        })
    }

    /// ``the loop `for row in rows` (train.py:48), which runs about 240 times in each step and makes
    /// 87% of the launches``.
    pub fn in_words(&self) -> String {
        format!(
            "{}, which runs about {:.0} times in each step and makes {} of the launches",
            self.named(),
            self.rounds,
            percent(self.share)
        )
    }

    fn named(&self) -> String {
        named(self.line, self.at, self.statement)
    }
}

/// ``the loop `for row in rows` (train.py:48)``.
fn named(line: &Frame, at: u32, statement: &str) -> String {
    let file = line.file.rsplit('/').next().unwrap_or_default();
    format!("the loop `{statement}` ({file}:{at})")
}

/// The loop of Python around a line, in words; `None` if none is known.
pub(crate) fn around_line(profile: &Profile, line: &Frame) -> Option<String> {
    let (at, statement) = around(profile, line)?;
    Some(named(line, at, statement))
}

/// The loop that a line is in or is itself: a comprehension.
fn around<'p>(profile: &'p Profile, line: &Frame) -> Option<(u32, &'p str)> {
    let own = profile.quote(line).filter(|quote| quote.contains(" for ") && quote.contains(" in "));
    own.and_then(|quote| Some((line.line?, quote))).or_else(|| profile.loop_around(line))
}

/// The file and the function by which `torch.vmap` calls what it maps.
const VMAP: (&str, &str) = ("torch/_functorch/apis.py", "wrapped");
/// Minimum launches of a kernel from one `vmap` in each step that show that it calls an operator
/// for one sample after the other.
const ONE_BY_ONE: f64 = 16.0;

/// The change to make where `torch.vmap` makes most launches, because an operator has no batching
/// rule; `None` if it does not.
pub(crate) fn unbatched(profile: &Profile) -> Option<String> {
    let steps = profile.steps()?;
    let is_mapped = |stack: usize| {
        let frames = profile.call_stacks.get(stack).map_or(&[][..], |stack| &stack.frames[..]);
        frames.iter().any(|frame| frame.file.ends_with(VMAP.0) && frame.function.ends_with(VMAP.1))
    };
    let mapped = |kernel: &Kernel| {
        let sum = |is_such: &dyn Fn(usize) -> bool| {
            let counts = kernel.stacks.iter().filter(|count| is_such(count.stack));
            counts.map(|count| count.sampled as f64).sum::<f64>()
        };
        kernel.launches.calls as f64 * sum(&is_mapped) / sum(&|_| true).max(1.0)
    };
    let all: f64 = profile.kernels.iter().map(|kernel| kernel.launches.calls as f64).sum();
    let made: Vec<(&Kernel, f64)> = profile.kernels.iter().map(|kernel| (kernel, mapped(kernel))).collect();
    let share = made.iter().map(|(_, launches)| launches).sum::<f64>() / all.max(1.0);
    let (kernel, launches) = made.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let each = launches / steps;
    (share >= MOST && each >= ONE_BY_ONE).then(|| {
        format!(
            "torch.vmap falls back to a loop: it maps an operator that has no batching rule, and calls it for one sample \
                after the other (`{}` is launched {each:.0} times in each step). Write that operator for the whole batch: \
                a form with a dim argument, scatter_add_ or index_add_ into rows of each sample, or identifiers of \
                samples added to its indices",
            kernel.short_name
        )
    })
}

/// The lines of the program that launch a kernel, each with its launches.
fn lines_of<'p>(profile: &'p Profile, kernel: &'p Kernel) -> impl Iterator<Item = (&'p Frame, f64)> {
    let launches = kernel.launches.calls as f64;
    let sites = profile.sites(&kernel.stacks);
    let only = sites.len() == 1;
    sites.into_iter().filter_map(move |of| {
        let share = of.share.or_else(|| only.then_some(1.0))?;
        match of.site {
            Site::Line(line) | Site::Through { python: line, .. } if !line.is_of_library() => {
                Some((line, share * launches))
            }
            _ => None,
        }
    })
}

/// The innermost function of the program's Python from which nearly all launches come, with its
/// share: `train.py:48 train_step`; `None` where it is the module itself, or none is known. Threads
/// without Python (a backward pass) follow from the others.
fn launching_function(profile: &Profile) -> Option<(&Frame, f64)> {
    let mut weights: BTreeMap<usize, f64> = BTreeMap::new();
    for kernel in &profile.kernels {
        let sampled: u64 = kernel.stacks.iter().map(|count| count.sampled).fold(0, u64::saturating_add);
        for count in kernel.stacks.iter().filter(|_| sampled > 0) {
            let share = count.sampled as f64 / sampled as f64;
            *weights.entry(count.stack).or_default() += share * kernel.launches.calls as f64;
        }
    }
    let stacks: Vec<(&[Frame], f64)> = weights
        .into_iter()
        .filter_map(|(stack, weight)| Some((&profile.call_stacks.get(stack)?.frames[..], weight)))
        .filter(|(frames, _)| !frames.is_empty())
        .collect();
    let all: f64 = stacks.iter().map(|(_, weight)| weight).sum();
    let is_same = |a: &Frame, b: &Frame| (&a.file, &a.function) == (&b.file, &b.function);
    let share = |of: &Frame| {
        let through = stacks.iter().filter(|(frames, _)| frames.iter().any(|frame| is_same(frame, of)));
        through.map(|(_, weight)| weight).sum::<f64>() / all.max(1.0)
    };
    let (main, _) = stacks.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let own = main.iter().filter(|frame| !frame.is_of_library());
    // A function whose line stands in a loop of its own may be the one that makes the steps.
    let own = own.filter(|frame| profile.loop_around(frame).is_none());
    let found = own.map(|frame| (frame, share(frame))).find(|(_, share)| *share >= NEARLY_ALL);
    found.filter(|(frame, _)| !is_whole_program(&frame.function))
}

/// Whether a function is the program itself, with its loop over steps.
fn is_whole_program(function: &str) -> bool {
    let name = function.rsplit('.').next().unwrap_or(function);
    ["<module>", "main", "run", "<lambda>"].contains(&name)
}

/// The change that lets the function that launches be compiled or captured as a whole, in the words
/// of this owner; `None` where no function is known.
pub(crate) fn compiled(profile: &Profile, owner: Owner) -> Option<String> {
    let (frame, share) = launching_function(profile)?;
    let name = frame.function.rsplit('.').next().unwrap_or(&frame.function);
    let file = frame.file.rsplit('/').next().unwrap_or_default();
    let place = format!("`{name}` ({file}), from which {} of the launches come", percent(share));
    Some(match owner {
        Owner::PyTorch => format!(
            "Launch less often: compile {place}: torch.compile({name}, mode=\"reduce-overhead\") before the loop \
                fuses its kernels and replays them as a CUDA graph; where it waits for a value (.item(), .cpu(), `if` \
                of a tensor) it is cut there. Shapes have to stay the same. An optimizer in it needs fused=True or \
                capturable=True"
        ),
        Owner::Xla => format!(
            "Launch less often: put one jax.jit around {place} (step = jax.jit({name})); in it jax.vmap over samples, \
                jax.lax.scan or fori_loop over its loops"
        ),
        Owner::CuPy => format!(
            "Launch less often: make fewer calls in {place}: @cupy.fuse() around elementwise expressions, one call \
                over a whole array (axis=…) instead of a loop over rows, or a CUDA graph of it \
                (cupy.cuda.Stream.begin_capture)"
        ),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{activity, called, kernel_of, launched_at, profile_of};
    use super::{Loop, compiled, unbatched};
    use apex_profile::names::Owner;
    use apex_profile::{Activity, Figure, Frame, Iterations, Profile};

    const FILE: &str = "/home/me/train.py";

    /// A hundred steps with so many launches from a line.
    fn launching(launches: u64) -> Profile {
        let mut profile = profile_of([called(kernel_of(8, 128), launches, 4e3)]);
        launched_at(&mut profile, FILE, 9, "Model.forward");
        let steps = Iterations { count: 100, step_ns: Figure::measured(1e7), ..Iterations::default() };
        profile.activities = vec![Activity { iterations: Some(steps), ..activity(1e9, 0.5) }];
        profile
    }

    #[test]
    fn the_loop_around_the_line_that_launches_is_named_with_its_rounds() {
        let mut one = launching(2400);
        assert!(Loop::of(&one).is_none(), "no loop is known");
        one.loops.insert((FILE.into(), 9), (7, "for row in rows".into()));
        assert_eq!(
            Loop::of(&one).expect("a loop").in_words(),
            "the loop `for row in rows` (train.py:7), which runs about 24 times in each step and makes 100% of the launches"
        );
        // The loop over steps.
        let mut steps = launching(100);
        steps.loops = one.loops.clone();
        assert!(Loop::of(&steps).is_none());
        // A comprehension is a loop of its own.
        let mut own = launching(2400);
        own.quotes.insert((FILE.into(), 9), "y = [f(row) for row in rows]".into());
        assert!(Loop::of(&own).expect("a loop").in_words().contains("in rows]` (train.py:9)"));
    }

    #[test]
    fn a_map_without_a_batching_rule_is_a_loop() {
        let mapped = |launches, function: &str| {
            let mut profile = launching(launches);
            let within = &mut profile.call_stacks[0].frames;
            let file = "/x/site-packages/torch/_functorch/apis.py".into();
            within.insert(0, Frame { file, line: Some(209), function: function.into() });
            profile
        };
        let change = unbatched(&mapped(25_600, "vmap.<locals>.wrapped")).expect("a loop");
        assert!(change.contains("launched 256 times in each step"), "{change}");
        assert_eq!(unbatched(&mapped(400, "vmap.<locals>.wrapped")), None, "few launches");
        assert_eq!(unbatched(&mapped(25_600, "grad.<locals>.wrapper")), None);
    }

    #[test]
    fn the_function_from_which_launches_come_is_what_to_compile() {
        let change = compiled(&launching(2400), Owner::PyTorch).expect("a function");
        assert!(change.contains("`forward` (train.py), from which 100% of the launches come"), "{change}");
        let mut whole = launching(2400);
        whole.call_stacks[0].frames[0].function = "main".into();
        assert_eq!(compiled(&whole, Owner::PyTorch), None);
        assert_eq!(compiled(&launching(2400), Owner::Own), None);
    }
}
