//! NVRTC's options, with the virtual architecture in place of an actual one.
//!
//! An architecture is given as `--gpu-architecture=sm_80`, `-arch=sm_80`, or as two options, with
//! the value in the second. Letters behind the number (`sm_90a`) stay.

use std::ffi::{CStr, CString, c_char};

/// The names of the option.
const NAMES: [&[u8]; 4] = [b"--gpu-architecture", b"-gpu-architecture", b"--arch", b"-arch"];

/// Options of which at least one was changed.
pub struct Virtual {
    /// The strings that the pointers of changed options point to.
    _changed: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl Virtual {
    /// The options with each actual architecture replaced; `None` where there is none.
    ///
    /// # Safety
    ///
    /// Each option is null or a string.
    pub unsafe fn of(options: &[*const c_char]) -> Option<Virtual> {
        let text = |option: *const c_char| match option.is_null() {
            true => &[],
            // SAFETY: a string, as promised by the caller.
            false => unsafe { CStr::from_ptr(option) }.to_bytes(),
        };
        let (mut changed, mut pointers) = (Vec::new(), options.to_vec());
        for (place, &option) in options.iter().enumerate() {
            let before = place.checked_sub(1).map_or(&b""[..], |before| text(options[before]));
            if let Some(replaced) = replaced(before, text(option)) {
                pointers[place] = replaced.as_ptr();
                changed.push(replaced);
            }
        }
        (!changed.is_empty()).then_some(Virtual { _changed: changed, pointers })
    }

    /// As NVRTC takes them. They live as long as this.
    pub fn pointers(&self) -> &[*const c_char] {
        &self.pointers
    }
}

/// An option with the virtual architecture, if it names an actual one; `before` is the option
/// before it.
fn replaced(before: &[u8], option: &[u8]) -> Option<CString> {
    let (name, value) = match option.iter().position(|&byte| byte == b'=') {
        Some(at) => (&option[..at], &option[at + 1..]),
        None => (before, option),
    };
    let number = value.strip_prefix(b"sm_").filter(|_| NAMES.contains(&name))?;
    let start = &option[..option.len() - value.len()];
    CString::new([start, b"compute_", number].concat()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(options: &[&CStr]) -> Option<Vec<String>> {
        let pointers: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
        // SAFETY: all are strings.
        let changed = unsafe { Virtual::of(&pointers) }?;
        // SAFETY: so are those that stand in their places.
        let text = |pointer: &*const c_char| unsafe { CStr::from_ptr(*pointer) }.to_str().unwrap().to_owned();
        Some(changed.pointers().iter().map(text).collect())
    }

    #[test]
    fn actual_architectures_become_virtual_ones() {
        let found = of(&[c"-DN=4", c"--gpu-architecture=sm_80", c"--std=c++17"]).unwrap();
        assert_eq!(found, ["-DN=4", "--gpu-architecture=compute_80", "--std=c++17"]);
        assert_eq!(of(&[c"-arch=sm_90a"]).unwrap(), ["-arch=compute_90a"]);
        assert_eq!(of(&[c"-arch", c"sm_75", c"-G"]).unwrap(), ["-arch", "compute_75", "-G"]);
        assert_eq!(of(&[c"--gpu-architecture", c"sm_80"]).unwrap(), ["--gpu-architecture", "compute_80"]);
    }

    #[test]
    fn everything_else_stays() {
        assert!(of(&[]).is_none());
        assert!(of(&[c"-arch=compute_80", c"-DARCH=sm_80", c"sm_80", c"-arch"]).is_none());
        assert!(of(&[c"-I", c"sm_80"]).is_none());
        // SAFETY: null is allowed.
        assert!(unsafe { Virtual::of(&[std::ptr::null()]) }.is_none());
    }
}
