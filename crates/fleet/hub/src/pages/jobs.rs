//! The jobs.

use super::{condition, cost, day, energy, held, job_link, losses, owner_link};
use crate::html::{self, escaped};
use crate::store::{Error, JobRow, Store, Sums, Wanted};
use serde::Serialize;

/// Days that the sums at the top are of.
const DAYS: u64 = 7;
/// Characters of a command in a table.
const COMMAND: usize = 80;

/// A page of jobs.
#[derive(Debug, Serialize)]
pub struct Jobs {
    /// Days that [`Self::times`] is of.
    days: u64,
    /// Sums of all recordings that began in these days.
    times: Sums,
    /// The jobs, the newest first.
    jobs: Vec<JobRow>,
    /// What `before` has to be for the next page; `None` on the last one.
    before: Option<String>,
    /// The owner whose jobs these are.
    owner: Option<String>,
    /// Whether no page was before this one.
    #[serde(skip)]
    is_first: bool,
}

impl Jobs {
    /// Finds a page of jobs.
    ///
    /// # Errors
    /// Those of the database.
    pub fn find(store: &Store, tenant: &str, wanted: &Wanted, now: u64) -> Result<Self, Error> {
        let page = store.jobs(tenant, wanted)?;
        let last = page.jobs.last().filter(|_| page.has_more);
        let before = last.map(|job| format!("{}-{}", job.started_ns, job.id));
        let times = store.total(tenant, day(now).saturating_sub(DAYS - 1), u64::from(u32::MAX))?;
        let owner = wanted.owner.clone();
        Ok(Self { days: DAYS, times, jobs: page.jobs, before, owner, is_first: wanted.before.is_none() })
    }

    /// The page.
    pub fn body(&self, price: Option<f64>, now: u64) -> String {
        let mut body = match &self.owner {
            Some(owner) => {
                format!("<h1>Jobs of {}</h1>\n<p><a href=\"/\">all jobs</a></p>\n", escaped(owner))
            }
            None => format!(
                "<h1>Jobs</h1>\n<p class=\"soft\">All recordings of the last {} days together:</p>\n{}",
                self.days,
                html::figures(&held(&self.times, price))
            ),
        };
        if self.jobs.is_empty() {
            body.push_str(self.nothing());
            return body;
        }
        body.push_str(&table(&self.jobs, price, now));
        if let Some(before) = &self.before {
            let owner = self
                .owner
                .as_ref()
                .map_or(String::new(), |of| format!("&amp;owner={}", html::in_address(of)));
            body.push_str(&format!("<p><a href=\"/?before={before}{owner}\">older jobs</a></p>\n"));
        }
        body
    }
}

impl Jobs {
    /// Text in place of jobs.
    fn nothing(&self) -> &'static str {
        match (&self.owner, self.is_first) {
            (_, false) => "<p>There are no older jobs.</p>\n",
            (Some(_), true) => {
                "<p>No job of this owner has sent anything. <a href=\"/owners?days=365\">Owners</a> lists those whose \
                 jobs did.</p>\n"
            }
            (None, true) => {
                "<p>No job has sent anything yet. <code>apex run --hub http://HOST:PORT -- COMMAND</code> sends; the page \
                 <a href=\"/health\">Hub</a> says what was refused.</p>\n"
            }
        }
    }
}

/// A table of jobs.
pub fn table(jobs: &[JobRow], price: Option<f64>, now: u64) -> String {
    let mut columns = vec![
        "started (UTC)",
        "job",
        "owner",
        "command",
        "state",
        "hosts#",
        "ranks#",
        "GPU time#",
        "busy#",
        "where the time went",
        "lost to",
        "energy (measured)#",
    ];
    if price.is_some() {
        columns.push("cost#");
    }
    let row = |job: &JobRow| {
        let (times, command) = (&job.times, job.command.chars().take(COMMAND).collect::<String>());
        let is_on_cpu = job.cpu_device_us > 0 && times.held_us() == 0;
        let gpu_time = if is_on_cpu { "CPU device".to_owned() } else { html::hours(times.held_us()) };
        let mut row = vec![
            html::moment(job.started_ns),
            job_link(job),
            owner_link(&job.owner),
            format!("<code>{}</code>", escaped(&command)),
            condition(job, now),
            job.hosts.to_string(),
            job.ranks.max(1).to_string(),
            gpu_time,
            html::share(times.busy_us(), times.held_us()),
            html::bar(&times.times),
            losses(&times.times),
            if is_on_cpu { String::new() } else { energy(times) },
        ];
        row.extend(price.map(|price| cost(times.held_us(), price)));
        row
    };
    html::table(&columns, &jobs.iter().map(row).collect::<Vec<_>>())
}
