//! Patterns of names: `*` stands for any characters, everything else for itself.

use apex_kernel_names::is_like;

/// A pattern of a whole name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// The pattern of this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Its text.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Whether it matches all of the name.
    pub fn matches(&self, name: &str) -> bool {
        is_like(name, &self.0)
    }
}

/// A pattern of a function on a call stack: `FILE:FUNCTION`, `FILE:` or `FUNCTION`. `FILE` is the
/// end of a path, from the beginning of one of its folders or of its name; a file that ends with
/// `/` stands for everything in the folder. `packages/numpy/` is the package alone, and not a
/// folder of this name in another one. `FUNCTION` is a [`Pattern`] of the function's name, with or
/// without the classes and functions that it is defined in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionPattern {
    file: String,
    function: Pattern,
}

impl FunctionPattern {
    /// The pattern of this text.
    pub fn new(text: &str) -> Self {
        let (file, function) = match file_and_function(text) {
            ("", folder) if folder.ends_with('/') => (folder, ""),
            both => both,
        };
        let function = if function.is_empty() { "*" } else { function };
        Self { file: file.to_owned(), function: Pattern::new(function) }
    }

    /// Whether it matches the function of this name in this file.
    pub fn matches(&self, file: &str, function: &str) -> bool {
        let last = function.rsplit('.').next().unwrap_or(function);
        self.matches_file(file) && (self.function.matches(function) || self.function.matches(last))
    }

    fn matches_file(&self, file: &str) -> bool {
        if let Some(in_packages) = self.file.strip_prefix(PACKAGES) {
            let package = PACKAGE_FOLDERS.iter().find_map(|folder| file.rsplit_once(folder));
            return package.is_some_and(|(_, package)| match in_packages.ends_with('/') {
                true => package.starts_with(in_packages),
                false => package == in_packages,
            });
        }
        let starts_a_name = |before: &str| before.is_empty() || before.ends_with('/');
        match &self.file[..] {
            "" => true,
            folder if folder.ends_with('/') => {
                file.match_indices(folder).any(|(at, _)| starts_a_name(&file[..at]))
            }
            end => file.strip_suffix(end).is_some_and(starts_a_name),
        }
    }
}

/// The beginning of a file in an installed package, in a pattern and in a path.
const PACKAGES: &str = "packages/";
const PACKAGE_FOLDERS: [&str; 2] = ["/site-packages/", "/dist-packages/"];

/// The parts of `FILE:FUNCTION`; no file in `FUNCTION`, which may be a name of C++ (`cudf::sort`).
pub(crate) fn file_and_function(text: &str) -> (&str, &str) {
    text.split_once(':').filter(|(_, function)| !function.starts_with(':')).unwrap_or(("", text))
}

#[cfg(test)]
mod tests {
    use super::FunctionPattern;

    #[test]
    fn a_function_is_matched_by_file_and_name() {
        let matches =
            |pattern: &str, file: &str, name: &str| FunctionPattern::new(pattern).matches(file, name);
        let save = "/lib/python3.12/site-packages/torch/serialization.py";
        assert!(matches("torch/serialization.py:save", save, "save"));
        assert!(!matches("torch/serialization.py:save", save, "_save"));
        assert!(!matches("orch/serialization.py:", save, "save"), "a folder's name is whole");
        assert!(matches("torch/", save, "save") && !matches("serialization/", save, "save"));
        let sparse = "/v/site-packages/cupyx/scipy/sparse/_coo.py";
        assert!(matches("scipy/", sparse, "f") && !matches("packages/scipy/", sparse, "f"));
        assert!(
            matches("packages/torch/", save, "save")
                && matches("packages/torch/serialization.py:", save, "save")
        );
        assert!(!matches("packages/torch/", "/home/me/torch/serialization.py", "save"));
        assert!(
            matches("forward", "model.py", "Block.forward")
                && matches("Block.*", "model.py", "Block.forward")
        );
        assert!(matches("cufftPlan*", "/usr/lib/libcufft.so.12", "cufftPlan1d"));
        assert!(matches("cudf::*", "libcudf.so", "cudf::sort"));
    }
}
