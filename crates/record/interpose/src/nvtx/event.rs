//! Events of NVTX: a name, in one of three forms.

use crate::limits::RANGE_NAME_BYTES;
use crate::ranges::texts::{STRINGS, Texts};
use std::ffi::c_char;

/// `nvtxEventAttributes_v2`.
#[repr(C)]
pub struct Event {
    version: u16,
    bytes: u16,
    category: u32,
    color_type: i32,
    color: u32,
    payload_type: i32,
    reserved: i32,
    payload: u64,
    message_type: i32,
    message: u64,
}

const _: () = assert!(size_of::<Event>() == 48);

/// Values of [`Event::message_type`].
const ASCII: i32 = 1;
const UNICODE: i32 = 2;
const REGISTERED: i32 = 3;

/// A text of the program's.
#[derive(Clone, Copy)]
pub enum Text {
    /// None.
    None,
    /// Bytes up to a zero: UTF-8, but what is not is replaced.
    Ascii(*const c_char),
    /// `wchar_t` up to a zero.
    Wide(*const u32),
    /// A handle of [`STRINGS`].
    Registered(u64),
}

impl Text {
    /// The name of an event.
    ///
    /// # Safety
    /// `event` is null or points to as many bytes of attributes as it says.
    pub unsafe fn of(event: *const Event) -> Text {
        // SAFETY: by contract the first two fields are there, and then the others are.
        let event = unsafe {
            if event.is_null()
                || usize::from((&raw const (*event).bytes).read_unaligned()) < size_of::<Event>()
            {
                return Text::None;
            }
            event.read_unaligned()
        };
        match event.message_type {
            ASCII => Text::Ascii(event.message as *const c_char),
            UNICODE => Text::Wide(event.message as *const u32),
            REGISTERED => Text::Registered(event.message),
            _ => Text::None,
        }
    }

    /// Hands the text, cut to [`RANGE_NAME_BYTES`], to `work`.
    ///
    /// # Safety
    /// The address is null or that of such a text.
    pub unsafe fn with<R>(self, work: impl FnOnce(&str) -> R) -> R {
        match self {
            Text::Ascii(text) if !text.is_null() => {
                // SAFETY: by contract there is a zero, or so many bytes before it.
                let bytes = unsafe {
                    std::slice::from_raw_parts(text.cast::<u8>(), libc::strnlen(text, RANGE_NAME_BYTES))
                };
                match std::str::from_utf8(bytes) {
                    Ok(text) => work(text),
                    // Cut within a character.
                    Err(error) if error.error_len().is_none() => {
                        work(std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default())
                    }
                    Err(_) => work(&String::from_utf8_lossy(bytes)),
                }
            }
            Text::Wide(text) if !text.is_null() => {
                // SAFETY: by contract; no character after the zero is read.
                let characters = (0..RANGE_NAME_BYTES / 4).map(|at| unsafe { text.add(at).read_unaligned() });
                let characters = characters.take_while(|&character| character != 0);
                let shown = |character| char::from_u32(character).unwrap_or(char::REPLACEMENT_CHARACTER);
                work(&characters.map(shown).collect::<String>())
            }
            Text::Registered(handle) => {
                work(u32::try_from(handle).ok().and_then(|handle| STRINGS.get(handle)).unwrap_or_default())
            }
            _ => work(""),
        }
    }

    /// Adds the text, and gives its handle.
    ///
    /// # Safety
    /// As for [`Text::with`].
    pub unsafe fn add_to<const N: usize>(self, texts: &Texts<N>) -> usize {
        // SAFETY: by contract.
        unsafe { self.with(|text| crate::switch::guarded(|| texts.add(text)).unwrap_or(0) as usize) }
    }
}
