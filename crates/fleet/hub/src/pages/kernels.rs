//! Kernels over the fleet.

use super::day;
use crate::html::{self, escaped};
use crate::store::{Error, KernelRow, Store};
use serde::Serialize;

/// Kernels of the page.
const MOST: usize = 100;

/// Kernels, those that took most time first.
#[derive(Debug, Serialize)]
pub struct Kernels {
    /// Calendar weeks (from Thursday, as 1970 began) that the sums are of.
    weeks: u64,
    kernels: Vec<KernelRow>,
}

impl Kernels {
    /// Sums of the last weeks.
    ///
    /// # Errors
    /// Those of the database.
    pub fn find(store: &Store, tenant: &str, weeks: u64, now: u64) -> Result<Self, Error> {
        let since = (day(now) / 7).saturating_sub(weeks - 1);
        Ok(Self { weeks, kernels: store.kernels(tenant, since, MOST)? })
    }

    /// The page.
    pub fn body(&self) -> String {
        format!(
            "<h1>Kernels</h1>\n<p class=\"soft\">Recordings that began in the last {}. Each recording names its costliest \
             kernels; the rest is in (other). GPU times are measured on samples of the launches.</p>\n{}",
            html::counted(self.weeks, "week"),
            table(&self.kernels)
        )
    }
}

/// A table of kernels.
pub fn table(kernels: &[KernelRow]) -> String {
    let all: u64 = kernels.iter().map(|kernel| kernel.gpu_us).fold(0, u64::saturating_add);
    let row = |kernel: &KernelRow| {
        vec![
            format!("<code>{}</code>", escaped(&kernel.name)),
            html::count(kernel.launches),
            html::hours(kernel.gpu_us),
            html::share(kernel.gpu_us, all),
        ]
    };
    let columns = ["kernel", "launches#", "GPU time#", "share of these#"];
    html::table(&columns, &kernels.iter().map(row).collect::<Vec<_>>())
}
