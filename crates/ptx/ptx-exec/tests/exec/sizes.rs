//! Variables that are too large for any memory are refused by name, whatever makes them so.

use ptx_exec::Program;

fn refusal(declarations: &str, body: &str, parameters: &str) -> Option<String> {
    let source = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n{declarations}\n.visible .entry k({parameters}) {{\n{body}\nret; }}\n"
    );
    let module = ptx::parse(&source).unwrap_or_else(|error| panic!("{}", error.render("k", &source)));
    Program::compile(&module).err().map(|error| error.message)
}

/// Products beyond 64 bits, one that wraps to a small number, and one beyond any memory.
const SIZES: [&str; 5] = [
    "[4294967296][4294967296]",
    "[4294967297][4294967295][3]",
    "[9223372036854775808][2]",
    "[18446744073709551615]",
    "[1099511627777]",
];

#[test]
fn sizes_beyond_memory_are_refused() {
    for size in SIZES {
        for ty in [".b8", ".b64", ".v4 .u32"] {
            let variable = format!(".align 16 {ty} g{size}");
            let mut found = Vec::new();
            for space in [".global", ".const", ".shared", ".extern .global", ".extern .shared"] {
                found.push((space, refusal(&format!("{space} {variable};"), "", "")));
            }
            for space in [".local", ".shared", ".param"] {
                found.push((space, refusal("", &format!("{space} {variable};"), "")));
            }
            found.push((".param of an entry", refusal("", "", &format!(".param {variable}"))));
            let function = format!(".func (.param {variable}) f(.param .b32 a) {{ ret; }}");
            found.push((".param of a function", refusal(&function, "", "")));
            let prototype = format!("p: .callprototype _ (.param {variable});");
            found.push((".param of a prototype", refusal("", &prototype, "")));
            for (space, message) in found {
                let expected = "`g` is larger than 1099511627776 bytes";
                assert_eq!(message.as_deref(), Some(expected), "{space} {variable}");
            }
        }
    }
    assert_eq!(refusal(".global .b8 g[1099511627776];", "", ""), None);
}
