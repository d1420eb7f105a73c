//! The inputs of the driver's linker. The linker makes machine code from them,
//! which the program then loads, so their PTX would be lost. Inputs with PTX are therefore held
//! until the linker completes, and stored together with the machine code as one image.

use super::Recorder;
use crate::limits;
use crate::switch::guarded;
use crate::tables::{push, put};
use fatbin::kept;
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The inputs with PTX of each linker that is not done yet, by its handle.
#[derive(Default)]
pub struct Links {
    inputs: HashMap<u64, Vec<Vec<u8>>>,
    /// Bytes of all.
    bytes: usize,
}

impl Links {
    fn take(&mut self, linker: u64) -> Vec<Vec<u8>> {
        let inputs = self.inputs.remove(&linker).unwrap_or_default();
        self.bytes -= inputs.iter().map(Vec::len).sum::<usize>();
        inputs
    }

    /// False, and nothing held, if there is no room.
    fn add(&mut self, linker: u64, input: &[u8]) -> bool {
        let is_known = self.inputs.contains_key(&linker);
        let mut owned = Vec::new();
        if !is_known && self.inputs.len() >= limits::LINKERS
            || self.bytes + input.len() > limits::LINK_BYTES
            || owned.try_reserve_exact(input.len()).is_err()
        {
            return false;
        }
        owned.extend_from_slice(input);
        if !is_known {
            put(&mut self.inputs, linker, Vec::new());
        }
        let is_held = self.inputs.get_mut(&linker).is_some_and(|inputs| push(inputs, owned));
        self.bytes += if is_held { input.len() } else { 0 };
        is_held
    }
}

impl Recorder {
    /// The program has added this to a linker: PTX, a fatbin, machine code, a library.
    pub fn note_link_input(&self, linker: u64, data: &[u8]) {
        guarded(|| {
            let Some(selected) = self.select(data).filter(|_| kept::has_ptx(data)) else { return };
            if !self.links().add(linker, &selected) {
                self.leave_out(selected.len() as u64);
            }
        });
    }

    /// As [`Recorder::note_link_input`], of a file.
    pub fn note_link_file(&self, linker: u64, path: &Path) {
        guarded(|| match apex_untrusted::read::read(path, limits::LINK_BYTES as u64) {
            Ok(data) => self.note_link_input(linker, &data),
            Err(_) => self.leave_out(0),
        });
    }

    /// A linker has made `machine_code`.
    pub fn link_completed(&self, linker: u64, machine_code: &[u8]) {
        guarded(|| {
            let inputs = self.links().take(linker);
            if !inputs.is_empty() {
                self.keep_linked(machine_code, inputs.into_iter().map(Cow::Owned).collect());
            }
        });
    }

    /// A linker is about to be destroyed.
    pub fn forget_linker(&self, linker: u64) {
        guarded(|| drop(self.links().take(linker)));
    }

    fn links(&self) -> MutexGuard<'_, Links> {
        // A panic while it was held leaves it valid: every step of its changes is.
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See [`Links`].
pub type HeldLinks = Mutex<Links>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_linkers_hold_is_bounded_and_given_back() {
        let mut links = Links::default();
        let half = vec![b'/'; limits::LINK_BYTES / 2];
        assert!(links.add(1, &half) && links.add(2, &half));
        assert!(!links.add(1, b"/"), "no room");
        assert_eq!(links.take(1), vec![half]);
        assert_eq!(links.take(1), Vec::<Vec<u8>>::new(), "once");
        assert!(links.add(3, b"/"));
        let held = (4..).take(limits::LINKERS).filter(|&linker| links.add(linker, b"")).count();
        assert_eq!((held, links.inputs.len()), (limits::LINKERS - 2, limits::LINKERS));
        let held: Vec<u64> = links.inputs.keys().copied().collect();
        held.into_iter().for_each(|linker| drop(links.take(linker)));
        assert_eq!(links.bytes, 0);
    }
}
