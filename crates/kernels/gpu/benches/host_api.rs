//! The cost of this crate beside the calls that it makes, and the speed of its tensors beside that
//! of the hardware: `cargo bench -p apex-gpu -- [--json FILE]`.
//!
//! Both sides of each comparison run in turn in one process, in many short rounds; a row gives the
//! medians of the rounds and their ratio, with the interval that holds the middle half of the
//! rounds' ratios.
//!
//! * *wrapping*: launch, upload and download through this crate, against the driver's functions
//!   called directly.
//! * *product*: [`Tensor::matmul_into`], against cuBLAS called directly with the same arguments
//!   (device time).
//! * *bandwidth*: element by element and reducing, bytes per second against those of a copy within
//!   the device.
//!
//! On the CPU device the program runs, with small sizes, to show that it does; its figures say
//! nothing of GPUs.

use std::ffi::c_void;
use std::time::Instant;

use apex_gpu::{Backend, Device, Kind, Number, Tensor};
use cudarc::cublas::{CudaBlas, result, sys as blas};
use cudarc::driver::sys;
use half::{bf16, f16};
use serde_json::json;

const PTX: &str = "
.version 7.0
.target sm_75
.address_size 64
.visible .entry nothing(.param .u64 a, .param .u64 b, .param .u32 n)
{
    ret;
}
";

/// One comparison: `ours` against `theirs`, in `unit`.
struct Row {
    name: String,
    peer: &'static str,
    unit: &'static str,
    ours: f64,
    theirs: f64,
    ratio: f64,
    middle_half: (f64, f64),
}

fn median(values: &mut [f64], at: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * at) as usize]
}

/// Runs both in turn. Each returns what it measured.
fn compare(
    name: impl Into<String>,
    peer: &'static str,
    unit: &'static str,
    rounds: usize,
    mut ours: impl FnMut() -> f64,
    mut theirs: impl FnMut() -> f64,
) -> Row {
    ours();
    theirs();
    let pairs: Vec<(f64, f64)> = (0..rounds)
        .map(|round| match round % 2 {
            0 => (ours(), theirs()),
            _ => {
                let theirs = theirs();
                (ours(), theirs)
            }
        })
        .collect();
    let (mut a, mut b): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    let mut ratios: Vec<f64> = pairs.iter().map(|(ours, theirs)| ours / theirs).collect();
    let (ours, theirs) = (median(&mut a, 0.5), median(&mut b, 0.5));
    let row = Row {
        name: name.into(),
        peer,
        unit,
        ours,
        theirs,
        ratio: ours / theirs,
        middle_half: (median(&mut ratios, 0.25), median(&mut ratios, 0.75)),
    };
    println!(
        "{:<34} {:>10.3} {:>10.3} {:<5} {:>7.3}  [{:.3}, {:.3}]  vs {}",
        row.name, row.ours, row.theirs, row.unit, row.ratio, row.middle_half.0, row.middle_half.1, row.peer
    );
    row
}

/// Nanoseconds of one of `count` calls.
fn each(count: usize, mut call: impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..count).for_each(|_| call());
    start.elapsed().as_nanos() as f64 / count as f64
}

/// Microseconds of device time of one of `count` calls.
fn device_time(device: &Device, count: usize, mut call: impl FnMut()) -> f64 {
    let before = device.stream().record().expect("an event");
    (0..count).for_each(|_| call());
    let after = device.stream().record().expect("an event");
    after.since(&before).expect("the work before").as_secs_f64() * 1e6 / count as f64
}

/// Asserts that a call into the driver succeeded.
fn ok(result: sys::CUresult) {
    assert_eq!(result, sys::CUresult::CUDA_SUCCESS);
}

fn wrapping(device: &Device, rounds: usize, rows: &mut Vec<Row>) -> apex_gpu::Result<()> {
    let kernel = device.load_ptx(PTX)?.kernel("nothing")?;
    let stream = device.stream().cuda().cu_stream();
    let a = device.zeros::<f32>(1024)?;
    let mut b = device.zeros::<f32>(1024)?;
    let (address_a, address_b) = (a.address(), b.address());
    rows.push(compare(
        "launch, 3 arguments",
        "cuLaunchKernel",
        "ns",
        rounds,
        || {
            let time = each(400, || {
                let launch = kernel.launch([1, 1, 1], [32, 1, 1]).arg(&a).arg(&mut b).arg(1024u32);
                // SAFETY: the kernel does nothing.
                unsafe { launch.launch() }.expect("a launch");
            });
            device.synchronize().expect("nothing fails");
            time
        },
        || {
            let time = each(400, || {
                let (mut a, mut b, mut n) = (address_a, address_b, 1024u32);
                let mut arguments: [*mut c_void; 3] =
                    [(&raw mut a).cast(), (&raw mut b).cast(), (&raw mut n).cast()];
                let function = kernel.cuda().cu_function();
                // SAFETY: the kernel takes these three arguments and does nothing.
                ok(unsafe {
                    sys::cuLaunchKernel(
                        function,
                        1,
                        1,
                        1,
                        32,
                        1,
                        1,
                        0,
                        stream,
                        arguments.as_mut_ptr(),
                        std::ptr::null_mut(),
                    )
                });
            });
            device.synchronize().expect("nothing fails");
            time
        },
    ));
    for (name, bytes) in [("4 B", 4), ("64 KiB", 64 << 10), ("16 MiB", 16 << 20)] {
        let mut host: Vec<u8> = (0..bytes).map(|i| (i * 31 % 251) as u8).collect();
        let mut buffer = device.upload(&host)?;
        let address = buffer.address();
        let count = if bytes > 1 << 20 { 4 } else { 100 };
        let wait = || device.stream().synchronize().expect("nothing fails");
        rows.push(compare(
            format!("upload {name}"),
            "cuMemcpyHtoDAsync",
            "ns",
            rounds,
            || {
                let time = each(count, || buffer.write(&host).expect("as many bytes"));
                wait();
                time
            },
            || {
                let time = each(count, || {
                    // SAFETY: both have as many bytes.
                    ok(unsafe { sys::cuMemcpyHtoDAsync_v2(address, host.as_ptr().cast(), bytes, stream) })
                });
                wait();
                time
            },
        ));
        let mut other = vec![0u8; bytes];
        rows.push(compare(
            format!("download {name}"),
            "cuMemcpyDtoHAsync + sync",
            "ns",
            rounds,
            || each(count, || buffer.view().read(&mut host).expect("as many bytes")),
            || {
                each(count, || {
                    // SAFETY: both have as many bytes.
                    ok(unsafe {
                        sys::cuMemcpyDtoHAsync_v2(other.as_mut_ptr().cast(), address, bytes, stream)
                    });
                    // SAFETY: the stream lives.
                    ok(unsafe { sys::cuStreamSynchronize(stream) });
                })
            },
        ));
    }
    Ok(())
}

/// Values that look random, between -1 and 1.
fn values(len: usize) -> impl Iterator<Item = f32> {
    (0..len as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f32 / 8_388_608.0 - 1.0)
}

fn products<T: Number>(
    device: &Device,
    of: impl Fn(f32) -> T,
    element: blas::cudaDataType,
    name: &str,
    rows: &mut Vec<Row>,
) -> apex_gpu::Result<()> {
    for side in [1024usize, 2048, 4096] {
        let make = || {
            let values: Vec<T> = values(side * side).map(&of).collect();
            Tensor::new(device, &values, [side, side])
        };
        let (a, b) = (make()?, make()?);
        let mut ours = Tensor::<T>::zeros(device, [side, side])?;
        let theirs = Tensor::<T>::zeros(device, [side, side])?;
        if !matches!(a.matmul_backend(), Backend::Cublas(_)) {
            println!("product {name} {side}: skipped, {}", a.matmul_backend());
            return Ok(());
        }
        let handle = CudaBlas::new(device.stream().cuda().clone()).expect("cuBLAS");
        let count = ((4 << 30) / (side * side * side)).clamp(2, 50);
        rows.push(compare(
            format!("product {name} {side}"),
            "cublasGemmEx",
            "us",
            15,
            || device_time(device, count, || a.matmul_into(&b, &mut ours).expect("shapes that fit")),
            || {
                device_time(device, count, || {
                    let (one, zero) = (1.0f32, 0.0f32);
                    let n = side as i32;
                    // SAFETY: all three have `side * side` elements of that type.
                    unsafe {
                        result::gemm_ex(
                            *handle.handle(),
                            blas::cublasOperation_t::CUBLAS_OP_N,
                            blas::cublasOperation_t::CUBLAS_OP_N,
                            n,
                            n,
                            n,
                            (&raw const one).cast(),
                            b.elements().address() as *const c_void,
                            element,
                            n,
                            a.elements().address() as *const c_void,
                            element,
                            n,
                            (&raw const zero).cast(),
                            theirs.elements().address() as *mut c_void,
                            element,
                            n,
                            blas::cublasComputeType_t::CUBLAS_COMPUTE_32F,
                            blas::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
                        )
                    }
                    .expect("cuBLAS multiplies");
                })
            },
        ));
        let same = ours.to_vec()? == theirs.to_vec()?;
        println!("    results are {}", if same { "equal bit by bit" } else { "not equal bit by bit" });
    }
    Ok(())
}

/// GB/s, of `bytes` in a time of microseconds.
fn rate(bytes: usize, microseconds: f64) -> f64 {
    bytes as f64 / microseconds / 1e3
}

fn bandwidth<T: Number>(
    device: &Device,
    elements: usize,
    of: impl Fn(f32) -> T,
    name: &str,
    rows: &mut Vec<Row>,
) -> apex_gpu::Result<()> {
    let host: Vec<T> = values(elements).map(&of).collect();
    let a = Tensor::new(device, &host, [elements])?;
    let b = Tensor::new(device, &host, [elements])?;
    let table = a.reshape([elements / 4096, 4096])?;
    let bytes = elements * size_of::<T>();
    let from = device.upload(&host)?;
    let mut to = device.zeros::<T>(elements)?;
    let mut copy =
        || rate(2 * bytes, device_time(device, 5, || to.copy_from(&from).expect("as many elements")));
    let mut against = |what: &str, moved: usize, work: &mut dyn FnMut()| {
        let ours = || rate(moved, device_time(device, 5, &mut *work));
        rows.push(compare(format!("{what} {name}"), "copy within the device", "GB/s", 15, ours, &mut copy));
    };
    against("a + b", 3 * bytes, &mut || drop(a.add(&b).expect("memory")));
    against("3 a + 2", 2 * bytes, &mut || drop(a.affine(3.0, 2.0).expect("memory")));
    against("relu", 2 * bytes, &mut || drop(a.relu().expect("memory")));
    against("sum of all", bytes, &mut || drop(a.sum_all().expect("memory")));
    against("sum of rows of 4096", bytes, &mut || drop(table.sum(1).expect("memory")));
    against("max of columns", bytes, &mut || drop(table.max(0).expect("memory")));
    Ok(())
}

fn thousand(device: &Device, rows: &mut Vec<Row>) -> apex_gpu::Result<()> {
    let side = 1000;
    let host: Vec<f32> = values(side * side).collect();
    let (a, b) = (Tensor::new(device, &host, [side, side])?, Tensor::new(device, &host, [side, side])?);
    a.matmul(&b)?.to_vec()?;
    rows.push(compare(
        "1000 x 1000, there and back",
        "on the device alone",
        "us",
        15,
        || {
            each(1, || {
                let new = || Tensor::new(device, &host, [side, side]).expect("memory");
                new().matmul(&new()).expect("memory").to_vec().expect("no error");
            }) / 1e3
        },
        || device_time(device, 10, || drop(a.matmul(&b).expect("memory"))),
    ));
    Ok(())
}

fn report(device: &Device, rows: &[Row]) -> String {
    let row = |row: &Row| {
        let Row { name, peer, unit, ours, theirs, ratio, middle_half } = row;
        json!({
            "name": name,
            "peer": peer,
            "unit": unit,
            "ours": ours,
            "theirs": theirs,
            "ratio": ratio,
            "middle_half": middle_half,
        })
    };
    let rows: Vec<_> = rows.iter().map(row).collect();
    format!("{}\n", json!({ "schema": "apex.gpu-bench/1", "device": device.name(), "rows": rows }))
}

fn main() -> apex_gpu::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    // `cargo test` builds benchmarks and runs them with this.
    if arguments.iter().any(|argument| argument == "--test") {
        return Ok(());
    }
    let device = Device::open(0)?;
    let is_gpu = *device.kind() == Kind::Gpu;
    println!("{}: {}", device.name(), device.kind());
    println!(
        "{:<34} {:>10} {:>10} {:<5} {:>7}  [middle half]",
        "measured", "ours", "theirs", "unit", "ratio"
    );
    let mut rows = Vec::new();
    wrapping(&device, if is_gpu { 60 } else { 5 }, &mut rows)?;
    products(&device, |x| x, blas::cudaDataType::CUDA_R_32F, "f32", &mut rows)?;
    products(&device, f16::from_f32, blas::cudaDataType::CUDA_R_16F, "f16", &mut rows)?;
    products(&device, bf16::from_f32, blas::cudaDataType::CUDA_R_16BF, "bf16", &mut rows)?;
    let elements = if is_gpu { 1 << 28 } else { 1 << 16 };
    bandwidth(&device, elements, |x| x, "f32", &mut rows)?;
    bandwidth(&device, elements, f16::from_f32, "f16", &mut rows)?;
    if is_gpu {
        thousand(&device, &mut rows)?;
    }
    if let Some(at) = arguments.iter().position(|argument| argument == "--json") {
        let file = arguments.get(at + 1).expect("--json FILE");
        std::fs::write(file, report(&device, &rows)).unwrap_or_else(|error| panic!("{file}: {error}"));
    }
    Ok(())
}
