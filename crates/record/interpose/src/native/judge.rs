//! The unwinder beside framehop, another implementation of the same tables. Both take one step from
//! random addresses in the code of all libraries of this process, over random stacks, and walk a
//! stack that runs through the C library.

use super::*;
use apex_call_frames::native::{Cfa, RBP, REGISTERS, RIP, RSP, Rule};
use apex_random::Random;
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Module, Unwinder as _};
use std::ffi::{c_int, c_void};
use std::ops::Range;

/// A loaded file as framehop knows it, and the ranges of its code.
struct Library {
    module: Module<&'static [u8]>,
    code: Vec<Range<u64>>,
}

/// The memory of a library of this process, which stays loaded.
fn bytes(range: &Range<u64>) -> &'static [u8] {
    // SAFETY: the caller gives a part of a segment that is loaded for reading.
    unsafe { std::slice::from_raw_parts(range.start as *const u8, (range.end - range.start) as usize) }
}

fn library(info: &libc::dl_phdr_info) -> Option<Library> {
    // SAFETY: as many headers as the description says.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let base = info.dlpi_addr;
    let range = |header: &libc::Elf64_Phdr| base + header.p_vaddr..base + header.p_vaddr + header.p_memsz;
    let of_kind = |kind| headers.iter().filter(move |header| header.p_type == kind);
    let list = of_kind(libc::PT_GNU_EH_FRAME).map(range).next()?;
    // The list begins with four bytes of formats, then the distance to the tables (pcrel, sdata4).
    let head = bytes(&list);
    assert_eq!(head[1], 0x1b, "the format that linkers write");
    let distance = i32::from_le_bytes(head[4..8].try_into().unwrap());
    let start = (list.start + 4).wrapping_add_signed(distance.into());
    let segment = of_kind(libc::PT_LOAD).map(range).find(|segment| segment.contains(&start))?;
    let tables = start..segment.end;
    let svma = |range: &Range<u64>| Some(range.start - base..range.end - base);
    let sections = ExplicitModuleSectionInfo {
        eh_frame_hdr_svma: svma(&list),
        eh_frame_hdr: Some(bytes(&list)),
        eh_frame_svma: svma(&tables),
        eh_frame: Some(bytes(&tables)),
        ..ExplicitModuleSectionInfo::default()
    };
    let code: Vec<_> =
        of_kind(libc::PT_LOAD).filter(|header| header.p_flags & libc::PF_X != 0).map(range).collect();
    let all = of_kind(libc::PT_LOAD).map(range);
    let whole = all.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end))?;
    Some(Library { module: Module::new(String::new(), whole, base, sections), code })
}

fn libraries() -> Vec<Library> {
    unsafe extern "C" fn add(info: *mut libc::dl_phdr_info, _: usize, all: *mut c_void) -> c_int {
        // SAFETY: `dl_iterate_phdr` hands over a valid description, and the list below.
        let (info, all) = unsafe { (&*info, &mut *all.cast::<Vec<Library>>()) };
        all.extend(library(info));
        0
    }
    let mut all: Vec<Library> = Vec::new();
    // SAFETY: `add` is what the function calls, with `all`.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut all).cast()) };
    all
}

fn framehop_of(libraries: &[Library]) -> UnwinderX86_64<&'static [u8]> {
    let mut unwinder = UnwinderX86_64::new();
    libraries.iter().for_each(|library| unwinder.add_module(library.module.clone()));
    unwinder
}

/// Whether framehop can follow a row: it knows two registers (`vfork` has its return address in
/// another), and evaluates no expression that reads memory, as those of signal frames do. Rules
/// that place the frame at the stack pointer are left out, too: the function has left its frame, as
/// libgcc's does before it jumps to a handler, and calls nothing there. Ours ends the stack.
fn is_comparable(row: &Row<'_>) -> bool {
    const DEREF: u8 = 0x06;
    if matches!(row.rules[RIP], Rule::Register(_)) {
        return false;
    }
    match row.cfa {
        Cfa::Register(RSP, 1..) | Cfa::Register(RBP, _) => true,
        Cfa::Expression(code) => !code.contains(&DEREF),
        _ => false,
    }
}

#[test]
fn a_step_from_any_address_leads_where_framehops_leads() {
    const WORDS: usize = 1 << 18;
    let (ours, libraries) = (Unwinder::of_this_process(), libraries());
    assert!(libraries.len() > 2, "the test, the C library and the linker at least");
    let (theirs, mut cache) = (framehop_of(&libraries), CacheX86_64::<_>::new());
    let mut random = Random::new(u64::from(std::process::id()));
    let stack: Vec<u64> = (0..WORDS).map(|_| random.bits() | 1).collect();
    let bottom = stack.as_ptr() as u64;
    let (mut compared, mut without_row) = (0, 0);
    for round in 0..40_000 {
        let code = &libraries[round % libraries.len()].code;
        let code = &code[random.below(code.len() as u64) as usize];
        let address = code.start + random.below(code.end - code.start);
        let mut registers = Registers([0; REGISTERS]);
        registers.0.iter_mut().for_each(|register| *register = random.bits());
        registers.0[RIP] = address;
        // Registers that have been restored are read below the stack pointer.
        registers.0[RSP] = bottom + 8 * ((1 << 10) + random.below(1 << 10));
        registers.0[RBP] = registers.0[RSP] + 8 * (1 + random.below(1 << 10));
        let loaded = ours.modules.holding(&ours.memory, address).expect("code of a library");
        let mut buffers = Buffers::default();
        let Some(row) = ours.row(&loaded, address, &mut buffers) else {
            without_row += 1;
            continue;
        };
        if !is_comparable(&row) {
            continue;
        }
        let mut regs = UnwindRegsX86_64::new(address, registers.0[RSP], registers.0[RBP]);
        let mut read = |at| ours.memory.word(at).ok_or(());
        let at = FrameAddress::from_instruction_pointer(address);
        let their_address = theirs.unwind_frame(at, &mut regs, &mut cache, &mut read).ok().flatten();
        let caller = row.caller(&registers, &mut |at| ours.memory.word(at));
        let our_address = caller.map(|caller| caller.0[RIP]);
        let place = format!("{:#x} of {:?}: {:?}", address - loaded.base, ours.identity(&loaded), row.cfa);
        assert_eq!(our_address, their_address, "{place}");
        if let Some(caller) = caller {
            assert_eq!((caller.0[RSP], caller.0[RBP]), (regs.sp(), regs.bp()), "{place}");
            compared += 1;
        }
    }
    assert!(compared > 20_000, "{compared} steps compared, {without_row} addresses without a row");
}

#[test]
fn a_stack_through_the_c_library_is_the_one_that_framehop_finds() {
    thread_local! {
        static FOUND: std::cell::RefCell<Option<(Vec<u64>, Vec<u64>)>> = const { std::cell::RefCell::new(None) };
    }
    unsafe extern "C" fn compare(_: *const c_void, _: *const c_void) -> c_int {
        let here = Registers::here();
        let ours = Unwinder { own: 0, ..Unwinder::of_this_process() };
        let frames = ours.frames(here, None);
        let ours_found = frames.found().map(|frame| frame.address + frame.module.base).collect();
        let regs = UnwindRegsX86_64::new(here.0[RIP], here.0[RSP], here.0[RBP]);
        let (theirs, mut cache) = (framehop_of(&libraries()), CacheX86_64::<_>::new());
        let mut read = |at| ours.memory.word(at).ok_or(());
        let mut walk = theirs.iter_frames(here.0[RIP], regs, &mut cache, &mut read);
        let next = || walk.next().ok().flatten().map(FrameAddress::address_for_lookup);
        let theirs_found = std::iter::from_fn(next).take(MOST).collect();
        FOUND.set(Some((ours_found, theirs_found)));
        0
    }
    let mut values = [2, 1];
    // SAFETY: two values of four bytes, and a comparison of this type.
    unsafe { libc::qsort(values.as_mut_ptr().cast(), 2, 4, Some(compare)) };
    let (ours, theirs) = FOUND.take().expect("two values are compared");
    assert!(ours.len() > 5, "{} frames", ours.len());
    assert_eq!(ours, theirs);
}
