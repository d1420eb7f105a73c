//! The environment variables that APEX reads, but for those of options, which follow from the
//! options (`apex-cli`).
//!
//! A variable is stated once: its name, who reads it, and what it means. `docs/environment.md` is
//! generated from the lists below. Empty values count as unset.

#![expect(missing_docs, reason = "each variable states its meaning as data")]

use std::ffi::OsString;
use std::path::PathBuf;

/// An environment variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// The part that reads it, in Markdown.
    pub reader: &'static str,
    /// The meaning, in Markdown.
    pub meaning: &'static str,
}

impl Variable {
    /// Its value, if it has one.
    pub fn value(&self) -> Option<OsString> {
        std::env::var_os(self.name).filter(|value| !value.is_empty())
    }

    /// Its value as a path.
    pub fn path(&self) -> Option<PathBuf> {
        self.value().map(PathBuf::from)
    }

    /// Whether it is `1`.
    pub fn is_on(&self) -> bool {
        self.value().is_some_and(|value| value == "1")
    }
}

const fn variable(name: &'static str, reader: &'static str, meaning: &'static str) -> Variable {
    Variable { name, reader, meaning }
}

pub const DISABLE: Variable = variable(
    "APEX_DISABLE",
    "`libapex.so`",
    "`1`: every driver entry point is a bare jump, and nothing is recorded.",
);
pub const DRIVER: Variable = variable(
    "APEX_DRIVER",
    "`apex run`, `libapex.so`",
    "Path of the driver to forward to, instead of the installed one.",
);
pub const LIB_DIR: Variable = variable(
    "APEX_LIB_DIR",
    "`apex`, `apex_cuda`",
    "Folder of APEX's libraries ([search path](install.md#search-path-of-the-libraries)).",
);
pub const PTXAS: Variable = variable(
    "APEX_PTXAS",
    "`apex run`",
    "Path of the ptxas that `--universal` uses, in place of the newest that is found ([universal](universal.md)).",
);
pub const CPU_COUNTS: Variable =
    variable("APEX_CPU_COUNTS", "CPU device", "Launches to count: `sampled` (default), `all` or `off`.");
pub const CPU_TIMEOUT: Variable =
    variable("APEX_CPU_TIMEOUT", "CPU device", "Maximum seconds of a kernel; unset or 0: no limit.");
pub const CPU_CAPABILITY: Variable = variable(
    "APEX_CPU_CAPABILITY",
    "CPU device",
    "Its compute capability: `8.0` (default), `9.0` or `12.0`.",
);
pub const CPU_NEWER_PTX: Variable = variable(
    "APEX_CPU_NEWER_PTX",
    "CPU device",
    "`1`: loads PTX of any version and target, and executes it as far as it can.",
);
pub const CPU_ENGINE: Variable = variable(
    "APEX_CPU_ENGINE",
    "CPU device",
    "How kernels are executed ([machine code](cpu-device.md#machine-code)): `auto` (default), `interpreted` or `compiled`.",
);
pub const CPU_GRAPH_ORDER: Variable = variable(
    "APEX_CPU_GRAPH_ORDER",
    "CPU device",
    "A number: each launch of a graph draws one of the orders that its edges allow, for tests.",
);
pub const CPU_TRACE: Variable = variable(
    "APEX_CPU_TRACE",
    "CPU device",
    "`1`: prints each unsupported entry point that the program calls; `calls`: prints every call.",
);
pub const CACHE_DIR: Variable =
    variable("APEX_CACHE_DIR", "crate `apex-gpu`", "Folder of compiled kernels; `off`: no cache.");
pub const CPU_DEVICE: Variable =
    variable("APEX_CPU_DEVICE", "crate `apex-gpu`", "Path of `libapex_cpu_device.so`.");
pub const NO_COLOR: Variable =
    variable("NO_COLOR", "`apex`", "Any value: no colours, unless `--color` is given.");
pub const NVTX: Variable = variable(
    "NVTX_INJECTION64_PATH",
    "NVTX",
    "Library that receives NVTX ranges; `apex run` sets it if it is unset.",
);
pub const SESSION: Variable =
    variable("APEX_SESSION", "`libapex.so`, CPU device", "Folder of the session; `apex run` sets it.");
pub const CPU_CHECK: Variable =
    variable("APEX_CPU_CHECK", "CPU device", "`1`: detects defects; `apex run --check` sets it.");
pub const PYTHON: Variable = variable(
    "APEX_PYTHON",
    "`apex run`",
    "Python interpreter for commands that end in `.py`; `python -m apex_cuda` sets it.",
);
pub const TESTS_REQUIRE_DEPENDENCIES: Variable = variable(
    "APEX_TESTS_REQUIRE_DEPENDENCIES",
    "tests",
    "`1`: a skipped test fails, unless `testing/skip/allowed.txt` lists it.",
);
pub const SKIPPED_TESTS: Variable =
    variable("APEX_SKIPPED_TESTS", "tests", "File that receives the list of skipped tests.");
pub const TEST_PYTHONS: Variable =
    variable("APEX_TEST_PYTHONS", "tests", "Python interpreters to test with, separated by colons.");
pub const TEST_CUDA_INCLUDE: Variable =
    variable("APEX_TEST_CUDA_INCLUDE", "tests", "Folder with the headers of another CUDA toolkit.");
pub const FAST_ALWAYS: Variable =
    variable("APEX_FAST_ALWAYS", "`libapex.so`", "`1`: `--fast` stays on even if it gains nothing.");
pub const HOST_STACKS_WINDOWS: Variable = variable(
    "APEX_HOST_STACKS_WINDOWS_MS",
    "`apex run`",
    "Milliseconds in which host stacks are sampled, and then are not, in turn: what sampling costs.",
);
pub const HOST_STACKS_ROUNDS: Variable = variable(
    "APEX_HOST_STACKS_ROUNDS",
    "tests",
    "Programs that the tests of host stacks end at random moments.",
);
pub const PAGE_OUT: Variable = variable("APEX_PAGE_OUT", "Vite", "Folder of the built page.");
pub const BIN: Variable = variable("APEX_BIN", "`scripts/gpu`", "Folder of `apex` and its libraries.");

/// The variable of `apex run --fast`: how the program is made faster, separated by commas.
pub const FAST: Variable = variable("APEX_FAST", "`libapex.so`", "The value of `apex run --fast`.");

/// The variables of `apex run --capability` and `--capability-for`.
pub const CAPABILITY: Variable =
    variable("APEX_CAPABILITY", "`libapex.so`", "The value of `apex run --capability`.");
pub const CAPABILITY_FOR: Variable = variable(
    "APEX_CAPABILITY_FOR",
    "`libapex.so`",
    "The values of `apex run --capability-for`, separated by colons.",
);

/// Variables that users set.
pub const USERS: [Variable; 14] = [
    DISABLE,
    DRIVER,
    LIB_DIR,
    PTXAS,
    CPU_COUNTS,
    CPU_ENGINE,
    CPU_TIMEOUT,
    CPU_CAPABILITY,
    CPU_NEWER_PTX,
    CPU_TRACE,
    CACHE_DIR,
    CPU_DEVICE,
    NO_COLOR,
    NVTX,
];

/// Variables that APEX sets for its own libraries.
pub const INTERNAL: [Variable; 3] = [SESSION, CPU_CHECK, PYTHON];

/// Variables of tests and scripts.
pub const TESTS: [Variable; 10] = [
    CPU_GRAPH_ORDER,
    TESTS_REQUIRE_DEPENDENCIES,
    SKIPPED_TESTS,
    TEST_PYTHONS,
    TEST_CUDA_INCLUDE,
    FAST_ALWAYS,
    HOST_STACKS_WINDOWS,
    HOST_STACKS_ROUNDS,
    PAGE_OUT,
    BIN,
];
