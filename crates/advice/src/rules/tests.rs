//! The table of rules as a whole, and the page that is made of it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use super::{Needs, RULES, Rule};

#[test]
fn identifiers_are_unique_and_say_what_they_need() {
    let ids: BTreeSet<_> = RULES.iter().map(|rule| rule.id).collect();
    let slugs: BTreeSet<_> = RULES.iter().map(|rule| rule.slug).collect();
    assert_eq!((ids.len(), slugs.len()), (RULES.len(), RULES.len()));
    for rule in RULES {
        let prefix = match rule.needs {
            Needs::Records => "APEX-L",
            Needs::Times => "APEX-T",
            Needs::Counts => "APEX-C",
        };
        assert!(rule.id.starts_with(prefix), "{} needs {:?}", rule.id, rule.needs);
    }
}

#[test]
fn rules_are_in_the_order_of_their_numbers() {
    let numbers: Vec<u32> = RULES.iter().map(|rule| rule.id[6..].parse().expect("a number")).collect();
    assert!(numbers.is_sorted(), "{numbers:?}");
}

#[test]
fn parents_exist_and_share_the_scope() {
    for rule in RULES {
        let Some(parent) = rule.parent else { continue };
        let parent = Rule::named(parent).unwrap_or_else(|| panic!("{} has no parent {parent}", rule.id));
        assert_eq!((parent.scope, parent.id == rule.id), (rule.scope, false));
    }
}

#[test]
fn rules_are_found_by_identifier_and_name() {
    assert_eq!(Rule::named("apex-l01").map(|rule| rule.slug), Some("block-not-warp-multiple"));
    assert_eq!(Rule::named("small-grid").map(|rule| rule.id), Some("APEX-L02"));
    assert!(Rule::named("nonsense").is_none());
}

/// The page about all rules.
fn page() -> String {
    let mut page = String::from(
        "# Advice rules\n\n\
         <!-- Generated from crates/advice/src/rules: BLESS=1 cargo test -p apex-advice writes it anew. -->\n\n\
         `apex report` and `apex advise` apply these rules to a session. Each finding has its evidence, one change, the saving, and a\n\
         confidence. Rules `APEX-L…` need only recorded launches and calls, rules `APEX-T…` need sampled kernel times (`--timing\n\
         sampled` or `all`), and rules `APEX-C…` need the CPU device's counts (`apex run --device cpu`), which do not include GPU time.\n\
         `--suppress ID` disables a rule.\n\n\
         A saving is a share of run time: 50% is a factor of 2. If several rules apply to the same kernel, each smaller saving counts only\n\
         for the time that the larger ones leave. Changes on the host cannot save more than the idle time of the device. A finding *within*\n\
         another one is part of its saving and does not add to it.\n\n\
         Each saving has an interval from the certain minimum (often nothing) to the maximum that the rule's formula gives, within the\n\
         uncertainty of sampled times and modelled idle time. If launches repeat, a share refers to the steady state without start-up and\n\
         warm-up (`--phase` selects another phase), otherwise to the time from the first launch. If a rule names another block size and the\n\
         kernel was timed on a GPU that the models know, `apex advise` also shows their prediction ([predict.md](predict.md)).\n\n\
         To verify a change, record again and compare: `apex run -o NEW -- COMMAND`, then `apex diff OLD NEW`.\n\n\
         | rule | name | severity | about | within |\n| --- | --- | --- | --- | --- |\n",
    );
    for rule in RULES {
        let _ = writeln!(
            page,
            "| [{id}](#{anchor}) | `{slug}` | {severity} | {scope} | {parent} |",
            id = rule.id,
            anchor = rule.id.to_lowercase(),
            slug = rule.slug,
            severity = format!("{:?}", rule.severity).to_lowercase(),
            scope = format!("{:?}", rule.scope).to_lowercase(),
            parent = rule.parent.unwrap_or(""),
        );
    }
    for rule in RULES {
        let _ = write!(
            page,
            "\n## {}\n\n**{}** (`{}`)\n\n{}\n\n- Detects: {}\n- Source: {}\n- Change: {}\n- Saving: {}\n- Verify: {}\n",
            rule.id,
            rule.title,
            rule.slug,
            rule.why,
            rule.detects,
            rule.source,
            rule.change,
            rule.saving,
            rule.verify
        );
    }
    page
}

#[test]
fn the_page_about_rules_is_fresh() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/advice.md");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, page()).expect("docs can be written");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == page(), "docs/advice.md is stale: BLESS=1 cargo test -p apex-advice writes it anew");
}
