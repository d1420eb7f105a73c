//! Functions that the device provides, as modules may declare them. `tests/ptx/provided.ptx` calls
//! them without their results.

use ptx_exec::Program;

/// The error of a module that declares `declaration` and calls it by `call`.
fn refusal(declaration: &str, call: &str) -> Option<String> {
    let source = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.extern .func {declaration};\n.visible .entry kernel()\n{{\n\
         .param .b32 half;\n.param .b64 whole;\n.param .b64 other;\n.param .b32 result;\n{call};\nret;\n}}\n"
    );
    let module = ptx::parse(&source).unwrap_or_else(|error| panic!("{}", error.render("test.ptx", &source)));
    Program::compile(&module).err().map(|error| error.render("test.ptx", &source))
}

#[test]
fn other_parameters_are_refused_when_the_module_is_loaded() {
    for (declaration, call) in [
        ("(.param .b32 r) vprintf(.param .b32 f, .param .b32 a)", "call (result), vprintf, (half, half)"),
        ("(.param .b32 r) vprintf(.param .b64 f)", "call (result), vprintf, (whole)"),
        ("(.param .b64 r) vprintf(.param .b64 f, .param .b64 a)", "call (other), vprintf, (whole, whole)"),
        ("(.param .b64 r) malloc(.param .b32 n)", "call (other), malloc, (half)"),
        ("(.param .b32 r) malloc(.param .b64 n)", "call (result), malloc, (whole)"),
        ("free(.param .b32 p)", "call free, (half)"),
        ("(.param .b32 r) free(.param .b64 p)", "call (result), free, (whole)"),
        (
            "(.param .b32 r) cudaMalloc(.param .b64 p, .param .b32 n)",
            "call (result), cudaMalloc, (whole, half)",
        ),
        (
            "cudaGraphSetConditional(.param .b32 h, .param .b32 v)",
            "call cudaGraphSetConditional, (half, half)",
        ),
    ] {
        let text = refusal(declaration, call).unwrap_or_else(|| panic!("{declaration} is accepted"));
        assert!(text.contains("is provided by the device with parameters of"), "{declaration}: {text}");
    }
    for (declaration, call) in [
        ("vprintf(.param .b64 f, .param .b64 a)", "call vprintf, (whole, whole)"),
        ("(.param .b32 r) vprintf(.param .align 8 .b8 f[8], .param .b64 a)", "call vprintf, (whole, whole)"),
        ("cudaGetLastError()", "call cudaGetLastError"),
        ("(.param .b32 r) cudaStreamDestroy(.param .b64 s)", "call (result), cudaStreamDestroy, (whole)"),
    ] {
        assert_eq!(refusal(declaration, call), None, "{declaration}");
    }
}
