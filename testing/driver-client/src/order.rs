//! Random programs whose results tell whether calls reached the driver in the order in which they
//! were made.
//!
//! A program works on some buffers in several streams, and its calls come from several threads, one
//! at a time. Every step changes a buffer in a way that does not commute with others, so a call
//! that overtakes another leaves a wrong value. What CUDA promises no order for does not happen:
//! before a stream touches a buffer that another one touched last, it waits for an event, or both
//! are ordered by the legacy stream.

use crate::affine::{LARGE, PTX, VALUES, launch, launch_threads, launch_with_attributes, launch_with_buffer};
use crate::driver::{check, context, cuda, function, kernel, module, stream};
use apex_random::Random;
use cuda_abi::types::*;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};

const BUFFERS: usize = 5;
const STREAMS: usize = 4;
const THREADS: usize = 3;
/// Sequences of launches that are made in a row.
const SEQUENCES: usize = 4;

/// A thread that makes calls for the program, one after the other.
struct Caller(Sender<Box<dyn FnOnce() + Send>>);

impl Caller {
    fn new(context: CUcontext) -> Caller {
        let (sender, receiver) = channel::<Box<dyn FnOnce() + Send>>();
        let context = context as usize;
        std::thread::spawn(move || {
            check(cuda!(cuCtxSetCurrent(context as CUcontext)));
            receiver.iter().for_each(|call| call());
        });
        Caller(sender)
    }

    /// Makes calls in this thread, and waits until it has.
    fn does(&self, calls: impl FnOnce() + Send + 'static) {
        let (done, is_done) = channel();
        let work = Box::new(move || {
            calls();
            done.send(()).expect("somebody waits");
        });
        self.0.send(work).expect("the thread runs");
        is_done.recv().expect("no call failed");
    }
}

#[derive(Clone, Copy)]
struct Stream {
    handle: usize,
    /// Whether it is ordered with the legacy stream.
    is_blocking: bool,
}

struct Buffer {
    address: CUdeviceptr,
    /// Its content once everything is done.
    values: [u32; VALUES],
    /// The stream that touched it last.
    last: Option<usize>,
}

/// The counter of host functions.
static COUNTED: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" fn counts(amount: *mut c_void) {
    COUNTED.fetch_add(amount as u64, Ordering::Relaxed);
}

struct Program {
    random: Random,
    affine: usize,
    mixed: usize,
    /// `affine` as a library's kernel.
    kernel: usize,
    streams: Vec<Stream>,
    buffers: Vec<Buffer>,
    event: usize,
    callers: Vec<Caller>,
    counted: u64,
    /// Whether some steps are many launches in a row.
    has_bursts: bool,
}

/// Runs `count` programs of `steps` steps each, the first of them made from `seed`. With bursts,
/// some steps are many launches in a row.
pub fn random_programs(seed: u64, count: usize, steps: usize, has_bursts: bool) {
    let context = context();
    let module = module(PTX);
    let [affine, mixed] = [c"affine", c"mixed"].map(|name| function(module, name) as usize);
    let functions = [affine, mixed, kernel(PTX, c"affine") as usize];
    let callers = (0..THREADS).map(|_| Caller::new(context)).collect();
    let mut program = Program { has_bursts, ..Program::new(functions, callers) };
    for number in 0..count as u64 {
        program.random = Random::new(seed + number);
        for step in 0..steps {
            program.step();
            if program.random.index(40) == 0 {
                program.compare(&format!("program {} after step {step}", seed + number));
            }
        }
        program.compare(&format!("program {} at its end", seed + number));
    }
    println!("{count} programs as they should be");
}

impl Program {
    fn new([affine, mixed, kernel]: [usize; 3], callers: Vec<Caller>) -> Program {
        let legacy = Stream { handle: 0, is_blocking: true };
        let own = (1..STREAMS).map(|at| {
            let is_blocking = at % 2 == 1;
            Stream {
                handle: stream(if is_blocking { 0 } else { CU_STREAM_NON_BLOCKING }) as usize,
                is_blocking,
            }
        });
        let streams = std::iter::once(legacy).chain(own).collect();
        let buffers = (0..BUFFERS).map(|_| {
            let mut address = 0;
            check(cuda!(cuMemAlloc_v2(&mut address, VALUES * 4)));
            check(cuda!(cuMemsetD32_v2(address, 1, VALUES)));
            Buffer { address, values: [1; VALUES], last: None }
        });
        let buffers = buffers.collect();
        // Streams that do not wait for the default one would find buffers not yet filled.
        check(cuda!(cuCtxSynchronize()));
        let mut event = null_mut();
        check(cuda!(cuEventCreate(&mut event, CU_EVENT_DISABLE_TIMING)));
        let event = event as usize;
        Program {
            random: Random::new(1),
            affine,
            mixed,
            kernel,
            streams,
            buffers,
            event,
            callers,
            counted: 0,
            has_bursts: false,
        }
    }

    /// Makes calls in one of the threads.
    fn does(&mut self, calls: impl FnOnce() + Send + 'static) {
        let at = self.random.index(self.callers.len());
        self.callers[at].does(calls);
    }

    /// A stream for the next call on a buffer, made to wait for the one that touched the buffer
    /// last.
    fn turn_to(&mut self, buffer: usize) -> usize {
        let at = self.random.index(self.streams.len());
        self.order_after_last(buffer, at);
        at
    }

    fn order_after_last(&mut self, buffer: usize, at: usize) {
        let (to, last) = (self.streams[at], self.buffers[buffer].last.replace(at));
        let Some(from) = last.filter(|&last| last != at).map(|last| self.streams[last]) else { return };
        let is_implied = (from.handle == 0 && to.is_blocking) || (to.handle == 0 && from.is_blocking);
        if !is_implied {
            self.wait_for_event(from, to);
        }
    }

    fn wait_for_event(&mut self, from: Stream, to: Stream) {
        let event = self.event;
        self.does(move || {
            check(cuda!(cuEventRecord(event as CUevent, from.handle as CUstream)));
        });
        self.does(move || {
            check(cuda!(cuStreamWaitEvent(to.handle as CUstream, event as CUevent, 0)));
        });
    }

    fn step(&mut self) {
        let buffer = self.random.index(BUFFERS);
        match self.random.index(100) {
            0..44 => self.launch_affine(buffer),
            44..50 if self.has_bursts => self.burst(),
            44..50 => self.launch_affine(buffer),
            50..60 => self.launch_mixed(buffer),
            60..68 => self.set(buffer),
            68..78 => self.copy(buffer),
            78..82 => self.work_in_passing_memory(buffer),
            82..85 => self.capture(buffer),
            85..88 => self.count_on_the_host(buffer),
            88..91 => self.replace_stream(),
            91..94 => self.ask(),
            94..96 => self.change_attribute(),
            96 => self.launch_as_attributes_allow(buffer),
            _ => self.wait(buffer),
        }
    }

    fn launch_affine(&mut self, buffer: usize) {
        let stream = self.turn_to(buffer);
        let launch = self.affine_on(buffer, self.streams[stream].handle);
        self.does(launch);
    }

    /// Launches of one thread in a row: one of a few sequences of kernels, again and again, with
    /// other parameters, into one stream or two. A memset stands between two of them.
    fn burst(&mut self) {
        let buffers: [usize; 2] = std::array::from_fn(|_| self.random.index(BUFFERS));
        let [first, other] = std::array::from_fn(|_| self.random.index(self.streams.len()));
        let is_divided = buffers[0] != buffers[1] && self.random.index(3) == 0;
        let ats = [first, if is_divided { other } else { first }];
        buffers.into_iter().zip(ats).for_each(|(buffer, at)| self.order_after_last(buffer, at));
        let streams = ats.map(|at| self.streams[at].handle);
        let (affine, addresses) = (self.affine, buffers.map(|buffer| self.buffers[buffer].address));
        let mut sequence = Random::new(1 + self.random.index(SEQUENCES) as u64);
        let kernels: Vec<_> = (0..10 + sequence.index(60)).map(|_| sequence.index(6)).collect();
        let rounds = 4 + self.random.index(4);
        let set_at = self.random.index(2 * rounds * kernels.len());
        let mut calls = Vec::new();
        for (number, &kernel) in std::iter::repeat_n(&kernels, rounds).flatten().enumerate() {
            // Of two buffers, and with all threads or fewer.
            let (which, threads) = (kernel % 2, VALUES >> (kernel / 2));
            // Some launches have the parameters that they had a round before.
            let is_same = self.random.index(2) == 0;
            let number_of = if is_same { number % kernels.len() } else { number };
            let (a, b) = (2 * number_of as u32 + 3, number_of as u32);
            let values = &mut self.buffers[buffers[which]].values;
            values[..threads].iter_mut().for_each(|value| *value = value.wrapping_mul(a).wrapping_add(b));
            let is_set = number == set_at;
            if is_set {
                *values = [b; VALUES];
            }
            calls.push((addresses[which], streams[which], [a, b], threads as u32, is_set));
        }
        self.does(move || {
            for (address, stream, [a, b], threads, is_set) in calls {
                let (mut p, mut a, mut b, mut delay) = (address, a, b, 0_u32);
                let mut pointers: [*mut c_void; 4] =
                    [(&raw mut p).cast(), (&raw mut a).cast(), (&raw mut b).cast(), (&raw mut delay).cast()];
                check(launch_threads(affine, stream, threads, &mut pointers));
                if is_set {
                    check(cuda!(cuMemsetD32Async(address, b, VALUES, stream as CUstream)));
                }
                (p, a, b, delay) = (0, 0, 0, 0);
                std::hint::black_box((p, a, b, delay));
            }
        });
    }

    /// A launch that multiplies and adds, on a stream; the values that it leaves are noted.
    fn affine_on(&mut self, buffer: usize, stream: usize) -> impl FnOnce() + Send + use<> {
        let a = self.random.bits() as u32 | 1;
        let b = self.random.bits() as u32;
        let delay = if self.random.index(4) == 0 { self.random.index(3000) as u32 } else { 0 };
        let form = self.random.index(3);
        let held = &mut self.buffers[buffer];
        held.values.iter_mut().for_each(|value| *value = value.wrapping_mul(a).wrapping_add(b));
        let (address, function) = (held.address, self.affine);
        move || {
            let (mut p, mut a, mut b, mut delay) = (address, a, b, delay);
            let mut pointers: [*mut c_void; 4] =
                [(&raw mut p).cast(), (&raw mut a).cast(), (&raw mut b).cast(), (&raw mut delay).cast()];
            check(match form {
                0 => launch_with_buffer(function, stream, (p, a, b, delay)),
                1 => launch_with_attributes(function, stream, &mut pointers),
                _ => launch(function, stream, &mut pointers),
            });
            // What the launch was given may change as soon as the call is over.
            (p, a, b, delay) = (0, 0, 0, 0);
            std::hint::black_box((p, a, b, delay));
        }
    }

    fn launch_mixed(&mut self, buffer: usize) {
        let stream = self.turn_to(buffer);
        let [x, y, c, b] = std::array::from_fn(|_| self.random.bits() as u32);
        let (x, y) = (x as u8 | 1, y as u16);
        let held = &mut self.buffers[buffer];
        for value in &mut held.values {
            let inner = value.wrapping_mul(x.into()).wrapping_add(y.into());
            *value = inner.wrapping_mul(c).wrapping_add(b);
        }
        let (address, function, stream) = (held.address, self.mixed, self.streams[stream].handle);
        self.does(move || {
            let (mut x, mut p, mut y, mut b) = (x, address, y, b);
            let mut large = [0u8; LARGE];
            large[LARGE - 4..].copy_from_slice(&c.to_le_bytes());
            let mut pointers: [*mut c_void; 5] = [
                (&raw mut x).cast(),
                (&raw mut p).cast(),
                (&raw mut y).cast(),
                large.as_mut_ptr().cast(),
                (&raw mut b).cast(),
            ];
            check(launch(function, stream, &mut pointers));
            large.fill(0xee);
            std::hint::black_box(&large);
        });
    }

    fn set(&mut self, buffer: usize) {
        let stream = self.turn_to(buffer);
        let value = self.random.bits() as u32;
        let width = self.random.index(3);
        let held = &mut self.buffers[buffer];
        let (byte, half) = (value as u8, value as u16);
        held.values = [match width {
            0 => u32::from_ne_bytes([byte; 4]),
            1 => u32::from(half) << 16 | u32::from(half),
            _ => value,
        }; VALUES];
        let (address, stream) = (held.address, self.streams[stream].handle);
        self.does(move || {
            let stream = stream as CUstream;
            check(match width {
                0 => cuda!(cuMemsetD8Async(address, byte, VALUES * 4, stream)),
                1 => cuda!(cuMemsetD16Async(address, half, VALUES * 2, stream)),
                _ => cuda!(cuMemsetD32Async(address, value, VALUES, stream)),
            });
        });
    }

    fn copy(&mut self, to: usize) {
        let from = self.random.index(BUFFERS);
        let stream = self.turn_to(to);
        self.order_after_last(from, stream);
        self.buffers[to].values = self.buffers[from].values;
        let [to, from] = [to, from].map(|at| self.buffers[at].address);
        let stream = self.streams[stream].handle;
        self.does(move || {
            check(cuda!(cuMemcpyDtoDAsync_v2(to, from, VALUES * 4, stream as CUstream)));
        });
    }

    /// Copies a buffer into memory that is allocated for that, and back, and frees the memory.
    fn work_in_passing_memory(&mut self, buffer: usize) {
        let at = self.turn_to(buffer);
        let stream = self.streams[at].handle;
        let address = self.buffers[buffer].address;
        let launch = self.affine_on(buffer, stream);
        let is_ordered = self.random.index(2) == 0;
        self.does(move || {
            let (mut passing, stream) = (0, stream as CUstream);
            check(if is_ordered {
                cuda!(cuMemAllocAsync(&mut passing, VALUES * 4, stream))
            } else {
                cuda!(cuMemAlloc_v2(&mut passing, VALUES * 4))
            });
            launch();
            check(cuda!(cuMemcpyDtoDAsync_v2(passing, address, VALUES * 4, stream)));
            check(cuda!(cuMemsetD8Async(address, 0xff, VALUES * 4, stream)));
            check(cuda!(cuMemcpyDtoDAsync_v2(address, passing, VALUES * 4, stream)));
            check(if is_ordered {
                cuda!(cuMemFreeAsync(passing, stream))
            } else {
                cuda!(cuMemFree_v2(passing))
            });
        });
    }

    /// Captures two launches, and launches the graph after a launch that may still wait.
    fn capture(&mut self, buffer: usize) {
        let at = 1 + self.random.index(STREAMS - 1);
        self.order_after_last(buffer, at);
        let stream = self.streams[at].handle;
        let before = self.affine_on(buffer, stream);
        let launches = [(); 2].map(|()| self.affine_on(buffer, stream));
        self.does(move || {
            let (mut graph, mut executable, stream) = (null_mut(), null_mut(), stream as CUstream);
            check(cuda!(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)));
            launches.into_iter().for_each(|launch| launch());
            check(cuda!(cuStreamEndCapture(stream, &mut graph)));
            check(cuda!(cuGraphInstantiateWithFlags(&mut executable, graph, 0)));
            before();
            check(cuda!(cuGraphLaunch(executable, stream)));
            check(cuda!(cuGraphExecDestroy(executable)));
            check(cuda!(cuGraphDestroy(graph)));
        });
    }

    /// Queues a function of the host after a launch; the count is compared when everything is done.
    fn count_on_the_host(&mut self, buffer: usize) {
        self.launch_affine(buffer);
        let last = self.buffers[buffer].last.expect("it was launched into");
        let stream = self.streams[last].handle;
        let amount = self.random.index(1000);
        self.counted += amount as u64;
        self.does(move || {
            check(cuda!(cuLaunchHostFunc(stream as CUstream, Some(counts), amount as *mut c_void)));
        });
    }

    /// Destroys a stream, whose work goes on, and makes another in its place.
    fn replace_stream(&mut self) {
        let at = 1 + self.random.index(STREAMS - 1);
        let old = self.streams[at];
        for buffer in 0..BUFFERS {
            if self.buffers[buffer].last == Some(at) {
                let to = (at + 1) % STREAMS;
                self.buffers[buffer].last = Some(to);
                self.wait_for_event(old, self.streams[to]);
            }
        }
        self.does(move || check(cuda!(cuStreamDestroy_v2(old.handle as CUstream))));
        let flags = if old.is_blocking { 0 } else { CU_STREAM_NON_BLOCKING };
        self.streams[at].handle = stream(flags) as usize;
    }

    /// Asks what changes nothing.
    fn ask(&mut self) {
        let (event, stream) = (self.event, self.streams[self.random.index(STREAMS)].handle);
        self.does(move || {
            let mut context = null_mut();
            check(cuda!(cuCtxGetCurrent(&mut context)));
            for result in [cuda!(cuEventQuery(event as CUevent)), cuda!(cuStreamQuery(stream as CUstream))] {
                assert!(matches!(result, CUDA_SUCCESS | CUDA_ERROR_NOT_READY), "{result}");
            }
        });
    }

    fn change_attribute(&mut self) {
        let (function, value) = (self.affine, self.random.index(3) as i32 * 1024);
        let attribute = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        self.does(move || check(cuda!(cuFuncSetAttribute(function as CUfunction, attribute, value))));
    }

    /// Launches that need as much shared memory as their kernel was allowed just before, and may
    /// not have any more right after. Between them, what is known is asked for and set once more.
    fn launch_as_attributes_allow(&mut self, buffer: usize) {
        let stream = self.turn_to(buffer);
        let shared = 1024 * (1 + self.random.index(3)) as i32;
        let count = 3 + self.random.index(6);
        let (address, kernel, stream) =
            (self.buffers[buffer].address, self.kernel, self.streams[stream].handle);
        let factors: Vec<u32> = (0..count).map(|_| self.random.bits() as u32 | 1).collect();
        for factor in &factors {
            let values = &mut self.buffers[buffer].values;
            values.iter_mut().for_each(|value| *value = value.wrapping_mul(*factor).wrapping_add(7));
        }
        self.does(move || {
            let allow = |bytes| {
                let attribute = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
                check(cuda!(cuKernelSetAttribute(attribute, bytes, kernel as CUkernel, 0)));
            };
            for factor in factors {
                allow(shared);
                let mut function = null_mut();
                check(cuda!(cuKernelGetFunction(&mut function, kernel as CUkernel)));
                let (mut p, mut a, mut b, mut delay) = (address, factor, 7_u32, 300_u32);
                let mut pointers: [*mut c_void; 4] =
                    [(&raw mut p).cast(), (&raw mut a).cast(), (&raw mut b).cast(), (&raw mut delay).cast()];
                let (stream, pointers) = (stream as CUstream, pointers.as_mut_ptr());
                let (threads, shared) = (VALUES as u32, shared as u32);
                check(cuda!(cuLaunchKernel(
                    function,
                    1,
                    1,
                    1,
                    threads,
                    1,
                    1,
                    shared,
                    stream,
                    pointers,
                    null_mut()
                )));
            }
            allow(0);
        });
    }

    /// Waits, and looks at a buffer.
    fn wait(&mut self, buffer: usize) {
        let Some(last) = self.buffers[buffer].last else { return };
        let (event, stream) = (self.event, self.streams[last].handle);
        let way = self.random.index(4);
        let address = self.buffers[buffer].address;
        let expected = self.buffers[buffer].values;
        self.does(move || {
            let (event, stream) = (event as CUevent, stream as CUstream);
            let mut found = [0u32; VALUES];
            check(match way {
                0 => cuda!(cuStreamSynchronize(stream)),
                1 => cuda!(cuCtxSynchronize()),
                2 => {
                    check(cuda!(cuEventRecord(event, stream)));
                    cuda!(cuEventSynchronize(event))
                }
                _ => {
                    let bytes = VALUES * 4;
                    check(cuda!(cuMemcpyDtoHAsync_v2(found.as_mut_ptr().cast(), address, bytes, stream)));
                    cuda!(cuStreamSynchronize(stream))
                }
            });
            if way == 3 {
                assert_eq!(found, expected, "copied in its stream");
            }
        });
        if way < 3 {
            self.buffers[buffer].last = None;
        }
    }

    fn compare(&mut self, when: &str) {
        check(cuda!(cuCtxSynchronize()));
        for (at, buffer) in self.buffers.iter_mut().enumerate() {
            let mut found = [0u32; VALUES];
            check(cuda!(cuMemcpyDtoH_v2(found.as_mut_ptr().cast(), buffer.address, VALUES * 4)));
            assert_eq!(found, buffer.values, "buffer {at} of {when}");
            buffer.last = None;
        }
        assert_eq!(COUNTED.load(Ordering::Relaxed), self.counted, "functions of the host in {when}");
    }
}

/// Contexts and modules come and go, often under the same handles, with many launches in a row in
/// each.
pub fn launches_come_and_go(contexts: usize) {
    for round in 0..contexts as u32 {
        let context = context();
        let stream = stream(CU_STREAM_NON_BLOCKING) as usize;
        for modules in 0..3 {
            let module = module(PTX);
            let function = function(module, c"affine") as usize;
            let (mut address, mut expected) = (0, 1_u32);
            check(cuda!(cuMemAlloc_v2(&mut address, VALUES * 4)));
            // In the launches' stream: it does not wait for the default stream.
            check(cuda!(cuMemsetD32Async(address, 1, VALUES, stream as CUstream)));
            for number in 0..600 {
                let (mut a, mut b, mut delay) = (2 * (number % 40) + 3, round + modules, 0_u32);
                let mut pointers: [*mut c_void; 4] = [
                    (&raw mut address).cast(),
                    (&raw mut a).cast(),
                    (&raw mut b).cast(),
                    (&raw mut delay).cast(),
                ];
                check(launch(function, stream, &mut pointers));
                expected = expected.wrapping_mul(a).wrapping_add(b);
            }
            let mut found = [0_u32; VALUES];
            check(cuda!(cuStreamSynchronize(stream as CUstream)));
            check(cuda!(cuMemcpyDtoH_v2(found.as_mut_ptr().cast(), address, VALUES * 4)));
            assert_eq!(found, [expected; VALUES], "context {round}, module {modules}");
            check(cuda!(cuMemFree_v2(address)));
            check(cuda!(cuModuleUnload(module)));
        }
        check(cuda!(cuCtxDestroy_v2(context)));
    }
}
