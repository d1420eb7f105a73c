//! The card of the shipped models says what `card.json`, which `apex train` wrote beside it, says. `BLESS=1` writes it anew.

use std::fs;
use std::path::Path;
use training::Report;
use training::report::SCHEMA;

#[test]
fn the_card_is_that_of_the_report() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../predict/models");
    let report: Report = serde_json::from_slice(&fs::read(folder.join("card.json")).unwrap()).unwrap();
    assert_eq!(report.schema, SCHEMA);
    let card = folder.join("card.md");
    if std::env::var_os("BLESS").is_some() {
        fs::write(&card, report.card()).unwrap();
    }
    assert!(
        fs::read_to_string(&card).unwrap() == report.card(),
        "card.md is not of card.json: BLESS=1 renews it"
    );
}
