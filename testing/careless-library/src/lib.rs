//! `libapex.so` whose launch queue lets the calls pass that `CARELESS_ABOUT` names, or whose
//! batches or memory pool neglect what it names.
//!
//! Tests preload it in place of `libapex.so`, to see whether a fault in the queue's table or in the
//! pool would be noticed.

use std::sync::LazyLock;

/// Runs when the library is loaded: the table is read at the first driver call.
#[used]
#[unsafe(link_section = ".init_array")]
static REGISTER: extern "C" fn() = register;

extern "C" fn register() {
    apex::actions::queue::order::let_pass(is_named);
    apex::actions::queue::batch::neglect(is_named);
    apex::actions::pool::work::neglect(is_named);
    apex::actions::schedule::neglect(is_named);
}

fn is_named(base: &str) -> bool {
    static NAMED: LazyLock<String> = LazyLock::new(|| std::env::var("CARELESS_ABOUT").unwrap_or_default());
    base == *NAMED
}
