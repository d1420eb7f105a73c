//! Parses statements at module scope, and declarations at any scope.

use super::{Parsed, Parser};
use crate::diagnostic::Diagnostic;
use crate::syntax::lexer::TokenKind;
use crate::syntax::tree::{
    Directive, File, Function, FunctionKind, Initializer, Item, Linkage, Module, Name, Pointer, Section,
    SectionLine, SectionValue, SymbolAddress, Variable,
};
use crate::syntax::types::{ScalarType, StateSpace};

/// Numbered names that one declaration may make (`%r<n>`): beyond any real program, below what
/// would exhaust memory.
const MAX_COUNT: u32 = 1 << 24;

impl Parser<'_, '_> {
    /// The whole text.
    pub(super) fn module(&mut self) -> Parsed<Module> {
        let mut module = Module { version: (0, 0), target: Vec::new(), address_size: 64, items: Vec::new() };
        if !self.eat_word(".version") {
            return self.expected("`.version` as the first directive");
        }
        module.version = self.version()?;
        if !self.eat_word(".target") {
            return self.expected("`.target` after `.version`");
        }
        module.target.push(self.identifier("a target architecture")?);
        while self.eat(b',') {
            module.target.push(self.identifier("a target option")?);
        }
        if self.eat_word(".address_size") {
            module.address_size = self.integer("an address size")?;
            if !matches!(module.address_size, 32 | 64) {
                return self.error("the address size must be 32 or 64");
            }
        }
        while self.peek().kind != TokenKind::End {
            self.item(&mut module.items)?;
        }
        Ok(module)
    }

    /// `major.minor`, which the lexer sees as a decimal fraction.
    fn version(&mut self) -> Parsed<(u32, u32)> {
        let text = self.peek().text;
        let parts =
            text.split_once('.').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        match parts {
            Some(version) => {
                self.next += 1;
                Ok(version)
            }
            None => self.expected("a version such as `8.0`"),
        }
    }

    fn item(&mut self, items: &mut Vec<Item>) -> Parsed<()> {
        if self.eat(b';') {
            return Ok(());
        }
        let token = self.peek();
        if token.kind != TokenKind::Word {
            return self.expected("a directive");
        }
        match token.text {
            ".file" => {
                self.next += 1;
                items.push(Item::File(self.file()?));
            }
            ".section" => {
                self.next += 1;
                items.push(Item::Section(self.section()?));
            }
            ".alias" => {
                self.next += 1;
                let name = self.identifier("an alias")?;
                self.expect(b',')?;
                let function = self.identifier("a function")?;
                self.expect(b';')?;
                items.push(Item::Alias { name, function });
            }
            ".pragma" => {
                self.next += 1;
                let strings = self.strings()?;
                self.expect(b';')?;
                items.push(Item::Pragma(strings));
            }
            _ => self.symbol(items)?,
        }
        Ok(())
    }

    /// A variable or function with its linkage.
    fn symbol(&mut self, items: &mut Vec<Item>) -> Parsed<()> {
        let linkage = self.linkage();
        let kind = match self.peek().text {
            ".entry" => FunctionKind::Entry,
            ".func" => FunctionKind::Func,
            _ => {
                let mut variables = self.declaration()?;
                for variable in &mut variables {
                    variable.linkage = linkage;
                }
                items.extend(variables.into_iter().map(Item::Variable));
                return Ok(());
            }
        };
        self.next += 1;
        items.push(Item::Function(self.function(linkage, kind)?));
        Ok(())
    }

    fn linkage(&mut self) -> Linkage {
        let linkage = match self.peek().text {
            ".extern" => Linkage::Extern,
            ".visible" => Linkage::Visible,
            ".weak" => Linkage::Weak,
            ".common" => Linkage::Common,
            _ => return Linkage::Internal,
        };
        self.next += 1;
        linkage
    }

    /// After `.entry` or `.func`.
    fn function(&mut self, linkage: Linkage, kind: FunctionKind) -> Parsed<Function> {
        let attributes = self.attributes()?;
        let returns = if self.at(b'(') { self.parameters()? } else { Vec::new() };
        let position = self.position();
        let name = self.identifier("a function name")?;
        let params = if self.at(b'(') { self.parameters()? } else { Vec::new() };
        let directives = self.function_directives()?;
        let body = if self.eat(b'{') {
            Some(self.block()?)
        } else {
            self.expect(b';')?;
            None
        };
        Ok(Function { linkage, kind, attributes, returns, name, params, directives, body, position })
    }

    /// `( param, … )`.
    pub(super) fn parameters(&mut self) -> Parsed<Vec<Variable>> {
        self.expect(b'(')?;
        self.list(b')', |parser| {
            let mut parameter = parser.declaration_head()?;
            parser.declarator(&mut parameter)?;
            Ok(parameter)
        })
    }

    /// `.maxntid …`, `.noreturn` and the like, up to the body or `;`.
    pub(super) fn function_directives(&mut self) -> Parsed<Vec<Directive>> {
        let mut directives = Vec::new();
        while self.peek().kind == TokenKind::Word && self.peek().text.starts_with('.') {
            let text = self.advance().text;
            let mut directive =
                Directive { name: self.intern(&text[1..]), values: Vec::new(), strings: Vec::new() };
            if self.peek().kind == TokenKind::String {
                directive.strings = self.strings()?;
                self.expect(b';')?;
            } else if self.at_constant() {
                directive.values.push(self.integer("a directive's value")?);
                while self.eat(b',') {
                    directive.values.push(self.integer("a directive's value")?);
                }
            }
            directives.push(directive);
        }
        Ok(directives)
    }

    /// A declaration of one or several variables, with its `;`.
    pub(super) fn declaration(&mut self) -> Parsed<Vec<Variable>> {
        let head = self.declaration_head()?;
        self.list(b';', |parser| {
            let mut variable = head.clone();
            parser.declarator(&mut variable)?;
            Ok(variable)
        })
    }

    /// State space, attributes, alignment, vector and type: everything before the name.
    fn declaration_head(&mut self) -> Parsed<Variable> {
        let word = self.peek();
        let space = word.text.strip_prefix('.').and_then(StateSpace::from_name);
        let Some(space) = space.filter(|_| word.kind == TokenKind::Word) else {
            return self.expected("a state space such as `.global`");
        };
        self.next += 1;
        let mut head = Variable {
            linkage: Linkage::Internal,
            space,
            attributes: self.attributes()?,
            align: None,
            vector: 1,
            ty: ScalarType::B8,
            pointer: None,
            name: self.intern("_"),
            count: None,
            dimensions: Vec::new(),
            initializer: None,
            position: word.position,
        };
        let mut ty = None;
        while self.peek().kind == TokenKind::Word && self.peek().text.starts_with('.') {
            let text = self.peek().text;
            match text {
                ".align" => {
                    self.next += 1;
                    let position = self.position();
                    let align: u32 = self.integer("an alignment")?;
                    if !align.is_power_of_two() {
                        return Err(Diagnostic::new(position, "an alignment must be a power of two"));
                    }
                    match &mut head.pointer {
                        Some(pointer) => pointer.align = Some(align),
                        None => head.align = Some(align),
                    }
                    continue;
                }
                ".ptr" => head.pointer = Some(Pointer { space: None, align: None }),
                ".v2" => head.vector = 2,
                ".v4" => head.vector = 4,
                ".v8" => head.vector = 8,
                _ => match (
                    ScalarType::from_name(&text[1..]),
                    StateSpace::from_name(&text[1..]),
                    &mut head.pointer,
                ) {
                    (Some(found), _, _) => ty = Some(found),
                    (None, Some(space), Some(pointer)) => pointer.space = Some(space),
                    _ => return self.expected("a type or an attribute of a variable"),
                },
            }
            self.next += 1;
        }
        head.ty = match ty {
            Some(ty) => ty,
            None => return self.expected("a type such as `.b32`"),
        };
        Ok(head)
    }

    /// `.attribute( … )`, if present.
    fn attributes(&mut self) -> Parsed<Vec<Name>> {
        if !self.eat_word(".attribute") {
            return Ok(Vec::new());
        }
        self.expect(b'(')?;
        self.list(b')', |parser| {
            let mut text = parser.word("an attribute")?.to_string();
            // `.unified(uuid1, uuid2)`.
            if parser.eat(b'(') {
                let values = parser.list(b')', |parser| parser.integer::<u64>("an attribute's value"))?;
                let values: Vec<String> = values.iter().map(u64::to_string).collect();
                text.push_str(&format!("({})", values.join(", ")));
            }
            Ok(parser.intern(&text))
        })
    }

    /// Name, `<count>`, dimensions, initialiser.
    fn declarator(&mut self, variable: &mut Variable) -> Parsed<()> {
        variable.position = self.position();
        variable.name = self.identifier("a name")?;
        if self.eat(b'<') {
            // Not `integer`: the `>` that closes is no operator.
            let TokenKind::Number(crate::syntax::tree::Constant::Integer(count), _) = self.peek().kind else {
                return self.expected("a count");
            };
            if count > MAX_COUNT.into() {
                return self.error(format!("more than {MAX_COUNT} numbered names in one declaration"));
            }
            self.next += 1;
            variable.count = Some(count as u32);
            self.expect(b'>')?;
        }
        while self.eat(b'[') {
            if self.eat(b']') {
                variable.dimensions.push(None);
                continue;
            }
            variable.dimensions.push(Some(self.length()?));
            self.expect(b']')?;
        }
        if self.eat(b'=') {
            variable.initializer = Some(self.initializer()?);
        }
        Ok(())
    }

    /// The length of an array, which is a number: ptxas takes no expression.
    fn length(&mut self) -> Parsed<u64> {
        match self.peek_at(1).kind {
            TokenKind::Symbol(b']') => self.integer("an array length"),
            _ => self.expected("a number as an array length"),
        }
    }

    fn initializer(&mut self) -> Parsed<Initializer> {
        self.nested(|parser| {
            if parser.eat(b'{') {
                return Ok(Initializer::List(parser.list(b'}', Self::initializer)?));
            }
            if parser.peek().kind == TokenKind::Word && !parser.at_word("WARP_SZ") {
                return parser.symbol_initializer();
            }
            // `mask(symbol)`: a number right before a parenthesis.
            if let (
                TokenKind::Number(crate::syntax::tree::Constant::Integer(mask), _),
                TokenKind::Symbol(b'('),
            ) = (parser.peek().kind, parser.peek_at(1).kind)
            {
                parser.next += 2;
                let mut address = parser.symbol_address()?;
                address.mask = Some(mask as u64);
                parser.expect(b')')?;
                return Ok(Initializer::Symbol(address));
            }
            Ok(Initializer::Constant(parser.constant()?))
        })
    }

    /// An initialiser that starts with a word: an address, or `name = value` of a sampler.
    fn symbol_initializer(&mut self) -> Parsed<Initializer> {
        if self.peek_at(1).kind != TokenKind::Symbol(b'=') {
            return Ok(Initializer::Symbol(self.symbol_address()?));
        }
        let name = self.identifier("a setting's name")?;
        self.expect(b'=')?;
        if self.peek().kind == TokenKind::Word {
            return Ok(Initializer::Setting(name, self.identifier("a setting's value")?));
        }
        Ok(Initializer::Field(name, self.constant()?))
    }

    /// `symbol [+ n]` or `generic(symbol) [+ n]`.
    fn symbol_address(&mut self) -> Parsed<SymbolAddress> {
        let generic = self.at_word("generic") && self.peek_at(1).kind == TokenKind::Symbol(b'(');
        if generic {
            self.next += 2;
        }
        let name = self.identifier("a variable or function")?;
        let mut offset = self.signed_offset()?;
        if generic {
            self.expect(b')')?;
            offset = offset.wrapping_add(self.signed_offset()?);
        }
        Ok(SymbolAddress { name, offset, generic, mask: None })
    }

    /// After `.file`.
    fn file(&mut self) -> Parsed<File> {
        let index = self.integer("a file index")?;
        let path = self.string()?;
        let mut stamp = None;
        if self.eat(b',') {
            let time = self.integer("a time stamp")?;
            self.expect(b',')?;
            stamp = Some((time, self.integer("a file size")?));
        }
        Ok(File { index, path, stamp })
    }

    /// After `.section`.
    fn section(&mut self) -> Parsed<Section> {
        let name = self.word("a section name")?;
        self.expect(b'{')?;
        let mut lines = Vec::new();
        while !self.eat(b'}') {
            lines.push(self.section_line()?);
        }
        Ok(Section { name, lines })
    }

    fn section_line(&mut self) -> Parsed<SectionLine> {
        let word = self.peek();
        if word.kind == TokenKind::Word && self.peek_at(1).kind == TokenKind::Symbol(b':') {
            let label = self.word("a label")?;
            self.next += 1;
            return Ok(SectionLine::Label(label));
        }
        let Some(ty) = word.text.strip_prefix('.').and_then(ScalarType::from_name) else {
            return self.expected("`.b8`, `.b16`, `.b32`, `.b64`, a label or `}`");
        };
        self.next += 1;
        let mut values = vec![self.section_value()?];
        while self.eat(b',') {
            values.push(self.section_value()?);
        }
        Ok(SectionLine::Data(ty, values))
    }

    fn section_value(&mut self) -> Parsed<SectionValue> {
        if self.peek().kind != TokenKind::Word {
            return Ok(SectionValue::Integer(self.integer("a value")?));
        }
        let name = self.word("a label")?;
        if self.at(b'-') && self.peek_at(1).kind == TokenKind::Word {
            self.next += 1;
            return Ok(SectionValue::Difference(name, self.word("a label")?));
        }
        Ok(SectionValue::Symbol(name, self.signed_offset()?))
    }
}
