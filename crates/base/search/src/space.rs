//! A space: parameters with their values, and restrictions.
//!
//! A configuration chooses a value of each parameter. Those that the restrictions allow are
//! enumerated once, in the order of their values, parameter by parameter; each restriction is
//! checked as soon as all its parameters have values. A configuration is then its number in this
//! order.
//!
//! Invariants: a space has at least one configuration and at most [`MOST_CONFIGURATIONS`]; names
//! and the values of a parameter are distinct.

use crate::Value;
use crate::expression::{Expression, Fault, MOST_ELEMENTS};
use apex_untrusted::printable;

/// Configurations of a space at most.
pub const MOST_CONFIGURATIONS: usize = 1 << 21;

/// Choices of values that are tried when a space is enumerated, at most.
const MOST_STEPS: u64 = 1 << 27;

/// Parameters at most.
const MOST_PARAMETERS: usize = 64;

/// A parameter.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// Its values.
    pub values: Vec<Value>,
}

impl Parameter {
    /// A parameter with these values.
    pub fn new<V: Into<Value>>(name: &str, values: impl IntoIterator<Item = V>) -> Self {
        Self { name: name.to_owned(), values: values.into_iter().map(Into::into).collect() }
    }
}

/// Why something is no space.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpaceError {
    /// There is no parameter.
    #[error("the space has no parameter")]
    NoParameter,
    /// There are more parameters than are searched.
    #[error("the space has more than {MOST_PARAMETERS} parameters")]
    TooManyParameters,
    /// A parameter has a name that no program could take.
    #[error(
        "`{0}` cannot be the name of a parameter: names have letters, digits and `_`, and begin with no digit"
    )]
    Name(String),
    /// Two parameters have one name.
    #[error("two parameters are called `{0}`")]
    SameName(String),
    /// A parameter has no values, or too many.
    #[error("parameter `{0}` has {1} values: 1 to {MOST_ELEMENTS} are possible")]
    Values(String, usize),
    /// A parameter has a value twice.
    #[error("parameter `{0}` has the value `{1}` twice")]
    SameValue(String, String),
    /// The restrictions allow nothing.
    #[error("the restrictions allow no configuration")]
    Empty,
    /// There are more configurations than are searched.
    #[error(
        "the space has more than {MOST_CONFIGURATIONS} configurations, or its restrictions refuse too many to find \
         them: take fewer values, or add restrictions about the first parameters"
    )]
    TooLarge,
    /// A restriction cannot be parsed, or fails for a configuration.
    #[error("restriction `{text}`: {fault}{at}")]
    Restriction {
        /// The restriction.
        text: String,
        /// The fault.
        fault: Fault,
        /// The configuration for which it fails, as text.
        at: String,
    },
}

/// The number of a configuration in its space.
pub type Number = u32;

/// See the [module](self).
#[derive(Clone, Debug)]
pub struct Space {
    parameters: Vec<Parameter>,
    restrictions: Vec<Expression>,
    /// The difference of codes for one step of each parameter's value.
    strides: Vec<u64>,
    /// The codes of the configurations, ascending.
    codes: Vec<u64>,
}

impl Space {
    /// The space of these parameters under these restrictions.
    ///
    /// # Errors
    /// [`SpaceError`].
    pub fn new(parameters: Vec<Parameter>, restrictions: &[&str]) -> Result<Self, SpaceError> {
        let strides = strides(&parameters)?;
        let parse = |text: &&str| {
            let names = parameters.iter().map(|parameter| &*parameter.name);
            Expression::parse(text, names).map_err(|fault| SpaceError::Restriction {
                text: printable(text).into_owned(),
                fault,
                at: String::new(),
            })
        };
        let restrictions = restrictions.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        let mut space = Self { parameters, restrictions, strides, codes: Vec::new() };
        space.codes = Enumeration::of(&space)?;
        if space.codes.is_empty() {
            return Err(SpaceError::Empty);
        }
        Ok(space)
    }

    /// The space of these configurations alone; each has a value of each parameter, as its place
    /// among the parameter's values.
    ///
    /// # Errors
    /// [`SpaceError`].
    pub fn of_configurations(parameters: Vec<Parameter>, all: &[Vec<usize>]) -> Result<Self, SpaceError> {
        let strides = strides(&parameters)?;
        let code = |digits: &Vec<usize>| {
            digits.iter().zip(&strides).map(|(&digit, stride)| digit as u64 * stride).sum()
        };
        let mut codes: Vec<u64> = all.iter().map(code).collect();
        codes.sort_unstable();
        codes.dedup();
        match codes.len() {
            0 => Err(SpaceError::Empty),
            1..=MOST_CONFIGURATIONS => Ok(Self { parameters, restrictions: Vec::new(), strides, codes }),
            _ => Err(SpaceError::TooLarge),
        }
    }

    /// The parameters.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// The restrictions.
    pub fn restrictions(&self) -> &[Expression] {
        &self.restrictions
    }

    /// The number of configurations, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "a space is never empty")]
    pub fn len(&self) -> usize {
        self.codes.len()
    }

    /// The place of a configuration's value among the values of a parameter.
    pub fn digit(&self, number: Number, parameter: usize) -> usize {
        let count = self.parameters[parameter].values.len() as u64;
        (self.codes[number as usize] / self.strides[parameter] % count) as usize
    }

    /// The values of a configuration, in the order of the parameters.
    pub fn values(&self, number: Number) -> Vec<Value> {
        let value = |at: usize| self.parameters[at].values[self.digit(number, at)].clone();
        (0..self.parameters.len()).map(value).collect()
    }

    /// The number of the configuration with these values, if the space has it.
    pub fn find<'v>(&self, value: impl Fn(&str) -> Option<&'v Value>) -> Option<Number> {
        let mut code = 0;
        for (parameter, stride) in self.parameters.iter().zip(&self.strides) {
            let value = value(&parameter.name)?;
            code += parameter.values.iter().position(|of| of == value)? as u64 * stride;
        }
        self.of_code(code)
    }

    /// The configuration that differs in the value of one parameter, if the space has it.
    pub fn with(&self, number: Number, parameter: usize, digit: usize) -> Option<Number> {
        let stride = self.strides[parameter];
        let own = self.digit(number, parameter) as u64 * stride;
        self.of_code(self.codes[number as usize] - own + digit as u64 * stride)
    }

    /// The configurations that differ in the value of one parameter.
    pub fn neighbours(&self, number: Number) -> Vec<Number> {
        let mut all = Vec::new();
        for (at, parameter) in self.parameters.iter().enumerate() {
            let own = self.digit(number, at);
            let others = (0..parameter.values.len()).filter(|&digit| digit != own);
            all.extend(others.filter_map(|digit| self.with(number, at, digit)));
        }
        all
    }

    /// A configuration as a person reads it: `block=32, tile=4`, of the parameters that have more
    /// than one value.
    pub fn describe(&self, number: Number) -> String {
        let mut text = String::new();
        for (parameter, value) in self.parameters.iter().zip(self.values(number)) {
            if parameter.values.len() > 1 {
                let comma = if text.is_empty() { "" } else { ", " };
                text += &format!("{comma}{}={value}", parameter.name);
            }
        }
        text
    }

    fn of_code(&self, code: u64) -> Option<Number> {
        self.codes.binary_search(&code).ok().map(|number| number as Number)
    }
}

/// Whether a text can name a parameter.
fn is_name(text: &str) -> bool {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !text.is_empty()
        && text.len() <= 128
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(is_of_name)
}

/// Checks the parameters. Returns the difference of codes for one step of each one's value.
fn strides(parameters: &[Parameter]) -> Result<Vec<u64>, SpaceError> {
    match parameters.len() {
        0 => return Err(SpaceError::NoParameter),
        1..=MOST_PARAMETERS => {}
        _ => return Err(SpaceError::TooManyParameters),
    }
    for (at, parameter) in parameters.iter().enumerate() {
        check(parameter)?;
        if parameters[..at].iter().any(|before| before.name == parameter.name) {
            return Err(SpaceError::SameName(parameter.name.clone()));
        }
    }
    let mut strides = vec![1u64; parameters.len()];
    for at in (1..parameters.len()).rev() {
        let stride = strides[at].checked_mul(parameters[at].values.len() as u64);
        strides[at - 1] = stride.ok_or(SpaceError::TooLarge)?;
    }
    strides[0].checked_mul(parameters[0].values.len() as u64).ok_or(SpaceError::TooLarge)?;
    Ok(strides)
}

fn check(parameter: &Parameter) -> Result<(), SpaceError> {
    let Parameter { name, values } = parameter;
    if !is_name(name) {
        return Err(SpaceError::Name(printable(name).into_owned()));
    }
    if values.is_empty() || values.len() > MOST_ELEMENTS {
        return Err(SpaceError::Values(name.clone(), values.len()));
    }
    let mut seen: Vec<String> = values.iter().map(identity).collect();
    seen.sort_unstable();
    match seen.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(SpaceError::SameValue(name.clone(), printable(&pair[0][1..]).into_owned())),
        None => Ok(()),
    }
}

/// A text that equal values share, and others do not.
fn identity(value: &Value) -> String {
    match value.number() {
        Some(number) if value.int().is_none_or(|int| int as f64 == number && int.abs() < 1 << 53) => {
            format!("n{number}")
        }
        Some(_) => format!("n{value}"),
        None => format!("t{value}"),
    }
}

/// The walk through all choices of values.
struct Enumeration<'s> {
    space: &'s Space,
    /// The restrictions that can be checked once a parameter has its value.
    due: Vec<Vec<&'s Expression>>,
    digits: Vec<usize>,
    codes: Vec<u64>,
    steps: u64,
}

impl<'s> Enumeration<'s> {
    fn of(space: &'s Space) -> Result<Vec<u64>, SpaceError> {
        let mut due = vec![Vec::new(); space.parameters.len()];
        for restriction in &space.restrictions {
            due[restriction.needs().last().copied().unwrap_or(0)].push(restriction);
        }
        let digits = vec![0; space.parameters.len()];
        let mut this = Self { space, due, digits, codes: Vec::new(), steps: 0 };
        this.walk(0, 0)?;
        Ok(this.codes)
    }

    fn walk(&mut self, at: usize, code: u64) -> Result<(), SpaceError> {
        let Some(parameter) = self.space.parameters.get(at) else {
            self.codes.push(code);
            return Ok(());
        };
        for digit in 0..parameter.values.len() {
            self.steps += 1;
            if self.steps > MOST_STEPS || self.codes.len() > MOST_CONFIGURATIONS {
                return Err(SpaceError::TooLarge);
            }
            self.digits[at] = digit;
            if self.allows(at)? {
                self.walk(at + 1, code + digit as u64 * self.space.strides[at])?;
            }
        }
        Ok(())
    }

    fn allows(&self, at: usize) -> Result<bool, SpaceError> {
        let of = |parameter: usize| self.space.parameters[parameter].values[self.digits[parameter]].clone();
        for restriction in &self.due[at] {
            match restriction.is_true(&of) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(fault) => return Err(self.failed(restriction, fault)),
            }
        }
        Ok(true)
    }

    fn failed(&self, restriction: &Expression, fault: Fault) -> SpaceError {
        let value = |&at: &usize| {
            let Parameter { name, values } = &self.space.parameters[at];
            format!("{name}={}", values[self.digits[at]])
        };
        let at: Vec<String> = restriction.needs().iter().map(value).collect();
        let text = printable(restriction.text()).into_owned();
        SpaceError::Restriction { text, fault, at: format!(" (with {})", at.join(", ")) }
    }
}
