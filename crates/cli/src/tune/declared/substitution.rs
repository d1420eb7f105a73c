//! Parameters in a command line: `{NAME}` in an argument is the value of a parameter, and
//! `{defines}` is `-DNAME=VALUE` of each.

use crate::{output, similar};
use anyhow::{Context, bail};
use apex_search::{Number, Space, Value};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

/// The placeholder of the definitions of all parameters.
const DEFINES: &str = "defines";

/// Characters of a text that no shell interprets.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_.,:+/=@%- ".contains(c)
}

/// Refuses a command that names something like a parameter, texts that a shell may interpret, and a
/// parameter that hides [`DEFINES`].
pub fn check(space: &Space, command: &[OsString]) -> anyhow::Result<()> {
    if space.parameters().iter().any(|parameter| parameter.name == DEFINES) {
        bail!("a parameter cannot be called `{DEFINES}`: `{{{DEFINES}}}` stands for all of them");
    }
    let known = || space.parameters().iter().map(|parameter| parameter.name.as_str()).chain([DEFINES]);
    for word in command {
        for name in placeholders(word.as_bytes()) {
            if known().any(|of| of == name) {
                continue;
            }
            let meant = similar::proposal(&name, known());
            let all = known().map(|of| format!("`{{{of}}}`")).collect::<Vec<_>>().join(", ");
            if !meant.is_empty() {
                bail!("`{{{name}}}` in the command is no parameter{meant}; there are {all}");
            }
            // (Languages have braces of their own: `awk '{print}'`.)
            output::remark(format!(
                "`{{{name}}}` in the command is no parameter, and stays; there are {all}"
            ));
        }
    }
    let texts = space
        .parameters()
        .iter()
        .flat_map(|parameter| parameter.values.iter().map(move |value| (parameter, value)));
    for (parameter, value) in texts {
        let Value::Text(text) = value else { continue };
        let is_inside = |word: &&OsString| is_part(word.as_bytes(), &parameter.name);
        if !text.chars().all(is_plain) && command.iter().any(|word| is_inside(&word)) {
            bail!(
                "the value `{}` of parameter `{}` has characters that a shell may interpret: take it from the \
                 environment variable {0} instead of `{{{1}}}`",
                apex_untrusted::printable(text),
                parameter.name
            );
        }
    }
    Ok(())
}

/// Whether a word has a parameter, or all, beside other text.
fn is_part(word: &[u8], name: &str) -> bool {
    placeholders(word).iter().any(|of| of == name || of == DEFINES)
        && word != format!("{{{name}}}").as_bytes()
}

/// The names in braces in a word.
fn placeholders(word: &[u8]) -> Vec<String> {
    let mut names = Vec::new();
    for (at, _) in word.iter().enumerate().filter(|(_, byte)| **byte == b'{') {
        names.extend(placeholder(&word[at..]));
    }
    names
}

/// The name in braces with which a text begins.
fn placeholder(text: &[u8]) -> Option<String> {
    let end = text.iter().position(|&byte| byte == b'}')?;
    let name = std::str::from_utf8(text.get(1..end)?).ok()?;
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then(|| name.to_owned())
}

/// The words of the command for a configuration.
pub fn words(space: &Space, number: Number, command: &[OsString]) -> Vec<OsString> {
    let mut words = Vec::with_capacity(command.len());
    for word in command {
        if word.as_bytes() == format!("{{{DEFINES}}}").as_bytes() {
            words.extend(defines(space, number).into_iter().map(OsString::from));
        } else {
            words.push(substituted(space, number, word));
        }
    }
    words
}

/// The values of all parameters, as a compiler takes them.
fn defines(space: &Space, number: Number) -> Vec<String> {
    let names = space.parameters().iter().map(|parameter| &parameter.name);
    names.zip(space.values(number)).map(|(name, value)| format!("-D{name}={value}")).collect()
}

fn substituted(space: &Space, number: Number, word: &OsStr) -> OsString {
    let (word, mut done) = (word.as_bytes(), Vec::new());
    let mut at = 0;
    while let Some(&byte) = word.get(at) {
        let name = (byte == b'{').then(|| placeholder(&word[at..])).flatten();
        match name.and_then(|name| Some((value_of(space, number, &name)?, name.len() + 2))) {
            Some((value, length)) => {
                done.extend_from_slice(value.as_bytes());
                at += length;
            }
            None => {
                done.push(byte);
                at += 1;
            }
        }
    }
    OsString::from_vec(done)
}

fn value_of(space: &Space, number: Number, name: &str) -> Option<String> {
    let at = space.parameters().iter().position(|parameter| parameter.name == name);
    match at {
        Some(at) => Some(space.values(number)[at].to_string()),
        None => (name == DEFINES).then(|| defines(space, number).join(" ")),
    }
}

/// The configuration that a text names, as `block=32,tile=4`; what it leaves out has the values of
/// another configuration, or the first ones.
pub fn configuration(space: &Space, other: Option<Number>, text: &str) -> anyhow::Result<Number> {
    let mut values: Vec<Value> = match other {
        Some(number) => space.values(number),
        None => space.parameters().iter().map(|parameter| parameter.values[0].clone()).collect(),
    };
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (name, value) =
            part.split_once('=').with_context(|| format!("`{part}` in --original is not NAME=VALUE"))?;
        let known = || space.parameters().iter();
        let Some(at) = known().position(|parameter| parameter.name == name) else {
            bail!(
                "--original names `{name}`{}, which is no parameter",
                similar::proposal(name, known().map(|of| of.name.as_str()))
            );
        };
        let all = &space.parameters()[at].values;
        let Some(found) = all.iter().find(|of| of.to_string() == value) else {
            bail!("--original: `{value}` is no value of `{name}`");
        };
        values[at] = found.clone();
    }
    let value = |name: &str| {
        space.parameters().iter().position(|parameter| parameter.name == name).map(|at| &values[at])
    };
    space.find(value).context("--original breaks a restriction of the space")
}

#[cfg(test)]
mod tests {
    use super::*;
    use apex_search::Parameter;

    fn space() -> Space {
        let parameters = vec![
            Parameter::new("block", [32, 64]),
            Parameter::new("fast", [false, true]),
            Parameter::new("type", ["float", "half2; rm x"]),
        ];
        Space::new(parameters, &[]).unwrap()
    }

    fn on(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn words_have_the_values() {
        let number = configuration(&space(), None, "block=64,fast=1").unwrap();
        let found =
            words(&space(), number, &on(&["awk", "{print}", "-b={block}{fast}", "{defines}", "x {defines}"]));
        assert_eq!(
            found,
            on(&[
                "awk",
                "{print}",
                "-b=641",
                "-Dblock=64",
                "-Dfast=1",
                "-Dtype=float",
                "x -Dblock=64 -Dfast=1 -Dtype=float"
            ])
        );
    }

    #[test]
    fn mistakes_are_named() {
        let said = |command: &[&str]| check(&space(), &on(command)).unwrap_err().to_string();
        assert!(
            said(&["./a", "{blocks}"]).contains("did you mean `block`"),
            "{}",
            said(&["./a", "{blocks}"])
        );
        assert!(said(&["sh", "-c", "./a {type}"]).contains("a shell may interpret"));
        assert!(said(&["sh", "-c", "./a {defines}"]).contains("a shell may interpret"));
        check(&space(), &on(&["./a", "{type}", "{block}", "{print}"])).unwrap();
        let hiding = Space::new(vec![Parameter::new(DEFINES, [1, 2])], &[]).unwrap();
        assert!(check(&hiding, &[]).unwrap_err().to_string().contains("cannot be called `defines`"));
        for wrong in ["block", "blok=32", "block=33"] {
            configuration(&space(), None, wrong).unwrap_err();
        }
    }
}
