//! Streams and events: the order of work.
//!
//! Work on one stream runs in order. Work on different streams is ordered only where they touch the
//! same buffer (see [`Buffer`](crate::Buffer)) or one waits for an event of the other.
//! Nothing here uses CUDA's legacy default stream, so nothing synchronises by accident.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cudarc::driver::{CudaEvent, CudaStream, sys};

use crate::device::Core;
use crate::error::{Error, Result};
use crate::graph::Recording;

/// A queue of work on a device. Cheap to clone: clones are the same stream.
///
/// ```
/// let device = apex_gpu::Device::open(0)?;
/// let stream = device.new_stream()?;
/// let buffer = device.upload_on(&[1.0f32, 2.0, 3.0], &stream)?;
/// stream.synchronize()?;
/// # assert_eq!(buffer.to_vec()?, [1.0, 2.0, 3.0]);
/// # apex_gpu::Result::Ok(())
/// ```
#[derive(Clone)]
pub struct Stream(Arc<Inner>);

struct Inner {
    device: Arc<Core>,
    cuda: Arc<CudaStream>,
    /// Not 0, and no other stream's in this process.
    id: u64,
    /// Whether there is a recording: work is put into a graph, and none is done.
    captured: AtomicBool,
    recording: Mutex<Option<Recording>>,
}

impl fmt::Debug for Stream {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Stream({} on {})", self.0.id, self.0.device.name)
    }
}

impl PartialEq for Stream {
    fn eq(&self, other: &Stream) -> bool {
        self.0.id == other.0.id
    }
}

impl Eq for Stream {}

impl Stream {
    /// A new stream. It takes part in no implicit synchronisation.
    pub(crate) fn new(device: &Arc<Core>) -> Result<Stream> {
        Ok(Stream::over(device, device.cuda.new_stream().map_err(device.failed("cuStreamCreate"))?))
    }

    /// A stream of somebody else, who destroys it.
    ///
    /// # Safety
    /// As [`Device::borrow_stream`](crate::Device::borrow_stream).
    pub(crate) unsafe fn borrow(device: &Arc<Core>, stream: sys::CUstream) -> Stream {
        // SAFETY: the caller says so.
        Stream::over(device, unsafe { device.cuda.wrap_borrowed_stream(stream) })
    }

    fn over(device: &Arc<Core>, cuda: Arc<CudaStream>) -> Stream {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Stream(Arc::new(Inner {
            device: device.clone(),
            cuda,
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            captured: AtomicBool::new(false),
            recording: Mutex::new(None),
        }))
    }

    /// Whether work that it is given becomes part of a graph, see [`Stream::capture`].
    #[inline]
    pub(crate) fn is_captured(&self) -> bool {
        self.0.captured.load(Ordering::Acquire)
    }

    /// Notes something for the graph that is being captured, if one is.
    pub(crate) fn recording<R>(&self, note: impl FnOnce(&mut Recording) -> R) -> Option<R> {
        self.0.recording.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(note)
    }

    /// Begins or ends a recording; returns the one before.
    pub(crate) fn exchange_recording(&self, recording: Option<Recording>) -> Option<Recording> {
        let mut place = self.0.recording.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.captured.store(recording.is_some(), Ordering::Release);
        std::mem::replace(&mut *place, recording)
    }

    /// The stream to allocate on for work in this one: another one while this one is captured.
    pub(crate) fn for_allocations(&self) -> Stream {
        let other = if self.is_captured() { self.recording(|recording| recording.allocator()) } else { None };
        other.unwrap_or_else(|| self.clone())
    }

    /// # Errors
    /// [`Error::NotInCapture`] while this stream is captured.
    pub(crate) fn refuse_in_capture(&self, what: &'static str, instead: &'static str) -> Result<()> {
        match self.is_captured() {
            false => Ok(()),
            true => Err(Error::NotInCapture { what, instead }),
        }
    }

    pub(crate) fn device(&self) -> &Arc<Core> {
        &self.0.device
    }

    /// cudarc's stream, for what this crate does not offer.
    ///
    /// What is done through it on buffers of this crate is not seen by their ordering between
    /// streams: synchronise around it.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let stream = device.new_stream()?;
    /// let handle = stream.cuda().cu_stream(); // the `CUstream` that a C library wants
    /// assert!(!handle.is_null());
    /// # apex_gpu::Result::Ok(())
    /// ```
    pub fn cuda(&self) -> &Arc<CudaStream> {
        &self.0.cuda
    }

    pub(crate) fn raw(&self) -> sys::CUstream {
        self.0.cuda.cu_stream()
    }

    pub(crate) fn id(&self) -> u64 {
        self.0.id
    }

    /// Waits until all work on this stream is done.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let stream = device.new_stream()?;
    /// let buffer = device.zeros_on::<f32>(1000, &stream)?;
    /// stream.synchronize()?; // now they are zero
    /// # drop(buffer);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// An error of that work: a kernel that accessed memory it must not, for instance.
    pub fn synchronize(&self) -> Result<()> {
        self.refuse_in_capture("waiting for the stream", "wait when the graph has been launched")?;
        self.0.cuda.synchronize().map_err(self.device().failed("cuStreamSynchronize"))
    }

    /// Marks this place in the stream. Events can be waited for, and tell the time between them.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let stream = device.new_stream()?;
    /// let buffer = device.zeros_on::<f32>(1000, &stream)?;
    /// let cleared = stream.record()?;
    /// cleared.synchronize()?; // waits for the clearing, not for what the stream is given later
    /// # drop(buffer);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// If the driver has no more events.
    pub fn record(&self) -> Result<Event> {
        let flags = sys::CUevent_flags::CU_EVENT_DEFAULT;
        let cuda = self.0.cuda.record_event(Some(flags)).map_err(self.device().failed("cuEventRecord"))?;
        Ok(Event { device: self.device().clone(), cuda })
    }

    /// Lets work that is given to this stream from now on wait until `event` has been reached.
    /// Returns at once. The event may be of another device.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let (first, second) = (device.new_stream()?, device.new_stream()?);
    /// second.wait(&first.record()?)?;
    /// // What `second` is given from here on runs after all that `first` had been given.
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// The driver's error.
    pub fn wait(&self, event: &Event) -> Result<()> {
        self.0.cuda.wait(&event.cuda).map_err(self.device().failed("cuStreamWaitEvent"))
    }

    /// Lets work that is given to this stream from now on wait for all that `other` has been given.
    pub(crate) fn join(&self, other: &Stream) -> Result<()> {
        let waited = match other.recording(|recording| recording.before()) {
            // It does nothing now; what it did before the capture is waited for.
            Some(before) => self.0.cuda.wait(&before),
            None => {
                let event =
                    other.0.cuda.record_event(None).map_err(other.device().failed("cuEventRecord"))?;
                self.0.cuda.wait(&event)
            }
        };
        waited.map_err(self.device().failed("cuStreamWaitEvent"))
    }
}

/// A place in a stream, see [`Stream::record`].
///
/// ```
/// # let device = apex_gpu::Device::open(0)?;
/// let start = device.stream().record()?;
/// let buffer = device.upload(&[0.5f32; 1000])?;
/// let end = device.stream().record()?;
/// end.synchronize()?;
/// assert!(start.is_reached()?);
/// println!("{} bytes in {:?}", buffer.bytes(), end.since(&start)?);
/// # apex_gpu::Result::Ok(())
/// ```
pub struct Event {
    device: Arc<Core>,
    cuda: CudaEvent,
}

impl fmt::Debug for Event {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Event(on {})", self.device.name)
    }
}

impl Event {
    /// Waits until the device has reached it.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let event = device.stream().record()?;
    /// event.synchronize()?;
    /// assert!(event.is_reached()?);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// An error of the work before it.
    pub fn synchronize(&self) -> Result<()> {
        self.cuda.synchronize().map_err(self.device.failed("cuEventSynchronize"))
    }

    /// Whether the device has reached it. Returns at once.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let event = device.stream().record()?;
    /// while !event.is_reached()? {
    ///     std::thread::yield_now(); // or something useful
    /// }
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// An error of the work before it.
    pub fn is_reached(&self) -> Result<bool> {
        self.cuda.try_is_complete().map_err(self.device.failed("cuEventQuery"))
    }

    /// Device time from `earlier` to this event; waits until both have been reached. The driver
    /// counts in steps of about half a microsecond. Zero if `earlier` was reached later.
    ///
    /// ```
    /// let device = apex_gpu::Device::open(0)?;
    /// let before = device.stream().record()?;
    /// let zeros = device.zeros::<f32>(1 << 20)?;
    /// let after = device.stream().record()?;
    /// println!("clearing 4 MiB took {:?}", after.since(&before)?);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// If the events are of two devices, or an error of the work before them.
    pub fn since(&self, earlier: &Event) -> Result<Duration> {
        let elapsed = earlier.cuda.elapsed_ms(&self.cuda);
        let milliseconds = elapsed.map_err(self.device.failed("cuEventElapsedTime"))?;
        Ok(Duration::from_secs_f64(f64::from(milliseconds).max(0.0) / 1e3))
    }
}
