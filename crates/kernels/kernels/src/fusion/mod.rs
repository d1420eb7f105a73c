//! Fusion: kernels generated for graphs of memory-bound operations.
//!
//! A [`Graph`] says what is to be computed: functions of elements, broadcasts, reductions of rows,
//! softmax, normalisation, rotary embeddings, top-k, histograms. A [`Plan`] decides which
//! operations become one kernel, by the bytes that this saves and by the registers and the shared
//! memory that it needs; printed, it says why, and how many bytes move before and after. Kernels
//! are PTX that this module writes: no compiler is needed but the driver's. [`Fused`] runs them.
//!
//! ```
//! use apex_gpu::Device;
//! use apex_kernels::fusion::{ElementType::Bf16, Fused, Graph};
//! use half::bf16;
//!
//! let mut graph = Graph::new();
//! let x = graph.input("x", Bf16, &[4, 256])?;
//! let residual = graph.input("residual", Bf16, &[4, 256])?;
//! let (weight, bias) = (graph.input("weight", Bf16, &[256])?, graph.input("bias", Bf16, &[256])?);
//! let sum = graph.add(x, residual)?;
//! let positive = graph.relu(sum)?;
//! let normal = graph.layer_norm(positive, weight, bias, 1e-5)?;
//! graph.output("y", normal, Bf16)?;
//!
//! let device = Device::open(0)?;
//! let fused = Fused::new(&device, &graph)?;
//! println!("{}", fused.plan()); // one kernel: what it saves, and how a row is computed
//! assert_eq!(fused.plan().kernels().len(), 1);
//!
//! let ones = device.upload(&vec![bf16::ONE; 4 * 256])?;
//! let weight = device.upload(&vec![bf16::ONE; 256])?;
//! let bias = device.upload(&vec![bf16::PI; 256])?;
//! let y = fused.run(&[(&ones).into(), (&ones).into(), (&weight).into(), (&bias).into()])?;
//! // Elements that are equal become 0, and only the bias is left.
//! assert!(y[0].to_f64()?.iter().all(|&y| y == f64::from(bf16::PI)));
//! # apex_kernels::Result::Ok(())
//! ```
//!
//! # From a graph to a kernel
//!
//! | step | module | what it guarantees |
//! | --- | --- | --- |
//! | build | `graph`, `composite` | shapes fit; nodes are in topological order |
//! | group | `plan` | no cycles among kernels; each fusion saves bytes |
//! | nest | `nest` | one iteration space; each value has a place in it and a pass that knows it |
//! | schedule | `schedule`, `pressure` | a row fits where it is held |
//! | emit | `emit`, `totals` | PTX for compute capability 8.0; 9.0 with clusters |
//!
//! [`reference`](mod@reference) computes the same graphs in f64 on the host; [`forms`] holds the
//! graphs that transformers have most use for.
//!
//! # What is computed
//!
//! Elements are bf16, f16, f32, or u32 for indices and counts; arithmetic is f32. A value that one
//! kernel leaves for another is rounded to the type of its operands, as in PyTorch; inside a kernel
//! nothing is rounded. Reductions work along the last dimension, column sums along all others; both
//! have one order of additions and use no atomics, so results are the same in each run. Kernels
//! belong to a graph with its shapes. NaN and infinities go through as IEEE 754 says, and `max` and
//! `min` keep NaN.
//!
//! `docs/results/fusion-h200.md` compares kernels with copies and with PyTorch on an H200, and has
//! the schedules that were tried.

mod composite;
mod emit;
pub mod forms;
mod graph;
mod kernel;
mod nest;
mod plan;
mod pressure;
pub mod reference;
mod schedule;
mod tensor;
mod totals;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use apex_gpu::{Buffer, Device, Stream};

pub use graph::{Binary, ElementType, Graph, Reduction, Unary, Value};
pub use kernel::Kernel;
pub use nest::Memory;
pub use plan::{Options, Plan};
pub use schedule::{Target, Tuning};
pub use tensor::{Tensor, View};

use crate::Result;
use crate::workspace::reserve;
use graph::wrong;

/// Kernels for a graph on one device. They are compiled by the driver when they first run; make one
/// for each graph and keep it. It may be shared among threads.
#[derive(Debug)]
pub struct Fused {
    graph: Graph,
    device: Device,
    options: Options,
    plan: Plan,
    /// By alignment of the inputs.
    compiled: Mutex<HashMap<usize, Arc<Compiled>>>,
    /// Intermediate tensors for which the caller has no memory.
    between: Mutex<Vec<Buffer<u32>>>,
}

#[derive(Debug)]
struct Compiled {
    plan: Plan,
    kernels: Vec<apex_gpu::Kernel>,
}

impl Fused {
    /// Plans the graph for the device.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape): see [`Plan::new`].
    pub fn new(device: &Device, graph: &Graph) -> Result<Fused> {
        Fused::with(device, graph, &Options { target: target(device), ..Options::default() })
    }

    /// Plans the graph in this way.
    ///
    /// # Errors
    /// As [`Fused::new`].
    pub fn with(device: &Device, graph: &Graph, options: &Options) -> Result<Fused> {
        let plan = Plan::new(graph, options)?;
        let (graph, device) = (graph.clone(), device.clone());
        Ok(Fused {
            graph,
            device,
            options: *options,
            plan,
            compiled: Mutex::default(),
            between: Mutex::default(),
        })
    }

    /// The plan, for aligned inputs.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Computes the outputs, in the order of their declaration, on the device's own stream.
    ///
    /// # Errors
    /// As [`Fused::run_into`].
    pub fn run(&self, inputs: &[View<'_>]) -> Result<Vec<Tensor>> {
        let make = |output: &graph::Output| {
            let elements = self.graph.shape(output.value).iter().product();
            Tensor::zeros(&self.device, output.element, elements)
        };
        let mut outputs = self.graph.outputs.iter().map(make).collect::<Result<Vec<_>>>()?;
        self.run_into(inputs, &mut outputs, self.device.stream())?;
        Ok(outputs)
    }

    /// Computes into these outputs.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape): inputs or outputs are not those of the graph;
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub fn run_into(&self, inputs: &[View<'_>], outputs: &mut [Tensor], stream: &Stream) -> Result<()> {
        let compiled = self.compiled_for(inputs, outputs)?;
        // A thread that panicked here left whole buffers.
        let mut between = self.between.lock().unwrap_or_else(PoisonError::into_inner);
        for (place, words) in words(&compiled.plan).into_iter().enumerate() {
            if place == between.len() {
                between.push(self.device.zeros_on(words, stream)?);
            }
            reserve(&mut between[place], words, stream)?;
        }
        launch_all(&compiled, inputs, outputs, &mut between, stream)
    }

    /// Lengths of the buffers that [`Fused::run_with`] needs, for inputs that begin at multiples of
    /// 16 bytes: one for each tensor that a kernel leaves for another.
    pub fn workspace(&self) -> Vec<usize> {
        words(&self.plan)
    }

    /// As [`Fused::run_into`], with the caller's memory for what kernels leave for others, so that
    /// calls on several streams do not wait for each other. It may hold anything.
    ///
    /// # Errors
    /// As [`Fused::run_into`]; [`Error::Shape`](crate::Error::Shape): the buffers are not those of
    /// [`Fused::workspace`].
    pub fn run_with(
        &self,
        inputs: &[View<'_>],
        outputs: &mut [Tensor],
        workspace: &mut [Buffer<u32>],
        stream: &Stream,
    ) -> Result<()> {
        let compiled = self.compiled_for(inputs, outputs)?;
        let (needed, found) = (words(&compiled.plan), workspace.iter().map(Buffer::len));
        let found: Vec<usize> = found.collect();
        if needed.len() != found.len() || needed.iter().zip(&found).any(|(needed, found)| needed > found) {
            return Err(wrong(format!(
                "buffers between kernels of {needed:?} words are needed, not {found:?}"
            )));
        }
        launch_all(&compiled, inputs, outputs, workspace, stream)
    }

    /// Kernels for these tensors, which are checked.
    fn compiled_for(&self, inputs: &[View<'_>], outputs: &[Tensor]) -> Result<Arc<Compiled>> {
        self.check(inputs, outputs)?;
        let aligned = |view: &View<'_>| 1 << view.address().trailing_zeros().min(4);
        self.compiled(inputs.iter().map(aligned).min().unwrap_or(16))
    }

    fn check(&self, inputs: &[View<'_>], outputs: &[Tensor]) -> Result<()> {
        self.graph.check_inputs(&inputs.iter().map(View::len).collect::<Vec<_>>())?;
        for (input, given) in self.graph.inputs.iter().zip(inputs) {
            if input.element != given.element() {
                let (name, declared, given) = (&input.name, input.element, given.element());
                return Err(wrong(format!("input `{name}` has {given:?} elements, not {declared:?}")));
            }
        }
        if outputs.len() != self.graph.outputs.len() {
            let (needed, found) = (self.graph.outputs.len(), outputs.len());
            return Err(wrong(format!("outputs of the graph: {needed}, not {found}")));
        }
        for (output, given) in self.graph.outputs.iter().zip(outputs) {
            let (name, shape) = (&output.name, self.graph.shape(output.value));
            if (output.element, shape.iter().product()) != (given.element(), given.len()) {
                let (found, kind) = (given.len(), given.element());
                return Err(wrong(format!(
                    "output `{name}` has {found} elements of {kind:?}, and the graph has {shape:?} of {:?}",
                    output.element
                )));
            }
        }
        Ok(())
    }

    /// Kernels for inputs that are so aligned.
    fn compiled(&self, alignment: usize) -> Result<Arc<Compiled>> {
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = compiled.get(&alignment) {
            return Ok(known.clone());
        }
        let mut options = self.options;
        options.target.alignment = options.target.alignment.min(alignment);
        let plan = Plan::new(&self.graph, &options)?;
        let load = |kernel: &Kernel| Ok(self.device.load_ptx(kernel.ptx())?.kernel(&kernel.name)?);
        let kernels = plan.kernels.iter().map(load).collect::<Result<Vec<_>>>()?;
        let made = Arc::new(Compiled { plan, kernels });
        compiled.insert(alignment, made.clone());
        Ok(made)
    }
}

/// The properties of a device on which kernels may rely.
pub fn target(device: &Device) -> Target {
    let limits = device.limits();
    Target {
        multiprocessors: limits.multiprocessors as usize,
        shared: limits.max_shared_bytes_per_block_optin as usize,
        clusters: limits.compute_capability.0 == 9,
        alignment: 16,
    }
}

/// Memory that kernels leave for others, by what is in it.
type Between<'a> = BTreeMap<Memory, &'a mut Buffer<u32>>;

/// Words of what kernels leave for others.
fn words(plan: &Plan) -> Vec<usize> {
    plan.between().map(|(_, bytes)| bytes.div_ceil(4).max(1)).collect()
}

fn launch_all(
    compiled: &Compiled,
    inputs: &[View<'_>],
    outputs: &mut [Tensor],
    workspace: &mut [Buffer<u32>],
    stream: &Stream,
) -> Result<()> {
    let memories = compiled.plan.between().map(|(memory, _)| memory);
    let mut between: Between<'_> = memories.zip(workspace).collect();
    for (kernel, loaded) in compiled.plan.kernels.iter().zip(&compiled.kernels) {
        if kernel.grid() > 0 {
            launch(kernel, loaded, inputs, outputs, &mut between, stream)?;
        } else {
            kernel.counts().try_for_each(|counts| clear(counts, outputs, stream))?;
        }
    }
    Ok(())
}

/// Zeros for counts.
fn clear(counts: Memory, outputs: &mut [Tensor], stream: &Stream) -> Result<()> {
    if let Memory::Output(place) = counts
        && let Tensor::U32(buffer) = &mut outputs[place]
    {
        buffer.clear_on(stream)?;
    }
    Ok(())
}

fn launch<'a>(
    kernel: &Kernel,
    loaded: &'a apex_gpu::Kernel,
    inputs: &'a [View<'a>],
    outputs: &'a mut [Tensor],
    between: &'a mut Between<'_>,
    stream: &'a Stream,
) -> Result<()> {
    for counts in kernel.counts() {
        clear(counts, outputs, stream)?;
        if let Some(buffer) = between.get_mut(&counts) {
            buffer.clear_on(stream)?;
        }
    }
    let (grid, block) = (kernel.grid() as u32, kernel.block() as u32);
    let mut launch = loaded.launch(grid, block).shared(kernel.shared() as u32).on(stream);
    // A kernel writes each tensor once, and reads none that it writes.
    let mut outputs: Vec<Option<&mut Tensor>> = outputs.iter_mut().map(Some).collect();
    let mut between: BTreeMap<Memory, &mut Buffer<u32>> =
        between.iter_mut().map(|(memory, buffer)| (*memory, &mut **buffer)).collect();
    for (accesses, writes) in [(&kernel.reads, false), (&kernel.writes, true)] {
        for access in accesses {
            launch = match access.memory {
                Memory::Input(place) => inputs[place].push(launch),
                Memory::Output(place) => {
                    let tensor = outputs[place].take().expect("a kernel uses an output once");
                    if writes { tensor.push_mut(launch) } else { (*tensor).push(launch) }
                }
                Memory::Between(_) | Memory::Partials(_) => {
                    let buffer = between.remove(&access.memory).expect("a kernel uses a tensor once");
                    if writes { launch.arg(buffer) } else { launch.arg(&*buffer) }
                }
            };
        }
    }
    // SAFETY: generated code accesses the elements of its tensors only, whose numbers have been
    // checked, writes to none that it reads, and has 8-byte pointers as its only parameters.
    unsafe { launch.launch()? };
    Ok(())
}
