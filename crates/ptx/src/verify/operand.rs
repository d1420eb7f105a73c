//! Operands against the form of their instruction.

use super::Verifier;
use super::names::{Special, Symbol};
use super::types::{constant_fits, fits};
use crate::forms::{Instance, Kind, OperandForm};
use crate::syntax::{Address, AddressBase, Constant, Instruction, Name, Operand, Variable};
use crate::syntax::{ScalarType, StateSpace};

/// What is wrong with an operand.
type Checked = Result<(), String>;

/// How a value is used.
#[derive(Clone, Copy)]
struct Use<'i> {
    instance: &'i Instance,
    written: bool,
    /// Whether it is a component of a vector in memory.
    component: bool,
}

impl Use<'_> {
    fn accesses_memory(self) -> bool {
        matches!(self.instance.form.opcode, "ld" | "ldu" | "st" | "suld" | "sust" | "sured")
    }

    /// Whether a predicate that it writes may be dropped.
    fn drops_predicates(self) -> bool {
        self.written && !matches!(self.instance.form.opcode, "and" | "or" | "xor" | "not" | "mov")
    }
}

impl<'m> Verifier<'m> {
    /// Whether the operands are what the instance wants; else how many were, and what is wrong with the next.
    pub(super) fn operands(
        &self,
        instruction: &'m Instruction,
        instance: &Instance,
    ) -> Result<(), (usize, String)> {
        let forms = &instance.operands;
        let given = instruction.operands.len();
        let least = forms.iter().filter(|form| !form.optional).count();
        if given < least || given > forms.len() {
            let names: Vec<&str> = forms.iter().map(|form| form.name).collect();
            let wanted =
                if least == forms.len() { format!("{least}") } else { format!("{least} to {}", forms.len()) };
            let message = match &names[..] {
                [] => format!("`{}` takes no operands, {given} are given", instance.mnemonic),
                _ => format!(
                    "`{}` takes {wanted} operands ({}), {given} are given",
                    instance.mnemonic,
                    names.join(", ")
                ),
            };
            return Err((0, message));
        }
        self.assign(instance, forms, &instruction.operands, 1)
    }

    /// Gives each operand to a form, leaving out optional ones where the operand is none of theirs.
    fn assign(
        &self,
        instance: &Instance,
        forms: &[OperandForm],
        operands: &'m [Operand],
        place: usize,
    ) -> Result<(), (usize, String)> {
        let (Some(form), Some(operand)) = (forms.first(), operands.first()) else {
            let rest = forms.iter().all(|form| form.optional) && operands.is_empty();
            return if rest {
                Ok(())
            } else {
                Err((place, format!("`{}` wants other operands", instance.mnemonic)))
            };
        };
        let usage = Use { instance, written: form.is_written(), component: false };
        let taken = self.operand(&form.kind, operand, usage).map_err(|message| {
            (place, format!("operand {place} (`{}`) of `{}`: {message}", form.name, instance.mnemonic))
        });
        let rest = taken.and_then(|()| self.assign(instance, &forms[1..], &operands[1..], place + 1));
        match rest {
            Err(_) if form.optional && forms.len() > operands.len() => {
                self.assign(instance, &forms[1..], operands, place)
            }
            rest => rest,
        }
    }

    fn operand(&self, kind: &Kind, operand: &'m Operand, usage: Use<'_>) -> Checked {
        match kind {
            Kind::Value { ty, constant, wider, symbol, sink } => match operand {
                Operand::Sink if *sink => Ok(()),
                Operand::Constant(number) if *constant => number_fits(*ty, *number),
                Operand::Vector(items) if items.len() == 1 && usage.accesses_memory() => {
                    self.operand(kind, &items[0], usage)
                }
                Operand::Name(name) | Operand::Offset(name, _) | Operand::Element(name, _)
                    if *symbol && !ty.is_float() && self.is_symbol(name) =>
                {
                    Ok(())
                }
                Operand::Negated(name) if usage.instance.form.opcode == "vmad" => {
                    self.register(name, *ty, *wider, usage)
                }
                // A register plus a number, as one operand.
                Operand::Offset(name, _) if !usage.written && !usage.component => {
                    match self.is_symbol(name) {
                        true if !ty.is_float() => Ok(()),
                        _ => self.register(name, *ty, *wider, usage),
                    }
                }
                Operand::Name(name) => self.register(name, *ty, *wider, usage),
                Operand::Component(name, selector) => self.component(name, selector, *ty, *wider, usage),
                other => Err(format!("a `{ty}` register is needed, not {}", shape(other))),
            },
            Kind::Selected(ty, _) => match operand {
                Operand::Constant(number) if !usage.written => number_fits(*ty, *number),
                Operand::Name(name) | Operand::Component(name, _) | Operand::Negated(name) => {
                    self.register(name, *ty, false, usage)
                }
                other => Err(format!("a `{ty}` register is needed, not {}", shape(other))),
            },
            Kind::Vector(element, length) => self.vector(element, *length, operand, usage),
            Kind::Sink => match operand {
                Operand::Sink => Ok(()),
                other => Err(format!("`_` must stand there, not {}", shape(other))),
            },
            Kind::Predicate => self.predicate(operand, usage),
            Kind::Pair(first, second, optional) => match operand {
                Operand::Pair(one, other) => {
                    self.operand(first, one, usage)?;
                    match **other {
                        Operand::Sink => Ok(()),
                        _ => self.operand(second, other, usage),
                    }
                }
                single if *optional => self.operand(first, single, usage),
                other => Err(format!("two results `d|p` are needed, not {}", shape(other))),
            },
            Kind::Immediate(least, most) => immediate(usage.instance, *least, *most, operand),
            Kind::Address { space, sampler, rest } => match operand {
                Operand::Address(address) => self.address(address, *space, *sampler, rest, usage),
                // An element of an array needs no brackets.
                Operand::Element(name, _) if usage.accesses_memory() && rest.is_empty() => {
                    self.base(name, *space)
                }
                other => Err(format!("an address in brackets is needed, not {}", shape(other))),
            },
            Kind::TensorAddress => match operand {
                Operand::Address(Address { base: AddressBase::Name(name), .. }) => {
                    self.register(name, ScalarType::B32, false, usage)
                }
                Operand::Address(_) => Ok(()),
                other => Err(format!("an address in brackets is needed, not {}", shape(other))),
            },
            Kind::Label => match operand {
                Operand::Name(name) if self.labels.places.contains(&**name) => Ok(()),
                Operand::Name(name) => Err(format!("`{name}` is no label of this function")),
                other => Err(format!("a label is needed, not {}", shape(other))),
            },
            Kind::Function => match operand {
                Operand::Name(name) if matches!(self.lookup(name), Some(Symbol::Function(_))) => Ok(()),
                Operand::Name(name) => Err(format!("no function `{name}` is declared before this")),
                other => Err(format!("a function is needed, not {}", shape(other))),
            },
            Kind::List => match operand {
                Operand::List(_) => Ok(()),
                other => Err(format!("parameters in parentheses are needed, not {}", shape(other))),
            },
            Kind::Targets => match operand {
                Operand::Name(name) if self.labels.branch_targets.contains(&**name) => Ok(()),
                other => Err(format!("a label of `.branchtargets` is needed, not {}", shape(other))),
            },
            Kind::Table => match operand {
                Operand::Name(name)
                    if self.labels.prototypes.contains_key(&**name)
                        || self.labels.call_targets.contains_key(&**name) =>
                {
                    Ok(())
                }
                other => Err(format!(
                    "a label of `.callprototype` or `.calltargets` is needed, not {}",
                    shape(other)
                )),
            },
            Kind::Symbol => match operand {
                Operand::Name(name) if self.lookup(name).is_some() => Ok(()),
                other => Err(format!("a variable is needed, not {}", shape(other))),
            },
        }
    }

    /// Whether the name has an address.
    fn is_symbol(&self, name: &Name) -> bool {
        match self.lookup(name) {
            Some(Symbol::Variable(variable)) => variable.space != StateSpace::Reg,
            Some(Symbol::Function(_)) => true,
            _ => false,
        }
    }

    /// The register of that name.
    fn find_register(&self, name: &Name) -> Result<&'m Variable, String> {
        match self.lookup(name) {
            Some(Symbol::Variable(variable)) if variable.space == StateSpace::Reg => Ok(variable),
            Some(Symbol::Variable(variable)) => Err(format!(
                "`{name}` is a variable in `{}`: load it, or take its address with `mov`",
                variable.space
            )),
            Some(Symbol::Function(_)) => Err(format!("`{name}` is a function, not a register")),
            Some(Symbol::Special(_)) => {
                Err(format!("`{name}` is a special register: copy it with `mov` first"))
            }
            None => Err(format!("unknown register `{name}`: declare it with `.reg`")),
        }
    }

    fn register(&self, name: &Name, ty: ScalarType, wider: bool, usage: Use<'_>) -> Checked {
        if let Some(Symbol::Special(special)) = self.lookup(name) {
            return special_fits(name, special, false, ty, usage);
        }
        // ptxas takes functions where integers are read.
        if !usage.written && !ty.is_float() && matches!(self.lookup(name), Some(Symbol::Function(_))) {
            return Ok(());
        }
        let variable = self.find_register(name)?;
        if variable.vector != 1 {
            return Err(format!("`{name}` is a vector: name one of its components, such as `{name}.x`"));
        }
        register_fits(name, variable.ty, ty, wider, usage)
    }

    fn component(
        &self,
        name: &Name,
        selector: &Name,
        ty: ScalarType,
        wider: bool,
        usage: Use<'_>,
    ) -> Checked {
        let place = ["x", "y", "z", "w"].iter().position(|known| **known == **selector);
        let colour = ["r", "g", "b", "a"].iter().position(|known| **known == **selector);
        place.or(colour).ok_or_else(|| format!("`.{selector}` is no component of a vector"))?;
        if let Some(Symbol::Special(special)) = self.lookup(name) {
            return special_fits(name, special, true, ty, usage);
        }
        let variable = self.find_register(name)?;
        // ptxas takes components that shorter vectors lack.
        if variable.vector == 1 {
            return Err(format!("`{name}` has no component `.{selector}`"));
        }
        register_fits(name, variable.ty, ty, wider, usage)
    }

    fn vector(&self, element: &Kind, length: usize, operand: &'m Operand, usage: Use<'_>) -> Checked {
        let usage = Use { component: usage.accesses_memory(), ..usage };
        match operand {
            Operand::Vector(items) if items.len() == length => {
                items.iter().try_for_each(|item| self.operand(element, item, usage))
            }
            Operand::Vector(items) => {
                Err(format!("a vector of {length} is needed, this has {}", items.len()))
            }
            Operand::Name(name) => match (self.lookup(name), element) {
                (Some(Symbol::Special(special)), _) if special.vector && !usage.written => Ok(()),
                (Some(Symbol::Variable(variable)), Kind::Value { ty, wider, .. })
                    if variable.space == StateSpace::Reg && usize::from(variable.vector) == length =>
                {
                    register_fits(name, variable.ty, *ty, *wider, usage)
                }
                _ if length == 1 => self.operand(element, operand, usage),
                (None, _) => Err(format!("unknown register `{name}`: declare it with `.reg`")),
                _ => Err(format!("a vector of {length} is needed, not `{name}`")),
            },
            other if length == 1 => self.operand(element, other, usage),
            other => Err(format!("a vector of {length} is needed, not {}", shape(other))),
        }
    }

    fn predicate(&self, operand: &'m Operand, usage: Use<'_>) -> Checked {
        match operand {
            Operand::Sink if usage.drops_predicates() => Ok(()),
            Operand::Constant(Constant::Integer(_)) if !usage.written => Ok(()),
            Operand::Not(name) if !usage.written => self.predicate_register(name),
            Operand::Name(name) => match self.lookup(name) {
                Some(Symbol::Special(special)) => special_fits(name, special, false, ScalarType::Pred, usage),
                _ => self.predicate_register(name),
            },
            other => Err(format!("a predicate is needed, not {}", shape(other))),
        }
    }

    /// Whether the name is a `.pred` register.
    pub(super) fn predicate_register(&self, name: &Name) -> Checked {
        let variable = self.find_register(name)?;
        match variable.ty {
            ScalarType::Pred => Ok(()),
            other => Err(format!("`{name}` is `{other}`, a predicate is needed")),
        }
    }

    fn address(
        &self,
        address: &'m Address,
        space: Option<StateSpace>,
        sampler: bool,
        rest: &[Kind],
        usage: Use<'_>,
    ) -> Checked {
        match &address.base {
            AddressBase::Name(name) => self.base(name, space)?,
            AddressBase::Component(name, _) => {
                self.find_register(name)?;
            }
            AddressBase::Absolute => {
                if space.is_some_and(|space| space != StateSpace::Local) {
                    return Err("an address must be a register or a variable: move the number to a register"
                        .to_owned());
                }
            }
        }
        let usage = Use { written: false, component: false, ..usage };
        let given = match address.rest.len() == rest.len() + 1 && sampler {
            true => &address.rest[1..],
            false => &address.rest[..],
        };
        if given.len() != rest.len() {
            return Err(format!(
                "{} operands are needed after the address, {} are given",
                rest.len(),
                given.len()
            ));
        }
        rest.iter().zip(given).try_for_each(|(kind, operand)| self.operand(kind, operand, usage))
    }

    /// Whether an address in `space` may start from the name.
    fn base(&self, name: &Name, space: Option<StateSpace>) -> Checked {
        match self.lookup(name) {
            Some(Symbol::Variable(variable)) if variable.space == StateSpace::Reg => {
                let ty = variable.ty;
                match ty.is_float() && ty != ScalarType::F16x2 || ty == ScalarType::Pred || ty.bytes() > 8 {
                    true => Err(format!("`{name}` is `{ty}`: an address needs an integer register")),
                    false => Ok(()),
                }
            }
            Some(Symbol::Variable(variable)) => match space {
                Some(space) if space != variable.space => Err(format!(
                    "`{name}` is in `{}`, but the instruction accesses `{space}`",
                    variable.space
                )),
                None if matches!(variable.space, StateSpace::Const | StateSpace::Param) => Err(format!(
                    "`{name}` is in `{}`, which instructions reach that name the space only",
                    variable.space
                )),
                _ => Ok(()),
            },
            Some(Symbol::Function(_)) => Err(format!("`{name}` is a function: its code cannot be accessed")),
            Some(Symbol::Special(_)) => {
                Err(format!("`{name}` is a special register: copy it with `mov` first"))
            }
            None => Err(format!("unknown name `{name}` in an address: declare it before its use")),
        }
    }
}

fn register_fits(name: &Name, have: ScalarType, ty: ScalarType, wider: bool, usage: Use<'_>) -> Checked {
    match fits(ty, have, wider, usage.component) {
        true => Ok(()),
        false => Err(format!("`{name}` is `{have}`, which does not fit `{ty}`")),
    }
}

fn special_fits(name: &Name, special: Special, component: bool, ty: ScalarType, usage: Use<'_>) -> Checked {
    if usage.written {
        return Err(format!("`{name}` cannot be written"));
    }
    let is_cvt = usage.instance.form.opcode == "cvt";
    let computes = is_cvt && usage.instance.mnemonic.contains(".f") || ty.is_float();
    if computes || !is_cvt && usage.instance.form.opcode != "mov" {
        return Err(format!(
            "`{name}` is a special register: copy it to an integer register with `mov` first"
        ));
    }
    match (special.vector, component) {
        (true, false) => Err(format!("`{name}` is a vector: name one of its components, such as `{name}.x`")),
        (false, true) => Err(format!("`{name}` has no components")),
        // Old PTX read the grid's number in 32 bits; the lower half of 32 may be read.
        _ if is_cvt || &**name == "%gridid" => Ok(()),
        _ if ty.bytes() == 2 && special.ty == ScalarType::U32 => Ok(()),
        _ if ty.bytes() != special.ty.bytes() => {
            Err(format!("`{name}` is `{}`, which does not fit `{ty}`", special.ty))
        }
        _ => Ok(()),
    }
}

fn number_fits(ty: ScalarType, number: Constant) -> Checked {
    match (constant_fits(ty, number), number) {
        (true, _) => Ok(()),
        (false, Constant::Integer(value)) => Err(format!(
            "the integer {value} is no `{ty}`: write it as a floating-point number, such as `0f…` or `1.0`"
        )),
        (false, _) => Err(format!("a floating-point number is no `{ty}`: write an integer")),
    }
}

/// ptxas takes the lowest byte of the table of `lop3`, and any number of groups to wait for.
fn immediate(instance: &Instance, least: i64, most: i64, operand: &Operand) -> Checked {
    let free = instance.form.opcode == "lop3" || instance.mnemonic.contains("wait_group");
    match operand {
        Operand::Constant(Constant::Integer(_)) if free => Ok(()),
        Operand::Constant(Constant::Integer(value))
            if (i128::from(least)..=i128::from(most)).contains(value) =>
        {
            Ok(())
        }
        Operand::Constant(Constant::Integer(value)) => {
            Err(format!("{value} is out of range: from {least} to {most} is allowed"))
        }
        other => Err(format!("an integer from {least} to {most} is needed, not {}", shape(other))),
    }
}

/// What an operand is, in words.
fn shape(operand: &Operand) -> String {
    match operand {
        Operand::Name(name) => format!("`{name}`"),
        Operand::Component(..) => "a component".to_owned(),
        Operand::Offset(..) | Operand::Element(..) => "the address of a variable".to_owned(),
        Operand::Constant(Constant::Integer(value)) => format!("the number {value}"),
        Operand::Constant(_) => "a floating-point number".to_owned(),
        Operand::Not(name) => format!("`!{name}`"),
        Operand::Negated(name) => format!("`-{name}`"),
        Operand::Sink => "`_`".to_owned(),
        Operand::Pair(..) => "two destinations".to_owned(),
        Operand::Vector(_) => "a vector".to_owned(),
        Operand::List(_) => "a list of parameters".to_owned(),
        Operand::Address(_) => "an address in brackets".to_owned(),
    }
}
