//! `apex hub`: the page of a fleet, and what belongs to it.

mod alerts;
mod backup;
mod deliver;
mod export;
mod objects;
mod report;
mod token;

use crate::output;
use anyhow::{Context, bail};
use apex_http::Server;
use apex_hub::{Hub, Settings, Store};
use clap::builder::FalseyValueParser;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;

/// Most bytes of a file of certificates or of a key.
const MOST_PEM: u64 = 1 << 20;

/// Shows which jobs of a group waste GPUs, and why: takes what `apex run --hub` sends, and serves
/// it as pages and JSON.
#[derive(clap::Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_long_help = "Examples:
  apex hub                               on this machine, for its users
  apex run --hub http://127.0.0.1:8765 -- python train.py
                                         sends to it
  apex hub token add physics             makes a token: others reach the hub with it alone
  apex hub --listen 0.0.0.0:8765 --tls-certificate hub.crt --tls-key hub.key
                                         for other machines
  apex hub --listen 0.0.0.0:8765 --without-tls
                                         behind a proxy with TLS, or in a network that is trusted
  apex hub report --html week.html       what the week was like
  apex hub alerts --alertmanager http://127.0.0.1:9093
                                         tells of jobs that waste GPUs now

Without a token, the hub listens on loopback only, and all users of the machine share it. With tokens, each request needs \
one, and each tenant sees its own jobs. Beyond loopback it needs TLS too, unless --without-tls says that something else \
protects the tokens on their way (docs/fleet.md).")]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Address and port to listen on; an address beyond loopback requires a token
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8765")]
    listen: SocketAddr,
    #[command(flatten)]
    tls: Tls,
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    price: Price,
    /// Days for which details of a run (ranks, findings, kernels of one job) are kept after its
    /// last message; jobs and sums are kept for good
    #[arg(long, value_name = "N", default_value_t = Settings::default().kept_days, value_parser = clap::value_parser!(u64).range(1..=3650))]
    keep_days: u64,
}

/// How the hub is reached from other machines.
#[derive(clap::Args, Clone, Debug)]
struct Tls {
    /// Certificate of the hub (PEM), with those of the authorities between it and a known one
    /// behind it; it is read at the start
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// Key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// Listen beyond loopback without TLS: a proxy in front of the hub has it, or the network is
    /// trusted, because tokens are sent as they are
    #[arg(long, conflicts_with = "tls_certificate", value_parser = FalseyValueParser::new())]
    without_tls: bool,
}

impl Tls {
    /// The certificate and its key, if they are named.
    fn server(&self) -> anyhow::Result<Option<apex_tls::Server>> {
        let Some((certificate, key)) = self.tls_certificate.as_ref().zip(self.tls_key.as_ref()) else {
            return Ok(None);
        };
        let read = |path: &PathBuf| {
            let shown = || format!("cannot read {}", apex_untrusted::shown(path));
            apex_untrusted::read::read(path, MOST_PEM).with_context(shown)
        };
        let server = apex_tls::Server::new(&read(certificate)?, &read(key)?);
        let named = || format!("{} and {}", apex_untrusted::shown(certificate), apex_untrusted::shown(key));
        server.map(Some).with_context(named)
    }
}

/// The database of a hub.
#[derive(clap::Args, Clone, Debug)]
struct Database {
    /// Database of the hub; it is created if it does not exist
    #[arg(long, value_name = "FILE", default_value = "apex-hub.db")]
    database: PathBuf,
}

/// The price of devices.
#[derive(clap::Args, Clone, Copy, Debug)]
struct Price {
    /// What one GPU-hour costs, in your currency; pages then also show money
    #[arg(long, value_name = "PRICE", value_parser = parse_price)]
    price_per_gpu_hour: Option<f64>,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    Token(token::Args),
    Deliver(deliver::Args),
    Report(report::Args),
    Alerts(alerts::Args),
    Export(export::Args),
    Backup(backup::Args),
}

fn parse_price(text: &str) -> Result<f64, String> {
    let price = text.parse().ok().filter(|price: &f64| price.is_finite() && *price >= 0.0);
    price.ok_or_else(|| "write a number such as 2.50".to_owned())
}

fn parse_url(text: &str) -> Result<String, String> {
    let is_address = text.starts_with("http://") || text.starts_with("https://");
    let is_plain = !text.contains(|c: char| c.is_whitespace() || c.is_control() || "?#\"<>".contains(c));
    let url = is_address && is_plain;
    url.then(|| text.to_owned()).ok_or_else(|| "write an address such as https://hub.example".to_owned())
}

/// The tenant that is named, or the only one.
fn tenant(named: Option<&str>, store: &Store) -> anyhow::Result<String> {
    let tenants: Vec<String> = store.tenants()?.into_iter().map(|(name, ..)| name).collect();
    match (named, &tenants[..]) {
        (_, []) => bail!("no job has sent anything to this hub yet"),
        (Some(name), all) if all.iter().any(|of| of == name) => Ok(name.to_owned()),
        (None, [only]) => Ok(only.clone()),
        (Some(name), all) => {
            bail!("there is no tenant {}: there are {}", apex_untrusted::printable(name), all.join(", "))
        }
        (None, all) => bail!("name one of the tenants with --tenant: {}", all.join(", ")),
    }
}

impl Database {
    fn open(&self) -> anyhow::Result<Store> {
        Ok(Store::open(&self.database)?)
    }

    /// Whether the database is there and has a token.
    fn has_tokens(&self) -> anyhow::Result<bool> {
        Ok(self.database.exists() && self.open()?.has_tokens()?)
    }

    /// Opens a database that is there.
    fn open_existing(&self) -> anyhow::Result<Store> {
        if !self.database.exists() {
            let shown = apex_untrusted::shown(&self.database);
            bail!("there is no database {shown}: name the one of your hub with --database");
        }
        self.open()
    }
}

/// Runs `apex hub`.
///
/// # Errors
/// If the database cannot be opened, or the address cannot be listened on.
pub fn execute(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Some(Command::Token(args)) => token::execute(args),
        Some(Command::Deliver(args)) => deliver::execute(args),
        Some(Command::Report(args)) => report::execute(args),
        Some(Command::Alerts(args)) => alerts::execute(args),
        Some(Command::Export(args)) => export::execute(args),
        Some(Command::Backup(args)) => backup::execute(args),
        None => serve(args),
    }
}

fn serve(args: &Args) -> anyhow::Result<ExitCode> {
    let path = &args.database.database;
    let may_be_reached = args.listen.ip().is_loopback() || args.database.has_tokens()?;
    if !may_be_reached {
        bail!(
            "{} is no loopback address: others reach it, so the hub needs a token; make one with `apex hub token \
             --database {} add NAME`",
            args.listen,
            apex_untrusted::shown(path)
        );
    }
    let is_protected = args.listen.ip().is_loopback() || args.tls.without_tls;
    let tls = args.tls.server()?;
    if tls.is_none() && !is_protected {
        bail!(
            "{} is no loopback address: tokens would be sent there as they are; give --tls-certificate and --tls-key, or \
             say with --without-tls that a proxy has TLS or that the network is trusted",
            args.listen
        );
    }
    // A hub that does not start makes no database.
    drop(TcpListener::bind(args.listen).with_context(|| format!("cannot listen on {}", args.listen))?);
    let settings = Settings { price_per_gpu_hour: args.price.price_per_gpu_hour, kept_days: args.keep_days };
    let hub = Hub::open(path, settings)?;
    let server = Server::bind(hub.options(args.listen, tls))?;
    let url = server.url();
    output::page(|out| writeln!(out, "{url}"))?;
    output::remark("Ctrl-C ends it");
    server.run(move |request| hub.answer(request))?;
    // Who copies the file of a hub that has ended copies all of it.
    args.database.open()?.settle()?;
    Ok(ExitCode::SUCCESS)
}
