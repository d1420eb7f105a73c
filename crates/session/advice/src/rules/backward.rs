//! Finds the forward work that a kernel of the backward pass goes with.
//!
//! Autograd's threads have no Python, so the call stacks of a backward pass name no line. Its
//! kernels follow from forward operators: mostly they are of the same kind (products, convolutions,
//! elementwise) and are launched as often in a step, or twice as often. A kernel of the backward
//! pass is divided among the forward kernels by their time, those that fit in kind and in number
//! counting more. This is inferred, and findings that quote a share of it say so.

use super::costly_line::family_of;
use super::known::share_where;
use apex_profile::{CallStack, Profile, Site, StackCount, total};

/// Weight of a forward kernel that is of another kind, or is launched another number of times.
const UNLIKE: f64 = 0.1;
/// Relative difference of numbers of launches that counts as none.
const SAME: f64 = 0.1;
/// Most gradients for which an operator launches a kernel each.
const GRADIENTS: f64 = 3.0;

/// A kernel's work in one of the two passes.
struct Part {
    row: usize,
    kind: &'static str,
    launches: f64,
    /// GPU time, nanoseconds.
    time: f64,
}

/// The forward and the backward pass of a program in PyTorch.
pub(crate) struct Backward<'p> {
    profile: &'p Profile,
    forward: Vec<Part>,
    backward: Vec<Part>,
}

impl<'p> Backward<'p> {
    /// The passes; `None` without a backward pass.
    pub fn of(profile: &'p Profile) -> Option<Self> {
        let (mut forward, mut backward) = (Vec::new(), Vec::new());
        for (row, kernel) in profile.kernels.iter().enumerate() {
            let Some(time) = kernel.gpu_total_ns().filter(|_| kernel.launches.ran() > 0) else { continue };
            let share = share_where(&kernel.stacks, |count| is_backward(profile, count)).unwrap_or(0.0);
            let launches = kernel.launches.ran() as f64;
            let kind = family_of(kernel).name;
            let part = |share: f64| Part { row, kind, launches: share * launches, time: share * time };
            backward.extend(Some(part(share)).filter(|part| part.time > 0.0));
            forward.extend(Some(part(1.0 - share)).filter(|part| part.time > 0.0));
        }
        (!backward.is_empty()).then_some(Self { profile, forward, backward })
    }

    /// The kernels of the backward pass of what is launched from such call stacks, with the GPU
    /// time that is theirs, in nanoseconds.
    pub fn of_stacks(&self, is_such: impl Fn(&CallStack) -> bool) -> Vec<(usize, f64)> {
        let is_meant = |count: &StackCount| {
            let stack = self.profile.call_stacks.get(count.stack);
            stack.is_some_and(|stack| !is_backward(self.profile, count) && is_such(stack))
        };
        let share = |part: &Part| share_where(&self.profile.kernels[part.row].stacks, is_meant);
        let such: Vec<f64> = self.forward.iter().map(|part| share(part).unwrap_or(0.0)).collect();
        if such.iter().all(|share| *share <= 0.0) {
            return Vec::new();
        }
        let of = |part: &Part| {
            let weights = || self.forward.iter().map(|other| other.time * likeness(part, other));
            let meant = total(weights().zip(&such).map(|(weight, share)| weight * share));
            (part.row, part.time * meant / total(weights()).max(f64::MIN_POSITIVE))
        };
        self.backward.iter().map(of).filter(|(_, time)| *time > 0.0).collect()
    }
}

fn is_backward(profile: &Profile, count: &StackCount) -> bool {
    profile.call_stacks.get(count.stack).is_some_and(|stack| stack.site() == Site::Autograd)
}

/// How well a forward kernel fits one of the backward pass, from 0 to 1.
fn likeness(backward: &Part, forward: &Part) -> f64 {
    let each = backward.launches / forward.launches.max(1.0);
    let is_multiple = (each - each.round()).abs() <= SAME * each && (1.0..=GRADIENTS).contains(&each.round());
    let of = |fits: bool| if fits { 1.0 } else { UNLIKE };
    of(backward.kind == forward.kind) * of(is_multiple)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{called, named, profile_of, timed};
    use super::Backward;
    use apex_profile::{CallStack, Frame, Kernel, Profile, StackCount};

    const ADD: &str = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3>>(int)";
    const PRODUCT: &str = "ampere_sgemm_128x64_tn";

    /// Two lines of 64 launches of a product and of one addition each, and their backward pass.
    fn profile() -> Profile {
        let line =
            |line| Frame { file: "/home/me/net.py".into(), line: Some(line), function: "forward".into() };
        let of_line = |at| CallStack { frames: vec![line(at)], ..CallStack::default() };
        let autograd = CallStack { thread: "pt_autograd_0".into(), ..CallStack::default() };
        let from = |stack, kernel: Kernel| {
            let stacks = vec![StackCount { stack, first_seen: 0, sampled: 4 }];
            Kernel { stacks, ..kernel }
        };
        let kernels = [
            from(0, timed(called(named(PRODUCT), 6400, 4e3), 4e3)),
            from(1, timed(called(named(ADD), 100, 4e3), 4e3)),
            from(2, timed(called(named(ADD), 6400, 4e3), 4e3)),
            from(2, timed(called(named(PRODUCT), 12_800, 4e3), 4e3)),
        ];
        Profile { call_stacks: vec![of_line(3), of_line(8), autograd], ..profile_of(kernels) }
    }

    #[test]
    fn backward_kernels_go_with_what_is_launched_as_often() {
        let profile = profile();
        let backward = Backward::of(&profile).expect("a backward pass");
        let of =
            |line| backward.of_stacks(|stack| stack.frames.first().is_some_and(|of| of.line == Some(line)));
        let (first, second) = (of(3), of(8));
        assert_eq!(first.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [2, 3]);
        let time = |row: usize| profile.kernels[row].gpu_total_ns().expect("timed");
        for (at, row) in [(0, 2), (1, 3)] {
            assert!(first[at].1 > 0.8 * time(row), "{first:?}");
            assert!((first[at].1 + second[at].1 - time(row)).abs() < 1.0, "all of it is divided");
        }
        assert!(of(99).is_empty());
    }

    #[test]
    fn a_program_without_gradients_has_no_backward_pass() {
        assert!(Backward::of(&profile_of([timed(named(ADD), 4e3)])).is_none());
    }
}
