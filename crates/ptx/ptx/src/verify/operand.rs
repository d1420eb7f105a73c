//! Checks operands against the form of their instruction.

use super::types::{constant_fits, fits};
use crate::body::{self, Address, Base, Body, Line, Operand, SpecialRegister, Symbol};
use crate::forms::{Instance, Kind, OperandForm};
use crate::syntax::{Constant, ScalarType, StateSpace, Variable};

/// The result of a check; the error says what is wrong with an operand.
type Checked = Result<(), String>;

/// The use of a value.
#[derive(Clone, Copy)]
struct Use<'i> {
    instance: &'i Instance,
    written: bool,
    /// Whether it is a component of a vector in memory.
    component: bool,
    /// Whether it is a component of any vector.
    element: bool,
}

impl Use<'_> {
    fn accesses_memory(self) -> bool {
        matches!(self.instance.form.opcode, "ld" | "ldu" | "st" | "suld" | "sust" | "sured")
    }

    /// Whether it is a part of a matrix, which has braces even if it is a single register.
    fn is_of_matrix(self) -> bool {
        matches!(self.instance.form.opcode, "mma" | "wmma" | "ldmatrix" | "stmatrix")
    }

    /// Whether a predicate that it writes may be dropped.
    fn drops_predicates(self) -> bool {
        self.written && !matches!(self.instance.form.opcode, "and" | "or" | "xor" | "not" | "mov")
    }
}

/// The operands of the instructions of a body.
#[derive(Clone, Copy)]
pub(super) struct Operands<'b, 'm> {
    pub(super) body: &'b Body<'m>,
}

impl<'m> Operands<'_, 'm> {
    /// Checks the operands against the instance; the error has the number of correct operands and
    /// says what is wrong with the next one.
    pub(super) fn fit(self, line: &Line<'m>, instance: &Instance) -> Result<(), (usize, String)> {
        let forms = &instance.operands;
        let given = line.operands.len();
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
        self.assign(instance, forms, &line.operands, 1)?;
        barrier_fits(instance, &line.operands).map_err(|message| (given, message))?;
        self.converted_address(instance, &line.operands).map_err(|message| (given, message))
    }

    /// Checks that no generic or global address is made in 32 bits.
    fn converted_address(self, instance: &Instance, operands: &[Operand<'m>]) -> Checked {
        let is_global = |operand: &Operand<'m>| match operand {
            Operand::Name(Symbol::Variable(id)) => self.body.variable(*id).space == StateSpace::Global,
            _ => false,
        };
        let narrow = [".u32", ".b32", ".s32"].iter().any(|ty| instance.mnemonic.ends_with(ty));
        let makes = match instance.form.opcode {
            "cvta" => true,
            "mov" => operands.iter().any(is_global),
            _ => false,
        };
        match narrow && makes {
            true => Err(format!(
                "`{}` makes an address of 32 bits: generic and global addresses have 64 bits",
                instance.mnemonic
            )),
            false => Ok(()),
        }
    }

    /// Gives each operand to a form, leaving out optional ones where the operand is none of theirs.
    fn assign(
        self,
        instance: &Instance,
        forms: &[OperandForm],
        operands: &[Operand<'m>],
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
        let usage = Use { instance, written: form.is_written(), component: false, element: false };
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

    fn operand(self, kind: &Kind, operand: &Operand<'m>, usage: Use<'_>) -> Checked {
        if let Some(problem) = self.body.wrong_element(operand) {
            return Err(problem);
        }
        match kind {
            Kind::Value { ty, constant, wider, symbol, sink } => match operand {
                Operand::Sink if *sink => Ok(()),
                // ptxas takes any bits as a component.
                Operand::Constant(Constant::Single(_) | Constant::Double(_))
                    if *constant && usage.element =>
                {
                    Ok(())
                }
                Operand::Constant(number) if *constant => number_fits(*ty, *number),
                Operand::Vector(items) if items.len() == 1 && usage.accesses_memory() => {
                    self.operand(kind, &items[0], usage)
                }
                Operand::Name(name) | Operand::Offset(name, _) | Operand::Element(name, _)
                    if *symbol && !ty.is_float() && is_symbol(*name) =>
                {
                    Ok(())
                }
                Operand::Indexed(_) if *symbol && !ty.is_float() => Ok(()),
                Operand::Negated(name) if usage.instance.form.opcode == "vmad" => {
                    self.register(*name, *ty, *wider, usage)
                }
                // A register plus a number, as one operand.
                Operand::Offset(name, _) if !usage.written && !usage.component => match is_symbol(*name) {
                    true if !ty.is_float() => Ok(()),
                    _ => self.register(*name, *ty, *wider, usage),
                },
                Operand::Name(name) => self.register(*name, *ty, *wider, usage),
                Operand::Component(name, selector) => self.component(*name, selector, *ty, *wider, usage),
                other => Err(format!("a `{ty}` register is needed, not {}", self.shape(other))),
            },
            Kind::Selected(ty, _) => match operand {
                Operand::Constant(number) if !usage.written => number_fits(*ty, *number),
                Operand::Name(name) | Operand::Component(name, _) | Operand::Negated(name) => {
                    self.register(*name, *ty, false, usage)
                }
                other => Err(format!("a `{ty}` register is needed, not {}", self.shape(other))),
            },
            Kind::Vector(element, length) => self.vector(element, *length, operand, usage),
            Kind::Sink => match operand {
                Operand::Sink => Ok(()),
                other => Err(format!("`_` must stand there, not {}", self.shape(other))),
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
                other => Err(format!("two results `d|p` are needed, not {}", self.shape(other))),
            },
            Kind::Immediate(least, most) => self.immediate(usage.instance, *least, *most, operand),
            Kind::Address { space, sampler, rest } => match operand {
                Operand::Address(address) => self.address(address, *space, *sampler, rest, usage),
                // An element of an array needs no brackets.
                Operand::Element(name, _) if usage.accesses_memory() && rest.is_empty() => {
                    self.base(*name, *space)
                }
                Operand::Indexed(element) if usage.accesses_memory() && rest.is_empty() => {
                    self.base(element.array, *space)
                }
                other => Err(format!("an address in brackets is needed, not {}", self.shape(other))),
            },
            Kind::TensorAddress => match operand {
                Operand::Address(Address { base: Base::Name(name), .. }) => {
                    self.register(*name, ScalarType::B32, false, usage)
                }
                Operand::Address(_) => Ok(()),
                other => Err(format!("an address in brackets is needed, not {}", self.shape(other))),
            },
            Kind::Label => match operand {
                Operand::Name(Symbol::Label(_)) => Ok(()),
                Operand::Name(name) => {
                    Err(format!("`{}` is no label of this function", self.body.name(*name)))
                }
                other => Err(format!("a label is needed, not {}", self.shape(other))),
            },
            Kind::Function => match operand {
                Operand::Name(Symbol::Function(_)) => Ok(()),
                Operand::Name(name) => {
                    Err(format!("no function `{}` is declared before this", self.body.name(*name)))
                }
                other => Err(format!("a function is needed, not {}", self.shape(other))),
            },
            Kind::List => match operand {
                Operand::List(_) => Ok(()),
                other => Err(format!("parameters in parentheses are needed, not {}", self.shape(other))),
            },
            Kind::Targets => match operand {
                Operand::Name(Symbol::BranchTargets(_)) => Ok(()),
                other => Err(format!("a label of `.branchtargets` is needed, not {}", self.shape(other))),
            },
            Kind::Table => match operand {
                Operand::Name(Symbol::Prototype(_) | Symbol::CallTargets(_)) => Ok(()),
                other => Err(format!(
                    "a label of `.callprototype` or `.calltargets` is needed, not {}",
                    self.shape(other)
                )),
            },
        }
    }

    /// The declaration of a register or a vector.
    pub(super) fn declaration(self, symbol: Symbol<'m>) -> Option<&'m Variable> {
        match symbol {
            Symbol::Register(id) | Symbol::Vector(id) => self.body.registers[id.index()].declaration,
            _ => None,
        }
    }

    /// The register that a symbol is.
    fn find_register(self, symbol: Symbol<'m>) -> Result<&'m Variable, String> {
        let name = self.body.name(symbol);
        match symbol {
            Symbol::Register(_) | Symbol::Vector(_) => self
                .declaration(symbol)
                .ok_or_else(|| format!("unknown register `{name}`: declare it with `.reg`")),
            Symbol::Variable(id) => Err(format!(
                "`{name}` is a variable in `{}`: load it, or take its address with `mov`",
                self.body.variable(id).space
            )),
            Symbol::Function(_) => Err(format!("`{name}` is a function, not a register")),
            Symbol::Special(_) => Err(format!("`{name}` is a special register: copy it with `mov` first")),
            _ => Err(format!("unknown register `{name}`: declare it with `.reg`")),
        }
    }

    fn register(self, symbol: Symbol<'m>, ty: ScalarType, wider: bool, usage: Use<'_>) -> Checked {
        if let Symbol::Special(special) = symbol {
            return special_fits(special, false, ty, usage);
        }
        // ptxas takes functions where integers are read.
        if !usage.written && !ty.is_float() && matches!(symbol, Symbol::Function(_)) {
            return Ok(());
        }
        let variable = self.find_register(symbol)?;
        let name = self.body.name(symbol);
        if variable.vector != 1 {
            return Err(format!("`{name}` is a vector: name one of its components, such as `{name}.x`"));
        }
        register_fits(&name, variable.ty, ty, wider, usage)
    }

    fn component(
        self,
        symbol: Symbol<'m>,
        selector: &str,
        ty: ScalarType,
        wider: bool,
        usage: Use<'_>,
    ) -> Checked {
        body::component(selector).ok_or_else(|| format!("`.{selector}` is no component of a vector"))?;
        if let Symbol::Special(special) = symbol {
            return special_fits(special, true, ty, usage);
        }
        let variable = self.find_register(symbol)?;
        let name = self.body.name(symbol);
        // ptxas takes components that shorter vectors lack.
        if variable.vector == 1 {
            return Err(format!("`{name}` has no component `.{selector}`"));
        }
        register_fits(&name, variable.ty, ty, wider, usage)
    }

    fn vector(self, element: &Kind, length: usize, operand: &Operand<'m>, usage: Use<'_>) -> Checked {
        let usage = Use { component: usage.accesses_memory(), element: true, ..usage };
        match operand {
            Operand::Vector(items) if items.len() == length => {
                items.iter().try_for_each(|item| self.operand(element, item, usage))?;
                self.equal_widths(items)
            }
            Operand::Vector(items) => {
                Err(format!("a vector of {length} is needed, this has {}", items.len()))
            }
            Operand::Name(symbol) => match (symbol, element, self.declaration(*symbol)) {
                (Symbol::Special(special), ..) if special.is_vector() && !usage.written => Ok(()),
                (_, Kind::Value { ty, wider, .. }, Some(variable))
                    if usize::from(variable.vector) == length && !(length == 1 && usage.is_of_matrix()) =>
                {
                    register_fits(&self.body.name(*symbol), variable.ty, *ty, *wider, usage)
                }
                _ if length == 1 && !usage.is_of_matrix() => self.operand(element, operand, usage),
                (Symbol::Register(_), _, None) => {
                    Err(format!("unknown register `{}`: declare it with `.reg`", self.body.name(*symbol)))
                }
                _ => Err(format!("a vector of {length} is needed, not `{}`", self.body.name(*symbol))),
            },
            other if length == 1 && !usage.is_of_matrix() => self.operand(element, other, usage),
            other => Err(format!("a vector of {length} is needed, not {}", self.shape(other))),
        }
    }

    /// Checks that the registers in a vector's braces have one width, even where each may be wider
    /// than the type.
    fn equal_widths(self, items: &[Operand<'m>]) -> Checked {
        let mut first = None;
        for symbol in items.iter().filter_map(registers_name) {
            let Some(ty) = self.register_type(symbol) else { continue };
            let (name, wanted) = *first.get_or_insert((symbol, ty));
            if wanted.bytes() != ty.bytes() {
                return Err(format!(
                    "`{}` is `{wanted}` and `{}` is `{ty}`: the registers of a vector need one width",
                    self.body.name(name),
                    self.body.name(symbol)
                ));
            }
        }
        Ok(())
    }

    /// The type of a register, special ones and elements of vectors included.
    fn register_type(self, symbol: Symbol<'m>) -> Option<ScalarType> {
        match symbol {
            Symbol::Special(special) => Some(special.ty()),
            _ => self.declaration(symbol).map(|variable| variable.ty),
        }
    }

    fn predicate(self, operand: &Operand<'m>, usage: Use<'_>) -> Checked {
        match operand {
            Operand::Sink if usage.drops_predicates() => Ok(()),
            Operand::Constant(Constant::Integer(_)) if !usage.written => Ok(()),
            Operand::Not(symbol) if !usage.written => self.predicate_register(*symbol),
            Operand::Name(Symbol::Special(special)) => special_fits(*special, false, ScalarType::Pred, usage),
            Operand::Name(symbol) => self.predicate_register(*symbol),
            other => Err(format!("a predicate is needed, not {}", self.shape(other))),
        }
    }

    /// Checks that the symbol is a `.pred` register.
    pub(super) fn predicate_register(self, symbol: Symbol<'m>) -> Checked {
        match self.find_register(symbol)?.ty {
            ScalarType::Pred => Ok(()),
            other => Err(format!("`{}` is `{other}`, a predicate is needed", self.body.name(symbol))),
        }
    }

    fn address(
        self,
        address: &Address<'m>,
        space: Option<StateSpace>,
        sampler: bool,
        rest: &[Kind],
        usage: Use<'_>,
    ) -> Checked {
        match address.base {
            Base::Name(symbol) => {
                self.base(symbol, space)?;
                self.whole_address(symbol, space, usage.instance)?;
            }
            Base::Component(symbol, _) => {
                self.find_register(symbol)?;
            }
            Base::Indexed(element) => self.base(element.array, space)?,
            Base::Absolute => {
                if space.is_some_and(|space| space != StateSpace::Local) {
                    return Err("an address must be a register or a variable: move the number to a register"
                        .to_owned());
                }
            }
        }
        let usage = Use { written: false, component: false, element: false, ..usage };
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

    /// Checks that the register holds a whole address where `instance` needs one: memory that
    /// blocks share has addresses of 64 bits. As ptxas does, this leaves registers of 16 bits and
    /// the sources of copies alone.
    fn whole_address(self, symbol: Symbol<'m>, space: Option<StateSpace>, instance: &Instance) -> Checked {
        let is_whole =
            matches!(space, None | Some(StateSpace::Global)) && WHOLE.contains(&instance.form.opcode);
        match self.declaration(symbol) {
            Some(variable) if is_whole && variable.ty.bytes() == 4 => Err(format!(
                "`{}` is `{}`: generic and global addresses have 64 bits",
                self.body.name(symbol),
                variable.ty
            )),
            _ => Ok(()),
        }
    }

    /// Checks that an address in `space` may start from the symbol.
    fn base(self, symbol: Symbol<'m>, space: Option<StateSpace>) -> Checked {
        let name = self.body.name(symbol);
        if let Some(variable) = self.declaration(symbol) {
            let ty = variable.ty;
            return match ty.is_float() && ty != ScalarType::F16x2 || ty == ScalarType::Pred || ty.bytes() > 8
            {
                true => Err(format!("`{name}` is `{ty}`: an address needs an integer register")),
                false => Ok(()),
            };
        }
        match symbol {
            Symbol::Variable(id) => {
                let own = self.body.variable(id).space;
                match space {
                    Some(space) if space != own => {
                        Err(format!("`{name}` is in `{own}`, but the instruction accesses `{space}`"))
                    }
                    None if matches!(own, StateSpace::Const | StateSpace::Param) => Err(format!(
                        "`{name}` is in `{own}`, which instructions reach that name the space only"
                    )),
                    _ => Ok(()),
                }
            }
            Symbol::Function(_) => Err(format!("`{name}` is a function: its code cannot be accessed")),
            Symbol::Special(_) => Err(format!("`{name}` is a special register: copy it with `mov` first")),
            _ => Err(format!("unknown name `{name}` in an address: declare it before its use")),
        }
    }

    /// ptxas takes the lowest byte of the table of `lop3`, and any number of groups to wait for.
    fn immediate(self, instance: &Instance, least: i64, most: i64, operand: &Operand<'m>) -> Checked {
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
            other => Err(format!("an integer from {least} to {most} is needed, not {}", self.shape(other))),
        }
    }

    /// Describes the shape of an operand in words.
    fn shape(self, operand: &Operand<'m>) -> String {
        match operand {
            Operand::Name(symbol) => format!("`{}`", self.body.name(*symbol)),
            Operand::Component(..) => "a component".to_owned(),
            Operand::Offset(..) | Operand::Element(..) | Operand::Indexed(_) => {
                "the address of a variable".to_owned()
            }
            Operand::Constant(Constant::Integer(value)) => format!("the number {value}"),
            Operand::Constant(_) => "a floating-point number".to_owned(),
            Operand::Not(symbol) => format!("`!{}`", self.body.name(*symbol)),
            Operand::Negated(symbol) => format!("`-{}`", self.body.name(*symbol)),
            Operand::Sink => "`_`".to_owned(),
            Operand::Pair(..) => "two destinations".to_owned(),
            Operand::Vector(_) => "a vector".to_owned(),
            Operand::List(_) => "a list of parameters".to_owned(),
            Operand::Address(_) => "an address in brackets".to_owned(),
        }
    }
}

/// Instructions whose generic and global addresses ptxas wants in 64 bits.
const WHOLE: &[&str] =
    &["ld", "ldu", "st", "atom", "red", "prefetch", "prefetchu", "mbarrier", "applypriority", "discard"];

/// The register that an item of a vector is, or is a component of.
fn registers_name<'m>(item: &Operand<'m>) -> Option<Symbol<'m>> {
    match item {
        Operand::Name(symbol) | Operand::Component(symbol, _) => Some(*symbol),
        _ => None,
    }
}

/// Whether the symbol has an address.
fn is_symbol(symbol: Symbol<'_>) -> bool {
    matches!(symbol, Symbol::Variable(_) | Symbol::Function(_))
}

fn register_fits(name: &str, have: ScalarType, ty: ScalarType, wider: bool, usage: Use<'_>) -> Checked {
    match fits(ty, have, wider, usage.component) {
        true => Ok(()),
        false => Err(format!("`{name}` is `{have}`, which does not fit `{ty}`")),
    }
}

fn special_fits(special: SpecialRegister, component: bool, ty: ScalarType, usage: Use<'_>) -> Checked {
    let name = special.name();
    if usage.written {
        return Err(format!("`{name}` cannot be written"));
    }
    let is_cvt = usage.instance.form.opcode == "cvt";
    let is_stored = usage.component && usage.instance.form.opcode == "st";
    let computes = is_cvt && usage.instance.mnemonic.contains(".f") || ty.is_float() && !is_stored;
    if computes || !is_cvt && usage.instance.form.opcode != "mov" && !is_stored {
        return Err(format!(
            "`{name}` is a special register: copy it to an integer register with `mov` first"
        ));
    }
    match (special.is_vector(), component) {
        (true, false) => Err(format!("`{name}` is a vector: name one of its components, such as `{name}.x`")),
        (false, true) => Err(format!("`{name}` has no components")),
        // Old PTX read the grid's number in 32 bits, and in 16 what is a vector.
        _ if is_cvt || special == SpecialRegister::Gridid => Ok(()),
        _ if ty.bytes() == 2 && special.is_vector() => Ok(()),
        _ if ty.bytes() != special.ty().bytes() => {
            Err(format!("`{name}` is `{}`, which does not fit `{ty}`", special.ty()))
        }
        _ => Ok(()),
    }
}

/// Checks numbers of a block's barrier: which one, and how many threads.
fn barrier_fits(instance: &Instance, operands: &[Operand<'_>]) -> Checked {
    let is_of_others = ["warp", "cluster"].iter().any(|word| instance.mnemonic.contains(word));
    if !matches!(instance.form.opcode, "bar" | "barrier") || is_of_others {
        return Ok(());
    }
    let places = operands.iter().zip(&instance.operands);
    let number = |wanted: &str| {
        let mut found = places.clone().filter(|(_, form)| form.name == wanted);
        match found.next() {
            // ptxas cuts them to 32 bits.
            Some((Operand::Constant(Constant::Integer(value)), _)) => Some(*value as u32),
            _ => None,
        }
    };
    if let Some(barrier) = number("a").filter(|barrier| *barrier >= 16) {
        return Err(format!("barrier {barrier} does not exist: a block has barriers 0 to 15"));
    }
    // Without a count, what follows is the predicate of a reduction.
    match number("b").filter(|_| operands.len() == instance.operands.len()) {
        Some(0) if instance.mnemonic.contains(".arrive") => {
            Err("this barrier needs a number of threads".to_owned())
        }
        Some(threads) if threads % 32 != 0 => {
            Err(format!("{threads} threads are no whole warps: a barrier counts multiples of 32"))
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
