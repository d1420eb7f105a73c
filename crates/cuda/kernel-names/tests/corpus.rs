//! Real kernel names and what is read from them: `names.tsv` has one name a line with the identity
//! that it must give. The names come from PyTorch 2.11 and its libraries for CUDA 13, from recorded
//! programs, and from published profiles. `BLESS=1` writes anew what is read; look at each change.

use std::collections::HashSet;

use apex_kernel_names::{DataType, Identity, MOST_SHORT, Operation, Row, identify, unique_short_names};

const TABLE: &str = include_str!("names.tsv");

/// The columns: short name, operation, operands' type, tensor cores, owner; then the name itself.
fn row(identity: &Identity) -> String {
    let input = identity.traits.types.input.map_or("-", DataType::name);
    let tensor_cores = match identity.traits.tensor_cores {
        Some(true) => "yes",
        Some(false) => "no",
        None => "-",
    };
    [
        &identity.short_name,
        identity.traits.operation.name(),
        input,
        tensor_cores,
        identity.traits.owner.name(),
    ]
    .join("\t")
}

fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    TABLE
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.rsplit_once('\t').expect("six columns"))
}

#[test]
fn every_name_gives_its_identity() {
    if std::env::var_os("BLESS").is_some() {
        let lines: String = names().map(|(_, name)| format!("{}\t{name}\n", row(&identify(name)))).collect();
        let heading = TABLE.lines().next().expect("a heading");
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/names.tsv");
        std::fs::write(path, format!("{heading}\n{lines}")).expect("the table can be written");
        return;
    }
    let wrong: Vec<String> = names()
        .map(|(expected, name)| (expected, row(&identify(name)), name))
        .filter(|(expected, found, _)| expected != found)
        .map(|(expected, found, name)| format!("{name}\n  expected {expected}\n  found    {found}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(names().count() >= 150);
}

#[test]
fn nearly_all_have_an_operation_and_a_type() {
    let all: Vec<Identity> = names().map(|(_, name)| identify(name)).collect();
    let share =
        |has: fn(&Identity) -> bool| all.iter().filter(|one| has(one)).count() as f64 / all.len() as f64;
    assert!(share(|one| one.traits.operation != Operation::Unknown) > 0.95);
    // What compilers name after its operations, and collectives that move bytes, have no type.
    assert!(share(|one| one.traits.types.input.or(one.traits.types.output).is_some()) > 0.85);
}

#[test]
fn no_two_rows_look_the_same() {
    let identities: HashSet<(String, String)> =
        names().map(|(_, name)| identify(name)).map(|one| (one.name, one.short_name)).collect();
    let identities: Vec<_> = identities.into_iter().collect();
    let rows: Vec<Row<'_>> =
        identities.iter().map(|(name, short_name)| Row { name, short_name, launch: "" }).collect();
    let shown = unique_short_names(&rows);
    assert_eq!(shown.iter().collect::<HashSet<_>>().len(), rows.len());
    assert!(shown.iter().all(|name| (1..=MOST_SHORT).contains(&name.chars().count())));
}
