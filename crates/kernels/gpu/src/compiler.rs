//! NVRTC, NVIDIA's compiler for CUDA C++ as a library, with the toolkit's headers.
//!
//! The library is searched once per process.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use cudarc::nvrtc::{result, sys};

use crate::cache::Compiled;
use crate::error::{Error, Result};
use crate::libraries;
use crate::source::Source;

/// The compiler of this process.
pub(crate) struct Compiler {
    /// Major and minor version of CUDA.
    pub(crate) version: (u32, u32),
    /// Folders with the toolkit's headers.
    headers: Vec<PathBuf>,
}

/// The kind of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// Code of one architecture.
    Cubin,
    /// PTX, for devices that translate it.
    Ptx,
}

/// The compiler, found once.
///
/// # Errors
/// [`Error::NoCompiler`] says where it was looked for.
pub(crate) fn compiler() -> Result<&'static Compiler> {
    static COMPILER: OnceLock<std::result::Result<Compiler, String>> = OnceLock::new();
    COMPILER.get_or_init(find).as_ref().map_err(|why| Error::NoCompiler { why: why.clone() })
}

fn find() -> std::result::Result<Compiler, String> {
    let search = libraries::open_newest("libnvrtc.so.", &["libnvrtc-builtins.so."], "cuda_nvrtc");
    // SAFETY: opens libraries of known names.
    if search.opened.is_none() && !unsafe { sys::is_culib_present() } {
        let folders = search.folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>();
        return Err(format!(
            "looked where the loader does and in {}; install it (`pip install nvidia-cuda-nvrtc`), or set CUDA_HOME to a \
             toolkit",
            folders.join(", ")
        ));
    }
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both are valid for writing.
    let asked = unsafe { sys::nvrtcVersion(&mut major, &mut minor) };
    asked.result().map_err(|error| format!("it does not tell its version: {error}"))?;
    let headers = search.opened.map(|path| header_folders(&path)).unwrap_or_default();
    Ok(Compiler { version: (major as u32, minor as u32), headers })
}

/// The toolkit's headers beside a library: in a toolkit, or in the wheel `nvidia-cuda-runtime`.
fn header_folders(library: &Path) -> Vec<PathBuf> {
    let folder = library.parent().unwrap_or(Path::new("/"));
    let places = ["../include", "../../cuda_runtime/include", "../../cuda_cccl/include", "../include/cccl"];
    let folders = places.iter().map(|place| folder.join(place));
    folders.filter(|place| place.join("cuda_fp16.h").is_file() || place.join("cuda/std").is_dir()).collect()
}

impl Compiler {
    /// Compiles for `architecture`, such as `90` or `90a`.
    ///
    /// # Errors
    /// [`Error::Compile`] with what the compiler says.
    pub(crate) fn compile(&self, source: &Source, architecture: &str, output: Output) -> Result<Compiled> {
        let target = match output {
            Output::Cubin => format!("sm_{architecture}"),
            Output::Ptx => format!("compute_{architecture}"),
        };
        let refused =
            |log: String| Error::Compile { name: source.name.clone(), architecture: target.clone(), log };
        let text = |text: &str| {
            CString::new(text)
                .map_err(|_| refused(format!("the text `{}` contains a zero byte", text.escape_debug())))
        };
        let program = Program::new(&text(&source.code)?, &text(&source.name)?)
            .map_err(|error| refused(format!("nvrtcCreateProgram failed: {error}")))?;
        let instances = source.instances.iter().map(|instance| text(instance)).collect::<Result<Vec<_>>>()?;
        for instance in &instances {
            // SAFETY: the program lives, and the text is terminated.
            let added = unsafe { sys::nvrtcAddNameExpression(program.0, instance.as_ptr()) };
            added.result().map_err(|error| {
                refused(format!("{} cannot be instantiated: {error}", instance.to_string_lossy()))
            })?;
        }
        let options = self.options(source, &target);
        let options = options.iter().map(|option| text(option)).collect::<Result<Vec<_>>>()?;
        let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        // SAFETY: the program lives; the options are terminated and as many as said.
        let compiled =
            unsafe { sys::nvrtcCompileProgram(program.0, pointers.len() as c_int, pointers.as_ptr()) };
        compiled.result().map_err(|error| refused(program.log().unwrap_or_else(|| error.to_string())))?;
        let image =
            program.output(output).map_err(|error| refused(format!("there is no output: {error}")))?;
        let mut symbols = BTreeMap::new();
        for (instance, name) in instances.iter().zip(&source.instances) {
            let symbol = program.lowered(instance);
            let symbol = symbol.map_err(|error| refused(format!("`{name}` has no symbol: {error}")))?;
            symbols.insert(name.clone(), symbol);
        }
        // A CUBIN does not tell the types of parameters, the PTX on the way to it does.
        let ptx = match output {
            Output::Cubin => program.output(Output::Ptx).unwrap_or_default(),
            Output::Ptx => Vec::new(),
        };
        Ok(Compiled { image, ptx, symbols })
    }

    fn options(&self, source: &Source, target: &str) -> Vec<String> {
        let includes = source.includes.iter().chain(&self.headers);
        let includes = includes.map(|folder| format!("--include-path={}", folder.display()));
        let target = format!("--gpu-architecture={target}");
        std::iter::once(target).chain(includes).chain(source.options.iter().cloned()).collect()
    }
}

/// A program that NVRTC knows.
struct Program(sys::nvrtcProgram);

impl Program {
    fn new(code: &CStr, name: &CStr) -> std::result::Result<Program, result::NvrtcError> {
        result::create_program(code, Some(name)).map(Program)
    }

    /// Returns the compiler's messages, if there are any.
    fn log(&self) -> Option<String> {
        // SAFETY: the program lives.
        let log = unsafe { result::get_program_log(self.0) }.ok()?;
        let log: Vec<u8> = log.into_iter().map(|byte| byte as u8).take_while(|&byte| byte != 0).collect();
        let log = String::from_utf8_lossy(&log).trim().to_owned();
        (!log.is_empty()).then_some(log)
    }

    /// The code; of PTX, without the zero byte at its end.
    fn output(&self, output: Output) -> std::result::Result<Vec<u8>, result::NvrtcError> {
        if output == Output::Ptx {
            // SAFETY: the program lives and has been compiled.
            let text = unsafe { result::get_ptx(self.0) }?;
            return Ok(text.into_iter().map(|byte| byte as u8).take_while(|&byte| byte != 0).collect());
        }
        let mut bytes = 0;
        // SAFETY: the program lives, `bytes` is valid for writing.
        unsafe { sys::nvrtcGetCUBINSize(self.0, &mut bytes) }.result()?;
        let mut code = vec![0u8; bytes];
        // SAFETY: as many bytes as the compiler asked for.
        unsafe { sys::nvrtcGetCUBIN(self.0, code.as_mut_ptr().cast()) }.result()?;
        Ok(code)
    }

    /// The symbol of an instance.
    fn lowered(&self, expression: &CStr) -> std::result::Result<String, result::NvrtcError> {
        let mut name = std::ptr::null();
        // SAFETY: the program lives, `name` is valid for writing.
        unsafe { sys::nvrtcGetLoweredName(self.0, expression.as_ptr(), &mut name) }.result()?;
        // SAFETY: it points to terminated text that lives as long as the program.
        Ok(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: the program lives, and nobody else destroys it. There is nothing to be done about
        // a failure.
        let _ = unsafe { result::destroy_program(self.0) };
    }
}
