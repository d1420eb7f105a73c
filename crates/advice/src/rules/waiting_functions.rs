//! Functions of Python libraries that are known to wait for the device, and what makes them stop.

use apex_profile::{Profile, StackCount};

/// A part of the path of a library's source file, and what to change about it.
const KNOWN: [(&str, &str); 6] = [
    (
        "/torch/distributions/",
        "torch.distributions checks its arguments on the device and waits for the result: pass validate_args=False, or \
         call torch.distributions.Distribution.set_default_validate_args(False)",
    ),
    (
        "/torch/amp/grad_scaler",
        "GradScaler reads on the host whether gradients are finite: training in torch.bfloat16 needs no scaler",
    ),
    (
        "/transformers/generation/",
        "generate() reads after each token whether all sequences have ended: collect more sequences in a call, or \
         generate with a static cache (cache_implementation=\"static\") and torch.compile",
    ),
    (
        "/torchmetrics/",
        "torchmetrics checks its inputs on the host: create metrics with validate_args=False, and compute them once for \
         many steps",
    ),
    (
        "/trainer/connectors/logger_connector/",
        "Lightning reads what is logged for the progress bar in each step: log without prog_bar=True, and every N steps",
    ),
    (
        "/torchdiffeq/",
        "An adaptive solver reads its error on the host in each step: use a method with fixed steps (method=\"rk4\"), or \
         larger tolerances",
    ),
];

/// What to change where at least half of the calls with these stacks come from one known function.
pub(super) fn remedy(profile: &Profile, stacks: &[StackCount]) -> Option<&'static str> {
    let weight = |count: &StackCount| count.sampled.saturating_add(count.first_seen);
    let all: u64 = stacks.iter().map(weight).fold(0, u64::saturating_add);
    let comes_from = |count: &StackCount, path: &str| {
        let stack = profile.call_stacks.get(count.stack);
        stack.is_some_and(|stack| stack.frames.iter().any(|frame| frame.file.contains(path)))
    };
    let of = |path: &str| {
        let from = stacks.iter().filter(|count| comes_from(count, path));
        from.map(weight).fold(0, u64::saturating_add)
    };
    KNOWN.iter().find(|(path, _)| all > 0 && 2 * of(path) >= all).map(|(_, change)| *change)
}

#[cfg(test)]
mod tests {
    use super::remedy;
    use apex_profile::{CallStack, Frame, Profile, StackCount};

    #[test]
    fn a_known_function_is_named_if_half_of_the_calls_come_from_it() {
        let frame = |file: &str| Frame { file: file.to_owned(), line: Some(7), function: "f".to_owned() };
        let stack = |files: &[&str]| CallStack {
            frames: files.iter().map(|file| frame(file)).collect(),
            ..CallStack::default()
        };
        let call_stacks = vec![
            stack(&["/lib/python3/site-packages/torch/distributions/distribution.py", "train.py"]),
            stack(&["train.py"]),
        ];
        let profile = Profile { call_stacks, ..Profile::default() };
        let counts = |known, other| {
            [(0, known), (1, other)].map(|(stack, sampled)| StackCount { stack, first_seen: 1, sampled })
        };
        assert!(remedy(&profile, &counts(3, 3)).is_some_and(|change| change.contains("validate_args=False")));
        assert_eq!(remedy(&profile, &counts(3, 4)), None);
        assert_eq!(remedy(&profile, &[]), None);
    }
}
