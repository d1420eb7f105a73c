//! The S3-compatible store that the variables of Amazon's tools describe.
//!
//! The names of variables are those of the AWS command line, so that a host which can use that can
//! also export. Keys come from the environment alone: no file of profiles is read, and no service
//! of an instance is asked.

use super::MOST_PEM;
use anyhow::{Context, anyhow};
use apex_objects::{Keys, Place, Server, Store};
use apex_push::Target;
use std::path::Path;
use std::time::Duration;

/// Region of a store that has none.
const REGION: &str = "us-east-1";

/// The store below `s3://BUCKET/PREFIX`.
///
/// # Errors
/// If that is no place, or a variable is missing or wrong.
pub fn store(place: &str) -> anyhow::Result<Store> {
    let shown = apex_untrusted::printable(place);
    let place: Place = place.parse().map_err(|why| anyhow!("{shown} is no place in a store: {why}"))?;
    let key = |name: &str| {
        variable(&[name]).ok_or_else(|| {
            anyhow!("{name} is not set: {shown} needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
        })
    };
    let keys = Keys {
        id: key("AWS_ACCESS_KEY_ID")?,
        secret: key("AWS_SECRET_ACCESS_KEY")?,
        session: variable(&["AWS_SESSION_TOKEN"]),
    };
    let region = variable(&["AWS_REGION", "AWS_DEFAULT_REGION"]).unwrap_or_else(|| REGION.to_owned());
    let address = address(&region)?;
    Ok(Store::new(Server { address, region, keys, pause: Duration::from_secs(1) }, place))
}

/// The address of the store, and whose certificates are trusted there.
fn address(region: &str) -> anyhow::Result<Target> {
    let named = variable(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]);
    let url = named.unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
    let target =
        Target::new(&url, "").map_err(|why| anyhow!("the store's address (AWS_ENDPOINT_URL) {why}"))?;
    let Some(path) = variable(&["AWS_CA_BUNDLE"]) else { return Ok(target) };
    let shown = || format!("AWS_CA_BUNDLE={}", apex_untrusted::printable(&path));
    let pem = apex_untrusted::read::read(Path::new(&path), MOST_PEM).with_context(shown)?;
    target.with_trusted(&pem).with_context(shown)
}

/// The first of these variables that is set to something.
fn variable(names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
}
