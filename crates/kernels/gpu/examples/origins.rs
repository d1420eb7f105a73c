//! The same kernel from CUDA C++, from PTX and from a CUBIN:
//! `cargo run -p apex-gpu --example origins`.

use apex_gpu::{Device, Error, Kind, Module, Source};

const CODE: &str = r#"
extern "C" __global__ void triple(int* x) { x[threadIdx.x] *= 3; }
"#;

const PTX: &str = "
.version 7.0
.target sm_75
.address_size 64
.visible .entry triple(.param .u64 x)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd0, [x];
    cvta.to.global.u64 %rd0, %rd0;
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %rd1, %r0, 4;
    add.u64 %rd2, %rd0, %rd1;
    ld.global.u32 %r1, [%rd2];
    mul.lo.s32 %r2, %r1, 3;
    st.global.u32 [%rd2], %r2;
    ret;
}
";

fn main() -> apex_gpu::Result<()> {
    let device = Device::open(0)?;
    println!("{}: {}", device.name(), device.kind());
    let source = device.compile(&Source::new(CODE).name("triple.cu"))?;
    check("source", &source)?;
    check("PTX", &device.load_ptx(PTX)?)?;
    match device.kind() {
        // What a GPU's compiler made is a CUBIN.
        Kind::Gpu => check("CUBIN", &device.load_binary(source.image())?)?,
        Kind::Cpu { .. } => {
            let refused = device.load_binary(b"\x7fELF: a CUBIN").unwrap_err();
            assert!(matches!(refused, Error::Load { .. }));
            println!("CUBIN: refused, as the CPU device executes PTX only");
        }
    }
    Ok(())
}

fn check(origin: &str, module: &Module) -> apex_gpu::Result<()> {
    let kernel = module.kernel("triple")?;
    let values: Vec<i32> = (-128..128).collect();
    let mut buffer = module.device().upload(&values)?;
    // SAFETY: one block of as many threads as there are elements.
    unsafe { kernel.launch([1, 1, 1], [256, 1, 1]).arg(&mut buffer).launch()? };
    assert_eq!(buffer.to_vec()?, values.iter().map(|value| 3 * value).collect::<Vec<_>>());
    println!("{origin}: right, {} registers a thread", kernel.attributes().registers);
    Ok(())
}
