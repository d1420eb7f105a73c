//! `apex ptx requests`: what accesses of kernels ask of memory, and the change that mends them.
//!
//! `ptx-requests` counts and changes; this module reads files and sessions, and makes the document.
//! [`text`] prints it for people.

mod text;

use crate::output::{self, Color, Lines, width};
use crate::predict::syntax;
use crate::text::Style;
use crate::{exit, loaded};
use anyhow::{Context, anyhow, bail};
use apex_conventions::documents::PTX_REQUESTS;
use apex_predict::code::{Typed, argument, given};
use apex_predict_session::programs::{Programs, Recorded};
use apex_untrusted::read;
use clap::builder::FalseyValueParser;
use cuda_launch::{Dim3, LaunchConfig};
use fatbin::embedded;
use ptx::{Module, StateSpace};
use ptx_estimate::{Argument, Requested};
use ptx_requests::{Change, Report, is_excessive};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Counts for each access of a kernel the sectors of global or wavefronts of shared memory that a
/// warp asks for, and names the one change that mends it.
///
/// Where the change can be written into PTX, the changed kernel is counted as well. All figures are
/// computed from the code: nothing is executed.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "Examples:
  apex ptx requests kernel.ptx --grid 4,4 --block 16,16
  apex ptx requests kernel.ptx --kernel transpose --grid 32,32 --block 32,8 --arg ptr --arg ptr --arg 1024
  apex ptx requests apex-sessions/train-1          the kernels of a recorded session whose PTX it keeps
  apex ptx requests kernel.ptx --grid 64 --block 256 --json | jq '.kernels[].remedies[]'

docs/requests.md says how accesses are counted and which changes there are.

Exits with status 0 if no access asks for more than it needs; with status 1 if one does; with status 2 if the command \
line is wrong; with status 125 if the file or session cannot be read or has no PTX of a kernel, or if no GPU \
makes the launch.")]
pub struct Args {
    /// A file of PTX, a fatbin, a program or library that holds fatbins, or the folder of a session
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Blocks of the grid: X, X,Y or X,Y,Z; a session has the grids of its launches
    #[arg(long, value_name = "BLOCKS", value_parser = syntax::extent, requires = "block")]
    grid: Option<Dim3>,
    /// Threads of a block: X, X,Y or X,Y,Z
    #[arg(long, value_name = "THREADS", value_parser = syntax::extent, requires = "grid")]
    block: Option<Dim3>,
    /// Dynamic shared memory per block, bytes
    #[arg(long, value_name = "SIZE", value_parser = syntax::bytes, requires = "grid")]
    shared: Option<u32>,
    /// Only this kernel
    #[arg(long, value_name = "NAME")]
    kernel: Option<String>,
    /// An argument of the kernel: ptr, 4096, 1.5, u32:4096, f32:1.5, or ? if unknown; repeat for
    /// each argument in order
    #[arg(long, value_name = "VALUE", value_parser = argument, requires = "kernel", requires = "grid", allow_hyphen_values = true)]
    arg: Vec<Typed>,
    #[arg(long, help = format!("Print JSON (schema {PTX_REQUESTS})"), value_parser = FalseyValueParser::new())]
    json: bool,
}

/// The document of `--json`.
#[derive(Serialize)]
struct Document {
    file: String,
    kernels: Vec<Kernel>,
}

/// A kernel in a launch.
#[derive(Serialize)]
struct Kernel {
    kernel: String,
    symbol: String,
    launch: LaunchConfig,
    /// Sums of one warp, as if each loop had eight rounds.
    totals: Totals,
    accesses: Vec<Access>,
    remedies: Vec<Remedy>,
}

#[derive(Serialize)]
struct Totals {
    requests: u64,
    sectors: u64,
    wavefronts: u64,
    unknown_accesses: u64,
}

impl From<ptx_requests::Totals> for Totals {
    fn from(totals: ptx_requests::Totals) -> Self {
        let ptx_requests::Totals { requests, sectors, wavefronts, unknown } = totals;
        Totals { requests, sectors, wavefronts, unknown_accesses: unknown }
    }
}

/// An access; the counts are null if its addresses depend on data.
#[derive(Serialize)]
struct Access {
    file: Option<String>,
    line: Option<u32>,
    ptx_line: u32,
    space: &'static str,
    direction: &'static str,
    bytes: u32,
    loops: u32,
    /// Sectors of global, wavefronts of shared memory.
    per_request: Option<u64>,
    least: Option<u64>,
    excessive: bool,
    /// Whether a number among the parameters was taken to be 4,096.
    by_parameter: bool,
    /// Place of the change among the kernel's, from 1.
    remedy: Option<usize>,
}

#[derive(Serialize)]
struct Remedy {
    change: &'static str,
    sentence: String,
    /// Null if the change cannot be written into PTX.
    counted: Option<Counted>,
}

#[derive(Serialize)]
struct Counted {
    before: u64,
    after: u64,
    totals: Totals,
    launch: LaunchConfig,
    /// Whether equal results rest on conditions that the launch must meet.
    conditional: bool,
}

/// Runs `apex ptx requests`.
///
/// # Errors
/// A file or session that cannot be read, or has no PTX of the kernels that are asked for.
pub fn execute(args: &Args, color: Color) -> anyhow::Result<ExitCode> {
    if let Some(wrong) = misused(args) {
        output::failure(&anyhow!(wrong));
        return Ok(ExitCode::from(exit::USAGE));
    }
    let kernels = match args.file.is_dir() {
        true => of_session(args)?,
        false => of_file(args)?,
    };
    let shown = apex_untrusted::shown(&args.file);
    if kernels.is_empty() {
        bail!(
            "{shown} holds no PTX of {}: name a file of PTX, a program that nvcc has built with PTX, or a session whose \
             program gave the driver PTX",
            args.kernel.as_deref().map_or("a kernel".to_owned(), |name| format!("the kernel {name}"))
        );
    }
    let document = Document { file: shown, kernels };
    let mut accesses = document.kernels.iter().flat_map(|kernel| &kernel.accesses);
    let wasteful = accesses.any(|access| access.excessive);
    match args.json {
        true => output::json(PTX_REQUESTS, &document)?,
        false => {
            let style = Style { color: color.on_stdout() };
            output::page(|out| text::show(out, &document, style, width()))?
        }
    };
    Ok(if wasteful { ExitCode::from(exit::NO) } else { ExitCode::SUCCESS })
}

/// What is wrong with a command line whose launch does not fit what FILE is.
fn misused(args: &Args) -> Option<&'static str> {
    match (args.file.is_dir(), args.grid) {
        (true, Some(_)) => Some("a session has the launches of its program: leave out --grid and --block"),
        (false, None) if args.file.exists() => Some(
            "a file does not tell how its kernels are launched: add --grid and --block, or name a session",
        ),
        _ => None,
    }
}

/// Most threads of a block, on every GPU.
const MOST_THREADS: u64 = 1024;

/// Refuses a launch that no GPU makes: its middle warp, which is counted, does not exist.
fn refuse_impossible(launch: &LaunchConfig) -> anyhow::Result<()> {
    if launch.blocks() == 0 || !(1..=MOST_THREADS).contains(&launch.threads_per_block()) {
        bail!(
            "no GPU launches {launch}: a grid has at least one block, and a block 1 to {MOST_THREADS} threads"
        );
    }
    Ok(())
}

/// The kernels of a file in the launch that the command line describes.
fn of_file(args: &Args) -> anyhow::Result<Vec<Kernel>> {
    let shown = apex_untrusted::shown(&args.file);
    let bytes = read::read(&args.file, read::PROGRAM).with_context(|| format!("cannot read {shown}"))?;
    let [grid, block] = [args.grid, args.block].map(Option::unwrap_or_default);
    let launch =
        LaunchConfig { dynamic_shared_bytes: args.shared.unwrap_or(0), ..LaunchConfig::new(grid, block) };
    refuse_impossible(&launch)?;
    let images = embedded::images(&bytes).map_err(|error| anyhow!("cannot read {shown}: {error}"))?;
    let mut all = Vec::new();
    for text in images.iter().filter_map(|contents| contents.ptx_for(u32::MAX)) {
        let source = String::from_utf8_lossy(text);
        let module = ptx::parse(&source).map_err(|error| Lines(error.render(&shown, &source)))?;
        for function in module.kernels().filter(|function| is_asked(args, &function.name)) {
            let arguments = given(function, &args.arg).map_err(|why| anyhow!("{}: {why}", function.name))?;
            all.extend(kernel(&module, &function.name, launch, &arguments));
        }
    }
    Ok(all)
}

/// Whether the command line asks for a kernel: by its symbol, its name or its short name.
fn is_asked(args: &Args, symbol: &str) -> bool {
    args.kernel.as_deref().is_none_or(|name| {
        name == symbol
            || name == apex_kernel_names::function_name(symbol)
            || name == apex_kernel_names::identify(symbol).short_name
    })
}

/// The kernels of a session whose PTX it keeps, in the launches that were recorded, by their time.
fn of_session(args: &Args) -> anyhow::Result<Vec<Kernel>> {
    let loaded = loaded::read_all(Path::new(&args.file))?;
    let programs = Programs::of(&loaded.profile);
    let mut all = Vec::new();
    for recorded in loaded.profile.kernels.iter().filter(|kernel| is_asked(args, &kernel.symbol)) {
        let Recorded::Code(code) = programs.recorded(recorded) else { continue };
        let arguments = code.given().first().map_or(&[][..], |given| &given.arguments);
        all.extend(kernel(code.module(), &code.name, recorded.launch, arguments));
    }
    Ok(all)
}

fn kernel(module: &Module, symbol: &str, launch: LaunchConfig, arguments: &[Argument]) -> Option<Kernel> {
    let report = Report::of(module, symbol, &launch, arguments)?;
    let access = |(at, access): (usize, &Requested)| {
        let place = access.place.and_then(|place| Some((module.file(place.file)?.to_owned(), place.line)));
        let (file, line) = place.unzip();
        Access {
            file,
            line,
            ptx_line: access.position.line,
            space: if access.space == StateSpace::Shared { "shared" } else { "global" },
            direction: match access.direction {
                ptx::instruction::Direction::Load => "load",
                ptx::instruction::Direction::Store => "store",
                ptx::instruction::Direction::Atomic => "atomic",
            },
            bytes: access.bytes,
            loops: access.depth,
            per_request: access.cost.map(|cost| cost.count),
            least: access.cost.map(|cost| cost.least),
            excessive: is_excessive(access),
            by_parameter: access.cost.is_some_and(|cost| cost.by_parameter),
            remedy: report.remedies.iter().position(|one| one.accesses.contains(&at)).map(|place| place + 1),
        }
    };
    Some(Kernel {
        kernel: apex_kernel_names::function_name(symbol),
        symbol: symbol.to_owned(),
        launch,
        totals: report.totals.into(),
        accesses: report.accesses.iter().enumerate().map(access).collect(),
        remedies: report.remedies.iter().map(remedy).collect(),
    })
}

fn remedy(remedy: &ptx_requests::Remedy) -> Remedy {
    let counted = remedy.counted.as_ref().map(|counted| Counted {
        before: counted.before,
        after: counted.after,
        totals: counted.totals.into(),
        launch: counted.launch,
        conditional: counted.conditional,
    });
    Remedy { change: name(&remedy.change), sentence: sentence(&remedy.change), counted }
}

fn name(change: &Change) -> &'static str {
    match change {
        Change::Vectorize { .. } => "vectorize",
        Change::ExchangeAxes => "exchange_axes",
        Change::PadRows { .. } => "pad_rows",
        Change::StructureOfArrays { .. } => "structure_of_arrays",
        Change::ExchangeLoops => "exchange_loops",
        Change::TransposeTile => "transpose_tile",
    }
}

/// The change, as an instruction to the reader.
fn sentence(change: &Change) -> String {
    match change {
        Change::Vectorize { elements, alignment } => format!(
            "access the {elements} neighbouring elements as one vector (their addresses must be multiples of {alignment})"
        ),
        Change::ExchangeAxes => {
            "exchange x and y of threads and blocks, in the kernel and in the launch".to_owned()
        }
        Change::PadRows { variable, row_bytes, padding } => {
            let variable = apex_kernel_names::function_name(variable);
            format!("pad each row of the shared array {variable} ({row_bytes} bytes) by {padding} bytes")
        }
        Change::StructureOfArrays { structure_bytes } => format!(
            "make arrays of the members of the structures of {structure_bytes} bytes, so that neighbouring threads access \
             neighbouring elements"
        ),
        Change::ExchangeLoops => {
            "exchange the loops: neighbouring threads take neighbouring elements, and the loop of \
             each thread steps over all threads"
                .to_owned()
        }
        Change::TransposeTile => {
            "transpose through a tile in shared memory, so that global memory is accessed along \
             its rows"
                .to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_that_no_gpu_makes_are_refused() {
        let of = |grid: [u32; 3], block: [u32; 3]| {
            refuse_impossible(&LaunchConfig::new(Dim3::from(grid), Dim3::from(block)))
        };
        of([4, 1, 1], [32, 32, 1]).unwrap();
        for (grid, block) in [([0, 1, 1], [32, 1, 1]), ([1, 1, 1], [0, 1, 1]), ([1, 1, 1], [33, 32, 1])] {
            assert!(of(grid, block).unwrap_err().to_string().contains("no GPU launches"));
        }
    }
}
