//! The links in Markdown pages, as far as the book needs them.
//!
//! Pages here are written by hand for two readers, GitHub and mdBook, so this knows what both read
//! alike: inline links and images, fenced blocks and code spans, in which nothing is a link.

use std::ops::Range;

/// An inline link or image.
#[derive(Debug, PartialEq, Eq)]
pub struct Link {
    /// All of it: `[text](target)`, with the `!` of an image.
    pub whole: Range<usize>,
    /// The text that is shown for it.
    pub text: Range<usize>,
    /// The target.
    pub target: Range<usize>,
}

impl Link {
    /// Whether a target lies in the repository: it is no address with a scheme.
    pub fn is_local(target: &str) -> bool {
        !target.contains("://") && !target.starts_with("mailto:")
    }
}

/// The links of a page, in their order.
pub fn links(page: &str) -> Vec<Link> {
    let text = without_code(page);
    let mut links = Vec::new();
    for (middle, _) in text.match_indices("](") {
        let (Some(open), Some(length)) = (opening(&text[..middle]), text[middle..].find(')')) else {
            continue;
        };
        let start = open - usize::from(text[..open].ends_with('!'));
        let end = middle + length;
        links.push(Link { whole: start..end + 1, text: open + 1..middle, target: middle + 2..end });
    }
    links.sort_by_key(|link| link.whole.start);
    links
}

/// The `[` that a `]` behind this text closes.
fn opening(text: &str) -> Option<usize> {
    let mut depth = 1;
    for (at, character) in text.char_indices().rev() {
        match character {
            ']' => depth += 1,
            '[' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// The lines of a page, each with its end, and whether it lies outside of fenced blocks.
pub fn lines(page: &str) -> impl Iterator<Item = (&str, bool)> {
    let mut fence = None;
    page.split_inclusive('\n').map(move |line| {
        let marker = ["```", "~~~"].into_iter().find(|marker| line.trim_start().starts_with(marker));
        let is_prose = fence.is_none() && marker.is_none();
        match fence {
            None => fence = marker,
            Some(_) if fence == marker => fence = None,
            Some(_) => {}
        }
        (line, is_prose)
    })
}

/// A page of the same length in which fenced blocks and code spans are blank.
fn without_code(page: &str) -> String {
    let blank = |text: &str| " ".repeat(text.len());
    let blocks: String = lines(page)
        .map(|(line, is_prose)| match line.strip_suffix('\n') {
            _ if is_prose => line.to_owned(),
            Some(line) => blank(line) + "\n",
            None => blank(line),
        })
        .collect();
    // A code span ends with its paragraph at the latest.
    let paragraphs = blocks.split("\n\n").map(|paragraph| {
        let parts: Vec<&str> = paragraph.split('`').collect();
        let last = parts.len() - 1;
        let shown = parts.iter().enumerate().map(|(number, part)| {
            // The odd ones lie between two marks; behind the last mark, if it is alone, is text.
            if number % 2 == 1 && number < last { blank(part) } else { (*part).to_owned() }
        });
        shown.collect::<Vec<_>>().join("`")
    });
    paragraphs.collect::<Vec<_>>().join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_outside_of_code() {
        let page = "See [the\n`page`](a.md#b), ![a picture](p.svg) and `[no](link)`.\n\n```sh\n[no](link)\n```\n\
                    [![both](in.svg)](out.md)\n";
        let found: Vec<(&str, &str, &str)> = links(page)
            .into_iter()
            .map(|link| (&page[link.whole], &page[link.text], &page[link.target]))
            .collect();
        assert_eq!(
            found,
            [
                ("[the\n`page`](a.md#b)", "the\n`page`", "a.md#b"),
                ("![a picture](p.svg)", "a picture", "p.svg"),
                ("[![both](in.svg)](out.md)", "![both](in.svg)", "out.md"),
                ("![both](in.svg)", "both", "in.svg"),
            ]
        );
    }
}
