//! `libapex.so` with a flush that calls a function of the program's.
//!
//! Tests preload it in place of `libapex.so`. What it exports beside that library's symbols is
//! `flushing_set_witness`.

use std::sync::OnceLock;

static WITNESS: OnceLock<extern "C" fn()> = OnceLock::new();

/// Runs when the library is loaded: a flush has to be there before the first driver call.
#[used]
#[unsafe(link_section = ".init_array")]
static REGISTER: extern "C" fn() = register;

extern "C" fn register() {
    apex::flush::register(apex::flush::Flush { is_due: |_| true, run: flush });
}

fn flush() {
    if let Some(witness) = WITNESS.get() {
        witness();
    }
}

/// Sets the function that every flush calls. The first one stays.
#[unsafe(no_mangle)]
pub extern "C" fn flushing_set_witness(witness: extern "C" fn()) {
    WITNESS.get_or_init(|| witness);
}
