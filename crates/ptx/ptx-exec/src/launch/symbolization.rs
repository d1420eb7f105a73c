//! Describes an offset of shared or local memory: names the variable, and the distance inside or
//! beyond it.

use crate::code::Named;
use crate::launch::Launch;
use crate::operands::Space;

/// Returns the text to append to the address of a fault; empty for global memory, which its owner
/// has described.
pub(crate) fn beside(launch: &Launch, space: Space, address: u64, (function, frame): (u32, u32)) -> String {
    match space {
        Space::Shared => nearest(&launch.shared_variables(), address),
        Space::Local => nearest(&frame_variables(launch, function, frame), address),
        Space::Global | Space::Generic => String::new(),
    }
}

/// Describes an offset of the block's shared memory.
pub(crate) fn shared(launch: &Launch, offset: u64) -> String {
    format!("at offset {offset:#x} of shared memory{}", nearest(&launch.shared_variables(), offset))
}

/// Describes an offset of a thread's local memory, seen from a function whose frame begins at
/// `frame`.
pub(crate) fn local(launch: &Launch, function: u32, frame: u32, offset: u64) -> String {
    format!(
        "at offset {offset:#x} of local memory{}",
        nearest(&frame_variables(launch, function, frame), offset)
    )
}

/// The shared variable that holds an offset, or ends before it; nothing where there is none.
pub(crate) fn shared_variable(launch: &Launch, offset: u64) -> String {
    below(&launch.shared_variables(), offset).map_or_else(String::new, |variable| variable.name.clone())
}

/// The same of a function's local variables, by the function's number too.
pub(crate) fn local_variable(launch: &Launch, function: u32, frame: u32, offset: u64) -> String {
    let variables = frame_variables(launch, function, frame);
    let name = below(&variables, offset).map_or("", |variable| &variable.name);
    format!("{function}:{name}")
}

fn frame_variables(launch: &Launch, function: u32, frame: u32) -> Vec<Named> {
    let variables = launch.code(function).variables.iter();
    variables.map(|variable| Named { start: variable.start + u64::from(frame), ..variable.clone() }).collect()
}

/// The variable that holds an offset, or the one that ends closest before it.
fn nearest(variables: &[Named], offset: u64) -> String {
    let Some(Named { name, start, bytes }) = below(variables, offset) else { return String::new() };
    let (inside, name) = (offset - start, plain(name));
    match bytes {
        0 => format!(", byte {inside} of `{name}`"),
        _ if inside < *bytes => format!(", byte {inside} of the {bytes} of `{name}`"),
        _ => format!(", {} bytes after the end of `{name}` ({bytes} bytes)", inside - bytes),
    }
}

fn below(variables: &[Named], offset: u64) -> Option<&Named> {
    let before = variables.iter().filter(|variable| variable.start <= offset);
    before.max_by_key(|variable| variable.start)
}

/// The name that a variable has in the source: of one that is local to a function, C++ mangles the
/// function in front.
fn plain(name: &str) -> &str {
    let ends_in = |(at, _): (usize, _)| {
        let rest = &name[at + 1..];
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (length, last) = rest.split_at(digits);
        (length.parse() == Ok(last.len())).then_some(last)
    };
    let local = name.strip_prefix("_ZZ").and_then(|_| name.rmatch_indices('E').find_map(ends_in));
    local.filter(|last| !last.is_empty()).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_below_is_named() {
        let variables = [("tile", 0, 128), ("sums", 128, 16), ("dynamic", 144, 0)]
            .map(|(name, start, bytes)| Named { name: name.to_owned(), start, bytes });
        assert_eq!(nearest(&variables, 127), ", byte 127 of the 128 of `tile`");
        assert_eq!(nearest(&variables[..2], 148), ", 4 bytes after the end of `sums` (16 bytes)");
        assert_eq!(nearest(&variables, 160), ", byte 16 of `dynamic`");
        assert_eq!(nearest(&variables[1..2], 3), "");
    }

    #[test]
    fn names_are_those_of_the_source() {
        for (mangled, expected) in [
            ("_ZZ9transposePKfPfiE4tile", "tile"),
            ("_ZZ4loopvE5EdgeE", "EdgeE"),
            ("_ZZ1kvE3sEm", "sEm"),
            ("tile", "tile"),
            ("_ZN3one3twoE", "_ZN3one3twoE"),
        ] {
            assert_eq!(plain(mangled), expected);
        }
    }
}
