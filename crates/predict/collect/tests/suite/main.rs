//! Every kernel of the suite is launched on the CPU device in several shapes, and its whole output
//! is compared with what `references` computes on the host in double precision (or exactly, where
//! integers come out).

mod references;

use apex_collect::bench::{Bench, output_bytes};
use apex_collect::plan::{self, Bounds, Launch};
use apex_collect::suite::{Element, Kernel};
use references::Reference;

/// Small enough that all launches together take seconds.
const BOUNDS: Bounds = Bounds { pool_bytes: 1 << 18, seconds: 0.002, ..Bounds::CPU };
/// Launches of each kernel.
const LAUNCHES: u64 = 6;

#[test]
fn every_kernel_computes_what_it_says() {
    let device = apex_gpu::Device::open_as(0, apex_gpu::Choice::Cpu).expect("the CPU device");
    let mut bench = Bench::open(&device, &BOUNDS).expect("the suite loads");
    let loaded: Vec<_> = apex_collect::suite::kernels()
        .map(|kernel| bench.load(&kernel).unwrap_or_else(|error| panic!("{error}")))
        .collect();
    let kernels: Vec<_> = loaded.iter().map(|loaded| (loaded.kernel, loaded.allowed())).collect();
    let mut wrong = Vec::new();
    for row in plan::rows(&kernels, &BOUNDS, 3, LAUNCHES * kernels.len() as u64) {
        let (loaded, launch) = (&loaded[row.kernel], &row.launch);
        bench.reset_output(&loaded.kernel, launch).expect("the output is set");
        bench.launch(loaded, launch).unwrap_or_else(|error| panic!("{launch:?}: {error}"));
        let bytes = bench.output(0, output_bytes(&loaded.kernel, launch));
        let bytes = bytes.unwrap_or_else(|error| panic!("{}: {launch:?}: {error}", loaded.kernel.name));
        let expected = references::of(&loaded.kernel, launch);
        if let Some(message) = difference(&loaded.kernel, launch, &bytes, &expected) {
            wrong.push(message);
        }
    }
    assert!(wrong.is_empty(), "{} launches:\n{}", wrong.len(), wrong.join("\n"));
}

/// Describes the first difference of an output, if there is one.
fn difference(kernel: &Kernel, launch: &Launch, bytes: &[u8], expected: &Reference) -> Option<String> {
    let found = numbers(kernel.out, bytes);
    assert_eq!(found.len(), expected.values.len(), "{}", kernel.name);
    let wrong = |(found, expected): (&f64, &f64), tolerance: f64| {
        (found - expected).abs() > tolerance * expected.abs().max(1.0) || found.is_nan()
    };
    let pairs = || found.iter().zip(&expected.values);
    let first = pairs().position(|pair| wrong(pair, expected.tolerance))?;
    let count = pairs().filter(|pair| wrong(*pair, expected.tolerance)).count();
    Some(format!(
        "{}: {launch:?}: {count} of {} elements differ; element {first} is {}, expected {}",
        kernel.name,
        found.len(),
        found[first],
        expected.values[first]
    ))
}

fn numbers(element: Element, bytes: &[u8]) -> Vec<f64> {
    match element {
        Element::F32 => {
            bytes.chunks_exact(4).map(|b| f32::from_ne_bytes(b.try_into().unwrap()).into()).collect()
        }
        Element::F64 => bytes.chunks_exact(8).map(|b| f64::from_ne_bytes(b.try_into().unwrap())).collect(),
        Element::U32 => {
            bytes.chunks_exact(4).map(|b| u32::from_ne_bytes(b.try_into().unwrap()).into()).collect()
        }
        Element::F16 => {
            bytes.chunks_exact(2).map(|b| half::f16::from_ne_bytes(b.try_into().unwrap()).to_f64()).collect()
        }
    }
}
