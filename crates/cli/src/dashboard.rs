//! `apex dashboard`: sessions in a browser, while they are recorded and afterwards.

use crate::{import, output, session};
use apex_dashboard::Dashboard;
use apex_http::{Limits, Options, Server, Token};
use clap::builder::FalseyValueParser;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};

/// Shows sessions in a browser, during recording and afterwards.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "Examples:
  apex dashboard                         running sessions, and the newest one in this folder
  apex dashboard before after            these sessions
  apex dashboard .                       all sessions in this folder
  apex dashboard --listen 127.0.0.1:8000
                                         a fixed address, for ssh -L 8000:127.0.0.1:8000

By default the server listens on loopback, which all users of this machine can reach. A token restricts access; \
other addresses require one. Set it in APEX_TOKEN: other users can read the command line.
  APEX_TOKEN=$(od -An -N16 -tx1 /dev/urandom | tr -d ' ') apex dashboard --listen 0.0.0.0:8000")]
pub struct Args {
    /// Session folders, or folders with sessions in them [default: all sessions that are being
    /// recorded, and the newest one in this folder]
    sessions: Vec<PathBuf>,
    /// Address and port to listen on; an address beyond loopback requires a token
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Secret that clients must send; at least 16 characters
    #[arg(long, value_name = "TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Print the address, but do not open a browser
    #[arg(long, value_parser = FalseyValueParser::new())]
    no_open: bool,
}

/// Runs `apex dashboard`.
pub fn execute(args: &Args) -> anyhow::Result<ExitCode> {
    crate::knowledge::install(&[])?;
    for named in &args.sessions {
        session::exists(named)?;
        session::refuse_stdout(named)?;
    }
    let server = listen(args.listen, args.token.as_deref())?;
    let named: Vec<PathBuf> =
        args.sessions.iter().map(|path| import::opened(path)).collect::<anyhow::Result<_>>()?;
    let find = move || match named.is_empty() {
        true => found(),
        false => named.iter().flat_map(|path| session::all_of(path)).collect(),
    };
    if find().is_empty() {
        output::remark(
            "no session is recorded now, and none is here: the page shows those that `apex run` begins",
        );
    }
    let url = server.url();
    output::page(|out| writeln!(out, "{url}"))?;
    output::remark("Ctrl-C ends it");
    if !args.no_open {
        open(&url, Command::spawn);
    }
    let dashboard = Dashboard::new(find);
    server.run(move |request| dashboard.answer(request))?;
    Ok(ExitCode::SUCCESS)
}

/// Sessions to show unless the user names some.
fn found() -> Vec<PathBuf> {
    let mut all = apex_live::recorded_now();
    all.extend(session::newest_here());
    all
}

/// A server for dashboards that listens.
///
/// # Errors
/// If the token is too short, if the address cannot be had, or needs a token.
pub fn listen(address: SocketAddr, token: Option<&str>) -> anyhow::Result<Server> {
    let token = token.map(Token::new).transpose()?;
    let limits = Limits { answers: 8, heavy_answers: 6, ..Limits::default() };
    Ok(Server::bind(Options { address, token, limits, is_heavy: Dashboard::is_heavy, ..Options::default() })?)
}

/// Opens the browser, where there is a display to open it on, with a command that is started so.
pub fn open(url: &str, start: impl FnOnce(&mut Command) -> io::Result<Child>) {
    let has_display = ["DISPLAY", "WAYLAND_DISPLAY"]
        .into_iter()
        .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()));
    if !has_display {
        return;
    }
    let mut command = Command::new("xdg-open");
    command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match start(&mut command) {
        // It ends when the browser has it.
        Ok(mut child) => drop(std::thread::spawn(move || child.wait())),
        Err(error) => output::remark(format!("cannot open a browser with xdg-open: {error}")),
    }
}
