//! The program's environment, as far as sessions keep it: variables that are known to make programs
//! slow, and those that tell its rank ([`apex_trace::environment`]), and no others.

use apex_trace::definition::Variable;
use apex_trace::environment::{MAX_VALUE_BYTES, NAMES, OF_LAUNCHERS};

/// The variables that a session keeps, as they are set now.
pub fn recorded() -> impl Iterator<Item = Variable> {
    let value = |name: &&str| {
        let value = std::env::var_os(name)?.to_string_lossy().into_owned();
        Some(value.chars().scan(0, within(MAX_VALUE_BYTES)).collect())
    };
    let variables = NAMES.iter().chain(OF_LAUNCHERS).filter_map(move |name| Some((*name, value(name)?)));
    variables.map(|(name, value)| Variable { id: 0, name: name.to_owned(), value })
}

/// Passes characters on until they have more than `most` bytes.
fn within(most: usize) -> impl Fn(&mut usize, char) -> Option<char> {
    move |bytes, character| {
        *bytes += character.len_utf8();
        (*bytes <= most).then_some(character)
    }
}

#[cfg(test)]
mod tests {
    use super::OF_LAUNCHERS;

    #[test]
    fn the_variables_of_launchers_are_those_that_give_the_rank() {
        assert_eq!(OF_LAUNCHERS, apex_conventions::launchers::variables());
    }
}
