//! Owners of kernels that their names do not tell, and what launched them does.
//!
//! In a program of Python that uses a framework, a kernel with an unknown name is the user's if
//! Triton, Numba or another compiler at run time launches it, or the user's own compiled code. Such
//! a launch has a frame of theirs on its stack, or an image with PTX. All others come out of
//! libraries' machine code (cuSOLVER, cuSPARSE, cuRAND): their configuration is not the user's to
//! change.

use apex_kernel_names::{Owner, OwnerKind};

use super::{CallStack, Kernel, Profile};

/// Parts of paths of packages that launch the user's kernels.
const LAUNCHERS: [&str; 12] = [
    "/triton/",
    "/numba/",
    "/numba_cuda/",
    "/cupy/",
    "/cupyx/",
    "/pycuda/",
    "/cuda/",
    "/warp/",
    "/taichi/",
    "/tilelang/",
    "/cutlass/",
    "/torch/utils/cpp_extension",
];

/// Sets the owner of kernels that a library launches.
pub(super) fn name_libraries(profile: &mut Profile) {
    // A kernel of CuPy's `RawKernel` is launched as its own ones are.
    let uses = |is: fn(Owner) -> bool| profile.kernels.iter().any(|kernel| is(kernel.traits.owner));
    let has_framework = uses(|owner| matches!(owner.kind(), OwnerKind::Framework | OwnerKind::Compiler))
        && !uses(|owner| owner == Owner::CuPy);
    if !has_framework {
        return;
    }
    let Profile { kernels, call_stacks, .. } = profile;
    for kernel in kernels.iter_mut().filter(|kernel| is_of_library(kernel, call_stacks)) {
        kernel.traits.owner = Owner::Library;
    }
}

fn is_of_library(kernel: &Kernel, stacks: &[CallStack]) -> bool {
    let launched = |stack: &CallStack| {
        let is_launcher =
            stack.frames.first().is_some_and(|frame| LAUNCHERS.iter().any(|part| frame.file.contains(part)));
        !stack.frames.is_empty() && stack.native.is_empty() && !is_launcher
    };
    let has_image = kernel.code.as_ref().is_some_and(|code| code.image.is_some());
    let mut known = kernel.stacks.iter().filter_map(|count| stacks.get(count.stack)).peekable();
    kernel.traits.owner == Owner::Own && !has_image && known.peek().is_some() && known.all(launched)
}

#[cfg(test)]
mod tests {
    use super::super::{CallStack, Frame, Kernel, KernelCode, Profile, StackCount};
    use super::name_libraries;
    use apex_kernel_names::{Owner, Traits};

    fn kernel(owner: Owner, stack: usize) -> Kernel {
        let stacks = vec![StackCount { stack, ..StackCount::default() }];
        Kernel { traits: Traits { owner, ..Traits::default() }, stacks, ..Kernel::default() }
    }

    fn stack(file: &str, native: Option<&str>) -> CallStack {
        let frame = |file: &str| Frame { file: file.into(), line: Some(1), function: "f".into() };
        CallStack {
            frames: vec![frame(file)],
            native: native.map(frame).into_iter().collect(),
            ..CallStack::default()
        }
    }

    #[test]
    fn what_python_launches_without_a_compiler_is_a_librarys() {
        let image = Some(KernelCode { image: Some("1".into()), ..KernelCode::default() });
        let mut profile = Profile {
            call_stacks: vec![
                stack("/home/me/train.py", None),
                stack("/venv/lib/python3.12/site-packages/triton/runtime/jit.py", None),
                stack("/home/me/train.py", Some("/home/me/scale.cu")),
            ],
            kernels: vec![
                kernel(Owner::PyTorch, 0),
                kernel(Owner::Own, 0),
                kernel(Owner::Own, 1),
                kernel(Owner::Own, 2),
                Kernel { code: image, ..kernel(Owner::Own, 0) },
            ],
            ..Profile::default()
        };
        let owners =
            |profile: &Profile| profile.kernels.iter().map(|kernel| kernel.traits.owner).collect::<Vec<_>>();
        let mut without = Profile { kernels: profile.kernels[1..].to_vec(), ..profile.clone() };
        name_libraries(&mut profile);
        assert_eq!(owners(&profile), [Owner::PyTorch, Owner::Library, Owner::Own, Owner::Own, Owner::Own]);
        name_libraries(&mut without);
        assert_eq!(owners(&without), [Owner::Own; 4]);
    }
}
