//! One job: its ranks, findings, kernels, and the commands that open its sessions.

use super::{condition, held, owner_link, parts};
use crate::html::{self, escaped};
use crate::store::{Error, JobRow, RecordingRow, Store, Sums, unpacked};
use apex_aggregate::{Aggregate, Kernel};
use apex_ordered::Order;
use serde::Serialize;
use std::collections::BTreeMap;

/// Recordings whose messages are read.
const RECORDINGS: usize = 1024;
/// Kernels of a job.
const KERNELS: usize = 30;
/// Sessions whose commands are shown.
const SESSIONS: usize = 16;

/// A job with what its recordings say.
#[derive(Debug, Serialize)]
pub struct Job {
    /// The job.
    pub job: JobRow,
    /// Its recordings, whole as they were sent.
    recordings: Vec<Recording>,
    /// Recordings that are not listed: too many, or too old.
    recordings_without_details: u64,
    /// Ranks, in their order.
    ranks: Vec<Rank>,
    /// Findings, those that concern most recordings first.
    findings: Vec<Found>,
    /// Kernels, by time.
    kernels: Vec<Kernel>,
    /// Times of the CPU device, of the recordings that are listed. No other figure has them.
    cpu_device: Sums,
}

/// A recording.
#[derive(Debug, Serialize)]
struct Recording {
    received_ns: u64,
    /// The command that opens its session.
    open: String,
    #[serde(flatten)]
    message: Aggregate,
}

/// The use of a device by a rank.
#[derive(Debug, Serialize)]
struct Rank {
    rank: Option<u32>,
    host: String,
    pid: u32,
    device: String,
    launches: u64,
    times: Sums,
}

/// A finding of several recordings.
#[derive(Debug, Serialize)]
struct Found {
    rule: String,
    title: String,
    remedy: String,
    severity: String,
    /// Recordings that have it.
    recordings: u64,
    /// The largest saving of one, with its interval: predicted.
    saving: Option<[f64; 3]>,
}

impl Job {
    /// Finds a tenant's job.
    ///
    /// # Errors
    /// Those of the database.
    pub fn find(store: &Store, tenant: &str, id: i64) -> Result<Option<Self>, Error> {
        let Some(job) = store.job(tenant, id)? else { return Ok(None) };
        let rows = store.recordings(id, RECORDINGS)?;
        let mut recordings: Vec<Recording> = rows.iter().filter_map(Recording::of).collect();
        recordings
            .order_by_key(|of| (of.message.job.rank, of.message.started_ns, of.message.recording.clone()));
        let messages: Vec<&Aggregate> = recordings.iter().map(|of| &of.message).collect();
        let (ranks, findings, kernels) = (ranks(&messages), findings(&messages), kernels(&messages));
        let mut cpu_device = Sums::default();
        messages.iter().for_each(|of| cpu_device.times.add(&of.cpu_device_times()));
        let recordings_without_details = job.recordings.saturating_sub(recordings.len() as u64);
        Ok(Some(Self { job, recordings, recordings_without_details, ranks, findings, kernels, cpu_device }))
    }

    /// The page.
    pub fn body(&self, price: Option<f64>, now: u64) -> String {
        let job = &self.job;
        let mut facts = vec![("owner", owner_link(&job.owner)), ("state", condition(job, now))];
        facts.push(("started (UTC)", html::moment(job.started_ns)));
        let named = [("launcher", &job.launcher), ("code", &job.code_version), ("devices", &job.devices)];
        facts.extend(
            named
                .into_iter()
                .filter(|(_, text)| !text.is_empty())
                .map(|(name, text)| (name, escaped(&text.chars().take(40).collect::<String>()))),
        );
        facts.push(("hosts", job.hosts.to_string()));
        let started =
            if job.ranks_started > 0 { format!(" of {}", job.ranks_started) } else { String::new() };
        facts.push(("ranks", format!("{}{started}", job.ranks.max(1))));
        facts.push(("launches (measured)", html::count(job.launches)));
        facts.extend(job.step_ns.map(|ns| ("step (predicted)", html::duration(ns))));
        if job.lost_records > 0 {
            facts.push((
                "records lost",
                format!("<span class=\"bad\">{}</span>", html::count(job.lost_records)),
            ));
        }
        let times = &job.times;
        format!(
            "<h1>{}</h1>\n<p><code>{}</code></p>\n{}{}{}\n{}<h2>Where the time went</h2>\n{}{}{}{}{}",
            escaped(&job.job),
            escaped(&job.command),
            html::figures(&facts),
            html::figures(&held(times, price)),
            html::bar(&times.times),
            self.findings_section(),
            parts(times),
            self.cpu_device_section(),
            self.ranks_section(),
            self.kernels_section(),
            self.sessions_section(),
        )
    }

    fn cpu_device_section(&self) -> String {
        let times = &self.cpu_device;
        if times.held_us() == 0 {
            return String::new();
        }
        format!(
            "<h2>On the CPU device</h2>\n<p class=\"soft\">This is no GPU time: no sum has it.</p>\n{}{}",
            html::bar(&times.times),
            parts(times).replace("GPU time", "time")
        )
    }

    fn findings_section(&self) -> String {
        if self.findings.is_empty() {
            return "<h2>What to change</h2>\n<p>No rule found anything.</p>\n".to_owned();
        }
        let row = |found: &Found| {
            let saving = found.saving.map_or_else(
                || "unknown".to_owned(),
                |[value, low, high]| {
                    format!("{} [{}, {}]", html::percent(value), html::percent(low), html::percent(high))
                },
            );
            vec![
                escaped(&found.title),
                escaped(&found.remedy),
                saving,
                format!("{} of {}", found.recordings, self.recordings.len()),
                format!("<code>{}</code>", escaped(&found.rule)),
            ]
        };
        let rows: Vec<_> = self.findings.iter().map(row).collect();
        let columns = ["finding", "change", "saves at most, of the run (predicted)#", "recordings#", "rule"];
        format!("<h2>What to change</h2>\n{}", html::table(&columns, &rows))
    }

    fn ranks_section(&self) -> String {
        let row = |rank: &Rank| {
            let times = &rank.times;
            vec![
                rank.rank.map_or_else(|| "–".to_owned(), |rank| rank.to_string()),
                escaped(&rank.host),
                rank.pid.to_string(),
                escaped(&rank.device),
                html::count(rank.launches),
                html::hours(times.held_us()),
                html::share(times.busy_us(), times.held_us()),
                html::share(times.times.waiting_us, times.held_us()),
                html::bar(&times.times),
            ]
        };
        let columns = [
            "rank#",
            "host",
            "process#",
            "device",
            "launches#",
            "device time#",
            "busy#",
            "waiting for others#",
            "where the time went",
        ];
        let missing = match self.recordings_without_details {
            0 => String::new(),
            more => format!("<p>{} recordings are in the sums and not listed here.</p>\n", html::count(more)),
        };
        let rows: Vec<_> = self.ranks.iter().map(row).collect();
        format!("<h2>Ranks</h2>\n{}{missing}", html::table(&columns, &rows))
    }

    fn kernels_section(&self) -> String {
        let row = |kernel: &Kernel| {
            vec![
                format!("<code>{}</code>", escaped(&kernel.name)),
                html::count(kernel.launches),
                html::hours(kernel.gpu_us),
            ]
        };
        let rows: Vec<_> = self.kernels.iter().map(row).collect();
        format!(
            "<h2>Kernels</h2>\n{}",
            html::table(&["kernel", "launches (measured)#", "GPU time (measured)#"], &rows)
        )
    }

    fn sessions_section(&self) -> String {
        let commands = self.recordings.iter().take(SESSIONS).map(|of| escaped(&of.open) + "\n");
        format!(
            "<h2>Open a session</h2>\n<p>The records stay on the host that made them.</p>\n<div class=\"card\"><pre><code>{}</code></pre></div>\n",
            commands.collect::<String>()
        )
    }
}

impl Recording {
    /// `None` for a message that this version cannot read.
    fn of(row: &RecordingRow) -> Option<Self> {
        let message = Aggregate::parse(&unpacked(&row.message)?).ok()?;
        // Both come from a message: neither may become an option of the command that a reader
        // pastes.
        let open =
            format!("ssh -- {} apex report -- {}", quoted(&message.host), quoted(&quoted(&message.session)));
        Some(Self { received_ns: row.received_ns, open, message })
    }
}

/// The text as a word of a shell.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) && !text.starts_with('-') {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

fn ranks(messages: &[&Aggregate]) -> Vec<Rank> {
    let of_message = |of: &Aggregate| {
        let rank = |used: &apex_aggregate::Use| Rank {
            rank: used.rank.or(of.job.rank),
            host: of.host.clone(),
            pid: used.pid,
            device: used
                .device
                .and_then(|at| of.devices.get(at as usize))
                .map_or(String::new(), |d| d.name.clone()),
            launches: used.launches,
            times: used.times.into(),
        };
        of.uses.iter().map(rank).collect::<Vec<_>>()
    };
    let mut ranks: Vec<Rank> = messages.iter().flat_map(|of| of_message(of)).collect();
    ranks.order_by(|a, b| (a.rank, &a.host, a.pid, &a.device).cmp(&(b.rank, &b.host, b.pid, &b.device)));
    ranks
}

fn findings(messages: &[&Aggregate]) -> Vec<Found> {
    let mut by_rule: BTreeMap<(&str, &str), Found> = BTreeMap::new();
    for finding in messages.iter().flat_map(|of| &of.findings) {
        let new = || Found {
            rule: finding.rule.clone(),
            title: finding.title.clone(),
            remedy: finding.remedy.clone(),
            severity: finding.severity.clone(),
            recordings: 0,
            saving: None,
        };
        let found = by_rule.entry((&finding.rule, &finding.title)).or_insert_with(new);
        found.recordings += 1;
        let value = |saving: Option<[f64; 3]>| saving.map_or(-1.0, |[value, ..]| value);
        if value(finding.saving) > value(found.saving) {
            found.saving = finding.saving;
        }
    }
    let mut found: Vec<Found> = by_rule.into_values().collect();
    let value = |found: &Found| found.saving.map_or(-1.0, |[value, ..]| value);
    found.order_by(|a, b| value(b).total_cmp(&value(a)).then(b.recordings.cmp(&a.recordings)));
    found
}

fn kernels(messages: &[&Aggregate]) -> Vec<Kernel> {
    let mut by_name: BTreeMap<&str, Kernel> = BTreeMap::new();
    let mut others = Kernel { name: "(other)".to_owned(), ..Kernel::default() };
    for kernels in messages.iter().map(|of| &of.kernels) {
        for kernel in &kernels.listed {
            let new = || Kernel { name: kernel.name.clone(), ..Kernel::default() };
            add(by_name.entry(&kernel.name).or_insert_with(new), kernel);
        }
        add(&mut others, &kernels.others);
    }
    let mut kernels: Vec<Kernel> = by_name.into_values().collect();
    kernels.order_by_key(|kernel| std::cmp::Reverse((kernel.gpu_us, kernel.launches)));
    kernels.iter().skip(KERNELS).for_each(|kernel| add(&mut others, kernel));
    kernels.truncate(KERNELS);
    kernels.extend(Some(others).filter(|others| others.launches > 0));
    kernels
}

fn add(sum: &mut Kernel, kernel: &Kernel) {
    sum.launches = sum.launches.saturating_add(kernel.launches);
    sum.gpu_us = sum.gpu_us.saturating_add(kernel.gpu_us);
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn words_of_a_shell_are_quoted() {
        for (text, expected) in
            [("/a/b-1", "/a/b-1"), ("a b", "'a b'"), ("", "''"), ("-x", "'-x'"), ("it's;", "'it'\\''s;'")]
        {
            assert_eq!(quoted(text), expected);
        }
    }
}
