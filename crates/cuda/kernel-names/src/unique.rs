//! Names of a table: no two rows look the same.

use std::collections::{HashMap, HashSet};

use crate::MOST_SHORT;
use crate::words::bounded;

/// A row of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Row<'a> {
    /// The kernel's full name.
    pub name: &'a str,
    /// Its short name.
    pub short_name: &'a str,
    /// Its launch, as the table would write it; empty where rows of one function may share a name,
    /// because the table has a column of launches.
    pub launch: &'a str,
}

/// Most characters by which a name may grow to be unique.
const MOST_MARK: usize = 16;

/// The short names of a table's rows: different for different kernels, at most [`MOST_SHORT`]
/// characters. Names that collide get what their full names differ in, if that is short, or the
/// launch; else a number.
pub fn unique_short_names(rows: &[Row<'_>]) -> Vec<String> {
    let mut groups: HashMap<&str, Vec<usize>> = HashMap::new();
    for (index, row) in rows.iter().enumerate() {
        groups.entry(row.short_name).or_default().push(index);
    }
    let mut names: Vec<String> = rows.iter().map(|row| bounded(row.short_name, MOST_SHORT)).collect();
    let mut taken: HashSet<String> = HashSet::new();
    for group in groups.values() {
        for (index, mark) in group.iter().zip(marks(rows, group)) {
            names[*index] = with_mark(rows[*index].short_name, &mark);
        }
    }
    // What is the same still (cut names, marks that hit another name) is numbered.
    let mut given: HashMap<(String, Row<'_>), String> = HashMap::new();
    for (index, row) in rows.iter().enumerate() {
        let key = (names[index].clone(), *row);
        if let Some(same) = given.get(&key) {
            names[index].clone_from(same);
            continue;
        }
        let mut name = names[index].clone();
        let mut number = 2;
        while taken.contains(&name) {
            name = with_mark(&names[index], &format!(" #{number}"));
            number += 1;
        }
        taken.insert(name.clone());
        given.insert(key, name.clone());
        names[index] = name;
    }
    names
}

/// A name with a mark behind it, together at most [`MOST_SHORT`] characters.
pub fn with_mark(name: &str, mark: &str) -> String {
    format!("{}{mark}", bounded(name, MOST_SHORT - mark.chars().count()))
}

/// Returns the text that distinguishes each row of a group; empty if it is not needed, or if
/// nothing short does.
fn marks(rows: &[Row<'_>], group: &[usize]) -> Vec<String> {
    let distinct: HashSet<&str> = group.iter().map(|&index| rows[index].name).collect();
    let launches: HashSet<(&str, &str)> =
        group.iter().map(|&index| (rows[index].name, rows[index].launch)).collect();
    let differing = if distinct.len() > 1 { differences(rows, group, distinct.len()) } else { None };
    let launch_needed = launches.len() > distinct.len();
    group
        .iter()
        .enumerate()
        .map(|(place, &index)| {
            let part = differing.as_ref().map_or_else(String::new, |parts| format!(" [{}]", parts[place]));
            let launch = rows[index].launch;
            let fits = part.chars().count() + launch.chars().count() < 2 * MOST_MARK;
            if launch_needed && !launch.is_empty() && fits { format!("{part} {launch}") } else { part }
        })
        .collect()
}

/// The words between what all names of a group begin and end with, if these are short and tell the
/// names apart.
fn differences(rows: &[Row<'_>], group: &[usize], distinct: usize) -> Option<Vec<String>> {
    let words: Vec<Vec<&str>> = group.iter().map(|&index| split(rows[index].name)).collect();
    let least = words.iter().map(Vec::len).min()?;
    let first = &words[0];
    let before = (0..least).take_while(|&at| words.iter().all(|words| words[at] == first[at])).count();
    let after = (0..least - before)
        .take_while(|&at| {
            words.iter().all(|words| words[words.len() - 1 - at] == first[first.len() - 1 - at])
        })
        .count();
    let middle: Vec<String> = words.iter().map(|words| words[before..words.len() - after].concat()).collect();
    let different: HashSet<&String> = middle.iter().collect();
    let short = middle.iter().all(|part| (1..=MOST_MARK - 3).contains(&part.chars().count()));
    (short && different.len() == distinct).then_some(middle)
}

/// Words and single other characters.
fn split(name: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut start = 0;
    let mut in_word = false;
    for (at, c) in name.char_indices() {
        let is_word = c.is_alphanumeric() || c == '_';
        if at > start && !(is_word && in_word) {
            words.push(&name[start..at]);
            start = at;
        }
        in_word = is_word;
    }
    words.push(&name[start..]);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(rows: &[(&str, &str, &str)]) -> Vec<String> {
        let rows: Vec<Row<'_>> =
            rows.iter().map(|&(name, short_name, launch)| Row { name, short_name, launch }).collect();
        unique_short_names(&rows)
    }

    #[test]
    fn names_that_differ_stay() {
        assert_eq!(of(&[("a(int)", "a", ""), ("b(int)", "b", "")]), ["a", "b"]);
        assert_eq!(of(&[("a(int)", "a", ""), ("a(int)", "a", "")]), ["a", "a"], "one kernel");
    }

    #[test]
    fn names_that_collide_get_what_differs() {
        assert_eq!(of(&[("k<4, f>(int)", "f", ""), ("k<8, f>(int)", "f", "")]), ["f [4]", "f [8]"]);
        assert_eq!(of(&[("k", "f", "1 × 32"), ("k", "f", "2 × 32")]), ["f 1 × 32", "f 2 × 32"]);
        let long = "x".repeat(100);
        assert_eq!(of(&[(&format!("a{long}"), "f", ""), (&format!("b{long}"), "f", "")]), ["f", "f #2"]);
    }

    #[test]
    fn names_that_were_cut_are_unique_too() {
        let rows: Vec<(String, String)> =
            (0..20).map(|n| (format!("{}{n}", "k".repeat(80)), "k".repeat(80))).collect();
        let rows: Vec<(&str, &str, &str)> = rows.iter().map(|(a, b)| (a.as_str(), b.as_str(), "")).collect();
        let names = of(&rows);
        let distinct: HashSet<&String> = names.iter().collect();
        assert_eq!(distinct.len(), rows.len());
        assert!(names.iter().all(|name| name.chars().count() <= MOST_SHORT));
    }
}
