//! `apex predict`: predicts launches on a GPU without running them.
//!
//! What is asked comes from the command line, from lines of a file or of stdin, or from a session;
//! [`answer`] has what is answered. Lines that come from stdin are answered one by one, with the
//! models that are in use at that moment.

mod code;
mod device;
mod formats;
mod recorded;
pub mod syntax;
pub mod table;

use crate::output::{self, Color};
use crate::text::Style;
use crate::text::kernels::configuration;
use crate::{exit, session};
use anyhow::{Context, bail};
use apex_conventions::documents::{PREDICT, PREDICTION};
use apex_predict::code::Typed;
use apex_predict::lines::{self, Format, Lines, Question};
use apex_predict::reload::{Event, Watch};
use apex_predict::{Case, Change, Device, Models};
use apex_predict_session::answer::{self, Answer};
use apex_predict_session::recorded::Trained;
use apex_profile::basis_shares;
use apex_untrusted::folder::identity;
use clap::builder::FalseyValueParser;
use cuda_launch::{Dim3, FunctionAttributes, LaunchConfig};
use formats::{Csv, Document};
use recorded::{Recorded, Recording};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// Predicts duration, occupancy and throughput of launches on a GPU.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "Examples:
  apex predict --grid 1024 --block 256                   a launch, from its configuration
  apex predict --grid 64,64 --block 16x16 --registers 40 --static-shared 2K
  apex predict --grid 4096 --block 256 --ptx scale.ptx --arg 1048576 --arg f32:2 --arg ptr
  apex predict --grid 4096 --block 128 --measured 48.5 --what-if block=256
  apex predict apex-train-20261121-170000                all configurations of a session
  apex predict s --kernel matmul --what-if block=32x8    the effect of another block
  apex predict launches.csv --csv > predicted.csv        a line for each launch
  generate | apex predict - --models mine                predicts each line when it arrives

A file holds JSON Lines, or CSV whose first line names the columns. grid_x and block_x are required; grid_y, grid_z, \
block_y, block_z, dynamic_shared_bytes, registers, static_shared_bytes, local_bytes, max_threads_per_block, kernel and \
measured_us are optional; other columns are copied to the output. docs/predict.md has details.

Every prediction has a 90% prediction interval.

Exits with status 0 if all launches were predicted, and with status 1 if some could not be predicted. A change that some \
kernels do not allow is shown as such; the status is 1 only if no change could be predicted.")]
pub struct Args {
    /// A file of launches, - for stdin, or the folder of a session or data set [default: the newest
    /// session in this folder]
    #[arg(value_name = "LAUNCHES", conflicts_with_all = ["grid", "block", "ptx"])]
    input: Option<PathBuf>,
    /// Blocks of the grid: X, X,Y or X,Y,Z
    #[arg(long, value_name = "BLOCKS", value_parser = syntax::extent, requires = "block")]
    grid: Option<Dim3>,
    /// Threads of a block: X, X,Y or X,Y,Z
    #[arg(long, value_name = "THREADS", value_parser = syntax::extent, requires = "grid")]
    block: Option<Dim3>,
    /// Dynamic shared memory per block, bytes
    #[arg(long, value_name = "SIZE", value_parser = syntax::bytes, requires = "grid")]
    shared: Option<u32>,
    /// Registers per thread
    #[arg(long, value_name = "N", requires = "grid")]
    registers: Option<u32>,
    /// Static shared memory per block, bytes
    #[arg(long, value_name = "SIZE", value_parser = syntax::bytes, requires = "registers")]
    static_shared: Option<u32>,
    /// Local memory per thread, bytes
    #[arg(long, value_name = "SIZE", value_parser = syntax::bytes, requires = "registers")]
    local: Option<u32>,
    /// Maximum threads per block of the kernel
    #[arg(long, value_name = "N", requires = "registers")]
    max_threads: Option<u32>,
    /// PTX file with the kernel
    #[arg(long, value_name = "FILE", requires = "grid")]
    ptx: Option<PathBuf>,
    /// Name of the kernel in the PTX, if that has several; of a session, the kernels to show
    #[arg(long, value_name = "NAME")]
    kernel: Option<String>,
    /// An argument of the kernel: ptr, 4096, 1.5, u32:4096, f32:1.5, or ? if unknown; repeat for
    /// each argument in order
    #[arg(long, value_name = "VALUE", value_parser = apex_predict::code::argument, requires = "ptx", allow_hyphen_values = true)]
    arg: Vec<Typed>,
    /// Measured duration of the launch (gpu__time_duration), in microseconds or with a unit
    #[arg(long, value_name = "TIME", value_parser = syntax::microseconds, requires = "grid")]
    measured: Option<f64>,
    /// A change of the launch: block=, grid=, shared=, registers=, separated by commas; may be
    /// repeated
    #[arg(long, value_name = "CHANGE", value_parser = syntax::change)]
    what_if: Vec<Change>,
    /// Device to predict for: auto, h200, h100, sm_90, or the folder of a session or data set
    /// [default: the session's, otherwise auto]
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Folder of models from `apex train`; replaced models are reloaded while `apex predict` runs
    /// [default: the built-in models]
    #[arg(long, value_name = "DIR")]
    models: Option<PathBuf>,
    #[arg(long, help = format!("Print JSON (schema {PREDICT}; for stdin JSON Lines, schema {PREDICTION})"), value_parser = FalseyValueParser::new(), conflicts_with = "csv")]
    json: bool,
    /// Print CSV
    #[arg(long, value_parser = FalseyValueParser::new())]
    csv: bool,
}

/// The models in use.
enum InUse {
    /// The models in the program.
    Shipped(Arc<Models>),
    /// The models of a folder, replaced whenever its files are.
    Watched(Watch),
}

impl InUse {
    /// Loads them. What happens to a folder's files later is said on stderr.
    fn load(folder: Option<&Path>) -> anyhow::Result<Self> {
        let Some(folder) = folder else { return Ok(Self::Shipped(Models::shipped())) };
        let shown = apex_untrusted::shown(folder);
        let told = move |event| match event {
            Event::Replaced => output::remark(format!("the models in {shown} were replaced and reloaded")),
            Event::Refused(error) => {
                output::remark(format!(
                    "cannot load the new models in {shown}, keeping the old ones: {error}"
                ));
            }
        };
        let watch = Watch::start(folder, told)
            .with_context(|| format!("cannot use the models in {}", apex_untrusted::shown(folder)))?;
        Ok(Self::Watched(watch))
    }

    fn now(&self) -> Arc<Models> {
        match self {
            Self::Shipped(models) => Arc::clone(models),
            Self::Watched(watch) => watch.models(),
        }
    }
}

/// Runs `apex predict`.
pub fn execute(args: &Args, color: Color) -> anyhow::Result<ExitCode> {
    let models = InUse::load(args.models.as_deref())?;
    match &args.input {
        _ if args.grid.is_some() => {
            let device = args.device()?;
            args.write(&device, &args.typed(&device, &models.now())?, color)
        }
        Some(input) if input != Path::new("-") && matches!(input.try_exists(), Ok(false)) => {
            let shown = apex_untrusted::shown(input);
            bail!("cannot open {shown}: there is no such session or file of launches")
        }
        Some(input) if !input.is_dir() && !session::is_packed(input) => args.lines(input, &models, color),
        input => {
            let path = session::choose_recorded(input.as_deref()).context(
                "nothing to predict: give --grid and --block, a file of launches, - for stdin, or a session",
            )?;
            args.recorded(&path, &models.now(), color)
        }
    }
}

impl Args {
    /// The launch on the command line, and its changes.
    fn typed(&self, device: &Device, models: &Models) -> anyhow::Result<Vec<Answer>> {
        let (grid, block) = self.grid.zip(self.block).expect("clap requires them");
        let launch = LaunchConfig::new(grid, block).with_dynamic_shared_bytes(self.shared.unwrap_or(0));
        let kernel = self.registers.map(|registers| FunctionAttributes {
            registers,
            static_shared_bytes: self.static_shared.unwrap_or(0),
            local_bytes: self.local.unwrap_or(0),
            max_threads_per_block: self.max_threads.unwrap_or(0),
            ..FunctionAttributes::default()
        });
        let code = self
            .ptx
            .as_deref()
            .map(|path| code::read(path, self.kernel.as_deref(), &self.arg))
            .transpose()?;
        let name = code.as_ref().map(|code| code.name.clone()).or_else(|| self.kernel.clone());
        let kernel = match (&code, kernel) {
            (Some(code), Some(kernel)) => Some(code.kernel(kernel)),
            (Some(code), None) => {
                let path = self.ptx.as_deref().expect("the code was read from it");
                bail!("{}", code::how_to_get_registers(path, code));
            }
            (None, kernel) => kernel,
        };
        let case = |launch, kernel: Option<FunctionAttributes>| match (&code, kernel) {
            (Some(code), Some(kernel)) => code.case(kernel, launch),
            (_, kernel) => Case { kernel, ..Case::of_launch(launch) },
        };
        let asked = Question { name, launch, kernel, measured_us: self.measured };
        self.with_changes(models, device, &asked, case)
    }

    /// The answer to what is asked, and to changes that do change it.
    fn with_changes(
        &self,
        models: &Models,
        device: &Device,
        asked: &Question,
        case: impl Fn(LaunchConfig, Option<FunctionAttributes>) -> Case,
    ) -> anyhow::Result<Vec<Answer>> {
        let case = |launch, kernel: Option<FunctionAttributes>| {
            case(launch, kernel.map(|kernel| answer::bounded(kernel, device)))
        };
        let from = case(asked.launch, asked.kernel);
        let mut answers = vec![Answer::of(models, device, &from, asked)];
        for change in &self.what_if {
            let of_kernel =
                |kernel| change.apply_to_kernel(kernel).map_err(|why| format!("{why}: give --registers"));
            let changed = change
                .apply_to_launch(asked.launch)
                .and_then(|launch| Ok((launch, of_kernel(asked.kernel)?)));
            match changed {
                Ok(same) if same == (asked.launch, asked.kernel) => {}
                Ok((launch, kernel)) => {
                    answers.push(Answer::of_change(models, device, &from, &case(launch, kernel), asked));
                }
                // Other kernels of a session may allow the change.
                Err(why) if self.grid.is_none() => answers.push(Answer::without_change(asked, why)),
                Err(why) => bail!(why),
            }
        }
        Ok(answers)
    }

    /// The configurations of a session, or the launches of a data set.
    fn recorded(&self, path: &Path, models: &Models, color: Color) -> anyhow::Result<ExitCode> {
        let recording = Recording::read(path, self.trained())?;
        let device = match (&self.device, &recording.device) {
            (Some(_), _) => self.device()?,
            (None, Ok(device)) => device.clone(),
            (None, Err(why)) => bail!("{why}; --device h200 predicts the same launches for an H200"),
        };
        let wanted = |name: &str| self.kernel.as_ref().is_none_or(|wanted| name.contains(wanted));
        let (mut answers, mut times) = (Vec::new(), Vec::new());
        for Recorded { asked, known, total_ns } in recording.predicted_for(&device).launches {
            if wanted(asked.name.as_deref().unwrap_or_default()) {
                let first = answers.len();
                let case = |launch, kernel| known.case(launch, kernel);
                answers.extend(self.with_changes(models, &device, &asked, case)?);
                if total_ns.is_some() {
                    let own = &mut answers[first].prediction;
                    *own = own.take().map(apex_predict_session::recorded::shown);
                }
                times.extend(total_ns.map(|total| (first, total)));
            }
        }
        match (&self.kernel, answers.is_empty()) {
            (Some(name), true) => bail!("{} has no kernel {name}", apex_untrusted::shown(path)),
            (None, true) => bail!("{} has no kernels", apex_untrusted::shown(path)),
            _ => {
                let exit = self.write(&device, &answers, color)?;
                if !self.json && !self.csv {
                    let basis = |&(at, total): &(usize, f64)| {
                        let said: &Answer = &answers[at];
                        Some((said.prediction.as_ref()?.basis.as_str(), total))
                    };
                    let shares = basis_shares(times.iter().filter_map(basis));
                    output::page(|out| table::basis_of(out, &shares))?;
                }
                Ok(exit)
            }
        }
    }

    /// The device that the user named, or else the one to predict for without a session.
    fn device(&self) -> anyhow::Result<Device> {
        device::named(self.device.as_deref().unwrap_or("auto"), self.trained())
    }

    fn trained(&self) -> Trained {
        if self.models.is_some() { Trained::Elsewhere } else { Trained::Shipped }
    }

    /// The lines of a file or of stdin.
    fn lines(&self, path: &Path, models: &InUse, color: Color) -> anyhow::Result<ExitCode> {
        if !self.what_if.is_empty() || self.kernel.is_some() {
            bail!("--what-if and --kernel apply to a launch or a session, not to lines of launches");
        }
        let device = self.device()?;
        let stdin = path == Path::new("-");
        let from: Box<dyn BufRead> = if stdin {
            Box::new(BufReader::new(io::stdin()))
        } else {
            Box::new(BufReader::new(opened(path)?))
        };
        let shown = if stdin { "stdin".to_owned() } else { apex_untrusted::shown(path) };
        let lines = Lines::new(from).map_err(|why| anyhow::anyhow!("{shown}:{why}"))?;
        let answered = if stdin || self.csv {
            self.one_by_one(lines, &shown, models, &device)
        } else {
            self.all_together(lines, &shown, models, &device, color)
        };
        match answered {
            Ok(0) => Ok(ExitCode::SUCCESS),
            Ok(_) => Ok(ExitCode::from(exit::NO)),
            // Whoever read our output has seen enough.
            Err(error) if is_broken_pipe(&error) => Ok(ExitCode::SUCCESS),
            Err(error) => Err(error),
        }
    }

    /// Answers each line as it comes. Returns how many could not be answered.
    fn one_by_one(
        &self,
        mut lines: Lines<impl BufRead>,
        shown: &str,
        models: &InUse,
        device: &Device,
    ) -> anyhow::Result<u64> {
        let format = match lines.format() {
            _ if self.json => Format::Json,
            _ if self.csv => Format::Csv,
            format => format,
        };
        let mut out = io::stdout().lock();
        let mut csv = None;
        if format == Format::Csv && lines.format() == Format::Csv {
            csv = Some(Csv::new(&mut out, lines.columns().iter())?);
            out.flush()?;
        }
        let mut unanswered = 0;
        while let Some(line) = lines.next_line()? {
            let answer = answered(line, shown, &models.now(), device);
            unanswered += u64::from(answer.error.is_some());
            match (format, &csv) {
                (Format::Json, _) => formats::json_line(&mut out, &answer)?,
                (Format::Csv, Some(csv)) => csv.row(&mut out, &answer)?,
                // Of JSON Lines, the first line names the columns.
                (Format::Csv, None) => {
                    let first = Csv::new(&mut out, answer.fields.iter().map(|(name, _)| name))?;
                    csv.insert(first).row(&mut out, &answer)?;
                }
            }
            out.flush()?;
        }
        Ok(unanswered)
    }

    /// Answers all lines, and then shows the answers. Returns how many could not be answered.
    fn all_together(
        &self,
        mut lines: Lines<impl BufRead>,
        shown: &str,
        models: &InUse,
        device: &Device,
        color: Color,
    ) -> anyhow::Result<u64> {
        let mut answers = Vec::new();
        while let Some(line) = lines.next_line()? {
            answers.push(answered(line, shown, &models.now(), device));
        }
        self.show(device, &answers, color)?;
        Ok(answers.iter().filter(|answer| answer.error.is_some()).count() as u64)
    }

    /// Shows answers to what was typed or recorded, and says which launches cannot run. A change
    /// that some kernels do not allow is no failure, unless no kernel allows any change.
    fn write(&self, device: &Device, answers: &[Answer], color: Color) -> anyhow::Result<ExitCode> {
        for answer in answers {
            let Some(why) = &answer.error else { continue };
            let launch = answer.launch.map(configuration);
            output::remark(format!(
                "{}{}: {why}",
                answer.kernel.as_deref().unwrap_or_default(),
                launch.unwrap_or_default()
            ));
        }
        self.show(device, answers, color)?;
        let (changes, launches): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.what_if);
        let failed = |answer: &&Answer| answer.error.is_some();
        let no_change = !changes.is_empty() && changes.iter().all(failed);
        let is_complete = !launches.iter().any(failed) && !no_change;
        Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::from(exit::NO) })
    }

    fn show(&self, device: &Device, answers: &[Answer], color: Color) -> anyhow::Result<ExitCode> {
        if self.json {
            return output::json(PREDICT, &Document::of(device, self.models.as_deref(), answers));
        }
        if self.csv {
            return output::page(|mut out| {
                let names = answers.first().map_or(&[][..], |answer| &answer.fields);
                let csv = Csv::new(&mut out, names.iter().map(|(name, _)| name))?;
                answers.iter().try_for_each(|answer| csv.row(&mut out, answer))
            });
        }
        if answers.iter().all(|answer| answer.prediction.is_none()) {
            return Ok(ExitCode::SUCCESS);
        }
        let style = Style { color: color.on_stdout() };
        output::page(|out| table::write(out, device, answers, style, output::width()))
    }
}

/// A file of launches, open. It is read line by line, so that it may be of any size.
fn opened(path: &Path) -> anyhow::Result<File> {
    let shown = apex_untrusted::shown(path);
    let file = apex_untrusted::read::open(path, u64::MAX)
        .with_context(|| format!("cannot open {shown} (`apex predict -` reads from pipes)"))?;
    if Some(identity(&file.metadata()?)) == session::stdout_identity() {
        bail!("stdout is {shown}, which is also the input: redirect it to another file");
    }
    Ok(file)
}

/// The answer to a line; if there is none, a remark says why.
fn answered(line: lines::Line, shown: &str, models: &Models, device: &Device) -> Answer {
    let answer = Answer::of_line(models, device, line);
    if let (Some(why), Some(line)) = (&answer.error, answer.line) {
        output::remark(format!("{shown}:{line}: {why}"));
    }
    answer
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
