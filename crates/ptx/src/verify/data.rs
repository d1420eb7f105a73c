//! Declarations of variables and their initial values.

use super::Verifier;
use crate::body::Body;
use crate::syntax::{Constant, Initializer, Variable};
use crate::syntax::{ScalarType, StateSpace};

/// Bytes of the widest vector.
const WIDEST: u64 = 16;

impl<'m> Verifier<'_, 'm> {
    /// The declaration itself, whatever its name, in the item of that number.
    pub(super) fn variable(&mut self, variable: &'m Variable, item: usize, body: Option<&Body<'m>>) {
        let name = &variable.name;
        if variable.vector > 1 && variable.element_bytes() > WIDEST {
            let message = format!(
                "`{name}` has {} bytes in an element: vectors have at most {WIDEST}",
                variable.element_bytes()
            );
            self.problem(variable.position, message);
        }
        if variable.ty == ScalarType::Pred && variable.space != StateSpace::Reg {
            self.problem(variable.position, format!("`{name}` is a predicate, which only `.reg` holds"));
        }
        let Some(initializer) = &variable.initializer else { return };
        if !matches!(variable.space, StateSpace::Global | StateSpace::Const) {
            let message = format!(
                "`{name}` in `{}` cannot have an initial value: only `.global` and `.const` can; store it in the code",
                variable.space
            );
            return self.problem(variable.position, message);
        }
        let is_known = |name: &str| {
            let own = |body: &Body<'_>| body.variables.iter().any(|place| &*place.declaration.name == name);
            self.names.before(item, name).is_some() || body.is_some_and(own)
        };
        if let Err(message) = check(variable, 0, initializer, &is_known) {
            self.problem(variable.position, format!("initial value of `{name}`: {message}"));
        }
    }
}

/// Checks the value of what is left of the variable after `depth` dimensions.
fn check(
    variable: &Variable,
    depth: usize,
    value: &Initializer,
    is_known: &impl Fn(&str) -> bool,
) -> Result<(), String> {
    match value {
        Initializer::List(items) => {
            let vector = usize::from(variable.vector);
            let length = match variable.dimensions.get(depth) {
                Some(length) => *length,
                None if depth == variable.dimensions.len() && vector > 1 => Some(vector as u64),
                // A list for the whole of what lies deeper, as in a flat list for a matrix, or a
                // texture's fields.
                None => None,
            };
            if length.is_some_and(|length| items.len() as u64 > length) {
                return Err(format!("{} values for {} elements", items.len(), length.unwrap_or(0)));
            }
            items.iter().try_for_each(|item| check(variable, depth + 1, item, is_known))
        }
        Initializer::Constant(constant) => match constant {
            Constant::Integer(_) if variable.ty.is_float() && variable.ty.bytes() >= 4 => {
                Err(format!("an integer is no `{}`: write it as a floating-point number", variable.ty))
            }
            Constant::Single(_) | Constant::Double(_)
                if !variable.ty.is_float() && !variable.ty.is_bits() =>
            {
                Err(format!("a floating-point number is no `{}`", variable.ty))
            }
            _ => Ok(()),
        },
        Initializer::Symbol(symbol) => match is_known(&symbol.name) {
            true => Ok(()),
            false => Err(format!("`{}` is not declared before this", symbol.name)),
        },
        Initializer::Field(..) | Initializer::Setting(..) => Ok(()),
    }
}
