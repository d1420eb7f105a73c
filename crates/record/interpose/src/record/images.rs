//! Images: the code that the program loads. The blocks that its kernels require are remembered, and
//! the session stores by default its PTX, and small images of machine code without PTX: `apex run`
//! replaces those of Triton's kernels by their PTX, and removes what is too much. With `apex run
//! --code` it stores all that describes launches.

use super::Recorder;
use crate::objects::images::Image;
use crate::switch::guarded;
use crate::tables::put;
use crate::{driver, limits};
use apex_conventions::variables;
use apex_trace::image;
use apex_untrusted::read;
use fatbin::kept;
use launch_condition::code_hash;
use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// First bytes of a cubin, and of a fatbin.
const MACHINE_CODE: [[u8; 4]; 2] = [*b"\x7fELF", [0x50, 0xed, 0x55, 0xba]];
/// Largest file that is read again after the driver has loaded it.
const MOST_FILE_BYTES: u64 = 1 << 30;
/// The same without `--code`.
const MOST_PTX_FILE_BYTES: u64 = 16 << 20;

/// Most bytes of an image that is stored without `--code`: some hundred kernels have that much PTX.
const MOST_PTX_BYTES: usize = 2 << 20;
/// Most bytes of an image of machine code that is stored without `--code`: those of Triton's
/// kernels and of XLA's have fewer.
const MOST_CUBIN_BYTES: usize = 256 << 10;

/// Who is told of PTX; see [`tell_ptx`].
static TOLD: OnceLock<fn(u128, &[u8])> = OnceLock::new();

/// Has `told` know of each PTX that the program loads and the driver compiles, by its hash and
/// text, before the program has its module. The first one stays.
pub fn tell_ptx(told: fn(u128, &[u8])) {
    TOLD.get_or_init(|| told);
}

/// The images that this process has seen, by hash, and whether the session has them.
pub type SeenImages = Mutex<HashMap<u128, bool>>;

impl Recorder {
    /// Whether images and arguments are kept.
    pub fn keeps_code(&self) -> bool {
        self.control.keeps_code()
    }

    /// Whether images are kept, or only their PTX.
    pub fn keeps_images(&self) -> bool {
        self.control.keeps_ptx()
    }

    /// Notes the image that the program has just loaded as the module or library `handle`.
    ///
    /// # Safety
    /// `image` is what the driver has just loaded.
    pub unsafe fn note_image(&self, handle: u64, image: *const u8) {
        guarded(|| {
            // SAFETY: by contract; the driver demands what `whole` does.
            match unsafe { fatbin::whole(image) } {
                Ok(parts) => self.note_parts(handle, &parts),
                Err(_) => self.leave_out(0),
            }
        });
    }

    /// As [`Recorder::note_image`], of a file.
    pub fn note_file(&self, handle: u64, path: &Path) {
        let most = if self.keeps_code() { MOST_FILE_BYTES } else { MOST_PTX_FILE_BYTES };
        guarded(|| match read::read(path, most) {
            Ok(bytes) => self.note_parts(handle, &[&bytes]),
            Err(_) => self.leave_out(0),
        });
    }

    /// Counts what `--code` would have kept; without it nothing was asked for.
    pub(super) fn leave_out(&self, bytes: u64) {
        if self.keeps_code() {
            self.control.code.leave_out(bytes);
        }
    }

    /// Returns the part of an image that is kept; `None` for nothing.
    pub(super) fn select<'a>(&self, part: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        let architecture = driver::architecture();
        if !self.control.keeps_only_ptx() {
            return Some(kept::select(part, architecture));
        }
        let is_machine_code = MACHINE_CODE.iter().any(|magic| part.starts_with(magic));
        let is_small = is_machine_code && part.len() <= MOST_CUBIN_BYTES;
        let machine_code = || is_small.then(|| kept::select(part, architecture));
        kept::select_ptx(part, architecture).or_else(machine_code).filter(|kept| kept.len() <= MOST_PTX_BYTES)
    }

    fn note_parts(&self, handle: u64, parts: &[&[u8]]) {
        let architecture = driver::architecture();
        let required = parts.iter().flat_map(|part| fatbin::required_blocks(part, architecture)).collect();
        let hash = self.keeps_images().then(|| self.keep(parts)).flatten();
        let ptx = match parts {
            [part] => fatbin::compiled_ptx(part, architecture).map(|text| {
                let code = code_hash(&text);
                TOLD.get().into_iter().for_each(|told| told(code, &text));
                code
            }),
            _ => None,
        };
        self.objects.note_image(handle, Image { hash, required: Arc::new(required), ptx });
    }

    /// The hash of an image, if the session has it.
    fn keep(&self, parts: &[&[u8]]) -> Option<u128> {
        let selected: Vec<_> = parts.iter().filter_map(|part| self.select(part)).collect();
        if selected.is_empty() {
            return None;
        }
        let hash = hash(&selected);
        let known = self.seen_images().get(&hash).copied();
        known.unwrap_or_else(|| self.keep_new(hash, &selected)).then_some(hash)
    }

    /// Keeps machine code that the program may load, and what it was linked from, as one image.
    pub(super) fn keep_linked<'a>(&self, machine_code: &'a [u8], mut inputs: Vec<Cow<'a, [u8]>>) {
        inputs.insert(0, kept::select(machine_code, driver::architecture()));
        let hash = hash(&inputs[..1]);
        if !self.seen_images().contains_key(&hash) {
            let kept = if self.control.keeps_only_ptx() { &inputs[1..] } else { &inputs[..] };
            self.keep_new(hash, kept);
        }
    }

    fn keep_new(&self, hash: u128, parts: &[Cow<'_, [u8]>]) -> bool {
        let written = variables::SESSION.path().zip(kept::pack(parts));
        let is_kept = written
            .is_some_and(|(session, packed)| image::keep(&session, self.control, hash, &packed).is_ok());
        if !is_kept {
            self.leave_out(parts.iter().map(|part| part.len() as u64).sum());
        }
        let mut seen = self.seen_images();
        if seen.len() < limits::IMAGES {
            put(&mut seen, hash, is_kept);
        }
        is_kept
    }

    fn seen_images(&self) -> std::sync::MutexGuard<'_, HashMap<u128, bool>> {
        // A panic while it was held leaves the map valid: every step of its changes is.
        self.images.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// 128 bits that stand for the parts of an image.
fn hash(parts: &[Cow<'_, [u8]>]) -> u128 {
    let half = |seed: u64| {
        let mut hasher = DefaultHasher::new();
        (seed, parts).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(1) << 64 | half(2)
}
