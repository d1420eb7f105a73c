//! An unsupported feature is reported once, with its name and an alternative.

mod common;

use common::{Context, cu, fails, ok, stream, upload};
use cuda_abi::Plain;
use cuda_abi::types::*;
use test_process::Command;

/// Texts that standard error must contain once each, though every call is made twice.
const FEATURES: [&str; 8] = [
    "resource views of textures",
    "textures that decode sRGB",
    "block-compressed",
    "fabric handles",
    "physical memory at a location of the host",
    "memory pools on the host",
    "atomic reductions among stream memory operations",
    "NVVM IR",
];

#[test]
fn refused_features_are_named_once() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child_that_asks_for_everything", "--ignored", "--nocapture"]);
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let told: Vec<&str> =
        errors.lines().filter(|line| line.starts_with("apex: cpu device: not supported: ")).collect();
    for feature in FEATURES {
        let naming: Vec<_> = told.iter().filter(|line| line.contains(feature)).collect();
        assert_eq!(naming.len(), 1, "{feature}: {errors}");
        assert!(naming[0].contains("; "), "what to do instead: {}", naming[0]);
    }
    assert_eq!(told.len(), FEATURES.len(), "{errors}");
}

#[test]
#[ignore = "run by refused_features_are_named_once"]
fn child_that_asks_for_everything() {
    let _context = Context::new();
    for _ in 0..2 {
        textures();
        memory();
        let mut reduction: CUstreamBatchMemOpParams = Plain::zeroed();
        reduction.operation = CU_STREAM_MEM_OP_ATOMIC_REDUCTION;
        fails!(CUDA_ERROR_NOT_SUPPORTED, cuStreamBatchMemOp_v2(stream(0), 1, &mut reduction, 0));
        let mut link = std::ptr::null_mut();
        let none = std::ptr::null_mut::<std::ffi::c_void>();
        ok!(cuLinkCreate_v2(0, none.cast(), none.cast(), &mut link));
        let code = b"BC".as_ptr().cast_mut().cast();
        fails!(
            CUDA_ERROR_NOT_SUPPORTED,
            cuLinkAddData_v2(link, CU_JIT_INPUT_NVVM, code, 2, c"ir".as_ptr(), 0, none.cast(), none.cast())
        );
    }
}

fn textures() {
    let mut resource: CUDA_RESOURCE_DESC = Plain::zeroed();
    resource.resType = CU_RESOURCE_TYPE_LINEAR;
    resource.res.linear = CUDA_RESOURCE_DESC_v1_res_linear {
        devPtr: upload(&[0; 4096]),
        format: CU_AD_FORMAT_FLOAT,
        numChannels: 1,
        sizeInBytes: 4096,
    };
    let description: CUDA_TEXTURE_DESC = Plain::zeroed();
    let view: CUDA_RESOURCE_VIEW_DESC = Plain::zeroed();
    let mut object = 0;
    fails!(CUDA_ERROR_NOT_SUPPORTED, cuTexObjectCreate(&mut object, &resource, &description, &view));
    let srgb = CUDA_TEXTURE_DESC { flags: CU_TRSF_SRGB, ..description };
    fails!(CUDA_ERROR_NOT_SUPPORTED, cuTexObjectCreate(&mut object, &resource, &srgb, std::ptr::null()));
    let compressed = CUDA_ARRAY3D_DESCRIPTOR {
        Width: 4,
        Height: 4,
        Format: CU_AD_FORMAT_BC1_UNORM,
        NumChannels: 1,
        ..Plain::zeroed()
    };
    let mut array = std::ptr::null_mut();
    fails!(CUDA_ERROR_NOT_SUPPORTED, cuArray3DCreate_v2(&mut array, &compressed));
}

fn memory() {
    let at = |kind| CUmemLocation { r#type: kind, ..Plain::zeroed() };
    let wanted = CUmemAllocationProp {
        r#type: CU_MEM_ALLOCATION_TYPE_PINNED,
        location: at(CU_MEM_LOCATION_TYPE_DEVICE),
        ..Plain::zeroed()
    };
    let fabric = CUmemAllocationProp { requestedHandleTypes: CU_MEM_HANDLE_TYPE_FABRIC, ..wanted };
    let host = CUmemAllocationProp { location: at(CU_MEM_LOCATION_TYPE_HOST), ..wanted };
    let (mut handle, mut pool) = (0, std::ptr::null_mut());
    fails!(CUDA_ERROR_NOT_SUPPORTED, cuMemCreate(&mut handle, 2 << 20, &fabric, 0));
    fails!(CUDA_ERROR_NOT_SUPPORTED, cuMemCreate(&mut handle, 2 << 20, &host, 0));
    let pool_on_host = CUmemPoolProps {
        allocType: CU_MEM_ALLOCATION_TYPE_PINNED,
        location: at(CU_MEM_LOCATION_TYPE_HOST),
        ..Plain::zeroed()
    };
    fails!(CUDA_ERROR_NOT_SUPPORTED, cuMemPoolCreate(&mut pool, &pool_on_host));
}

/// Loads a kernel of one statement; the result, and what the log says.
fn load(statement: &str) -> (CUresult, String) {
    let source = format!(
        ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k() {{\n.reg .b32 %r<4>; .reg .b16 %h<3>;\n\
         {statement}\nret;\n}}\n"
    );
    let (source, mut module) = (std::ffi::CString::new(source).unwrap(), std::ptr::null_mut());
    let mut log = [0u8; 1024];
    let mut options = [CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    let mut values = [log.as_mut_ptr().cast(), std::ptr::without_provenance_mut(log.len())];
    let code = cu!(cuModuleLoadDataEx(
        &mut module,
        source.as_ptr().cast(),
        2,
        options.as_mut_ptr(),
        values.as_mut_ptr()
    ));
    let end = log.iter().position(|&byte| byte == 0).unwrap();
    (code, String::from_utf8_lossy(&log[..end]).into_owned())
}

#[test]
fn what_ptxas_refuses_is_refused_with_the_line_and_the_reason() {
    let _context = Context::new();
    for (statement, reason) in [
        (
            "add.u32 %r0, %tid.x, 1;",
            "`%tid` is a special register: copy it to an integer register with `mov`",
        ),
        ("add.bf16 %h0, %h1, %h2;", "`add.bf16` needs PTX 7.8 and sm_90"),
        ("add.u32 %r0, %r1, 1.5;", "a floating-point number is no `.u32`"),
        ("bar.sync 16;", "barrier 16 does not exist"),
        ("frobnicate.u32 %r0, %r1;", "unknown instruction `frobnicate`"),
        (
            ".shared .b8 large[50000]; mov.u32 %r0, large;",
            "50000 bytes of shared memory, and a block has 49152",
        ),
    ] {
        let (code, log) = load(statement);
        assert_eq!(code, CUDA_ERROR_INVALID_PTX, "{statement}");
        assert!(log.contains(reason), "{statement}: {log}");
    }
    assert_eq!(load("mov.u32 %r0, %tid.x; st.local.u32 [0], %r0;").0, CUDA_SUCCESS);
}
