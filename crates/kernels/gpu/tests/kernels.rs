//! Kernels from PTX: launched right they compute right, launched wrong they are refused with what
//! to do.

mod common;

use apex_gpu::{Error, Kernel, Module};
use common::{device, random};

const PTX: &str = include_str!("kernels.ptx");

fn module() -> Module {
    device().load_ptx(PTX).unwrap()
}

fn floats(seed: u64, len: usize) -> Vec<f32> {
    random(seed).map(|bits| (bits % 2_000_001) as f32 / 1e3 - 1e3).take(len).collect()
}

#[test]
fn saxpy_computes_on_any_stream() {
    let device = device();
    let saxpy = device.load_ptx(PTX).unwrap().kernel("saxpy").unwrap();
    assert_eq!(saxpy.parameters(), [4, 4, 8, 8]);
    let other = device.new_stream().unwrap();
    for (len, stream) in [(1, device.stream()), (1000, &other), (100_003, device.stream()), (77, &other)] {
        let (x, y) = (floats(1, len), floats(2, len));
        let (on_x, mut on_y) = (device.upload(&x).unwrap(), device.upload_on(&y, &other).unwrap());
        let launch = saxpy.over(len).on(stream).arg(2.5f32).arg(len as u32).arg(&on_x).arg(&mut on_y);
        // SAFETY: the kernel reads and writes `len` elements of each.
        unsafe { launch.launch() }.unwrap();
        let expected: Vec<f32> = x.iter().zip(&y).map(|(x, y)| 2.5f32.mul_add(*x, *y)).collect();
        assert_eq!(on_y.to_vec().unwrap(), expected);
    }
}

#[test]
fn parts_of_buffers_are_arguments() {
    let device = device();
    let saxpy = device.load_ptx(PTX).unwrap().kernel("saxpy").unwrap();
    let (x, y) = (floats(3, 64), floats(4, 64));
    let (on_x, mut on_y) = (device.upload(&x).unwrap(), device.upload(&y).unwrap());
    let launch = saxpy.over(16).arg(1.0f32).arg(16u32).arg(on_x.slice(8..24)).arg(on_y.slice_mut(32..48));
    // SAFETY: both parts have 16 elements.
    unsafe { launch.launch() }.unwrap();
    let mut expected = y.clone();
    (0..16).for_each(|at| expected[32 + at] += x[8 + at]);
    assert_eq!(on_y.to_vec().unwrap(), expected);
}

#[test]
fn a_block_reverses_through_dynamic_shared_memory() {
    let device = device();
    let reverse = device.load_ptx(PTX).unwrap().kernel("reverse").unwrap();
    // 1024 words, then more than the 48 KiB that a block has unasked.
    for shared in [4096, 100 * 1024] {
        let values: Vec<u32> = random(5).map(|bits| bits as u32).take(1024).collect();
        let mut buffer = device.upload(&values).unwrap();
        // SAFETY: one block of as many threads as the buffer has elements, and shared memory for
        // each.
        unsafe { reverse.launch([1, 1, 1], [1024, 1, 1]).shared(shared).arg(&mut buffer).launch() }.unwrap();
        let expected: Vec<u32> = values.iter().rev().copied().collect();
        assert_eq!(buffer.to_vec().unwrap(), expected);
    }
    let limits = *device.limits();
    let mut buffer = device.zeros::<u32>(32).unwrap();
    let launch = reverse
        .launch([1, 1, 1], [32, 1, 1])
        .shared(limits.max_shared_bytes_per_block_optin + 4)
        .arg(&mut buffer);
    // SAFETY: refused before anything runs.
    let error = unsafe { launch.launch() }.unwrap_err();
    assert!(matches!(&error, Error::LaunchShape { .. }), "{error}");
    assert!(error.to_string().contains(&limits.max_shared_bytes_per_block_optin.to_string()), "{error}");
}

#[test]
fn a_structure_is_an_argument() {
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Affine {
        scale: f32,
        shift: f32,
        times: u64,
    }
    // SAFETY: plain numbers without padding.
    unsafe impl bytemuck::Zeroable for Affine {}
    // SAFETY: as above.
    unsafe impl bytemuck::Pod for Affine {}
    let device = device();
    let kernel = device.load_ptx(PTX).unwrap().kernel("affine").unwrap();
    assert_eq!(kernel.parameters(), [16, 8]);
    let mut out = device.upload(&[3.0f32]).unwrap();
    let affine = Affine { scale: 2.0, shift: 1.0, times: 3 };
    // SAFETY: one thread, one element.
    unsafe { kernel.launch([1, 1, 1], [1, 1, 1]).arg(affine).arg(&mut out).launch() }.unwrap();
    assert_eq!(out.to_vec().unwrap(), [31.0]);
}

#[test]
fn wrong_arguments_are_refused() {
    let device = device();
    let saxpy = module().kernel("saxpy").unwrap();
    let x = device.zeros::<f32>(4).unwrap();
    let mut y = device.zeros::<f32>(4).unwrap();
    // SAFETY: refused before anything runs.
    let error = unsafe { saxpy.over(4).arg(1.0f32).arg(4u32).arg(&x).launch() }.unwrap_err();
    assert!(matches!(error, Error::ArgumentCount { expected: 4, found: 3, .. }), "{error}");
    // SAFETY: as above.
    let error = unsafe { saxpy.over(4).arg(1.0f64).arg(4u32).arg(&x).arg(&mut y).launch() }.unwrap_err();
    assert!(matches!(error, Error::ArgumentSize { index: 0, expected: 4, found: 8, .. }), "{error}");
    let expected = "argument 0 of kernel `saxpy` is f64 and has 8 bytes, but the parameter has 4";
    assert_eq!(error.to_string(), expected);
    // SAFETY: as above.
    let error = unsafe { saxpy.over(4).arg(1.0f32).arg(4.0f32).arg(&x).arg(&mut y).launch() }.unwrap_err();
    assert!(matches!(error, Error::ArgumentType { index: 1, given: "f32", .. }), "{error}");
    let expected = "argument 1 of kernel `saxpy` is f32, but the parameter is an integer (`.u32` in PTX)";
    assert_eq!(error.to_string(), expected);
    // SAFETY: as above.
    let error = unsafe { saxpy.over(4).arg(1i32).arg(4u32).arg(&x).arg(&mut y).launch() }.unwrap_err();
    assert!(
        error.to_string().ends_with("is i32, but the parameter is a floating-point number (`.f32` in PTX)"),
        "{error}"
    );
    // SAFETY: as above.
    let error = unsafe { saxpy.over(4).arg(1.0f32).arg(4u32).arg(&x).arg(1.0f64).launch() }.unwrap_err();
    assert!(matches!(error, Error::ArgumentType { index: 3, given: "f64", .. }), "{error}");
}

#[test]
fn two_and_three_dimensions_are_covered_by_any_blocks() {
    let device = device();
    let positions = module().kernel("positions").unwrap();
    for (width, height) in [(1usize, 1usize), (33, 2), (3, 70), (100, 100)] {
        let blocks: [Option<(u32, u32)>; 4] = [None, Some((16, 16)), Some((1, 64)), Some((64, 1))];
        for block in blocks {
            let mut out = device.upload(&vec![u32::MAX; width * height]).unwrap();
            let launch = positions.over((width, height));
            let launch = if let Some(block) = block { launch.block(block) } else { launch };
            // SAFETY: there are `width * height` words.
            unsafe { launch.arg(&mut out).arg(width as u32).arg(height as u32).launch() }.unwrap();
            let expected: Vec<u32> =
                (0..width * height).map(|at| (at / width) as u32 * 65536 + (at % width) as u32).collect();
            assert_eq!(out.to_vec().unwrap(), expected, "{width} by {height} with {block:?}");
        }
    }
    let shown = format!("{:?}", positions.over((40, 20, 10)).block((8, 8, 4)));
    assert!(shown.starts_with("Launch(positions: ") && shown.contains("5"), "{shown}");
}

#[test]
fn variables_of_modules_are_read_and_written() {
    let device = device();
    let module = module();
    let (table, counter) = (module.global::<f32>("table").unwrap(), module.global::<u32>("counter").unwrap());
    assert_eq!((table.len(), counter.to_vec().unwrap()), (4, vec![7]));
    let weigh = module.kernel("weigh").unwrap();
    let mut x = device.upload(&[1.0f32; 4]).unwrap();
    for factor in [2.0f32, 3.0] {
        table.write(&[1.0, factor, 1.0, factor]).unwrap();
        // SAFETY: a thread for each of four elements.
        unsafe { weigh.launch(1, 4).arg(&mut x).launch() }.unwrap();
    }
    // In the order of a stream: each launch sees the table that was written before it.
    for factor in [0.5f32, 0.25] {
        table.write_on(&[factor; 4], device.stream()).unwrap();
        // SAFETY: as above.
        unsafe { weigh.launch(1, 4).arg(&mut x).launch() }.unwrap();
    }
    assert_eq!(x.to_vec().unwrap(), [0.125, 0.75, 0.125, 0.75]);
    assert_eq!(counter.to_vec().unwrap(), [11]);
    drop(module); // the handles keep it
    assert_eq!(table.to_vec().unwrap(), [0.25; 4]);
    let shown = format!("{table:?}");
    assert!(shown.starts_with("Global table <f32>(4 elements, 16 bytes, on "), "{shown}");
}

#[test]
fn variables_that_are_not_there_or_of_another_type_are_refused() {
    let module = module();
    let refused = |error: Error| error.to_string();
    let missing = refused(module.global::<f32>("words").unwrap_err());
    assert_eq!(missing, "the module has no variable `words`; it has `counter`, `table`");
    assert!(matches!(module.global::<f32>("nul\0"), Err(Error::NoSuchGlobal { .. })));
    let kind = refused(module.global::<f32>("counter").unwrap_err());
    let why = "is 4 bytes of an integer (`.u32` in PTX), and f32 is no type for it";
    assert!(kind.contains(why), "{kind}");
    let size = module.global::<[f32; 3]>("table").unwrap_err();
    assert!(matches!(size, Error::GlobalType { given: "[f32; 3]", .. }), "{size}");
}

#[test]
fn wrong_shapes_are_refused() {
    let device = device();
    let mut out = device.zeros::<u32>(4096).unwrap();
    let kernel = module().kernel("reverse").unwrap();
    let limits = device.limits();
    let mut refused = |grid: [u32; 3], block: [u32; 3]| {
        // SAFETY: refused before anything runs.
        let error = unsafe { kernel.launch(grid, block).arg(&mut out).launch() }.unwrap_err();
        assert!(matches!(error, Error::LaunchShape { .. }), "{error}");
        error.to_string()
    };
    assert!(refused([1, 1, 1], [1025, 1, 1]).contains("1025 threads, and the kernel allows 1024"));
    assert!(refused([1, 1, 1], [1, 1, 65]).contains("at most 64 threads along z"));
    assert!(refused([1, 65536, 1], [1, 1, 1]).contains("at most 65535 blocks along y"));
    assert!(refused([0, 1, 1], [1, 1, 1]).contains("has none"));
    assert_eq!(limits.max_threads_per_block, 1024);
}

#[test]
fn a_missing_kernel_is_told_with_those_that_there_are() {
    let error = module().kernel("saxpi").unwrap_err();
    assert!(matches!(error, Error::NoSuchKernel { .. }));
    assert_eq!(
        error.to_string(),
        "the module has no kernel `saxpi`; it has `affine`, `mix`, `oops`, `positions`, `reverse`, `saxpy`, `weigh`"
    );
    assert!(matches!(module().kernel("nul\0"), Err(Error::NoSuchKernel { .. })));
}

#[test]
fn ptx_that_is_none_is_refused_with_the_line() {
    let wrong = PTX.replacen("add.u64 %rd3, %rd0, %rd2;", "add.u64 %rd3 %rd0;", 1);
    let error = device().load_ptx(&wrong).unwrap_err();
    let Error::Load { log, code, .. } = &error else { panic!("{error}") };
    assert!(code.contains("INVALID_PTX") && log.contains("30"), "{error}");
    assert!(matches!(device().load_binary(b"no module at all"), Err(Error::Load { .. })));
}

#[test]
fn the_block_that_fills_the_device_is_a_whole_number_of_warps() {
    let kernel: Kernel = module().kernel("saxpy").unwrap();
    let block = kernel.best_block();
    assert!(block.is_multiple_of(32) && (32..=1024).contains(&block), "{block}");
    assert!(kernel.blocks_per_multiprocessor(block, 0).unwrap() >= 1);
    assert!(kernel.attributes().registers > 0);
    assert_eq!(kernel.name(), "saxpy");
}

#[test]
fn an_error_of_a_kernel_shows_where_its_stream_is_waited_for() {
    // Such an error breaks the context for the whole process, so this one gets a process of its
    // own.
    if std::env::var_os("GPU_TEST_CHILD").is_some() {
        let device = device();
        let oops = device.load_ptx(PTX).unwrap().kernel("oops").unwrap();
        // SAFETY: it is not, which is what is tested: the kernel writes to address 8.
        unsafe { oops.launch([1, 1, 1], [1, 1, 1]).launch() }.unwrap();
        let error = device.synchronize().unwrap_err();
        let Error::Fault { code, finding, .. } = &error else { panic!("{error}") };
        assert_eq!(code, "CUDA_ERROR_ILLEGAL_ADDRESS");
        let expected = match device.kind() {
            apex_gpu::Kind::Cpu { .. } => ["in kernel oops", "0x8", "(PTX line 151)"],
            apex_gpu::Kind::Gpu => ["`oops`", "", ""],
        };
        assert!(expected.iter().all(|part| finding.contains(part)), "{error}");
        // Whatever fails after that says the same, in the form that `main` prints.
        let later = device.upload(&[1u32]).and_then(|buffer| buffer.to_vec()).unwrap_err();
        assert!(format!("{later:?}").ends_with(finding), "{later:?}");
        return;
    }
    let name = "an_error_of_a_kernel_shows_where_its_stream_is_waited_for";
    let child = test_process::Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact"])
        .env("GPU_TEST_CHILD", "1")
        .output()
        .unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
}
