//! Where aggregates go: options that `apex run` and `apex hub deliver` share.

use anyhow::{Context, anyhow};
use apex_agent::Destination;
use apex_delivery::{Delivered, PATH};
use apex_push::{Failure, Target};
use apex_spool::{Limits, Spool};
use std::path::PathBuf;

/// Most bytes of a file of certificates.
const MOST_PEM: u64 = 4 << 20;

/// Where aggregates go.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct ToHub {
    /// Send figures of the run (no records) to this hub, such as https://hub:8765, while it runs
    /// and at its end. The program never waits for it
    #[arg(long = "hub", visible_alias = "to", value_name = "URL", hide_env_values = true)]
    pub hub: Option<String>,
    /// Secret that the hub demands; set it in APEX_HUB_TOKEN, because other users can read the
    /// command line
    #[arg(long, value_name = "TOKEN", hide_env_values = true)]
    pub hub_token: Option<String>,
    /// Certificates (PEM) that a hub at https:// has to have one of, or be signed by: of your own
    /// authority, or of the hub itself [default: the authorities that the system knows]
    #[arg(long, value_name = "FILE")]
    pub hub_ca: Option<PathBuf>,
    /// Folder of messages that no hub has confirmed yet [default: ~/.local/state/apex/spool]
    #[arg(long, value_name = "DIR")]
    pub spool: Option<PathBuf>,
}

impl ToHub {
    /// The destination; `None` where the user names neither hub nor spool.
    ///
    /// # Errors
    /// If the address is none, or the spool cannot be used.
    pub fn destination(&self) -> anyhow::Result<Option<Destination>> {
        if self.hub().is_none() && self.spool.is_none() {
            return Ok(None);
        }
        Ok(Some(Destination { hub: self.target()?.map(Into::into), spool: self.spool()? }))
    }

    /// What the user gave as an address; an empty variable of the environment is none.
    fn hub(&self) -> Option<&str> {
        self.hub.as_deref().filter(|url| !url.is_empty())
    }

    /// The hub's address.
    ///
    /// # Errors
    /// If it is none.
    pub fn target(&self) -> anyhow::Result<Option<Target>> {
        let Some(url) = self.hub() else { return Ok(None) };
        let target = address("--hub", url)?;
        let target = match self.hub_token.as_deref().filter(|token| !token.is_empty()) {
            Some(token) => target.with_token(token).map_err(|why| anyhow!("the value of --hub {why}"))?,
            None => target,
        };
        let Some(path) = self.hub_ca.as_ref().filter(|path| !path.as_os_str().is_empty()) else {
            return Ok(Some(target));
        };
        let shown = || format!("--hub-ca {}", apex_untrusted::shown(path));
        let pem = apex_untrusted::read::read(path, MOST_PEM).with_context(shown)?;
        target.with_trusted(&pem).map(Some).with_context(shown)
    }

    /// The spool, if it is there already.
    ///
    /// # Errors
    /// If its folder cannot be used, or if the user names one that does not exist.
    pub fn existing_spool(&self) -> anyhow::Result<Option<Spool>> {
        let exists = |path: &PathBuf| path.symlink_metadata().is_ok();
        if let Some(path) = self.spool.as_ref().filter(|path| !exists(path)) {
            let shown = apex_untrusted::shown(path);
            return Err(anyhow!("there is no folder {shown}: name the one that `apex run --spool` used"));
        }
        let is_there = self.spool.is_some() || usual_spool().as_ref().is_none_or(exists);
        if is_there { self.spool().map(Some) } else { Ok(None) }
    }

    /// The spool.
    ///
    /// # Errors
    /// If its folder cannot be used.
    pub fn spool(&self) -> anyhow::Result<Spool> {
        let path = self.spool.clone().or_else(usual_spool).ok_or_else(|| {
            anyhow!("cannot tell where messages for the hub may wait: name a folder with --spool")
        })?;
        let shown = apex_untrusted::shown(&path);
        Spool::open(&path, Limits::default()).with_context(|| {
            format!("cannot use {shown} for messages that wait for the hub: name another with --spool")
        })
    }
}

/// The address of a hub that an option names.
///
/// # Errors
/// If it is none. What is no address is not quoted: it may hold a token.
pub fn address(option: &str, url: &str) -> anyhow::Result<Target> {
    Target::new(url, PATH).map_err(|why| anyhow!("the value of {option} {why}"))
}

fn usual_spool() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")))?;
    Some(state.join("apex/spool"))
}

/// What a status of a hub means, and what to do.
fn remedy(failure: &Failure) -> &'static str {
    match failure {
        Failure::Refused(401) => " (it knows no such token: set the one of your group in APEX_HUB_TOKEN)",
        Failure::Refused(421) => " (it is reached by a name that it does not know: a proxy has to set Host)",
        Failure::Refused(426) => " (it speaks TLS: write https:// in place of http:// in APEX_HUB)",
        _ => "",
    }
}

/// Message about a delivery; nothing if all went well.
pub fn remarks(done: &Delivered, spool: &Spool) -> Vec<String> {
    let mut remarks = Vec::new();
    if done.refused > 0 {
        let messages = crate::units::counted(done.refused, "message", "messages");
        let status = done.status.unwrap_or(0);
        remarks
            .push(format!("the hub refused {messages} for good (status {status}): its page `Hub` says why"));
    }
    if let Some(failure) = &done.failure {
        let messages = crate::units::counted(done.waiting, "message waits", "messages wait");
        remarks.push(format!(
            "the hub {failure}{}; {messages} in {}; the next `apex run --hub`, or `apex hub deliver`, sends them",
            remedy(failure),
            apex_untrusted::shown(spool.path())
        ));
    }
    if done.elsewhere > 0 {
        let messages = crate::units::counted(done.elsewhere, "message waits", "messages wait");
        remarks.push(format!(
            "{messages} for another hub or another token: `apex hub deliver --list` says for which"
        ));
    }
    remarks
}
