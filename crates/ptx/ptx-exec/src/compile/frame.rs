//! The layout of a function's variables and parameters: frames in local memory, a kernel's
//! parameters.

use ptx::body::{Home, Symbol};
use ptx::{ScalarType, StateSpace, Variable};

use crate::code::Named;
use crate::compile::function::{Decoded, FunctionCompiler, invalid};

/// The place of a symbol's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SymbolPlace {
    /// At an offset of the function's frame in local memory.
    Frame(u32),
    /// At an offset of the kernel's parameters.
    Param(u32),
    /// A shared variable, by index.
    Shared(u32),
    /// A global or constant variable, by index.
    Global(u32),
    /// A function, by index.
    Function(u32),
}

/// Bytes that a formal parameter takes in a frame; a predicate takes one.
pub(super) fn formal_bytes(variable: &Variable) -> u64 {
    match variable.ty {
        ScalarType::Pred => variable.vector.into(),
        _ => variable.bytes().unwrap_or(0),
    }
}

/// Lays formal parameters out in a function's frame: offset and size of each, and the size of all.
pub(super) fn parameter_layout<'v>(variables: impl Iterator<Item = &'v Variable>) -> (Vec<(u32, u32)>, u32) {
    let (mut places, mut end) = (Vec::new(), 0u64);
    for variable in variables {
        let bytes = formal_bytes(variable);
        let start = end.next_multiple_of(variable.alignment());
        places.push((start.min(u32::MAX.into()) as u32, bytes.min(u32::MAX.into()) as u32));
        end = start.saturating_add(bytes);
    }
    (places, end.next_multiple_of(8).min(u32::MAX.into()) as u32)
}

impl FunctionCompiler<'_> {
    /// Formal parameters first (so that callers know where), then local variables and the
    /// parameters of calls.
    pub(super) fn lay_out_frame(&mut self) {
        let returns = self.function.returns.len();
        let formals = self.function.returns.iter().chain(&self.function.params);
        let (frame, bytes) = parameter_layout(formals);
        let (params, _) = parameter_layout(self.function.params.iter());
        let mut end = if self.is_kernel() { 0 } else { u64::from(bytes) };
        self.param_bytes = params.last().map_or(0, |&(offset, bytes)| u64::from(offset) + u64::from(bytes));
        for variable in &self.body.variables {
            let declaration = variable.declaration;
            let is_local = matches!(declaration.space, StateSpace::Local | StateSpace::Param);
            let place = match variable.home {
                Home::Parameter(index) if self.is_kernel() => {
                    Some(SymbolPlace::Param(params[index as usize].0))
                }
                Home::Return(index) => Some(SymbolPlace::Frame(frame[index as usize].0)),
                Home::Parameter(index) => Some(SymbolPlace::Frame(frame[returns + index as usize].0)),
                Home::Body if is_local => {
                    end = end.next_multiple_of(declaration.alignment());
                    let (name, bytes) = (declaration.name.to_string(), declaration.bytes().unwrap_or(0));
                    self.variables.push(Named { name, start: end, bytes });
                    let start = end.min(u32::MAX.into()) as u32;
                    end = end.saturating_add(bytes);
                    Some(SymbolPlace::Frame(start))
                }
                Home::Body | Home::Module => self.module.place(declaration),
            };
            self.places.push(place);
        }
        self.frame_bytes = end.min(u32::MAX.into()) as u32;
    }

    /// Returns the place of a variable's or function's memory.
    pub(super) fn symbol_place(&self, symbol: Symbol) -> Decoded<SymbolPlace> {
        let place = match symbol {
            Symbol::Variable(id) => self.places[id.index()],
            Symbol::Function(function) => self.module.index(function).map(SymbolPlace::Function),
            _ => None,
        };
        place.map_or_else(|| invalid(format!("`{}` has no address", self.body.name(symbol))), Ok)
    }

    /// New space in the frame, in bytes; where it is.
    pub(super) fn frame_space(&mut self, align: u64, bytes: u64) -> u32 {
        let start = u64::from(self.frame_bytes).next_multiple_of(align.max(1));
        self.frame_bytes = start.saturating_add(bytes).min(u32::MAX.into()) as u32;
        start.min(u32::MAX.into()) as u32
    }
}
