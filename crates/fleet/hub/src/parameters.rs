//! Parameters of addresses.

use apex_http::{Request, Response, StatusCode};
use std::ops::RangeInclusive;

/// The reason why a request has no answer.
#[derive(Debug)]
pub enum Problem {
    /// A parameter is wrong.
    Parameter(String),
    /// There is nothing of the kind.
    Nothing,
    /// The database cannot be read.
    Store(crate::store::Error),
}

impl From<crate::store::Error> for Problem {
    fn from(error: crate::store::Error) -> Self {
        Self::Store(error)
    }
}

impl Problem {
    /// The answer in its place.
    pub fn response(&self) -> Response {
        match self {
            Self::Parameter(why) => Response::text(StatusCode::BAD_REQUEST, why.as_str()),
            Self::Nothing => {
                let why = "there is nothing here: /api/v1/openapi.json says what there is";
                Response::text(StatusCode::NOT_FOUND, why)
            }
            Self::Store(error) => {
                eprintln!("apex hub: {error}");
                let why = "the database cannot be read: the hub's own messages say why";
                Response::text(StatusCode::INTERNAL_SERVER_ERROR, why)
            }
        }
    }
}

/// Refuses parameters that are not among these, or that are given twice.
///
/// # Errors
/// Names the parameter.
pub fn only(request: &Request, known: &[&str]) -> Result<(), Problem> {
    for name in request.parameters() {
        let shown = apex_untrusted::printable(name);
        if !known.contains(&name) {
            return Err(Problem::Parameter(format!("there is no parameter {shown} here")));
        }
        if request.all(name).count() > 1 {
            return Err(Problem::Parameter(format!("{shown} is given twice")));
        }
    }
    Ok(())
}

/// The value of a parameter; `None` if it is empty or absent.
pub fn text(request: &Request, name: &str) -> Option<String> {
    request.all(name).next().filter(|value| !value.is_empty()).map(str::to_owned)
}

/// A parameter that is a whole number.
///
/// # Errors
/// Says what it may be.
pub fn number(
    request: &Request,
    name: &str,
    usual: u64,
    allowed: RangeInclusive<u64>,
) -> Result<u64, Problem> {
    let Some(text) = request.all(name).next() else { return Ok(usual) };
    // (`parse` takes a sign too.)
    let digits = Some(text).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let number = digits.and_then(|text| text.parse().ok()).filter(|number| allowed.contains(number));
    let (least, most) = allowed.into_inner();
    number.ok_or_else(|| Problem::Parameter(format!("{name}: use a whole number from {least} to {most}")))
}

/// End of the page before: `MOMENT-JOB`.
///
/// # Errors
/// Says what it may be.
pub fn before(request: &Request) -> Result<Option<(i64, i64)>, Problem> {
    let Some(text) = text(request, "before") else { return Ok(None) };
    let parsed = text.split_once('-').and_then(|(at, id)| Some((at.parse().ok()?, id.parse().ok()?)));
    parsed.map(Some).ok_or_else(|| Problem::Parameter("before: use what the page before gave".to_owned()))
}
