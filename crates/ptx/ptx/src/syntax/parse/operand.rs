//! Parses the operands of instructions.

use super::{Parsed, Parser};
use crate::syntax::lexer::TokenKind;
use crate::syntax::tree::{Address, AddressBase, Constant, Name, Operand};

impl Parser<'_, '_> {
    /// One operand.
    pub(super) fn operand(&mut self) -> Parsed<Operand> {
        self.nested(|parser| match parser.peek().kind {
            TokenKind::Symbol(b'{') => {
                parser.next += 1;
                let vector = Operand::Vector(parser.list(b'}', Self::operand)?);
                parser.second_destination(vector)
            }
            TokenKind::Symbol(b'[') => {
                parser.next += 1;
                Ok(Operand::Address(parser.address()?))
            }
            TokenKind::Symbol(b'!') if parser.peek_at(1).kind == TokenKind::Word => {
                parser.next += 1;
                Ok(Operand::Not(parser.identifier("a predicate register")?))
            }
            TokenKind::Symbol(b'-')
                if parser.peek_at(1).kind == TokenKind::Word && !parser.minus_constant() =>
            {
                parser.next += 1;
                Ok(Operand::Negated(parser.identifier("a register")?))
            }
            TokenKind::Word if !parser.at_word("WARP_SZ") => parser.named(),
            _ if parser.at_constant() => Ok(Operand::Constant(parser.constant()?)),
            _ => parser.expected("an operand"),
        })
    }

    /// One operand of a `call`, where `(` opens parameters. In other instructions it opens an
    /// expression.
    pub(super) fn call_operand(&mut self) -> Parsed<Operand> {
        match self.eat(b'(') {
            true => Ok(Operand::List(self.list(b')', Self::operand)?)),
            false => self.operand(),
        }
    }

    fn minus_constant(&self) -> bool {
        self.peek_at(1).text == "WARP_SZ"
    }

    /// An operand that starts with a word.
    fn named(&mut self) -> Parsed<Operand> {
        let first = self.name_or_component()?;
        let first = self.second_destination(first)?;
        let Operand::Name(name) = first else { return Ok(first) };
        if self.at(b'+') || self.at(b'-') {
            return Ok(Operand::Offset(name, self.signed_offset()?));
        }
        if self.eat(b'[') {
            let element = self.element(name)?;
            self.expect(b']')?;
            return Ok(element);
        }
        Ok(Operand::Name(name))
    }

    /// After `array[`: a constant, or a register and a constant that is added to it. As in ptxas,
    /// nothing is subtracted from a register and the constant comes last.
    fn element(&mut self, array: Name) -> Parsed<Operand> {
        if self.peek().kind != TokenKind::Word || self.at_word("WARP_SZ") {
            return Ok(Operand::Element(array, self.wrapped("an array index")?));
        }
        let register = self.identifier("a register or a constant as an array index")?;
        let plus = if self.eat(b'+') { self.wrapped("a number to add to an array index")? } else { 0 };
        Ok(Operand::Indexed(array, register, plus))
    }

    /// A constant integer expression modulo 2^64.
    fn wrapped(&mut self, what: &str) -> Parsed<i64> {
        self.integer::<i128>(what).map(|value| value as i64)
    }

    /// After `first`: the `|p` of a second destination, if there is one.
    fn second_destination(&mut self, first: Operand) -> Parsed<Operand> {
        if !self.eat(b'|') {
            return Ok(first);
        }
        let second = self.name_or_component()?;
        Ok(Operand::Pair(Box::new(first), Box::new(second)))
    }

    fn name_or_component(&mut self) -> Parsed<Operand> {
        let token = self.peek();
        if token.kind != TokenKind::Word {
            return self.expected("a register");
        }
        if token.text == "_" {
            self.next += 1;
            return Ok(Operand::Sink);
        }
        match self.component()? {
            (name, None) => Ok(Operand::Name(name)),
            (name, Some(selector)) => Ok(Operand::Component(name, selector)),
        }
    }

    /// `name` or `name.selector`.
    fn component(&mut self) -> Parsed<(Name, Option<Name>)> {
        let text = self.peek().text;
        let parts = match text.split_once('.') {
            None => (text, None),
            Some((name, selector)) if !name.is_empty() && !selector.is_empty() => (name, Some(selector)),
            Some(_) => return self.expected("a name"),
        };
        self.word("a name")?;
        Ok((self.intern(parts.0), parts.1.map(|selector| self.intern(selector))))
    }

    /// `+ expression`, `- term` and what follows it, or nothing: 0.
    pub(super) fn signed_offset(&mut self) -> Parsed<i64> {
        let mut total = 0i64;
        loop {
            let negative = match self.peek().kind {
                TokenKind::Symbol(b'+') => false,
                TokenKind::Symbol(b'-') => true,
                _ => return Ok(total),
            };
            let position = self.advance().position;
            let constant = if negative { self.term()? } else { self.constant()? };
            let Constant::Integer(value) = constant else {
                return Err(crate::Diagnostic::new(position, "an offset must be an integer"));
            };
            // Offsets are addresses modulo 2^64.
            let value = value as i64;
            total = if negative { total.wrapping_sub(value) } else { total.wrapping_add(value) };
        }
    }

    /// After `[`.
    fn address(&mut self) -> Parsed<Address> {
        let (base, offset) = if self.peek().kind == TokenKind::Word && !self.at_word("WARP_SZ") {
            let base = match self.component()? {
                (name, None) => AddressBase::Name(name),
                (name, Some(selector)) => AddressBase::Component(name, selector),
            };
            (base, self.signed_offset()?)
        } else {
            let Constant::Integer(value) = self.constant()? else {
                return self.error("an address must be an integer");
            };
            (AddressBase::Absolute, value as i64)
        };
        let rest = if self.eat(b',') {
            self.list(b']', Self::operand)?
        } else {
            self.expect(b']')?;
            Vec::new()
        };
        Ok(Address { base, offset, rest })
    }
}
