//! Programs for the launch queue: what they see must be what they see without it.

use crate::driver::*;
use cuda_abi::index;
use cuda_abi::types::*;
use std::time::{Duration, Instant};

/// Launches from several threads, then waits: by then the driver has seen every launch.
pub fn handed_over(threads: usize, each: usize) {
    let context = context() as usize;
    let module = module(c"one_100") as usize;
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(move || {
                check(cuda!(cuCtxSetCurrent(context as CUcontext)));
                let (stream, one) =
                    (stream(CU_STREAM_NON_BLOCKING), function(module as CUmodule, c"one_100"));
                let launch = launcher();
                (0..each).for_each(|_| check(launch(one, 7, stream)));
            });
        }
    });
    check(cuda!(cuCtxSynchronize()));
    assert_eq!(calls(index::cuLaunchKernel) as usize, threads * each);
}

/// As [`handed_over`], by a process that may use one processor.
pub fn on_one_processor(each: usize) {
    // SAFETY: a zeroed set is a valid set, and its size is stated.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(usize::try_from(libc::sched_getcpu()).expect("a processor"), &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set), 0);
    }
    handed_over(1, each);
}

/// Launches until a launch fails, prints how, and goes on.
pub fn until_refused() {
    context();
    let (stream, one) = (stream(CU_STREAM_NON_BLOCKING), function(module(c"one_100"), c"one_100"));
    let launch = launcher();
    let refusal = (0..1_000_000).map(|_| launch(one, 7, stream)).find(|&result| result != CUDA_SUCCESS);
    println!("{}", refusal.expect("a launch is refused"));
    check(cuda!(cuCtxSynchronize()));
}

/// Waits for each of its launches.
pub fn waits_for_each(launches: usize) {
    context();
    let (stream, one) = (stream(CU_STREAM_NON_BLOCKING), function(module(c"one_100"), c"one_100"));
    for _ in 0..launches {
        launch(one, 7, stream);
        check(cuda!(cuStreamSynchronize(stream)));
    }
}

/// Waits for each launch for some time, so that the queue closes; then launches without waiting
/// until launches are queued, which the driver sees later.
pub fn waits_then_launches() {
    context();
    let (stream, one) = (stream(CU_STREAM_NON_BLOCKING), function(module(c"one_100"), c"one_100"));
    let (launch, begun, mut launched) = (launcher(), Instant::now(), 0);
    while begun.elapsed() < Duration::from_millis(200) {
        check(launch(one, 7, stream));
        check(cuda!(cuStreamSynchronize(stream)));
        launched += 1;
    }
    while calls(index::cuLaunchKernel) == launched {
        assert!(begun.elapsed() < Duration::from_secs(60), "the queue stays closed");
        (0..500).for_each(|_| check(launch(one, 7, stream)));
        launched += 500;
    }
    check(cuda!(cuCtxSynchronize()));
    assert_eq!(calls(index::cuLaunchKernel), launched);
}

/// Forks while calls wait. The child makes a call and ends; the parent's calls are all made.
pub fn forks(launches: usize) {
    context();
    let (stream, one) = (stream(CU_STREAM_NON_BLOCKING), function(module(c"one_100"), c"one_100"));
    let launch = launcher();
    for round in 0..20 {
        (0..launches).for_each(|_| check(launch(one, 7, stream)));
        // SAFETY: the child makes one call and ends at once.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let _ = cuda!(cuStreamQuery(stream));
            let _ = launch(one, 7, stream);
            // SAFETY: ends the child without its parent's handlers.
            unsafe { libc::_exit(round) };
        }
        let mut status = 0;
        // SAFETY: the out-parameter is valid.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == round, "{status:x}");
    }
    check(cuda!(cuCtxSynchronize()));
    assert_eq!(calls(index::cuLaunchKernel) as usize, 20 * launches);
}

/// Ends while calls wait.
pub fn ends(launches: usize) {
    context();
    let (stream, one) = (stream(CU_STREAM_NON_BLOCKING), function(module(c"one_100"), c"one_100"));
    let launch = launcher();
    (0..launches).for_each(|_| check(launch(one, 7, stream)));
}
