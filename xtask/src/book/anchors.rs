//! The places of a page that links can name, for the tests of links: its headings.

use super::markdown::{lines, links};
use std::collections::BTreeMap;

/// The identifiers of a page's headings, as GitHub and mdBook make them: repeated ones are
/// numbered.
pub fn anchors(page: &str) -> Vec<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    headings(page)
        .map(|heading| {
            let anchor = slug(heading);
            let count = seen.entry(anchor.clone()).or_default();
            *count += 1;
            if *count == 1 { anchor } else { format!("{anchor}-{}", *count - 1) }
        })
        .collect()
}

fn headings(page: &str) -> impl Iterator<Item = &str> {
    lines(page).filter(|(_, is_prose)| *is_prose).filter_map(|(line, _)| {
        let line = line.trim_end();
        let text = line.trim_start_matches('#');
        (text.len() < line.len()).then(|| text.strip_prefix(' ')).flatten().map(str::trim)
    })
}

/// Returns the name of a heading in links.
fn slug(heading: &str) -> String {
    let mut shown = heading.to_owned();
    for link in links(heading).iter().rev() {
        shown.replace_range(link.whole.clone(), &heading[link.text.clone()]);
    }
    let kept = shown.chars().filter_map(|c| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || c == '_' || c == '-' => Some(c),
        _ => None,
    });
    kept.flat_map(char::to_lowercase).collect()
}

#[test]
fn headings_become_anchors() {
    let page = "# `apex run`: what, how?\n## A [link](x.md)\n```\n# a comment\n```\n## A link\n#hash\n";
    assert_eq!(anchors(page), ["apex-run-what-how", "a-link", "a-link-1"]);
}
