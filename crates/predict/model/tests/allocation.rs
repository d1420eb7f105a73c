//! A prediction allocates nothing, once its scratch has grown. One test alone: the count is the
//! whole process's.

mod common;

use apex_model::network::Activation;
use apex_model::{InstructionSet, Precision, Predictor, Scratch};
use apex_random::Random;
use common::{features, network};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The system's allocator, counting.
struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is the system's allocator's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: this function's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: this function's contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_prediction_allocates_nothing() {
    let network = network(20, &[130, 70, 50], 9, Activation::Gelu, 1);
    let features = features(&network, &mut Random::new(1));
    let mut outputs = [0.0; 9];
    for set in InstructionSet::available() {
        for precision in [Precision::F32, Precision::Int8] {
            let predictor = Predictor::with_instructions(&network, precision, set).unwrap();
            let mut scratch = Scratch::new();
            let mut count = |times: usize| {
                let before = ALLOCATIONS.load(Ordering::Relaxed);
                (0..times).for_each(|_| predictor.predict(&features, &mut scratch, &mut outputs).unwrap());
                ALLOCATIONS.load(Ordering::Relaxed) - before
            };
            assert!(count(1) > 0, "the scratch grows, and the allocator counts");
            // Other threads of the test harness may allocate now and then, but not once for each
            // prediction.
            assert!(count(1000) < 100, "{set:?} {precision:?}");
        }
    }
}
