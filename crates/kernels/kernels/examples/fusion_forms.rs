//! The set forms of fusion: what becomes one kernel, what that saves, and whether it is right.
//!
//!     cargo run -p apex-kernels --example fusion_forms
//!     cargo run -p apex-kernels --example fusion_forms -- --emit FOLDER
//!
//! Prints the plan of each form, and of norms' gradients, at 64 × 4096 in bf16 and the relative
//! error of what it computes, against the reference in f64 (Frobenius norm). Exits with status 1 if
//! an error is larger than bf16 allows. With `--emit`, nothing is launched: PTX of all forms for an
//! H200, of many sizes and in several schedules, goes into the folder, with `kernels.json`, which
//! says how to launch it.

use std::path::Path;
use std::process::ExitCode;

use apex_gpu::Device;
use apex_kernels::Result;
use apex_kernels::fusion::{
    ElementType, Fused, Graph, Kernel, Memory, Options, Plan, Target, Tensor, Tuning, View, forms, reference,
};
use apex_random::Random;
use half::bf16;
use serde_json::{Value, json};

/// The largest relative error of results in bf16.
const TOLERANCE: f64 = 5e-3;

fn random(seed: u64, len: usize) -> Vec<f64> {
    let mut random = Random::new(seed);
    let next = || f64::from(2.0 * random.signed());
    std::iter::repeat_with(next).take(len).collect()
}

/// Relative error of the worst output on random inputs.
fn error(device: &Device, graph: &Graph, fused: &Fused) -> Result<f64> {
    let mut tensors: Vec<Tensor> = vec![];
    let mut numbers = vec![];
    for (seed, (element, shape)) in graph.inputs().enumerate() {
        let drawn = random(seed as u64 + 1, shape.iter().product());
        let tensor: Tensor = match element {
            ElementType::F32 => device.upload(&drawn.iter().map(|&x| x as f32).collect::<Vec<_>>())?.into(),
            _ => device.upload(&drawn.iter().map(|&x| bf16::from_f64(x)).collect::<Vec<_>>())?.into(),
        };
        numbers.push(tensor.to_f64()?);
        tensors.push(tensor);
    }
    let views: Vec<View<'_>> = tensors.iter().map(View::from).collect();
    let expected = reference::evaluate(graph, &numbers)?;
    let mut worst = 0.0f64;
    for (found, expected) in fused.run(&views)?.iter().zip(&expected) {
        let square = |x: f64| x * x;
        let off: f64 = found.to_f64()?.iter().zip(expected).map(|(x, y)| square(x - y)).sum();
        worst = worst.max((off / expected.iter().map(|&y| square(y)).sum::<f64>()).sqrt());
    }
    Ok(worst)
}

/// The schedules that a GPU is to compare, by name.
fn schedules() -> Vec<(String, Tuning)> {
    let rule = Tuning::default();
    let mut all = vec![
        ("rule".to_owned(), rule),
        ("streaming".to_owned(), Tuning { streaming: Some(true), ..rule }),
        ("persistent 2".to_owned(), Tuning { persistent: Some(2), ..rule }),
        ("persistent 3".to_owned(), Tuning { persistent: Some(3), ..rule }),
        ("persistent 4".to_owned(), Tuning { persistent: Some(4), ..rule }),
        ("persistent 8".to_owned(), Tuning { persistent: Some(8), ..rule }),
        ("not ahead".to_owned(), Tuning { ahead: Some(false), ..rule }),
        ("vector 4".to_owned(), Tuning { vector: Some(4), ..rule }),
        ("resident 0".to_owned(), Tuning { resident: Some(0), ..rule }),
        ("cluster 1".to_owned(), Tuning { cluster: Some(1), ..rule }),
    ];
    for threads in [32, 64, 128, 256, 512, 1024] {
        all.push((format!("threads {threads}"), Tuning { threads: Some(threads), ..rule }));
    }
    for chunks in [1, 4, 8] {
        all.push((format!("rows {chunks}"), Tuning { chunks: Some(chunks), ..rule }));
    }
    for cluster in [2, 4, 8] {
        all.push((format!("cluster {cluster}"), Tuning { cluster: Some(cluster), ..rule }));
    }
    all
}

/// Rows and lengths; all forms at the first, those of which rows decide at the others.
const SIZES: [(usize, usize); 8] = [
    (16384, 4096),
    (262_144, 256),
    (65536, 1024),
    (32768, 2048),
    (8192, 8192),
    (4096, 16384),
    (2048, 32768),
    (1024, 65536),
];

/// All forms, by name.
fn graphs(rows: usize, length: usize) -> Result<Vec<(&'static str, Graph)>> {
    let mut all = forms::all(ElementType::Bf16, rows, length)?;
    all.append(&mut forms::gradients(ElementType::Bf16, rows, length)?);
    Ok(all)
}

/// Writes PTX, and how it is launched.
fn emit(folder: &Path) -> std::io::Result<()> {
    let target = Target { multiprocessors: 132, shared: 227 << 10, clusters: true, alignment: 16 };
    let mut list = vec![];
    for (rows, length) in SIZES {
        let all = graphs(rows, length).map_err(std::io::Error::other)?;
        for (form, graph) in all {
            let by_rows = ["residual + ReLU + LayerNorm", "RMSNorm", "softmax"];
            if (rows, length) != SIZES[0] && !by_rows.contains(&form) && !form.ends_with("gradients") {
                continue;
            }
            let mut known: Vec<Vec<String>> = vec![];
            for (schedule, tuning) in schedules() {
                let options = Options { target, tuning, ..Options::default() };
                let plan = Plan::new(&graph, &options).map_err(std::io::Error::other)?;
                let texts: Vec<String> = plan
                    .kernels()
                    .iter()
                    .map(|kernel| format!("{} {}", kernel.grid(), kernel.ptx()))
                    .collect();
                // A schedule that changes nothing here.
                if known.contains(&texts) {
                    continue;
                }
                let mut kernels = vec![];
                let between: Vec<(Memory, usize)> = plan.kernels().iter().flat_map(Kernel::leaves).collect();
                for kernel in plan.kernels() {
                    let file = format!("{}.ptx", list.len() * 8 + kernels.len());
                    std::fs::write(folder.join(&file), kernel.ptx())?;
                    let parameters = kernel.parameters().map(|memory| match memory {
                        Memory::Input(place) => format!("i{place}"),
                        Memory::Output(place) => format!("o{place}"),
                        _ => {
                            let place = between.iter().position(|(left, _)| *left == memory);
                            format!("b{}", place.expect("a kernel has left it"))
                        }
                    });
                    kernels.push(json!({
                        "file": file,
                        "name": kernel.name,
                        "grid": kernel.grid(),
                        "block": kernel.block(),
                        "shared": kernel.shared(),
                        "parameters": parameters.collect::<Vec<_>>(),
                    }));
                }
                known.push(texts);
                list.push(json!({
                    "form": form,
                    "rows": rows,
                    "length": length,
                    "schedule": schedule,
                    "before": plan.bytes_before(),
                    "after": plan.bytes_after(),
                    "between": between.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>(),
                    "kernels": kernels,
                }));
            }
        }
    }
    std::fs::write(folder.join("kernels.json"), format!("{}\n", Value::from(list)))
}

fn check() -> Result<ExitCode> {
    let device = Device::open(0)?;
    println!("{} ({})", device.name(), device.kind());
    let mut right = true;
    for (form, graph) in graphs(64, 4096)? {
        let fused = Fused::new(&device, &graph)?;
        let off = error(&device, &graph, &fused)?;
        right &= off < TOLERANCE;
        let verdict = if off < TOLERANCE { "" } else { "  WRONG" };
        println!("\n# {form}\n{}\nrelative error (measured): {off:.2e}{verdict}", fused.plan());
    }
    Ok(if right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [option, folder] = &arguments[..]
        && option == "--emit"
    {
        return Ok(match emit(Path::new(folder)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{folder}: {error}");
                ExitCode::FAILURE
            }
        });
    }
    check()
}
