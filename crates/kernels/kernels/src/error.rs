//! Errors of the kernels.

/// The result of what may fail.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of this crate. Nothing was launched, unless it is [`Error::Gpu`] with an error of
/// earlier work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A shape, or an option, that makes no sense or has no kernel.
    #[error("{technique}: {why}")]
    Shape {
        /// The technique: attention, mixture of experts.
        technique: &'static str,
        /// The problem, and what is possible.
        why: String,
    },
    /// The form that was asked for does not run on this device.
    #[error("{technique}: {form} does not run on {device}: {why}")]
    Form {
        /// The technique.
        technique: &'static str,
        /// The form.
        form: &'static str,
        /// The device.
        device: String,
        /// The requirement that is not met.
        why: String,
    },
    /// The device refused or failed.
    #[error(transparent)]
    Gpu(#[from] apex_gpu::Error),
}

/// Checks that a tensor, which errors call "`what` have", has as many elements as its shape states.
pub(crate) fn check_elements(
    technique: &'static str,
    what: &str,
    shape: &[(&str, usize)],
    found: usize,
) -> Result<()> {
    let needed = shape.iter().map(|(_, size)| size).product::<usize>();
    if found == needed {
        return Ok(());
    }
    let shape: Vec<String> = shape.iter().map(|(name, size)| format!("{name} {size}")).collect();
    let why = format!("{what} have {found} elements, and their shape [{}] needs {needed}", shape.join(", "));
    Err(Error::Shape { technique, why })
}
