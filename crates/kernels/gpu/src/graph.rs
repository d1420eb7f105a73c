//! Graphs: work that is captured once and launched many times.
//!
//! While a stream is captured, what it is given runs not at all but becomes nodes of a graph. A
//! [`Recording`] notes what the nodes use, and the graph keeps it: memory, loaded code, and copies
//! of what was uploaded. Each launch then waits for other streams as a plain use of that memory
//! does.
//!
//! Invariants: a captured stream waits for no other stream and is waited for by none (the driver
//! refuses both); nothing that a graph uses is freed before its last launch is done.

use std::fmt;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::{CudaEvent, CudaFunction, CudaSlice, DriverError, sys};

use crate::buffer::check_stream;
use crate::error::Result;
use crate::memory::Memory;
use crate::stream::Stream;
use crate::uses::Access;

/// The objects that the nodes of a graph use.
pub(crate) struct Recording {
    /// The stream from which memory is allocated during capture.
    allocator: Stream,
    /// Reached when the stream has done what it was given before.
    before: Arc<CudaEvent>,
    memory: Vec<(Arc<Memory>, Access)>,
    code: Vec<CudaFunction>,
    bytes: Vec<Box<[u8]>>,
    freed: Vec<CudaSlice<u8>>,
}

impl Recording {
    /// A recording of work for `stream`, which begins now.
    pub(crate) fn new(stream: &Stream) -> Result<Recording> {
        let device = stream.device();
        let allocator = Stream::new(device)?;
        let before = stream.cuda().record_event(None).map_err(device.failed("cuEventRecord"))?;
        Ok(Recording {
            allocator,
            before: Arc::new(before),
            memory: Vec::new(),
            code: Vec::new(),
            bytes: Vec::new(),
            freed: Vec::new(),
        })
    }

    pub(crate) fn allocator(&self) -> Stream {
        self.allocator.clone()
    }

    pub(crate) fn before(&self) -> Arc<CudaEvent> {
        self.before.clone()
    }

    /// A node reads or writes `memory`.
    pub(crate) fn uses(&mut self, memory: &Arc<Memory>, access: Access) {
        match self.memory.iter_mut().find(|(known, _)| Arc::ptr_eq(known, memory)) {
            None => self.memory.push((memory.clone(), access)),
            Some((_, known)) if access == Access::Write => *known = access,
            Some(_) => {}
        }
    }

    /// A node executes `function`.
    pub(crate) fn keeps_code(&mut self, function: &CudaFunction) {
        if !self.code.iter().any(|known| known.cu_function() == function.cu_function()) {
            self.code.push(function.clone());
        }
    }

    /// A node copies from the host: from these bytes, which stay where they are.
    pub(crate) fn keeps_bytes(&mut self, bytes: &[u8]) -> &[u8] {
        self.bytes.push(bytes.into());
        self.bytes.last().expect("it was just pushed")
    }

    /// The program dropped memory of the captured stream.
    pub(crate) fn frees_afterwards(&mut self, memory: Option<CudaSlice<u8>>) {
        self.freed.extend(memory);
    }
}

/// Captured work of a [`Stream`], to be launched any number of times: one call for all of it.
///
/// ```
/// # use apex_gpu::{Device, Tensor};
/// let device = Device::open(0)?;
/// let rate = Tensor::full(&device, 0.5f32, &[])?;
/// let mut x = Tensor::new(&device, &[8.0f32, 16.0], &[2])?;
/// // Nothing is computed here: the two operations become a graph.
/// let (graph, ()) = device.stream().capture(|| x.copy_from(&x.mul(&rate)?))?;
/// assert_eq!(x.to_vec()?, [8.0, 16.0]);
/// for _ in 0..3 {
///     graph.launch()?;
/// }
/// assert_eq!(x.to_vec()?, [1.0, 2.0]);
/// # apex_gpu::Result::Ok(())
/// ```
///
/// It keeps the memory and the code that it uses. What it was given to read and write when it was
/// captured, it reads and writes at each launch: buffers with the content that they have by then,
/// plain arguments and uploaded values as they were.
pub struct Graph {
    stream: Stream,
    exec: Exec,
    nodes: usize,
    /// Reached when the last launch is done. Locked while the driver uses `exec`, of which it
    /// allows one call at a time.
    done: Mutex<Option<CudaEvent>>,
    kept: Recording,
}

impl fmt::Debug for Graph {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (plural, name) = (if self.nodes == 1 { "" } else { "s" }, &self.stream.device().name);
        write!(out, "Graph({} node{plural}, on {name})", self.nodes)
    }
}

/// A graph as it was captured or made.
pub(crate) struct Template(sys::CUgraph);

impl Drop for Template {
    fn drop(&mut self) {
        // SAFETY: it is a graph, and nobody else has it.
        let _ = unsafe { sys::cuGraphDestroy(self.0) };
    }
}

/// A graph that can be launched.
struct Exec(sys::CUgraphExec);

// SAFETY: a handle, which the driver accepts from any thread, one at a time.
unsafe impl Send for Exec {}
// SAFETY: as above; `Graph` locks around each use.
unsafe impl Sync for Exec {}

impl Drop for Exec {
    fn drop(&mut self) {
        // SAFETY: it is one, and nobody else has it.
        let _ = unsafe { sys::cuGraphExecDestroy(self.0) };
    }
}

impl Stream {
    /// Captures the work that `work` gives to this stream: nothing of it runs, and all of it
    /// becomes a graph. Returns what `work` returns too.
    ///
    /// Tensors compute on the device's own stream, `device.stream()`: that one is to be captured
    /// for them. Memory that is allocated meanwhile stays allocated while the graph or the program
    /// has it, and holds values once the graph has been launched. What other threads give to this
    /// stream meanwhile is captured too.
    ///
    /// ```
    /// # const PTX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels.ptx"));
    /// # let device = apex_gpu::Device::open(0)?;
    /// // saxpy(float a, unsigned n, const float* x, float* y)
    /// let saxpy = device.load_ptx(PTX)?.kernel("saxpy")?;
    /// let (x, mut y) = (device.upload(&[1.0f32, 2.0])?, device.zeros::<f32>(2)?);
    /// let launch = saxpy.over(2).arg(1.0f32).arg(2u32).arg(&x).arg(&mut y);
    /// // SAFETY: both buffers have two elements, at every launch of the graph.
    /// let (graph, ()) = device.stream().capture(|| unsafe { launch.launch() })?;
    /// (0..10).try_for_each(|_| graph.launch())?;
    /// assert_eq!(y.to_vec()?, [10.0, 20.0]);
    ///
    /// let error = device.stream().capture(|| x.to_vec()).unwrap_err();
    /// assert!(error.to_string().contains("read when the graph has been launched"));
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// The error of `work`; [`crate::Error::NotInCapture`] for what no graph can hold; what the
    /// driver says.
    pub fn capture<R>(&self, work: impl FnOnce() -> Result<R>) -> Result<(Graph, R)> {
        let (template, kept, value) = record(self, work)?;
        Ok((Graph::of(self, &template, kept)?, value))
    }
}

/// A capture that has begun: ends when it is dropped.
struct Capture<'s>(&'s Stream);

impl Capture<'_> {
    fn begin(stream: &Stream) -> Result<Capture<'_>> {
        stream.refuse_in_capture("a capture within a capture", "capture one after the other")?;
        let device = stream.device();
        device.bind()?;
        let recording = Recording::new(stream)?;
        // Relaxed: kernels may be loaded meanwhile, and other streams used.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        stream.cuda().begin_capture(mode).map_err(device.failed("cuStreamBeginCapture"))?;
        stream.exchange_recording(Some(recording));
        Ok(Capture(stream))
    }

    fn end(&self) -> Result<(Template, Recording)> {
        let device = self.0.device();
        let recording = self.0.exchange_recording(None);
        let mut graph = null_mut();
        // SAFETY: the stream lives, and `graph` is valid for writing.
        let ended = unsafe { sys::cuStreamEndCapture(self.0.raw(), &mut graph) }.result();
        let template = (!graph.is_null()).then(|| Template(graph));
        ended.map_err(device.failed("cuStreamEndCapture"))?;
        match (template, recording) {
            (Some(template), Some(recording)) => Ok((template, recording)),
            _ => Err(device.failed("cuStreamEndCapture")(DriverError(
                sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
            ))),
        }
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        // Where the work failed or panicked, the stream must go on.
        if self.0.is_captured() {
            let _ = self.end();
        }
    }
}

fn record<R>(stream: &Stream, work: impl FnOnce() -> Result<R>) -> Result<(Template, Recording, R)> {
    let capture = Capture::begin(stream)?;
    let value = work()?;
    let (template, mut kept) = capture.end()?;
    if !kept.freed.is_empty() {
        // Other streams may still use what the program dropped meanwhile.
        let device = stream.device();
        device.cuda.synchronize().map_err(device.failed("cuCtxSynchronize"))?;
        kept.freed.clear();
    }
    Ok((template, kept, value))
}

fn instantiate(stream: &Stream, template: &Template) -> Result<Exec> {
    let mut exec = null_mut();
    // SAFETY: the graph lives, and `exec` is valid for writing.
    let made = unsafe { sys::cuGraphInstantiateWithFlags(&mut exec, template.0, 0) }.result();
    made.map_err(stream.device().failed("cuGraphInstantiate"))?;
    Ok(Exec(exec))
}

impl Template {
    /// A graph without nodes.
    pub(crate) fn empty(stream: &Stream) -> Result<Template> {
        let mut graph = null_mut();
        // SAFETY: `graph` is valid for writing.
        let made = unsafe { sys::cuGraphCreate(&mut graph, 0) }.result();
        made.map_err(stream.device().failed("cuGraphCreate"))?;
        Ok(Template(graph))
    }

    pub(crate) fn raw(&self) -> sys::CUgraph {
        self.0
    }

    fn nodes(&self) -> usize {
        let mut nodes = 0;
        // SAFETY: the graph lives; without an array, the driver writes their number alone.
        let _ = unsafe { sys::cuGraphGetNodes(self.0, null_mut(), &mut nodes) };
        nodes
    }
}

impl Graph {
    /// What can be launched of a template whose nodes use what `kept` keeps.
    pub(crate) fn of(stream: &Stream, template: &Template, kept: Recording) -> Result<Graph> {
        let exec = instantiate(stream, template)?;
        let nodes = template.nodes();
        Ok(Graph { stream: stream.clone(), exec, nodes, done: Mutex::new(None), kept })
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    pub(crate) fn nodes(&self) -> usize {
        self.nodes
    }

    /// Launches the graph in the order of the stream that it was captured from. Returns at once.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let mut sums = device.upload(&[1u64, 2])?;
    /// let (clear, ()) = device.stream().capture(|| sums.clear())?;
    /// clear.launch()?;
    /// assert_eq!(sums.to_vec()?, [0, 0]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// The driver's error.
    pub fn launch(&self) -> Result<()> {
        self.launch_on(&self.stream)
    }

    /// As [`Graph::launch`], in the order of `stream`.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let mut sums = device.upload(&[1u64, 2])?;
    /// let (clear, ()) = device.stream().capture(|| sums.clear())?;
    /// clear.launch_on(&device.new_stream()?)?;
    /// assert_eq!(sums.to_vec()?, [0, 0]); // waits for that stream by itself
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// The driver's error; [`crate::Error::WrongDevice`]; [`crate::Error::NotInCapture`].
    pub fn launch_on(&self, stream: &Stream) -> Result<()> {
        let device = self.stream.device();
        check_stream(device, stream)?;
        stream.refuse_in_capture("the launch of a graph", "launch one after the other")?;
        device.bind()?;
        let mut done = self.done();
        for (memory, access) in &self.kept.memory {
            memory.order(stream, *access)?;
        }
        // SAFETY: graph and stream live, and the lock keeps other calls away from the graph. What
        // it uses is kept.
        let launched = unsafe { sys::cuGraphLaunch(self.exec.0, stream.raw()) }.result();
        launched.map_err(device.failed("cuGraphLaunch"))?;
        *done = Some(stream.cuda().record_event(None).map_err(device.failed("cuEventRecord"))?);
        Ok(())
    }

    /// Captures `work` in place of what the graph holds: with other arguments, other memory. Where
    /// the kinds of work and their order are the same, the driver only exchanges the arguments,
    /// which is much cheaper than making a graph. Waits for the last launch.
    ///
    /// ```
    /// # const PTX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels.ptx"));
    /// # let device = apex_gpu::Device::open(0)?;
    /// // saxpy(float a, unsigned n, const float* x, float* y)
    /// let saxpy = device.load_ptx(PTX)?.kernel("saxpy")?;
    /// let (x, mut y) = (device.upload(&[1.0f32])?, device.zeros::<f32>(1)?);
    /// let mut add = |factor: f32| {
    ///     // SAFETY: both buffers have one element.
    ///     unsafe { saxpy.over(1).arg(factor).arg(1u32).arg(&x).arg(&mut y).launch() }
    /// };
    /// let (mut graph, ()) = device.stream().capture(|| add(1.0))?;
    /// graph.launch()?;
    /// graph.update(|| add(10.0))?;
    /// graph.launch()?;
    /// assert_eq!(y.to_vec()?, [11.0]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// As [`Stream::capture`]. Then the graph is as it was.
    pub fn update<R>(&mut self, work: impl FnOnce() -> Result<R>) -> Result<R> {
        let (template, kept, value) = record(&self.stream, work)?;
        self.wait();
        let mut info = MaybeUninit::uninit();
        // SAFETY: both graphs live, nothing else uses them, and `info` is valid for writing.
        let updated = unsafe { sys::cuGraphExecUpdate_v2(self.exec.0, template.0, info.as_mut_ptr()) };
        if updated.result().is_err() {
            self.exec = instantiate(&self.stream, &template)?;
        }
        (self.nodes, self.kept) = (template.nodes(), kept);
        Ok(value)
    }

    fn done(&self) -> MutexGuard<'_, Option<CudaEvent>> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the last launch is done; an error if its work failed.
    pub(crate) fn wait_for_last(&self) -> Result<()> {
        match &*self.done() {
            Some(event) => event.synchronize().map_err(self.stream.device().failed("cuEventSynchronize")),
            None => Ok(()),
        }
    }

    /// Waits until the last launch is done, and with it all before: the driver lets no two launches
    /// of a graph overlap.
    fn wait(&self) {
        // An error of the work shows where its results are asked for.
        let _ = self.done().take().map(|event| event.synchronize());
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        self.wait();
    }
}
