//! Which part of a session a request is about.

use apex_http::Request;
use std::ops::RangeInclusive;

/// Seconds that `last` may ask for.
pub const LONGEST_LAST: RangeInclusive<u64> = 1..=3600;

/// The part of a session that is wanted: the filters of `apex report`, and how much of a session
/// that is recorded. What they hold is as it was given; the reader judges it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Wanted {
    /// Its last seconds.
    pub last: Option<u64>,
    /// The phase of the run.
    pub phase: Option<String>,
    /// Names of kernels.
    pub kernels: Vec<String>,
    /// Times since the session's start.
    pub window: Option<String>,
    /// Ranks, with commas between.
    pub ranks: Option<String>,
}

impl Wanted {
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
        let wanted = Self {
            last,
            phase: single(request, "phase")?,
            kernels: request.all("kernel").map(str::to_owned).collect(),
            window: single(request, "window")?,
            ranks: single(request, "rank")?,
        };
        match (wanted.last, &wanted.window) {
            (Some(_), Some(_)) => Err("last and window exclude each other".to_owned()),
            _ => Ok(wanted),
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
