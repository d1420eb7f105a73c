//! Reasons for which a message is refused.

/// The reason. Its text quotes nothing of the message, except the schema that it names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Another version of APEX wrote it.
    #[error("the message is {found}, and this APEX reads {reads}: upgrade the older of the two")]
    Version {
        /// What the message says that it is, shortened.
        found: String,
        /// What is read.
        reads: String,
    },
    /// It is not JSON, or not of this form.
    #[error("the message cannot be read: {0}")]
    Malformed(String),
    /// Something of it is larger than anything real.
    #[error("the message is out of bounds: {0}")]
    Bounds(&'static str),
}
