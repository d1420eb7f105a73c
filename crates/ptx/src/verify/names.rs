//! What a name means where it stands: scopes, numbered registers, special registers.

use std::collections::HashMap;

use crate::syntax::ScalarType;
use crate::syntax::{Function, Variable};

/// What a name stands for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Symbol<'m> {
    Variable(&'m Variable),
    Function(&'m Function),
    Special(Special),
}

/// A special register.
#[derive(Clone, Copy, Debug)]
pub(super) struct Special {
    /// Type of it, or of its components.
    pub(super) ty: ScalarType,
    /// Whether it has the components `x`, `y`, `z`, `w`.
    pub(super) vector: bool,
}

/// The names that one pair of braces, or the module, declares.
#[derive(Default)]
pub(super) struct Scope<'m> {
    names: HashMap<&'m str, Symbol<'m>>,
    /// Declarations such as `%r<10>`, by what comes before the number.
    numbered: HashMap<&'m str, Vec<&'m Variable>>,
}

impl<'m> Scope<'m> {
    /// Declares a function; what the name stood for in this scope.
    pub(super) fn function(&mut self, function: &'m Function) -> Option<Symbol<'m>> {
        let before = self.lookup(&function.name);
        self.names.insert(&function.name, Symbol::Function(function));
        before
    }

    /// Declares a variable; what the name stood for in this scope.
    pub(super) fn variable(&mut self, variable: &'m Variable) -> Option<Symbol<'m>> {
        if variable.count.is_some() {
            let ranges = self.numbered.entry(&variable.name).or_default();
            let before = ranges.first().map(|first| Symbol::Variable(first));
            ranges.push(variable);
            return before;
        }
        let before = self.lookup(&variable.name);
        self.names.insert(&variable.name, Symbol::Variable(variable));
        before
    }

    /// What `name` stands for in this very scope.
    pub(super) fn lookup(&self, name: &str) -> Option<Symbol<'m>> {
        self.names.get(name).copied().or_else(|| self.number(name).map(Symbol::Variable))
    }

    /// The declaration `prefix<n>` of which `name` is a member: any split before trailing digits may be the one.
    fn number(&self, name: &str) -> Option<&'m Variable> {
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        (stem..name.len()).find_map(|split| {
            let (prefix, digits) = name.split_at(split);
            let number: u32 = digits.parse().ok()?;
            let ranges = self.numbered.get(prefix)?;
            ranges.iter().copied().find(|range| range.count.is_some_and(|count| number < count))
        })
    }
}

/// The special register of that name.
pub(super) fn special(name: &str) -> Option<Special> {
    let name = name.strip_prefix('%')?;
    let (ty, vector) = match name {
        "tid" | "ntid" | "ctaid" | "nctaid" | "clusterid" | "nclusterid" | "cluster_ctaid"
        | "cluster_nctaid" => (ScalarType::U32, true),
        "laneid"
        | "warpid"
        | "nwarpid"
        | "smid"
        | "nsmid"
        | "cluster_ctarank"
        | "cluster_nctarank"
        | "clock"
        | "clock_hi"
        | "lanemask_eq"
        | "lanemask_le"
        | "lanemask_lt"
        | "lanemask_ge"
        | "lanemask_gt"
        | "globaltimer_lo"
        | "globaltimer_hi"
        | "total_smem_size"
        | "aggr_smem_size"
        | "dynamic_smem_size"
        | "reserved_smem_offset_begin"
        | "reserved_smem_offset_end"
        | "reserved_smem_offset_cap" => (ScalarType::U32, false),
        "gridid" | "clock64" | "globaltimer" | "current_graph_exec" => (ScalarType::U64, false),
        "is_explicit_cluster" => (ScalarType::Pred, false),
        _ => return numbered_special(name),
    };
    Some(Special { ty, vector })
}

fn numbered_special(name: &str) -> Option<Special> {
    let member = |prefix: &str, count: u32| {
        let number = name.strip_prefix(prefix)?.parse::<u32>().ok()?;
        (number < count).then_some(Special { ty: ScalarType::U32, vector: false })
    };
    let performance = || {
        let wide = name.strip_prefix("pm")?.strip_suffix("_64")?.parse::<u32>().ok()?;
        (wide < 8).then_some(Special { ty: ScalarType::U64, vector: false })
    };
    member("envreg", 32)
        .or_else(|| member("pm", 8))
        .or_else(|| member("reserved_smem_offset_", 2))
        .or_else(performance)
}
