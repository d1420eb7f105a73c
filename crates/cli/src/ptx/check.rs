//! `apex ptx check`: which kernels of a file which GPUs run, as they are or lowered.
//!
//! `ptx-retarget` judges; this module reads files and makes the document. [`super::show`] prints it
//! for people.

use super::show;
use crate::output::{self, Color, Lines};
use crate::text::Style;
use crate::{exit, output::width};
use anyhow::{Context, anyhow, bail};
use apex_conventions::documents::PTX_CHECK;
use apex_untrusted::read;
use clap::builder::FalseyValueParser;
use fatbin::embedded::{self, Contents};
use ptx::Module;
use ptx::forms::{Target, Version};
use ptx_retarget::{Gpu, Verdict};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Says for each kernel of a file and each GPU: runs as it is, runs lowered, or cannot run and why.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "Examples:
  apex ptx check kernel.ptx --for sm_80,sm_90
  apex ptx check ./program --for sm_75             the PTX that nvcc has put into a program
  apex ptx check libkernels.so --for sm_90 --newest 8.7
  apex ptx check kernel.ptx --for sm_80 --json | jq '.images[].kernels[] | select(.gpus[].result == \"cannot\")'

A kernel runs lowered if a change of .version and .target suffices, or exact replacements of instructions; `apex run \
--universal` makes these changes while the program runs. docs/universal.md lists them.

Exits with status 0 if every GPU runs every kernel, as it is or after exact changes; with status 1 if some kernel \
cannot run or needs an approximate change; with status 2 if the command line is wrong; with status 125 if the file \
cannot be read or defines no kernel.")]
pub struct Args {
    /// A file of PTX, a fatbin, or a program or library that holds fatbins
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The GPUs, by a target of their compute capability: sm_80,sm_90; a letter (sm_90a) makes no
    /// difference
    #[arg(long = "for", value_name = "GPUS", required = true, value_delimiter = ',', value_parser = gpu)]
    gpus: Vec<Target>,
    /// Newest PTX version that the driver reads: 8.7 for drivers of CUDA 12.8 [default: 9.5, the
    /// newest that there is]
    #[arg(long, value_name = "VERSION", value_parser = version)]
    newest: Option<Version>,
    #[arg(long, help = format!("Print JSON (schema {PTX_CHECK})"), value_parser = FalseyValueParser::new())]
    json: bool,
}

/// A target that names a GPU; `sm_90` and `sm_90a` are the same one.
fn gpu(text: &str) -> Result<Target, String> {
    let target: Target = text.trim().parse()?;
    match target.exists() {
        true => Ok(target),
        false => Err(format!("there is no {target}")),
    }
}

/// A GPU that the command line asks for.
#[derive(Clone, Copy)]
struct Asked {
    /// Its name there.
    name: Target,
    gpu: Gpu,
}

/// The GPUs that the command line asks for, each once.
fn asked(gpus: &[Target], newest: Option<Version>) -> Vec<Asked> {
    let mut names: Vec<Target> = Vec::new();
    for name in gpus {
        if !names.contains(name) {
            names.push(*name);
        }
    }
    let newest = newest.unwrap_or(ptx::forms::NEWEST);
    names.iter().map(|&name| Asked { name, gpu: Gpu { capability: name.number, newest } }).collect()
}

fn version(text: &str) -> Result<Version, String> {
    let number = |part: &str| part.parse::<u32>().ok();
    let parts = text.split_once('.').and_then(|(major, minor)| Some((number(major)?, number(minor)?)));
    parts.ok_or_else(|| format!("`{text}` is not a version such as 8.7"))
}

/// The document of `--json`.
#[derive(Serialize)]
pub struct Document {
    /// The file.
    pub file: String,
    /// The images in it that hold PTX or machine code.
    pub images: Vec<Image>,
    /// Results by kind.
    pub summary: Summary,
}

/// A file of PTX, or a fatbin.
#[derive(Serialize)]
pub struct Image {
    /// Its place among the file's images, from 1.
    pub image: usize,
    /// Its kernels; a single one without a name if the image holds no PTX.
    pub kernels: Vec<Kernel>,
}

/// A kernel and what each GPU does with it.
#[derive(Serialize)]
pub struct Kernel {
    /// Its name, demangled where it is a C++ name.
    pub kernel: String,
    /// The symbol.
    pub symbol: String,
    /// By GPU, in the order of the command line.
    pub gpus: Vec<OnGpu>,
}

/// Verdict on a kernel for one GPU.
#[derive(Serialize)]
pub struct OnGpu {
    /// `sm_80`, as the command line names it.
    pub gpu: String,
    /// The verdict.
    pub result: Outcome,
    /// Whether the image has machine code for the GPU, which is then what runs.
    pub machine_code: bool,
    /// The header of the lowered module.
    pub header: Option<String>,
    /// The replaced instructions.
    pub changes: Vec<Change>,
    /// Instructions of the lowered kernel for each one of the original, predicted; null where no
    /// instruction is replaced.
    pub predicted_cost: Option<f64>,
    /// Instructions that no row replaces.
    pub blocked: Vec<Blocked>,
}

/// The result for a kernel on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It runs as it is.
    Runs,
    /// It runs after exact changes.
    Lowered,
    /// It runs after changes of which some are approximate.
    Approximate,
    /// It does not run.
    Cannot,
}

/// A replaced instruction.
#[derive(Serialize)]
pub struct Change {
    /// Line of the PTX, from 1.
    pub line: u32,
    /// The instruction, special register or directive.
    pub form: String,
    /// The row of the table.
    pub row: &'static str,
    /// Whether the result is the same.
    pub exact: bool,
}

/// An instruction that the GPU does not have and nothing replaces.
#[derive(Serialize)]
pub struct Blocked {
    /// Line of the PTX, from 1; 0 where there is none: of machine code, and of the header.
    pub line: u32,
    /// The instruction, special register or directive; the header (`PTX 7.0, sm_90`).
    pub form: String,
    /// The alternatives that have it: `PTX 8.0 and sm_90a`.
    pub needs: Vec<String>,
    /// Why no GPU runs the module; null where this GPU is the reason.
    pub refusal: Option<String>,
}

/// Results by kind, over all kernels and GPUs.
#[derive(Default, Serialize)]
pub struct Summary {
    /// As they are.
    pub runs: usize,
    /// After exact changes.
    pub lowered: usize,
    /// After changes of which some are approximate.
    pub approximate: usize,
    /// Not at all.
    pub cannot: usize,
}

/// Runs `apex ptx check`.
///
/// # Errors
/// A file that cannot be read, holds no device code, or whose PTX cannot be parsed.
pub fn execute(args: &Args, color: Color) -> anyhow::Result<ExitCode> {
    let shown = apex_untrusted::shown(&args.file);
    let document = document(&args.file, &shown, &asked(&args.gpus, args.newest))?;
    let summary = &document.summary;
    let all_run = summary.approximate + summary.cannot == 0;
    match args.json {
        true => output::json(PTX_CHECK, &document)?,
        false => {
            let style = Style { color: color.on_stdout() };
            output::page(|out| show::show(out, &document, style, width()))?
        }
    };
    Ok(if all_run { ExitCode::SUCCESS } else { ExitCode::from(exit::NO) })
}

fn document(file: &Path, shown: &str, gpus: &[Asked]) -> anyhow::Result<Document> {
    let bytes = read::read(file, read::PROGRAM).with_context(|| format!("cannot read {shown}"))?;
    let contents = embedded::images(&bytes).map_err(|error| anyhow!("cannot read {shown}: {error}"))?;
    if contents.is_empty() {
        bail!("{shown} holds no device code: name a file of PTX, a fatbin, or a program that nvcc has built");
    }
    let mut images = Vec::new();
    for (index, contents) in contents.iter().enumerate() {
        images.push(Image { image: index + 1, kernels: kernels(contents, shown, gpus)? });
    }
    if images.iter().all(|image| image.kernels.is_empty()) {
        bail!("{shown} defines no kernel, so there is nothing to judge: name a file with a `.entry`");
    }
    let mut summary = Summary::default();
    for on_gpu in images.iter().flat_map(|image| &image.kernels).flat_map(|kernel| &kernel.gpus) {
        *match on_gpu.result {
            Outcome::Runs => &mut summary.runs,
            Outcome::Lowered => &mut summary.lowered,
            Outcome::Approximate => &mut summary.approximate,
            Outcome::Cannot => &mut summary.cannot,
        } += 1;
    }
    Ok(Document { file: shown.to_owned(), images, summary })
}

/// The kernels of an image, of which each GPU takes its own PTX.
fn kernels(contents: &Contents, shown: &str, gpus: &[Asked]) -> anyhow::Result<Vec<Kernel>> {
    let mut kernels: Vec<Kernel> = Vec::new();
    for asked in gpus {
        let machine_code = contents.has_machine_code_for(asked.gpu.capability);
        let judged = match contents.ptx_for(asked.gpu.capability) {
            Some(text) => judged(text, shown, *asked, machine_code)?,
            None => vec![(String::new(), without_ptx(contents, *asked, machine_code))],
        };
        for (symbol, on_gpu) in judged {
            match kernels.iter_mut().find(|kernel| kernel.symbol == symbol) {
                Some(kernel) => kernel.gpus.push(on_gpu),
                None => {
                    let kernel = kernel_name(&symbol);
                    kernels.push(Kernel { kernel, symbol, gpus: vec![on_gpu] });
                }
            }
        }
    }
    Ok(kernels)
}

fn kernel_name(symbol: &str) -> String {
    match symbol {
        "" => "(no PTX)".to_owned(),
        symbol => apex_kernel_names::function_name(symbol),
    }
}

fn judged(
    text: &[u8],
    shown: &str,
    asked: Asked,
    machine_code: bool,
) -> anyhow::Result<Vec<(String, OnGpu)>> {
    let source = String::from_utf8_lossy(text);
    let module = ptx::parse(&source).map_err(|error| Lines(error.render(shown, &source)))?;
    Ok(of_module(&module, asked, machine_code))
}

fn of_module(module: &Module, asked: Asked, machine_code: bool) -> Vec<(String, OnGpu)> {
    let judged = ptx_retarget::check(module, asked.gpu).into_iter();
    let of_kernel = |kernel: ptx_retarget::Kernel| {
        let cost = kernel.cost.map(|cost| cost.ratio()).filter(|_| !machine_code);
        let judged = on_gpu(kernel.verdict, asked, machine_code);
        (kernel.name, OnGpu { predicted_cost: cost, ..judged })
    };
    judged.map(of_kernel).collect()
}

fn on_gpu(verdict: Verdict, asked: Asked, machine_code: bool) -> OnGpu {
    let exact = verdict.is_exact();
    let mut on_gpu = empty(asked, Outcome::Runs, machine_code);
    match verdict {
        _ if machine_code => {}
        Verdict::Runs => {}
        Verdict::Lowered(header, changes) => {
            on_gpu.result = if exact { Outcome::Lowered } else { Outcome::Approximate };
            on_gpu.header = Some(header.to_string());
            let change = |change: ptx_retarget::Change| Change {
                line: change.line,
                form: change.form,
                row: change.row.name,
                exact: change.row.exact,
            };
            on_gpu.changes = changes.into_iter().map(change).collect();
        }
        Verdict::Cannot(blocked) => {
            on_gpu.result = Outcome::Cannot;
            let blocked = blocked.into_iter().map(|found| Blocked {
                line: found.line,
                form: found.form,
                needs: found.needs.iter().map(ToString::to_string).collect(),
                refusal: found.refusal,
            });
            on_gpu.blocked = blocked.collect();
        }
    }
    on_gpu
}

/// An image of machine code alone.
fn without_ptx(contents: &Contents, asked: Asked, machine_code: bool) -> OnGpu {
    if machine_code {
        return empty(asked, Outcome::Runs, true);
    }
    let targets: Vec<String> =
        contents.machine_code.iter().filter(|code| **code > 0).map(|code| format!("sm_{code}")).collect();
    let form = match targets.is_empty() {
        true => "machine code".to_owned(),
        false => format!("machine code for {}", targets.join(", ")),
    };
    let blocked = vec![Blocked { line: 0, form, needs: Vec::new(), refusal: None }];
    OnGpu { blocked, ..empty(asked, Outcome::Cannot, false) }
}

fn empty(asked: Asked, result: Outcome, machine_code: bool) -> OnGpu {
    let gpu = asked.name.to_string();
    let (changes, blocked) = (Vec::new(), Vec::new());
    OnGpu { gpu, result, machine_code, header: None, changes, predicted_cost: None, blocked }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_and_versions_are_checked() {
        let names = asked(&["sm_90", "sm_90a", "sm_90"].map(|text| gpu(text).unwrap()), None);
        let names: Vec<_> =
            names.iter().map(|asked| (asked.name.to_string(), asked.gpu.capability)).collect();
        assert_eq!(names, [("sm_90".to_owned(), 90), ("sm_90a".to_owned(), 90)]);
        assert!(gpu("80").is_err() && gpu("sm_81").unwrap_err().contains("no sm_81"));
        assert_eq!(version("8.7"), Ok((8, 7)));
        assert!(version("8").is_err() && version("a.b").is_err());
    }

    #[test]
    fn machine_code_runs_where_it_suits_and_nowhere_else() {
        let image = Contents { ptx: Vec::new(), machine_code: vec![86] };
        let gpus = asked(&["sm_80", "sm_89"].map(|text| gpu(text).unwrap()), None);
        let kernels = kernels(&image, "a", &gpus).unwrap();
        let results: Vec<Outcome> = kernels[0].gpus.iter().map(|on_gpu| on_gpu.result).collect();
        assert_eq!(results, [Outcome::Cannot, Outcome::Runs]);
        assert_eq!(kernels[0].gpus[0].blocked[0].form, "machine code for sm_86");
    }
}
