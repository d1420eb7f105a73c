//! Remedies in the words of the language that a kernel is written in.
//!
//! Rules word their remedies for CUDA C++. The program's own kernels may come from Numba, where
//! Python code is compiled: it has no suffix `f`, no `__launch_bounds__`, and no nvcc.

use apex_profile::Kernel;

/// Words of remedies in CUDA C++, and their counterparts in Numba.
const IN_NUMBA: [(&str, &str); 3] = [
    (
        "write constants as floats (0.5f) and call functions of single precision",
        "a float of Python is FP64; write constants as numpy.float32(0.5), and pass arrays and numbers of \
            type float32",
    ),
    ("(-Xptxas -v, __launch_bounds__, -maxrregcount)", "(@cuda.jit(max_registers=…))"),
    (
        "(-Xptxas -v prints them): allow more registers (__launch_bounds__, -maxrregcount)",
        "allow more registers (@cuda.jit(max_registers=…))",
    ),
];

/// Whether Numba compiled the kernel: its names tell the version of the interface, or its module.
fn is_of_numba(kernel: &Kernel) -> bool {
    kernel.name.starts_with("cudapy::") || kernel.name.contains("[abi:")
}

/// A remedy in the words of the kernel's language.
pub(super) fn in_words_of(kernel: &Kernel, change: String) -> String {
    match is_of_numba(kernel) {
        true => IN_NUMBA.iter().fold(change, |change, (cpp, numba)| change.replace(cpp, numba)),
        false => change,
    }
}

/// Returns the way to limit a kernel to this number of registers, so that `blocks` blocks fit an
/// SM.
pub(super) fn limit_of_registers(kernel: &Kernel, registers: u32, blocks: u32) -> String {
    match is_of_numba(kernel) {
        true => format!("@cuda.jit(max_registers={registers})"),
        false => format!("__launch_bounds__({}, {blocks})", kernel.block_threads()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{assert_finds, counted, execute, kernel_of, named};
    use super::super::{double_arithmetic, local_memory};
    use super::limit_of_registers;
    use apex_counts::{Direction, Space};
    use apex_profile::Kernel;

    const NUMBA: &str = "_ZN6cudapy8__main__3addB2v1B38c8tJTIcFKzyF2ILShI4CrgQElQb6HczSBAA_3dE5ArrayIfLi1E1C7mutable7alignedE";

    fn of_numba(kernel: Kernel) -> Kernel {
        let identity = named(NUMBA);
        Kernel {
            name: identity.name,
            short_name: identity.short_name,
            symbol: identity.symbol,
            traits: identity.traits,
            ..kernel
        }
    }

    #[test]
    fn kernels_of_numba_get_advice_in_python() {
        let doubles = || {
            let mut kernel = counted(Space::Global, Direction::Load, 100, 400, 0);
            execute(&mut kernel, 100_000, 100_000, 50_000);
            kernel
        };
        let change = |rule, kernel| assert_finds(rule, kernel).change;
        let python = change(&double_arithmetic::RULE, of_numba(doubles()));
        assert!(python.contains("numpy.float32(0.5)") && !python.contains("0.5f"), "{python}");
        let cpp = change(&double_arithmetic::RULE, doubles());
        assert!(cpp.contains("0.5f") && !cpp.contains("numpy"), "{cpp}");
        let local = |mut kernel: Kernel| {
            kernel.attributes.as_mut().expect("known").local_bytes = 4_000;
            change(&local_memory::SIZE, kernel)
        };
        let (python, cpp) = (local(of_numba(kernel_of(10_000, 256))), local(kernel_of(10_000, 256)));
        assert!(cpp.contains("__launch_bounds__") && cpp.contains("-Xptxas"), "{cpp}");
        assert!(python.contains("@cuda.jit(max_registers=") && !python.contains("-Xptxas"), "{python}");
        let limit = |kernel| limit_of_registers(&kernel, 40, 3);
        assert_eq!(limit(kernel_of(10_000, 256)), "__launch_bounds__(256, 3)");
        assert_eq!(limit(of_numba(kernel_of(10_000, 256))), "@cuda.jit(max_registers=40)");
    }
}
