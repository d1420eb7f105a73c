//! Declarations of variables and their initial values.

use super::Verifier;
use crate::body::Body;
use crate::forms::Version;
use crate::syntax::{Constant, Initializer, Linkage, Variable};
use crate::syntax::{ScalarType, StateSpace};

/// The first version with bytes of addresses as initial values.
const MASKS: Version = (7, 1);

/// Bytes of the widest vector.
const WIDEST: u64 = 16;

/// Types that no variable and no register may have.
const INSTRUCTIONS_ONLY: &[ScalarType] = &[
    ScalarType::Bf16,
    ScalarType::Bf16x2,
    ScalarType::Tf32,
    ScalarType::E4m3,
    ScalarType::E4m3x2,
    ScalarType::E5m2,
    ScalarType::E5m2x2,
];

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
        if INSTRUCTIONS_ONLY.contains(&variable.ty) {
            let message = format!(
                "`{name}` is `{}`, a type of instructions only: declare `.b{}`",
                variable.ty,
                8 * variable.ty.bytes()
            );
            self.problem(variable.position, message);
        }
        if variable.ty == ScalarType::F16x2
            && variable.space == StateSpace::Param
            && variable.dimensions.is_empty()
        {
            let message = format!("`{name}` in `.param` cannot be `.f16x2`: declare `.b32`");
            self.problem(variable.position, message);
        }
        if variable.dimensions.contains(&Some(0)) && variable.linkage != Linkage::Extern {
            self.problem(variable.position, format!("`{name}` has no elements: only `.extern` arrays can"));
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
        if self.module.version < MASKS && initializer.has_mask() {
            let message = format!("initial value of `{name}`: a byte of an address needs PTX 7.1");
            self.problem(variable.position, message);
        }
        if let Err(message) =
            initializer.fits(variable).and_then(|()| check(variable, initializer, &is_known))
        {
            self.problem(variable.position, format!("initial value of `{name}`: {message}"));
        }
    }
}

impl Initializer {
    /// Checks that the braces match the variable, as ptxas requires: one pair for each dimension
    /// and one for a vector, at most as many values as an array has elements, and as many as a
    /// vector has components. Textures and samplers have fields within one pair.
    pub fn fits(&self, variable: &Variable) -> Result<(), String> {
        let arrays = variable.dimensions.len();
        let innermost = arrays + usize::from(variable.vector > 1);
        let mut open = vec![(self, 0)];
        while let Some((value, depth)) = open.pop() {
            let Initializer::List(items) = value else {
                match depth < innermost && !value.is_field() {
                    true => return Err("fewer braces than the variable has dimensions".to_owned()),
                    false => continue,
                }
            };
            let length = items.len() as u64;
            let most = variable.dimensions.get(depth).copied().flatten();
            if let Some(most) = most.filter(|most| length > *most) {
                return Err(format!("{length} values for {most} elements"));
            }
            if depth == arrays && depth < innermost && length != u64::from(variable.vector) {
                return Err(format!("{length} values for a vector of {}", variable.vector));
            }
            if depth >= innermost && !items.iter().all(Initializer::is_field) {
                return Err("more braces than the variable has dimensions".to_owned());
            }
            open.extend(items.iter().map(|item| (item, depth + 1)));
        }
        Ok(())
    }

    /// Whether it takes a byte of an address, `0xff(name)`. The parser bounds the depth.
    fn has_mask(&self) -> bool {
        match self {
            Initializer::Symbol(symbol) => symbol.mask.is_some(),
            Initializer::List(items) => items.iter().any(Initializer::has_mask),
            _ => false,
        }
    }

    /// Whether it is a field of a texture or sampler.
    fn is_field(&self) -> bool {
        matches!(self, Initializer::Field(..) | Initializer::Setting(..))
    }
}

/// Checks each value.
fn check(variable: &Variable, value: &Initializer, is_known: &impl Fn(&str) -> bool) -> Result<(), String> {
    match value {
        Initializer::List(items) => items.iter().try_for_each(|item| check(variable, item, is_known)),
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
