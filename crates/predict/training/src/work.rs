//! Estimates the work of launches of APEX's own suite, from its PTX.

use apex_dataset::DataSet;
use apex_device_code::suite;
use cuda_launch::LaunchConfig;
use ptx_estimate::{Argument, BUDGET, Estimator, Work};
use std::collections::HashMap;

/// The suite's kernels, if a data set was measured with this version of the suite.
pub(crate) struct Code {
    estimators: HashMap<String, Estimator>,
}

impl Code {
    /// The code of a data set's kernels; `None` if they belong to another program or version.
    pub(crate) fn of(set: &DataSet) -> Code {
        let mut estimators = HashMap::new();
        let own = &set.manifest.suite;
        if own.name == "apex" && own.version == suite::VERSION && own.ptx_hash == suite::hash() {
            for module in &suite::MODULES {
                let parsed = ptx::parse(module.ptx()).expect("a test of the suite parses it");
                for function in parsed.functions() {
                    estimators.insert(function.name.to_string(), Estimator::new(&parsed, function));
                }
            }
        }
        Code { estimators }
    }

    /// Returns the work of a launch of a kernel with the suite's parameters (two inputs, an output,
    /// `n`, `m`).
    pub(crate) fn work(&self, kernel: &str, launch: &LaunchConfig, n: u64, m: u64) -> Option<Work> {
        let arguments =
            [Argument::Pointer, Argument::Pointer, Argument::Pointer, Argument::Bits(n), Argument::Bits(m)];
        Some(self.estimators.get(kernel)?.estimate(launch, &arguments, BUDGET))
    }
}
