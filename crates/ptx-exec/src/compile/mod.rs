//! PTX to [`Program`].
//!
//! `scope` flattens bodies and resolves names; `layout` finds the order of blocks; `function` drives; `decode` and the
//! modules it calls turn instructions into steps; `allocate` gives registers their places. This module does what
//! concerns the whole program: variables, kernels' attributes, and the call graph of each kernel.

mod allocate;
mod decode;
mod fold;
mod function;
mod layout;
mod prologue;
mod scope;

use std::collections::HashMap;

use cuda_launch::{Dim3, FunctionAttributes};
use ptx::{Diagnostic, Initializer, Item, Linkage, Module, StateSpace, Statement, SymbolAddress, Variable};

use crate::float_control::DefaultFloats;
use crate::program::{
    Function, GlobalLayout, GlobalSpace, Kernel, KernelAttributes, KernelId, ParamLayout, Program,
    Relocation, RelocationTarget, SharedVariable, function_address,
};
pub(super) use decode::control::is_provided;
use function::{SymbolPlace, constant_bits, parameter_layout};

/// Largest variable: beyond it sizes are mistakes, and memory for them is not to be had.
const MAX_VARIABLE: u64 = 1 << 40;

/// Most bytes of an initialiser.
const MAX_INITIAL: u64 = 1 << 30;

/// What the names at module scope stand for.
pub(super) struct ModuleNames<'m> {
    functions: Vec<&'m ptx::Function>,
    function_names: HashMap<&'m str, u32>,
    /// By the function that declares them (none at module scope) and name.
    places: HashMap<(Option<&'m str>, &'m str), (SymbolPlace, &'m Variable)>,
    /// Whether any function moves the stack pointer.
    moves_stack: bool,
}

impl<'m> ModuleNames<'m> {
    /// Index and size in bytes of each constant variable.
    fn constants(&self) -> Vec<(u32, u64)> {
        let all = self.places.values().filter_map(|(place, variable)| match place {
            SymbolPlace::Global(index) if variable.space == StateSpace::Const => {
                Some((*index, variable.bytes().unwrap_or(0)))
            }
            _ => None,
        });
        let mut constants: Vec<_> = all.collect();
        constants.sort_unstable();
        constants
    }

    /// Where the variable or function `name` is, as seen from `function`.
    fn place(&self, function: &ptx::Function, name: &str) -> Option<SymbolPlace> {
        let inner = self.places.get(&(Some(&*function.name), name));
        let found = inner.or_else(|| self.places.get(&(None, name))).map(|(place, _)| *place);
        found.or_else(|| self.function_names.get(name).map(|&index| SymbolPlace::Function(index)))
    }

    fn variable(&self, name: &str) -> Option<&'m Variable> {
        self.places.get(&(None, name)).map(|(_, variable)| *variable)
    }

    fn function(&self, name: &str) -> Option<&'m ptx::Function> {
        self.function_names.get(name).map(|&index| self.functions[index as usize])
    }
}

/// Variables while they are collected.
#[derive(Default)]
struct Variables<'m> {
    globals: Vec<&'m Variable>,
    shared: Vec<SharedVariable>,
    places: HashMap<(Option<&'m str>, &'m str), (SymbolPlace, &'m Variable)>,
}

impl<'m> Variables<'m> {
    fn add(&mut self, function: Option<&'m str>, variable: &'m Variable) -> Result<(), Diagnostic> {
        let complain = |text: String| Err(Diagnostic::new(variable.position, text));
        let bytes = variable.bytes();
        if bytes.is_some_and(|bytes| bytes > MAX_VARIABLE) {
            return complain(format!("`{}` is larger than {MAX_VARIABLE} bytes", variable.name));
        }
        let place = match variable.space {
            StateSpace::Global | StateSpace::Const => {
                let known = self.places.get(&(function, &*variable.name));
                if let Some((SymbolPlace::Global(index), earlier)) = known {
                    // A declaration and its definition are one variable.
                    let (index, earlier) = (*index, *earlier);
                    if variable.linkage != Linkage::Extern || earlier.linkage == Linkage::Extern {
                        self.globals[index as usize] = variable;
                        self.places
                            .insert((function, &variable.name), (SymbolPlace::Global(index), variable));
                    }
                    return Ok(());
                }
                self.globals.push(variable);
                SymbolPlace::Global(self.globals.len() as u32 - 1)
            }
            StateSpace::Shared => {
                let dynamic = bytes.is_none() || variable.linkage == Linkage::Extern;
                let bytes = if dynamic { 0 } else { bytes.unwrap_or(0) };
                self.shared.push(SharedVariable {
                    name: variable.name.clone(),
                    bytes,
                    align: variable.alignment(),
                    dynamic,
                });
                SymbolPlace::Shared(self.shared.len() as u32 - 1)
            }
            _ => return Ok(()),
        };
        self.places.insert((function, &variable.name), (place, variable));
        Ok(())
    }
}

impl Program {
    /// Compiles a module.
    ///
    /// # Errors
    ///
    /// PTX that means nothing: unknown names, operands that do not fit. Instructions that this device does not
    /// execute are no error: a kernel that reaches one faults with [`FaultKind::Unsupported`].
    ///
    /// [`FaultKind::Unsupported`]: crate::FaultKind::Unsupported
    pub fn compile(module: &Module) -> Result<Program, Diagnostic> {
        // Constants are converted between formats.
        let _floats = DefaultFloats::enter();
        let (names, variables) = collect(module)?;
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
            shared: variables.shared,
            names: HashMap::new(),
            files: files.collect(),
            local_align: local_alignment(&names),
        };
        for (index, function) in names.functions.iter().enumerate() {
            if function.kind == ptx::FunctionKind::Entry && function.body.is_some() {
                let mut kernel = program.describe_kernel(module, function, index as u32, &pressures);
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
    ) -> Kernel {
        let call_graph = self.call_graph(index);
        let mut shared_offsets = vec![None; self.shared.len()];
        let mut end = 0u64;
        let mut used: Vec<u32> = call_graph
            .functions
            .iter()
            .flat_map(|&f| self.functions[f as usize].code.shared.iter().copied())
            .collect();
        used.sort_unstable();
        used.dedup();
        // Arrays that are sized at launch come after everything else.
        used.sort_by_key(|&variable| self.shared[variable as usize].dynamic);
        let mut static_shared = 0;
        let dynamic_align =
            used.iter().map(|&v| &self.shared[v as usize]).filter(|v| v.dynamic).map(|v| v.align).max();
        for variable in used {
            let layout = &self.shared[variable as usize];
            let align = if layout.dynamic { dynamic_align.unwrap_or(1) } else { layout.align };
            end = end.checked_next_multiple_of(align.max(1)).unwrap_or(u64::MAX);
            shared_offsets[variable as usize] = Some(end.min(u32::MAX.into()) as u32);
            end = end.saturating_add(layout.bytes);
            if !layout.dynamic {
                static_shared = end;
            }
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
        let small = |value: u64| value.min(u32::MAX.into()) as u32;
        Kernel {
            function: index,
            attributes: KernelAttributes {
                function: FunctionAttributes {
                    registers: pressure.clamp(8, 255),
                    static_shared_bytes: small(static_shared),
                    local_bytes: call_graph.stack,
                    constant_bytes: small(const_bytes),
                    max_threads_per_block: small(most.clamp(1, 1024)),
                    ptx_version: module.architecture(),
                    ..FunctionAttributes::default()
                },
                required_block,
                min_blocks: small(min_blocks),
                params: places
                    .iter()
                    .map(|&(offset, size)| ParamLayout { offset: offset as usize, size: size as usize })
                    .collect(),
            },
            shared_offsets,
            dynamic_start: small(end),
            unbounded_stack: call_graph.unbounded,
        }
    }

    /// What a kernel may call, and how much local memory that takes.
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
        // Depth of what is below each function that has been left; functions on the path have none yet.
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

fn collect(module: &Module) -> Result<(ModuleNames<'_>, Variables<'_>), Diagnostic> {
    let mut variables = Variables::default();
    let mut functions: Vec<&ptx::Function> = Vec::new();
    let mut function_names: HashMap<&str, u32> = HashMap::new();
    for variable in module.variables() {
        variables.add(None, variable)?;
    }
    for function in module.functions() {
        // A definition takes the place of its declaration.
        match function_names.get(&*function.name) {
            Some(&index) if function.body.is_some() => functions[index as usize] = function,
            Some(_) => {}
            None => {
                function_names.insert(&function.name, functions.len() as u32);
                functions.push(function);
            }
        }
    }
    for function in &functions {
        let mut outcome = Ok(());
        let name = &*function.name;
        function.visit(&mut |statement| {
            if let (Statement::Variable(variable), true) = (statement, outcome.is_ok()) {
                outcome = variables.add(Some(name), variable);
            }
        });
        outcome?;
    }
    for item in &module.items {
        if let Item::Alias { name, function } = item
            && let Some(&index) = function_names.get(&**function)
        {
            function_names.insert(name, index);
        }
    }
    let places = std::mem::take(&mut variables.places);
    let moves_stack = functions.iter().any(|function| decode::stack::moves(function));
    Ok((ModuleNames { functions, function_names, places, moves_stack }, variables))
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
        visible: matches!(variable.linkage, Linkage::Visible | Linkage::Weak | Linkage::Common),
        external: variable.linkage == Linkage::Extern,
        managed: variable.attributes.iter().any(|attribute| &**attribute == ".managed"),
        initial: Vec::new(),
        relocations: Vec::new(),
    };
    if let Some(initializer) = &variable.initializer {
        let mut writer = InitialWriter { layout: &mut layout, variable, names };
        let shape: Vec<u64> = variable.dimensions.iter().map(|length| length.unwrap_or(0)).collect();
        writer.write(initializer, &shape, 0)?;
    }
    Ok(layout)
}

/// Puts initial values into a variable's contents.
struct InitialWriter<'a, 'm> {
    layout: &'a mut GlobalLayout,
    variable: &'a Variable,
    names: &'a ModuleNames<'m>,
}

impl InitialWriter<'_, '_> {
    fn complain<T>(&self, text: &str) -> Result<T, Diagnostic> {
        Err(Diagnostic::new(
            self.variable.position,
            format!("initial value of `{}`: {text}", self.variable.name),
        ))
    }

    /// Writes `initializer` at `offset`; `shape` are the array dimensions still open. The parser bounds the depth.
    fn write(&mut self, initializer: &Initializer, shape: &[u64], offset: u64) -> Result<(), Diagnostic> {
        let bytes = self.variable.ty.bytes();
        match initializer {
            Initializer::List(items) => {
                let inner = shape.get(1..).unwrap_or(&[]);
                let whole = if shape.is_empty() { bytes } else { self.variable.element_bytes() };
                let stride = inner.iter().fold(whole, |product, &length| product.saturating_mul(length));
                for (index, item) in items.iter().enumerate() {
                    self.write(item, inner, offset.saturating_add(stride.saturating_mul(index as u64)))?;
                }
                Ok(())
            }
            Initializer::Constant(constant) => {
                let bits = constant_bits(*constant, self.variable.ty);
                self.put(offset, &bits.to_le_bytes()[..bytes.min(8) as usize])
            }
            Initializer::Symbol(symbol) => self.relocate(symbol, offset),
            Initializer::Field(..) | Initializer::Setting(..) => Ok(()),
        }
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
        let target = match (
            self.names.places.get(&(None, &*symbol.name)),
            self.names.function_names.get(&*symbol.name),
        ) {
            (Some((SymbolPlace::Global(index), _)), _) => RelocationTarget::Global(*index as usize),
            (_, Some(&index)) => RelocationTarget::Function(function_address(index)),
            _ => return self.complain(&format!("`{}` is no global variable or function", symbol.name)),
        };
        let shift = symbol.mask.map_or(0, |mask| mask.trailing_zeros().min(63)) as u8;
        self.layout.relocations.push(Relocation { offset, bytes, shift, target, addend: symbol.offset });
        Ok(())
    }
}
