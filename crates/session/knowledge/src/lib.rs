//! Known causes of slow GPU programs, as data.
//!
//! A [`Cause`] says what is matched (a kernel's name, a driver call, a function on the call stack,
//! a statement, a variable of the environment), what it means, what to change in the words of each
//! framework, what that saves, and where this is documented. The causes that APEX ships are in
//! `entries/`; users add files of their own ([`Knowledge::with_files`]). `docs/knowledge.md`
//! describes the format.
//!
//! This crate holds and matches text alone. `apex-advice` joins causes with a profile.
//!
//! Invariants:
//!
//! 1. A cause has every part, and its patterns match its own example before any other cause does.
//! 2. A file that breaks a rule gives an [`Error`] with file, line and what to do. Nothing panics.
//! 3. A remedy is in the words of a framework, or in words that hold for every program.

mod cause;
mod file;
mod framework;
mod pattern;

pub use cause::{Cause, Claims, Example, Kernel, Remedies, Saves};
pub use file::Error;
use file::File;
pub use framework::Framework;
pub use pattern::{FunctionPattern, Pattern};

use apex_deflated::{deflated, inflate};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// The causes that APEX ships, by file.
const SHIPPED: &[(&str, &[u8])] = &[
    ("kernels.toml", deflated!("kernels.toml")),
    ("calls.toml", deflated!("calls.toml")),
    ("host.toml", deflated!("host.toml")),
    ("compiled.toml", deflated!("compiled.toml")),
    ("loops.toml", deflated!("loops.toml")),
    ("waits.toml", deflated!("waits.toml")),
    ("lines.toml", deflated!("lines.toml")),
    ("host_lines.toml", deflated!("host_lines.toml")),
    ("libraries.toml", deflated!("libraries.toml")),
    ("library_lines.toml", deflated!("library_lines.toml")),
    ("public_lines.toml", deflated!("public_lines.toml")),
    ("environment.toml", deflated!("environment.toml")),
    ("remedies.toml", deflated!("remedies.toml")),
];

/// The table that a command uses, set once when it has read the user's files.
static CURRENT: OnceLock<Arc<Knowledge>> = OnceLock::new();

/// A table of causes: by priority, then in the order of the files.
#[derive(Clone, Debug, Default)]
pub struct Knowledge {
    causes: Vec<Cause>,
    /// By the rule's name, or by the rule's name, `/` and a case of it.
    of_rules: BTreeMap<String, Remedies>,
}

impl Knowledge {
    /// The causes that APEX ships; parsed at the first call.
    pub fn shipped() -> Arc<Self> {
        static SHIPPED_CAUSES: OnceLock<Arc<Knowledge>> = OnceLock::new();
        let parse = || {
            let mut knowledge = Self::default();
            for (name, deflated) in SHIPPED {
                // The tests parse each of them.
                knowledge.add(file::parse(Path::new(name), &inflate(deflated)).unwrap_or_default());
            }
            Arc::new(knowledge)
        };
        SHIPPED_CAUSES.get_or_init(parse).clone()
    }

    /// Makes this table the one of the process, for [`Self::current`]; false if it has one already.
    pub fn install(self) -> bool {
        CURRENT.set(Arc::new(self)).is_ok()
    }

    /// The table of the process: the installed one, or the shipped one.
    pub fn current() -> Arc<Self> {
        CURRENT.get().cloned().unwrap_or_else(Self::shipped)
    }

    /// The shipped causes and those of a user's files. A cause of the user replaces a shipped one
    /// with the same identifier, and comes before shipped ones of the same priority.
    pub fn with_files<'f>(files: impl IntoIterator<Item = (&'f Path, &'f str)>) -> Result<Self, Error> {
        let mut own = File::default();
        for (path, text) in files {
            let file = file::parse(path, text)?;
            own.of_rules.extend(file.of_rules);
            for cause in file.causes {
                if let Some(other) = own.causes.iter().find(|other| other.id == cause.id) {
                    return Err(file::twice(&cause, other));
                }
                own.causes.push(cause);
            }
        }
        let mut shipped = Self::clone(&Self::shipped());
        shipped.causes.retain(|cause| own.causes.iter().all(|other| other.id != cause.id));
        let mut all = Self { causes: Vec::new(), of_rules: shipped.of_rules };
        all.add(own);
        all.add(File { causes: shipped.causes, of_rules: BTreeMap::new() });
        Ok(all)
    }

    /// Returns the change that the rule of this name proposes for a program that uses these
    /// frameworks; `None` if its general text applies.
    pub fn remedy_of_rule(&self, name: &str, uses: impl Fn(Framework) -> bool) -> Option<&str> {
        self.of_rules.get(name)?.for_program(uses)
    }

    /// The names of the rules that have remedies here, with them.
    pub fn remedies_of_rules(&self) -> impl Iterator<Item = (&str, &Remedies)> {
        self.of_rules.iter().map(|(name, remedies)| (name.as_str(), remedies))
    }

    /// All causes; of two that match, the earlier one counts.
    pub fn causes(&self) -> &[Cause] {
        &self.causes
    }

    /// Adds the contents of a file. Remedies of rules replace those that are there.
    fn add(&mut self, file: File) {
        self.causes.extend(file.causes);
        self.causes.sort_by_key(|cause| -cause.priority);
        self.of_rules.extend(file.of_rules);
    }
}

/// The shipped files, for tests: each name and its causes or the error.
pub fn shipped_files() -> impl Iterator<Item = (&'static str, Result<Vec<Cause>, Error>)> {
    let parse = |name: &str, deflated| file::parse(Path::new(name), &inflate(deflated));
    SHIPPED.iter().map(move |(name, deflated)| (*name, parse(name, deflated).map(|file| file.causes)))
}
