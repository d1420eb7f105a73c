//! Several PTX texts linked into one image.

mod common;

use common::{Context, cu, download, fails, ok, upload};
use cuda_abi::types::*;
use std::ffi::{CStr, c_void};

const HEADER: &str = ".version 8.0\n.target sm_70\n.address_size 64\n";

/// Calls a function of the other module and reads its variable; has a variable of its own with a
/// name that the other has too.
const MAIN: &str = "
.file 1 \"main.cu\"
.global .align 4 .u32 hidden = 100;
.extern .global .align 4 .u32 shared_count;
.extern .func (.param .b32 result) scaled(.param .b32 value);
.visible .entry run(.param .u64 out)
{
    .reg .b32 %r<6>; .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [out];
    ld.global.u32 %r1, [hidden];
    { .param .b32 value; .param .b32 result; st.param.b32 [value], 7; call (result), scaled, (value);
      ld.param.b32 %r2, [result]; }
    ld.global.u32 %r3, [shared_count];
    st.global.u32 [%rd1], %r1;
    st.global.u32 [%rd1+4], %r2;
    st.global.u32 [%rd1+8], %r3;
    ret;
}
";

const OTHER: &str = "
.file 1 \"other.cu\"
.global .align 4 .u32 hidden = 6;
.visible .global .align 4 .u32 shared_count = 23;
.visible .func (.param .b32 result) scaled(.param .b32 value)
{
    .loc 1 3 0
    .reg .b32 %r<4>;
    ld.param.b32 %r1, [value];
    ld.global.u32 %r2, [hidden];
    mul.lo.u32 %r3, %r1, %r2;
    st.param.b32 [result], %r3;
    ret;
}
";

/// A link with an error log of its own.
struct Link {
    state: CUlinkState,
    log: Box<[u8; 1000]>,
}

impl Link {
    fn new() -> Link {
        let mut log = Box::new([0u8; 1000]);
        let mut options = [CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        // The size's place is written too: it has to last as long as the link.
        let values: &mut [*mut c_void; 2] =
            Box::leak(Box::new([log.as_mut_ptr().cast(), std::ptr::without_provenance_mut(log.len())]));
        let mut state = std::ptr::null_mut();
        ok!(cuLinkCreate_v2(2, options.as_mut_ptr(), values.as_mut_ptr(), &mut state));
        Link { state, log }
    }

    fn add(&self, name: &CStr, kind: CUjitInputType, data: &[u8]) -> CUresult {
        let none = std::ptr::null_mut::<c_void>();
        let data_start = data.as_ptr().cast_mut().cast();
        cu!(cuLinkAddData_v2(
            self.state,
            kind,
            data_start,
            data.len(),
            name.as_ptr(),
            0,
            none.cast(),
            none.cast()
        ))
    }

    fn add_ptx(&self, name: &CStr, text: &str) -> CUresult {
        self.add(name, CU_JIT_INPUT_PTX, format!("{HEADER}{text}\0").as_bytes())
    }

    fn complete(&self) -> Result<Vec<u8>, CUresult> {
        let (mut image, mut bytes) = (std::ptr::null_mut(), 0);
        match cu!(cuLinkComplete(self.state, &mut image, &mut bytes)) {
            // SAFETY: the call has told where the image is, and how long.
            CUDA_SUCCESS => Ok(unsafe { std::slice::from_raw_parts(image.cast::<u8>(), bytes) }.to_vec()),
            code => Err(code),
        }
    }

    fn log(&self) -> String {
        let read = std::hint::black_box(&self.log);
        CStr::from_bytes_until_nul(&read[..]).unwrap().to_string_lossy().into_owned()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        cu!(cuLinkDestroy(self.state));
    }
}

#[test]
fn modules_call_each_other_and_keep_their_secrets() {
    let _context = Context::new();
    let link = Link::new();
    assert_eq!(link.add_ptx(c"main.ptx", MAIN), CUDA_SUCCESS);
    assert_eq!(link.add_ptx(c"other.ptx", OTHER), CUDA_SUCCESS);
    // A library of machine code has nothing to add.
    assert_eq!(link.add(c"libcudadevrt.a", CU_JIT_INPUT_LIBRARY, b"!<arch>\n"), CUDA_SUCCESS);
    let image = link.complete().unwrap();
    drop(link);
    let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
    ok!(cuModuleLoadData(&mut module, image.as_ptr().cast()));
    ok!(cuModuleGetFunction(&mut function, module, c"run".as_ptr()));
    let mut out = upload(&[0; 12]);
    let mut arguments: [*mut c_void; 1] = [(&raw mut out).cast()];
    let none = std::ptr::null_mut::<c_void>();
    ok!(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, none.cast(), arguments.as_mut_ptr(), none.cast()));
    let words: Vec<u32> =
        download(out, 12).chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
    assert_eq!(words, [100, 42, 23]);
}

#[test]
fn what_can_not_be_linked_says_why() {
    let _context = Context::new();
    let link = Link::new();
    assert_eq!(link.complete(), Err(CUDA_ERROR_INVALID_PTX));
    assert_eq!(link.add_ptx(c"main.ptx", MAIN), CUDA_SUCCESS);
    assert_eq!(link.complete(), Err(CUDA_ERROR_INVALID_PTX));
    assert!(link.log().contains("defined nowhere") && link.log().contains("main.ptx"), "{}", link.log());
    assert_eq!(link.add_ptx(c"broken.ptx", ".visible .func f() { mov u32 }"), CUDA_ERROR_INVALID_PTX);
    assert!(link.log().contains("broken.ptx:4"), "{}", link.log());
    assert_eq!(
        link.add(c"k.cubin", CU_JIT_INPUT_CUBIN, b"\x7fELF machine code"),
        CUDA_ERROR_NO_BINARY_FOR_GPU
    );
    assert_eq!(link.add(c"noise", CU_JIT_INPUT_PTX, b"\x01\x02\x03\x04"), CUDA_ERROR_INVALID_IMAGE);
    assert_eq!(link.add(c"nothing", CU_JIT_INPUT_PTX, b""), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(link.add(c"ir", CU_JIT_INPUT_NVVM, b"BC"), CUDA_ERROR_NOT_SUPPORTED);
    assert_eq!(link.add(c"unheard of", 77, b"BC"), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(link.add_ptx(c"other.ptx", OTHER), CUDA_SUCCESS);
    assert!(link.complete().is_ok());
    // The same definition a second time.
    assert_eq!(link.add_ptx(c"again.ptx", OTHER), CUDA_SUCCESS);
    assert_eq!(link.complete(), Err(CUDA_ERROR_INVALID_PTX));
    assert!(link.log().contains("other.ptx") && link.log().contains("again.ptx"), "{}", link.log());

    let none = std::ptr::null_mut::<c_void>();
    let missing = c"/nowhere/at/all.ptx".as_ptr();
    fails!(
        CUDA_ERROR_FILE_NOT_FOUND,
        cuLinkAddFile_v2(link.state, CU_JIT_INPUT_PTX, missing, 0, none.cast(), none.cast())
    );
    let state = link.state;
    drop(link);
    fails!(CUDA_ERROR_INVALID_HANDLE, cuLinkDestroy(state));
}

#[test]
fn fatbins_are_loaded_and_linked() {
    let _context = Context::new();
    let fatbin = include_bytes!("../../../cuda/fatbin/tests/data/three_ptx_one_cubin_zstd.fatbin");
    let (mut module, mut functions) = (std::ptr::null_mut(), 0);
    ok!(cuModuleLoadFatBinary(&mut module, fatbin.as_ptr().cast()));
    ok!(cuModuleGetFunctionCount(&mut functions, module));
    assert!(functions > 0);
    let link = Link::new();
    assert_eq!(link.add(c"three.fatbin", CU_JIT_INPUT_FATBINARY, fatbin), CUDA_SUCCESS);
    let (image, mut linked) = (link.complete().unwrap(), 0);
    ok!(cuModuleLoadData(&mut module, image.as_ptr().cast()));
    ok!(cuModuleGetFunctionCount(&mut linked, module));
    assert_eq!(linked, functions);
}

#[test]
fn a_module_that_lacks_a_variable_says_which() {
    let _context = Context::new();
    let text = format!("{HEADER}.extern .global .u32 elsewhere[];\n.visible .entry run() {{ ret; }}\0");
    let (mut module, mut log) = (std::ptr::null_mut(), [0u8; 300]);
    let mut options = [CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), std::ptr::without_provenance_mut(log.len())];
    let image = text.as_ptr().cast();
    fails!(
        CUDA_ERROR_INVALID_PTX,
        cuModuleLoadDataEx(&mut module, image, 2, options.as_mut_ptr(), values.as_mut_ptr())
    );
    let said = CStr::from_bytes_until_nul(std::hint::black_box(&log)).unwrap().to_string_lossy();
    assert!(said.contains("`elsewhere`") && said.contains("cuLinkCreate"), "{said}");
}
