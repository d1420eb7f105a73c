//! The parser: one function for each level of precedence, lowest first.

use super::lexer::{Word, words};
use super::{FUNCTIONS, Fault};
use crate::Value;
use std::collections::BTreeSet;

/// Expressions inside expressions at most.
const DEEPEST: usize = 48;

/// A parsed expression.
#[derive(Clone, Debug)]
pub enum Tree {
    Value(Value),
    /// The value of a parameter.
    Parameter(usize),
    /// The value of the loop at this depth, from outside.
    Loop(usize),
    Not(Box<Tree>),
    Negated(Box<Tree>),
    Inverted(Box<Tree>),
    /// `+x`: an integer of a truth value.
    Positive(Box<Tree>),
    And(Vec<Tree>),
    Or(Vec<Tree>),
    Arithmetic(&'static str, Box<(Tree, Tree)>),
    /// `a < b <= c`
    Compared(Box<Tree>, Vec<(Comparison, Tree)>),
    /// `yes if condition else no`, as condition, yes, no.
    Either(Box<(Tree, Tree, Tree)>),
    Call(&'static str, Vec<Tree>),
    Range(Vec<Tree>),
    List(Vec<Tree>),
    /// `[element for x in list if condition]`
    Each(Box<(Tree, Tree, Option<Tree>)>),
}

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    Less,
    AtMost,
    More,
    AtLeast,
    Equal,
    Different,
    In,
    NotIn,
}

/// Parses a text. Also returns the parameters that it names, ascending.
pub fn parse(text: &str, names: &[&str]) -> Result<(Tree, Vec<usize>), Fault> {
    let words = words(text)?;
    let mut parser = Parser { words, at: 0, names, loops: Vec::new(), needs: BTreeSet::new(), depth: 0 };
    let tree = parser.expression()?;
    match parser.word() {
        Word::End => Ok((tree, parser.needs.into_iter().collect())),
        _ => Err(parser.unexpected()),
    }
}

struct Parser<'n> {
    words: Vec<(Word, usize)>,
    at: usize,
    names: &'n [&'n str],
    loops: Vec<String>,
    needs: BTreeSet<usize>,
    depth: usize,
}

type Parsed = Result<Tree, Fault>;

impl Parser<'_> {
    fn word(&self) -> &Word {
        &self.words[self.at].0
    }

    fn fault(&self, what: impl Into<String>) -> Fault {
        Fault { what: what.into(), column: self.words[self.at].1 }
    }

    fn unexpected(&self) -> Fault {
        match self.word() {
            Word::End => self.fault("the expression ends too early"),
            Word::Sign("=") => self.fault("`=` assigns; `==` compares"),
            Word::Sign(sign) => self.fault(format!("unexpected `{sign}`")),
            Word::Name(name) => self.fault(format!("unexpected `{name}`")),
            _ => self.fault("an operator is missing before this value"),
        }
    }

    fn takes(&mut self, sign: &str) -> bool {
        let found = matches!(self.word(), Word::Sign(found) if *found == sign);
        self.at += usize::from(found);
        found
    }

    fn takes_name(&mut self, name: &str) -> bool {
        let found = matches!(self.word(), Word::Name(found) if found == name);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, sign: &'static str) -> Result<(), Fault> {
        match self.takes(sign) {
            true => Ok(()),
            false => Err(self.fault(format!("`{sign}` is missing"))),
        }
    }

    fn any_of<T: Copy>(&mut self, signs: &[(&'static str, T)]) -> Option<T> {
        let (_, found) =
            *signs.iter().find(|(sign, _)| matches!(self.word(), Word::Sign(found) if found == sign))?;
        self.at += 1;
        Some(found)
    }

    /// `a if c else b`, and what binds closer.
    fn expression(&mut self) -> Parsed {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.fault(format!("more than {DEEPEST} expressions inside each other")));
        }
        let yes = self.or()?;
        let tree = if self.takes_name("if") {
            let condition = self.or()?;
            if !self.takes_name("else") {
                return Err(self.fault("`else` is missing"));
            }
            Tree::Either(Box::new((condition, yes, self.expression()?)))
        } else {
            yes
        };
        self.depth -= 1;
        Ok(tree)
    }

    fn or(&mut self) -> Parsed {
        let mut all = vec![self.and()?];
        while self.takes_name("or") {
            all.push(self.and()?);
        }
        Ok(if all.len() == 1 { all.remove(0) } else { Tree::Or(all) })
    }

    fn and(&mut self) -> Parsed {
        let mut all = vec![self.not()?];
        while self.takes_name("and") {
            all.push(self.not()?);
        }
        Ok(if all.len() == 1 { all.remove(0) } else { Tree::And(all) })
    }

    fn not(&mut self) -> Parsed {
        if self.takes_name("not") {
            return Ok(Tree::Not(Box::new(self.nested(Self::not)?)));
        }
        self.comparison()
    }

    /// Parses an operand, one level deeper.
    fn nested(&mut self, operand: fn(&mut Self) -> Parsed) -> Parsed {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.fault(format!("more than {DEEPEST} expressions inside each other")));
        }
        let tree = operand(self)?;
        self.depth -= 1;
        Ok(tree)
    }

    fn comparison(&mut self) -> Parsed {
        let first = self.bitwise(0)?;
        let mut rest = Vec::new();
        while let Some(comparison) = self.compares() {
            rest.push((comparison, self.bitwise(0)?));
        }
        Ok(if rest.is_empty() { first } else { Tree::Compared(Box::new(first), rest) })
    }

    fn compares(&mut self) -> Option<Comparison> {
        use Comparison::{AtLeast, AtMost, Different, Equal, In, Less, More, NotIn};
        if self.takes_name("in") {
            return Some(In);
        }
        let next = self.words.get(self.at + 1).map(|(word, _)| word);
        if matches!((self.word(), next), (Word::Name(not), Some(Word::Name(word))) if not == "not" && word == "in")
        {
            self.at += 2;
            return Some(NotIn);
        }
        self.any_of(&[
            ("<=", AtMost),
            (">=", AtLeast),
            ("==", Equal),
            ("!=", Different),
            ("<", Less),
            (">", More),
        ])
    }

    /// Operators from `|` to `*`, by level.
    fn bitwise(&mut self, level: usize) -> Parsed {
        const LEVELS: [&[(&str, &str)]; 6] = [
            &[("|", "|")],
            &[("^", "^")],
            &[("&", "&")],
            &[("<<", "<<"), (">>", ">>")],
            &[("+", "+"), ("-", "-")],
            &[("*", "*"), ("//", "//"), ("/", "/"), ("%", "%")],
        ];
        let Some(signs) = LEVELS.get(level) else { return self.signed() };
        let mut left = self.bitwise(level + 1)?;
        let mut links = 0;
        while let Some(sign) = self.any_of(signs) {
            links += 1;
            if links > 4 * DEEPEST {
                return Err(self.fault(format!("more than {} terms in a row", 4 * DEEPEST)));
            }
            left = Tree::Arithmetic(sign, Box::new((left, self.bitwise(level + 1)?)));
        }
        Ok(left)
    }

    fn signed(&mut self) -> Parsed {
        let sign = self.any_of(&[("-", '-'), ("~", '~'), ("+", '+')]);
        let Some(sign) = sign else { return self.power() };
        let operand = Box::new(self.nested(Self::signed)?);
        Ok(match sign {
            '-' => Tree::Negated(operand),
            '~' => Tree::Inverted(operand),
            _ => Tree::Positive(operand),
        })
    }

    fn power(&mut self) -> Parsed {
        let base = self.atom()?;
        match self.takes("**") {
            true => Ok(Tree::Arithmetic("**", Box::new((base, self.nested(Self::signed)?)))),
            false => Ok(base),
        }
    }

    fn atom(&mut self) -> Parsed {
        let tree = match self.word().clone() {
            Word::Int(int) => self.consume(Tree::Value(Value::Int(int))),
            Word::Float(float) => self.consume(Tree::Value(Value::Float(float))),
            Word::Text(text) => self.consume(Tree::Value(Value::text(&text))),
            Word::Name(name) => self.name(&name)?,
            Word::Sign("(") => self.parentheses()?,
            Word::Sign("[") => self.list()?,
            Word::Sign("{") => return Err(self.fault("sets and dictionaries are not supported")),
            _ => return Err(self.unexpected()),
        };
        match self.word() {
            Word::Sign("[") => Err(self.fault("elements of lists (`x[…]`) are not supported")),
            Word::Sign("(") => Err(self.fault("only functions by name can be called")),
            Word::Sign(".") => Err(self.fault("attributes (`x.y`) are not supported")),
            _ => Ok(tree),
        }
    }

    /// Goes past the word of which this tree was made.
    fn consume(&mut self, tree: Tree) -> Tree {
        self.at += 1;
        tree
    }

    fn name(&mut self, name: &str) -> Parsed {
        match name {
            "True" => return Ok(self.consume(Tree::Value(Value::Bool(true)))),
            "False" => return Ok(self.consume(Tree::Value(Value::Bool(false)))),
            "lambda" | "await" | "yield" | "None" | "is" | "for" | "if" | "else" | "not" | "and" | "or"
            | "in" => {
                return Err(self.fault(format!("`{name}` is not supported here")));
            }
            _ => {}
        }
        if let Some(depth) = self.loops.iter().rposition(|of| of == name) {
            return Ok(self.consume(Tree::Loop(depth)));
        }
        if let Some(parameter) = self.names.iter().position(|of| *of == name) {
            self.needs.insert(parameter);
            return Ok(self.consume(Tree::Parameter(parameter)));
        }
        match self.words.get(self.at + 1) {
            Some((Word::Sign("("), _)) => self.call(name),
            Some((Word::Sign("="), _)) => Err(self.fault("arguments by name are not supported")),
            _ => Err(self.fault(format!("`{name}` is no parameter"))),
        }
    }

    fn call(&mut self, name: &str) -> Parsed {
        let column = self.words[self.at].1;
        self.at += 2;
        let refused = |what: String| Fault { what, column };
        if name == "list" || name == "tuple" {
            let inner = self.expression()?;
            self.expect(")")?;
            return match inner {
                Tree::Range(_) | Tree::List(_) | Tree::Each(_) => Ok(inner),
                _ => Err(refused(format!("`{name}` takes a list or a range"))),
            };
        }
        let known = FUNCTIONS.into_iter().find(|of| *of == name);
        if known.is_none() && name != "range" {
            return Err(refused(format!(
                "calls of `{name}` are not supported (these are: {}, range)",
                FUNCTIONS.join(", ")
            )));
        }
        let arguments = self.elements(")")?;
        Ok(match known {
            Some(function) => Tree::Call(function, arguments),
            None => Tree::Range(arguments),
        })
    }

    /// `(a)`, or a tuple.
    fn parentheses(&mut self) -> Parsed {
        self.at += 1;
        if self.takes(")") {
            return Ok(Tree::List(Vec::new()));
        }
        let first = self.expression()?;
        if self.takes(")") {
            return Ok(first);
        }
        if !self.takes(",") {
            return Err(self.fault("`)` is missing"));
        }
        let mut all = vec![first];
        all.extend(self.elements(")")?);
        Ok(Tree::List(all))
    }

    fn list(&mut self) -> Parsed {
        self.at += 1;
        match self.loop_ahead() {
            Some((name, at)) => self.each(name, at),
            None => Ok(Tree::List(self.elements("]")?)),
        }
    }

    /// The name of the loop of a list comprehension that begins here, and the place of its `for`:
    /// the element is parsed after its name is known.
    fn loop_ahead(&self) -> Option<(String, usize)> {
        let mut open = 0usize;
        for at in self.at..self.words.len() {
            match &self.words[at].0 {
                Word::Sign("(" | "[") => open += 1,
                Word::Sign(")" | "]") => open = open.checked_sub(1)?,
                Word::Name(word) if word == "for" && open == 0 => {
                    return match self.words.get(at + 1) {
                        Some((Word::Name(name), _)) if !name.contains('.') => Some((name.clone(), at)),
                        _ => None,
                    };
                }
                _ => {}
            }
        }
        None
    }

    fn each(&mut self, name: String, at_for: usize) -> Parsed {
        self.loops.push(name.clone());
        let element = self.expression()?;
        if self.at != at_for {
            return Err(self.unexpected());
        }
        self.loops.pop();
        self.at += 2;
        if !self.takes_name("in") {
            return Err(self.fault("`in` is missing"));
        }
        let list = self.nested(Self::or)?;
        self.loops.push(name);
        let condition = self.takes_name("if").then(|| self.nested(Self::or)).transpose()?;
        self.loops.pop();
        self.expect("]")?;
        Ok(Tree::Each(Box::new((element, list, condition))))
    }

    /// Expressions with commas between them, and the sign that ends them.
    fn elements(&mut self, end: &'static str) -> Result<Vec<Tree>, Fault> {
        let mut all = Vec::new();
        while !self.takes(end) {
            all.push(self.expression()?);
            if !self.takes(",") {
                self.expect(end)?;
                break;
            }
        }
        Ok(all)
    }
}
