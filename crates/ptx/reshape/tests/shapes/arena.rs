//! Memory of the launches under test: one arena, in which three buffers lie.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cuda_launch::LaunchConfig;
use ptx_exec::{LaunchParams, Linked, Memory, Program, Region, Shadow, launch};

/// Bytes of a buffer.
pub const BUFFER: usize = 32 << 10;
/// Time after which a launch is ended; it is then of no use for the test.
const MOST_TIME: Duration = Duration::from_millis(500);
/// Buffers that kernels get as `a`, `b` and `c`.
const BUFFERS: usize = 3;

/// The arena, at an address that never changes.
pub struct Arena(Vec<u128>, Option<Watch>);

impl Arena {
    pub fn new() -> Arena {
        Arena(vec![0; BUFFERS * BUFFER / 16], None)
    }

    /// An arena whose launches are ended after some time.
    pub fn watched() -> Arena {
        Arena(Arena::new().0, Some(Watch::start()))
    }

    /// The address of a buffer.
    pub fn buffer(&self, index: usize) -> u64 {
        self.0.as_ptr() as u64 + (index * BUFFER) as u64
    }

    /// The whole arena.
    pub fn all(&self) -> (u64, u64) {
        (self.buffer(0), (BUFFERS * BUFFER) as u64)
    }

    /// The buffer that holds an address.
    pub fn one(&self, address: u64) -> Option<(u64, u64)> {
        let index = address.checked_sub(self.buffer(0))? / BUFFER as u64;
        (index < BUFFERS as u64).then(|| (self.buffer(index as usize), BUFFER as u64))
    }

    /// Puts words into the arena from its beginning on.
    pub fn fill(&mut self, words: &[u128]) {
        self.0.copy_from_slice(words);
    }

    #[allow(dead_code, reason = "tests that watch launches read it")]
    pub fn contents(&self) -> Vec<u128> {
        self.0.clone()
    }

    pub fn words(&self) -> usize {
        self.0.len()
    }

    /// What a launch leaves in the arena that begins with these words.
    pub fn run(
        &mut self,
        words: &[u128],
        linked: &Linked,
        config: LaunchConfig,
        params: &[u8],
    ) -> Result<Vec<u128>, Failure> {
        self.run_kernel(words, linked, "k", config, params)
    }

    /// The same of a kernel of this name.
    pub fn run_kernel(
        &mut self,
        words: &[u128],
        linked: &Linked,
        name: &str,
        config: LaunchConfig,
        params: &[u8],
    ) -> Result<Vec<u128>, Failure> {
        self.fill(words);
        let kernel = linked.program().kernel(name).expect("there is such a kernel");
        let params = LaunchParams { config, cooperative: false, stack: 1024, workers: 1, params };
        let cancel = self.1.as_ref().map(Watch::begin).unwrap_or_default();
        let outcome = launch(linked, kernel, &params, &*self, &cancel);
        self.1.iter().for_each(Watch::end);
        match outcome {
            Ok(_) => Ok(self.0.clone()),
            Err(_) if cancel.load(Ordering::Relaxed) => Err(Failure::Ended),
            Err(fault) => Err(Failure::Fault(format!("{fault:?}"))),
        }
    }
}

/// Why a launch left no memory to compare.
#[derive(Debug)]
pub enum Failure {
    /// It ran for too long and was ended.
    Ended,
    /// It faulted, as it says.
    #[expect(dead_code, reason = "messages of the tests show it")]
    Fault(String),
}

/// A launch that runs: when it began, and what ends it.
type Running = Option<(Instant, Arc<AtomicBool>)>;

/// A thread that ends launches which run for long: mutants may never end.
struct Watch(Arc<Mutex<Running>>);

impl Watch {
    fn start() -> Watch {
        let running: Arc<Mutex<Running>> = Arc::default();
        let weak = Arc::downgrade(&running);
        std::thread::spawn(move || {
            while let Some(running) = weak.upgrade() {
                let late = running.lock().unwrap().clone().filter(|(since, _)| since.elapsed() > MOST_TIME);
                if let Some((_, cancel)) = late {
                    cancel.store(true, Ordering::Relaxed);
                }
                drop(running);
                std::thread::sleep(MOST_TIME / 4);
            }
        });
        Watch(running)
    }

    fn begin(&self) -> Arc<AtomicBool> {
        let cancel = Arc::new(AtomicBool::new(false));
        *self.0.lock().unwrap() = Some((Instant::now(), cancel.clone()));
        cancel
    }

    fn end(&self) {
        *self.0.lock().unwrap() = None;
    }
}

// SAFETY: the arena lives and stays where it is as long as the launch borrows it.
unsafe impl Memory for Arena {
    fn region(&self, address: u64, bytes: u64) -> Option<Region> {
        let (start, size) = self.all();
        let fits = address >= start && address.checked_add(bytes)? <= start + size;
        fits.then_some(Region { start, end: start + size, writable: true })
    }

    fn describe(&self, _: u64) -> String {
        "no buffer".to_owned()
    }

    fn malloc(&self, _: u64) -> u64 {
        0
    }

    fn free(&self, _: u64) -> Result<(), String> {
        Err("nothing is allocated".to_owned())
    }

    fn print(&self, _: &[u8]) {}

    fn shadow(&self, _: u64) -> Option<Arc<Shadow>> {
        None
    }
}

/// A compiled kernel without variables.
pub fn compile(module: &ptx::Module, source: &str) -> Linked {
    let program =
        Program::compile(module).unwrap_or_else(|error| panic!("{}", error.render("k.ptx", source)));
    Linked::new(program, Vec::new())
}
