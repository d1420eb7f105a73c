//! Profiles of and advice on sessions that were written to files and read back.

mod common;
mod extremes;
mod profiles;
mod programs;
