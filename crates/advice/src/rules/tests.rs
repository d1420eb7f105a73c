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
         `apex report` and `apex advise` run these rules over a session. Each finding names the fault with its values, one\n\
         change, what it would save and how sure that is. Rules `APEX-L…` need recorded launches and calls alone, rules\n\
         `APEX-T…` need sampled kernel times (`--timing sampled` or `all`), rules `APEX-C…` need what the CPU device counts\n\
         (`apex run --device cpu`): counts, and no GPU time. Leave a rule out with `--suppress ID`.\n\n\
         Savings are shares of run time: 50% is a factor of 2. Where several rules find fault with the same kernel, each\n\
         next one counts for its share of what the larger ones leave. Changes on the host's side cannot save more than the\n\
         time that the device is idle; a finding *within* another one is part of its saving and does not add to it.\n\n\
         Each saving has an interval: from what is sure to be saved (often nothing: what a rule's formula gives is the most that\n\
         its change can do) to what the formula gives at most, as far as sampled times and the modelled idle time are known.\n\
         A share is one of the steady state, whose iterations repeat, where one was found (`--phase` chooses another phase): start-up and\n\
         warm-up are no part of it. Else it begins with the first launch. Where a rule names another block size and the kernel was timed on a GPU that the models know,\n\
         `apex advise` also says what they expect of it ([predict.md](predict.md)).\n\n\
         After a change, record again and compare: `apex run -o NEW -- COMMAND`, then `apex diff OLD NEW`.\n\n\
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
