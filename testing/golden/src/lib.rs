//! Golden files: committed files that a test compares with what the code writes now.
//!
//! With the environment variable `BLESS` set, [`assert_file`] writes the file instead, for the
//! author to review as a difference in git.

use std::path::Path;

/// Asserts that the file at `path` holds `actual`. With `BLESS` set, writes it there.
///
/// # Panics
/// If the file differs; the message shows the first line that does. If it cannot be written.
#[track_caller]
pub fn assert_file(path: impl AsRef<Path>, actual: &str) {
    let path = path.as_ref();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, actual).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        return;
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    if let Some((line, committed, actual)) = first_difference(&committed, actual) {
        panic!(
            "{}:{line} is out of date. It has\n{committed}\nand would now have\n{actual}\n\
             Run this test with BLESS=1 to write the file, and review the difference.",
            path.display()
        );
    }
}

/// The number of the first line that differs, and the line in both texts.
fn first_difference<'t>(a: &'t str, b: &'t str) -> Option<(usize, &'t str, &'t str)> {
    if a == b {
        return None;
    }
    let same = a.split_inclusive('\n').zip(b.split_inclusive('\n')).take_while(|(a, b)| a == b).count();
    let line = |text: &'t str| text.lines().nth(same).unwrap_or("(the end of the file)");
    Some((same + 1, line(a), line(b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_differs_is_shown() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(first_difference("a\nb\n", "a\nc\n"), Some((2, "b", "c")));
        assert_eq!(first_difference("a\n", "a\nb\n"), Some((2, "(the end of the file)", "b")));
        assert_eq!(first_difference("a\nb", "a\nb\n"), Some((2, "b", "b")), "only the line end");
    }

    #[test]
    #[should_panic(expected = "BLESS=1")]
    fn a_file_that_is_not_there_differs() {
        assert_file("/nowhere/at/all", "text\n");
    }
}
