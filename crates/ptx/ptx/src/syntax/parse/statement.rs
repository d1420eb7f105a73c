//! Parses the bodies of functions.

use super::{Parsed, Parser};
use crate::syntax::lexer::TokenKind;
use crate::syntax::tree::{Inlined, Instruction, Location, Mnemonic, Predicate, Prototype, Statement};
use crate::syntax::types::StateSpace;

impl Parser<'_, '_> {
    /// After `{`: statements up to the closing brace, which is taken.
    pub(super) fn block(&mut self) -> Parsed<Vec<Statement>> {
        self.nested(|parser| {
            let mut statements = Vec::new();
            loop {
                match parser.peek().kind {
                    TokenKind::Symbol(b'}') => {
                        parser.next += 1;
                        return Ok(statements);
                    }
                    // nvcc puts stray semicolons after some scopes and directives.
                    TokenKind::Symbol(b';') => parser.next += 1,
                    TokenKind::Symbol(b'{') => {
                        parser.next += 1;
                        statements.push(Statement::Block(parser.block()?));
                    }
                    TokenKind::Symbol(b'@') => statements.push(parser.instruction()?),
                    TokenKind::Word if parser.peek().text.starts_with('.') => {
                        parser.body_directive(&mut statements)?;
                    }
                    TokenKind::Word if parser.peek_at(1).kind == TokenKind::Symbol(b':') => {
                        statements.push(parser.label()?);
                    }
                    TokenKind::Word => statements.push(parser.instruction()?),
                    _ => return parser.expected("a statement or `}`"),
                }
            }
        })
    }

    /// `name:`, with the directive that it labels, if one follows.
    fn label(&mut self) -> Parsed<Statement> {
        let position = self.position();
        let name = self.identifier("a label")?;
        self.expect(b':')?;
        let word = self.peek().text;
        if !matches!(word, ".callprototype" | ".calltargets" | ".branchtargets") {
            return Ok(Statement::Label(name, position));
        }
        self.next += 1;
        if word == ".callprototype" {
            let returns = if self.at(b'(') { self.parameters()? } else { Vec::new() };
            self.identifier("`_`")?;
            let params = if self.at(b'(') { self.parameters()? } else { Vec::new() };
            let directives = self.function_directives()?;
            self.expect(b';')?;
            return Ok(Statement::Prototype(Prototype { name, returns, params, directives }));
        }
        let targets = self.list(b';', |parser| parser.identifier("a label or function"))?;
        Ok(match word {
            ".calltargets" => Statement::CallTargets(name, targets),
            _ => Statement::BranchTargets(name, targets),
        })
    }

    /// `.loc`, `.pragma` or a declaration.
    fn body_directive(&mut self, statements: &mut Vec<Statement>) -> Parsed<()> {
        let word = self.peek().text;
        match word {
            ".loc" => {
                self.next += 1;
                statements.push(Statement::Location(self.location()?));
            }
            ".pragma" => {
                self.next += 1;
                statements.push(Statement::Pragma(self.strings()?));
                self.expect(b';')?;
            }
            _ if StateSpace::from_name(&word[1..]).is_some() => {
                let variables = self.declaration()?;
                statements.extend(variables.into_iter().map(Statement::Variable));
            }
            _ => return self.error(format!("`{word}` is not a directive that may stand in a function")),
        }
        Ok(())
    }

    /// After `.loc`.
    fn location(&mut self) -> Parsed<Location> {
        let file = self.integer("a file index")?;
        let line = self.integer("a line")?;
        let column =
            if matches!(self.peek().kind, TokenKind::Number(..)) { self.integer("a column")? } else { 0 };
        let mut location = Location { file, line, column, inlined: None };
        if self.eat(b',') {
            location.inlined = Some(self.inlined()?);
        }
        Ok(location)
    }

    /// `function_name LABEL[+n], inlined_at FILE LINE COLUMN`.
    fn inlined(&mut self) -> Parsed<Inlined> {
        if !self.eat_word("function_name") {
            return self.expected("`function_name`");
        }
        let function = self.word("a label")?;
        let offset = if self.eat(b'+') { self.integer("an offset")? } else { 0 };
        self.expect(b',')?;
        if !self.eat_word("inlined_at") {
            return self.expected("`inlined_at`");
        }
        let file = self.integer("a file index")?;
        let line = self.integer("a line")?;
        let column = self.integer("a column")?;
        Ok(Inlined { function, offset, file, line, column })
    }

    fn instruction(&mut self) -> Parsed<Statement> {
        let predicate = if self.eat(b'@') {
            let negated = self.eat(b'!');
            Some(Predicate { negated, register: self.identifier("a predicate register")? })
        } else {
            None
        };
        let position = self.position();
        let mnemonic = Mnemonic::new(self.word("an instruction")?);
        let operand = if mnemonic.opcode() == "call" { Self::call_operand } else { Self::operand };
        let operands = self.list(b';', operand)?;
        Ok(Statement::Instruction(Instruction { predicate, mnemonic, operands, position }))
    }
}
