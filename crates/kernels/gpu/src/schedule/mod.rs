//! Schedules: a graph from what each piece of work borrows.
//!
//! A program states its work in order. Each piece says by borrows what it reads and writes, and two
//! pieces run one after the other only where one of them writes bytes that the other uses
//! (`hazards`). The rest is up to the device: kernels run beside each other and beside copies.
//!
//! Invariants: every launch of a schedule leaves the bytes that its work in the stated order would;
//! memory, code and host memory of the work are kept; nobody sees host memory while a launch of the
//! schedule uses it, because that takes the schedule by mutable reference.

mod hazards;
mod node;

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytemuck::Pod;

use crate::buffer::{Buffer, View, ViewMut, check_stream, same_size};
use crate::device::Device;
use crate::error::Result;
use crate::graph::{Graph, Recording, Template};
use crate::launch::Launch;
use crate::memory::Memory;
use crate::pinned::Pinned;
use crate::stream::Stream;
use crate::uses::Access;
pub use hazards::Rule;
use hazards::{Hazards, Use};
use node::{Place, Work};

/// Work whose order follows from what it reads and writes, to be launched any number of times, see
/// [`Device::schedule`].
///
/// It keeps the memory and the code that it uses, and waits for uses of that memory by others as a
/// [`Graph`] does.
pub struct Schedule {
    /// (Dropped first: it waits for the last launch, which may use host memory.)
    graph: Graph,
    hosts: Vec<Box<dyn HostMemory>>,
    id: u64,
    edges: usize,
    longest: usize,
}

impl fmt::Debug for Schedule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (nodes, edges, longest) = (self.nodes(), self.edges, self.longest);
        write!(out, "Schedule({nodes} nodes, {edges} edges, at most {longest} in a row)")
    }
}

/// Pinned memory of the host that a schedule owns, see [`Scheduler::host`].
pub struct Host<T> {
    place: usize,
    schedule: u64,
    element: PhantomData<T>,
}

impl<T> Clone for Host<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Host<T> {}

impl<T> fmt::Debug for Host<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Host<{}>({})", std::any::type_name::<T>(), self.place)
    }
}

/// Pinned memory of any type.
trait HostMemory: Send {
    fn order(&mut self, stream: &Stream) -> Result<()>;
    fn any(&mut self) -> &mut dyn Any;
}

impl<T: Pod + Send + Sync> HostMemory for Pinned<T> {
    fn order(&mut self, stream: &Stream) -> Result<()> {
        Pinned::order(self, stream)
    }

    fn any(&mut self) -> &mut dyn Any {
        self
    }
}

/// Takes the work of a schedule that is being made, see [`Device::schedule`].
pub struct Scheduler {
    device: Device,
    stream: Stream,
    id: u64,
    hosts: Vec<Box<dyn HostMemory>>,
    kept: Recording,
    hazards: Hazards,
    work: Vec<Piece>,
    choose: Option<Box<dyn FnMut(usize) -> usize>>,
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Scheduler({} pieces of work, on {})", self.work.len(), self.device.name())
    }
}

/// A piece of work, and the pieces that it waits for.
struct Piece {
    work: Work,
    after: Vec<usize>,
}

impl Device {
    /// Makes a schedule of the work that `state` states. Nothing runs before
    /// [`Schedule::launch`].
    ///
    /// The work leaves what it would if it ran in the stated order, but pieces that do not touch
    /// the same bytes, or only read them, may run at the same time: kernels beside kernels, copies
    /// beside kernels. No streams or events are needed.
    ///
    /// ```
    /// # const PTX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels.ptx"));
    /// # let device = apex_gpu::Device::open(0)?;
    /// // saxpy(float a, unsigned n, const float* x, float* y)
    /// let saxpy = device.load_ptx(PTX)?.kernel("saxpy")?;
    /// let mut x = device.zeros::<f32>(2)?;
    /// let (mut y, mut z) = (device.zeros::<f32>(2)?, device.zeros::<f32>(2)?);
    /// let (mut schedule, (input, output)) = device.schedule(|s| {
    ///     let (input, output) = (s.host(device.pinned(2)?), s.host(device.pinned(2)?));
    ///     s.upload(&mut x, input)?;
    ///     // SAFETY: all buffers have two elements.
    ///     unsafe {
    ///         // These two run at the same time; both wait for the upload.
    ///         s.launch(saxpy.over(2).arg(2.0f32).arg(2u32).arg(&x).arg(&mut y))?;
    ///         s.launch(saxpy.over(2).arg(3.0f32).arg(2u32).arg(&x).arg(&mut z))?;
    ///         s.launch(saxpy.over(2).arg(1.0f32).arg(2u32).arg(&z).arg(&mut y))?;
    ///     }
    ///     s.download(&y, output)?;
    ///     Ok((input, output))
    /// })?;
    /// for step in 1..=2 {
    ///     schedule.host_mut(input)?.copy_from_slice(&[1.0, step as f32]);
    ///     schedule.launch()?;
    /// }
    /// assert_eq!(schedule.host(output)?, [13.0, 18.0]); // each launch adds to y and z
    /// assert_eq!(format!("{schedule:?}"), "Schedule(5 nodes, 5 edges, at most 4 in a row)");
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// What is written is borrowed mutably, so a kernel cannot be given the same buffer to read and
    /// to write:
    ///
    /// ```compile_fail,E0502
    /// # let device = apex_gpu::Device::open(0).unwrap();
    /// # let saxpy = device.load_ptx("").unwrap().kernel("saxpy").unwrap();
    /// let mut x = device.zeros::<f32>(2).unwrap();
    /// let made = device.schedule(|s| unsafe {
    ///     s.launch(saxpy.over(2).arg(2.0f32).arg(2u32).arg(&x).arg(&mut x))
    /// });
    /// ```
    ///
    /// # Errors
    /// The error of `state`; what the driver says.
    pub fn schedule<R>(&self, state: impl FnOnce(&mut Scheduler) -> Result<R>) -> Result<(Schedule, R)> {
        let mut scheduler = Scheduler::new(self)?;
        let value = state(&mut scheduler)?;
        Ok((scheduler.finish()?, value))
    }
}

impl Scheduler {
    fn new(device: &Device) -> Result<Scheduler> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let stream = device.stream().clone();
        device.core().bind()?;
        Ok(Scheduler {
            device: device.clone(),
            kept: Recording::new(&stream)?,
            stream,
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            hosts: Vec::new(),
            hazards: Hazards::default(),
            work: Vec::new(),
            choose: None,
        })
    }

    /// Gives pinned memory to the schedule, for [`Scheduler::upload`] and [`Scheduler::download`].
    /// Between launches, [`Schedule::host`] and [`Schedule::host_mut`] give it back for reading and
    /// writing.
    pub fn host<T: Pod + Send + Sync>(&mut self, memory: Pinned<T>) -> Host<T> {
        self.hosts.push(Box::new(memory));
        Host { place: self.hosts.len() - 1, schedule: self.id, element: PhantomData }
    }

    /// A launch of a kernel. The stream of the launch does not matter.
    ///
    /// # Safety
    /// As [`Launch::launch`], for every launch of the schedule. Of a buffer that it is given a part
    /// of, the kernel accesses that part only, and it uses no variable of its module that other
    /// work of the schedule writes.
    ///
    /// # Errors
    /// As [`Launch::launch`].
    pub unsafe fn launch(&mut self, launch: Launch<'_>) -> Result<()> {
        let given = launch.uses();
        let prepared = launch.prepare()?;
        check_stream(prepared.device().core(), &self.stream)?;
        let mut uses = Vec::new();
        for (memory, access, bytes) in given {
            self.kept.uses(&memory, access);
            uses.push(Use { bytes, access });
        }
        self.kept.keeps_code(prepared.function());
        self.add(Work::Kernel(Box::new(prepared)), &uses);
        Ok(())
    }

    /// Sets all bytes to zero.
    ///
    /// # Errors
    /// [`crate::Error::WrongDevice`].
    pub fn clear<'b, T: Pod>(&mut self, buffer: impl Into<ViewMut<'b, T>>) -> Result<()> {
        let to = self.target(&buffer.into())?;
        self.add(Work::Clear(to.place), &[to.used]);
        Ok(())
    }

    /// Copies as many elements.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let (from, mut to) = (device.upload(&[1, 2, 3])?, device.zeros::<i32>(4)?);
    /// let (mut schedule, ()) = device.schedule(|s| {
    ///     s.copy(to.slice_mut(..2), from.slice(1..))?; // these two at the same time
    ///     s.copy(to.slice_mut(2..), from.slice(..2))
    /// })?;
    /// schedule.launch()?;
    /// assert_eq!(to.to_vec()?, [2, 3, 1, 2]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::SizeMismatch`], [`crate::Error::WrongDevice`].
    pub fn copy<'t, 'f, T: Pod>(
        &mut self,
        to: impl Into<ViewMut<'t, T>>,
        from: impl Into<View<'f, T>>,
    ) -> Result<()> {
        let (to, from) = (to.into(), from.into());
        same_size("a buffer", from.len(), "a buffer", to.len())?;
        let (to, from) = (self.target(&to)?, self.source(&from)?);
        self.add(Work::Copy { to: to.place, from: from.place }, &[to.used, from.used]);
        Ok(())
    }

    /// Copies host memory of the schedule to the device.
    ///
    /// # Errors
    /// [`crate::Error::SizeMismatch`], [`crate::Error::WrongDevice`].
    ///
    /// # Panics
    /// If the host memory is of another schedule.
    pub fn upload<'b, T: Pod + Send + Sync>(
        &mut self,
        to: impl Into<ViewMut<'b, T>>,
        from: Host<T>,
    ) -> Result<()> {
        let to = to.into();
        let (start, len) = self.pinned(from);
        same_size("pinned memory", len, "a buffer", to.len())?;
        let to = self.target(&to)?;
        let place = Place { address: start, bytes: to.place.bytes, is_host: true };
        let read = Use { bytes: place.range(), access: Access::Read };
        self.add(Work::Copy { to: to.place, from: place }, &[to.used, read]);
        Ok(())
    }

    /// Copies device memory to host memory of the schedule.
    ///
    /// # Errors
    /// [`crate::Error::SizeMismatch`], [`crate::Error::WrongDevice`].
    ///
    /// # Panics
    /// If the host memory is of another schedule.
    pub fn download<'b, T: Pod + Send + Sync>(
        &mut self,
        from: impl Into<View<'b, T>>,
        to: Host<T>,
    ) -> Result<()> {
        let from = from.into();
        let (start, len) = self.pinned(to);
        same_size("a buffer", from.len(), "pinned memory", len)?;
        let from = self.source(&from)?;
        let place = Place { address: start, bytes: from.place.bytes, is_host: true };
        let written = Use { bytes: place.range(), access: Access::Write };
        self.add(Work::Copy { to: place, from: from.place }, &[written, from.used]);
        Ok(())
    }

    /// Leaves out a rule of the order.
    #[doc(hidden)]
    pub fn without(&mut self, rule: Rule) {
        self.hazards.without(rule);
    }

    /// Has nodes added to the graph in an order of the caller's: `choose` gets the number of pieces
    /// that may be next and returns the place of one of them. (A device that runs nodes in the
    /// order of their addition runs them in this one, so that a missing edge shows.)
    #[doc(hidden)]
    pub fn choose(&mut self, choose: impl FnMut(usize) -> usize + 'static) {
        self.choose = Some(Box::new(choose));
    }

    fn add(&mut self, work: Work, uses: &[Use]) {
        if !work.is_empty() {
            let after = self.hazards.add(uses);
            self.work.push(Piece { work, after });
        }
    }

    fn target<T: Pod>(&mut self, view: &ViewMut<'_, T>) -> Result<Used> {
        let (buffer, address) = view.place();
        self.used(buffer, address, view.len(), Access::Write)
    }

    fn source<T: Pod>(&mut self, view: &View<'_, T>) -> Result<Used> {
        let (buffer, address) = view.parts();
        self.used(buffer, address, view.len(), Access::Read)
    }

    fn used<T: Pod>(&mut self, buffer: &Buffer<T>, address: u64, len: usize, access: Access) -> Result<Used> {
        check_stream(buffer.device().core(), &self.stream)?;
        let memory: &Arc<Memory> = buffer.memory();
        self.kept.uses(memory, access);
        let place = Place { address, bytes: len * size_of::<T>(), is_host: false };
        let used = Use { bytes: place.range(), access };
        Ok(Used { place, used })
    }

    /// Address and number of elements of host memory.
    fn pinned<T: Pod + Send + Sync>(&mut self, host: Host<T>) -> (u64, usize) {
        let memory = pinned(&mut self.hosts, self.id, host);
        (memory.start as u64, memory.len())
    }

    fn finish(mut self) -> Result<Schedule> {
        let mut choose = self.choose.take().unwrap_or_else(|| Box::new(|_| 0));
        let after: Vec<&[usize]> = self.work.iter().map(|piece| &*piece.after).collect();
        let order = ordered(&after, &mut choose);
        let edges = after.iter().map(|after| after.len()).sum();
        let longest = longest(&after);
        let template = Template::empty(&self.stream)?;
        let mut nodes = vec![std::ptr::null_mut(); self.work.len()];
        for piece in order {
            let Piece { work, after } = &mut self.work[piece];
            let before: Vec<_> = after.iter().map(|piece| nodes[*piece]).collect();
            nodes[piece] = work.add_to(&template, &before, &self.device)?;
        }
        let graph = Graph::of(&self.stream, &template, self.kept)?;
        Ok(Schedule { graph, hosts: self.hosts, id: self.id, edges, longest })
    }
}

/// A use of a buffer, and where it is.
struct Used {
    place: Place,
    used: Use,
}

/// The memory behind a handle.
fn pinned<T: Pod + Send + Sync>(hosts: &mut [Box<dyn HostMemory>], id: u64, host: Host<T>) -> &mut Pinned<T> {
    assert_eq!(host.schedule, id, "the host memory is of another schedule");
    hosts[host.place].any().downcast_mut().expect("a handle has the type of its memory")
}

/// The pieces in an order that respects what they wait for.
fn ordered(after: &[&[usize]], choose: &mut dyn FnMut(usize) -> usize) -> Vec<usize> {
    let mut dependents = vec![Vec::new(); after.len()];
    let mut missing: Vec<usize> = after.iter().map(|after| after.len()).collect();
    for (piece, after) in after.iter().enumerate() {
        after.iter().for_each(|before| dependents[*before].push(piece));
    }
    let mut ready: Vec<usize> = (0..after.len()).filter(|piece| missing[*piece] == 0).collect();
    let mut order = Vec::with_capacity(after.len());
    while !ready.is_empty() {
        let piece = ready.remove(choose(ready.len()));
        order.push(piece);
        for &dependent in &dependents[piece] {
            missing[dependent] -= 1;
            if missing[dependent] == 0 {
                ready.push(dependent);
            }
        }
    }
    order
}

/// The most pieces of which each waits for the one before.
fn longest(after: &[&[usize]]) -> usize {
    let mut lengths: Vec<usize> = Vec::with_capacity(after.len());
    for after in after {
        let before = after.iter().map(|piece| lengths[*piece]).max().unwrap_or(0);
        lengths.push(before + 1);
    }
    lengths.into_iter().max().unwrap_or(0)
}

impl Schedule {
    /// Launches the work, in the order of the device's own stream. Returns at once.
    ///
    /// # Errors
    /// The driver's error; [`crate::Error::NotInCapture`].
    pub fn launch(&mut self) -> Result<()> {
        let stream = self.graph.stream().clone();
        self.launch_on(&stream)
    }

    /// As [`Schedule::launch`], in the order of `stream`.
    ///
    /// # Errors
    /// As [`Schedule::launch`]; [`crate::Error::WrongDevice`].
    pub fn launch_on(&mut self, stream: &Stream) -> Result<()> {
        self.hosts.iter_mut().try_for_each(|host| host.order(stream))?;
        self.graph.launch_on(stream)
    }

    /// Number of pieces of work.
    pub fn nodes(&self) -> usize {
        self.graph.nodes()
    }

    /// The most pieces of work of which each waits for the one before. As many pieces as there are
    /// mean that nothing can run at the same time.
    pub fn longest_chain(&self) -> usize {
        self.longest
    }

    /// Host memory of the schedule. Waits for the last launch.
    ///
    /// It cannot be held over a launch:
    ///
    /// ```compile_fail,E0499
    /// # let device = apex_gpu::Device::open(0).unwrap();
    /// # let (mut x, memory) = (device.zeros::<f32>(2).unwrap(), device.pinned(2).unwrap());
    /// let (mut schedule, input) = device.schedule(|s| {
    ///     let input = s.host(memory);
    ///     s.upload(&mut x, input)?;
    ///     Ok(input)
    /// }).unwrap();
    /// let values: &mut [f32] = schedule.host_mut(input).unwrap();
    /// schedule.launch().unwrap();
    /// values[0] = 1.0;
    /// ```
    ///
    /// # Errors
    /// An error of the work before it.
    ///
    /// # Panics
    /// If the host memory is of another schedule.
    pub fn host<T: Pod + Send + Sync>(&mut self, host: Host<T>) -> Result<&[T]> {
        Ok(&*self.host_mut(host)?)
    }

    /// Host memory of the schedule, to write. Waits for the last launch.
    ///
    /// # Errors
    /// As [`Schedule::host`].
    ///
    /// # Panics
    /// If the host memory is of another schedule.
    pub fn host_mut<T: Pod + Send + Sync>(&mut self, host: Host<T>) -> Result<&mut [T]> {
        let memory = pinned(&mut self.hosts, self.id, host);
        self.graph.wait_for_last()?;
        memory.as_mut_slice()
    }
}
