//! Modules: compiled code on a device, and the kernels in it.
//!
//! Kernels and variables keep their module loaded.

use std::any::type_name;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_uint, c_void};
use std::fmt;
use std::ptr::null_mut;
use std::sync::{Arc, OnceLock};

use bytemuck::Pod;
use cudarc::driver::{CudaModule, DevicePtr, DriverError, sys};
use cudarc::nvrtc::Ptx;

use crate::cache::{self, Cached, Compiled};
use crate::compiler::{self, Output};
use crate::device::Device;
use crate::driver::Kind;
use crate::error::{self, Error, Result};
use crate::global::Global;
use crate::launch::Kernel;
use crate::signature::{Class, Signatures};
use crate::source::Source;

/// Compiled code on a device. Cheap to clone. Kernels keep it loaded.
///
/// ```
/// # if apex_gpu::Module::can_compile().is_err() { return Ok(()) } // no NVRTC here
/// let device = apex_gpu::Device::open(0)?;
/// let module = device.compile(&apex_gpu::Source::new(r#"
///     template <typename T> __global__ void fill(T* to, T value, unsigned n) {
///         unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
///         if (i < n) to[i] = value;
///     }
/// "#).instance("fill<float>"))?;
/// let fill = module.kernel("fill<float>")?;
/// let mut sevens = device.zeros::<f32>(1000)?;
/// // SAFETY: the kernel writes the 1000 elements that it is told of.
/// unsafe { fill.over(1000).arg(&mut sevens).arg(7.0f32).arg(1000u32).launch()? };
/// assert_eq!(sevens.to_vec()?, [7.0; 1000]);
/// # apex_gpu::Result::Ok(())
/// ```
#[derive(Clone)]
pub struct Module(Arc<Inner>);

struct Inner {
    cuda: Arc<CudaModule>,
    device: Device,
    /// Terminated if it is PTX.
    image: Vec<u8>,
    /// The PTX that the image was made of, if that is known and the image is not PTX itself.
    ptx: Vec<u8>,
    symbols: BTreeMap<String, String>,
    /// The declarations of the PTX, read when they are first needed.
    signatures: OnceLock<Signatures>,
    cached: Cached,
}

impl fmt::Debug for Module {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { device, image, cached, .. } = &*self.0;
        write!(out, "Module({} bytes on {device:?}, {cached:?})", image.len())
    }
}

impl Device {
    /// Compiles CUDA C++ for this device and loads it. What was compiled once is taken from the
    /// cache.
    ///
    /// ```
    /// # if apex_gpu::Module::can_compile().is_err() { return Ok(()) } // no NVRTC here
    /// # let device = apex_gpu::Device::open(0)?;
    /// let source = apex_gpu::Source::new("extern \"C\" __global__ void k(float* x, int n) {}");
    /// let module = device.compile(&source)?;
    /// assert_eq!(module.kernel("k")?.parameters(), [8, 4]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoCompiler`], [`Error::Compile`], [`Error::Load`]. A cache that cannot be used is
    /// no error: see [`Module::cached`].
    pub fn compile(&self, source: &Source) -> Result<Module> {
        let (major, minor) = self.limits().compute_capability;
        let own = format!("{major}{minor}");
        let asked = source.architecture.as_deref();
        let architecture =
            asked.map_or(&*own, |name| name.trim_start_matches("sm_").trim_start_matches("compute_"));
        let output = if *self.kind() == Kind::Gpu { Output::Cubin } else { Output::Ptx };
        let compiler = compiler::compiler()?;
        let fingerprint = source.fingerprint(&format!("{output:?} {architecture}"), compiler.version);
        let folder = cache::folder(&source.cache);
        if let Some(found) = folder.as_ref().and_then(|folder| cache::load(folder, &fingerprint)) {
            return self.load(found, Cached::Hit);
        }
        let compiled = compiler.compile(source, architecture, output)?;
        let cached = match folder {
            None => Cached::Off,
            Some(folder) => match cache::store(&folder, &fingerprint, &compiled) {
                Ok(()) => Cached::Stored,
                Err(why) => Cached::NotStored(format!("{}: {why}", folder.display())),
            },
        };
        self.load(compiled, cached)
    }

    /// Loads PTX.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let ptx = ".version 7.0\n .target sm_75\n .address_size 64\n .visible .entry nothing() { ret; }";
    /// let nothing = device.load_ptx(ptx)?.kernel("nothing")?;
    /// // SAFETY: it touches no memory.
    /// unsafe { nothing.launch([2, 1, 1], [32, 1, 1]).launch()? };
    /// device.synchronize()?;
    /// let error = device.load_ptx(&ptx.replace("ret;", "ret")).unwrap_err();
    /// assert!(matches!(error, apex_gpu::Error::Load { .. }));
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Load`] with what the driver's compiler says.
    pub fn load_ptx(&self, ptx: &str) -> Result<Module> {
        self.load(Compiled { image: ptx.as_bytes().to_vec(), ..Compiled::default() }, Cached::Off)
    }

    /// Loads a CUBIN or a fat binary, as nvcc makes them.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let error = device.load_binary(b"no code").unwrap_err();
    /// assert!(matches!(error, apex_gpu::Error::Load { .. }));
    /// # if apex_gpu::Module::can_compile().is_err() { return Ok(()) } // no NVRTC here
    /// // What one process compiled, another can load.
    /// let compiled = device.compile(&apex_gpu::Source::new("extern \"C\" __global__ void k() {}"))?;
    /// let loaded = device.load_binary(compiled.image())?;
    /// assert_eq!(loaded.kernel("k")?.name(), "k");
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Load`]: of code for another architecture, with `CUDA_ERROR_NO_BINARY_FOR_GPU`. The CPU device executes
    /// PTX only.
    pub fn load_binary(&self, image: &[u8]) -> Result<Module> {
        self.load(Compiled { image: image.to_vec(), ..Compiled::default() }, Cached::Off)
    }

    fn load(&self, compiled: Compiled, cached: Cached) -> Result<Module> {
        let Compiled { mut image, ptx, symbols } = compiled;
        // PTX ends with a zero byte; behind anything else one does no harm.
        image.push(0);
        let cuda = self.cuda().load_module(Ptx::from_binary(image.clone()));
        let cuda = cuda.map_err(|error| self.load_error(&image, error))?;
        let (device, signatures) = (self.clone(), OnceLock::new());
        Ok(Module(Arc::new(Inner { cuda, device, image, ptx, symbols, signatures, cached })))
    }

    /// Loads once more, to hear why it fails.
    fn load_error(&self, image: &[u8], error: DriverError) -> Error {
        let mut log = vec![0u8; 16 << 10];
        let mut options = [
            sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
            sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        ];
        let mut values = [log.as_mut_ptr().cast::<c_void>(), log.len() as *mut c_void];
        let mut module = null_mut();
        // SAFETY: the image is one, or text that ends with a zero byte; two options with their
        // values; the buffer has the size that is said.
        let again = unsafe {
            sys::cuModuleLoadDataEx(
                &mut module,
                image.as_ptr().cast(),
                2,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        if again.result().is_ok() {
            // SAFETY: it was just loaded, and nobody knows of it.
            let _ = unsafe { sys::cuModuleUnload(module) };
        }
        let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
        let log = String::from_utf8_lossy(&log[..end]).trim().to_owned();
        Error::Load { device: self.name().to_owned(), code: error::name_of(error), log }
    }
}

impl Module {
    /// Checks that CUDA C++ can be compiled here.
    ///
    /// ```
    /// match apex_gpu::Module::can_compile() {
    ///     Ok(()) => println!("NVRTC is here"),
    ///     Err(error) => println!("only PTX and binaries: {error}"),
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::NoCompiler`] says where NVRTC was looked for.
    pub fn can_compile() -> Result<()> {
        compiler::compiler().map(|_| ())
    }

    /// The kernel of this name, or of an instance that [`Source::instance`] named.
    ///
    /// ```
    /// # const PTX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels.ptx"));
    /// # let device = apex_gpu::Device::open(0)?;
    /// let module = device.load_ptx(PTX)?;
    /// let saxpy = module.kernel("saxpy")?;
    /// drop(module); // the kernel keeps the code
    /// assert_eq!(saxpy.parameters().len(), 4);
    /// let error = saxpy.device().load_ptx(PTX)?.kernel("saxpi").unwrap_err();
    /// assert!(error.to_string().contains("no kernel `saxpi`; it has `affine`"));
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchKernel`] lists those that there are.
    pub fn kernel(&self, name: &str) -> Result<Kernel> {
        let symbol = self.0.symbols.get(name).map_or(name, String::as_str);
        let unknown = || Error::NoSuchKernel { name: name.to_owned(), known: self.kernels_as_text() };
        if symbol.contains('\0') {
            return Err(unknown());
        }
        let function = self.0.cuda.load_function(symbol).map_err(|error| match error.0 {
            sys::CUresult::CUDA_ERROR_NOT_FOUND => unknown(),
            _ => self.0.device.core().failed_at("cuModuleGetFunction", || name.to_owned())(error),
        })?;
        Kernel::new(&self.0.device, function, name, self.signatures().parameters(symbol))
    }

    /// The `__device__` or `__constant__` variable of this name, as elements of type `T`. One in a
    /// namespace has to be named for [`Source::instance`] first, as `&name`.
    ///
    /// ```
    /// # const PTX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels.ptx"));
    /// # let device = apex_gpu::Device::open(0)?;
    /// let module = device.load_ptx(PTX)?;
    /// module.global::<f32>("table")?.write(&[1.0, 2.0, 3.0, 4.0])?;
    /// let pairs = module.global::<[f32; 2]>("table")?; // or as any plain data of that size
    /// assert_eq!(pairs.to_vec()?, [[1.0, 2.0], [3.0, 4.0]]);
    ///
    /// let error = module.global::<i32>("table").unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "the variable `table` of the module is 16 bytes of a floating-point number (`.f32` in PTX), \
    ///      and i32 is no type for it; ask for a type of the same kind whose size divides its own"
    /// );
    /// let error = module.global::<f32>("tabel").unwrap_err();
    /// assert_eq!(error.to_string(), "the module has no variable `tabel`; it has `counter`, `table`");
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchGlobal`] lists those that there are; [`Error::GlobalType`] if the variable's
    /// size is no multiple of `T`'s, or the PTX says that its elements are of another kind.
    pub fn global<T: Pod>(&self, name: &str) -> Result<Global<T>> {
        let symbol = self.0.symbols.get(name).map_or(name, String::as_str);
        let unknown = || Error::NoSuchGlobal { name: name.to_owned(), known: self.globals_as_text() };
        if symbol.contains('\0') {
            return Err(unknown());
        }
        self.0.device.core().bind()?;
        let stream = self.0.device.stream().cuda();
        let found = self.0.cuda.get_global(symbol, stream).map_err(|error| match error.0 {
            sys::CUresult::CUDA_ERROR_NOT_FOUND => unknown(),
            _ => self.0.device.core().failed_at("cuModuleGetGlobal", || name.to_owned())(error),
        })?;
        let ((address, _), bytes) = (found.device_ptr(stream), found.len());
        let declared = self.signatures().variable(symbol);
        let fits = size_of::<T>() > 0 && bytes.is_multiple_of(size_of::<T>());
        if !fits || declared.is_some_and(|declared| !declared.holds(Class::of::<T>())) {
            let of = declared.map_or_else(String::new, |declared| format!(" of {declared}"));
            let expected = format!("{bytes} bytes{of}");
            return Err(Error::GlobalType { name: name.to_owned(), expected, given: type_name::<T>() });
        }
        Ok(Global::new(self, name, address, bytes))
    }

    fn signatures(&self) -> &Signatures {
        let Inner { image, ptx, signatures, .. } = &*self.0;
        // PTX as an image ends with a zero byte.
        let text = if ptx.is_empty() { image.strip_suffix(&[0]).unwrap_or(image) } else { ptx };
        signatures.get_or_init(|| Signatures::of(text))
    }

    fn globals_as_text(&self) -> String {
        let names: Vec<String> = self.signatures().variables().map(|symbol| self.readable(symbol)).collect();
        if names.is_empty() { "none that could be listed".to_owned() } else { names.join(", ") }
    }

    /// A symbol as the program knows it.
    fn readable(&self, symbol: &str) -> String {
        let instance = self.0.symbols.iter().find(|(_, known)| *known == symbol);
        format!("`{}`", instance.map_or(symbol, |(expression, _)| expression))
    }

    /// Returns the use of the cache, for modules of [`Device::compile`]; [`Cached::Off`] for
    /// others.
    ///
    /// ```
    /// # const PTX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels.ptx"));
    /// # let device = apex_gpu::Device::open(0)?;
    /// assert_eq!(*device.load_ptx(PTX)?.cached(), apex_gpu::Cached::Off);
    /// # apex_gpu::Result::Ok(())
    /// ```
    pub fn cached(&self) -> &Cached {
        &self.0.cached
    }

    /// The code as it was loaded: a CUBIN of what was compiled for a GPU, PTX of what was for the
    /// CPU device. For [`Device::load_binary`] in another process.
    ///
    /// ```
    /// # const PTX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels.ptx"));
    /// # let device = apex_gpu::Device::open(0)?;
    /// assert!(device.load_ptx(PTX)?.image().starts_with(PTX.as_bytes()));
    /// # apex_gpu::Result::Ok(())
    /// ```
    pub fn image(&self) -> &[u8] {
        &self.0.image
    }

    /// The device that the code is on.
    ///
    /// ```
    /// # const PTX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels.ptx"));
    /// # let device = apex_gpu::Device::open(0)?;
    /// let module = device.load_ptx(PTX)?;
    /// assert_eq!(module.device().ordinal(), device.ordinal());
    /// # apex_gpu::Result::Ok(())
    /// ```
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// cudarc's module, for what this crate does not offer.
    ///
    /// ```
    /// # const PTX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels.ptx"));
    /// # let device = apex_gpu::Device::open(0)?;
    /// let module = device.load_ptx(PTX)?;
    /// let function = module.cuda().load_function("saxpy").expect("it has this kernel"); // cudarc's own
    /// assert!(!function.cu_function().is_null());
    /// # apex_gpu::Result::Ok(())
    /// ```
    pub fn cuda(&self) -> &Arc<CudaModule> {
        &self.0.cuda
    }

    /// Names of all kernels, to be read. cudarc keeps the handle of its module to itself, so the
    /// code is loaded once more.
    fn kernels_as_text(&self) -> String {
        let names = self.enumerate().unwrap_or_default();
        match names.is_empty() {
            true => "none that could be listed".to_owned(),
            false => names.iter().map(|symbol| self.readable(symbol)).collect::<Vec<_>>().join(", "),
        }
    }

    fn enumerate(&self) -> std::result::Result<Vec<String>, DriverError> {
        let (mut module, mut count) = (null_mut(), 0);
        // SAFETY: the image has been loaded before. All pointers are valid for writing; there is
        // room for `count` handles; names live as long as the module.
        unsafe {
            sys::cuModuleLoadData(&mut module, self.0.image.as_ptr().cast()).result()?;
            sys::cuModuleGetFunctionCount(&mut count, module).result()?;
            let mut functions = vec![null_mut(); count as usize];
            sys::cuModuleEnumerateFunctions(functions.as_mut_ptr(), count as c_uint, module).result()?;
            let name = |function| {
                let mut name = std::ptr::null();
                sys::cuFuncGetName(&mut name, function).result().ok()?;
                Some(CStr::from_ptr(name).to_string_lossy().into_owned())
            };
            let mut names: Vec<String> = functions.into_iter().filter_map(name).collect();
            names.sort();
            sys::cuModuleUnload(module).result()?;
            Ok(names)
        }
    }
}
