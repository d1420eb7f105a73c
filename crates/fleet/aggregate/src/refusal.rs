//! Reasons for which a message is refused.

/// The reason. Its text quotes nothing of the message, except the schema that it names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Another version of APEX wrote it.
    #[error("the message is {found}, and this APEX reads {reads}: upgrade the older of the two")]
    Version {
        /// Schema that the message names, shortened.
        found: String,
        /// Schema that is read.
        reads: String,
    },
    /// It is not JSON, or not of this form.
    #[error("the message cannot be read: {0}")]
    Malformed(String),
    /// Something of it is larger than anything real.
    #[error("the message is out of bounds: {0}")]
    Bounds(&'static str),
}
