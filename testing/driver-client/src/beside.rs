//! Random programs whose results tell whether launches that ran beside each other, or in another
//! order than the program's, share data.
//!
//! A program works on objects: buffers of the device, managed memory, memory of the host that is
//! mapped, memory of a pool. Bursts of launches of a few kernels, again and again in the same
//! sequence, access parts of them that overlap, in place or from one to another, through pointers
//! in memory, with indices from memory, and with atomic operations. Every launch changes values in
//! a way that does not commute with others. Everything is ordered: streams wait for each other by
//! events.

use crate::driver::{check, context, cuda, function, module, stream};
use apex_random::Random;
use cuda_abi::types::*;
use std::ffi::{CStr, c_void};
use std::ptr::null_mut;

/// Values of an object; launches access at most half of them.
const VALUES: usize = 64;
const MOST_THREADS: usize = VALUES / 2;
const OBJECTS: usize = 8;
/// Sequences of kernels that come in bursts.
const SEQUENCES: usize = 6;
/// Burst steps out of a hundred.
const BURSTS: usize = 60;

/// The kernels. `TO` and `FROM` stand for the parameters that `mixed` writes and reads: two modules
/// differ in them.
const PTX: &str = "
.version 8.1
.target sm_70
.address_size 64
.global .align 4 .b8 kept[256];
.visible .entry mixed(.param .u64 to, .param .u64 from, .param .u32 a, .param .u32 n)
{
    .reg .pred %p<2>; .reg .b32 %r<12>; .reg .b64 %q<8>;
    ld.param.u64 %q1, [TO]; ld.param.u64 %q2, [FROM]; ld.param.u32 %r1, [a]; ld.param.u32 %r3, [n];
    mov.u32 %r4, %ctaid.x; mov.u32 %r5, %ntid.x; mov.u32 %r6, %tid.x; mad.lo.s32 %r7, %r4, %r5, %r6;
    setp.ge.s32 %p1, %r7, %r3; @%p1 bra $END;
    mul.wide.s32 %q3, %r7, 4; add.s64 %q4, %q1, %q3; add.s64 %q5, %q2, %q3;
    ld.global.u32 %r8, [%q4]; ld.global.u32 %r9, [%q5]; mad.lo.u32 %r8, %r8, %r1, %r9;
    st.global.u32 [%q4], %r8;
$END:
    ret;
}
.visible .entry whole(.param .u64 to, .param .u64 from, .param .u32 a, .param .u32 n)
{
    .reg .b32 %r<12>; .reg .b64 %q<8>;
    ld.param.u64 %q1, [to]; ld.param.u32 %r1, [a];
    mov.u32 %r4, %ctaid.x; mov.u32 %r5, %ntid.x; mov.u32 %r6, %tid.x; mad.lo.s32 %r7, %r4, %r5, %r6;
    mul.wide.s32 %q3, %r7, 4; add.s64 %q4, %q1, %q3;
    ld.global.u32 %r8, [%q4]; mad.lo.u32 %r8, %r8, %r1, %r7; st.global.u32 [%q4], %r8;
    ret;
}
.visible .entry gathered(.param .u64 to, .param .u64 from, .param .u32 a, .param .u32 n)
{
    .reg .pred %p<2>; .reg .b32 %r<12>; .reg .b64 %q<8>;
    ld.param.u64 %q1, [to]; ld.param.u64 %q2, [from]; ld.param.u32 %r1, [a]; ld.param.u32 %r3, [n];
    mov.u32 %r4, %ctaid.x; mov.u32 %r5, %ntid.x; mov.u32 %r6, %tid.x; mad.lo.s32 %r7, %r4, %r5, %r6;
    setp.ge.s32 %p1, %r7, %r3; @%p1 bra $END;
    mul.wide.s32 %q3, %r7, 4; add.s64 %q4, %q1, %q3;
    ld.global.u32 %r8, [%q4]; and.b32 %r9, %r8, 31; mul.wide.u32 %q5, %r9, 4; add.s64 %q6, %q2, %q5;
    ld.global.u32 %r10, [%q6]; mad.lo.u32 %r8, %r8, %r1, %r10; st.global.u32 [%q4], %r8;
$END:
    ret;
}
.visible .entry scattered(.param .u64 to, .param .u64 from, .param .u32 a, .param .u32 n)
{
    .reg .b32 %r<12>; .reg .b64 %q<8>;
    ld.param.u64 %q1, [to]; ld.param.u64 %q2, [from]; ld.param.u32 %r1, [a];
    ld.global.u32 %r7, [%q2]; and.b32 %r7, %r7, 31; mul.wide.u32 %q3, %r7, 4; add.s64 %q4, %q1, %q3;
    ld.global.u32 %r8, [%q4]; mad.lo.u32 %r8, %r8, %r1, 3; st.global.u32 [%q4], %r8;
    ret;
}
.visible .entry followed(.param .u64 to, .param .u64 from, .param .u32 a, .param .u32 n)
{
    .reg .b32 %r<12>; .reg .b64 %q<8>;
    ld.param.u64 %q1, [to]; ld.param.u32 %r1, [a]; ld.global.u64 %q2, [%q1];
    mov.u32 %r7, %tid.x; mul.wide.u32 %q3, %r7, 4; add.s64 %q4, %q2, %q3;
    ld.global.u32 %r8, [%q4]; mad.lo.u32 %r8, %r8, %r1, 5; st.global.u32 [%q4], %r8;
    ret;
}
.visible .entry exchanged(.param .u64 to, .param .u64 from, .param .u32 a, .param .u32 n)
{
    .reg .b32 %r<12>; .reg .b64 %q<8>;
    ld.param.u64 %q1, [to]; ld.param.u32 %r1, [a];
    mov.u32 %r7, %tid.x; mul.wide.u32 %q3, %r7, 4; add.s64 %q4, %q1, %q3;
    atom.global.exch.b32 %r8, [%q4], %r1;
    ret;
}
.visible .entry recalled(.param .u64 to, .param .u64 from, .param .u32 a, .param .u32 n)
{
    .reg .b32 %r<12>; .reg .b64 %q<8>;
    ld.param.u64 %q1, [to]; ld.param.u32 %r1, [a];
    mov.u32 %r7, %tid.x; mul.wide.u32 %q3, %r7, 4; add.s64 %q4, %q1, %q3;
    mov.u64 %q5, kept; add.s64 %q6, %q5, %q3;
    ld.global.u32 %r8, [%q4]; ld.global.u32 %r9, [%q6]; st.global.u32 [%q6], %r8;
    mad.lo.u32 %r8, %r8, %r1, %r9; st.global.u32 [%q4], %r8;
    ret;
}
";

/// What a launch does, on the device and on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kernel {
    /// `to = to · a + from`.
    Mixed,
    /// The same of another module under the same name, which exchanges `to` and `from`.
    Exchanging,
    /// `to = to · a + thread`, in all threads.
    Whole,
    /// `to = to · a + from[to]`.
    Gathered,
    /// `to[from] = to[from] · a + 3`.
    Scattered,
    /// `*to = *to · a + 5`, of the object behind a pointer.
    Followed,
    /// `to = a`.
    Exchanged,
    /// `to = to · a + kept`, and `kept = to` before.
    Recalled,
}

/// Kernels by how often they come.
const KERNELS: [Kernel; 16] = {
    use Kernel::*;
    [
        Mixed, Mixed, Mixed, Mixed, Mixed, Exchanging, Exchanging, Whole, Whole, Whole, Gathered, Gathered,
        Scattered, Followed, Exchanged, Recalled,
    ]
};

/// Where an object lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Device,
    Managed,
    Mapped,
    Pool,
}

struct Object {
    kind: Kind,
    address: CUdeviceptr,
    /// The address on the host, of memory that is mapped.
    host: usize,
    /// Its content once everything is done.
    values: [u32; VALUES],
}

/// A launch of a burst.
#[derive(Clone, Copy)]
struct Launch {
    kernel: Kernel,
    threads: usize,
    to: CUdeviceptr,
    from: CUdeviceptr,
    a: u32,
    n: u32,
}

struct Program {
    random: Random,
    functions: [CUfunction; 8],
    objects: Vec<Object>,
    /// Pointers to the objects, in memory of the device.
    pointers: CUdeviceptr,
    /// The values of the modules' variable.
    kept: [u32; VALUES],
    streams: [CUstream; 2],
    current: usize,
    event: CUevent,
}

/// Runs `count` programs of `steps` steps each, the first of them made from `seed`. If the process
/// maps memory twice (`is_shared`), addresses tell nothing about it any more.
pub fn random_programs(seed: u64, count: usize, steps: usize, is_shared: bool) {
    context();
    if is_shared {
        map_twice();
    }
    let mut program = Program::new();
    for number in seed..seed + count as u64 {
        program.random = Random::new(number);
        for step in 0..steps {
            program.step();
            if program.random.index(20) == 0 {
                program.compare(&format!("program {number} after step {step}"));
            }
        }
        program.compare(&format!("program {number} at its end"));
    }
    println!("{count} programs as they should be");
}

/// Maps the same memory at two addresses.
fn map_twice() {
    // SAFETY: zeros are a value of these structures.
    let (mut properties, mut access): (CUmemAllocationProp, CUmemAccessDesc) = unsafe { std::mem::zeroed() };
    properties.r#type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.r#type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.r#type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    let bytes = 2 << 20;
    let mut handle = 0;
    check(cuda!(cuMemCreate(&mut handle, bytes, &properties, 0)));
    for _ in 0..2 {
        let mut address = 0;
        check(cuda!(cuMemAddressReserve(&mut address, bytes, 0, 0, 0)));
        check(cuda!(cuMemMap(address, bytes, 0, handle, 0)));
        check(cuda!(cuMemSetAccess(address, bytes, &access, 1)));
    }
}

fn loaded(source: &str) -> CUmodule {
    let source = std::ffi::CString::new(source).expect("no zero in it");
    module(&source)
}

impl Program {
    fn new() -> Program {
        let (one, other) = (
            loaded(&PTX.replace("TO", "to").replace("FROM", "from")),
            loaded(&PTX.replace("TO", "from").replace("FROM", "to")),
        );
        let names: [&CStr; 8] =
            [c"mixed", c"mixed", c"whole", c"gathered", c"scattered", c"followed", c"exchanged", c"recalled"];
        let mut functions = names.map(|name| function(one, name));
        functions[Kernel::Exchanging as usize] = function(other, c"mixed");
        let mut pointers = 0;
        check(cuda!(cuMemAlloc_v2(&mut pointers, OBJECTS * 8)));
        let mut event = null_mut();
        check(cuda!(cuEventCreate(&mut event, CU_EVENT_DISABLE_TIMING)));
        let mut program = Program {
            random: Random::new(1),
            functions,
            objects: Vec::new(),
            pointers,
            kept: [0; VALUES],
            streams: [stream(0), stream(CU_STREAM_NON_BLOCKING)],
            current: 0,
            event,
        };
        for _ in 0..OBJECTS {
            let object = program.object();
            program.objects.push(object);
        }
        program.tell_pointers();
        program
    }

    /// A new object, of any kind.
    fn object(&mut self) -> Object {
        let kind = match self.random.index(10) {
            0 => Kind::Managed,
            1 => Kind::Mapped,
            2 => Kind::Pool,
            _ => Kind::Device,
        };
        let (mut address, mut host, bytes) = (0, null_mut::<c_void>(), VALUES * 4);
        let stream = self.streams[self.current];
        match kind {
            Kind::Device => check(cuda!(cuMemAlloc_v2(&mut address, bytes))),
            Kind::Managed => {
                check(cuda!(cuMemAllocManaged(&mut address, bytes, CU_MEM_ATTACH_GLOBAL)));
            }
            Kind::Mapped => {
                check(cuda!(cuMemHostAlloc(&mut host, bytes, CU_MEMHOSTALLOC_DEVICEMAP)));
                check(cuda!(cuMemHostGetDevicePointer_v2(&mut address, host, 0)));
            }
            Kind::Pool => check(cuda!(cuMemAllocAsync(&mut address, bytes, stream))),
        }
        check(cuda!(cuMemsetD32Async(address, 1, VALUES, stream)));
        check(cuda!(cuCtxSynchronize()));
        Object { kind, address, host: host as usize, values: [1; VALUES] }
    }

    /// Frees an object and makes another in its place.
    fn replace(&mut self) {
        let at = self.random.index(OBJECTS);
        let Object { kind, address, host, .. } = self.objects[at];
        match kind {
            Kind::Device | Kind::Managed => check(cuda!(cuMemFree_v2(address))),
            Kind::Mapped => {
                check(cuda!(cuCtxSynchronize()));
                check(cuda!(cuMemFreeHost(host as *mut c_void)));
            }
            Kind::Pool => check(cuda!(cuMemFreeAsync(address, self.streams[self.current]))),
        }
        self.objects[at] = self.object();
        self.tell_pointers();
    }

    fn tell_pointers(&self) {
        let addresses: Vec<u64> = self.objects.iter().map(|object| object.address).collect();
        check(cuda!(cuMemcpyHtoD_v2(self.pointers, addresses.as_ptr().cast(), addresses.len() * 8)));
    }

    fn step(&mut self) {
        match self.random.index(100) {
            0..BURSTS => self.burst(),
            60..70 => self.set(),
            70..80 => self.copy(),
            80..88 => self.replace(),
            88..94 => self.turn(),
            94..97 => self.write_on_the_host(),
            _ => check(cuda!(cuStreamSynchronize(self.streams[self.current]))),
        }
    }

    /// Goes on in the other stream, which waits for this one.
    fn turn(&mut self) {
        check(cuda!(cuEventRecord(self.event, self.streams[self.current])));
        self.current = 1 - self.current;
        check(cuda!(cuStreamWaitEvent(self.streams[self.current], self.event, 0)));
    }

    fn set(&mut self) {
        let (at, value) = (self.random.index(self.objects.len()), self.random.bits() as u32);
        self.objects[at].values = [value; VALUES];
        let address = self.objects[at].address;
        check(cuda!(cuMemsetD32Async(address, value, VALUES, self.streams[self.current])));
    }

    fn copy(&mut self) {
        let [to, from] = [(); 2].map(|()| self.random.index(self.objects.len()));
        self.objects[to].values = self.objects[from].values;
        let [to, from] = [to, from].map(|at| self.objects[at].address);
        check(cuda!(cuMemcpyDtoDAsync_v2(to, from, VALUES * 4, self.streams[self.current])));
    }

    /// Writes memory that the host has, too.
    fn write_on_the_host(&mut self) {
        let (at, value) = (self.random.index(VALUES), self.random.bits() as u32);
        check(cuda!(cuCtxSynchronize()));
        let of_host = |object: &&mut Object| matches!(object.kind, Kind::Managed | Kind::Mapped);
        for object in self.objects.iter_mut().filter(of_host) {
            object.values[at] = value;
            let start = if object.kind == Kind::Managed { object.address } else { object.host as u64 };
            // SAFETY: memory of the host, which no launch accesses now.
            unsafe { (start as *mut u32).add(at).write(value) };
        }
    }

    /// Launches in a row: one of a few sequences of kernels, again and again, on other parts of
    /// other objects. Some rounds have the parameters of the round before.
    fn burst(&mut self) {
        let mut sequence = Random::new(1 + self.random.index(SEQUENCES) as u64);
        let length = 9 + sequence.index(24);
        let kernels: Vec<_> = (0..length)
            .map(|_| (KERNELS[sequence.index(KERNELS.len())], 1 + sequence.index(MOST_THREADS)))
            .collect();
        let mut launches = Vec::new();
        let mut round = Vec::new();
        for _ in 0..5 + self.random.index(4) {
            if round.is_empty() || self.random.index(3) > 0 {
                round = kernels.iter().map(|&(kernel, threads)| self.launch(kernel, threads)).collect();
            }
            for &(launch, places) in &round {
                self.apply(launch, places);
                launches.push(launch);
            }
        }
        launches.into_iter().for_each(|launch| self.make(launch));
    }

    /// A launch on parts of objects: their places, and the first values.
    fn launch(&mut self, kernel: Kernel, threads: usize) -> (Launch, [(usize, usize); 2]) {
        let n = 1 + self.random.index(threads);
        let place =
            |random: &mut Random| (random.index(OBJECTS), 8 * random.index((VALUES - MOST_THREADS) / 8 + 1));
        let to = place(&mut self.random);
        let mut from = place(&mut self.random);
        // Threads of one launch must not race.
        let overlap = from.0 == to.0 && from.1.abs_diff(to.1) < n;
        let reads_anywhere = matches!(kernel, Kernel::Gathered | Kernel::Scattered);
        if reads_anywhere && from.0 == to.0 {
            from.0 = (to.0 + 1) % OBJECTS;
        } else if overlap {
            from = to;
        }
        let address = |(object, value): (usize, usize)| self.objects[object].address + 4 * value as u64;
        let to_address = match kernel {
            Kernel::Followed => self.pointers + 8 * to.0 as u64,
            _ => address(to),
        };
        let a = self.random.bits() as u32 | 1;
        let launch = Launch { kernel, threads, to: to_address, from: address(from), a, n: n as u32 };
        (launch, [to, from])
    }

    /// Does on the host what a launch does.
    fn apply(&mut self, launch: Launch, [to, from]: [(usize, usize); 2]) {
        let Launch { kernel, threads, a, n, .. } = launch;
        let n = n as usize;
        let (to, from) = if kernel == Kernel::Exchanging { (from, to) } else { (to, from) };
        let read = |objects: &[Object], (object, value): (usize, usize), at: usize| {
            objects[object].values[value + at]
        };
        for thread in 0..threads {
            let old = read(&self.objects, to, thread);
            let (at, new) = match kernel {
                Kernel::Mixed | Kernel::Exchanging if thread < n => {
                    (thread, old.wrapping_mul(a).wrapping_add(read(&self.objects, from, thread)))
                }
                Kernel::Gathered if thread < n => {
                    let found = read(&self.objects, from, (old & 31) as usize);
                    (thread, old.wrapping_mul(a).wrapping_add(found))
                }
                Kernel::Whole => (thread, old.wrapping_mul(a).wrapping_add(thread as u32)),
                Kernel::Scattered if thread == 0 => {
                    let at = (read(&self.objects, from, 0) & 31) as usize;
                    (at, read(&self.objects, to, at).wrapping_mul(a).wrapping_add(3))
                }
                Kernel::Exchanged => (thread, a),
                Kernel::Recalled => {
                    let kept = std::mem::replace(&mut self.kept[thread], old);
                    (thread, old.wrapping_mul(a).wrapping_add(kept))
                }
                Kernel::Followed => {
                    let value = &mut self.objects[to.0].values[thread];
                    *value = value.wrapping_mul(a).wrapping_add(5);
                    continue;
                }
                _ => continue,
            };
            self.objects[to.0].values[to.1 + at] = new;
        }
    }

    fn make(&self, launch: Launch) {
        let Launch { kernel, threads, mut to, mut from, mut a, mut n } = launch;
        let mut pointers: [*mut c_void; 4] =
            [(&raw mut to).cast(), (&raw mut from).cast(), (&raw mut a).cast(), (&raw mut n).cast()];
        let threads = if kernel == Kernel::Scattered { 1 } else { threads as u32 };
        let (function, stream) = (self.functions[kernel as usize], self.streams[self.current]);
        let pointers = pointers.as_mut_ptr();
        check(cuda!(cuLaunchKernel(function, 1, 1, 1, threads, 1, 1, 0, stream, pointers, null_mut())));
        // What the launch was given may change as soon as the call is over.
        (to, from, a, n) = (0, 0, 0, 0);
        std::hint::black_box((to, from, a, n));
    }

    fn compare(&mut self, when: &str) {
        check(cuda!(cuCtxSynchronize()));
        for (at, object) in self.objects.iter().enumerate() {
            let mut found = [0_u32; VALUES];
            let to = found.as_mut_ptr().cast();
            if object.kind == Kind::Mapped {
                // SAFETY: memory of the host, which no launch accesses now.
                found = unsafe { (object.host as *const [u32; VALUES]).read() };
            } else {
                check(cuda!(cuMemcpyDtoH_v2(to, object.address, VALUES * 4)));
            }
            assert_eq!(found, object.values, "object {at} of {when}");
        }
    }
}
