//! Declarations: from tokens to a [`Unit`].
//!
//! Recursive descent with every recursion counted ([`Parser::nested`]). A type name is known before
//! it is used, as C demands; members of records must be complete. Hence no cycle can arise among
//! typedefs or records.

mod tagged;

use super::expr::Constant;
use super::lex::{Directive, Kind, Source, Token};
use super::{Error, Function, Macro, Param, Place, Prototype, Result, Type, Typedef, Unit};
use std::collections::BTreeMap;

/// The maximum nesting of declarators, types and expressions.
const DEEPEST: usize = 48;

/// Parses a lexed translation unit.
///
/// # Errors
/// The first thing that is not a declaration as `c` understands them.
pub fn parse(source: &Source) -> Result<Unit> {
    let mut unit = Unit { macros: macros(&source.directives), ..Unit::default() };
    let mut parser = Parser { tokens: &source.tokens, at: 0, depth: 0, unit: &mut unit };
    while parser.at < parser.tokens.len() {
        parser.declaration()?;
    }
    Ok(unit)
}

/// The object-like macros that are still defined at the end, in order of their last definition.
fn macros(directives: &[Directive]) -> Vec<Macro> {
    let mut last = BTreeMap::new();
    for (at, directive) in directives.iter().enumerate() {
        match directive {
            Directive::Define { name, .. } => last.insert(name, at),
            Directive::Undef { name } => last.remove(name),
        };
    }
    let kept = directives.iter().enumerate().filter_map(|(at, directive)| match directive {
        Directive::Define { name, body, place } if last.get(name) == Some(&at) => {
            Some(Macro { name: name.clone(), body: body.clone(), place: place.clone() })
        }
        _ => None,
    });
    kept.collect()
}

/// Evaluates a macro's body as a constant expression.
///
/// # Errors
/// It is not one.
pub fn constant_of(unit: &mut Unit, body: &[Token]) -> Result<Constant> {
    Parser { tokens: &[], at: 0, depth: 0, unit }.constant_of(body)
}

/// A place in the tokens, and what was declared up to there.
#[derive(Debug)]
pub struct Parser<'a> {
    tokens: &'a [Token],
    at: usize,
    depth: usize,
    unit: &'a mut Unit,
}

/// A type with the qualifier that matters once something points to it.
#[derive(Clone)]
struct Qualified {
    ty: Type,
    constant: bool,
}

/// The specifiers before the declarators.
struct Specifiers {
    base: Qualified,
    typedef: bool,
    align: Option<u64>,
}

/// A declared name with its type. The name is empty in an abstract declarator.
struct Declared {
    name: String,
    ty: Type,
}

impl<'a> Parser<'a> {
    /// Returns the declarations so far.
    pub fn unit(&self) -> &Unit {
        self.unit
    }

    /// An error at the next token.
    pub fn error(&self, what: impl Into<String>) -> Error {
        let token = self.tokens.get(self.at).or(self.tokens.last());
        let place = token.map_or(Place { file: "<input>".into(), line: 0 }, |token| token.place.clone());
        Error { place, what: what.into() }
    }

    /// Runs `parse` one level deeper, or fails where that is too deep.
    pub fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth >= DEEPEST {
            return Err(self.error(format!("nested more than {DEEPEST} deep")));
        }
        self.depth += 1;
        let outcome = parse(self);
        self.depth -= 1;
        outcome
    }

    /// Evaluates `body`, which must be one constant expression, in this parser's scope.
    pub fn constant_of(&mut self, body: &[Token]) -> Result<Constant> {
        let mut inner = Parser { tokens: body, at: 0, depth: self.depth, unit: self.unit };
        let constant = inner.constant()?;
        if inner.at < body.len() {
            return Err(inner.error("more than a constant"));
        }
        Ok(constant)
    }

    fn peek(&self) -> Option<&'a Kind> {
        self.tokens.get(self.at).map(|token| &token.kind)
    }

    /// Takes the next token.
    pub fn take(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.at).cloned()?;
        self.at += 1;
        Some(token)
    }

    /// Takes the next token if it is this mark.
    pub fn eat(&mut self, mark: &str) -> bool {
        let hit = matches!(self.peek(), Some(Kind::Mark(found)) if *found == mark);
        self.at += usize::from(hit);
        hit
    }

    /// Takes the next token if it is this word.
    pub fn eat_word(&mut self, word: &str) -> bool {
        let hit = self.peek_word() == Some(word);
        self.at += usize::from(hit);
        hit
    }

    /// Takes this mark.
    pub fn expect(&mut self, mark: &str) -> Result<()> {
        if self.eat(mark) {
            return Ok(());
        }
        Err(self.expected(&format!("`{mark}`")))
    }

    /// The error that something else stands next.
    pub fn expected(&self, what: &str) -> Error {
        let found = self.peek().map_or("the end".to_owned(), Kind::to_string);
        self.error(format!("expected {what}, found {found}"))
    }

    fn peek_word(&self) -> Option<&'a str> {
        match self.peek() {
            Some(Kind::Word(word)) => Some(word),
            _ => None,
        }
    }

    fn word(&mut self) -> Result<String> {
        let word = self.peek_word().ok_or_else(|| self.expected("a name"))?.to_owned();
        self.at += 1;
        Ok(word)
    }

    /// After an opening bracket: skips to behind its counterpart.
    fn skip_balanced(&mut self) -> Result<()> {
        let mut open = 1_usize;
        while open > 0 {
            match self.take().map(|token| token.kind) {
                Some(Kind::Mark("(" | "{" | "[")) => open += 1,
                Some(Kind::Mark(")" | "}" | "]")) => open -= 1,
                Some(_) => {}
                None => return Err(self.error("unbalanced brackets")),
            }
        }
        Ok(())
    }

    fn skip_attributes(&mut self) -> Result<()> {
        while matches!(self.peek_word(), Some("__attribute__" | "__asm__" | "__extension__")) {
            self.at += 1;
            if self.eat("(") {
                self.skip_balanced()?;
            }
        }
        Ok(())
    }

    fn declaration(&mut self) -> Result<()> {
        if self.eat(";") {
            return Ok(());
        }
        if self.eat_word("_Static_assert") {
            self.expect("(")?;
            return self.skip_balanced();
        }
        let start = self.at;
        let place = self.tokens[start].place.clone();
        let specifiers = self.specifiers()?;
        while !self.eat(";") {
            let declared = self.declarator(specifiers.base.clone())?;
            self.skip_attributes()?;
            match declared.ty {
                ty if specifiers.typedef => self.define_type(declared.name, ty, &place)?,
                Type::Function(prototype) => {
                    self.define_function(declared.name, *prototype, &place);
                    if self.eat("{") {
                        return self.skip_balanced();
                    }
                }
                _ => {}
            }
            if !self.eat(",") {
                self.expect(";")?;
                break;
            }
        }
        Ok(())
    }

    /// A repeated typedef must say the same in C, so the first one stands.
    fn define_type(&mut self, name: String, ty: Type, place: &Place) -> Result<()> {
        if name.is_empty() {
            return Err(self.error("a typedef without a name"));
        }
        if self.type_depth(&ty) > DEEPEST {
            return Err(self.error(format!("a type nested more than {DEEPEST} deep")));
        }
        if !self.unit.typedef_index.contains_key(&name) {
            self.unit.typedef_index.insert(name.clone(), self.unit.typedefs.len());
            self.unit.typedefs.push(Typedef { name, ty, place: place.clone() });
        }
        Ok(())
    }

    /// Levels of typedefs, pointers, arrays and functions down to the innermost type.
    fn type_depth(&self, ty: &Type) -> usize {
        1 + match ty {
            Type::Named(name) => self.unit.typedef(name).map_or(0, |typedef| self.type_depth(&typedef.ty)),
            Type::Pointer { to, .. } => self.type_depth(to),
            Type::Array { of, .. } => self.type_depth(of),
            Type::Function(prototype) => {
                let parts = prototype.params.iter().map(|param| &param.ty).chain([&prototype.result]);
                parts.map(|part| self.type_depth(part)).max().unwrap_or(0)
            }
            _ => 0,
        }
    }

    fn define_function(&mut self, name: String, prototype: Prototype, place: &Place) {
        if !self.unit.functions.iter().any(|function| function.name == name) {
            self.unit.functions.push(Function { name, prototype, place: place.clone() });
        }
    }

    /// Whether a type starts here.
    pub fn at_type(&self) -> bool {
        self.peek_word().is_some_and(|word| self.starts_type(word))
    }

    fn starts_type(&self, word: &str) -> bool {
        let keywords = [
            "const",
            "volatile",
            "void",
            "char",
            "short",
            "int",
            "long",
            "float",
            "double",
            "signed",
            "unsigned",
            "_Bool",
            "struct",
            "union",
            "enum",
            "__extension__",
        ];
        keywords.contains(&word) || self.unit.typedef_index.contains_key(word)
    }

    /// A type without a name, as in a cast or in `sizeof`.
    pub fn type_name(&mut self) -> Result<Type> {
        let specifiers = self.specifiers()?;
        let declared = self.declarator(specifiers.base)?;
        if declared.name.is_empty() {
            Ok(declared.ty)
        } else {
            Err(self.error("a name where a type belongs"))
        }
    }

    fn specifiers(&mut self) -> Result<Specifiers> {
        self.nested(|parser| parser.specifiers_here())
    }

    fn specifiers_here(&mut self) -> Result<Specifiers> {
        let (mut typedef, mut constant, mut align, mut ty) = (false, false, None, None);
        let mut arithmetic: Vec<&str> = Vec::new();
        while let Some(word) = self.peek_word() {
            match word {
                "typedef" => typedef = true,
                "const" => constant = true,
                "extern" | "static" | "inline" | "__inline" | "__inline__" | "volatile" | "register" => {}
                "__attribute__" | "__extension__" => {
                    self.skip_attributes()?;
                    continue;
                }
                "_Alignas" => {
                    self.at += 1;
                    align = align.max(Some(self.alignment()?));
                    continue;
                }
                "struct" | "union" | "enum" if ty.is_none() && arithmetic.is_empty() => {
                    self.at += 1;
                    ty = Some(if word == "enum" {
                        self.enumeration()?
                    } else {
                        self.record(word == "union")?
                    });
                    continue;
                }
                "void" | "char" | "short" | "int" | "long" | "float" | "double" | "signed" | "unsigned"
                | "_Bool"
                    if ty.is_none() && arithmetic.len() < 4 =>
                {
                    arithmetic.push(word);
                }
                name if ty.is_none()
                    && arithmetic.is_empty()
                    && self.unit.typedef_index.contains_key(name) =>
                {
                    ty = Some(Type::Named(name.to_owned()));
                }
                _ => break,
            }
            self.at += 1;
        }
        let ty = match ty {
            Some(ty) => ty,
            None if arithmetic.is_empty() => return Err(self.expected("a type")),
            None => arithmetic_type(&arithmetic)
                .ok_or_else(|| self.error(format!("`{}` is no type", arithmetic.join(" "))))?,
        };
        Ok(Specifiers { base: Qualified { ty, constant }, typedef, align })
    }

    /// After `_Alignas`: a power of two, or a type's alignment.
    fn alignment(&mut self) -> Result<u64> {
        self.expect("(")?;
        let align = if self.at_type() {
            let ty = self.type_name()?;
            self.unit.layout_of(&ty).map(|layout| layout.align)
        } else {
            u64::try_from(self.constant()?.value).ok()
        };
        self.expect(")")?;
        align
            .filter(|align| align.is_power_of_two() && *align <= 4096)
            .ok_or_else(|| self.error("alignment is no power of two up to 4096"))
    }

    /// `base` declares: pointers, a name or nothing, arrays and parameters.
    fn declarator(&mut self, base: Qualified) -> Result<Declared> {
        self.nested(|parser| parser.declarator_here(base))
    }

    fn declarator_here(&mut self, mut base: Qualified) -> Result<Declared> {
        self.skip_attributes()?;
        let mut stars = 0;
        while self.eat("*") {
            stars += 1;
            if stars > DEEPEST {
                return Err(self.error(format!("more than {DEEPEST} stars")));
            }
            base = Qualified {
                ty: Type::Pointer { to: Box::new(base.ty), constant: base.constant },
                constant: self.pointer_qualifiers()?,
            };
        }
        if self.parenthesised_declarator() {
            return self.inner_declarator(base);
        }
        let name = match self.peek_word() {
            Some(_) => self.word()?,
            None => String::new(),
        };
        let ty = self.suffixes(base.ty)?;
        Ok(Declared { name, ty })
    }

    fn pointer_qualifiers(&mut self) -> Result<bool> {
        let mut constant = false;
        loop {
            self.skip_attributes()?;
            match self.peek_word() {
                Some("const") => constant = true,
                Some("volatile" | "restrict" | "__restrict" | "__restrict__") => {}
                _ => return Ok(constant),
            }
            self.at += 1;
        }
    }

    /// `(*name)` and not `(int x)`: a parenthesis that groups a declarator.
    fn parenthesised_declarator(&self) -> bool {
        let after = self.tokens.get(self.at + 1).map(|token| &token.kind);
        let groups = match after {
            Some(Kind::Mark("*" | "(")) => true,
            Some(Kind::Word(word)) => word == "__attribute__" || !self.starts_type(word),
            _ => false,
        };
        matches!(self.peek(), Some(Kind::Mark("("))) && groups
    }

    /// Parses a declarator in parentheses. The suffixes behind the parentheses apply before the
    /// declarator in them: `(*f)(int)` is a pointer to a function.
    fn inner_declarator(&mut self, base: Qualified) -> Result<Declared> {
        self.expect("(")?;
        let inside = self.at;
        self.skip_balanced()?;
        let ty = self.suffixes(base.ty)?;
        let after = std::mem::replace(&mut self.at, inside);
        let declared = self.declarator(Qualified { ty, constant: false })?;
        self.expect(")")?;
        self.at = after;
        Ok(declared)
    }

    /// `[3][4]` or `(int, char)` after a name. Bounds apply from the right.
    fn suffixes(&mut self, base: Type) -> Result<Type> {
        if self.eat("(") {
            let params = self.params()?;
            return Ok(Type::Function(Box::new(Prototype { result: base, params })));
        }
        let mut bounds = Vec::new();
        while self.eat("[") {
            if self.eat("]") {
                bounds.push(None);
                continue;
            }
            let bound = self.constant()?;
            let bound = u64::try_from(bound.value).map_err(|_| self.error("an array's bound is negative"))?;
            bounds.push(Some(bound));
            self.expect("]")?;
            if bounds.len() > DEEPEST {
                return Err(self.error(format!("more than {DEEPEST} array bounds")));
            }
        }
        let array = |of, len| Type::Array { of: Box::new(of), len };
        Ok(bounds.into_iter().rev().fold(base, array))
    }

    /// After `(`: parameters, to behind `)`.
    fn params(&mut self) -> Result<Vec<Param>> {
        let mut params = Vec::new();
        if self.eat(")") {
            return Ok(params);
        }
        loop {
            if self.eat("...") {
                return Err(self.error("variable arguments are not understood"));
            }
            let specifiers = self.specifiers()?;
            let constant = specifiers.base.constant;
            let declared = self.declarator(specifiers.base)?;
            let ty = match declared.ty {
                Type::Array { of, .. } => Type::Pointer { to: of, constant },
                Type::Function(_) => Type::Pointer { to: Box::new(declared.ty), constant: false },
                ty => ty,
            };
            params.push(Param { name: declared.name, ty });
            if !self.eat(",") {
                break;
            }
        }
        self.expect(")")?;
        if matches!(&params[..], [Param { name, ty: Type::Void }] if name.is_empty()) {
            params.clear();
        }
        match params.iter().any(|param| param.ty == Type::Void) {
            true => Err(self.error("a parameter of type void")),
            false => Ok(params),
        }
    }
}

/// The type that a combination of keywords names, in any order.
fn arithmetic_type(words: &[&str]) -> Option<Type> {
    let count = |word: &str| words.iter().filter(|&&found| found == word).count();
    let signed = count("unsigned") == 0;
    let others = words.iter().filter(|word| !matches!(**word, "signed" | "unsigned" | "int")).copied();
    let others: Vec<&str> = others.collect();
    let plain = words.len() == 1;
    let ty = match others[..] {
        ["void"] if plain => Type::Void,
        ["float"] if plain => Type::Float { bits: 32 },
        ["double"] if plain => Type::Float { bits: 64 },
        ["_Bool"] if plain => Type::Int { bits: 8, signed: false },
        ["char"] if plain => Type::Char,
        ["char"] => Type::Int { bits: 8, signed },
        ["short"] => Type::Int { bits: 16, signed },
        [] if !words.is_empty() => Type::Int { bits: 32, signed },
        ["long"] | ["long", "long"] => Type::Int { bits: 64, signed },
        _ => return None,
    };
    let sane = count("int") <= 1 && count("signed") + count("unsigned") <= 1;
    sane.then_some(ty)
}
