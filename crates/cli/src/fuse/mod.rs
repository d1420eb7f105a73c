//! `apex fuse`: adjacent launches of a session that could be one, and the kernel that is both.
//!
//! `apex-fuse` finds and judges the pairs; this module executes joined kernels on the CPU device
//! ([`check`]), writes files and makes the document. [`text`] prints it for people.

mod check;
mod profile;
mod text;

use crate::output::{self, Color, width};
use crate::run::libraries::Libraries;
use crate::text::Style;
use crate::{exit, loaded};
use anyhow::Context;
use apex_conventions::documents::FUSED;
use apex_fuse::{Answer, Candidate, Joined, candidates};
use apex_untrusted::replace;
use check::Checked;
use clap::builder::FalseyValueParser;
use cuda_launch::LaunchConfig;
use profile::Profile;
use ptx_fuse::{NAME, Part};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Finds launches that follow each other and could be one, and writes the kernel that is both.
///
/// A pair is joined if a proof says that no thread meets what another one stores. The joined kernel
/// then runs on the CPU device, beside the two, in the recorded shapes: memory must be the same bit
/// by bit.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "Examples:
  apex run --code -o run-1 -- ./program && apex fuse run-1
  apex fuse run-1 -o fused                     writes fused/1.ptx, fused/2.ptx, ...
  apex fuse run-1 --tuned p.json               adds the pairs to a profile for `apex run --tuned`
  apex run --fast=queue --tuned p.json -- ./program
  apex fuse run-1 --json | jq '.pairs[] | select(.result == \"joined\")'

Launches must be recorded with --code: otherwise it is not known what kernels are given. docs/fuse.md says what is proven, \
and how a program uses the joined kernel.

Exits with status 0 if a pair can be joined; with status 1 if none can; with status 2 if the command line is wrong; with \
status 125 if the session cannot be read, a file cannot be written, or a joined kernel gave other bits.")]
pub struct Args {
    #[command(flatten)]
    source: loaded::Source,
    /// Folder in which to write the PTX of joined kernels
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Profile to which pairs that can be joined are added, for `apex run --fast=queue --tuned`; a
    /// new one, or one of `apex tune`
    #[arg(long, value_name = "PROFILE")]
    tuned: Option<PathBuf>,
    #[arg(long, help = format!("Print JSON (schema {FUSED})"), value_parser = FalseyValueParser::new())]
    json: bool,
}

/// The document of `--json`.
#[derive(Serialize)]
struct Document {
    pairs: Vec<Pair>,
}

/// Two kernels that are launched one after the other.
#[derive(Serialize)]
struct Pair {
    first: String,
    second: String,
    launch: LaunchConfig,
    /// How often they follow each other.
    times: u64,
    /// Bytes that the second reads and the first has written, for each time; computed.
    flowing_bytes: Option<u64>,
    /// `joined`, `refused` or `unknown`.
    result: &'static str,
    /// Why it is not joined.
    reason: Option<String>,
    joined: Option<JoinedKernel>,
}

#[derive(Serialize)]
struct JoinedKernel {
    /// Where its parameters come from.
    parameters: Vec<Parameter>,
    /// Parameters that had one value in the recorded launches, and must have.
    same: Vec<Equal>,
    /// `same` bits as two launches, or why it was not executed.
    checked: String,
    file: Option<String>,
    /// Why it is not in the profile of `--tuned`.
    not_in_profile: Option<String>,
}

/// Parameters of both kernels, from 0.
#[derive(Serialize)]
struct Equal {
    first: usize,
    second: usize,
}

#[derive(Serialize)]
struct Parameter {
    kernel: &'static str,
    index: usize,
}

/// Runs `apex fuse`.
///
/// # Errors
/// A session that cannot be read, a file that cannot be written, a joined kernel that computes
/// something else than both kernels.
pub fn execute(args: &Args, color: Color) -> anyhow::Result<ExitCode> {
    let loaded = args.source.load(&apex_view::Filters::default())?;
    let mut profile = args.tuned.as_deref().map(|path| Profile::open(path, &loaded.profile)).transpose()?;
    let found = candidates(&loaded.session, &loaded.profile);
    let mut pairs = Vec::new();
    for candidate in &found {
        pairs.push(pair(candidate, pairs.len() + 1, args.output.as_deref(), profile.as_mut())?);
    }
    profile.map_or(Ok(()), Profile::write)?;
    let document = Document { pairs };
    match args.json {
        true => output::json(FUSED, &document)?,
        false => {
            let style = Style { color: color.on_stdout() };
            output::page(|out| text::show(out, &document, style, width()))?
        }
    };
    let any = document.pairs.iter().any(|pair| pair.joined.is_some());
    Ok(if any { ExitCode::SUCCESS } else { ExitCode::from(exit::NO) })
}

fn pair(
    candidate: &Candidate,
    number: usize,
    folder: Option<&Path>,
    profile: Option<&mut Profile>,
) -> anyhow::Result<Pair> {
    let [first, second] = [0, 1].map(|at| apex_kernel_names::function_name(&candidate.kernels[at]));
    let (result, reason, joined) = match &candidate.answer {
        Answer::Joined(joined) => ("joined", None, Some(kernel(candidate, joined, number, folder, profile)?)),
        Answer::Refused(why) => ("refused", Some(why.clone()), None),
        Answer::Unknown(missing) => ("unknown", Some((*missing).to_owned()), None),
    };
    let (launch, times, flowing_bytes) = (candidate.launch, candidate.times, candidate.flowing_bytes);
    Ok(Pair { first, second, launch, times, flowing_bytes, result, reason, joined })
}

/// Executes a joined kernel, and writes it if it is the same.
fn kernel(
    candidate: &Candidate,
    joined: &Joined,
    number: usize,
    folder: Option<&Path>,
    profile: Option<&mut Profile>,
) -> anyhow::Result<JoinedKernel> {
    let driver = Libraries::find()?.cpu_device()?;
    let checked = match check::check(&driver, candidate, joined)? {
        Checked::Same => "same".to_owned(),
        Checked::Not(why) => why,
    };
    let path = folder.map(|folder| folder.join(format!("{number}.ptx")));
    if let Some(path) = &path {
        write(path, candidate, joined)?;
    }
    let not_in_profile = profile.and_then(|profile| profile.add(candidate, joined).err()).map(str::to_owned);
    let parameter = |&(part, index): &(Part, usize)| Parameter {
        kernel: if part == Part::First { "first" } else { "second" },
        index,
    };
    Ok(JoinedKernel {
        parameters: joined.fused.parameters.iter().map(parameter).collect(),
        same: joined.same.iter().map(|same| Equal { first: same.first, second: same.second }).collect(),
        checked,
        file: path.map(|path| path.to_string_lossy().into_owned()),
        not_in_profile,
    })
}

/// Writes the PTX, with a head that says what its parameters are.
fn write(path: &Path, candidate: &Candidate, joined: &Joined) -> anyhow::Result<()> {
    let shown = apex_untrusted::shown(path);
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make the folder of {shown}"))?;
    }
    let [first, second] = &candidate.kernels;
    let mut text = format!("// {NAME}: {first}, then {second}, in one launch of {}.\n", candidate.launch);
    for (place, (part, index)) in joined.fused.parameters.iter().enumerate() {
        let _ = writeln!(text, "// Parameter {place}: parameter {index} of {part}.");
    }
    for same in &joined.same {
        let (first, second) = (same.first, same.second);
        let _ = writeln!(
            text,
            "// Parameter {first} of the first kernel and parameter {second} of the second must be equal."
        );
    }
    text += "// Proven for the recorded arguments: with others, what one thread stores may be what another reads.\n";
    let _ = write!(text, "{}", joined.fused.module);
    replace::in_mode(path, 0o644, text.as_bytes()).with_context(|| format!("cannot write {shown}"))
}
