//! Texts for which the program holds a handle: names of domains, registered strings.
//!
//! Texts are only added, and found without a lock. They therefore survive a fork: whatever other
//! threads of the parent were doing, a text is either complete or absent.

use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

/// Names of domains.
pub static DOMAINS: Texts<1024> = Texts::new();
/// Registered strings.
pub static STRINGS: Texts<16384> = Texts::new();

/// A list of at most `N` texts.
pub struct Texts<const N: usize> {
    places: [AtomicPtr<String>; N],
}

impl<const N: usize> Texts<N> {
    const fn new() -> Texts<N> {
        Texts { places: [const { AtomicPtr::new(std::ptr::null_mut()) }; N] }
    }

    /// Adds a text that is not there yet, and gives its handle; 0 if there is no room.
    pub fn add(&self, text: &str) -> u32 {
        let mut new: *mut String = std::ptr::null_mut();
        for (at, place) in self.places.iter().enumerate() {
            let mut found = place.load(Acquire);
            if found.is_null() {
                if new.is_null() {
                    new = Box::into_raw(Box::new(text.to_owned()));
                }
                match place.compare_exchange(found, new, AcqRel, Acquire) {
                    Ok(_) => return at as u32 + 1,
                    Err(other) => found = other,
                }
            }
            // SAFETY: what is in a place stays there.
            if unsafe { &*found } == text {
                free(new);
                return at as u32 + 1;
            }
        }
        free(new);
        0
    }

    /// The text of a handle.
    pub fn get(&self, handle: u32) -> Option<&'static str> {
        let place = self.places.get((handle as usize).checked_sub(1)?)?;
        // SAFETY: null, or a leaked string that nobody changes.
        unsafe { place.load(Acquire).as_ref() }.map(String::as_str)
    }
}

/// Frees a text that was not added.
fn free(new: *mut String) {
    if !new.is_null() {
        // SAFETY: made from a box by `add`, and in no place.
        drop(unsafe { Box::from_raw(new) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_have_one_handle_in_all_threads() {
        static TEXTS: Texts<100> = Texts::new();
        let all = || (0..200).map(|number| TEXTS.add(&format!("text {}", number % 50))).collect::<Vec<_>>();
        let handles: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(all)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(handles.iter().all(|other| *other == handles[0]));
        assert_eq!(TEXTS.get(handles[0][7]), Some("text 7"));
        assert_eq!((TEXTS.get(0), TEXTS.get(51), TEXTS.get(101)), (None, None, None));
        (50..100).for_each(|number| assert_ne!(TEXTS.add(&number.to_string()), 0));
        assert_eq!(TEXTS.add("one too many"), 0);
    }
}
