//! The primary context, retained by one thread while another releases it. In a process of its own:
//! other tests count retains.

mod common;

use apex_random::Random;
use common::{cu, download, ok, upload};
use std::ffi::c_void;
use std::sync::Barrier;
use std::time::Duration;

fn retain() {
    let mut context = std::ptr::null_mut();
    ok!(cuDevicePrimaryCtxRetain(&mut context, 0));
    ok!(cuCtxSetCurrent(context));
}

fn is_active() -> bool {
    let (mut flags, mut active) = (0, 0);
    ok!(cuDevicePrimaryCtxGetState(0, &mut flags, &mut active));
    active != 0
}

extern "C" fn wait_at(barrier: *mut c_void) {
    // SAFETY: the test passes a barrier that outlives the work.
    unsafe { &*barrier.cast::<Barrier>() }.wait();
}

/// The end of a context waits for its work. What others make in its successor meanwhile is not the
/// ended one's.
#[test]
fn what_is_made_while_the_last_release_waits_stays() {
    ok!(cuInit(0));
    let (retained, barrier) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        let last = scope.spawn(|| {
            retain();
            retained.wait();
            let barrier = (&raw const barrier).cast_mut().cast();
            ok!(cuLaunchHostFunc(std::ptr::null_mut(), Some(wait_at), barrier));
            ok!(cuDevicePrimaryCtxRelease_v2(0));
        });
        retained.wait();
        while is_active() {
            std::thread::sleep(Duration::from_micros(50));
        }
        retain();
        let bytes = Random::new(1).bytes(64);
        let memory = upload(&bytes);
        barrier.wait();
        last.join().unwrap();
        assert_eq!(download(memory, bytes.len()), bytes);
        ok!(cuMemFree_v2(memory));
        ok!(cuDevicePrimaryCtxRelease_v2(0));
    });
}
