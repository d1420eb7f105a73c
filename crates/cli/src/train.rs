//! `apex train`: trains models on a data set and tests them.

use crate::{interrupt, output, progress};
use anyhow::Context;
use apex_conventions::documents::{self, Envelope};
use apex_dataset::{DataSet, DeviceKind};
use apex_model::Model;
use apex_predict::Models;
use apex_training::{Data, Options, Progress, Report, Trained};
use apex_untrusted::text::printable_but;
use clap::builder::FalseyValueParser;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Columns of the bar.
const BAR: usize = 30;

/// Trains the models of `apex predict` on a data set, and tests them on held-out kernels
#[derive(clap::Args, Debug)]
#[command(after_long_help = "Examples:
  apex train --data mine -o models                      on a data set of `apex collect`
  apex train --data h200 --data h100 -o models          on data sets of two kinds of device
  apex train --data mine --real pytorch -o models       tests on another program's kernels
  apex train --data mine -o try --quick                 a quick try with worse models
  apex train --data mine --networks models -o models    fits the rates again, keeps the networks
  apex predict --models models --grid 1024 --block 256

Training holds out each family of kernels in turn: the tables at the end compare predictions for unseen families with \
baseline methods. The final models are trained on all data, with intervals calibrated on the held-out families. The same \
data, seed and kind of processor give the same weights.

Writes small.apexmodel, large.apexmodel, what-if.apexmodel, large.onnx, card.md and card.json. A running \
`apex predict --models` reloads the models.")]
pub struct Args {
    /// Data sets from `apex collect`, one for each kind of device
    #[arg(long, value_name = "DIR", value_delimiter = ',', required = true)]
    data: Vec<PathBuf>,
    /// Data set of other programs' kernels, for testing only
    #[arg(long, value_name = "DIR")]
    real: Option<PathBuf>,
    /// Folder of models from `apex train` with the same data and seed: keep their networks, and fit
    /// only the rates for durations and SM throughput again
    #[arg(long, value_name = "DIR", conflicts_with = "real")]
    networks: Option<PathBuf>,
    /// Folder for the models
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// Random seed of weights and splits
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Number of threads [default: one per processor]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Train few networks for few epochs, without boosted trees, in about a minute
    #[arg(long, value_parser = FalseyValueParser::new())]
    quick: bool,
    #[arg(long, help = format!("Print JSON (schema {})", documents::TRAIN), value_parser = FalseyValueParser::new())]
    json: bool,
}

/// Runs `apex train`.
pub fn execute(args: &Args) -> anyhow::Result<ExitCode> {
    let data = args.data.iter().map(|folder| read(folder)).collect::<anyhow::Result<Vec<Data>>>()?;
    let data = data.into_iter().map(Ok).reduce(|all, next| all?.join(next?)).expect("clap asks for one")?;
    let real = args.real.as_deref().map(read).transpose()?;
    let networks = args.networks.as_deref().map(read_trained).transpose()?;
    // Before the work, so that a folder that cannot be written does not cost minutes.
    if apex_trace::is_session(&args.output) {
        anyhow::bail!("{} is a session: name another folder with -o", apex_untrusted::shown(&args.output));
    }
    std::fs::create_dir_all(&args.output)
        .with_context(|| format!("cannot make {}", apex_untrusted::shown(&args.output)))?;
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = args.threads.unwrap_or(available).max(1);
    let options = Options { quick: args.quick, seed: args.seed, threads };
    let progress = Progress::default();
    let stop = interrupt::stop_on_signals();
    let trained = match networks {
        Some(networks) => {
            progress::show("fitting rates", |_| apex_training::refit(&data, networks, &options, stop))?
        }
        None => progress::watch(
            |elapsed| line(&progress, elapsed),
            || apex_training::run(&data, real.as_ref(), &options, &progress, stop),
        )?,
    };
    write(&args.output, &trained)?;
    if args.json {
        return output::json(documents::TRAIN, &trained.report);
    }
    output::page(|out| {
        writeln!(out, "{}", printable_but(&trained.report.card(), &['\n']))?;
        writeln!(
            out,
            "{}: {} and large.onnx, card.md, card.json",
            apex_untrusted::shown(&args.output),
            Models::FILES.join(", ")
        )
    })
}

/// Reads the result of an earlier training.
fn read_trained(folder: &Path) -> anyhow::Result<Trained> {
    let [small, large, what_if] = Models::FILES.map(|file| Model::open(&folder.join(file)));
    let card = folder.join("card.json");
    let shown = apex_untrusted::shown(&card);
    let text = std::fs::read(&card).with_context(|| format!("cannot read {shown}"))?;
    let report: Report =
        serde_json::from_slice(&text).with_context(|| format!("{shown} is not a report of `apex train`"))?;
    Ok(Trained { models: [small?, large?, what_if?], report })
}

/// A data set of a GPU.
fn read(folder: &Path) -> anyhow::Result<Data> {
    let set = DataSet::read(folder)?;
    if set.manifest.device_kind == DeviceKind::CpuDevice {
        anyhow::bail!(
            "{} was measured on the CPU device, whose times are not a GPU's",
            apex_untrusted::shown(folder)
        );
    }
    Data::new(&set).with_context(|| apex_untrusted::shown(folder))
}

fn line(progress: &Progress, elapsed: Duration) -> String {
    let (done, planned) = (progress.done.load(Ordering::Relaxed), progress.planned.load(Ordering::Relaxed));
    let seconds = elapsed.as_secs_f64();
    let left = match done {
        0 => String::new(),
        _ => format!(", about {:.0} s left", seconds / done as f64 * (planned - done) as f64),
    };
    format!(
        "training {} {done} of {planned} networks, {seconds:.0} s{left}",
        progress::bar(done, planned, BAR)
    )
}

/// Models first, so that who sees the card finds them.
fn write(folder: &Path, trained: &Trained) -> anyhow::Result<()> {
    for (model, file) in trained.models.iter().zip(Models::FILES) {
        model.save(&folder.join(file))?;
    }
    let large = trained.models[1].to_onnx(apex_model::Precision::F32);
    let card = serde_json::to_vec_pretty(&Envelope::of(documents::TRAIN, &trained.report))?;
    for (file, bytes) in
        [("large.onnx", large), ("card.md", trained.report.card().into_bytes()), ("card.json", card)]
    {
        let path = folder.join(file);
        apex_untrusted::replace::bytes(&path, &bytes)
            .with_context(|| format!("cannot write {}", apex_untrusted::shown(&path)))?;
    }
    Ok(())
}
