//! The report of a week: for a mail or a meeting.

use crate::document::json;
use crate::html;
use crate::pages::{changes, day, held, jobs, kernels, losses, owners, parts};
use crate::store::{Error, JobRow, KernelRow, OwnerRow, Store, Sums};
use crate::writer::now_ns;
use apex_ordered::Order;
use serde::Serialize;

/// Rows of each table.
const ROWS: usize = 10;

/// Sums, and who lost most.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Days that it is of; the last one is today.
    days: u64,
    /// The first day and the last one, in UTC.
    from: String,
    to: String,
    times: Sums,
    /// As many days before.
    times_before: Sums,
    owners: Vec<OwnerRow>,
    /// Jobs that lost most.
    jobs: Vec<JobRow>,
    kernels: Vec<KernelRow>,
    changes: changes::Changes,
    #[serde(skip)]
    now: u64,
}

impl Report {
    /// The report of a tenant's last days.
    ///
    /// # Errors
    /// Those of the database.
    pub fn find(store: &Store, tenant: &str, days: u64, now: u64) -> Result<Self, Error> {
        let first = day(now).saturating_sub(days - 1);
        // (Of a clock that is ahead, a day is after today.)
        let times = store.total(tenant, first, day(now) + 2)?;
        let times_before = store.total(tenant, first.saturating_sub(days), first)?;
        let lost = |times: &Sums| times.lost_us().saturating_add(times.unused_us);
        let mut owners = store.owners(tenant, first)?;
        owners.order_by_key(|of| std::cmp::Reverse(lost(&of.times)));
        owners.truncate(ROWS);
        let jobs = store.costliest(tenant, first..=day(now) + 1, ROWS)?;
        let kernels = store.kernels(tenant, first / 7, ROWS)?;
        let changes = changes::Changes::find(store, tenant, days.max(30), now)?;
        let (from, to) = (html::date(first), html::date(day(now)));
        Ok(Self { days, from, to, times, times_before, owners, jobs, kernels, changes, now })
    }

    /// The page.
    pub fn body(&self, price: Option<f64>) -> String {
        let (times, before) = (&self.times, &self.times_before);
        let busy = |times: &Sums| html::share(times.busy_us(), times.held_us());
        let mut body = format!(
            "<h1>GPUs from {} to {} (UTC)</h1>\n{}<p>The {} before: {} of GPU time, {} busy. Most was lost to: {}.</p>\n{}",
            self.from,
            self.to,
            html::figures(&held(times, price)),
            html::counted(self.days, "day"),
            html::hours(before.held_us()),
            busy(before),
            Some(losses(&times.times))
                .filter(|said| !said.is_empty())
                .unwrap_or_else(|| "nothing in particular".to_owned()),
            parts(times),
        );
        body += &format!("<h2>Who lost most</h2>\n{}", owners::table(&self.owners, price));
        body += &format!("<h2>Jobs that lost most</h2>\n{}", jobs::table(&self.jobs, price, self.now));
        if self.changes.slower().next().is_some() {
            body += &format!("<h2>Jobs that became slower</h2>\n{}", changes::table(self.changes.slower()));
        }
        body + &format!("<h2>Kernels</h2>\n{}", kernels::table(&self.kernels))
    }
}

impl Store {
    /// The report of a tenant's last days, as a document.
    ///
    /// # Errors
    /// Those of the database.
    pub fn report_json(&self, tenant: &str, days: u64) -> Result<String, Error> {
        Ok(json(&Report::find(self, tenant, days, now_ns())?))
    }

    /// The report of a tenant's last days, as a page that needs no hub; its links lead to the hub
    /// at an address, if one is given.
    ///
    /// # Errors
    /// Those of the database.
    pub fn report_html(
        &self,
        tenant: &str,
        days: u64,
        price: Option<f64>,
        hub: Option<&str>,
    ) -> Result<String, Error> {
        let report = Report::find(self, tenant, days, now_ns())?;
        let title = format!("GPUs from {} to {}", report.from, report.to);
        Ok(html::standalone(&title, &html::relinked(&report.body(price), hub)))
    }
}
