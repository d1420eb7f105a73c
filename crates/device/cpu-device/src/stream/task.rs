//! Ordered, asynchronous work: tasks that start when those before them have ended, and the threads
//! that run them.
//!
//! Everything that streams, events and graphs order comes down to this. A stream is the task
//! submitted to it last, an event is the task it was recorded behind, a graph launch is one task
//! for each node.
//!
//! Invariants:
//! - A task runs exactly once, after every task it was put behind has ended, and ends even when its
//!   work panics.
//! - Edges point forward only: a task knows its successors, never its predecessors, so an ended
//!   task keeps nothing alive.
//! - A task that is ready never waits for a thread: one is started when none is idle, up to
//!   [`MAX_THREADS`], the number of grids that a GPU of compute capability 8.0 holds at once.
//!   Kernels that spin on each other's results therefore end here whenever they end there.

use crate::device;
use crate::error::{Result, ensure};
use crate::headroom;
use crate::thread;
use cuda_abi::types::CUDA_ERROR_OUT_OF_MEMORY;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The maximum number of tasks that run at once.
const MAX_THREADS: usize = 128;

/// The time that an idle thread stays.
const IDLE: Duration = Duration::from_secs(2);

type Work = Box<dyn FnOnce() + Send>;

/// One piece of work with its place in the order.
pub struct Task {
    state: Mutex<State>,
    ended: Condvar,
}

struct State {
    /// Predecessors that have not ended, and one more until the task has been started.
    pending: usize,
    work: Option<Work>,
    successors: Vec<Arc<Task>>,
    ended: bool,
}

impl State {
    /// Whether the work could be begun now: nothing is before it, and nobody has begun it.
    fn can_begin(&self) -> bool {
        self.pending == 0 && self.work.is_some()
    }
}

impl Task {
    /// A task that will do `work` once every task of `after` has ended and it has been
    /// [started](Task::start). Between the two, others can be put behind it.
    pub fn new(work: impl FnOnce() + Send + 'static, after: &[Arc<Task>]) -> Arc<Task> {
        let state = State { pending: 1, work: Some(Box::new(work)), successors: Vec::new(), ended: false };
        let task = Arc::new(Task { state: Mutex::new(state), ended: Condvar::new() });
        for predecessor in after {
            let mut before = predecessor.lock();
            if !before.ended {
                task.lock().pending += 1;
                before.successors.push(task.clone());
            }
        }
        task
    }

    /// Lets the task run, on a pool thread.
    pub fn start(self: &Arc<Task>) {
        if self.release() {
            POOL.start(self.clone());
        }
    }

    /// Lets the task run and returns when it has ended: on the calling thread when nothing is left
    /// before it and the stack is ample.
    pub fn start_and_wait(self: &Arc<Task>) {
        if self.release() && !thread::has_ample_stack() {
            POOL.start(self.clone());
        }
        self.wait();
    }

    /// Whether the work has been done.
    pub fn has_ended(&self) -> bool {
        self.lock().ended
    }

    /// Blocks until the work has been done. Work that is ready and that no thread has begun yet is
    /// done here and now, if the stack is ample: a thread that sleeps costs more to wake than most
    /// work takes.
    pub fn wait(&self) {
        let helps = thread::has_ample_stack();
        loop {
            let mut state = self.lock();
            while !(state.ended || helps && state.can_begin()) {
                state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.ended {
                return;
            }
            drop(state);
            self.perform_and_pass_on();
        }
    }

    /// Takes away one thing that the task waits for; true when that was the last.
    fn release(&self) -> bool {
        let mut state = self.lock();
        state.pending -= 1;
        state.pending == 0
    }

    /// Does the work and hands the tasks that may start now to the pool: who waits for its own work
    /// does not want to do that of others.
    fn perform_and_pass_on(&self) {
        self.perform().into_iter().for_each(|successor| POOL.start(successor));
    }

    /// Does the work, unless another thread has begun it, and returns the tasks that may start now.
    fn perform(&self) -> Vec<Arc<Task>> {
        let Some(work) = self.lock().work.take() else { return Vec::new() };
        // What a panic means for the program is decided by who submitted the work; here it only
        // must not take the thread or the tasks behind this one with it.
        let _ = catch_unwind(AssertUnwindSafe(work));
        let mut state = self.lock();
        state.ended = true;
        self.ended.notify_all();
        let successors = std::mem::take(&mut state.successors);
        drop(state);
        successors.into_iter().filter(|successor| successor.release()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a ready task and, on the same thread, the first of each set of tasks that it makes ready: a
/// stream's work stays on one thread while nothing else wants it.
fn run(mut task: Arc<Task>) {
    loop {
        let mut ready = task.perform().into_iter();
        let Some(next) = ready.next() else { return };
        ready.for_each(|other| POOL.start(other));
        task = next;
    }
}

/// Fails unless there is a thread for work that the caller does not wait for.
pub fn ensure_thread() -> Result {
    ensure(POOL.ensure_thread(), CUDA_ERROR_OUT_OF_MEMORY)
}

/// The threads, shared by all contexts.
static POOL: Pool = Pool {
    state: Mutex::new(PoolState { ready: VecDeque::new(), idle: 0, threads: 0 }),
    wake: Condvar::new(),
};

struct Pool {
    state: Mutex<PoolState>,
    wake: Condvar,
}

struct PoolState {
    ready: VecDeque<Arc<Task>>,
    idle: usize,
    threads: usize,
}

impl Pool {
    /// Has a task that is ready run as soon as possible.
    fn start(&'static self, task: Arc<Task>) {
        let mut state = self.lock();
        state.ready.push_back(task);
        if state.ready.len() <= state.idle {
            self.wake.notify_one();
            return;
        }
        if state.threads >= MAX_THREADS {
            return;
        }
        state.threads += 1;
        drop(state);
        if !self.spawn(false) {
            self.lock().threads -= 1;
            self.serve_without_a_thread();
        }
    }

    /// Sees to it that there is a thread; false if the system refuses one.
    fn ensure_thread(&'static self) -> bool {
        let mut state = self.lock();
        if state.threads > 0 {
            return true;
        }
        // It counts as idle from now on, so that a task that comes before it has begun waits for
        // it.
        (state.threads, state.idle) = (1, 1);
        drop(state);
        let spawned = self.spawn(true);
        if !spawned {
            let mut state = self.lock();
            (state.threads, state.idle) = (state.threads - 1, state.idle - 1);
            drop(state);
            self.serve_without_a_thread();
        }
        spawned
    }

    /// Starts a thread that has been counted, as idle if `idle` is set; false if the system refuses
    /// it.
    fn spawn(&'static self, idle: bool) -> bool {
        let thread = std::thread::Builder::new().name("apex-stream".into());
        let begin = move || {
            if let Ok(device) = device::get() {
                device.memory.note_stack();
            }
            self.serve(idle);
        };
        headroom::for_thread() && thread.spawn(begin).is_ok()
    }

    /// The life of a pool thread, which has been counted as idle or not.
    fn serve(&'static self, idle: bool) {
        let mut state = self.lock();
        state.idle -= usize::from(idle);
        loop {
            if let Some(task) = state.ready.pop_front() {
                drop(state);
                run(task);
                state = self.lock();
                continue;
            }
            state.idle += 1;
            let (guard, timeout) =
                self.wake.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = guard;
            state.idle -= 1;
            if timeout.timed_out() && state.ready.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }

    /// The system refused a thread: the submitter does what is ready, unless other threads are
    /// there to do it.
    fn serve_without_a_thread(&'static self) {
        let mut state = self.lock();
        while state.threads == 0 {
            let Some(task) = state.ready.pop_front() else { return };
            drop(state);
            run(task);
            state = self.lock();
        }
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    fn submit(work: impl FnOnce() + Send + 'static, after: &[Arc<Task>]) -> Arc<Task> {
        let task = Task::new(work, after);
        task.start();
        task
    }

    #[test]
    fn a_chain_runs_in_order() {
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tail: Vec<Arc<Task>> = Vec::new();
        for step in 0..1000 {
            let order = order.clone();
            tail = vec![submit(move || order.lock().unwrap().push(step), &tail)];
        }
        tail[0].wait();
        assert_eq!(*order.lock().unwrap(), (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn a_task_waits_for_all_of_its_predecessors() {
        let done = Arc::new(AtomicUsize::new(0));
        let (release, gate) = mpsc::channel::<()>();
        let gate = Mutex::new(gate);
        let mut before: Vec<_> = (0..20)
            .map(|_| {
                let done = done.clone();
                submit(move || _ = done.fetch_add(1, Ordering::SeqCst), &[])
            })
            .collect();
        let last = done.clone();
        before.push(submit(
            move || {
                gate.lock().unwrap().recv().unwrap();
                last.fetch_add(1, Ordering::SeqCst);
            },
            &[],
        ));
        let seen = done.clone();
        let (report, result) = mpsc::channel();
        let join = submit(move || report.send(seen.load(Ordering::SeqCst)).unwrap(), &before);
        assert!(!join.has_ended());
        release.send(()).unwrap();
        assert_eq!(result.recv().unwrap(), 21);
        join.wait();
    }

    #[test]
    fn independent_tasks_run_at_the_same_time() {
        // Each waits for all the others: with fewer threads than tasks this would never end.
        let barrier = Arc::new(std::sync::Barrier::new(32));
        let tasks: Vec<_> = (0..32)
            .map(|_| {
                let barrier = barrier.clone();
                submit(move || _ = barrier.wait(), &[])
            })
            .collect();
        tasks.iter().for_each(|task| task.wait());
    }

    #[test]
    fn a_panic_ends_its_task_and_no_other() {
        let first = submit(|| std::panic::resume_unwind(Box::new("expected by this test")), &[]);
        let ran = Arc::new(AtomicUsize::new(0));
        let seen = ran.clone();
        submit(move || _ = seen.fetch_add(1, Ordering::SeqCst), std::slice::from_ref(&first)).wait();
        assert!(first.has_ended());
        assert_eq!(ran.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn waiting_work_runs_on_the_caller_when_nothing_is_before_it() {
        let caller = std::thread::current().id();
        let (send, receive) = mpsc::channel();
        Task::new(move || send.send(std::thread::current().id()).unwrap(), &[]).start_and_wait();
        assert_eq!(receive.recv().unwrap(), caller);
    }
}
