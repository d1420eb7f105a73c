//! What a store answers: the names in a listing, the code of an error. Both are XML, of which
//! these few elements are looked for.

/// A page of a listing.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Page {
    /// Names of objects.
    pub names: Vec<String>,
    /// What asks for the next page, if there is one.
    pub next: Option<String>,
}

/// Reads a page; `None` if it is no listing.
pub(crate) fn page(text: &str) -> Option<Page> {
    let result = element(text, "ListBucketResult")?.0;
    let mut page = Page::default();
    let mut rest = result;
    while let Some((contents, after)) = element(rest, "Contents") {
        page.names.push(unescaped(element(contents, "Key")?.0));
        rest = after;
    }
    if element(result, "IsTruncated").is_some_and(|(text, _)| text.trim() == "true") {
        page.next = Some(unescaped(element(result, "NextContinuationToken")?.0));
    }
    Some(page)
}

/// The code of an error, if it looks like one.
pub(crate) fn code(text: &str) -> Option<String> {
    const LONGEST: usize = 64;
    let code = element(element(text, "Error")?.0, "Code")?.0.trim();
    let is_code = (1..=LONGEST).contains(&code.len()) && code.bytes().all(|c| c.is_ascii_alphanumeric());
    is_code.then(|| code.to_owned())
}

/// What the first element of this name holds, and what follows it.
fn element<'a>(text: &'a str, name: &str) -> Option<(&'a str, &'a str)> {
    let mut rest = text;
    loop {
        let (_, after) = rest.split_once('<')?;
        rest = after;
        let Some(after) = after.strip_prefix(name) else { continue };
        let (attributes, after) = after.split_once('>')?;
        if attributes.is_empty() || attributes.starts_with(char::is_whitespace) {
            return after.split_once(&format!("</{name}>"));
        }
    }
}

/// A text without XML's escapes.
fn unescaped(text: &str) -> String {
    const ESCAPES: [(&str, &str); 5] =
        [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")];
    ESCAPES.iter().fold(text.to_owned(), |text, (escape, plain)| text.replace(escape, plain))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_page_has_its_names_and_what_follows() {
        let text = "<?xml version=\"1.0\"?>\n<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
            <Name>b</Name><KeyCount>2</KeyCount><IsTruncated>true</IsTruncated>\
            <NextContinuationToken>a&amp;b=</NextContinuationToken>\
            <Contents><Key>x/1&amp;lt;.parquet</Key><Size>3</Size></Contents><Contents><Key>x/2</Key></Contents>\
            </ListBucketResult>";
        let names = vec!["x/1&lt;.parquet".to_owned(), "x/2".to_owned()];
        assert_eq!(page(text), Some(Page { names, next: Some("a&b=".to_owned()) }));
        let last = text.replace("true", "false");
        assert_eq!(page(&last).unwrap().next, None);
        // What was cut off is no listing, and says not that there is no more.
        for end in 0..text.len() - 1 {
            assert_eq!(page(&text[..end]), None, "{}", &text[..end]);
        }
        assert_eq!(page("<ListBucketResult></ListBucketResult>"), Some(Page::default()));
        let without = "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>";
        assert_eq!(page(without), None);
    }

    #[test]
    fn a_code_is_shown_only_if_it_looks_like_one() {
        let of = |code: &str| format!("<Error><Code>{code}</Code><Message>m</Message></Error>");
        assert_eq!(code(&of("NoSuchBucket")).as_deref(), Some("NoSuchBucket"));
        for none in [of(""), of("a b"), of("\u{1b}[2J"), of(&"x".repeat(65)), "<Code>x</Code>".to_owned()] {
            assert_eq!(code(&none), None, "{none}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_harm(
            parts in prop::collection::vec(prop_oneof![
                Just("<ListBucketResult>".to_owned()), Just("</ListBucketResult>".to_owned()),
                Just("<Contents>".to_owned()), Just("</Contents>".to_owned()), Just("<Key>".to_owned()),
                Just("</Key>".to_owned()), Just("<Error>".to_owned()), Just("<Code>".to_owned()), ".{0,6}",
            ], 0..40)
        ) {
            let text = parts.concat();
            let names = page(&text).unwrap_or_default().names;
            prop_assert!(names.iter().map(String::len).sum::<usize>() <= text.len());
            let _ = code(&text);
        }
    }
}
