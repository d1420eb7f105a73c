//! `apex export`: a session in other formats.

use crate::loaded::{self, Source};
use crate::{import, output, progress, session, units};
use anyhow::{Context, bail};
use apex_export::csv::Csv;
use apex_export::json::{self, Json};
use apex_export::parquet::Parquet;
use apex_export::table::{Column, Sink};
use apex_export::{Reading, chrome, collapsed, firefox, perfetto, pprof, rows, speedscope, timeline};
use apex_metrics::Spans;
use apex_profile::Profile;
use apex_view::Loaded;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

/// Writes a session as JSON, CSV, Parquet, a trace (Perfetto's or Chrome's), OpenTelemetry spans or
/// call stacks.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "Examples:
  apex export --format perfetto -o run.pftrace     open it in ui.perfetto.dev
  apex export --format chrome -o run.json          the same as JSON, for chrome://tracing and Tracy
  apex export --format parquet --what launches -o launches.parquet
  apex export --format csv --what calls --window 1.5s..2s > calls.csv
  apex export --format json | jq .profile.totals
  apex export --format collapsed > idle.folded     flamegraph.pl shows it
  apex export --format speedscope -o idle.json     open it in www.speedscope.app
  apex export --format pprof -o idle.pb            go tool pprof -http : idle.pb
  apex export --format firefox -o idle.json        load it in profiler.firefox.com
  apex export --format otlp | curl --data-binary @- -H 'Content-Type: application/x-protobuf' \\
      https://collector:4318/v1/traces

Rows: `launches` has a row for each launch call of a kernel or graph, `kernels` for each kernel and configuration, \
`calls` for each other call. Unknown values are null (CSV: empty). A Perfetto trace holds launches and calls; its GPU \
tracks hold the timed kernels. Spans are those of `apex metrics --spans`. \
Call stacks (collapsed, speedscope, pprof, firefox) are samples of the thread that launches next while the GPU was idle.")]
pub struct Args {
    #[command(flatten)]
    source: Source,
    /// File format
    #[arg(short, long, value_enum)]
    format: Format,
    /// File to write [default: stdout]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Only calls that began between these times after the session's start, such as 1.5s..2s or
    /// 200ms..
    #[arg(long, value_name = "A..B", value_parser = units::parse_window)]
    window: Option<Range<u64>>,
    /// Rows to write [default: launches; JSON: none, only the profile]
    #[arg(long, value_enum)]
    what: Option<What>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// The profile, and the rows that --what selects
    Json,
    /// Rows, as RFC 4180 defines them
    Csv,
    /// Columns, for analysis
    Parquet,
    /// A trace for ui.perfetto.dev
    Perfetto,
    /// The same as JSON in Chrome's trace format, for chrome://tracing, Perfetto and Tracy
    Chrome,
    /// Spans for an OpenTelemetry collector: one request, in protocol buffers
    Otlp,
    /// Sampled call stacks of the host while a GPU was idle, for flame-graph tools
    Collapsed,
    /// The same stacks with the idle time that they stand for, for www.speedscope.app
    Speedscope,
    /// The same for pprof: protocol buffers, with the account, thread and process as labels
    Pprof,
    /// The same for Firefox Profiler: a category for each account
    Firefox,
}

impl Format {
    /// Whether it holds call stacks alone.
    fn is_of_stacks(self) -> bool {
        matches!(self, Self::Collapsed | Self::Speedscope | Self::Pprof | Self::Firefox)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum What {
    /// Launch calls
    Launches,
    /// Kernels by configuration
    Kernels,
    /// Other calls
    Calls,
}

impl What {
    fn columns(self) -> &'static [Column] {
        match self {
            What::Launches => &rows::launches::COLUMNS,
            What::Kernels => &rows::kernels::COLUMNS,
            What::Calls => &rows::calls::COLUMNS,
        }
    }

    fn name(self) -> &'static str {
        match self {
            What::Launches => "launches",
            What::Kernels => "kernels",
            What::Calls => "calls",
        }
    }
}

/// The reason for an export of stacks without any, as far as the session tells it.
fn no_stacks(profile: &Profile, is_imported: bool) -> String {
    let why = match &profile.host_sampling {
        _ if is_imported => {
            "traces of other profilers have no samples of the host: record with `apex run`".to_owned()
        }
        _ if profile.host.is_some() => "no thread of the process was sampled".to_owned(),
        None => "it was recorded with --host-stacks off, or by an older APEX".to_owned(),
        Some(sampling) if !sampling.lost.is_empty() => sampling.lost.join("; "),
        Some(sampling) if sampling.samples == 0 => format!(
            "no thread was sampled before the program ended; `apex run --host-stacks HZ` samples more often than each {}",
            units::time(sampling.period_ns as f64)
        ),
        Some(sampling) => format!(
            "of {}, none is of a thread that an idle GPU waited for",
            units::counted(sampling.samples, "sample", "samples")
        ),
    };
    format!("the export is empty: the session holds no call stacks of the host while a GPU was idle: {why}")
}

/// Runs `apex export`.
pub fn execute(args: &Args) -> anyhow::Result<ExitCode> {
    args.check()?;
    let session = session::choose_recorded(args.source.session.as_deref())?;
    if let Some(path) = &args.output {
        session::refuse_output(&session, path)?;
    }
    let loaded = loaded::read_all(&session)?;
    if loaded.profile.host.is_some() && matches!(args.format, Format::Perfetto | Format::Chrome) {
        bail!(
            "{} was made by `apex attach`, which does not see launches: a trace of it is empty; `--format \
             speedscope` and `--format firefox` hold its call stacks",
            apex_untrusted::shown(import::named(&loaded.session.dir))
        );
    }
    let doing = format!("exporting {}", apex_untrusted::shown(import::named(&loaded.session.dir)));
    let written = progress::show(&doing, |records| {
        let mut progress = |count| records.store(count, Ordering::Relaxed);
        let window = args.window.clone().unwrap_or(0..u64::MAX);
        let mut reading = Reading::new(&loaded.session, window, &mut progress);
        match &args.output {
            Some(path) => apex_untrusted::replace::file(path, |file| {
                args.write(&loaded, &mut reading, BufWriter::new(file))
            })
            .with_context(|| format!("cannot write {}", apex_untrusted::shown(path))),
            None => args
                .write(&loaded, &mut reading, BufWriter::new(io::stdout()))
                .with_context(|| format!("cannot write {}", output::stdout_name())),
        }
    });
    match written {
        // Whoever read our output has seen enough.
        Err(error) if is_broken_pipe(&error) => {}
        other => other?,
    }
    if args.format.is_of_stacks() && !apex_export::has_stacks(&loaded.profile) {
        output::remark(no_stacks(&loaded.profile, loaded.is_imported()));
    }
    for process in &loaded.session.processes {
        if let Some(failure) = process.read_failure() {
            bail!("the export is incomplete: {failure}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl Args {
    /// Refuses combinations that mean nothing.
    fn check(&self) -> anyhow::Result<()> {
        match (self.format, self.what) {
            (Format::Otlp, Some(_)) => bail!("--what does not apply to spans"),
            (format, Some(_)) if format.is_of_stacks() => bail!("--what does not apply to call stacks"),
            (format, None) if format.is_of_stacks() && self.window.is_some() => {
                bail!("--window does not apply to call stacks, which are those of the whole session")
            }
            (Format::Otlp, None) if self.window.is_some() => {
                bail!("--window does not apply to spans, which are those of the whole session")
            }
            (Format::Perfetto | Format::Chrome, Some(_)) => {
                bail!("--what does not apply to a trace, which holds everything")
            }
            (_, Some(What::Kernels)) if self.window.is_some() => {
                bail!("--window does not apply to kernels, which are counted over the whole session")
            }
            (Format::Json, None) if self.window.is_some() => {
                bail!("--window does not apply to the profile; add --what launches or --what calls")
            }
            (Format::Parquet | Format::Perfetto | Format::Otlp | Format::Pprof, _)
                if self.output.is_none() && io::stdout().is_terminal() =>
            {
                bail!("this format is binary and stdout is a terminal: name a file with -o")
            }
            _ => Ok(()),
        }
    }

    fn write(
        &self,
        loaded: &Loaded,
        reading: &mut Reading<'_>,
        mut out: impl Write + Send,
    ) -> io::Result<()> {
        let what = self.what.unwrap_or(What::Launches);
        match (self.format, self.what) {
            (Format::Perfetto, _) => timeline::write(reading, perfetto::Trace::new(out)),
            (Format::Chrome, _) => timeline::write(reading, chrome::Trace::new(out)),
            (Format::Otlp, _) => {
                out.write_all(&Spans::of(&loaded.session).otlp(env!("CARGO_PKG_VERSION")))?;
                out.flush()
            }
            (Format::Collapsed, _) => collapsed::write(&loaded.profile, out),
            (Format::Speedscope, _) => speedscope::write(&loaded.profile, out),
            (Format::Pprof, _) => pprof::write(&loaded.profile, out),
            (Format::Firefox, _) => firefox::write(&loaded.profile, out),
            (Format::Json, None) => json::summary(&loaded.session, &loaded.profile, out),
            (Format::Json, Some(what)) => {
                let (session, profile) = (&loaded.session, &loaded.profile);
                write_rows(
                    what,
                    loaded,
                    reading,
                    &mut Json::new(out, session, profile, what.name(), what.columns())?,
                )
            }
            (Format::Csv, _) => write_rows(what, loaded, reading, &mut Csv::new(out, what.columns())?),
            (Format::Parquet, _) => {
                write_rows(what, loaded, reading, &mut Parquet::new(&mut out, what.columns())?)?;
                out.flush()
            }
        }
    }
}

fn write_rows(what: What, loaded: &Loaded, reading: &mut Reading<'_>, sink: &mut dyn Sink) -> io::Result<()> {
    match what {
        What::Launches => rows::launches::write(reading, sink)?,
        What::Kernels => rows::kernels::write(&loaded.profile, sink)?,
        What::Calls => rows::calls::write(reading, sink)?,
    }
    sink.finish()
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
