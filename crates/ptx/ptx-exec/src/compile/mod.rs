//! Compiles PTX to a [`Program`].
//!
//! [`ptx::body`] resolves the names of a function and [`ptx::flow`] finds its blocks; `layout` puts
//! these in order; `function` compiles one function; `frame` places its variables; `operand` and
//! `special` translate operands; `decode` and the modules it calls translate instructions into
//! steps; `allocate` assigns registers. This module handles the whole program: variables, kernels'
//! attributes, and the call graph of each kernel.

mod allocate;
mod decode;
mod fold;
mod frame;
mod function;
mod layout;
mod operand;
mod prologue;
mod regions;
mod special;

use std::collections::HashMap;

use cuda_launch::{Dim3, FunctionAttributes};
use ptx::analysis::SharedLayout;
use ptx::body::{Global, Names};
use ptx::{Diagnostic, Initializer, Item, Linkage, Module, StateSpace, Statement, SymbolAddress, Variable};

use crate::device::KernelId;
use crate::float_control::DefaultFloats;
use crate::program::{
    Function, GlobalLayout, GlobalSpace, Kernel, KernelAttributes, ParamLayout, Program, Relocation,
    RelocationTarget, SharedVariable, function_address,
};
pub(super) use decode::control::is_provided;
use frame::{SymbolPlace, parameter_layout};
use operand::constant_bits;

/// Largest variable: beyond it sizes are mistakes, and memory for them is not to be had.
const MAX_VARIABLE: u64 = 1 << 40;

/// Most bytes of an initialiser.
const MAX_INITIAL: u64 = 1 << 30;

/// The functions and variables of a module, by number.
pub(super) struct ModuleNames<'m> {
    names: Names<'m>,
    functions: Vec<&'m ptx::Function>,
    indices: HashMap<*const ptx::Function, u32>,
    /// Variables that have memory of their own, those of functions too.
    places: HashMap<*const Variable, SymbolPlace>,
    /// Index and size in bytes of each constant variable.
    constants: Vec<(u32, u64)>,
    /// Whether any function moves the stack pointer.
    moves_stack: bool,
}

impl ModuleNames<'_> {
    /// Returns the place of a variable that the module has memory for.
    fn place(&self, variable: &Variable) -> Option<SymbolPlace> {
        self.places.get(&std::ptr::from_ref(variable)).copied()
    }

    /// The number of a function.
    fn index(&self, function: &ptx::Function) -> Option<u32> {
        self.indices.get(&std::ptr::from_ref(function)).copied()
    }
}

/// Variables while they are collected.
#[derive(Default)]
struct Variables<'m> {
    globals: Vec<&'m Variable>,
    shared: Vec<&'m Variable>,
    places: HashMap<*const Variable, SymbolPlace>,
}

impl<'m> Variables<'m> {
    fn add(&mut self, variable: &'m Variable) {
        let key = std::ptr::from_ref(variable);
        if self.places.contains_key(&key) {
            return;
        }
        let place = match variable.space {
            StateSpace::Global | StateSpace::Const => {
                self.globals.push(variable);
                SymbolPlace::Global(self.globals.len() as u32 - 1)
            }
            StateSpace::Shared => {
                self.shared.push(variable);
                SymbolPlace::Shared(self.shared.len() as u32 - 1)
            }
            _ => return,
        };
        self.places.insert(key, place);
    }
}

impl Program {
    /// Compiles a module.
    ///
    /// # Errors
    ///
    /// PTX that means nothing: unknown names, operands that do not fit. Instructions that this
    /// device does not execute are no error: a kernel that reaches one faults with
    /// [`FaultKind::Unsupported`].
    ///
    /// [`FaultKind::Unsupported`]: crate::FaultKind::Unsupported
    pub fn compile(module: &Module) -> Result<Program, Diagnostic> {
        // Constants are converted between formats.
        let _floats = DefaultFloats::enter();
        check_sizes(module)?;
        let (names, variables) = collect(module);
        let globals =
            variables.globals.iter().map(|variable| global(variable, &names)).collect::<Result<_, _>>()?;
        let mut functions = Vec::new();
        let mut pressures = Vec::new();
        for function in &names.functions {
            let (code, pressure) = function::compile(&names, function)?;
            functions.push(Function { name: function.name.clone(), code });
            pressures.push(pressure);
        }
        let files = module.items.iter().filter_map(|item| match item {
            Item::File(file) => Some((file.index, file.path.clone())),
            _ => None,
        });
        let mut program = Program {
            functions,
            kernels: Vec::new(),
            globals,
            shared: variables.shared.iter().map(|variable| shared_variable(variable)).collect(),
            names: HashMap::new(),
            files: files.collect(),
            local_align: local_alignment(&names),
        };
        for (index, function) in names.functions.iter().enumerate() {
            if function.kind == ptx::FunctionKind::Entry && function.body.is_some() {
                let mut kernel =
                    program.describe_kernel(module, function, index as u32, &pressures, &variables.shared);
                kernel.unbounded_stack |= names.moves_stack;
                program.names.insert(function.name.clone(), KernelId(program.kernels.len() as u32));
                program.kernels.push(kernel);
            }
        }
        Ok(program)
    }

    fn describe_kernel(
        &self,
        module: &Module,
        function: &ptx::Function,
        index: u32,
        pressures: &[u32],
        shared: &[&Variable],
    ) -> Kernel {
        let small = |value: u64| value.min(u32::MAX.into()) as u32;
        let call_graph = self.call_graph(index);
        let of_functions = call_graph.functions.iter().map(|&f| &self.functions[f as usize].code.shared);
        let mut used: Vec<u32> = of_functions.flatten().copied().collect();
        used.sort_unstable();
        used.dedup();
        let variables: Vec<&Variable> = used.iter().map(|&index| shared[index as usize]).collect();
        let layout = SharedLayout::new(&variables);
        let mut shared_offsets = vec![None; self.shared.len()];
        for (index, offset) in used.iter().zip(layout.offsets) {
            shared_offsets[*index as usize] = Some(small(offset));
        }
        let (places, _) = parameter_layout(function.params.iter());
        let dimension = |name: &str| {
            function.directive(name).map(|values| {
                let at =
                    |index: usize| values.get(index).map_or(1, |&value| value.min(u32::MAX.into()) as u32);
                Dim3::new(at(0), at(1), at(2))
            })
        };
        let required_block = dimension("reqntid");
        let most = required_block.or(dimension("maxntid")).map_or(1024, Dim3::count);
        let min_blocks =
            function.directive("minnctapersm").and_then(|values| values.first().copied()).unwrap_or(0);
        let pressure = call_graph.functions.iter().map(|&f| pressures[f as usize]).max().unwrap_or(0);
        let const_bytes: u64 = self
            .globals
            .iter()
            .filter(|global| global.space == GlobalSpace::Const)
            .fold(0, |sum: u64, global| sum.saturating_add(global.size));
        Kernel {
            function: index,
            attributes: KernelAttributes {
                function: FunctionAttributes {
                    registers: pressure.clamp(8, 255),
                    static_shared_bytes: small(layout.static_bytes),
                    local_bytes: call_graph.stack,
                    constant_bytes: small(const_bytes),
                    max_threads_per_block: small(most.clamp(1, 1024)),
                    ptx_version: module.architecture(),
                    ..FunctionAttributes::default()
                },
                required_block,
                required_cluster: dimension("reqnctapercluster"),
                min_blocks: small(min_blocks),
                params: places
                    .iter()
                    .map(|&(offset, size)| ParamLayout { offset: offset as usize, size: size as usize })
                    .collect(),
            },
            shared_offsets,
            dynamic_start: small(layout.dynamic_start),
            unbounded_stack: call_graph.unbounded,
        }
    }

    /// Returns the functions that a kernel may call, and the local memory that they take.
    fn call_graph(&self, kernel: u32) -> CallGraph {
        let indirect: Vec<u32> = (0..self.functions.len() as u32).collect();
        let callees = |function: u32| {
            let code = &self.functions[function as usize].code;
            if code.calls_indirectly { &indirect } else { &code.calls }
        };
        let frame = |function: u32| {
            let bytes = self.functions[function as usize].code.frame_bytes;
            bytes.checked_next_multiple_of(self.local_align).unwrap_or(u32::MAX)
        };
        let mut call_graph = CallGraph { functions: Vec::new(), stack: 0, unbounded: false };
        // Depth of what is below each function that has been left; functions on the path have none
        // yet.
        let mut depth: HashMap<u32, Option<u32>> = HashMap::new();
        let mut path = vec![(kernel, 0)];
        while let Some((function, looked)) = path.last_mut() {
            let function = *function;
            if *looked == 0 && depth.insert(function, None).is_none() {
                call_graph.functions.push(function);
            }
            let callee = callees(function).get(*looked).copied();
            *looked += 1;
            match callee.map(|callee| (callee, depth.get(&callee))) {
                Some((callee, None)) => path.push((callee, 0)),
                Some((_, Some(None))) => call_graph.unbounded = true,
                Some((_, Some(Some(_)))) => {}
                None => {
                    let below = callees(function)
                        .iter()
                        .filter_map(|callee| depth.get(callee).copied().flatten())
                        .max();
                    depth.insert(function, Some(frame(function).saturating_add(below.unwrap_or(0))));
                    path.pop();
                }
            }
        }
        call_graph.stack = depth.get(&kernel).copied().flatten().unwrap_or(0);
        call_graph
    }
}

struct CallGraph {
    functions: Vec<u32>,
    /// Bytes of local memory along the deepest chain of calls without recursion.
    stack: u32,
    unbounded: bool,
}

fn collect(module: &Module) -> (ModuleNames<'_>, Variables<'_>) {
    let names = Names::new(module);
    let mut variables = Variables::default();
    let mut functions: Vec<&ptx::Function> = Vec::new();
    let mut indices = HashMap::new();
    // A definition takes the place of its declarations.
    for variable in module.variables() {
        if let Some(Global::Variable(variable)) = names.get(&variable.name) {
            variables.add(variable);
        }
    }
    for function in module.functions() {
        if let Some(Global::Function(function)) = names.get(&function.name) {
            indices.entry(std::ptr::from_ref(function)).or_insert_with(|| {
                functions.push(function);
                functions.len() as u32 - 1
            });
        }
    }
    for function in &functions {
        function.visit(&mut |statement| {
            if let Statement::Variable(variable) = statement {
                variables.add(variable);
            }
        });
    }
    let constants = (0..).zip(&variables.globals).filter(|(_, variable)| variable.space == StateSpace::Const);
    let constants = constants.map(|(index, variable)| (index, variable.bytes().unwrap_or(0))).collect();
    let places = std::mem::take(&mut variables.places);
    let moves_stack = functions.iter().any(|function| decode::stack::moves(function));
    (ModuleNames { names, functions, indices, places, constants, moves_stack }, variables)
}

/// Fails for variables, parameters included, that are larger than any memory.
fn check_sizes(module: &Module) -> Result<(), Diagnostic> {
    let check = |variable: &Variable| match variable.bytes() {
        Some(bytes) if bytes > MAX_VARIABLE => {
            let message = format!("`{}` is larger than {MAX_VARIABLE} bytes", variable.name);
            Err(Diagnostic::new(variable.position, message))
        }
        _ => Ok(()),
    };
    module.variables().try_for_each(check)?;
    for function in module.functions() {
        function.returns.iter().chain(&function.params).try_for_each(check)?;
        let mut outcome = Ok(());
        function.visit(&mut |statement| {
            let found = match statement {
                Statement::Variable(variable) => check(variable),
                Statement::Prototype(prototype) => {
                    prototype.returns.iter().chain(&prototype.params).try_for_each(check)
                }
                _ => Ok(()),
            };
            if outcome.is_ok() {
                outcome = found;
            }
        });
        outcome?;
    }
    Ok(())
}

fn shared_variable(variable: &Variable) -> SharedVariable {
    SharedVariable { name: variable.name.clone(), bytes: variable.bytes().unwrap_or(0) }
}

fn local_alignment(names: &ModuleNames) -> u32 {
    let mut align = 16;
    for function in &names.functions {
        let formals = function.returns.iter().chain(&function.params);
        formals.for_each(|formal| align = align.max(formal.alignment()));
        function.visit(&mut |statement| {
            if let Statement::Variable(variable) = statement
                && matches!(variable.space, StateSpace::Local | StateSpace::Param)
            {
                align = align.max(variable.alignment());
            }
        });
    }
    align.min(4096) as u32
}

fn global(variable: &Variable, names: &ModuleNames) -> Result<GlobalLayout, Diagnostic> {
    let mut layout = GlobalLayout {
        name: variable.name.to_string(),
        space: if variable.space == StateSpace::Const { GlobalSpace::Const } else { GlobalSpace::Global },
        size: variable.bytes().unwrap_or(0),
        align: variable.alignment(),
        visible: variable.linkage != Linkage::Internal,
        // An `.extern` variable that states its size is a definition where no other is.
        external: variable.linkage == Linkage::Extern && variable.stated_bytes().is_none(),
        managed: variable.attributes.iter().any(|attribute| &**attribute == ".managed"),
        initial: Vec::new(),
        relocations: Vec::new(),
    };
    if let Some(initializer) = &variable.initializer {
        let mut writer = InitialWriter { layout: &mut layout, variable, names, filled: 0 };
        match initializer.fits(variable) {
            Ok(()) => writer.write(initializer)?,
            Err(message) => return writer.complain(&message),
        }
    }
    Ok(layout)
}

/// Puts initial values into a variable's contents.
///
/// As in ptxas, braces say where a value may stand, not where it goes: values fill the variable
/// from the front, and the rest is zeros.
struct InitialWriter<'a, 'm> {
    layout: &'a mut GlobalLayout,
    variable: &'a Variable,
    names: &'a ModuleNames<'m>,
    /// Bytes that values have filled.
    filled: u64,
}

impl InitialWriter<'_, '_> {
    fn complain<T>(&self, text: &str) -> Result<T, Diagnostic> {
        Err(Diagnostic::new(
            self.variable.position,
            format!("initial value of `{}`: {text}", self.variable.name),
        ))
    }

    /// Writes the next value, or several. The parser bounds the depth.
    fn write(&mut self, initializer: &Initializer) -> Result<(), Diagnostic> {
        let ty = self.variable.ty;
        match initializer {
            Initializer::Field(..) | Initializer::Setting(..) => return Ok(()),
            Initializer::List(items) => return items.iter().try_for_each(|item| self.write(item)),
            Initializer::Constant(constant) => {
                let bits = constant_bits(*constant, ty);
                self.put(self.filled, &bits.to_le_bytes()[..ty.bytes().min(8) as usize])?;
            }
            Initializer::Symbol(symbol) => self.relocate(symbol, self.filled)?,
        }
        self.filled += ty.bytes();
        Ok(())
    }

    fn put(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Diagnostic> {
        let end = offset.saturating_add(bytes.len() as u64);
        if end > self.layout.size || end > MAX_INITIAL {
            return self.complain("more values than the variable holds");
        }
        let end = end as usize;
        if self.layout.initial.len() < end {
            self.layout.initial.resize(end, 0);
        }
        self.layout.initial[offset as usize..end].copy_from_slice(bytes);
        Ok(())
    }

    fn relocate(&mut self, symbol: &SymbolAddress, offset: u64) -> Result<(), Diagnostic> {
        let bytes = self.variable.ty.bytes().min(8) as u8;
        self.put(offset, &[0; 8][..bytes.into()])?;
        let target = match self.names.names.get(&symbol.name) {
            Some(Global::Variable(variable)) => match self.names.place(variable) {
                Some(SymbolPlace::Global(index)) => Some(RelocationTarget::Global(index as usize)),
                _ => None,
            },
            Some(Global::Function(function)) => {
                self.names.index(function).map(|index| RelocationTarget::Function(function_address(index)))
            }
            None => None,
        };
        let Some(target) = target else {
            return self.complain(&format!("`{}` is no global variable or function", symbol.name));
        };
        let shift = symbol.mask.map_or(0, |mask| mask.trailing_zeros().min(63)) as u8;
        self.layout.relocations.push(Relocation { offset, bytes, shift, target, addend: symbol.offset });
        Ok(())
    }
}
