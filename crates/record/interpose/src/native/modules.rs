//! Finds the loaded file that an address belongs to.

use apex_call_frames::memory::{Memory, word_at};
use apex_call_frames::native::Loaded;
use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// Most bytes of a path that are read.
const PATH_BYTES: usize = 4096;
/// Bytes of a file's header, and of an entry of its program headers.
const FILE_HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
/// Most program headers that are read.
const PROGRAM_HEADERS: usize = 32;
/// Most bytes of notes that are read.
const NOTES: usize = 1024;
/// `NT_GNU_BUILD_ID`
const BUILD_ID: u32 = 3;

/// `struct dl_find_object` of glibc.
#[repr(C)]
#[derive(Default)]
struct Found {
    flags: u64,
    start: u64,
    end: u64,
    link_map: u64,
    unwinding: u64,
    reserved: [u64; 7],
}

/// glibc's function that takes no lock, from version 2.35 on.
type FindObject = unsafe extern "C" fn(*mut c_void, *mut Found) -> c_int;

/// The ways of finding modules.
pub struct Modules {
    find_object: Option<FindObject>,
}

impl Modules {
    /// Finds the function of the C library.
    pub fn new() -> Modules {
        // SAFETY: a name that ends in zero.
        let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr()) };
        // SAFETY: the type of glibc's function of this name; no other library has one.
        let find_object =
            (!address.is_null()).then(|| unsafe { transmute::<*mut c_void, FindObject>(address) });
        Modules { find_object }
    }

    /// The module that holds `address`.
    pub fn holding(&self, memory: &Memory, address: u64) -> Option<Loaded> {
        let Some(find_object) = self.find_object else { return by_iteration(address) };
        let mut found = Found::default();
        // SAFETY: `found` is what the function fills in; any address may be asked about.
        if unsafe { find_object(address as *mut c_void, &mut found) } != 0 {
            return None;
        }
        // A link map begins with the base and the name.
        let mut head = [0; 16];
        let is_read = memory.read(found.link_map, &mut head);
        is_read.then(|| Loaded {
            base: word_at(&head, 0),
            name: word_at(&head, 8),
            start: found.start,
            end: found.end,
            list: found.unwinding,
        })
    }
}

/// The module that holds `address`, by asking each.
fn by_iteration(address: u64) -> Option<Loaded> {
    struct Search {
        address: u64,
        found: Option<Loaded>,
    }
    unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
        // SAFETY: `dl_iterate_phdr` hands over a valid description, and the search below.
        let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
        // SAFETY: as many headers as the description says.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        let mut loaded = Loaded { base: info.dlpi_addr, name: info.dlpi_name as u64, ..Loaded::default() };
        loaded.start = u64::MAX;
        for header in headers {
            let start = info.dlpi_addr.wrapping_add(header.p_vaddr);
            match header.p_type {
                libc::PT_LOAD => {
                    loaded.start = loaded.start.min(start);
                    loaded.end = loaded.end.max(start.saturating_add(header.p_memsz));
                }
                libc::PT_GNU_EH_FRAME => loaded.list = start,
                _ => {}
            }
        }
        search.found = loaded.holds(search.address).then_some(loaded);
        search.found.is_some().into()
    }
    let mut search = Search { address, found: None };
    // SAFETY: `look` is what the function calls, with `search`.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.found
}

/// The identity of a module's file.
#[derive(Debug, Default)]
pub struct Identity {
    /// Its path; empty if unknown.
    pub path: String,
    /// Its build identifier in hexadecimal digits; empty if it has none.
    pub build_id: String,
    /// Bytes of the file; 0 if unknown.
    pub bytes: u64,
    /// The time of its last modification, in nanoseconds since 1970; 0 if unknown.
    pub modified_ns: u64,
}

impl Identity {
    pub(super) fn of(memory: &Memory, module: &Loaded) -> Identity {
        let path = path(memory, module.name);
        let metadata = std::fs::metadata(&path).ok();
        let nanoseconds = |file: &std::fs::Metadata| {
            file.mtime().saturating_mul(1_000_000_000).saturating_add(file.mtime_nsec())
        };
        let modified = metadata.as_ref().map_or(0, nanoseconds);
        Identity {
            path: path.to_str().unwrap_or_default().to_owned(),
            build_id: build_id(memory, module).unwrap_or_default(),
            bytes: metadata.map_or(0, |file| file.len()),
            modified_ns: modified.try_into().unwrap_or(0),
        }
    }
}

/// The path that the dynamic linker knows at `name`, made absolute; the program's own is empty.
fn path(memory: &Memory, name: u64) -> PathBuf {
    let mut bytes = [0; PATH_BYTES];
    let length = memory.read_some(name, &mut bytes);
    let end = bytes[..length].iter().position(|&byte| byte == 0).unwrap_or(0);
    let path = match std::str::from_utf8(&bytes[..end]) {
        Ok("") => return std::fs::read_link("/proc/self/exe").unwrap_or_default(),
        Ok(name) => PathBuf::from(name),
        Err(_) => return PathBuf::new(),
    };
    std::fs::canonicalize(&path).unwrap_or(path)
}

/// The note that linkers write.
fn build_id(memory: &Memory, module: &Loaded) -> Option<String> {
    let mut file = [0; FILE_HEADER];
    if !memory.read(module.start, &mut file) || file[..4] != *b"\x7fELF" {
        return None;
    }
    let count = usize::from(u16::from_le_bytes([file[56], file[57]])).min(PROGRAM_HEADERS);
    let mut headers = [0; PROGRAM_HEADERS * PROGRAM_HEADER];
    let headers = &mut headers[..count * PROGRAM_HEADER];
    if !memory.read(module.start.checked_add(word_at(&file, 32))?, headers) {
        return None;
    }
    let (headers, _) = headers.as_chunks::<PROGRAM_HEADER>();
    headers.iter().filter(|header| header[..4] == libc::PT_NOTE.to_le_bytes()).find_map(|header| {
        let mut notes = [0; NOTES];
        let length = usize::try_from(word_at(header, 40)).unwrap_or(NOTES).min(NOTES);
        let notes = &mut notes[..length];
        let is_read = memory.read(module.base.wrapping_add(word_at(header, 16)), notes);
        is_read.then(|| build_id_among(notes)).flatten()
    })
}

/// The build identifier among notes: each is the lengths of its name and its content, its type,
/// and both, padded to four bytes.
fn build_id_among(mut notes: &[u8]) -> Option<String> {
    while let Some((head, rest)) = notes.split_at_checked(12) {
        let number = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap_or_default());
        let (name, rest) = rest.split_at_checked((number(0) as usize).next_multiple_of(4))?;
        let content = rest.get(..number(4) as usize)?;
        if number(8) == BUILD_ID && name == b"GNU\0" {
            return Some(content.iter().map(|byte| format!("{byte:02x}")).collect());
        }
        notes = rest.get(content.len().next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_find_the_same_module() {
        let memory = Memory::of_this_process();
        for address in [build_id_among as *const () as u64, libc::getpid as *const () as u64] {
            let by_iteration = by_iteration(address).expect("a module");
            let found = Modules::new().holding(&memory, address).expect("a module");
            assert_eq!((found.base, found.list), (by_iteration.base, by_iteration.list));
            let identity = Identity::of(&memory, &found);
            assert!(identity.path.starts_with('/') && identity.bytes > 0 && identity.modified_ns > 0);
            assert!(identity.build_id.len() >= 16, "{identity:?}");
        }
        assert_eq!(by_iteration(16), None);
        assert_eq!(Modules::new().holding(&memory, 16), None);
    }

    #[test]
    fn any_bytes_are_notes() {
        assert_eq!(build_id_among(&[0xff; 40]), None);
        assert_eq!(
            build_id_among(&[4, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, b'G', b'N', b'U', 0, 0xa, 0xb]),
            Some("0a0b".into())
        );
        assert_eq!(build_id_among(&[]), None);
    }
}
