//! Reads the table's notation, which the module above explains. A mistake in a table is found by
//! the first test that looks at it, so messages here are for whoever edits the tables.

use super::expand::Choice;
use super::target::Need;
use super::{Form, Kind, OperandForm, Selector};
use crate::syntax::{ScalarType, StateSpace};

/// A part of a mnemonic.
#[derive(Clone, Debug)]
pub(super) enum Part {
    /// A modifier, without its dot.
    Word(&'static str),
    /// One of several.
    Group { name: Option<&'static str>, optional: bool, branches: Vec<Branch> },
}

/// A choice of a group.
#[derive(Clone, Debug)]
pub(super) struct Branch {
    pub(super) parts: Vec<Part>,
    /// The needs beyond those of the line; none if empty.
    pub(super) needs: Vec<Need>,
}

/// An operand as noted; its kind may depend on the choices.
#[derive(Clone, Debug)]
pub(super) struct Operand {
    name: &'static str,
    presence: Presence,
    kind: KindNote,
}

#[derive(Clone, Copy, Debug)]
enum Presence {
    Always,
    Optional,
    /// If the group of this name chose something.
    With(&'static str),
}

#[derive(Clone, Debug)]
enum KindNote {
    Fixed(Kind),
    Value { ty: TypeNote, length: Length, constant: bool, wider: bool, symbol: bool, sink: bool },
    Selected(TypeNote, Selector),
    Pair(Box<KindNote>, Box<KindNote>, bool),
    Address { space: SpaceNote, sampler: bool, rest: Vec<KindNote> },
}

#[derive(Clone, Debug)]
enum TypeNote {
    Fixed(ScalarType),
    Chosen(&'static str),
    Wide(Box<TypeNote>),
    Bits(Box<TypeNote>),
}

#[derive(Clone, Copy, Debug)]
enum Length {
    Scalar,
    Fixed(usize),
    /// The group's choice, times one number, divided by another.
    Chosen(&'static str, usize, usize),
}

#[derive(Clone, Copy, Debug)]
enum SpaceNote {
    Fixed(Option<StateSpace>),
    Chosen(&'static str),
}

type ReadResult<T> = Result<T, String>;

/// The forms of a chapter.
pub(super) fn read(chapter: &'static str, text: &'static str) -> ReadResult<Vec<Form>> {
    let mut reader = Reader { sets: Vec::new(), needs: Vec::new() };
    let mut forms = Vec::new();
    for line in logical_lines(text) {
        let said = |error: String| format!("{chapter}: {line}: {error}");
        let definition =
            |text: &'static str| text.split_once('=').map(|(name, value)| (name.trim(), value.trim()));
        if let Some(set) = line.strip_prefix("let ") {
            let (name, choices) = definition(set).ok_or_else(|| said("no `=`".to_owned()))?;
            let branches = reader.branches(choices).map_err(said)?;
            reader.sets.push((name, branches));
        } else if let Some(needs) = line.strip_prefix("needs ") {
            let (name, needs) = definition(needs).ok_or_else(|| said("no `=`".to_owned()))?;
            let needs = reader.needs(needs, " or ").map_err(said)?;
            reader.needs.push((name, needs));
        } else {
            forms.push(reader.form(chapter, line).map_err(said)?);
        }
    }
    Ok(forms)
}

/// Lines with their continuations, without comments.
fn logical_lines(text: &'static str) -> Vec<&'static str> {
    let mut spans: Vec<(usize, usize)> = Vec::new();
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        let end = offset + line.trim_end().len();
        match line.as_bytes().first() {
            None | Some(b'#' | b'\n') => {}
            Some(b' ') => {
                if let Some(last) = spans.last_mut() {
                    last.1 = end;
                }
            }
            Some(_) => spans.push((offset, end)),
        }
        offset += line.len();
    }
    spans.into_iter().map(|(start, end)| &text[start..end]).collect()
}

struct Reader {
    sets: Vec<(&'static str, Vec<Branch>)>,
    needs: Vec<(&'static str, Vec<Need>)>,
}

impl Reader {
    fn form(&self, chapter: &'static str, line: &'static str) -> ReadResult<Form> {
        let (rest, needs) = line.rsplit_once(" | ").ok_or("no ` | ` before what it needs")?;
        let (mnemonic, operands) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let end = mnemonic.find(['.', '<', '{']).unwrap_or(mnemonic.len());
        let operands = split(operands, ',').into_iter().filter(|text| !text.is_empty());
        Ok(Form {
            chapter,
            opcode: &mnemonic[..end],
            text: line,
            parts: self.parts(&mnemonic[end..])?,
            operands: operands.map(operand).collect::<ReadResult<_>>()?,
            needs: self.needs(needs, " or ")?,
        })
    }

    /// Alternatives, or the name of some.
    fn needs(&self, text: &str, separator: &str) -> ReadResult<Vec<Need>> {
        let text = text.trim();
        if let Some((_, needs)) = self.needs.iter().find(|(name, _)| *name == text) {
            return Ok(needs.clone());
        }
        let alternatives = text.split(separator).filter(|need| !need.is_empty());
        alternatives.map(|need| need.trim().parse()).collect()
    }

    /// `.word`, `<…>`, `{…}` one after the other.
    fn parts(&self, text: &'static str) -> ReadResult<Vec<Part>> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let length = match first {
                '.' => rest[1..].find(['.', '<', '{']).map_or(rest.len(), |end| end + 1),
                '<' | '{' => closing(rest)? + 1,
                _ => return Err(format!("`{rest}` does not start with a dot or a group")),
            };
            let (part, after) = rest.split_at(length);
            parts.push(match first {
                '.' => Part::Word(&part[1..]),
                _ => self.group(&part[1..length - 1], first == '{')?,
            });
            rest = after;
        }
        Ok(parts)
    }

    fn group(&self, text: &'static str, optional: bool) -> ReadResult<Part> {
        let (name, choices) = match text.split_once('=') {
            Some((name, choices)) if name.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
                (Some(name), choices)
            }
            _ => (None, text),
        };
        Ok(Part::Group { name, optional, branches: self.branches(choices)? })
    }

    fn branches(&self, text: &'static str) -> ReadResult<Vec<Branch>> {
        let mut branches = Vec::new();
        for choice in split(text, '|') {
            if choice.starts_with(|c: char| c.is_ascii_uppercase()) {
                let set = self.sets.iter().find(|(name, _)| *name == choice);
                branches.extend(set.ok_or_else(|| format!("no `let {choice}`"))?.1.iter().cloned());
                continue;
            }
            let at = choice.rfind('@').filter(|at| !choice[*at..].contains(['>', '}']));
            let (parts, needs) = at.map_or((choice, ""), |at| (&choice[..at], &choice[at + 1..]));
            branches.push(Branch { parts: self.parts(parts)?, needs: self.needs(needs, "+")? });
        }
        Ok(branches)
    }
}

/// Returns the offset of the bracket that closes the one at the start of `text`.
fn closing(text: &str) -> ReadResult<usize> {
    let mut depth = 0usize;
    for (offset, byte) in text.bytes().enumerate() {
        match byte {
            b'<' | b'{' | b'[' | b'(' => depth += 1,
            b'>' | b'}' | b']' | b')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return Ok(offset);
        }
    }
    Err(format!("`{text}` does not close"))
}

/// `text` at every `separator` outside brackets, without blanks around the pieces.
fn split(text: &'static str, separator: char) -> Vec<&'static str> {
    let mut pieces = Vec::new();
    let (mut depth, mut start) = (0i32, 0);
    for (offset, c) in text.char_indices() {
        match c {
            '<' | '{' | '[' | '(' => depth += 1,
            '>' | '}' | ']' | ')' => depth -= 1,
            _ if c == separator && depth == 0 => {
                pieces.push(text[start..offset].trim());
                start = offset + c.len_utf8();
            }
            _ => {}
        }
    }
    pieces.push(text[start..].trim());
    pieces
}

/// `name:kind`, `name?:kind`, `name?X:kind`.
fn operand(text: &'static str) -> ReadResult<Operand> {
    let (name, kind) = text.split_once(':').ok_or_else(|| format!("`{text}` has no kind"))?;
    let (name, presence) = match name.split_once('?') {
        None => (name, Presence::Always),
        Some((name, "")) => (name, Presence::Optional),
        Some((name, group)) => (name, Presence::With(group)),
    };
    Ok(Operand { name, presence, kind: kind_note(kind, !name.starts_with('d'))? })
}

fn kind_note(text: &'static str, read: bool) -> ReadResult<KindNote> {
    if let Some((first, second)) = text.strip_suffix('}').and_then(|text| text.split_once("{|")) {
        return Ok(KindNote::Pair(kind_note(first, read)?.into(), kind_note(second, read)?.into(), true));
    }
    let brackets = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    if let Some(inside) = brackets.filter(|inside| *inside != "tensor") {
        return address(inside);
    }
    if let [first, second] = split(text, '|')[..] {
        return Ok(KindNote::Pair(kind_note(first, read)?.into(), kind_note(second, read)?.into(), false));
    }
    if let Some(bounds) = inside(text, "imm") {
        let bound = |text: &str| text.parse().map_err(|_| format!("`{text}` is not a bound"));
        let (least, most) = bounds.split_once("..").ok_or("a range is `imm(0..7)`")?;
        return Ok(KindNote::Fixed(Kind::Immediate(bound(least)?, bound(most)?)));
    }
    for (function, selector) in
        [("part", Selector::Part), ("halves", Selector::Halves), ("bytes", Selector::Bytes)]
    {
        if let Some(ty) = inside(text, function) {
            return Ok(KindNote::Selected(type_note(ty)?, selector));
        }
    }
    let fixed = match text {
        "pred" => Kind::Predicate,
        "sink" => Kind::Sink,
        "[tensor]" => Kind::TensorAddress,
        "label" => Kind::Label,
        "function" => Kind::Function,
        "list" => Kind::List,
        "targets" => Kind::Targets,
        "table" => Kind::Table,
        _ => return value(text, read),
    };
    Ok(KindNote::Fixed(fixed))
}

/// Returns the text inside `function( … )`.
fn inside(text: &'static str, function: &str) -> Option<&'static str> {
    text.strip_prefix(function)?.strip_prefix('(')?.strip_suffix(')')
}

/// `type`, `type*length`, with `!`, `+`, `&` or `_` behind.
fn value(text: &'static str, read: bool) -> ReadResult<KindNote> {
    let flags = text.len() - text.trim_end_matches(['!', '+', '&', '_']).len();
    let (plain, flags) = text.split_at(text.len() - flags);
    let (ty, length) = match plain.split_once('*') {
        None => (plain, Length::Scalar),
        Some((ty, length)) => (ty, self::length(length)?),
    };
    Ok(KindNote::Value {
        ty: type_note(ty)?,
        length,
        constant: read && !flags.contains('!'),
        wider: flags.contains('+'),
        symbol: flags.contains('&'),
        sink: flags.contains('_'),
    })
}

/// `4`, `V`, `V*2`, `V/4`.
fn length(text: &'static str) -> ReadResult<Length> {
    let number = |text: &str| text.parse().map_err(|_| format!("`{text}` is not a number"));
    if let Some((group, factor)) = text.split_once('*') {
        return Ok(Length::Chosen(group, number(factor)?, 1));
    }
    if let Some((group, divisor)) = text.split_once('/') {
        return Ok(Length::Chosen(group, 1, number(divisor)?));
    }
    Ok(text.parse().map_or(Length::Chosen(text, 1, 1), Length::Fixed))
}

fn type_note(text: &'static str) -> ReadResult<TypeNote> {
    if let Some(inner) = inside(text, "wide") {
        return Ok(TypeNote::Wide(type_note(inner)?.into()));
    }
    if let Some(inner) = inside(text, "bits") {
        return Ok(TypeNote::Bits(type_note(inner)?.into()));
    }
    if text.starts_with(|c: char| c.is_ascii_uppercase()) {
        return Ok(TypeNote::Chosen(text));
    }
    register_type(text).map(TypeNote::Fixed).ok_or_else(|| format!("`{text}` is not a type"))
}

/// `space` or `space; kind, kind`.
fn address(text: &'static str) -> ReadResult<KindNote> {
    let (space, rest) = text.split_once(';').unwrap_or((text, ""));
    let sampler = space == "tex" && !rest.is_empty();
    let space = match space {
        "" | "tex" | "surf" => SpaceNote::Fixed(None),
        _ if space.starts_with(|c: char| c.is_ascii_uppercase()) => SpaceNote::Chosen(space),
        _ => SpaceNote::Fixed(Some(
            StateSpace::from_name(space).ok_or_else(|| format!("`{space}` is not a state space"))?,
        )),
    };
    let rest = split(rest, ',').into_iter().filter(|text| !text.is_empty());
    Ok(KindNote::Address {
        space,
        sampler,
        rest: rest.map(|text| kind_note(text, true)).collect::<ReadResult<_>>()?,
    })
}

/// The type of registers that hold what a modifier names.
fn register_type(name: &str) -> Option<ScalarType> {
    ScalarType::from_name(name)
}

impl Operand {
    /// Whether the instruction writes it.
    pub(super) fn is_written(&self) -> bool {
        self.name.starts_with('d')
    }

    /// Returns the operand for these choices; `None` if it is absent.
    pub(super) fn choose(&self, choice: &Choice) -> Option<OperandForm> {
        if let Presence::With(group) = self.presence {
            choice.word(group)?;
        }
        let optional = matches!(self.presence, Presence::Optional);
        Some(OperandForm { name: self.name, optional, kind: self.kind.choose(choice) })
    }
}

impl KindNote {
    fn choose(&self, choice: &Choice) -> Kind {
        match self {
            KindNote::Fixed(kind) => kind.clone(),
            KindNote::Selected(ty, selector) => Kind::Selected(ty.choose(choice), *selector),
            KindNote::Pair(first, second, optional) => {
                Kind::Pair(first.choose(choice).into(), second.choose(choice).into(), *optional)
            }
            KindNote::Address { space, sampler, rest } => Kind::Address {
                sampler: *sampler,
                space: space.choose(choice),
                rest: rest.iter().map(|kind| kind.choose(choice)).collect(),
            },
            KindNote::Value { ty, length, constant, wider, symbol, sink } => {
                let ty = ty.choose(choice);
                let chosen = matches!(length, Length::Chosen(..));
                if ty == ScalarType::Pred {
                    return Kind::Predicate;
                }
                let length = length.choose(choice);
                // Where the form can be scalar, only a component can be dropped.
                let sink = *sink && (length.is_some() || !chosen);
                let value = Kind::Value {
                    ty,
                    constant: *constant && has_constants(ty),
                    wider: *wider,
                    symbol: *symbol,
                    sink,
                };
                match length {
                    None => value,
                    Some(length) => Kind::Vector(value.into(), length),
                }
            }
        }
    }
}

impl Length {
    fn choose(self, choice: &Choice) -> Option<usize> {
        match self {
            Length::Scalar => None,
            Length::Fixed(length) => Some(length),
            Length::Chosen(group, factor, divisor) => {
                choice.word(group).and_then(number_in).map(|number| number * factor / divisor)
            }
        }
    }
}

/// The number in `v4`, `x2`, `3d`; in the shape of a matrix the one after `n`.
fn number_in(word: &str) -> Option<usize> {
    let start = word.find('n').map_or(0, |place| place + 1);
    let digits = word[start..].trim_start_matches(|c: char| !c.is_ascii_digit());
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().ok()
}

impl SpaceNote {
    fn choose(self, choice: &Choice) -> Option<StateSpace> {
        match self {
            SpaceNote::Fixed(space) => space,
            SpaceNote::Chosen(group) => choice.word(group).and_then(|word| {
                // `shared::cluster`, `param::entry`: the space before the colons.
                StateSpace::from_name(word.split("::").next().unwrap_or(word))
            }),
        }
    }
}

impl TypeNote {
    /// The type; 32 bits where a group chose none or no type, which the table's test rules out.
    fn choose(&self, choice: &Choice) -> ScalarType {
        match self {
            TypeNote::Fixed(ty) => *ty,
            TypeNote::Chosen(group) => choice.word(group).and_then(register_type).unwrap_or(ScalarType::B32),
            TypeNote::Wide(inner) => wide(inner.choose(choice)),
            TypeNote::Bits(inner) => bits(inner.choose(choice)),
        }
    }
}

/// Whether PTX has constants of the type: it has none of half precision, of pairs and of smaller
/// floats.
fn has_constants(ty: ScalarType) -> bool {
    use ScalarType::*;
    matches!(ty, F32 | F64) || !ty.is_float() && !matches!(ty, U16x2 | S16x2)
}

fn wide(ty: ScalarType) -> ScalarType {
    match ty {
        ScalarType::U16 => ScalarType::U32,
        ScalarType::S16 => ScalarType::S32,
        ScalarType::U32 => ScalarType::U64,
        ScalarType::S32 => ScalarType::S64,
        other => other,
    }
}

fn bits(ty: ScalarType) -> ScalarType {
    match ty.bytes() {
        1 => ScalarType::B8,
        2 => ScalarType::B16,
        4 => ScalarType::B32,
        8 => ScalarType::B64,
        _ => ScalarType::B128,
    }
}
