//! Events of NVTX: a name, in one of three forms; and what NCCL adds to its own.

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

/// `nvtxPayloadData_t`: where a structure is that the program attached to an event.
#[repr(C)]
#[derive(Clone, Copy)]
struct Payload {
    schema: u64,
    bytes: usize,
    data: *const u64,
}

/// The value of [`Event::payload_type`] for `reserved` structures, at the address `payload`.
const EXTENDED: i32 = 0xDFBD_0009_u32 as i32;

/// NCCL's calls that move data, with the sizes of their structures, in bytes, from the version on
/// in which these begin with the communicator's identifier (2.26). Before, they were 8 bytes
/// shorter and began with the size of the message.
const COLLECTIVES: [(&str, usize); 10] = [
    ("ncclAllReduce", 24),
    ("ncclAllGather", 16),
    ("ncclReduceScatter", 24),
    ("ncclBroadcast", 24),
    ("ncclReduce", 24),
    ("ncclSend", 24),
    ("ncclRecv", 24),
    ("ncclAlltoAll", 16),
    ("ncclGather", 24),
    ("ncclScatter", 24),
];

/// The communicator of a collective's event in NCCL's domain, by the identifier that it has on all
/// ranks; 0 if the event says none.
///
/// # Safety
/// As for [`Text::of`]; the structures that it names are there.
pub unsafe fn communicator(event: *const Event, name: &str) -> u64 {
    let Some(&(_, bytes)) = COLLECTIVES.iter().find(|(known, _)| *known == name) else { return 0 };
    // SAFETY: by contract; `Text::of` has checked that it is whole, and nobody has a name
    // otherwise.
    let event = unsafe { event.read_unaligned() };
    if event.payload_type != EXTENDED || event.reserved < 1 || event.payload == 0 {
        return 0;
    }
    // SAFETY: by contract, of such an event it is the address of a structure's description.
    let payload = unsafe { (event.payload as *const Payload).read_unaligned() };
    if payload.bytes != bytes || payload.data.is_null() {
        return 0;
    }
    // SAFETY: by contract, so many bytes are there.
    unsafe { payload.data.read_unaligned() }
}

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
