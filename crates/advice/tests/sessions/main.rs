//! Profiles of and advice on sessions that were written to files and read back.

mod common;
mod profiles;
mod programs;
