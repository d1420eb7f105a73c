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
use serde::Deserialize;
use serde::de::IgnoredAny;
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
    /// The values of a parameter cannot be evaluated.
    #[error("the values of parameter `{0}`: {1}")]
    Values(String, Fault),
    /// The parameters or restrictions make no space.
    #[error(transparent)]
    Space(#[from] SpaceError),
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
    parameters: Option<Named<Values>>,
    #[serde(default)]
    restrictions: Vec<String>,
    original: Option<Named<Value>>,
    /// All allowed configurations, as places among the values.
    configurations: Option<Vec<Vec<usize>>>,
    #[serde(rename = "ConfigurationSpace")]
    t1: Option<ConfigurationSpace>,
    /// What the short form does not have: a mistyped `restrictions` must not allow everything.
    #[serde(flatten)]
    others: BTreeMap<String, IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Values {
    List(Vec<Value>),
    /// An expression.
    Text(String),
}

impl Values {
    fn evaluate(self, name: &str) -> Result<Vec<Value>, InputError> {
        match self {
            Self::List(values) => Ok(values),
            Self::Text(text) => {
                expression::list(&text).map_err(|fault| InputError::Values(name.to_owned(), fault))
            }
        }
    }
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
    values: Values,
    default: Option<serde_json::Value>,
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
        return of_t1(t1);
    }
    let Some(Named(parameters)) = file.parameters else {
        return Err(<serde_json::Error as serde::de::Error>::custom("it has no member `parameters`").into());
    };
    if let Some(name) = file.others.into_keys().next() {
        return Err(InputError::Member(name));
    }
    let parameters = parameters.into_iter().map(|(name, values)| {
        let values = values.evaluate(&name)?;
        Ok(Parameter { name, values })
    });
    let parameters = parameters.collect::<Result<Vec<_>, InputError>>()?;
    let restrictions: Vec<&str> = file.restrictions.iter().map(String::as_str).collect();
    let space = match file.configurations {
        Some(all) => listed(parameters, &all)?,
        None => Space::new(parameters, &restrictions)?,
    };
    let Some(Named(original)) = file.original else { return Ok(Input { space, original: None }) };
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
            Err(<serde_json::Error as serde::de::Error>::custom(what).into())
        }
        None => Ok(Space::of_configurations(parameters, all)?),
    }
}

fn of_t1(t1: ConfigurationSpace) -> Result<Input, InputError> {
    let mut defaults = Vec::new();
    let mut parameters = Vec::new();
    for TuningParameter { name, values, default } in t1.tuning_parameters {
        let values = values.evaluate(&name)?;
        defaults.push((name.clone(), default.and_then(first_value)));
        parameters.push(Parameter { name, values });
    }
    let conditions: Vec<&str> = t1.conditions.iter().map(|condition| condition.expression.as_str()).collect();
    let space = Space::new(parameters, &conditions)?;
    let original = space.find(|name| defaults.iter().find(|(of, _)| of == name)?.1.as_ref());
    Ok(Input { space, original })
}

/// A default, which some files write as a list of one.
fn first_value(default: serde_json::Value) -> Option<Value> {
    let default = match default {
        serde_json::Value::Array(all) => all.into_iter().next()?,
        value => value,
    };
    serde_json::from_value(default).ok()
}
