//! The linker: several PTX texts become one.
//!
//! What is executed here is PTX, so what linking yields is PTX too: what [`ptx::link`] makes of the
//! inputs, printed. It is checked by compiling it. Unlike that, a linker complains of what is
//! defined nowhere.

use crate::device::{self, architecture};
use crate::error::{Error, Result};
use crate::handle::{Kind, Table};
use crate::module::{LoadError, header, no_ptx, no_ptx_but_lto_ir};
use crate::thread;
use cuda_abi::types::*;
use fatbin::Image;
use ptx_exec::Program;
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
    /// The linked program, which the caller may read until it ends the link.
    linked: Option<Arc<CString>>,
}

struct Input {
    name: String,
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

    /// Returns the link of a handle.
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
        let parts = match fatbin::read(image, architecture()) {
            Ok(Image::Ptx(ptx)) => vec![ptx],
            Ok(Image::Parts(parts)) => parts,
            Ok(Image::MachineCodeOnly(architectures)) => {
                return Err(no_ptx(&architectures, image.as_ptr() as u64));
            }
            Ok(Image::LtoIrOnly) => return Err(no_ptx_but_lto_ir()),
            Err(error) => {
                return Err(LoadError {
                    code: CUDA_ERROR_INVALID_IMAGE,
                    message: format!("{name}: {error}"),
                });
            }
        };
        for part in parts {
            let text =
                std::str::from_utf8(&part.text).map_err(|error| invalid(format!("{name}: {error}")))?;
            if ptx_exec::is_device_runtime(text) {
                continue;
            }
            let module = header::parsed(name, text, part.beside_machine_code)?;
            self.lock().inputs.push(Input { name: name.to_owned(), module });
        }
        Ok(())
    }

    /// Links what has been added.
    pub fn complete(&self) -> std::result::Result<Arc<CString>, LoadError> {
        let mut state = self.lock();
        let text = linked(&state.inputs)?;
        let module = ptx::parse(&text).map_err(|error| invalid(error.render("linked", &text)))?;
        let compiled = thread::on_ample_stack(|| Program::compile(&module).map(drop));
        compiled.map_err(|error| invalid(error.render("linked", &text)))?;
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
        // Shared memory that is sized at launch is declared so too. nvlink wants a definition of
        // what states its size, although ptxas makes one where it does not link.
        defined: variable.linkage != ptx::Linkage::Extern
            || variable.space == ptx::StateSpace::Shared && variable.stated_bytes().is_none(),
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
    let modules = inputs.iter().map(|input| input.module.clone()).collect();
    ptx::link(modules).map(|module| module.to_string()).map_err(|error| invalid(error.to_string()))
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
        let missing = symbols(&input.module).find(|symbol| {
            !symbol.defined && !seen.contains(symbol.name) && !ptx_exec::provides(symbol.name)
        });
        if let Some(symbol) = missing {
            return Err(invalid(format!("`{}`, which {} uses, is defined nowhere", symbol.name, input.name)));
        }
    }
    Ok(())
}
