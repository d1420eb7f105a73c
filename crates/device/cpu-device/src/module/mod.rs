//! Modules and libraries: device code, from the image that a program loads to the functions that it
//! launches.
//!
//! An image is read ([`fatbin`]), parsed, and compiled to a [`Program`], none of which depends on a
//! context. A [`Module`] is a program with memory for its variables, in one context. A [`Library`]
//! is a program that becomes a module in each context where one of its kernels is used, and a
//! [`Kernel`] stands for the function that it is in each.

mod header;
pub mod link;
pub mod machine_code;

use crate::context::{self, Context};
use crate::device::{self, MAX_ARGUMENT_BYTES, architecture, fixed_attributes};
use crate::error::{Error, Result, ensure, fail};
use crate::handle::{Kind, Table};
use crate::headroom;
use crate::launch::LegacyLaunch;
use crate::memory::{self, Allocation, Request};
use crate::stream::Stream;
use crate::thread;
use cuda_abi::types::*;
use fatbin::{Architectures, Image, ImageError};
use ptx_exec::{GlobalLayout, GlobalSpace, KernelAttributes, KernelId, Linked, Program, RelocationTarget};
use std::collections::HashMap;
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

static MODULES: Table<Module> = Table::new(Kind::Module);
static FUNCTIONS: Table<Function> = Table::new(Kind::Function);
static LIBRARIES: Table<Library> = Table::new(Kind::Library);
static KERNELS: Table<Kernel> = Table::new(Kind::Kernel);

/// Problems of a module that a message lists at most.
const MAX_PROBLEMS: usize = 10;

/// The reason why an image can't be loaded.
pub struct LoadError {
    /// The result code for the program.
    pub code: CUresult,
    /// The message for its user, in the log or on standard error.
    pub message: String,
}

/// Compiles the image that `image` points at.
///
/// # Safety
///
/// As for [`fatbin::read_pointer`].
pub unsafe fn compile_at(image: *const u8) -> std::result::Result<Arc<Program>, LoadError> {
    check_headroom(0)?;
    // SAFETY: as promised by the caller.
    let read = unsafe { fatbin::read_pointer(image, architecture()) };
    let address = image as u64;
    thread::on_ample_stack(|| compile(read, address))
}

/// The contents of a file that a program names as a module.
pub fn read_file(path: &CStr) -> std::result::Result<Vec<u8>, LoadError> {
    let path = Path::new(OsStr::from_bytes(path.to_bytes()));
    apex_untrusted::read::read(path, apex_untrusted::read::PTX).map_err(|error| {
        let code = match error.kind() {
            std::io::ErrorKind::NotFound => CUDA_ERROR_FILE_NOT_FOUND,
            std::io::ErrorKind::OutOfMemory => CUDA_ERROR_OUT_OF_MEMORY,
            _ => CUDA_ERROR_OPERATING_SYSTEM,
        };
        LoadError { code, message: format!("{} cannot be loaded: {error}", path.display()) }
    })
}

/// Fails if the process has too little memory left to compile `bytes` of PTX.
fn check_headroom(bytes: usize) -> std::result::Result<(), LoadError> {
    if headroom::for_ptx(bytes) {
        return Ok(());
    }
    let message =
        "out of memory: the process has no address space left to compile PTX; raise its limit (ulimit -v)";
    Err(LoadError { code: CUDA_ERROR_OUT_OF_MEMORY, message: message.to_owned() })
}

/// Compiles an image whose length is known.
pub fn compile_bytes(image: &[u8]) -> std::result::Result<Arc<Program>, LoadError> {
    thread::on_ample_stack(|| compile(fatbin::read(image, architecture()), image.as_ptr() as u64))
}

fn compile(
    image: std::result::Result<Image<'_>, ImageError>,
    address: u64,
) -> std::result::Result<Arc<Program>, LoadError> {
    let parts = match image {
        Ok(Image::Ptx(ptx)) => vec![ptx],
        Ok(Image::Parts(parts)) => parts,
        Ok(Image::MachineCodeOnly(architectures)) => return Err(no_ptx(&architectures, address)),
        Ok(Image::LtoIrOnly) => return Err(no_ptx_but_lto_ir()),
        Err(error) => return Err(LoadError { code: CUDA_ERROR_INVALID_IMAGE, message: error.to_string() }),
    };
    check_headroom(parts.iter().map(|part| part.text.len()).sum())?;
    let invalid = |message| LoadError { code: CUDA_ERROR_INVALID_PTX, message };
    let mut sources = Vec::new();
    for part in &parts {
        let source = std::str::from_utf8(&part.text);
        let source = source.map_err(|error| invalid(format!("the PTX is not UTF-8: {error}")))?;
        sources.push((source, part.beside_machine_code));
    }
    if sources.len() > 1 {
        sources.retain(|(source, _)| !ptx_exec::is_device_runtime(source));
    }
    let modules = sources.iter().map(|&(source, is_free)| header::parsed("ptx", source, is_free));
    let modules = modules.collect::<std::result::Result<_, _>>()?;
    let module = ptx::link(modules).map_err(|error| invalid(format!("the PTX cannot be linked: {error}")))?;
    // Of linked modules, the text that a position refers to is not known.
    let source = if let [(source, _)] = sources[..] { source } else { "" };
    let program = Program::compile(&module).map_err(|error| invalid(problems(&module, error, source)))?;
    if let Some(missing) = program.globals().iter().find(|global| global.external) {
        let name = &missing.name;
        return Err(invalid(format!(
            "the variable `{name}` is declared `.extern` and defined nowhere: link the module that defines it \
             (cuLinkCreate, cuLinkAddData)"
        )));
    }
    for (kernel, name) in program.kernels() {
        let static_bytes = program.attributes(kernel).function.static_shared_bytes;
        let most = fixed_attributes().max_shared_bytes_per_block;
        if static_bytes > most {
            return Err(invalid(format!(
                "the kernel `{name}` declares {static_bytes} bytes of shared memory, and a block has {most}: declare \
                 the array `.extern` and name its size at the launch"
            )));
        }
        let bytes = program.attributes(kernel).param_bytes();
        if bytes > MAX_ARGUMENT_BYTES as usize {
            return Err(invalid(format!(
                "the kernel `{name}` takes {bytes} bytes of parameters, and a launch passes at most {MAX_ARGUMENT_BYTES}"
            )));
        }
    }
    Ok(Arc::new(program))
}

/// Everything that is wrong with a module that does not compile. The compiler stops at the first
/// error; the verifier finds all of them, and says what an instruction would have taken.
fn problems(module: &ptx::Module, first: ptx::Diagnostic, source: &str) -> String {
    let mut found = ptx::verify(module);
    if found.is_empty() {
        found.push(first);
    }
    listed(&found, "ptx", source)
}

/// The problems of a module, as many as a message holds.
fn listed(found: &[ptx::Diagnostic], name: &str, source: &str) -> String {
    let shown = found.iter().take(MAX_PROBLEMS).map(|problem| problem.render(name, source));
    let mut text = shown.collect::<Vec<_>>().join("\n");
    if let Some(more) = found.len().checked_sub(MAX_PROBLEMS).filter(|more| *more > 0) {
        text.push_str(&format!("\nand {more} more"));
    }
    text
}

/// Returns the error for machine code at `address`, with advice.
pub fn no_ptx(architectures: &[u32], address: u64) -> LoadError {
    let found = if architectures.is_empty() {
        "a cubin".into()
    } else {
        format!("machine code for {}", Architectures(architectures))
    };
    LoadError {
        code: CUDA_ERROR_NO_BINARY_FOR_GPU,
        message: format!(
            "the image holds {found} and no PTX, which is what the CPU device executes;\n    {}",
            machine_code::for_machine_code(address)
        ),
    }
}

/// Returns the error for LTO-IR, with advice.
pub fn no_ptx_but_lto_ir() -> LoadError {
    LoadError {
        code: CUDA_ERROR_NO_BINARY_FOR_GPU,
        message: "the image holds LTO-IR (link-time optimisation) and no PTX, which is what the CPU device executes;\n    \
                  build without -dlto and code=lto_…, as with -arch=compute_80; with NVRTC, load what nvrtcGetPTX gives"
            .to_owned(),
    }
}

/// A program with memory for its variables.
pub struct Code {
    /// The linked program that is executed.
    pub linked: Linked,
    globals: Vec<Arc<Global>>,
}

/// A module's variable, or a library's. Its memory is released with it.
struct Global {
    name: String,
    allocation: Arc<Allocation>,
    /// Whether addresses have been filled in where its initial value has them.
    relocated: AtomicBool,
}

impl Global {
    /// Gives a variable memory with its initial value; addresses in that are still to be filled in.
    fn new(layout: &GlobalLayout, context: u64) -> Result<Arc<Global>> {
        // A variable that another module defines: there is no linker that could bring them
        // together.
        ensure(!layout.external, CUDA_ERROR_INVALID_PTX)?;
        let kind = if layout.managed { memory::Kind::Managed } else { memory::Kind::Global };
        let request = Request { bytes: layout.size.max(1), kind, flags: 0, context };
        let writable = layout.space == GlobalSpace::Global;
        let allocation = device::get()?.memory.allocate_variable(request, writable)?;
        allocation.set_name(&layout.name);
        let initial = layout.initial.len().min(layout.size as usize);
        // SAFETY: the variable was just given `size` bytes, and nobody else knows of it yet.
        unsafe {
            std::ptr::copy_nonoverlapping(layout.initial.as_ptr(), allocation.start as *mut u8, initial);
        }
        let (name, relocated) = (layout.name.clone(), AtomicBool::new(false));
        Ok(Arc::new(Global { name, allocation, relocated }))
    }
}

impl Drop for Global {
    fn drop(&mut self) {
        if let Ok(device) = device::get() {
            device.memory.release(self.allocation.start, |_| true);
        }
    }
}

impl Code {
    /// Gives a program's variables memory, save those that have some already: `shared`, by index.
    fn link(program: Arc<Program>, context: &Context, shared: &HashMap<usize, Arc<Global>>) -> Result<Code> {
        let globals: Vec<Arc<Global>> = program
            .globals()
            .iter()
            .enumerate()
            .map(|(index, layout)| match shared.get(&index) {
                Some(global) => Ok(global.clone()),
                None => Global::new(layout, context.handle),
            })
            .collect::<Result<_>>()?;
        let addresses: Vec<u64> = globals.iter().map(|global| global.allocation.start).collect();
        for (layout, global) in program.globals().iter().zip(&globals) {
            if global.relocated.swap(true, Ordering::Relaxed) {
                continue;
            }
            // SAFETY: the variable has `size` bytes there; before it is relocated, no code that
            // uses it has been loaded.
            let contents = unsafe {
                std::slice::from_raw_parts_mut(global.allocation.start as *mut u8, layout.size as usize)
            };
            for relocation in &layout.relocations {
                let target = match relocation.target {
                    RelocationTarget::Global(index) => addresses[index],
                    RelocationTarget::Function(address) => address,
                };
                let value = target.wrapping_add_signed(relocation.addend) >> relocation.shift;
                let (offset, bytes) = (relocation.offset as usize, usize::from(relocation.bytes));
                let place = contents.get_mut(offset..offset + bytes).ok_or(Error(CUDA_ERROR_INVALID_PTX))?;
                place.copy_from_slice(&value.to_le_bytes()[..bytes]);
            }
        }
        Ok(Code { linked: Linked::new(program, addresses), globals })
    }

    fn global(&self, name: &str) -> Option<&Arc<Global>> {
        self.globals.iter().find(|global| global.name == name)
    }
}

/// Settings of a function, and of the kernel that it comes from.
pub struct FunctionSettings {
    max_dynamic_shared: AtomicI32,
    carveout: AtomicI32,
    /// `CUfunc_cache`: kept, and without effect.
    pub cache: AtomicI32,
}

impl FunctionSettings {
    fn new(attributes: &KernelAttributes) -> Arc<FunctionSettings> {
        let dynamic = fixed_attributes()
            .max_shared_bytes_per_block
            .saturating_sub(attributes.function.static_shared_bytes) as i32;
        Arc::new(FunctionSettings {
            max_dynamic_shared: AtomicI32::new(dynamic),
            carveout: AtomicI32::new(-1),
            cache: AtomicI32::new(CU_FUNC_CACHE_PREFER_NONE as i32),
        })
    }

    /// Dynamic shared memory that a launch may ask for, in bytes.
    pub fn max_dynamic_shared(&self) -> u32 {
        self.max_dynamic_shared.load(Ordering::Relaxed).cast_unsigned()
    }

    /// The preferred share of shared memory in percent; -1 for no preference.
    pub fn carveout(&self) -> i32 {
        self.carveout.load(Ordering::Relaxed)
    }
}

/// A kernel in one context.
pub struct Function {
    /// As the program knows it.
    pub handle: u64,
    /// The handle of its module.
    pub module: u64,
    /// Its name.
    pub name: CString,
    /// The code that it is part of.
    pub code: Arc<Code>,
    /// The kernel in the code.
    pub kernel: KernelId,
    /// The attributes that the compiler determined.
    pub attributes: KernelAttributes,
    /// The settings that the program has changed.
    pub settings: Arc<FunctionSettings>,
    /// The launch that is prepared for `cuLaunch` and its variants.
    pub legacy: Mutex<LegacyLaunch>,
}

impl Function {
    /// The function that a handle names in the current context: a `CUfunction`, or a `CUkernel` in
    /// its place.
    pub fn resolve(handle: CUfunction) -> Result<Arc<Function>> {
        device::get()?;
        match FUNCTIONS.get(handle as u64) {
            Some(function) => Ok(function),
            None => Kernel::resolve(handle.cast())?.function(&context::current()?),
        }
    }

    /// The same for a launch in a stream: a library's kernel becomes a function of the stream's
    /// context, and none has to be current.
    pub fn resolve_in(handle: CUfunction, stream: &Stream) -> Result<Arc<Function>> {
        device::get()?;
        match FUNCTIONS.get(handle as u64) {
            Some(function) => Ok(function),
            None => Kernel::resolve(handle.cast())?.function(&stream.context()?),
        }
    }

    /// The value of an attribute.
    pub fn attribute(&self, attribute: CUfunction_attribute) -> Result<i32> {
        attribute_of(&self.attributes, &self.settings, attribute)
    }

    /// Sets an attribute.
    pub fn set_attribute(&self, attribute: CUfunction_attribute, value: i32) -> Result {
        set_attribute_of(&self.attributes, &self.settings, attribute, value)
    }
}

fn attribute_of(
    attributes: &KernelAttributes,
    settings: &FunctionSettings,
    attribute: CUfunction_attribute,
) -> Result<i32> {
    let function = &attributes.function;
    Ok(match attribute {
        CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK => function.max_threads_per_block as i32,
        CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES => function.static_shared_bytes as i32,
        CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES => function.constant_bytes as i32,
        CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES => function.local_bytes as i32,
        CU_FUNC_ATTRIBUTE_NUM_REGS => function.registers as i32,
        CU_FUNC_ATTRIBUTE_PTX_VERSION => function.ptx_version as i32,
        CU_FUNC_ATTRIBUTE_BINARY_VERSION => architecture() as i32,
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => settings.max_dynamic_shared() as i32,
        CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT => settings.carveout(),
        // Clusters, and what else came after compute capability 8.0.
        _ if attribute < CU_FUNC_ATTRIBUTE_MAX => 0,
        _ => return fail(CUDA_ERROR_INVALID_VALUE),
    })
}

fn set_attribute_of(
    attributes: &KernelAttributes,
    settings: &FunctionSettings,
    attribute: CUfunction_attribute,
    value: i32,
) -> Result {
    let place = match attribute {
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => {
            let most = fixed_attributes()
                .max_shared_bytes_per_block_optin
                .saturating_sub(attributes.function.static_shared_bytes);
            ensure((0..=most as i32).contains(&value), CUDA_ERROR_INVALID_VALUE)?;
            &settings.max_dynamic_shared
        }
        CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT => {
            ensure((-1..=100).contains(&value), CUDA_ERROR_INVALID_VALUE)?;
            &settings.carveout
        }
        _ => return fail(CUDA_ERROR_INVALID_VALUE),
    };
    place.store(value, Ordering::Relaxed);
    Ok(())
}

/// Device code in one context.
pub struct Module {
    /// As the program knows it.
    pub handle: u64,
    /// The context that it was loaded in.
    pub context: Weak<Context>,
    /// Its functions, in source order.
    pub functions: Vec<Arc<Function>>,
    code: Arc<Code>,
}

impl Module {
    /// Gives a program memory in `context`, and names to its kernels.
    pub fn load(program: Arc<Program>, context: &Arc<Context>) -> Result<Arc<Module>> {
        Module::link(program, context, &HashMap::new(), &HashMap::new())
    }

    fn link(
        program: Arc<Program>,
        context: &Arc<Context>,
        settings: &HashMap<KernelId, Arc<FunctionSettings>>,
        shared: &HashMap<usize, Arc<Global>>,
    ) -> Result<Arc<Module>> {
        let code = Arc::new(Code::link(program.clone(), context, shared)?);
        let handle = MODULES.reserve();
        let function = |(kernel, name): (KernelId, &str)| {
            let attributes = program.attributes(kernel).clone();
            let function = Arc::new(Function {
                handle: FUNCTIONS.reserve(),
                module: handle,
                name: CString::new(name).unwrap_or_default(),
                code: code.clone(),
                kernel,
                settings: settings
                    .get(&kernel)
                    .cloned()
                    .unwrap_or_else(|| FunctionSettings::new(&attributes)),
                attributes,
                legacy: Mutex::default(),
            });
            FUNCTIONS.insert(function.handle, function.clone());
            function
        };
        let functions = program.kernels().map(function).collect();
        let module = Arc::new(Module { handle, context: Arc::downgrade(context), functions, code });
        MODULES.insert(handle, module.clone());
        Ok(module)
    }

    /// The module that a handle names.
    pub fn resolve(handle: CUmodule) -> Result<Arc<Module>> {
        device::get()?;
        MODULES.get(handle as u64).ok_or(Error(CUDA_ERROR_INVALID_HANDLE))
    }

    /// Ends a module, after all work of its context: functions that are executing need its code.
    pub fn unload(&self) {
        MODULES.remove(self.handle);
        if let Some(context) = self.context.upgrade() {
            context.order.wait();
        }
        self.functions.iter().for_each(|function| drop(FUNCTIONS.remove(function.handle)));
    }

    /// The function called `name`.
    pub fn function(&self, name: &str) -> Result<Arc<Function>> {
        let found = self.functions.iter().find(|function| function.name.as_bytes() == name.as_bytes());
        found.cloned().ok_or(Error(CUDA_ERROR_NOT_FOUND))
    }

    /// The address and size of the variable called `name`.
    pub fn global(&self, name: &str) -> Result<(u64, u64)> {
        let global = self.code.global(name).ok_or(Error(CUDA_ERROR_NOT_FOUND))?;
        Ok((global.allocation.start, global.allocation.bytes))
    }
}

/// Device code that is at home in every context.
pub struct Library {
    /// As the program knows it.
    pub handle: u64,
    /// Its kernels, in source order.
    pub kernels: Vec<Arc<Kernel>>,
    program: Arc<Program>,
    /// Its managed variables, by index: the same memory in every context, and there before the
    /// first one is.
    managed: HashMap<usize, Arc<Global>>,
    /// By context.
    modules: Mutex<HashMap<u64, Arc<Module>>>,
}

/// A kernel of a library.
pub struct Kernel {
    /// As the program knows it.
    pub handle: u64,
    /// Its name.
    pub name: CString,
    /// The attributes that the compiler determined.
    pub attributes: KernelAttributes,
    /// The settings that the program has changed.
    pub settings: Arc<FunctionSettings>,
    library: Weak<Library>,
    id: KernelId,
}

impl Library {
    /// Names a program and its kernels.
    pub fn load(program: Arc<Program>) -> Result<Arc<Library>> {
        let managed = program.globals().iter().enumerate().filter(|(_, layout)| layout.managed);
        let managed = managed
            .map(|(index, layout)| Ok((index, Global::new(layout, 0)?)))
            .collect::<Result<HashMap<_, _>>>()?;
        let handle = LIBRARIES.reserve();
        let library = Arc::new_cyclic(|library| {
            let kernel = |(id, name): (KernelId, &str)| {
                let attributes = program.attributes(id).clone();
                let settings = FunctionSettings::new(&attributes);
                let name = CString::new(name).unwrap_or_default();
                let handle = KERNELS.reserve();
                Arc::new(Kernel { handle, name, attributes, settings, library: library.clone(), id })
            };
            let kernels = program.kernels().map(kernel).collect();
            Library { handle, kernels, program: program.clone(), managed, modules: Mutex::default() }
        });
        library.kernels.iter().for_each(|kernel| KERNELS.insert(kernel.handle, kernel.clone()));
        LIBRARIES.insert(handle, library.clone());
        Ok(library)
    }

    /// The library that a handle names.
    pub fn resolve(handle: CUlibrary) -> Result<Arc<Library>> {
        device::get()?;
        LIBRARIES.get(handle as u64).ok_or(Error(CUDA_ERROR_INVALID_HANDLE))
    }

    /// Ends a library, and the modules that it became.
    pub fn unload(handle: CUlibrary) -> Result {
        let library = Library::resolve(handle)?;
        LIBRARIES.remove(library.handle);
        library.kernels.iter().for_each(|kernel| drop(KERNELS.remove(kernel.handle)));
        let modules = std::mem::take(&mut *library.modules());
        modules.into_values().for_each(|module| module.unload());
        Ok(())
    }

    /// The library as a module of `context`.
    pub fn module(&self, context: &Arc<Context>) -> Result<Arc<Module>> {
        let mut modules = self.modules();
        modules.retain(|_, module| module.context.strong_count() > 0);
        if let Some(module) = modules.get(&context.handle) {
            return Ok(module.clone());
        }
        let settings = self.kernels.iter().map(|kernel| (kernel.id, kernel.settings.clone())).collect();
        let module = Module::link(self.program.clone(), context, &settings, &self.managed)?;
        modules.insert(context.handle, module.clone());
        Ok(module)
    }

    /// The address and size of the managed variable called `name`.
    pub fn managed(&self, name: &str) -> Result<(u64, u64)> {
        let global = self.managed.values().find(|global| global.name == name);
        let global = global.ok_or(Error(CUDA_ERROR_NOT_FOUND))?;
        Ok((global.allocation.start, global.allocation.bytes))
    }

    /// The kernel called `name`.
    pub fn kernel(&self, name: &str) -> Result<Arc<Kernel>> {
        let found = self.kernels.iter().find(|kernel| kernel.name.as_bytes() == name.as_bytes());
        found.cloned().ok_or(Error(CUDA_ERROR_NOT_FOUND))
    }

    fn modules(&self) -> MutexGuard<'_, HashMap<u64, Arc<Module>>> {
        self.modules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kernel {
    /// The kernel that a handle names.
    pub fn resolve(handle: CUkernel) -> Result<Arc<Kernel>> {
        device::get()?;
        KERNELS.get(handle as u64).ok_or(Error(CUDA_ERROR_INVALID_HANDLE))
    }

    /// The library that it is part of.
    pub fn library(&self) -> Result<Arc<Library>> {
        self.library.upgrade().ok_or(Error(CUDA_ERROR_INVALID_HANDLE))
    }

    /// The function that it is in `context`.
    pub fn function(&self, context: &Arc<Context>) -> Result<Arc<Function>> {
        let module = self.library()?.module(context)?;
        let found = module.functions.iter().find(|function| function.kernel == self.id);
        found.cloned().ok_or(Error(CUDA_ERROR_INVALID_HANDLE))
    }

    /// The value of an attribute.
    pub fn attribute(&self, attribute: CUfunction_attribute) -> Result<i32> {
        attribute_of(&self.attributes, &self.settings, attribute)
    }

    /// Sets an attribute, in every context.
    pub fn set_attribute(&self, attribute: CUfunction_attribute, value: i32) -> Result {
        set_attribute_of(&self.attributes, &self.settings, attribute, value)
    }
}
