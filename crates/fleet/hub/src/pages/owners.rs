//! The page of owners: who holds devices, and what for.

use super::{cost, day, energy, losses, owner_link};
use crate::html;
use crate::store::{Error, OwnerRow, Store, Sums};
use serde::Serialize;

/// Owners that the page lists.
const ROWS: usize = 200;

/// Owners, those who hold most first.
#[derive(Debug, Serialize)]
pub struct Owners {
    /// Days that the sums are of.
    days: u64,
    owners: Vec<OwnerRow>,
}

impl Owners {
    /// Sums of the last days.
    ///
    /// # Errors
    /// Those of the database.
    pub fn find(store: &Store, tenant: &str, days: u64, now: u64) -> Result<Self, Error> {
        Ok(Self { days, owners: store.owners(tenant, day(now).saturating_sub(days - 1))? })
    }

    /// The page.
    pub fn body(&self, price: Option<f64>) -> String {
        let (listed, others) = self.owners.split_at(ROWS.min(self.owners.len()));
        let mut sum = Sums::default();
        others.iter().for_each(|of| sum.add(&of.times));
        let rest = match others.len() as u64 {
            0 => String::new(),
            count => format!(
                "<p>{} more held {} and lost {}: <code>/api/v1/owners</code> lists all.</p>\n",
                html::counted(count, "owner"),
                html::hours(sum.held_us()),
                html::hours(sum.lost_us())
            ),
        };
        format!(
            "<h1>Owners</h1>\n<p class=\"soft\">Recordings that began in the last {}.</p>\n{}{rest}",
            html::counted(self.days, "day"),
            table(listed, price)
        )
    }
}

/// A table of owners.
pub fn table(owners: &[OwnerRow], price: Option<f64>) -> String {
    let mut columns = vec![
        "owner",
        "recordings#",
        "GPU time#",
        "busy#",
        "GPU time lost#",
        "allocated, never used#",
        "energy (measured)#",
        "where the time went",
        "lost to",
    ];
    if price.is_some() {
        columns.push("cost of what was lost or never used#");
    }
    let row = |of: &OwnerRow| {
        let times = &of.times;
        let mut row = vec![
            owner_link(&of.owner),
            html::count(of.recordings),
            html::hours(times.held_us()),
            html::share(times.busy_us(), times.held_us()),
            html::hours(times.lost_us()),
            html::hours(times.unused_us),
            energy(times),
            html::bar(&times.times),
            losses(&times.times),
        ];
        row.extend(price.map(|price| cost(times.lost_us().saturating_add(times.unused_us), price)));
        row
    };
    html::table(&columns, &owners.iter().map(row).collect::<Vec<_>>())
}
