//! Work that goes to several places at once: contexts of several devices, green contexts, default
//! streams of threads. Each place has a buffer, whose values show whether its launches were made in
//! order and in its own context. Where nothing is computed (the fake driver), they are only made.

use crate::affine::{PTX, VALUES, launch_affine};
use crate::driver::{check, context, cuda, function, module};
use cuda_abi::types::*;
use std::mem::zeroed;
use std::ptr::null_mut;

/// `CU_STREAM_PER_THREAD`
const OWN: usize = 2;
/// SMs of a green context.
const SMS: u32 = 8;
/// Rounds after which a buffer is looked at.
const COMPARED: usize = 50;

/// Two streams that wait for each other, and what their launches work on.
struct Place {
    context: usize,
    function: usize,
    streams: [usize; 2],
    /// The events that mark the end of each stream's work; none if nothing is computed.
    events: Option<[usize; 2]>,
    address: CUdeviceptr,
    value: u32,
}

impl Place {
    /// In the current context.
    fn new(context: CUcontext, streams: [usize; 2], is_computed: bool) -> Place {
        let function = function(module(PTX), c"affine") as usize;
        let (mut events, mut address) = (None, 0);
        if is_computed {
            check(cuda!(cuMemAlloc_v2(&mut address, VALUES * 4)));
            check(cuda!(cuMemsetD32_v2(address, 1, VALUES)));
            check(cuda!(cuCtxSynchronize()));
            events = Some([0; 2].map(|_: usize| {
                let mut event = null_mut();
                check(cuda!(cuEventCreate(&mut event, CU_EVENT_DISABLE_TIMING)));
                event as usize
            }));
        }
        Place { context: context as usize, function, streams, events, address, value: 1 }
    }

    /// Launches once, behind what was launched before.
    fn launch(&mut self, round: usize) {
        let at = round % 2;
        let [own, other] = [at, 1 - at].map(|at| self.streams[at] as CUstream);
        let (a, b) = (2 * round as u32 + 3, self.context as u32 ^ round as u32);
        check(launch_affine(self.function, own as usize, self.address, [a, b]));
        self.value = self.value.wrapping_mul(a).wrapping_add(b);
        if let Some(event) = self.events.map(|events| events[at] as CUevent) {
            check(cuda!(cuEventRecord(event, own)));
            check(cuda!(cuStreamWaitEvent(other, event, 0)));
            if round.is_multiple_of(COMPARED) {
                self.compare(other);
            }
        }
    }

    fn compare(&self, stream: CUstream) {
        let mut found = [0_u32; VALUES];
        check(cuda!(cuMemcpyDtoHAsync_v2(found.as_mut_ptr().cast(), self.address, VALUES * 4, stream)));
        check(cuda!(cuStreamSynchronize(stream)));
        assert_eq!(found, [self.value; VALUES]);
    }
}

fn two_streams() -> [usize; 2] {
    [0; 2].map(|_: usize| crate::driver::stream(CU_STREAM_NON_BLOCKING) as usize)
}

/// Launches in turn in all places, from one thread.
fn take_turns(mut places: Vec<Place>, rounds: usize) {
    for round in 0..rounds {
        for place in &mut places {
            check(cuda!(cuCtxSetCurrent(place.context as CUcontext)));
            place.launch(round);
        }
    }
    for place in &places {
        check(cuda!(cuCtxSetCurrent(place.context as CUcontext)));
        check(cuda!(cuCtxSynchronize()));
    }
    println!("{} places as they should be", places.len());
}

/// Two contexts: on two devices where there are two.
pub fn contexts(rounds: usize, is_computed: bool) {
    check(cuda!(cuInit(0)));
    let mut devices = 1;
    if is_computed {
        check(cuda!(cuDeviceGetCount(&mut devices)));
    }
    let places = (0..2).map(|number| {
        let mut context = null_mut();
        check(cuda!(cuCtxCreate_v2(&mut context, 0, number % devices)));
        Place::new(context, two_streams(), is_computed)
    });
    take_turns(places.collect(), rounds);
    println!("{} devices", devices.min(2));
}

/// A context and two green ones, which share its device's SMs.
pub fn green_contexts(rounds: usize, is_computed: bool) {
    check(cuda!(cuInit(0)));
    let mut primary = null_mut();
    check(cuda!(cuDevicePrimaryCtxRetain(&mut primary, 0)));
    check(cuda!(cuCtxSetCurrent(primary)));
    let mut places = vec![Place::new(primary, two_streams(), is_computed)];
    // SAFETY: zeros are values of these structures.
    let (mut all, mut parts, mut rest): (CUdevResource, [CUdevResource; 2], CUdevResource) =
        unsafe { zeroed() };
    let mut count = parts.len() as u32;
    check(cuda!(cuDeviceGetDevResource(0, &mut all, CU_DEV_RESOURCE_TYPE_SM)));
    check(cuda!(cuDevSmResourceSplitByCount(parts.as_mut_ptr(), &mut count, &all, &mut rest, 0, SMS)));
    assert_eq!(count as usize, parts.len());
    for mut part in parts {
        let (mut described, mut green, mut context) = (null_mut(), null_mut(), null_mut());
        check(cuda!(cuDevResourceGenerateDesc(&mut described, &mut part, 1)));
        check(cuda!(cuGreenCtxCreate(&mut green, described, 0, CU_GREEN_CTX_DEFAULT_STREAM)));
        check(cuda!(cuCtxFromGreenCtx(&mut context, green)));
        check(cuda!(cuCtxSetCurrent(context)));
        let streams = [0; 2].map(|_: usize| {
            let mut stream = null_mut();
            check(cuda!(cuGreenCtxStreamCreate(&mut stream, green, CU_STREAM_NON_BLOCKING, 0)));
            stream as usize
        });
        places.push(Place::new(context, streams, is_computed));
    }
    take_turns(places, rounds);
}

/// Threads that launch into a stream and into their own default stream in turn.
pub fn own_streams(threads: usize, rounds: usize, is_computed: bool) {
    let context = context() as usize;
    let launching: Vec<_> = (0..threads)
        .map(|_| {
            std::thread::spawn(move || {
                check(cuda!(cuCtxSetCurrent(context as CUcontext)));
                let [stream, _] = two_streams();
                let mut place = Place::new(context as CUcontext, [stream, OWN], is_computed);
                (0..rounds).for_each(|round| place.launch(round));
                check(cuda!(cuCtxSynchronize()));
            })
        })
        .collect();
    launching.into_iter().for_each(|thread| thread.join().expect("no launch failed"));
    println!("{threads} places as they should be");
}
