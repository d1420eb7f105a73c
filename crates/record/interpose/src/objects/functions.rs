//! Functions and kernels: the names by which the program requested them, and the attributes that it
//! set.

use super::{Objects, lock};
use crate::tables::put;
use crate::{driver, limits};
use apex_trace::definition::Function;
use cuda_abi::types::*;
use cuda_launch::LaunchConfig;
use std::collections::HashMap;

/// The program's settings of functions and kernels, by handle.
#[derive(Default)]
pub struct Settings {
    /// Names, for drivers that cannot tell them.
    names: HashMap<u64, Box<str>>,
    attributes: HashMap<(u64, CUfunction_attribute), i32>,
    /// Whether the last attribute was a kernel's.
    were_kernels: bool,
    /// The settings of `cuFuncSetBlockShape` and `cuFuncSetSharedSize`: the grid comes with the
    /// launch.
    legacy: HashMap<u64, LaunchConfig>,
}

/// The name of a function of which neither the driver nor an earlier call told it.
const UNKNOWN_FUNCTION: &str = "(unknown)";

impl Objects {
    /// The program set an attribute of a function, or of a kernel, which may be the same
    /// function's. Only a change counts: some libraries set the same value before every launch.
    /// (What is set by way of the other sort of handle may be one.)
    pub fn note_attribute(&self, handle: u64, is_kernel: bool, attribute: CUfunction_attribute, value: i32) {
        let mut settings = lock(&self.functions);
        if settings.attributes.len() >= limits::ATTRIBUTES {
            settings.attributes.clear();
        }
        let before = settings.attributes.get(&(handle, attribute)).copied();
        put(&mut settings.attributes, (handle, attribute), value);
        let is_otherwise = std::mem::replace(&mut settings.were_kernels, is_kernel) != is_kernel;
        drop(settings);
        if before != Some(value) || is_otherwise {
            self.forget_functions();
        }
    }

    /// The program got `handle` for a name.
    pub fn note_name(&self, handle: u64, name: impl FnOnce() -> String) {
        if driver::tells_names() {
            return;
        }
        let name = name().into_boxed_str();
        let mut settings = lock(&self.functions);
        if settings.names.len() < limits::REMEMBERED_NAMES || settings.names.contains_key(&handle) {
            put(&mut settings.names, handle, name);
        }
    }

    /// Describes a launched handle, its identifier left 0. The handle may be a function or a
    /// library's kernel (`CUkernel`): launches take both, the queries functions only.
    pub fn describe_function(&self, handle: CUfunction) -> Function {
        let mut function = handle;
        let mut attributes = driver::function_attributes(function);
        if attributes.is_none()
            && let Some(of_kernel) = driver::function_of_kernel(handle.cast())
        {
            function = of_kernel;
            attributes = driver::function_attributes(function);
        }
        let remembered = || lock(&self.functions).names.get(&(handle as u64)).map(|name| name.to_string());
        let name = driver::function_name(function)
            .or_else(remembered)
            .unwrap_or_else(|| UNKNOWN_FUNCTION.to_owned());
        Function { id: 0, name, attributes }
    }

    /// Returns the settings of `function` for the oldest way to launch.
    pub fn legacy_config(&self, function: CUfunction) -> LaunchConfig {
        lock(&self.functions).legacy.get(&(function as u64)).copied().unwrap_or_default()
    }

    /// The program sets something on `function` for the oldest way to launch.
    pub fn change_legacy_config(&self, function: CUfunction, change: impl FnOnce(&mut LaunchConfig)) {
        let mut settings = lock(&self.functions);
        if settings.legacy.len() >= limits::ATTRIBUTES {
            settings.legacy.clear();
        }
        let mut config = settings.legacy.get(&(function as u64)).copied().unwrap_or_default();
        change(&mut config);
        put(&mut settings.legacy, function as u64, config);
    }
}

#[cfg(test)]
mod tests {
    use super::super::epochs;
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn only_a_change_of_an_attribute_ends_the_epoch_of_functions() {
        let objects = Objects::start().expect("there is memory");
        let ends = |handle, is_kernel, value| {
            let before = epochs().modules.load(Relaxed);
            objects.note_attribute(handle, is_kernel, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, value);
            epochs().modules.load(Relaxed) != before
        };
        assert!(ends(1, false, 100) && !ends(1, false, 100));
        assert!(ends(1, false, 200) && ends(1, false, 100) && !ends(1, false, 100));
        assert!(ends(2, true, 300) && !ends(2, true, 300));
        // The kernel may be that function.
        assert!(ends(1, false, 100) && ends(2, true, 300));
    }
}
