//! Contexts, modules, functions, streams, memory.

use crate::work::{self, spoils_captures};
use crate::world::{Function, Image, Kernel, Stream, is_set, number_of, world};
use crate::{count, result};
use cuda_abi::index;
use cuda_abi::types::*;
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};

thread_local! {
    static CURRENT: Cell<u64> = const { Cell::new(0) };
}

pub fn current() -> u64 {
    CURRENT.get()
}

pub unsafe extern "C" fn create_context(context: *mut CUcontext, _: u32, _: CUdevice) -> CUresult {
    let handle = world().contexts.add(());
    CURRENT.set(handle);
    // SAFETY: the caller keeps to the driver's contract.
    unsafe { *context = handle as CUcontext };
    CUDA_SUCCESS
}

pub unsafe extern "C" fn destroy_context(context: CUcontext) -> CUresult {
    let mut world = world();
    let handle = context as u64;
    if CURRENT.get() == handle {
        CURRENT.set(0);
    }
    for stream in world.streams.handles() {
        if world.streams.get(stream).is_some_and(|stream| stream.context == handle) {
            world.streams.remove(stream);
        }
    }
    // All events, since they don't say whose they are; tests have one context at a time.
    for event in world.events.handles() {
        world.events.remove(event);
    }
    result(world.contexts.remove(handle), CUDA_ERROR_INVALID_CONTEXT)
}

pub unsafe extern "C" fn set_current(context: CUcontext) -> CUresult {
    CURRENT.set(context as u64);
    CUDA_SUCCESS
}

pub unsafe extern "C" fn get_current(context: *mut CUcontext) -> CUresult {
    count(index::cuCtxGetCurrent);
    // SAFETY: the caller keeps to the driver's contract.
    unsafe { *context = CURRENT.get() as CUcontext };
    CUDA_SUCCESS
}

pub unsafe extern "C" fn get_device(device: *mut CUdevice) -> CUresult {
    // SAFETY: the caller keeps to the driver's contract.
    unsafe { *device = 0 };
    if CURRENT.get() == 0 { CUDA_ERROR_INVALID_CONTEXT } else { CUDA_SUCCESS }
}

pub unsafe extern "C" fn retain_primary(context: *mut CUcontext, _: CUdevice) -> CUresult {
    let mut world = world();
    let handle = world.primary.unwrap_or_else(|| world.contexts.add(()));
    world.primary = Some(handle);
    // SAFETY: the caller keeps to the driver's contract.
    unsafe { *context = handle as CUcontext };
    CUDA_SUCCESS
}

pub unsafe extern "C" fn release_primary(_: CUdevice) -> CUresult {
    let mut world = world();
    let primary = world.primary.take();
    result(primary.and_then(|handle| world.contexts.remove(handle)), CUDA_ERROR_INVALID_CONTEXT)
}

pub unsafe extern "C" fn primary_state(_: CUdevice, flags: *mut u32, active: *mut i32) -> CUresult {
    // SAFETY: the caller keeps to the driver's contract.
    unsafe {
        *flags = 0;
        *active = world().primary.is_some().into();
    }
    CUDA_SUCCESS
}

/// An image is a text or machine code, and has every function whose name is in it.
pub unsafe extern "C" fn load_module(module: *mut CUmodule, image: *const c_void) -> CUresult {
    count(index::cuModuleLoadData);
    spoils_captures();
    // SAFETY: the caller keeps to this driver's contract.
    let image = unsafe { read_image(image) };
    if image.text.starts_with(".version") && is_set("FAKE_NO_PTX") {
        return CUDA_ERROR_INVALID_PTX;
    }
    // SAFETY: as above.
    unsafe { *module = world().modules.add(image) as CUmodule };
    CUDA_SUCCESS
}

pub unsafe extern "C" fn unload_module(module: CUmodule) -> CUresult {
    let mut world = world();
    for function in world.functions.handles() {
        if world.functions.get(function).is_some_and(|function| function.module == module as u64) {
            world.functions.remove(function);
            work::forget_function(world.functions.place(function));
        }
    }
    result(world.modules.remove(module as u64).map(drop), CUDA_ERROR_INVALID_HANDLE)
}

/// # Safety
/// `image` is what the driver takes.
unsafe fn read_image(image: *const c_void) -> Image {
    // SAFETY: by contract.
    let parts = unsafe { fatbin::whole(image.cast()) }.unwrap_or_default();
    let code: Vec<_> = parts.iter().filter_map(|part| fatbin::machine_code(part).ok()).flatten().collect();
    let code: Vec<Vec<u8>> = code.into_iter().map(Into::into).collect();
    let texts = code.iter().map(|code| &code[..]).chain(parts);
    Image { text: texts.map(|text| String::from_utf8_lossy(text).into_owned()).collect(), code }
}

fn add_function(image: &Image, module: u64, name: &CStr) -> Option<u64> {
    let text = name.to_str().ok()?;
    if !image.text.contains(text) {
        return None;
    }
    let table = image.code.iter().find_map(|code| fatbin::cubin::kernel(code, text).ok().flatten());
    let parameters =
        table.and_then(|table| table.parameters).unwrap_or_else(|| parameters_in(&image.text, text));
    let function =
        Function { name: name.to_owned(), parameters, module, dynamic_limit: 49152, block: [1; 3] };
    let mut world = world();
    let handle = world.functions.add(function);
    work::note_function(world.functions.place(handle), text);
    Some(handle)
}

/// The parameters of a kernel that a text defines as PTX does, as far as they are numbers of 32 and
/// 64 bits.
fn parameters_in(text: &str, name: &str) -> Vec<fatbin::cubin::Parameter> {
    let list = text.split_once(&format!(".entry {name}(")).and_then(|(_, rest)| rest.split_once(')'));
    let sizes = list.into_iter().flat_map(|(list, _)| list.split(',')).map_while(|parameter| {
        let is = |size: &str| parameter.trim().starts_with(&format!(".param .u{size} "));
        if is("64") { Some(8) } else { is("32").then_some(4) }
    });
    let mut end = 0_u32;
    let parameter = |bytes: u32| {
        let offset = end.next_multiple_of(bytes);
        end = offset + bytes;
        fatbin::cubin::Parameter { offset, bytes }
    };
    sizes.map(parameter).collect()
}

pub unsafe extern "C" fn get_function(
    function: *mut CUfunction,
    module: CUmodule,
    name: *const c_char,
) -> CUresult {
    let Some(image) = world().modules.get(module as u64).cloned() else { return CUDA_ERROR_INVALID_HANDLE };
    // SAFETY: the caller keeps to the driver's contract.
    unsafe {
        let Some(handle) = add_function(&image, module as u64, CStr::from_ptr(name)) else {
            return CUDA_ERROR_NOT_FOUND;
        };
        *function = handle as CUfunction;
    }
    CUDA_SUCCESS
}

pub unsafe extern "C" fn load_library(
    library: *mut CUlibrary,
    code: *const c_void,
    _: *mut CUjit_option,
    _: *mut *mut c_void,
    _: u32,
    _: *mut CUlibraryOption,
    _: *mut *mut c_void,
    _: u32,
) -> CUresult {
    // SAFETY: the caller keeps to this driver's contract.
    unsafe {
        let image = read_image(code);
        *library = world().libraries.add(image) as CUlibrary;
    }
    CUDA_SUCCESS
}

pub unsafe extern "C" fn unload_library(library: CUlibrary) -> CUresult {
    let mut world = world();
    for handle in world.kernels.handles() {
        let Some(kernel) = world.kernels.get(handle) else { continue };
        if kernel.library == library as u64 {
            let function = kernel.function;
            world.functions.remove(function);
            world.kernels.remove(handle);
        }
    }
    result(world.libraries.remove(library as u64).map(drop), CUDA_ERROR_INVALID_HANDLE)
}

pub unsafe extern "C" fn get_kernel(
    kernel: *mut CUkernel,
    library: CUlibrary,
    name: *const c_char,
) -> CUresult {
    let Some(image) = world().libraries.get(library as u64).cloned() else {
        return CUDA_ERROR_INVALID_HANDLE;
    };
    // SAFETY: the caller keeps to the driver's contract.
    unsafe {
        let Some(function) = add_function(&image, 0, CStr::from_ptr(name)) else {
            return CUDA_ERROR_NOT_FOUND;
        };
        *kernel = world().kernels.add(Kernel { library: library as u64, function }) as CUkernel;
    }
    CUDA_SUCCESS
}

pub unsafe extern "C" fn function_of_kernel(function: *mut CUfunction, kernel: CUkernel) -> CUresult {
    let found = world().kernels.get(kernel as u64).map(|kernel| kernel.function);
    // SAFETY: the caller keeps to the driver's contract.
    result(found.map(|found| unsafe { *function = found as CUfunction }), CUDA_ERROR_INVALID_HANDLE)
}

pub unsafe extern "C" fn function_name(name: *mut *const c_char, function: CUfunction) -> CUresult {
    count(index::cuFuncGetName);
    if is_set("FAKE_NAMELESS") {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    let found = world().functions.get(function as u64).map(|function| function.name.as_ptr());
    // SAFETY: the caller keeps to the driver's contract.
    result(found.map(|found| unsafe { *name = found }), CUDA_ERROR_INVALID_HANDLE)
}

pub unsafe extern "C" fn parameter(
    function: CUfunction,
    index: usize,
    offset: *mut usize,
    bytes: *mut usize,
) -> CUresult {
    let mut world = world();
    let Some(function) = world.functions.get(function as u64) else { return CUDA_ERROR_INVALID_HANDLE };
    let Some(parameter) = function.parameters.get(index) else { return CUDA_ERROR_INVALID_VALUE };
    // SAFETY: the caller keeps to the driver's contract.
    unsafe {
        *offset = parameter.offset as usize;
        *bytes = parameter.bytes as usize;
    }
    CUDA_SUCCESS
}

/// Attributes follow from the name's length, so that tests can tell functions apart.
pub unsafe extern "C" fn function_attribute(
    value: *mut i32,
    attribute: CUfunction_attribute,
    function: CUfunction,
) -> CUresult {
    let mut world = world();
    let Some(function) = world.functions.get(function as u64) else { return CUDA_ERROR_INVALID_HANDLE };
    let length = function.name.as_bytes().len() as i32;
    let is_clustered = function.name.as_bytes().starts_with(b"clustered");
    let found = match attribute {
        CU_FUNC_ATTRIBUTE_NUM_REGS => 16 + length,
        CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK => 1024,
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => function.dynamic_limit,
        CU_FUNC_ATTRIBUTE_BINARY_VERSION => 90,
        CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH if is_clustered => 4,
        CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT | CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH
            if is_clustered =>
        {
            1
        }
        _ => 0,
    };
    // SAFETY: the caller keeps to the driver's contract.
    unsafe { *value = found };
    CUDA_SUCCESS
}

pub unsafe extern "C" fn set_function_attribute(
    function: CUfunction,
    attribute: CUfunction_attribute,
    value: i32,
) -> CUresult {
    let mut world = world();
    let Some(function) = world.functions.get(function as u64) else { return CUDA_ERROR_INVALID_HANDLE };
    if attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES {
        function.dynamic_limit = value;
    }
    CUDA_SUCCESS
}

pub unsafe extern "C" fn set_block_shape(function: CUfunction, x: i32, y: i32, z: i32) -> CUresult {
    let mut world = world();
    let found = world
        .functions
        .get(function as u64)
        .map(|function| function.block = [x, y, z].map(|side| side as u32));
    result(found, CUDA_ERROR_INVALID_HANDLE)
}

pub unsafe extern "C" fn set_shared_size(_: CUfunction, _: u32) -> CUresult {
    CUDA_SUCCESS
}

pub unsafe extern "C" fn create_stream(stream: *mut CUstream, flags: u32) -> CUresult {
    let handle = world().streams.add(Stream { flags, context: current(), graph: None });
    // SAFETY: the caller keeps to the driver's contract.
    unsafe { *stream = handle as CUstream };
    CUDA_SUCCESS
}

/// SMs have nothing to say here: resources are left as they are.
pub unsafe extern "C" fn device_resource(_: CUdevice, _: *mut CUdevResource, _: u32) -> CUresult {
    CUDA_SUCCESS
}

pub unsafe extern "C" fn split_resource(
    _: *mut CUdevResource,
    _: *mut u32,
    _: *const CUdevResource,
    _: *mut CUdevResource,
    _: u32,
    _: u32,
) -> CUresult {
    CUDA_SUCCESS
}

pub unsafe extern "C" fn describe_resource(
    _: *mut CUdevResourceDesc,
    _: *mut CUdevResource,
    _: u32,
) -> CUresult {
    CUDA_SUCCESS
}

/// A green context is a context under the same handle.
pub unsafe extern "C" fn create_green_context(
    green: *mut CUgreenCtx,
    _: CUdevResourceDesc,
    _: CUdevice,
    _: u32,
) -> CUresult {
    // SAFETY: the caller keeps to the driver's contract.
    unsafe { *green = world().contexts.add(()) as CUgreenCtx };
    CUDA_SUCCESS
}

pub unsafe extern "C" fn context_of_green(context: *mut CUcontext, green: CUgreenCtx) -> CUresult {
    // SAFETY: the caller keeps to the driver's contract.
    unsafe { *context = green.cast() };
    CUDA_SUCCESS
}

pub unsafe extern "C" fn create_green_stream(
    stream: *mut CUstream,
    green: CUgreenCtx,
    flags: u32,
    _: i32,
) -> CUresult {
    let handle = world().streams.add(Stream { flags, context: green as u64, graph: None });
    // SAFETY: the caller keeps to the driver's contract.
    unsafe { *stream = handle as CUstream };
    CUDA_SUCCESS
}

pub unsafe extern "C" fn destroy_stream(stream: CUstream) -> CUresult {
    result(world().streams.remove(stream as u64).map(drop), CUDA_ERROR_INVALID_HANDLE)
}

/// Like the real driver, ends the capture of a stream that is asked while it captures.
/// Asked of a capturing stream this ends the capture (measured: `data/h200/driver/captures.csv`).
pub unsafe extern "C" fn stream_flags(stream: CUstream, flags: *mut u32) -> CUresult {
    let found = world().streams.get(stream as u64).map(|stream| (stream.flags, stream.graph.is_some()));
    if found.is_some_and(|(_, is_capturing)| is_capturing) {
        spoils_captures();
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    // SAFETY: the caller keeps to the driver's contract.
    result(found.map(|(found, _)| unsafe { *flags = found }), CUDA_ERROR_INVALID_HANDLE)
}

pub unsafe extern "C" fn stream_context(stream: CUstream, context: *mut CUcontext) -> CUresult {
    let found = world().streams.get(stream as u64).map(|stream| stream.context);
    // SAFETY: the caller keeps to the driver's contract.
    result(found.map(|found| unsafe { *context = found as CUcontext }), CUDA_ERROR_INVALID_HANDLE)
}

pub unsafe extern "C" fn allocate(pointer: *mut CUdeviceptr, bytes: usize) -> CUresult {
    spoils_captures();
    if bytes == 0 {
        return CUDA_ERROR_INVALID_VALUE;
    }
    count(index::cuMemAlloc_v2);
    let mut world = world();
    let held: usize = world.memory.values().sum();
    if number_of("FAKE_MEMORY").is_some_and(|most| held.saturating_add(bytes) > most) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    let address = world.next_address;
    world.memory.insert(address, bytes);
    world.next_address += bytes.next_multiple_of(256) as u64;
    // SAFETY: the caller keeps to the driver's contract.
    unsafe { *pointer = address };
    CUDA_SUCCESS
}

pub unsafe extern "C" fn free(pointer: CUdeviceptr) -> CUresult {
    count(index::cuMemFree_v2);
    if is_set("FAKE_KEEPS_MEMORY") {
        return CUDA_ERROR_LAUNCH_FAILED;
    }
    result(world().memory.remove(&pointer).map(drop), CUDA_ERROR_INVALID_VALUE)
}

pub unsafe extern "C" fn address_range(
    base: *mut CUdeviceptr,
    bytes: *mut usize,
    address: CUdeviceptr,
) -> CUresult {
    let world = world();
    let below = world.memory.range(..=address).next_back();
    let Some((&start, &size)) = below.filter(|&(&start, &size)| address - start < size as u64) else {
        return CUDA_ERROR_NOT_FOUND;
    };
    // SAFETY: the caller keeps to the driver's contract.
    unsafe {
        *base = start;
        *bytes = size;
    }
    CUDA_SUCCESS
}

pub unsafe extern "C" fn register(pointer: *mut c_void, _: usize, _: u32) -> CUresult {
    world().registered.push(pointer as u64);
    CUDA_SUCCESS
}

pub unsafe extern "C" fn unregister(pointer: *mut c_void) -> CUresult {
    world().registered.retain(|&address| address != pointer as u64);
    CUDA_SUCCESS
}
