//! The tree as text that ptxas accepts and that parses to the same tree.
//!
//! Layout follows what NVIDIA's compilers write: declarations and labels at the left, one tab
//! before instructions. Numbers are decimal; floating-point constants are written by their bits.

use std::fmt::{self, Display, Formatter, Write};

use super::tree::*;

/// `items` with `separator` between them.
struct Joined<'a, T>(&'a [T], &'static str);

impl<T: Display> Display for Joined<'_, T> {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        for (index, item) in self.0.iter().enumerate() {
            if index > 0 {
                out.write_str(self.1)?;
            }
            write!(out, "{item}")?;
        }
        Ok(())
    }
}

impl Display for Module {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        writeln!(out, ".version {}.{}", self.version.0, self.version.1)?;
        writeln!(out, ".target {}", Joined(&self.target, ", "))?;
        writeln!(out, ".address_size {}", self.address_size)?;
        for item in &self.items {
            writeln!(out, "{item}")?;
        }
        Ok(())
    }
}

impl Display for Item {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Item::Variable(variable) => write!(out, "{variable};"),
            Item::Function(function) => write!(out, "{function}"),
            Item::File(file) => write!(out, "{file}"),
            Item::Section(section) => write!(out, "{section}"),
            Item::Alias { name, function } => write!(out, ".alias {name}, {function};"),
            Item::Pragma(strings) => pragma(out, strings),
        }
    }
}

fn pragma(out: &mut Formatter<'_>, strings: &[String]) -> fmt::Result {
    out.write_str(".pragma ")?;
    quoted(out, strings)?;
    out.write_char(';')
}

fn quoted(out: &mut Formatter<'_>, strings: &[String]) -> fmt::Result {
    for (index, string) in strings.iter().enumerate() {
        write!(out, "{}\"{string}\"", if index > 0 { ", " } else { "" })?;
    }
    Ok(())
}

impl Display for Linkage {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Linkage::Internal => "",
            Linkage::Extern => ".extern ",
            Linkage::Visible => ".visible ",
            Linkage::Weak => ".weak ",
            Linkage::Common => ".common ",
        })
    }
}

fn attributes(out: &mut Formatter<'_>, attributes: &[Name]) -> fmt::Result {
    match attributes {
        [] => Ok(()),
        _ => write!(out, " .attribute({})", Joined(attributes, ", ")),
    }
}

impl Display for Variable {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "{}{}", self.linkage, self.space)?;
        attributes(out, &self.attributes)?;
        if let Some(align) = self.align {
            write!(out, " .align {align}")?;
        }
        if self.vector != 1 {
            write!(out, " .v{}", self.vector)?;
        }
        write!(out, " {}", self.ty)?;
        if let Some(pointer) = &self.pointer {
            out.write_str(" .ptr")?;
            if let Some(space) = pointer.space {
                write!(out, " {space}")?;
            }
            if let Some(align) = pointer.align {
                write!(out, " .align {align}")?;
            }
        }
        write!(out, " {}", self.name)?;
        if let Some(count) = self.count {
            write!(out, "<{count}>")?;
        }
        for dimension in &self.dimensions {
            match dimension {
                Some(length) => write!(out, "[{length}]")?,
                None => out.write_str("[]")?,
            }
        }
        match &self.initializer {
            Some(initializer) => write!(out, " = {initializer}"),
            None => Ok(()),
        }
    }
}

impl Display for Initializer {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Initializer::Constant(constant) => write!(out, "{constant}"),
            Initializer::Symbol(symbol) => write!(out, "{symbol}"),
            Initializer::List(items) => write!(out, "{{{}}}", Joined(items, ", ")),
            Initializer::Field(name, value) => write!(out, "{name} = {value}"),
            Initializer::Setting(name, value) => write!(out, "{name} = {value}"),
        }
    }
}

impl Display for SymbolAddress {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        if let Some(mask) = self.mask {
            write!(out, "{mask:#x}(")?;
        }
        match self.generic {
            true => write!(out, "generic({})", self.name)?,
            false => write!(out, "{}", self.name)?,
        }
        offset(out, self.offset)?;
        if self.mask.is_some() {
            out.write_char(')')?;
        }
        Ok(())
    }
}

/// `+n`, or nothing for 0.
fn offset(out: &mut Formatter<'_>, offset: i64) -> fmt::Result {
    if offset == 0 { Ok(()) } else { write!(out, "+{offset}") }
}

fn parameters(out: &mut Formatter<'_>, parameters: &[Variable]) -> fmt::Result {
    write!(out, "({})", Joined(parameters, ", "))
}

impl Display for Function {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "\n{}", self.linkage)?;
        out.write_str(match self.kind {
            FunctionKind::Entry => ".entry",
            FunctionKind::Func => ".func",
        })?;
        attributes(out, &self.attributes)?;
        if !self.returns.is_empty() {
            out.write_char(' ')?;
            parameters(out, &self.returns)?;
        }
        write!(out, " {}", self.name)?;
        parameters(out, &self.params)?;
        directives(out, &self.directives)?;
        match &self.body {
            None => out.write_char(';'),
            Some(body) => {
                out.write_str("\n{\n")?;
                block(out, body)?;
                out.write_char('}')
            }
        }
    }
}

fn directives(out: &mut Formatter<'_>, directives: &[Directive]) -> fmt::Result {
    for directive in directives {
        write!(out, "\n.{}", directive.name)?;
        if !directive.values.is_empty() {
            write!(out, " {}", Joined(&directive.values, ", "))?;
        }
        if !directive.strings.is_empty() {
            out.write_char(' ')?;
            quoted(out, &directive.strings)?;
            out.write_char(';')?;
        }
    }
    Ok(())
}

/// Statements up to, but without, the closing brace. The parser bounds how deep scopes nest.
fn block(out: &mut Formatter<'_>, statements: &[Statement]) -> fmt::Result {
    for statement in statements {
        match statement {
            Statement::Label(name, _) => writeln!(out, "{name}:")?,
            Statement::Instruction(instruction) => writeln!(out, "\t{instruction}")?,
            Statement::Variable(variable) => writeln!(out, "\t{variable};")?,
            Statement::Block(inner) => {
                out.write_str("\t{\n")?;
                block(out, inner)?;
                out.write_str("\t}\n")?;
            }
            Statement::Location(location) => writeln!(out, "\t{location}")?,
            Statement::Pragma(strings) => {
                out.write_char('\t')?;
                pragma(out, strings)?;
                out.write_char('\n')?;
            }
            Statement::Prototype(prototype) => writeln!(out, "\t{prototype}")?,
            Statement::CallTargets(name, targets) => {
                writeln!(out, "\t{name}: .calltargets {};", Joined(targets, ", "))?;
            }
            Statement::BranchTargets(name, targets) => {
                writeln!(out, "\t{name}: .branchtargets {};", Joined(targets, ", "))?;
            }
        }
    }
    Ok(())
}

impl Display for Prototype {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "{}: .callprototype ", self.name)?;
        if !self.returns.is_empty() {
            parameters(out, &self.returns)?;
            out.write_char(' ')?;
        }
        out.write_str("_ ")?;
        parameters(out, &self.params)?;
        directives(out, &self.directives)?;
        out.write_char(';')
    }
}

impl Display for Location {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, ".loc {} {} {}", self.file, self.line, self.column)?;
        if let Some(Inlined { function, offset: from, file, line, column }) = &self.inlined {
            write!(out, ", function_name {function}")?;
            offset(out, *from)?;
            write!(out, ", inlined_at {file} {line} {column}")?;
        }
        Ok(())
    }
}

impl Display for File {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, ".file {} \"{}\"", self.index, self.path)?;
        match self.stamp {
            Some((time, bytes)) => write!(out, ", {time}, {bytes}"),
            None => Ok(()),
        }
    }
}

impl Display for Section {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        writeln!(out, ".section {}\n{{", self.name)?;
        for line in &self.lines {
            match line {
                SectionLine::Label(name) => writeln!(out, "{name}:")?,
                SectionLine::Data(ty, values) => writeln!(out, "{ty} {}", Joined(values, ","))?,
            }
        }
        out.write_char('}')
    }
}

impl Display for SectionValue {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            SectionValue::Integer(value) => write!(out, "{value}"),
            SectionValue::Symbol(name, from) => {
                write!(out, "{name}")?;
                offset(out, *from)
            }
            SectionValue::Difference(a, b) => write!(out, "{a}-{b}"),
        }
    }
}

impl Display for Instruction {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        if let Some(Predicate { negated, register }) = &self.predicate {
            write!(out, "@{}{register} ", if *negated { "!" } else { "" })?;
        }
        write!(out, "{}", self.mnemonic)?;
        if !self.operands.is_empty() {
            write!(out, " {}", Joined(&self.operands, ", "))?;
        }
        out.write_char(';')
    }
}

impl Display for Operand {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Operand::Name(name) => write!(out, "{name}"),
            Operand::Component(name, component) => write!(out, "{name}.{component}"),
            Operand::Offset(name, from) => write!(out, "{name}+{from}"),
            Operand::Element(name, index) => write!(out, "{name}[{index}]"),
            Operand::Indexed(name, register, 0) => write!(out, "{name}[{register}]"),
            Operand::Indexed(name, register, plus) => write!(out, "{name}[{register}+{plus}]"),
            Operand::Constant(constant) => write!(out, "{constant}"),
            Operand::Not(name) => write!(out, "!{name}"),
            Operand::Negated(name) => write!(out, "-{name}"),
            Operand::Sink => out.write_char('_'),
            Operand::Pair(first, second) => write!(out, "{first}|{second}"),
            Operand::Vector(items) => write!(out, "{{{}}}", Joined(items, ", ")),
            Operand::List(items) => write!(out, "({})", Joined(items, ", ")),
            Operand::Address(address) => write!(out, "{address}"),
        }
    }
}

impl Display for Address {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match &self.base {
            AddressBase::Absolute => write!(out, "[{}", self.offset)?,
            AddressBase::Name(name) => {
                write!(out, "[{name}")?;
                offset(out, self.offset)?;
            }
            AddressBase::Component(name, component) => {
                write!(out, "[{name}.{component}")?;
                offset(out, self.offset)?;
            }
        }
        for operand in &self.rest {
            write!(out, ", {operand}")?;
        }
        out.write_char(']')
    }
}

impl Display for Constant {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Constant::Integer(value) => write!(out, "{value}"),
            Constant::Single(bits) => write!(out, "0f{bits:08X}"),
            Constant::Double(bits) => write!(out, "0d{bits:016X}"),
        }
    }
}
