//! The function of JAX that takes most of the device's time, and its costliest operation.
//!
//! XLA marks each run of a compiled module, and each operation that it launches, by NVTX ranges of
//! the domain `TSL`: `XlaModule:#hlo_module=jit_step,…#`, and inside of it
//! `Thunk:#name=jit(step)/while/body/add,hlo_op=loop_add_fusion,…#`. The module has the name of the
//! Python function, and the operation the path of JAX's name stack
//! (<https://docs.jax.dev/en/latest/profiling.html>): the transformations and primitives that it
//! comes from. Times are those of the whole run, so shares refer to all that XLA ran, not to a
//! phase.

use super::percent;
use apex_profile::{Profile, Range};

const DOMAIN: &str = "TSL";
const MODULE: &str = "XlaModule:#hlo_module=jit_";
const OPERATION: &str = "Thunk:#";

/// A function that XLA compiled.
pub(super) struct Compiled {
    /// Its name in Python.
    function: String,
    /// Its costliest operation, if one is known.
    operation: Option<Operation>,
}

/// An operation of a compiled function.
struct Operation {
    /// The path of names within the function: `while/body/add`; empty where JAX gave none.
    path: String,
    /// The name of XLA's operation, as kernels have it.
    name: String,
    /// Its share of the function's time.
    share: f64,
}

impl Compiled {
    /// The function with most of the device's time; `None` without ranges of XLA.
    pub fn of(profile: &Profile) -> Option<Self> {
        let ranges = || profile.ranges.iter().enumerate().filter(|(_, range)| range.domain == DOMAIN);
        let modules = ranges().filter_map(|(at, range)| Some((at, module_of(range)?, time_of(range))));
        let (module, function, time) = modules.max_by(|a, b| a.2.total_cmp(&b.2)).filter(|of| of.2 > 0.0)?;
        let holds_others = |at: usize| profile.ranges.iter().any(|range| range.parent == Some(at));
        let within = ranges().filter(|&(at, range)| is_within(profile, range, module) && !holds_others(at));
        let largest = within.max_by(|a, b| time_of(a.1).total_cmp(&time_of(b.1)));
        let operation = largest.and_then(|(_, range)| Operation::of(range, time_of(range) / time));
        Some(Self { function: function.to_owned(), operation })
    }

    /// The function and its operation, as a part of a sentence.
    pub fn in_words(&self) -> String {
        let function = format!("most of what XLA runs is the compiled function `{}`", self.function);
        match &self.operation {
            None => function,
            Some(Operation { path, name, share }) if path.is_empty() => {
                format!("{function}, {} of it in `{name}`", percent(*share))
            }
            Some(Operation { path, name, share }) => {
                format!("{function}, {} of it in `{path}` (`{name}`)", percent(*share))
            }
        }
    }

    /// What to ask about its costliest operation, by the path of names.
    pub fn questions(&self) -> impl Iterator<Item = &'static str> + '_ {
        let path = self.operation.as_ref().map_or("", |operation| operation.path.as_str());
        QUESTIONS.iter().filter(|(part, _)| path.contains(part)).map(|(_, question)| *question)
    }

    /// Whether it may hold a function that `jax.vmap` maps.
    pub fn may_be_mapped(&self) -> bool {
        let path = self.operation.as_ref().map_or("", |operation| operation.path.as_str());
        path.is_empty() || path.contains("vmap")
    }
}

impl Operation {
    /// The operation of a range with this share of its function's time.
    fn of(range: &Range, share: f64) -> Option<Self> {
        let text = range.name.strip_prefix(OPERATION)?.trim_end_matches('#');
        let (before, after) = text.split_once("hlo_op=")?;
        let name = after.split(',').next().unwrap_or(after).to_owned();
        let path = before.strip_prefix("name=").and_then(|path| path.split_once('/'));
        let path = path.map_or("", |(_, within)| within).trim_end_matches(',').to_owned();
        Some(Self { path, name, share: share.min(1.0) })
    }
}

/// Minimum number of launches per call for the launches to be those of a loop in the compiled
/// function.
const EACH_CALL: f64 = 8.0;

/// The change to make where most launches come from a loop within a compiled function; `None` if
/// they do not. Such a loop is `jax.lax.scan`, `map`, `fori_loop` or `while_loop` already.
pub(super) fn change_of_loop(profile: &Profile) -> Option<String> {
    let ranges = || profile.ranges.iter().enumerate().filter(|(_, range)| range.domain == DOMAIN);
    let all: u64 = ranges().filter(|(_, range)| range.parent.is_none()).map(|(_, of)| of.launches).sum();
    let modules = ranges().filter_map(|(at, range)| Some((at, module_of(range)?, range)));
    let (module, function, calls) = modules.max_by_key(|(_, _, range)| range.launches)?;
    let loops = ranges().filter_map(|(_, range)| {
        let operation = Operation::of(range, 0.0).filter(|of| of.name.starts_with("while"))?;
        (range.parent == Some(module)).then_some((range.launches, operation.path))
    });
    let (launches, path) = loops.max_by_key(|(launches, _)| *launches)?;
    let each = launches as f64 / calls.count.max(1) as f64;
    if 2 * calls.launches < all || 2 * launches < calls.launches || each < EACH_CALL {
        return None;
    }
    let place = if path.is_empty() { String::new() } else { format!(" (`{path}`)") };
    let remedy = if path.contains("searchsorted") { SEARCH } else { ROUNDS };
    Some(format!(
        "The compiled function `{function}` launches {each:.0} times in each call in a loop of its own{place}: {remedy}"
    ))
}

const SEARCH: &str = "pass method=\"scan_unrolled\" or method=\"sort\" to jnp.searchsorted, whose default searches round \
    by round";
const ROUNDS: &str = "make its rounds fewer. Where each state is linear in the one before, jax.lax.associative_scan computes \
    all of them in few launches (a running sum: jnp.cumsum); where rounds do not need one another, jax.vmap; else \
    jax.lax.scan(…, unroll=16), and more work in each round";

fn module_of(range: &Range) -> Option<&str> {
    let name = range.name.strip_prefix(MODULE)?;
    name.split([',', '#']).next().filter(|name| !name.is_empty())
}

fn time_of(range: &Range) -> f64 {
    range.gpu_time_ns.map_or(0.0, |time| time.value)
}

/// Whether an operation lies within a range, at any depth. A range's parent precedes it or not: the
/// number of ranges bounds the walk.
fn is_within(profile: &Profile, range: &Range, module: usize) -> bool {
    let parent = |of: &&Range| of.parent.and_then(|at| profile.ranges.get(at));
    let mut line = std::iter::successors(Some(range), parent).take(profile.ranges.len());
    range.name.starts_with(OPERATION) && line.any(|of| of.parent == Some(module))
}

/// Questions by a part of the path of names.
const QUESTIONS: [(&str, &str); 8] = [
    (
        "rematted_computation",
        "It computes values of the forward pass again (jax.checkpoint): is memory short, or may more be kept \
         (policy=jax.checkpoint_policies.dots_saveable)?",
    ),
    (
        "while",
        "It is in a loop (jax.lax.scan, map, fori_loop, while_loop): need rounds one another, or can jax.vmap compute \
         them at once? Does a round compute what does not change?",
    ),
    (
        "transpose(",
        "It computes gradients (jax.grad): are all of them used, or could jax.lax.stop_gradient cut some?",
    ),
    (
        "random_bits",
        "It draws random numbers: jax.config.update(\"jax_default_prng_impl\", \"rbg\") has a cheaper generator",
    ),
    (
        "scatter",
        "It updates elements at indices (.at[]): are indices sorted and unique (indices_are_sorted, unique_indices)?",
    ),
    ("sort", "It sorts: do jax.lax.top_k or a partition suffice?"),
    ("cumsum", "It sums up along an axis: is that axis the last one?"),
    (
        "dot_general",
        "It is a matrix product: may its operands be bfloat16, or its precision lower (jax.default_matmul_precision)?",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use apex_profile::Figure;

    fn range(name: &str, parent: Option<usize>, ms: f64) -> Range {
        let gpu_time_ns = Some(Figure::measured(ms * 1e6));
        Range { name: name.to_owned(), domain: DOMAIN.to_owned(), parent, gpu_time_ns, ..Range::default() }
    }

    fn compiled(ranges: Vec<Range>) -> Option<Compiled> {
        Compiled::of(&Profile { ranges, ..Profile::default() })
    }

    #[test]
    fn the_function_and_its_costliest_operation_are_named() {
        let ranges = vec![
            range("XlaModule:#hlo_module=jit_fill,program_id=3#", None, 2.0),
            range("XlaModule:#hlo_module=jit_next_hour,program_id=17#", None, 10.0),
            range("Thunk:#name=jit(next_hour)/vmap()/while,hlo_op=while.5,unique_hlo_op_id=2#", Some(1), 9.5),
            range(
                "Thunk:#name=jit(next_hour)/vmap()/while/body/add,hlo_op=loop_add_fusion,unique_hlo_op_id=1#",
                Some(2),
                9.0,
            ),
            range("Thunk:#hlo_op=input_reduce_fusion#", Some(1), 0.5),
            range("Thunk:#name=jit(fill)/sort,hlo_op=sort.1#", Some(0), 2.0),
        ];
        let compiled = compiled(ranges).expect("a function");
        assert_eq!(
            compiled.in_words(),
            "most of what XLA runs is the compiled function `next_hour`, 90% of it in `vmap()/while/body/add` \
             (`loop_add_fusion`)"
        );
        let questions: Vec<_> = compiled.questions().collect();
        assert!(matches!(questions[..], [question] if question.contains("jax.lax.scan")), "{questions:?}");
        assert!(compiled.may_be_mapped());
    }

    #[test]
    fn launches_of_a_loop_within_a_function_are_not_told_to_become_one() {
        let of = |path: &str, in_loop: u64| {
            let counted =
                |name: &str, parent, count, launches| Range { count, launches, ..range(name, parent, 1.0) };
            let ranges = vec![
                counted("XlaModule:#hlo_module=jit_improve,program_id=1#", None, 10, in_loop + 100),
                counted(&format!("Thunk:#name=jit(improve)/{path},hlo_op=while.1#"), Some(0), 10, in_loop),
            ];
            change_of_loop(&Profile { ranges, ..Profile::default() })
        };
        let change = of("jvp()/while", 20_000).expect("a change");
        assert!(change.starts_with("The compiled function `improve` launches 2000 times in each call in a loop of its own (`jvp()/while`): "));
        assert!(change.contains("associative_scan"), "{change}");
        assert!(of("jit(searchsorted)/vmap()", 20_000).expect("a change").contains("scan_unrolled"));
        // Fewer than half of the launches are the loop's.
        assert_eq!(of("jvp()/while", 90), None);
    }

    #[test]
    fn a_function_without_operations_is_named_alone_and_nothing_is_found_in_nothing() {
        let one = compiled(vec![range("XlaModule:#hlo_module=jit_step#", None, 1.0)]).expect("a function");
        assert_eq!(one.in_words(), "most of what XLA runs is the compiled function `step`");
        assert!(compiled(Vec::new()).is_none());
        assert!(compiled(vec![range("XlaModule:#hlo_module=jit_step#", None, 0.0)]).is_none());
        // Ranges that hold one another end the walk.
        let odd = vec![
            range("Thunk:#hlo_op=a#", Some(1), 1.0),
            range("Thunk:#hlo_op=b#", Some(0), 1.0),
            range("XlaModule:#hlo_module=jit_step#", None, 1.0),
        ];
        assert!(compiled(odd).is_some());
    }
}
