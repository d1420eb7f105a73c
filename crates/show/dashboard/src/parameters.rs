//! The query parameters of a request: the part of a session that it asks for.

use apex_http::Request;
use apex_view::Filters;
use std::ops::RangeInclusive;

/// Seconds that `last` may ask for.
pub const LONGEST_LAST: RangeInclusive<u64> = 1..=3600;

/// The part of a session that is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ViewParameters {
    /// Its last seconds.
    pub last: Option<u64>,
    /// The filters of `apex report`.
    pub filters: Filters,
}

impl ViewParameters {
    /// Parameters of an address that say what is wanted.
    pub const PARAMETERS: [&str; 5] = ["last", "phase", "kernel", "window", "rank"];

    /// # Errors
    /// Says which parameter of the request is wrong.
    pub fn of(request: &Request) -> Result<Self, String> {
        Self::among(request, &Self::PARAMETERS)
    }

    /// As [`Self::of`], of a request that takes these parameters.
    ///
    /// # Errors
    /// Says which parameter of the request is wrong.
    pub(crate) fn among(request: &Request, parameters: &[&str]) -> Result<Self, String> {
        all_known(request, parameters)?;
        let last = match single(request, "last")? {
            None => None,
            Some(text) => {
                let seconds = text.parse().ok().filter(|seconds| LONGEST_LAST.contains(seconds));
                let (least, most) = LONGEST_LAST.into_inner();
                Some(seconds.ok_or_else(|| format!("last: use whole seconds from {least} to {most}"))?)
            }
        };
        let [phase, window, ranks] = ["phase", "window", "rank"].map(|name| single(request, name));
        let kernels: Vec<String> = request.all("kernel").map(str::to_owned).collect();
        let filters = Filters::of_words(phase?.as_deref(), &kernels, window?.as_deref(), ranks?.as_deref())?;
        match (last, &filters.window) {
            (Some(_), Some(_)) => Err("last and window exclude each other".to_owned()),
            _ => Ok(Self { last, filters }),
        }
    }
}

/// # Errors
/// Names a parameter that is none of these.
pub(crate) fn all_known(request: &Request, known: &[&str]) -> Result<(), String> {
    match request.parameters().find(|name| !known.contains(name)) {
        Some(unknown) => {
            let unknown = apex_untrusted::printable(unknown);
            Err(format!("there is no parameter {unknown}: use {}", known.join(", ")))
        }
        None => Ok(()),
    }
}

/// The value of a parameter that may be given once.
pub(crate) fn single(request: &Request, name: &str) -> Result<Option<String>, String> {
    let mut values = request.all(name);
    match (values.next(), values.next()) {
        (Some(_), Some(_)) => Err(format!("{name} is given twice")),
        (value, _) => Ok(value.map(str::to_owned)),
    }
}

/// A parameter that is a whole number.
pub(crate) fn number(
    request: &Request,
    name: &str,
    allowed: RangeInclusive<u64>,
) -> Result<Option<u64>, String> {
    let Some(text) = single(request, name)? else { return Ok(None) };
    // (`parse` takes a sign too.)
    let digits = Some(text).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let number = digits.and_then(|text| text.parse().ok()).filter(|number| allowed.contains(number));
    let (least, most) = allowed.into_inner();
    number.map(Some).ok_or_else(|| format!("{name}: use a whole number from {least} to {most}"))
}
