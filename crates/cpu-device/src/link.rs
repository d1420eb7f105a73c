//! The linker: several PTX texts become one.
//!
//! What is executed here is PTX, so what linking yields is PTX too: the inputs one after the other, without their
//! headers. Names that only their own module sees are told apart by a suffix, and each module's `.file` numbers are
//! moved out of the way of the others'. Everything else is left as it is written, and checked by compiling it.

use crate::device::{self, ARCHITECTURE};
use crate::error::{Error, Result};
use crate::exec::{self, Program};
use crate::fatbin::{self, Image};
use crate::handle::{Kind, Table};
use crate::module::{LoadError, no_ptx};
use cuda_abi::types::*;
use std::collections::{HashMap, HashSet};
use std::ffi::CString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

static LINKS: Table<Link> = Table::new(Kind::Link);

/// Inputs that are being linked.
pub struct Link {
    /// As the program knows it.
    pub handle: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    inputs: Vec<Input>,
    /// What linking yielded, which the program may read until it ends the link.
    linked: Option<Arc<CString>>,
}

struct Input {
    name: String,
    text: String,
    module: ptx::Module,
}

impl Link {
    /// Begins a link and names it.
    pub fn create() -> Result<Arc<Link>> {
        device::get()?;
        let link = Arc::new(Link { handle: LINKS.reserve(), state: Mutex::default() });
        LINKS.insert(link.handle, link.clone());
        Ok(link)
    }

    /// What a handle names.
    pub fn resolve(handle: CUlinkState) -> Result<Arc<Link>> {
        device::get()?;
        LINKS.get(handle as u64).ok_or(Error(CUDA_ERROR_INVALID_HANDLE))
    }

    /// Ends a link.
    pub fn destroy(handle: CUlinkState) -> Result {
        device::get()?;
        LINKS.remove(handle as u64).map(drop).ok_or(Error(CUDA_ERROR_INVALID_HANDLE))
    }

    /// Adds PTX, or a fatbin that holds some.
    pub fn add(&self, name: &str, image: &[u8]) -> std::result::Result<(), LoadError> {
        let text = match fatbin::read(image, ARCHITECTURE) {
            Ok(Image::Ptx(text)) => text,
            Ok(Image::MachineCodeOnly(architectures)) => return Err(no_ptx(&architectures)),
            Err(error) => {
                return Err(LoadError {
                    code: CUDA_ERROR_INVALID_IMAGE,
                    message: format!("{name}: {error}"),
                });
            }
        };
        let text =
            String::from_utf8(text.into_owned()).map_err(|error| invalid(format!("{name}: {error}")))?;
        let module = ptx::parse(&text).map_err(|error| invalid(error.render(name, &text)))?;
        self.lock().inputs.push(Input { name: name.to_owned(), text, module });
        Ok(())
    }

    /// Links what has been added.
    pub fn complete(&self) -> std::result::Result<Arc<CString>, LoadError> {
        let mut state = self.lock();
        let text = linked(&state.inputs)?;
        let module = ptx::parse(&text).map_err(|error| invalid(error.render("linked", &text)))?;
        Program::compile(&module).map_err(|error| invalid(error.render("linked", &text)))?;
        let text =
            CString::new(text).map_err(|error| invalid(format!("an input holds a zero byte: {error}")))?;
        Ok(state.linked.insert(Arc::new(text)).clone())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn invalid(message: String) -> LoadError {
    LoadError { code: CUDA_ERROR_INVALID_PTX, message }
}

/// A name at module scope.
struct Symbol<'m> {
    name: &'m str,
    linkage: ptx::Linkage,
    defined: bool,
}

fn symbols(module: &ptx::Module) -> impl Iterator<Item = Symbol<'_>> {
    let variables = module.variables().map(|variable| Symbol {
        name: &variable.name,
        linkage: variable.linkage,
        // Shared memory that is sized at launch is declared so too.
        defined: variable.linkage != ptx::Linkage::Extern || variable.space == ptx::StateSpace::Shared,
    });
    let functions = module.functions().map(|function| Symbol {
        name: &function.name,
        // A kernel is found by its name, whatever its linkage.
        linkage: match (function.kind, function.linkage) {
            (ptx::FunctionKind::Entry, ptx::Linkage::Internal) => ptx::Linkage::Visible,
            (_, linkage) => linkage,
        },
        defined: function.body.is_some(),
    });
    variables.chain(functions)
}

/// The text of all inputs as one.
fn linked(inputs: &[Input]) -> std::result::Result<String, LoadError> {
    if inputs.is_empty() {
        return Err(invalid("there is nothing to link".into()));
    }
    check_symbols(inputs)?;
    let version = inputs.iter().map(|input| input.module.version).max().unwrap_or((8, 0));
    // Targets are written `sm_80`, with an `a` or `f` behind the number where code is for one architecture alone.
    let number = |target: &str| {
        target
            .bytes()
            .filter(u8::is_ascii_digit)
            .fold(0u32, |number, digit| number * 10 + u32::from(digit - b'0'))
    };
    let targets = inputs.iter().filter_map(|input| input.module.target.first());
    let target = targets.max_by_key(|target| number(target)).map_or("sm_80", |target| target);
    let mut text = format!(".version {}.{}\n.target {target}\n.address_size 64\n", version.0, version.1);
    let mut files = 0;
    for (index, input) in inputs.iter().enumerate() {
        let renamed = clashes(inputs, index);
        let rename = |word: &str| renamed.get(word).cloned();
        let mut rewriter = Rewriter { text: &input.text, output: &mut text, files, most_files: files };
        rewriter.run(rename);
        files = rewriter.most_files;
        text.push('\n');
    }
    Ok(text)
}

/// Fails when a name is defined twice, or nowhere.
fn check_symbols(inputs: &[Input]) -> std::result::Result<(), LoadError> {
    let mut definitions: HashMap<&str, &str> = HashMap::new();
    let mut seen: HashSet<&str> = HashSet::new();
    for input in inputs {
        for symbol in symbols(&input.module).filter(|symbol| symbol.defined) {
            seen.insert(symbol.name);
            if symbol.linkage == ptx::Linkage::Visible
                && let Some(other) = definitions.insert(symbol.name, &input.name)
                && other != input.name
            {
                return Err(invalid(format!(
                    "`{}` is defined in {other} and in {}",
                    symbol.name, input.name
                )));
            }
        }
    }
    for input in inputs {
        let missing = symbols(&input.module)
            .find(|symbol| !symbol.defined && !seen.contains(symbol.name) && !exec::provides(symbol.name));
        if let Some(symbol) = missing {
            return Err(invalid(format!("`{}`, which {} uses, is defined nowhere", symbol.name, input.name)));
        }
    }
    Ok(())
}

/// The names of an input that only it sees and that others have too, with what they become.
fn clashes(inputs: &[Input], index: usize) -> HashMap<String, String> {
    let elsewhere: HashSet<&str> = inputs
        .iter()
        .enumerate()
        .filter(|(other, _)| *other != index)
        .flat_map(|(_, input)| symbols(&input.module).map(|symbol| symbol.name))
        .collect();
    symbols(&inputs[index].module)
        .filter(|symbol| symbol.linkage == ptx::Linkage::Internal && elsewhere.contains(symbol.name))
        .map(|symbol| (symbol.name.to_owned(), format!("{}__linked_{index}", symbol.name)))
        .collect()
}

/// Copies PTX word by word. Words are names, directives and numbers; comments and strings are copied whole.
struct Rewriter<'t> {
    text: &'t str,
    output: &'t mut String,
    /// Added to the numbers of files.
    files: u64,
    /// The highest number of a file so far.
    most_files: u64,
}

impl<'t> Rewriter<'t> {
    fn run(&mut self, rename: impl Fn(&str) -> Option<String>) {
        while let Some(first) = self.text.chars().next() {
            if self.text.starts_with("//") {
                self.copy(self.text.find('\n').unwrap_or(self.text.len()));
            } else if self.text.starts_with("/*") {
                self.copy(self.text.find("*/").map_or(self.text.len(), |end| end + 2));
            } else if first == '"' {
                self.copy(self.text[1..].find('"').map_or(self.text.len(), |end| end + 2));
            } else if is_word(first) || first == '.' {
                self.word(&rename);
            } else {
                self.copy(first.len_utf8());
            }
        }
    }

    fn word(&mut self, rename: &impl Fn(&str) -> Option<String>) {
        let word = self.take();
        match word {
            // One header stands above all.
            ".version" | ".target" | ".address_size" => {
                self.text = &self.text[self.text.find('\n').unwrap_or(self.text.len())..];
            }
            ".file" | ".loc" | "inlined_at" => {
                self.output.push_str(word);
                let blanks = self.text.len() - self.text.trim_start().len();
                self.copy(blanks);
                let number = self.take();
                match number.parse::<u64>() {
                    Ok(file) => {
                        self.most_files = self.most_files.max(self.files + file);
                        self.output.push_str(&(self.files + file).to_string());
                    }
                    Err(_) => self.output.push_str(number),
                }
            }
            _ => match rename(word) {
                Some(renamed) => self.output.push_str(&renamed),
                None => self.output.push_str(word),
            },
        }
    }

    /// The word at the start of the text; a dot may be in front of it.
    fn take(&mut self) -> &'t str {
        let dot = usize::from(self.text.starts_with('.'));
        let end = self.text[dot..].find(|next| !is_word(next)).map_or(self.text.len(), |end| end + dot);
        let (word, rest) = self.text.split_at(end.max(dot));
        self.text = rest;
        word
    }

    fn copy(&mut self, bytes: usize) {
        let (copied, rest) = self.text.split_at(bytes);
        self.output.push_str(copied);
        self.text = rest;
    }
}

fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '$' | '%')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_renamed_and_nothing_else() {
        let text = ".version 8.0\n.target sm_80\n.address_size 64\n.file 1 \"static.cu\"\n// static\n/* static */ .global .u32 static;\n\
                    .loc 1 22 3, function_name $L, inlined_at 2 5 1\nld.global.u32 %r1, [static+4]; statics static.x";
        let mut output = String::new();
        let mut rewriter = Rewriter { text, output: &mut output, files: 10, most_files: 10 };
        rewriter.run(|word| (word == "static").then(|| "renamed".to_owned()));
        assert_eq!(rewriter.most_files, 12);
        let expected = "\n\n\n.file 11 \"static.cu\"\n// static\n/* static */ .global .u32 renamed;\n\
                        .loc 11 22 3, function_name $L, inlined_at 12 5 1\nld.global.u32 %r1, [renamed+4]; statics renamed.x";
        assert_eq!(output, expected);
    }
}
