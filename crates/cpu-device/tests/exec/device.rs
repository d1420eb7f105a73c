//! A device made of host allocations, for tests.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use apex_cpu_device::exec::{
    Fault, KernelId, LaunchParams, LaunchStats, Linked, Memory, Program, Region, launch,
};

/// Memory of a test: allocations that live as long as it, and what was printed.
#[derive(Default)]
pub struct Device {
    allocations: Mutex<Vec<Allocation>>,
    pub printed: Mutex<Vec<u8>>,
}

struct Allocation {
    storage: Vec<u128>,
    bytes: u64,
    writable: bool,
    freed: bool,
}

impl Allocation {
    fn start(&self) -> u64 {
        self.storage.as_ptr() as u64
    }
}

impl Device {
    pub fn allocate(&self, bytes: u64, writable: bool) -> u64 {
        let storage = vec![0u128; bytes.div_ceil(16).max(1) as usize];
        let allocation = Allocation { storage, bytes, writable, freed: false };
        let start = allocation.start();
        self.allocations.lock().unwrap().push(allocation);
        start
    }

    /// An allocation with these contents.
    pub fn upload(&self, contents: &[u8]) -> u64 {
        let start = self.allocate(contents.len() as u64, true);
        // SAFETY: the allocation has as many bytes, and no kernel runs.
        unsafe { std::ptr::copy_nonoverlapping(contents.as_ptr(), start as *mut u8, contents.len()) };
        start
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
                    apex_cpu_device::exec::RelocationTarget::Global(index) => addresses[index],
                    apex_cpu_device::exec::RelocationTarget::Function(address) => address,
                };
                let value = target.wrapping_add(relocation.addend as u64) >> relocation.shift;
                let (at, bytes) = (relocation.offset as usize, relocation.bytes as usize);
                contents[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
            }
            // SAFETY: the initial contents are no longer than the variable.
            unsafe { std::ptr::copy_nonoverlapping(contents.as_ptr(), address as *mut u8, contents.len()) };
        }
        Linked::new(program, addresses)
    }

    pub fn run(
        &self,
        linked: &Linked,
        kernel: KernelId,
        params: &LaunchParams,
    ) -> Result<LaunchStats, Fault> {
        launch(linked, kernel, params, self, &AtomicBool::new(false))
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
