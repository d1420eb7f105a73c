//! A cause, and the names and statements that it matches.

use std::collections::BTreeMap;
use std::path::PathBuf;

use apex_kernel_names::{DataType, Identity, Operation, Owner, Traits, identify};

use crate::framework::Framework;
use crate::pattern::{FunctionPattern, Pattern};

/// A known cause of lost time.
#[derive(Clone, Debug)]
pub struct Cause {
    /// Stable identifier, unique in a table: `pytorch-fp32-attention`.
    pub id: String,
    /// The fault, in a few words.
    pub title: String,
    /// The meaning of the matched names, in one or two sentences.
    pub meaning: String,
    /// The changes to make.
    pub remedies: Remedies,
    /// The share of the claimed time that the change saves.
    pub saves: Saves,
    /// The time that is claimed.
    pub claims: Claims,
    /// Whether kernels that are launched in the host functions disappear with them: their GPU time
    /// is claimed, too.
    pub with_kernels: bool,
    /// The check that the change helped.
    pub check: String,
    /// Address of the public documentation.
    pub source: String,
    /// Of two causes that match the same, the one with the higher priority counts; 0 is usual.
    pub priority: i64,
    /// Names of rules whose findings this cause explains: they are about the same time, and their
    /// general advice misses the cause.
    pub explains: Vec<String>,
    /// Kernels.
    pub kernels: Vec<Pattern>,
    /// Owners of these kernels; any if empty.
    pub owners: Vec<Owner>,
    /// Operations of these kernels, or of most of the time of a statement; any if empty.
    pub operations: Vec<Operation>,
    /// Types of these kernels' operands; any if empty.
    pub types: Vec<DataType>,
    /// Consecutive kernels of a repeated sequence; those are claimed that [`Self::kernels`] match.
    pub sequence: Vec<Pattern>,
    /// Kernels that the program does not launch.
    pub absent: Vec<Pattern>,
    /// The least share of the GPU time of these kernels.
    pub least: f64,
    /// Driver calls.
    pub calls: Vec<Pattern>,
    /// Minimum number of such calls per iteration.
    pub each_iteration: f64,
    /// Functions on the call stacks of these kernels or calls.
    pub functions: Vec<FunctionPattern>,
    /// Functions on the sampled call stacks of the host while the device is idle.
    pub host: Vec<FunctionPattern>,
    /// Whether [`Self::host`] counts only where the calls are made too: they tell that it happens,
    /// and the samples how long it takes.
    pub both: bool,
    /// Whether launches that the functions in [`Self::host`] make are needless: where launching is
    /// what the device waits for, they count beside samples.
    pub launches: bool,
    /// Functions whose callers wait for the device.
    pub waits: Vec<FunctionPattern>,
    /// Small kernels that a loop over elements launches, with a wait after each.
    pub loops: Vec<Pattern>,
    /// Statements of the program that take much of the device's time.
    pub lines: Vec<Pattern>,
    /// Statements of the program at which the host is while the device waits.
    pub host_lines: Vec<Pattern>,
    /// Statements of the program that wait for the device.
    pub wait_lines: Vec<Pattern>,
    /// Statements like one of these, but for a part that makes them another thing.
    pub except: Vec<Pattern>,
    /// Statements beside one of [`Self::lines`], in the functions that a place calls, with which it
    /// is another thing.
    pub unless: Vec<Pattern>,
    /// Statements, anywhere in the file of a place, that make the kernels which it launches.
    pub makers: Vec<Pattern>,
    /// A variable of the environment.
    pub variable: Option<String>,
    /// Its values that are the cause; any if empty.
    pub values: Vec<Pattern>,
    /// Launch calls return only when their kernel has ended.
    pub blocking_launches: bool,
    /// An example that it matches first.
    pub example: Example,
    /// The file that it is from.
    pub file: PathBuf,
    /// Its line there.
    pub line: usize,
}

/// The change to make, in the words of frameworks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remedies {
    /// By framework.
    pub by_framework: BTreeMap<Framework, String>,
    /// In any other program.
    pub any: Option<String>,
}

impl Remedies {
    /// Returns the change to make in a program that uses these frameworks; `None` if nothing is
    /// said about them.
    pub fn for_program(&self, uses: impl Fn(Framework) -> bool) -> Option<&str> {
        let used = Framework::ALL.into_iter().filter(|framework| uses(*framework));
        let own = used.filter_map(|framework| self.by_framework.get(&framework)).next();
        own.or(self.any.as_ref()).map(String::as_str)
    }

    /// All texts.
    pub fn texts(&self) -> impl Iterator<Item = (Option<Framework>, &str)> {
        let own = self.by_framework.iter().map(|(of, text)| (Some(*of), text.as_str()));
        own.chain(self.any.iter().map(|text| (None, text.as_str())))
    }
}

/// A share of a time: least, likely, most.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Saves {
    /// At least.
    pub least: f64,
    /// Likely.
    pub likely: f64,
    /// At most.
    pub most: f64,
}

/// The time that a cause claims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Claims {
    /// That of the matched kernels or calls, or the idle time in the matched functions.
    #[default]
    Matched,
    /// The device's idle time in long gaps in which such calls are made.
    Gaps,
    /// The device's idle time outside of copies.
    Idle,
    /// The device's idle time around launches.
    Launches,
    /// The device's idle time while the host allocates and frees.
    Allocating,
    /// The device's idle time while the host allocates, frees and waits: memory that a wait gives
    /// back to the system is mapped again.
    Releasing,
    /// The device's idle time while the host loads code.
    Loading,
    /// GPU time of the kernels that the cause names, of all if it names none; for variables.
    Kernels,
    /// Time of exposed communication.
    Collectives,
    /// It is not known how much.
    Unknown,
}

/// A kernel's names, and what they tell.
#[derive(Clone, Copy, Debug)]
pub struct Kernel<'a> {
    /// The name, demangled in full.
    pub name: &'a str,
    /// The name for tables.
    pub short_name: &'a str,
    /// The traits that the name tells.
    pub traits: &'a Traits,
}

/// A literal example that a cause matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Example {
    /// Symbols of kernels; of a sequence if the cause has one.
    pub kernels: Vec<String>,
    /// Symbol of a kernel that a loop launches.
    pub looped: Option<String>,
    /// A statement that takes the device's time.
    pub line: Option<String>,
    /// A statement that takes the host's time.
    pub host_line: Option<String>,
    /// A statement that waits for the device.
    pub wait_line: Option<String>,
    /// `FILE:FUNCTION` of the host while the device is idle.
    pub host: Option<String>,
    /// A driver call.
    pub call: Option<String>,
    /// `FILE:FUNCTION` on the call stack.
    pub function: Option<String>,
    /// The variable's value.
    pub value: Option<String>,
}

impl Cause {
    /// Returns the change to make in a program that uses these frameworks; `None` if the cause says
    /// nothing about them.
    pub fn remedy(&self, uses: impl Fn(Framework) -> bool) -> Option<&str> {
        self.remedies.for_program(uses)
    }

    /// Whether it is about kernels, this one among them.
    pub fn names_kernel(&self, kernel: Kernel<'_>) -> bool {
        let traits = kernel.traits;
        let is_named = self.kernels.iter().any(|pattern| names(pattern, kernel));
        is_named
            && (self.owners.is_empty() || self.owners.contains(&traits.owner))
            && (self.operations.is_empty() || self.operations.contains(&traits.operation))
            && (self.types.is_empty() || traits.types.input.is_some_and(|of| self.types.contains(&of)))
    }

    /// Whether these consecutive kernels are the sequence that it is about; true if it is about
    /// none.
    pub fn is_sequence<'k>(&self, kernels: impl IntoIterator<Item = Kernel<'k>>) -> bool {
        let mut kernels = kernels.into_iter();
        self.sequence.iter().all(|pattern| kernels.next().is_some_and(|kernel| names(pattern, kernel)))
    }

    /// Whether it is about calls of this entry point.
    pub fn names_call(&self, name: &str) -> bool {
        self.calls.iter().any(|pattern| pattern.matches(name))
    }

    /// Whether a call stack with this function is one that it is about; true if it is about any.
    pub fn is_from(&self, file: &str, function: &str) -> bool {
        self.functions.is_empty() || self.functions.iter().any(|pattern| pattern.matches(file, function))
    }

    /// Whether it is about the host's time in this function.
    pub fn names_host(&self, file: &str, function: &str) -> bool {
        self.host.iter().any(|pattern| pattern.matches(file, function))
    }

    /// Whether it is about a loop that launches this kernel for each element.
    pub fn names_loop(&self, kernel: Kernel<'_>) -> bool {
        self.loops.iter().any(|pattern| names(pattern, kernel))
    }

    /// Whether callers of this function are known to wait.
    pub fn names_wait(&self, file: &str, function: &str) -> bool {
        self.waits.iter().any(|pattern| pattern.matches(file, function))
    }

    /// Whether it is about a statement like this one.
    pub fn names_line(&self, statement: &str) -> bool {
        self.is_like(&self.lines, statement)
    }

    /// Whether it is about the host's time at a statement like this one.
    pub fn names_host_line(&self, statement: &str) -> bool {
        self.is_like(&self.host_lines, statement)
    }

    /// Whether it is about a wait for the device at a statement like this one.
    pub fn names_wait_line(&self, statement: &str) -> bool {
        self.is_like(&self.wait_lines, statement)
    }

    /// Whether a function with such a statement is another thing than [`Self::lines`] say.
    pub fn is_excepted_by(&self, statement: &str) -> bool {
        self.unless.iter().any(|pattern| pattern.matches(statement))
    }

    /// Whether it is about a statement like this one, which makes a kernel.
    pub fn names_maker(&self, statement: &str) -> bool {
        self.makers.iter().any(|pattern| pattern.matches(statement))
    }

    fn is_like(&self, patterns: &[Pattern], statement: &str) -> bool {
        let any = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.matches(statement));
        any(patterns) && !any(&self.except)
    }

    /// Whether this value of its variable is the cause.
    pub fn names_value(&self, value: &str) -> bool {
        self.values.is_empty() || self.values.iter().any(|pattern| pattern.matches(value))
    }

    /// Whether it matches what an example shows.
    pub fn matches(&self, example: &Example, variable: Option<&str>) -> bool {
        let identities: Vec<_> = example.kernels.iter().map(|symbol| identify(symbol)).collect();
        let kernels: Vec<Kernel<'_>> = identities
            .iter()
            .map(|known| Kernel { name: &known.name, short_name: &known.short_name, traits: &known.traits })
            .collect();
        let function = example.function.as_deref().unwrap_or_default();
        let (file, function) = crate::pattern::file_and_function(function);
        if self.variable.is_some() || variable.is_some() {
            let value = example.value.as_deref().unwrap_or_default();
            return self.variable.as_deref() == variable && self.names_value(value);
        }
        if !self.waits.is_empty() {
            return self.names_wait(file, function);
        }
        if !self.loops.is_empty() {
            let known = example.looped.as_deref().map(identify);
            return known.is_some_and(|known| {
                let Identity { name, short_name, traits } = &known;
                self.names_loop(Kernel { name, short_name, traits })
            });
        }
        if !self.makers.is_empty() {
            return example.line.as_deref().is_some_and(|line| self.names_maker(line));
        }
        if !self.lines.is_empty() {
            return example.line.as_deref().is_some_and(|line| self.names_line(line));
        }
        if !self.host_lines.is_empty() {
            return example.host_line.as_deref().is_some_and(|line| self.names_host_line(line));
        }
        if !self.wait_lines.is_empty() {
            return example.wait_line.as_deref().is_some_and(|line| self.names_wait_line(line));
        }
        if !self.host.is_empty() && self.calls.is_empty() {
            let of_host = example.host.as_deref().map(crate::pattern::file_and_function);
            return of_host.is_some_and(|(file, function)| self.names_host(file, function));
        }
        if !self.is_from(file, function) {
            return false;
        }
        match (&kernels[..], &example.call) {
            ([], Some(call)) => self.names_call(call),
            ([], None) => self.kernels.is_empty() && self.calls.is_empty() && !self.functions.is_empty(),
            (kernels, _) => {
                let is_named = kernels.iter().any(|kernel| self.names_kernel(*kernel));
                is_named && self.is_sequence(kernels.iter().copied())
            }
        }
    }
}

fn names(pattern: &Pattern, kernel: Kernel<'_>) -> bool {
    pattern.matches(kernel.short_name) || pattern.matches(kernel.name)
}
