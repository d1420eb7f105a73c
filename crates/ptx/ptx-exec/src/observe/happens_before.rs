//! The happens-before order of a block's accesses: the order that barriers, warp instructions and
//! atomics guarantee.
//!
//! Each thread has a clock, which advances when the thread synchronises, and a *view*: the last
//! known clock of every other thread. An access happens before the current one of a thread if the
//! thread's view includes the clock of that access. A barrier of the whole block makes everything
//! known to every thread. It is represented by one number, the *floor*; views restart above it.
//!
//! These operations synchronise: barriers (for the participating threads), warp instructions with a
//! member mask (the ISA guarantees memory order for `bar.warp.sync` only), and atomic, volatile or
//! otherwise strong accesses to the same address of shared memory. The memory model guarantees
//! less, so no correct program is reported.
//!
//! Strong accesses to global memory order what comes before a fence of the thread that writes and
//! what comes after the read of another. The addresses do not matter, because the order may pass
//! through other blocks: the last block that arrives at a barrier of the grid releases all others
//! through another address.

use std::collections::HashMap;
use std::rc::Rc;

/// Barriers of a block.
const BARRIERS: usize = 16;

/// The clock of each thread of the block that a thread has learned of; 0 for none.
type View = Rc<[u32]>;

/// The order within one block.
pub(super) struct HappensBefore {
    now: u32,
    floor: u32,
    clocks: Vec<u32>,
    views: Vec<Option<View>>,
    /// The views of threads that synchronised through an address.
    objects: HashMap<u64, View>,
    /// The views of threads that arrived at a barrier without waiting.
    arrived: [Option<View>; BARRIERS],
    /// The view of each thread at its last fence, its own accesses included, until it is published.
    fenced: HashMap<u32, View>,
    /// The views of threads before a fence and a strong write of global memory, their own accesses
    /// included.
    published: Option<View>,
    /// Number of publications.
    editions: u64,
    /// The edition that each thread has read last: threads that wait read the same again and again.
    read: Vec<u64>,
}

impl HappensBefore {
    pub(super) fn new(threads: usize) -> Self {
        HappensBefore {
            now: 1,
            floor: 1,
            clocks: vec![1; threads],
            views: vec![None; threads],
            objects: HashMap::new(),
            arrived: Default::default(),
            fenced: HashMap::new(),
            published: None,
            editions: 0,
            read: vec![0; threads],
        }
    }

    /// The clock with which what `thread` does now is stamped.
    pub(super) fn clock(&self, thread: u32) -> u32 {
        self.clocks[thread as usize]
    }

    /// Whether what `earlier` did at `clock` comes before what `thread` does now.
    pub(super) fn precedes(&self, earlier: u32, clock: u32, thread: u32) -> bool {
        let heard = self.views[thread as usize].as_ref().map_or(0, |view| view[earlier as usize]);
        earlier == thread || clock < self.floor || clock <= heard
    }

    /// All threads of the block have met.
    pub(super) fn meet_all(&mut self) {
        self.now += 1;
        self.floor = self.now;
        self.clocks.fill(self.now);
        self.views.fill(None);
        self.objects.clear();
        self.arrived = Default::default();
        self.fenced.clear();
        self.published = None;
    }

    /// These threads have met; at a barrier, with those that arrived there before.
    pub(super) fn meet(&mut self, threads: &[u32], barrier: Option<u32>) {
        if threads.len() < 2 && barrier.is_none() {
            return;
        }
        let mut view = vec![0; self.clocks.len()];
        if let Some(arrived) = barrier.and_then(|barrier| self.arrived[barrier as usize].take()) {
            hear(&mut view, &arrived);
        }
        threads.iter().for_each(|&thread| self.tell(&mut view, thread));
        let view = View::from(view);
        self.now += 1;
        for &thread in threads {
            self.views[thread as usize] = Some(view.clone());
            self.clocks[thread as usize] = self.now;
        }
    }

    /// These threads arrive at a barrier and go on.
    pub(super) fn arrive(&mut self, threads: &[u32], barrier: u32) {
        let mut view = vec![0; self.clocks.len()];
        if let Some(before) = &self.arrived[barrier as usize] {
            hear(&mut view, before);
        }
        self.now += 1;
        for &thread in threads {
            self.tell(&mut view, thread);
            self.clocks[thread as usize] = self.now;
        }
        self.arrived[barrier as usize] = Some(view.into());
    }

    /// `thread` accesses an address in a way that orders: it hears what others had heard there, and
    /// tells what it has.
    pub(super) fn synchronize(&mut self, thread: u32, address: u64) {
        let mut view = vec![0; self.clocks.len()];
        if let Some(object) = self.objects.get(&address) {
            hear(&mut view, object);
        }
        self.tell(&mut view, thread);
        let view = View::from(view);
        self.objects.insert(address, view.clone());
        self.views[thread as usize] = Some(view);
        self.now += 1;
        self.clocks[thread as usize] = self.now;
    }

    /// `thread` passes a fence.
    pub(super) fn fence(&mut self, thread: u32) {
        let mut view = vec![0; self.clocks.len()];
        self.tell(&mut view, thread);
        self.fenced.insert(thread, view.into());
        self.now += 1;
        self.clocks[thread as usize] = self.now;
    }

    /// `thread` writes global memory in a way that orders, with a fence in it if it `releases`.
    pub(super) fn signal(&mut self, thread: u32, releases: bool) {
        if releases {
            self.fence(thread);
        }
        let Some(fenced) = self.fenced.remove(&thread) else { return };
        let mut view = fenced.to_vec();
        if let Some(published) = &self.published {
            hear(&mut view, published);
        }
        self.published = Some(view.into());
        self.editions += 1;
    }

    /// `thread` reads global memory in a way that orders.
    pub(super) fn observe(&mut self, thread: u32) {
        let Some(published) = self.published.clone() else { return };
        if std::mem::replace(&mut self.read[thread as usize], self.editions) == self.editions {
            return;
        }
        let view = match &self.views[thread as usize] {
            Some(own) => {
                let mut view = published.to_vec();
                hear(&mut view, own);
                view.into()
            }
            None => published,
        };
        self.views[thread as usize] = Some(view);
    }

    /// Adds to `view` what `thread` has heard and done.
    fn tell(&self, view: &mut [u32], thread: u32) {
        if let Some(own) = &self.views[thread as usize] {
            hear(view, own);
        }
        view[thread as usize] = self.clocks[thread as usize];
    }
}

fn hear(view: &mut [u32], other: &[u32]) {
    view.iter_mut().zip(other).for_each(|(clock, other)| *clock = (*clock).max(*other));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_who_met_have_heard_of_each_other() {
        let mut order = HappensBefore::new(4);
        let stamp = order.clock(0);
        assert!(order.precedes(0, stamp, 0) && !order.precedes(0, stamp, 1));
        order.meet(&[0, 1], None);
        assert!(order.precedes(0, stamp, 1) && !order.precedes(0, stamp, 2));
        // What thread 0 does afterwards is new to thread 1 again.
        let later = order.clock(0);
        assert!(!order.precedes(0, later, 1));
        // Hearsay counts.
        order.meet(&[1, 2], None);
        assert!(order.precedes(0, stamp, 2) && !order.precedes(0, later, 2) && !order.precedes(0, stamp, 3));
        order.meet_all();
        assert!(order.precedes(0, later, 3) && !order.precedes(0, order.clock(0), 3));
    }

    #[test]
    fn arriving_tells_those_who_wait_and_hears_nothing() {
        let mut order = HappensBefore::new(3);
        let (producer, consumer) = (order.clock(0), order.clock(1));
        order.arrive(&[0], 3);
        order.meet(&[1], Some(3));
        assert!(order.precedes(0, producer, 1) && !order.precedes(1, consumer, 0));
        assert!(!order.precedes(0, order.clock(0), 1));
    }

    #[test]
    fn global_memory_passes_on_what_came_before_a_fence() {
        let mut order = HappensBefore::new(3);
        let stamp = order.clock(0);
        order.signal(0, false);
        order.observe(1);
        assert!(!order.precedes(0, stamp, 1), "without a fence");
        order.fence(0);
        let later = order.clock(0);
        order.signal(0, false);
        order.observe(1);
        assert!(order.precedes(0, stamp, 1) && !order.precedes(0, later, 1) && !order.precedes(0, stamp, 2));
        order.signal(0, true);
        order.observe(2);
        assert!(order.precedes(0, later, 2) && !order.precedes(0, order.clock(0), 2));
    }

    #[test]
    fn what_is_read_again_tells_nothing_new_and_what_is_published_since_does() {
        let mut order = HappensBefore::new(3);
        let mut stamps = Vec::new();
        for thread in [0, 1] {
            stamps.push(order.clock(thread));
            order.signal(thread, true);
            order.signal(thread, false);
            order.observe(2);
            order.observe(2);
            // What a thread does after its fence is not published by another write.
            let later = order.clock(thread);
            order.signal(thread, false);
            order.observe(2);
            assert!(stamps.iter().zip(0..).all(|(&stamp, of)| order.precedes(of, stamp, 2)));
            assert!(!order.precedes(thread, later, 2));
        }
        // A barrier forgets what was published: everything before it is known.
        order.meet_all();
        let stamp = order.clock(0);
        order.observe(2);
        assert!(!order.precedes(0, stamp, 2));
        order.signal(0, true);
        order.observe(2);
        assert!(order.precedes(0, stamp, 2));
    }

    #[test]
    fn an_address_passes_on_what_threads_had_heard() {
        let mut order = HappensBefore::new(3);
        let stamp = order.clock(0);
        order.synchronize(0, 64);
        order.synchronize(1, 128);
        assert!(!order.precedes(0, stamp, 1));
        order.synchronize(1, 64);
        assert!(order.precedes(0, stamp, 1) && !order.precedes(0, stamp, 2));
    }
}
