//! A device made of host allocations, for tests.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use ptx_exec::{
    Fault, Group, KernelId, LaunchParams, LaunchStats, Linked, Memory, Observation, Program, Region, Shadow,
    Texture, WatchOptions, launch, watch,
};

/// Memory of a test: allocations that live as long as it, and what was printed.
#[derive(Default)]
pub struct Device {
    allocations: Mutex<Vec<Allocation>>,
    pub printed: Mutex<Vec<u8>>,
    /// Whether kernels are watched.
    watched: bool,
    /// The defects of watched kernels.
    pub defects: Mutex<Vec<Group>>,
    /// By handle, from 1.
    textures: Mutex<Vec<Arc<Texture>>>,
}

struct Allocation {
    storage: Vec<u128>,
    bytes: u64,
    writable: bool,
    freed: bool,
    shadow: Arc<Shadow>,
}

/// Returns the start of an allocation, aligned as CUDA promises.
fn start(storage: &[u128]) -> u64 {
    (storage.as_ptr() as u64).next_multiple_of(256)
}

impl Allocation {
    fn start(&self) -> u64 {
        start(&self.storage)
    }
}

impl Device {
    /// A device that watches its kernels, or one that does not.
    pub fn watched(watched: bool) -> Self {
        Device { watched, ..Device::default() }
    }

    pub fn allocate(&self, bytes: u64, writable: bool) -> u64 {
        // What lies behind is no part of it.
        let storage = vec![0u128; (bytes.max(1) + 512).div_ceil(16) as usize];
        let shadow = Arc::new(Shadow::new(start(&storage), bytes).unwrap());
        let allocation = Allocation { storage, bytes, writable, freed: false, shadow };
        let start = allocation.start();
        self.allocations.lock().unwrap().push(allocation);
        start
    }

    /// An allocation with these contents.
    pub fn upload(&self, contents: &[u8]) -> u64 {
        let start = self.allocate(contents.len() as u64, true);
        // SAFETY: the allocation has as many bytes, and no kernel runs.
        unsafe { std::ptr::copy_nonoverlapping(contents.as_ptr(), start as *mut u8, contents.len()) };
        self.shadow(start).unwrap().mark(start, contents.len() as u64);
        start
    }

    /// The handle of a texture object.
    #[allow(dead_code, reason = "benchmarks use it")]
    pub fn make_texture(&self, texture: Texture) -> u64 {
        let mut textures = self.textures.lock().unwrap();
        textures.push(Arc::new(texture));
        textures.len() as u64
    }

    pub fn download(&self, address: u64, bytes: usize) -> Vec<u8> {
        assert!(self.region(address, bytes as u64).is_some());
        let mut contents = vec![0; bytes];
        // SAFETY: the bytes lie in an allocation, and no kernel runs.
        unsafe { std::ptr::copy_nonoverlapping(address as *const u8, contents.as_mut_ptr(), bytes) };
        contents
    }

    /// Compiles PTX and gives its variables memory.
    pub fn load(&self, source: &str) -> Linked {
        let module =
            ptx::parse(source).unwrap_or_else(|error| panic!("{}", error.render("test.ptx", source)));
        let program =
            Program::compile(&module).unwrap_or_else(|error| panic!("{}", error.render("test.ptx", source)));
        let addresses: Vec<u64> =
            program.globals().iter().map(|global| self.allocate(global.size, true)).collect();
        for (global, &address) in program.globals().iter().zip(&addresses) {
            let mut contents = global.initial.clone();
            for relocation in &global.relocations {
                let target = match relocation.target {
                    ptx_exec::RelocationTarget::Global(index) => addresses[index],
                    ptx_exec::RelocationTarget::Function(address) => address,
                };
                let value = target.wrapping_add(relocation.addend as u64) >> relocation.shift;
                let (at, bytes) = (relocation.offset as usize, relocation.bytes as usize);
                contents[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
            }
            // SAFETY: the initial contents are no longer than the variable.
            unsafe { std::ptr::copy_nonoverlapping(contents.as_ptr(), address as *mut u8, contents.len()) };
            // What has no initial value is zero.
            if let Some(shadow) = self.shadow(address) {
                shadow.mark(address, global.size);
            }
        }
        Linked::new(program, addresses)
    }

    pub fn run(
        &self,
        linked: &Linked,
        kernel: KernelId,
        params: &LaunchParams,
    ) -> Result<LaunchStats, Fault> {
        if !self.watched {
            return launch(linked, kernel, params, self, &AtomicBool::new(false));
        }
        let (outcome, seen) = self.watch(linked, kernel, params);
        self.defects.lock().unwrap().extend(seen.defects);
        outcome
    }

    /// Runs a kernel, counts what it does and looks for defects.
    pub fn watch(
        &self,
        linked: &Linked,
        kernel: KernelId,
        params: &LaunchParams,
    ) -> (Result<LaunchStats, Fault>, Observation) {
        let options = WatchOptions { count: true, check: true, ..WatchOptions::default() };
        let (outcome, mut seen) = watch(linked, kernel, params, self, &AtomicBool::new(false), options);
        // The host reads everything afterwards.
        let read = seen.latent.drain(..).filter(|latent| latent.is_in(0, u64::MAX));
        seen.defects.extend(read.map(|latent| latent.group));
        (outcome, seen)
    }
}

// SAFETY: allocations are never given back before the device itself.
unsafe impl Memory for Device {
    fn region(&self, address: u64, bytes: u64) -> Option<Region> {
        let allocations = self.allocations.lock().unwrap();
        allocations
            .iter()
            .filter(|allocation| !allocation.freed)
            .map(|allocation| Region {
                start: allocation.start(),
                end: allocation.start() + allocation.bytes,
                writable: allocation.writable,
            })
            .find(|region| address >= region.start && address.saturating_add(bytes) <= region.end)
    }

    fn texture(&self, handle: u64) -> Option<Arc<Texture>> {
        let index = usize::try_from(handle).ok()?.checked_sub(1)?;
        self.textures.lock().unwrap().get(index).cloned()
    }

    fn describe(&self, _: u64) -> String {
        "no allocation".to_owned()
    }

    fn malloc(&self, bytes: u64) -> u64 {
        self.allocate(bytes, true)
    }

    fn free(&self, address: u64) -> Result<(), String> {
        let mut allocations = self.allocations.lock().unwrap();
        let found =
            allocations.iter_mut().find(|allocation| allocation.start() == address && !allocation.freed);
        found
            .map(|allocation| allocation.freed = true)
            .ok_or_else(|| "free of what is not allocated".to_owned())
    }

    fn print(&self, text: &[u8]) {
        self.printed.lock().unwrap().extend_from_slice(text);
    }

    fn shadow(&self, address: u64) -> Option<Arc<Shadow>> {
        let allocations = self.allocations.lock().unwrap();
        let found =
            allocations.iter().find(|allocation| allocation.shadow.holds(address, 1) && !allocation.freed);
        found.map(|allocation| allocation.shadow.clone())
    }
}

/// Parameters of a kernel, put one after the other as its layout says.
pub fn pack(linked: &Linked, kernel: KernelId, values: &[Vec<u8>]) -> Vec<u8> {
    let attributes = linked.program().attributes(kernel);
    let mut bytes = vec![0; attributes.param_bytes()];
    assert_eq!(attributes.params.len(), values.len(), "the kernel's parameters");
    for (layout, value) in attributes.params.iter().zip(values) {
        assert_eq!(layout.size, value.len(), "size of a parameter");
        bytes[layout.offset..layout.offset + layout.size].copy_from_slice(value);
    }
    bytes
}
