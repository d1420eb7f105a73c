//! Predictions for the kernels of a recorded session, beside the measurements.
//!
//! `apex-predict` knows launches and models, `apex-profile` knows sessions; here they meet.
//! Predictions are a value of their own, computed from a profile, which takes them as an argument
//! ([`Profile::with`](apex_profile::Profile::with)): nothing here changes a profile.
//!
//! * [`recorded`]: predictions for all kernels of a profile.
//! * [`programs`]: the code of these kernels and what they were given, where the session keeps it.
//! * [`source_text`]: the text of their lines.
//! * [`bound`]: what bounds a kernel.
//! * [`explore`]: what they would do in other configurations.
//! * [`answer`]: what is said about one launch, as data.

pub mod answer;
pub mod bound;
pub mod explore;
pub mod programs;
pub mod recorded;
pub mod source_text;
