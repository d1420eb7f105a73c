//! Files that describe a space: the short form, and the T1 files of Kernel Tuner and others.
//!
//! A file is foreign text: nothing in it is executed ([`expression`] evaluates arithmetic alone,
//! and the [space](crate::space) bounds the number of configurations). A member that the short form
//! does not have is refused, because a mistyped `restrictions` would allow everything.
//!
//! ```
//! let text = r#"{
//!     "parameters": {"block": [32, 64, 128, 256], "tile": "range(1, 9)"},
//!     "restrictions": ["block * tile <= 1024"],
//!     "original": {"block": 128, "tile": 1}
//! }"#;
//! let file = apex_search::input::read(text).unwrap();
//! assert_eq!(file.space.len(), 4 * 8 - 4);
//! ```

use crate::expression::{self, Fault};
use crate::space::{Number, Parameter, Space, SpaceError};
use crate::{Named, Value};
use serde::de::{Error as _, IgnoredAny};
use serde::{Deserialize, Deserializer};
use serde_json::Value as Json;
use std::collections::BTreeMap;

/// A space, and the configuration that the program has without tuning.
#[derive(Clone, Debug)]
pub struct Input {
    /// The space.
    pub space: Space,
    /// The original, if the file has one that is in the space.
    pub original: Option<Number>,
}

/// Why a file describes no space.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// It is no JSON of these forms.
    #[error("it describes no space: {0}")]
    Json(#[from] serde_json::Error),
    /// It has a member that the short form does not have.
    #[error("its member `{0}` has no meaning: there are `parameters`, `restrictions` and `original`")]
    Member(String),
    /// The values of a parameter are in no form that there is: the parameter, and what is wrong.
    #[error("the values of parameter `{0}`: {1}")]
    Form(String, String),
    /// Another member is in no form that there is: its name, and what it has to be.
    #[error("its member `{0}` must be {1}")]
    MemberForm(&'static str, &'static str),
    /// The values of a parameter cannot be evaluated.
    #[error("the values of parameter `{0}`: {1}")]
    Values(String, Fault),
    /// The parameters or restrictions make no space.
    #[error(transparent)]
    Space(#[from] SpaceError),
    /// A value of the original is none: the parameter, and what stands there.
    #[error("`original`: the value of `{0}` is `{1}`, and not a number, a text or a truth value")]
    OriginalValue(String, String),
    /// The original is no configuration of the space.
    #[error(
        "`original` is no configuration of the space: it needs a value of each parameter, and must keep the \
         restrictions"
    )]
    Original,
}

/// A file of either form.
#[derive(Deserialize)]
struct File {
    #[serde(default, deserialize_with = "parameters")]
    parameters: Option<Named<Json>>,
    restrictions: Option<Json>,
    #[serde(default, deserialize_with = "original")]
    original: Option<Named<Json>>,
    /// All allowed configurations, as places among the values.
    configurations: Option<Json>,
    #[serde(rename = "ConfigurationSpace")]
    t1: Option<Json>,
    /// What the short form does not have: a mistyped `restrictions` must not allow everything.
    #[serde(flatten)]
    others: BTreeMap<String, IgnoredAny>,
}

fn parameters<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Named<Json>>, D::Error> {
    object(from, "parameters")
}

fn original<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Named<Json>>, D::Error> {
    object(from, "original")
}

/// A member that is an object, whose order counts.
fn object<'de, D: Deserializer<'de>>(from: D, name: &str) -> Result<Option<Named<Json>>, D::Error> {
    let wrong = |error| D::Error::custom(format!("its member `{name}`: {error}"));
    Option::deserialize(from).map_err(wrong)
}

/// The values of a parameter: a list, or an expression as a text.
fn values(name: &str, given: &Json) -> Result<Vec<Value>, InputError> {
    let wrong = |what: String| InputError::Form(name.to_owned(), what);
    let value = |(at, given): (usize, &Json)| {
        Value::deserialize(given).map_err(|_| {
            wrong(format!("value {} is `{given}`, and not a number, a text or a truth value", at + 1))
        })
    };
    match given {
        Json::Array(all) => all.iter().enumerate().map(value).collect(),
        Json::String(text) => {
            expression::list(text).map_err(|fault| InputError::Values(name.to_owned(), fault))
        }
        other => Err(wrong(format!("`{other}` is neither a list nor an expression as a text"))),
    }
}

/// A member that must be of some form.
fn member<'j, T: Deserialize<'j>>(
    name: &'static str,
    form: &'static str,
    given: &'j Option<Json>,
) -> Result<Option<T>, InputError> {
    let read = |given: &'j Json| T::deserialize(given).map_err(|_| InputError::MemberForm(name, form));
    given.as_ref().map(read).transpose()
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ConfigurationSpace {
    tuning_parameters: Vec<TuningParameter>,
    #[serde(default)]
    conditions: Vec<Condition>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TuningParameter {
    name: String,
    values: Json,
    default: Option<Json>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Condition {
    expression: String,
}

/// Reads the text of a file.
///
/// # Errors
/// [`InputError`].
pub fn read(text: &str) -> Result<Input, InputError> {
    let file: File = serde_json::from_str(text)?;
    if let Some(t1) = file.t1 {
        return of_t1(serde_json::from_value(t1)?);
    }
    let Some(Named(parameters)) = file.parameters else {
        return Err(serde_json::Error::custom("it has no member `parameters`").into());
    };
    if let Some(name) = file.others.into_keys().next() {
        return Err(InputError::Member(name));
    }
    let parameters = parameters.into_iter().map(|(name, given)| {
        let values = values(&name, &given)?;
        Ok(Parameter { name, values })
    });
    let parameters = parameters.collect::<Result<Vec<_>, InputError>>()?;
    let form = "a list of expressions as texts";
    let restrictions: Vec<String> = member("restrictions", form, &file.restrictions)?.unwrap_or_default();
    let restrictions: Vec<&str> = restrictions.iter().map(String::as_str).collect();
    let form = "a list of lists of places among the values, from 0";
    let space = match member::<Vec<Vec<usize>>>("configurations", form, &file.configurations)? {
        Some(all) => listed(parameters, &all)?,
        None => Space::new(parameters, &restrictions)?,
    };
    let Some(Named(original)) = file.original else { return Ok(Input { space, original: None }) };
    let value = |(name, given): (String, Json)| match Value::deserialize(&given) {
        Ok(value) => Ok((name, value)),
        Err(_) => Err(InputError::OriginalValue(name, given.to_string())),
    };
    let original = original.into_iter().map(value).collect::<Result<Vec<_>, _>>()?;
    let found = space.find(|name| original.iter().find(|(of, _)| of == name).map(|(_, value)| value));
    let has_only = original.iter().all(|(name, _)| space.parameters().iter().any(|of| of.name == *name));
    match found.filter(|_| has_only) {
        Some(original) => Ok(Input { space, original: Some(original) }),
        None => Err(InputError::Original),
    }
}

/// The space of listed configurations, each of which must choose values that exist.
fn listed(parameters: Vec<Parameter>, all: &[Vec<usize>]) -> Result<Space, InputError> {
    let chooses = |row: &&Vec<usize>| {
        row.len() == parameters.len()
            && row.iter().zip(&parameters).all(|(&at, parameter)| at < parameter.values.len())
    };
    match all.iter().position(|row| !chooses(&row)) {
        Some(at) => {
            let what = format!("configuration {} chooses no value of each parameter", at + 1);
            Err(serde_json::Error::custom(what).into())
        }
        None => Ok(Space::of_configurations(parameters, all)?),
    }
}

fn of_t1(t1: ConfigurationSpace) -> Result<Input, InputError> {
    let mut defaults = Vec::new();
    let mut parameters = Vec::new();
    for TuningParameter { name, values: given, default } in t1.tuning_parameters {
        let values = values(&name, &given)?;
        defaults.push((name.clone(), default.and_then(first_value)));
        parameters.push(Parameter { name, values });
    }
    let conditions: Vec<&str> = t1.conditions.iter().map(|condition| condition.expression.as_str()).collect();
    let space = Space::new(parameters, &conditions)?;
    let original = space.find(|name| defaults.iter().find(|(of, _)| of == name)?.1.as_ref());
    Ok(Input { space, original })
}

/// A default, which some files write as a list of one.
fn first_value(default: Json) -> Option<Value> {
    let default = match default {
        Json::Array(all) => all.into_iter().next()?,
        value => value,
    };
    serde_json::from_value(default).ok()
}
