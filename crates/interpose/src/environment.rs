//! How the user wants the program made faster.

use apex_conventions::variables::FAST;

/// Whether the program is to be made faster in this way: `queue`, `batch` or `memory`.
pub fn is_fast_by(way: &str) -> bool {
    std::env::var(FAST.name).is_ok_and(|value| value.split(',').any(|wanted| wanted == way))
}
