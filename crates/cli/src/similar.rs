//! Names that a user may have meant.

use apex_ordered::Order;

/// Names that are proposed at most.
const MOST: usize = 3;

/// ` (did you mean …?)` with the known names that are like `name`; empty where none is.
pub fn proposal<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> String {
    let plain = name.to_lowercase();
    let far = |known: &str| distance(&plain, &known.to_lowercase());
    let is_like = |known: &str| {
        let known = known.to_lowercase();
        plain.len() > 2 && known.contains(&plain) || distance(&plain, &known) * 4 < plain.chars().count()
    };
    let mut like: Vec<&str> = known.into_iter().filter(|known| is_like(known)).collect();
    like.order_by_key(|known| (far(known), *known));
    like.dedup();
    let listed: Vec<String> = like.iter().take(MOST).map(|known| format!("`{known}`")).collect();
    match listed.is_empty() {
        true => String::new(),
        false => format!(" (did you mean {}?)", listed.join(", ")),
    }
}

/// Least number of characters to insert, remove or exchange (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let exchanged = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = exchanged.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_levenshteins() {
        for (a, b, expected) in
            [("", "abc", 3), ("kitten", "sitting", 3), ("same", "same", 0), ("ab", "ba", 2)]
        {
            assert_eq!((distance(a, b), distance(b, a)), (expected, expected), "{a} {b}");
        }
    }

    #[test]
    fn names_that_are_alike_are_proposed_the_nearest_first() {
        let known = ["launch-bound", "launch-small", "memory-bound", "APEX-L19"];
        assert_eq!(proposal("lunch-bound", known), " (did you mean `launch-bound`?)");
        assert_eq!(proposal("launch", known), " (did you mean `launch-bound`, `launch-small`?)");
        assert_eq!(proposal("apex-l9", known), " (did you mean `APEX-L19`?)");
        assert_eq!(proposal("APEX-X99", known), "", "numbers that are not alike");
        assert_eq!(proposal("xyzzy", known), "");
        assert_eq!(proposal("", known), "");
    }
}
