//! The header of a module, and the directives of its kernels.

use super::Verifier;
use crate::diagnostic::Position;
use crate::forms::{Target, Version};
use crate::needs;
use crate::syntax::{Function, FunctionKind, Item};

/// The last minor version of each major one from 1 on; ptxas takes nothing between.
const LAST_MINOR: &[u32] = &[5, 3, 2, 3, 1, 5, 8, 8];

/// Options that may follow the architecture in `.target`.
const OPTIONS: &[&str] = &["texmode_unified", "texmode_independent", "debug", "map_f64_to_f32"];

/// Directives of a kernel whose values are counts from 1 on.
const COUNTS: &[&str] = &["maxntid", "reqntid", "minnctapersm", "maxnreg"];

/// Whether there is such a version. Of those newer than the tables, nobody knows.
fn exists((major, minor): Version) -> bool {
    match LAST_MINOR.get((major as usize).wrapping_sub(1)) {
        Some(last) => minor <= *last,
        None => major > LAST_MINOR.len() as u32,
    }
}

impl<'m> Verifier<'_, 'm> {
    pub(super) fn header(&mut self) {
        let start = Position { line: 1, column: 1 };
        let (major, minor) = self.module.version;
        if !exists(self.module.version) {
            self.problem(start, format!("there is no PTX {major}.{minor}"));
        }
        let Some((name, options)) = self.module.target.split_first() else {
            return self.problem(start, "the module has no target: name one, such as `.target sm_80`");
        };
        for option in options.iter().filter(|option| !OPTIONS.contains(&&***option)) {
            self.problem(start, format!("`.target` has no option `{option}`"));
        }
        self.code_of_today(start);
        match name.parse::<Target>() {
            Err(message) => self.problem(start, message),
            Ok(target) if !target.exists() => self.problem(start, format!("there is no target {target}")),
            Ok(target) => {
                self.target = Some(target);
                let since = target.since();
                if self.module.version < since {
                    let message = format!(
                        "PTX {major}.{minor} has no target {target}: write `.version {}.{}` or newer",
                        since.0, since.1
                    );
                    self.problem(start, message);
                }
            }
        }
    }

    /// What the header may say in the ISA, but not to an assembler of today.
    fn code_of_today(&mut self, start: Position) {
        if self.module.address_size == 32 {
            self.problem(start, "addresses of 32 bits are no longer supported: write `.address_size 64`");
        }
        let has = |option: &str| self.module.target.iter().skip(1).any(|name| &**name == option);
        let is_section = |item: &Item| matches!(item, Item::Section(_));
        if has("debug") && !self.module.items.iter().any(is_section) {
            let message = "`.target` says `debug`, but the module has no section of debugging information: \
                           leave the option out";
            self.problem(start, message);
        }
        if has("map_f64_to_f32") {
            self.problem(start, "no target of today has `map_f64_to_f32`: leave the option out");
        }
    }

    /// The directives of a function or kernel.
    pub(super) fn directives(&mut self, function: &'m Function) {
        for directive in &function.directives {
            let needs = needs::of_directive(&directive.name);
            let missing = needs.and_then(|need| self.unmet(&format!(".{}", directive.name), &[need]));
            missing.into_iter().for_each(|message| self.problem(function.position, message));
            if COUNTS.contains(&&*directive.name) && directive.values.contains(&0) {
                let message = format!("`.{}` needs numbers from 1 on", directive.name);
                self.problem(function.position, message);
            }
        }
        if function.kind != FunctionKind::Entry {
            return;
        }
        if function.directive("noreturn").is_some() {
            let message = format!("the entry `{}` cannot be `.noreturn`: only a `.func` can", function.name);
            self.problem(function.position, message);
        }
        if function.directive("maxntid").is_some() && function.directive("reqntid").is_some() {
            let message = format!(
                "`{}` has `.maxntid` and `.reqntid`: the second says what the first does, so leave it out",
                function.name
            );
            self.problem(function.position, message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::exists;

    #[test]
    fn versions_are_those_that_ptxas_takes() {
        let known = [(1, 0), (1, 5), (2, 3), (5, 1), (6, 5), (7, 8), (8, 8), (9, 0), (9, 5)];
        assert!(known.into_iter().all(exists));
        let unknown = [(0, 1), (1, 6), (2, 9), (3, 3), (4, 4), (6, 6), (7, 9), (8, 9)];
        assert!(!unknown.into_iter().any(exists));
    }
}
