//! Figures and text, as the document has them.

use apex_profile::{Distribution, Provenance};
use serde::Serialize;

/// Bytes of a foreign name.
pub const NAME: usize = 300;

/// A value that says where it comes from; members without a value are left out.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Figure {
    value: f64,
    provenance: Provenance,
    #[serde(skip_serializing_if = "is_zero")]
    samples: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    standard_error: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    low: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    high: Option<f64>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Figure {
    pub fn of(figure: apex_profile::Figure) -> Self {
        let (low, high) = figure.interval().unzip();
        Self {
            value: figure.value,
            provenance: figure.provenance(),
            samples: figure.samples,
            standard_error: figure.standard_error,
            low,
            high,
        }
    }
}

/// Spread of durations: measured.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Spread {
    count: u64,
    total_ns: f64,
    mean_ns: f64,
    p10_ns: f64,
    median_ns: f64,
    p90_ns: f64,
    max_ns: f64,
}

impl Spread {
    pub fn of(of: &Distribution) -> Self {
        let Distribution { count, total_ns, mean_ns, p10_ns, median_ns, p90_ns, max_ns, .. } = *of;
        Self { count, total_ns, mean_ns, p10_ns, median_ns, p90_ns, max_ns }
    }
}

/// Foreign text, printable, in at most so many bytes of the page: the end of a longer one is left
/// out.
pub fn text(foreign: &str, most: usize) -> String {
    let mut shown = String::new();
    let mut bytes = 0;
    for c in foreign.chars() {
        let mut utf8 = [0; 4];
        let c = apex_untrusted::printable(c.encode_utf8(&mut utf8));
        bytes += c.chars().map(bytes_in_page).sum::<usize>();
        if bytes > most {
            shown.push('…');
            break;
        }
        shown.push_str(&c);
    }
    shown
}

/// Bytes of a printable character in JSON without `<`.
fn bytes_in_page(c: char) -> usize {
    match c {
        '<' => "\\u003c".len(),
        '"' | '\\' => 2,
        c => c.len_utf8(),
    }
}
