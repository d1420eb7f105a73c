//! Advice on sessions that were written to files and read back.

mod extremes;
mod programs;

use apex_profile::Profile;
use test_session::Recording;

/// The profile of a session of one process that does this.
fn profile(program: impl FnOnce(&mut Recording)) -> Profile {
    test_session::of_program(program, Profile::from_session)
}
