//! The table of rows in docs/universal.md is the crate's. `BLESS=1` writes it.

use std::fmt::Write;
use std::path::Path;

use ptx_retarget::ROWS;

const START: &str = "<!-- rows: BLESS=1 cargo test -p ptx-retarget --test page -->\n";
const END: &str = "<!-- end of the rows -->";

#[test]
fn the_page_has_the_rows() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/universal.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(START).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let mut table = "\n| row | replaces | by | | why |\n| --- | --- | --- | --- | --- |\n".to_owned();
    for row in ROWS {
        let exactness = if row.exact { "exact" } else { "approximate" };
        writeln!(table, "| {} | {} | {} | {exactness} | {} |", row.name, row.from, row.to, row.why).unwrap();
    }
    test_golden::assert_file(&path, &format!("{before}{START}{table}\n{END}{after}"));
}
