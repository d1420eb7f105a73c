//! The `apex` command end to end, on the CPU device: real programs, real processes, real files.
//!
//! Nothing here needs a GPU. The program that is recorded is `testing/cuda-program`; what it
//! launches is known, so what was recorded can be counted.

mod alerts;
mod attach;
mod captures;
mod check;
mod code;
mod collections;
mod common;
mod control;
mod damage;
mod dashboard;
mod declared;
mod defects;
mod diffs;
mod documents;
mod endings;
mod fast;
mod filters;
mod formats;
mod fuse;
mod host_code;
mod host_stacks;
mod hostile;
mod html;
mod hub;
mod imports;
mod knowledge;
mod limits;
mod lines;
mod machine;
mod memory;
mod messages;
mod metrics;
mod pages;
mod places;
mod power;
mod predictions;
mod processes;
mod ptx;
mod python;
mod ranges;
mod ranks;
mod reports;
mod session_folders;
mod signals;
mod survival;
mod things;
mod top;
mod trainings;
mod tune;
mod universal;
mod verdicts;
