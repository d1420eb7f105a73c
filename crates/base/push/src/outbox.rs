//! Messages that wait for their turn.

use crate::target::Failure;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The number and times of attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Attempts at one message.
    pub attempts: u32,
    /// Pause before the second attempt; it doubles before each further one.
    pub pause: Duration,
    /// Messages that wait. When another one comes, the oldest is lost.
    pub waiting: usize,
}

impl Default for Policy {
    fn default() -> Self {
        Self { attempts: 4, pause: Duration::from_secs(1), waiting: 64 }
    }
}

/// The state of delivery, reported on each change instead of on each failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Messages are lost from now on, for this reason.
    Fails(Failure),
    /// Messages are taken again, after this number of them was lost.
    Recovered(u64),
}

/// Sends messages on a thread of its own, in their order.
#[derive(Debug)]
pub struct Outbox<M> {
    shared: Arc<Shared<M>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared<M> {
    queue: Mutex<Queue<M>>,
    changed: Condvar,
    /// Messages that may wait.
    most: usize,
}

#[derive(Debug)]
struct Queue<M> {
    messages: VecDeque<M>,
    /// A message is under way: it was taken out, and is neither sent nor given up yet.
    under_way: bool,
    /// Messages that were lost since the last one that was taken.
    lost: u64,
    /// No message will come any more.
    closed: bool,
    /// Nothing is tried any more.
    abandoned: bool,
    /// The thread has ended.
    done: bool,
}

impl<M> Shared<M> {
    fn lock(&self) -> MutexGuard<'_, Queue<M>> {
        // What a panic left is sound: each change of the queue is one statement.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits on a lock until something changes, at most so long.
    fn wait<'a>(&self, queue: MutexGuard<'a, Queue<M>>, longest: Duration) -> MutexGuard<'a, Queue<M>> {
        let waited = self.changed.wait_timeout(queue, longest);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl<M: Send + 'static> Outbox<M> {
    /// Starts the thread. `send` makes one attempt, and must end in bounded time; `tell` says what
    /// the user should know.
    pub fn start(
        policy: Policy,
        send: impl FnMut(&M) -> Result<(), Failure> + Send + 'static,
        tell: impl FnMut(Event) + Send + 'static,
    ) -> Self {
        let queue = Queue {
            messages: VecDeque::new(),
            under_way: false,
            lost: 0,
            closed: false,
            abandoned: false,
            done: false,
        };
        let shared =
            Arc::new(Shared { queue: Mutex::new(queue), changed: Condvar::new(), most: policy.waiting });
        let worker = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            Sender { shared: &worker, policy, send, tell, fails: false }.run();
            worker.lock().done = true;
            worker.changed.notify_all();
        });
        Self { shared, thread: Some(thread) }
    }

    /// Puts a message in. Where too many wait, the oldest one is lost.
    pub fn put(&self, message: M) {
        let mut queue = self.shared.lock();
        if queue.messages.len() >= self.shared.most.max(1) {
            queue.messages.pop_front();
            queue.lost += 1;
        }
        queue.messages.push_back(message);
        drop(queue);
        self.shared.changed.notify_all();
    }

    /// Waits until all messages have been sent or given up, at most so long. Returns how many were
    /// not sent, among them the one that is under way, of which nobody will learn whether it
    /// arrives.
    pub fn close(mut self, longest: Duration) -> u64 {
        let begun = Instant::now();
        let mut queue = self.shared.lock();
        queue.closed = true;
        self.shared.changed.notify_all();
        while !queue.done {
            let left = longest.saturating_sub(begun.elapsed());
            if left.is_zero() {
                // The attempt that is under way ends with the process.
                queue.abandoned = true;
                self.thread = None;
                return queue.lost + queue.messages.len() as u64 + u64::from(queue.under_way);
            }
            queue = self.shared.wait(queue, left);
        }
        let lost = queue.lost;
        drop(queue);
        if let Some(thread) = self.thread.take() {
            // It is done; whether it panicked is on stderr.
            let _ = thread.join();
        }
        lost
    }
}

/// The thread's side.
struct Sender<'a, M, S, T> {
    shared: &'a Shared<M>,
    policy: Policy,
    send: S,
    tell: T,
    /// Whether the last message was lost.
    fails: bool,
}

impl<M, S: FnMut(&M) -> Result<(), Failure>, T: FnMut(Event)> Sender<'_, M, S, T> {
    fn run(&mut self) {
        while let Some(message) = self.next() {
            match self.attempt(&message) {
                Ok(()) => {
                    let mut queue = self.shared.lock();
                    queue.under_way = false;
                    let lost = std::mem::take(&mut queue.lost);
                    drop(queue);
                    if std::mem::take(&mut self.fails) || lost > 0 {
                        (self.tell)(Event::Recovered(lost));
                    }
                }
                Err(failure) => {
                    let mut queue = self.shared.lock();
                    queue.under_way = false;
                    queue.lost += 1;
                    drop(queue);
                    if !std::mem::replace(&mut self.fails, true) {
                        (self.tell)(Event::Fails(failure));
                    }
                }
            }
        }
    }

    /// The next message; `None` when there will be none.
    fn next(&self) -> Option<M> {
        let mut queue = self.shared.lock();
        loop {
            if queue.abandoned {
                return None;
            }
            if let Some(message) = queue.messages.pop_front() {
                queue.under_way = true;
                return Some(message);
            }
            if queue.closed {
                return None;
            }
            queue = self.shared.wait(queue, Duration::from_secs(60));
        }
    }

    /// Tries until it is taken, as often as the policy allows.
    fn attempt(&mut self, message: &M) -> Result<(), Failure> {
        let mut pause = self.policy.pause;
        for _ in 1..self.policy.attempts {
            match (self.send)(message) {
                Err(failure) if failure.is_transient() => {}
                done => return done,
            }
            self.rest(pause);
            pause = pause.saturating_mul(2);
        }
        (self.send)(message)
    }

    /// Pauses, unless nothing is to be tried any more.
    fn rest(&self, pause: Duration) {
        let begun = Instant::now();
        let mut queue = self.shared.lock();
        while !queue.abandoned && begun.elapsed() < pause {
            queue = self.shared.wait(queue, pause.saturating_sub(begun.elapsed()));
        }
    }
}
