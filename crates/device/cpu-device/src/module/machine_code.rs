//! Advises on an image that contains only machine code, in terms of the tool that compiled it.
//!
//! An image inside a library of the process was compiled with that library, and one inside the
//! program by nvcc. Any other image was compiled while the program ran; the libraries that the
//! process has loaded show by which client.

use std::ffi::{CStr, c_int, c_void};

/// Parts of the paths of loaded libraries, and the advice for each. The first match counts, so a
/// client stands before the libraries that it is built on.
const CLIENTS: &[(&[&str], &str)] = &[
    (
        &["libtriton", "/triton/"],
        "Triton compiles to machine code itself: run its kernels with TRITON_INTERPRET=1, without this device",
    ),
    (
        &["/cupy/", "/cupy_backends/"],
        "CuPy: set CUPY_COMPILE_WITH_PTX=1 before the program starts (`apex run --device cpu` does)",
    ),
    (
        &["/numba/", "/numba_cuda/"],
        "numba-cuda: run it where the package nvidia-nvjitlink is not installed: it then links with the driver, to PTX",
    ),
    (&["libjax", "xla_cuda", "/jaxlib/"], "JAX and XLA bring machine code and no PTX: set JAX_PLATFORMS=cpu"),
    (
        &["libtorch_cuda", "libc10_cuda"],
        "PyTorch's wheels hold machine code: build it with TORCH_CUDA_ARCH_LIST=8.0+PTX, or use device=\"cpu\"",
    ),
    (
        &["libnvJitLink"],
        "nvJitLink: link with -ptx and -arch=compute_80 and load what nvJitLinkGetLinkedPtx gives, or link with \
         cuLinkCreate",
    ),
    (
        &["libnvrtc"],
        "NVRTC: compile with --gpu-architecture=compute_80 instead of sm_80 and load what nvrtcGetPTX gives, or preload \
         libapex_nvrtc.so",
    ),
];

/// The advice if nothing tells who made the code.
const NVCC: &str =
    "build with PTX, as nvcc does with -arch=compute_80 or -gencode arch=compute_80,code=compute_80";

/// Returns the advice for the machine code at `address`.
pub fn for_machine_code(address: u64) -> String {
    let objects = Objects::loaded(address);
    if let Some(path) = &objects.holder {
        let name = path.rsplit('/').next().unwrap_or(path);
        return of_library(name, path);
    }
    if objects.in_program {
        return NVCC.to_owned();
    }
    of_process(&objects.paths)
}

/// Returns the advice for code in a library.
fn of_library(name: &str, path: &str) -> String {
    let client = CLIENTS.iter().find(|(marks, _)| marks.iter().any(|mark| path.contains(mark)));
    match client {
        Some((_, what)) => format!("it lies in {name}. {what}"),
        None if is_of_nvidia(name) => format!(
            "it lies in {name}, a library of NVIDIA's that comes as machine code: use a replacement that is built from \
             source, or run this part on the host"
        ),
        None => format!("it lies in {name}: {NVCC}"),
    }
}

/// Libraries of the CUDA toolkit and of cuDNN, NCCL and the like.
fn is_of_nvidia(name: &str) -> bool {
    const PREFIXES: [&str; 12] = [
        "libcublas",
        "libcudnn",
        "libcufft",
        "libcusolver",
        "libcusparse",
        "libcurand",
        "libnccl",
        "libnpp",
        "libnvjpeg",
        "libcutensor",
        "libnvinfer",
        "libcudss",
    ];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Returns the advice for code that was made while the program ran.
fn of_process(paths: &[String]) -> String {
    let loaded = |marks: &[&str]| paths.iter().any(|path| marks.iter().any(|mark| path.contains(mark)));
    let client = CLIENTS.iter().find(|(marks, _)| loaded(marks));
    client.map_or(NVCC, |(_, what)| what).to_owned()
}

/// The files that are loaded into the process.
struct Objects {
    paths: Vec<String>,
    /// The library in which the address lies.
    holder: Option<String>,
    /// Whether it lies in the program.
    in_program: bool,
    address: u64,
}

impl Objects {
    fn loaded(address: u64) -> Objects {
        unsafe extern "C" fn visit(
            object: *mut libc::dl_phdr_info,
            _size: usize,
            objects: *mut c_void,
        ) -> c_int {
            // SAFETY: the loader describes an object, and the pointer is the one handed over below.
            let (object, objects) = unsafe { (&*object, &mut *objects.cast::<Objects>()) };
            let path = match object.dlpi_name.is_null() {
                true => String::new(),
                // SAFETY: the name is a string for as long as the object is loaded.
                false => unsafe { CStr::from_ptr(object.dlpi_name) }.to_string_lossy().into_owned(),
            };
            let headers = match object.dlpi_phdr.is_null() {
                true => &[][..],
                // SAFETY: the loader says how many headers there are.
                false => unsafe { std::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into()) },
            };
            let holds = headers.iter().any(|header| {
                let start = object.dlpi_addr.wrapping_add(header.p_vaddr);
                header.p_type == libc::PT_LOAD && objects.address.wrapping_sub(start) < header.p_memsz
            });
            // The program itself has no name here.
            match path.is_empty() {
                true => objects.in_program |= holds,
                false if holds => objects.holder = Some(path.clone()),
                false => {}
            }
            objects.paths.push(path);
            0
        }
        let mut objects = Objects { paths: Vec::new(), holder: None, in_program: false, address };
        // SAFETY: `visit` is called with the pointer while this call lasts.
        unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut objects).cast()) };
        objects
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(paths: &[&str]) -> String {
        of_process(&paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn the_client_is_recognised_by_what_is_loaded() {
        let nvrtc = "/opt/lib/libnvrtc.so.13";
        let cupy = "/venv/site-packages/cupy/_core/core.so";
        let triton = "/venv/site-packages/triton/_C/libtriton.so";
        let torch = "/venv/site-packages/torch/lib/libtorch_cuda.so";
        assert!(process(&[]).contains("nvcc"));
        assert!(process(&[nvrtc]).contains("compute_80 instead of sm_80"));
        assert!(process(&[nvrtc, cupy]).contains("CUPY_COMPILE_WITH_PTX=1"));
        assert!(process(&[nvrtc, torch, triton]).contains("TRITON_INTERPRET"));
        assert!(process(&["/venv/numba_cuda/_ext.so", "/cu13/libnvJitLink.so.13"]).contains("numba"));
        assert!(process(&["/cu13/libnvJitLink.so.13", nvrtc]).contains("nvJitLinkGetLinkedPtx"));
    }

    #[test]
    fn a_library_that_holds_the_code_is_named() {
        let client = |path: &str| of_library(path.rsplit('/').next().unwrap(), path);
        assert!(
            client("/usr/lib/libcublasLt.so.13")
                .starts_with("it lies in libcublasLt.so.13, a library of NVIDIA's")
        );
        assert!(client("/venv/torch/lib/libtorch_cuda.so").contains("TORCH_CUDA_ARCH_LIST"));
        assert!(client("/opt/app/libkernels.so").contains("nvcc"));
    }

    #[test]
    fn addresses_are_found_in_what_is_loaded() {
        static HERE: u8 = 0;
        assert!(Objects::loaded(&raw const HERE as u64).in_program);
        let there = Objects::loaded(libc::malloc as *const () as u64);
        assert!(there.holder.is_some_and(|path| path.contains("libc")) && !there.in_program);
        let heap = Box::new(0u8);
        let nowhere = Objects::loaded(&raw const *heap as u64);
        assert!(nowhere.holder.is_none() && !nowhere.in_program);
    }
}
