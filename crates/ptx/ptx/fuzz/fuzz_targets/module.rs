//! See `fuzz/README.md`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let module = match ptx::parse(text) {
        Ok(module) => module,
        Err(error) => return assert!(!error.render("fuzz.ptx", text).is_empty()),
    };
    for problem in ptx::verify(&module) {
        assert!(!problem.render("fuzz.ptx", text).is_empty());
    }
    let printed = module.to_string();
    let again = ptx::parse(&printed).expect("what is printed parses");
    assert!(module == again, "what is printed parses to the same");
});
