//! Documents of the hub.

use apex_conventions::documents::{Envelope, HUB};
use serde::Serialize;

/// The content as a document of the hub.
pub fn json<D: Serialize>(content: &D) -> String {
    serde_json::to_string(&Envelope::of(HUB, content)).expect("plain data")
}
