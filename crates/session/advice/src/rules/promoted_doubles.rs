//! Arrays of FP32 that an expression turns into FP64, and the kernels in FP64 that follow.

use super::{Needs, Outcome, Rule, by_name, known};
use crate::finding::{Scope, Severity};
use apex_profile::names::{DataType, OwnerKind};
use apex_profile::{Figure, Kernel, Profile, total};

/// Minimum share of the GPU time of kernels in FP64.
const LEAST: f64 = 0.2;
/// Minimum share of the GPU time of kernels that take both precisions.
const MIXED: f64 = 0.02;
/// CuPy's words for FP64 and FP32.
const WIDE: [&str; 2] = ["float64", "complex128"];
const NARROW: [&str; 2] = ["float32", "complex64"];

pub(super) const RULE: Rule = Rule {
    id: "APEX-T139",
    slug: "promoted-doubles",
    title: "FP32 arrays become FP64",
    severity: Severity::High,
    scope: Scope::Kernel,
    needs: Needs::Times,
    parent: None,
    idle: &[],
    detects: "Kernels of a framework or a library whose names say double precision take at least 20% of the GPU time, and at least 2% \
        is in kernels of a framework that take operands of FP32 and give results of FP64. PyTorch's names do not say \
        which operands they convert: theirs count where other kernels compute in FP32.",
    source: "NumPy, NEP 50: an array of float32 and a NumPy scalar of float64 give float64; PyTorch, tensor attributes, type promotion. \
             The thresholds are APEX's own.",
    why: "One operand of FP64 makes the result of an operation FP64, and that of all that follows: twice the bytes, at most half of \
        the rate.",
    change: "Find the operand of FP64 in the expression that the finding quotes, and convert it once: NumPy scalars to Python's \
        numbers (float(x), array.tolist()), arrays with dtype=float32 or astype(float32), tensors with .float().",
    saving: "A third of the time of kernels in FP64; between a twentieth of it (FP64 is needed for the rest) and two thirds.",
    verify: "the kernels' names say float, and their GPU time decreases",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    let share = |is_such: &dyn Fn(&Kernel) -> bool| {
        let time = |kernel: &Kernel| kernel.gpu_total_ns().unwrap_or(0.0);
        let all = total(profile.kernels.iter().map(time));
        let such = profile.kernels.iter().filter(|kernel| is_such(kernel));
        total(such.map(time)) / all.max(1.0)
    };
    let has_times = profile.kernels.iter().any(|kernel| kernel.gpu_total_ns().is_some());
    let has_single =
        profile.kernels.iter().any(|kernel| types_of_cupy(kernel).is_some() || is_single(kernel));
    let has_both = has_single && share(&is_double) >= LEAST && share(&is_mixed) >= MIXED;
    if has_times && !has_both {
        return Outcome::Clear;
    }
    let mixed = profile.kernels.iter().filter(|kernel| is_mixed(kernel));
    let time = |kernel: &&Kernel| kernel.gpu_total_ns().unwrap_or(0.0);
    // Where FP64 begins, rather than where it goes on.
    let largest = mixed.max_by(|a, b| is_origin(a).cmp(&is_origin(b)).then(time(a).total_cmp(&time(b))));
    let from = largest.and_then(|kernel| profile.main_place(&kernel.stacks));
    let from = from.map_or_else(String::new, |place| format!(" at {place}"));
    let mixing = largest.map_or("", |kernel| kernel.short_name.as_str());
    let remedy = known::remedy_of_case(profile, RULE.slug).unwrap_or_else(|| RULE.change.to_owned());
    by_name::judge_rows(
        profile,
        &remedy,
        "names tell the types; whether the program needs double precision is not known",
        |row| is_double(&profile.kernels[row]).then(|| Figure::predicted(0.35, (0.05, 0.65))),
        |who| format!("{who}: in FP64, though operands are FP32: `{mixing}`{from} takes both"),
    )
}

/// Whether it is not the user's own, and computes in FP64.
fn is_double(kernel: &Kernel) -> bool {
    let types = &kernel.traits.types;
    let wide = |of: Option<DataType>| matches!(of, Some(DataType::F64 | DataType::C128));
    let of_transform = kernel.name.contains("fft") && kernel.name.contains("double");
    kernel.traits.owner.kind() != OwnerKind::Own && (wide(types.input) || wide(types.output) || of_transform)
}

/// Whether it is a framework's or a library's, and computes in FP32.
fn is_single(kernel: &Kernel) -> bool {
    let types = &kernel.traits.types;
    let narrow = |of: Option<DataType>| matches!(of, Some(DataType::F32 | DataType::C64));
    kernel.traits.owner.kind() != OwnerKind::Own && (narrow(types.input) || narrow(types.output))
}

/// Whether a framework's kernel takes operands of FP32 and gives FP64. PyTorch's kernels load
/// operands of other types by `LoadWithCast`, and their names do not say of which.
fn is_mixed(kernel: &Kernel) -> bool {
    let of_cupy = types_of_cupy(kernel).is_some_and(|(operands, result)| {
        WIDE.contains(&result) && operands.iter().any(|operand| NARROW.contains(operand))
    });
    of_cupy || kernel.name.contains("LoadWithCast") && is_double(kernel)
}

/// Whether no array among the operands of CuPy's kernel is of FP64, so that a number makes its
/// result FP64.
fn is_origin(kernel: &Kernel) -> bool {
    types_of_cupy(kernel).is_some_and(|(operands, _)| !operands.iter().any(|operand| WIDE.contains(operand)))
}

/// The types of operands and result in the name of a kernel of CuPy
/// (`cupy_add__float32_float64_float64`); `float` is a number of Python.
fn types_of_cupy(kernel: &Kernel) -> Option<(Vec<&str>, &str)> {
    let (_, types) = kernel.name.strip_prefix("cupy_")?.rsplit_once("__")?;
    let mut types: Vec<&str> = types.split('_').collect();
    let result = types.pop()?;
    Some((types, result))
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{assert_clear_in, assert_finds_in, named, profile_of, timed};
    use super::RULE;

    #[test]
    fn an_operand_of_fp64_makes_all_that_follows_fp64() {
        let (mixed, double) = ("cupy_multiply__float32_float64_float64", "cupy_add__float64_float64_float64");
        let finding =
            assert_finds_in(&RULE, profile_of([timed(named(mixed), 1e6), timed(named(double), 5e6)]));
        assert!(finding.summary.contains("takes both"), "{}", finding.summary);
        assert_eq!(finding.kernels.len(), 2);
        // FP64 throughout may be meant, and so may a sum in FP64 of little time.
        assert_clear_in(&RULE, profile_of([timed(named(double), 5e6)]));
        let single = "cupy_add__float32_float32_float32";
        assert_clear_in(&RULE, profile_of([timed(named(mixed), 1e6), timed(named(single), 9e6)]));
    }

    #[test]
    fn results_that_are_cast_down_and_masks_promote_nothing() {
        let double = "cupy_add__float64_float64_float64";
        let with = |other: &str| profile_of([timed(named(other), 1e6), timed(named(double), 5e6)]);
        assert_clear_in(&RULE, with("cupy_copy__float64_float32"));
        assert_clear_in(&RULE, with("cupy_multiply__float64_bool_float64"));
        let converting = "void at::native::unrolled_elementwise_kernel<at::native::BinaryFunctor<double, double, double, \
            at::native::binary_internal::MulFunctor<double> >, std::array<char*, 3ul>, 4, TrivialOffsetCalculator<2, unsigned int>, \
            TrivialOffsetCalculator<1, unsigned int>, at::native::memory::LoadWithCast<2>, \
            at::native::memory::StoreWithCast<1> >(int)";
        let single = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, \
            std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)";
        let converts = || timed(named(converting), 5e6);
        assert_clear_in(&RULE, profile_of([converts()]));
        assert_finds_in(&RULE, profile_of([converts(), timed(named(single), 1e6)]));
    }

    #[test]
    fn the_operation_where_fp64_begins_is_named_before_those_that_go_on() {
        let (origin, later) = ("cupy_multiply__float_float32_float64", "cupy_add__float64_float32_float64");
        let finding =
            assert_finds_in(&RULE, profile_of([timed(named(origin), 1e6), timed(named(later), 5e6)]));
        assert!(finding.summary.contains("multiply"), "{}", finding.summary);
    }
}
