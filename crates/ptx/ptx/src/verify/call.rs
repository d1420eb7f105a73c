//! Checks the arguments and results of calls against the function or prototype.

use super::operand::Operands;
use super::types::{constant_fits, fits};
use crate::body::{Line, Operand, Symbol};
use crate::syntax::{ScalarType, StateSpace, Variable};

impl<'m> Operands<'_, 'm> {
    /// For a call whose operands have the right kinds: whether what it passes and gets is what the
    /// callee has.
    pub(super) fn call_signature(self, line: &Line<'m>) -> Result<(), String> {
        if line.instruction.mnemonic.opcode() != "call" {
            return Ok(());
        }
        let (returned, rest) = match &line.operands[..] {
            [Operand::List(list), rest @ ..] => (&list[..], rest),
            rest => (&[][..], rest),
        };
        let [Operand::Name(callee), rest @ ..] = rest else { return Ok(()) };
        let (passed, rest) = match rest {
            [Operand::List(list), rest @ ..] => (&list[..], rest),
            rest => (&[][..], rest),
        };
        let Some((returns, params)) = self.signature(*callee, rest.first()) else { return Ok(()) };
        self.passes(*callee, "results", returns, returned)?;
        self.passes(*callee, "parameters", params, passed)
    }

    /// Results and parameters of the callee, or of what the table behind an indirect call says.
    fn signature(
        self,
        callee: Symbol<'m>,
        table: Option<&Operand<'m>>,
    ) -> Option<(&'m [Variable], &'m [Variable])> {
        if let Symbol::Function(function) = callee {
            return Some((&function.returns, &function.params));
        }
        match table? {
            Operand::Name(Symbol::Prototype(prototype)) => Some((&prototype.returns, &prototype.params)),
            Operand::Name(Symbol::CallTargets(table)) => {
                let function = self.body.call_targets[table.index()].first().copied().flatten()?;
                Some((&function.returns, &function.params))
            }
            _ => None,
        }
    }

    fn passes(
        self,
        callee: Symbol<'m>,
        what: &str,
        wanted: &[Variable],
        given: &[Operand<'m>],
    ) -> Result<(), String> {
        let callee = self.body.name(callee);
        if wanted.len() != given.len() {
            return Err(format!("{what} of `{callee}`: {} needed, {} given", wanted.len(), given.len()));
        }
        for (index, (formal, actual)) in wanted.iter().zip(given).enumerate() {
            self.passed(formal, actual)
                .map_err(|message| format!("{} of the {what} of `{callee}`: {message}", ordinal(index)))?;
        }
        Ok(())
    }

    fn passed(self, formal: &Variable, actual: &Operand<'m>) -> Result<(), String> {
        let is_array = |variable: &Variable| !variable.dimensions.is_empty();
        match actual {
            Operand::Constant(number) => match constant_fits(formal.ty, *number) && !is_array(formal) {
                true => Ok(()),
                false => Err(format!("this number does not fit `{}`", formal.ty)),
            },
            Operand::Name(symbol @ (Symbol::Register(_) | Symbol::Vector(_))) => {
                let name = self.body.name(*symbol);
                let Some(variable) = self.declaration(*symbol) else {
                    return Err(format!("unknown name `{name}`: declare it before its use"));
                };
                match !is_array(formal)
                    && variable.vector == formal.vector
                    && fits(formal.ty, variable.ty, formal.ty.bytes() < 4, false)
                {
                    true => Ok(()),
                    false => Err(format!("`{name}` is `{}`, which does not fit", variable.ty)),
                }
            }
            Operand::Name(Symbol::Variable(id)) => {
                let variable = self.body.variable(*id);
                match variable.space {
                    StateSpace::Param => same_place(formal, variable, is_array(formal) != is_array(variable)),
                    space => Err(format!(
                        "`{}` is a variable in `{space}`: pass its value in a register, or in `.param`",
                        variable.name
                    )),
                }
            }
            _ => Ok(()),
        }
    }
}

/// Whether bytes in one can be passed in the other.
fn same_place(formal: &Variable, actual: &Variable, differ_in_kind: bool) -> Result<(), String> {
    let bytes = |variable: &Variable| if variable.ty == ScalarType::Pred { None } else { variable.bytes() };
    if formal.space == StateSpace::Param
        && (differ_in_kind || bytes(formal) != bytes(actual))
        && bytes(formal).is_some()
    {
        let size = |variable| bytes(variable).map_or("?".to_owned(), |bytes: u64| bytes.to_string());
        return Err(format!("`{}` has {} bytes, {} are needed", actual.name, size(actual), size(formal)));
    }
    if !formal.dimensions.is_empty() && actual.alignment() < formal.alignment() {
        return Err(format!(
            "`{}` is aligned to {} bytes, {} are needed: declare it with `.align {}`",
            actual.name,
            actual.alignment(),
            formal.alignment(),
            formal.alignment()
        ));
    }
    Ok(())
}

fn ordinal(index: usize) -> String {
    match index {
        0 => "first".to_owned(),
        1 => "second".to_owned(),
        2 => "third".to_owned(),
        _ => format!("number {}", index + 1),
    }
}
