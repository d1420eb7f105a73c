//! Protects the program from SIGBUS when a mapped session file fails.
//!
//! Any process with write access to a session file can truncate it, and its disk can fail. The next
//! access to the mapping then raises SIGBUS in the program. Committed records must survive SIGKILL,
//! so they must be in a file, and a file that outlives its processes cannot be protected from
//! truncation. Therefore this module handles the signal: the handler replaces the failed mapping of
//! a session file by anonymous memory, so that the access succeeds, and reports the loss
//! ([`on_loss`]). Every other SIGBUS belongs to the program: the handler jumps to the program's
//! action with the kernel's frame unchanged.
//!
//! Invariants:
//! 1. Each shared mapping of this crate is in the [registry](Region) from before its first access
//!    until its last.
//! 2. The handler makes only system calls and atomic accesses: it does not allocate or lock.
//! 3. The program's action is known: a program that calls `sigaction` or `signal` through
//!    `libapex.so` changes [`program_action`] and not the kernel's; one that makes the system call
//!    itself displaces the handler until the next mapping is made, when [`protect`] puts the
//!    handler back in front.

use crate::mapping::Mapping;
use std::io;
use std::mem::zeroed;
use std::ptr::{null, null_mut};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, fence};

unsafe extern "C" {
    /// glibc's `sigaction` under a name that libraries do not interpose.
    fn __sigaction(signal: i32, new: *const libc::sigaction, old: *mut libc::sigaction) -> i32;
}

/// A mapping that the handler may replace; `base` is 0 where there is none.
#[derive(Debug)]
pub(crate) struct Region {
    base: AtomicUsize,
    bytes: AtomicUsize,
}

/// Base of a region that is being entered.
const CLAIMED: usize = 1;
/// Regions of a block: what fills a page.
const REGIONS: usize = 255;

struct Block {
    regions: [Region; REGIONS],
    next: AtomicPtr<Block>,
}

static FIRST: Block = Block {
    regions: [const { Region { base: AtomicUsize::new(0), bytes: AtomicUsize::new(0) } }; REGIONS],
    next: AtomicPtr::new(null_mut()),
};

/// All blocks: they are only ever added.
fn blocks() -> impl Iterator<Item = &'static Block> {
    std::iter::successors(Some(&FIRST), |block| {
        // SAFETY: null, or a block that `add_block` published and leaked.
        unsafe { block.next.load(Acquire).as_ref() }
    })
}

/// Adds an empty block behind the last one.
fn add_block() -> io::Result<()> {
    let made = Mapping::anonymous(size_of::<Block>())?;
    let block: *mut Block = made.base().as_ptr().cast();
    let mut last = &FIRST;
    loop {
        match last.next.compare_exchange(null_mut(), block, Release, Acquire) {
            Ok(_) => {
                made.leak();
                return Ok(());
            }
            // SAFETY: not null, so a block that was published and leaked.
            Err(next) => last = unsafe { &*next },
        }
    }
}

impl Region {
    /// Enters a mapping. An error means that there is no memory for the entry.
    pub fn enter(base: usize, bytes: usize) -> io::Result<&'static Region> {
        loop {
            let free = |region: &&Region| region.base.compare_exchange(0, CLAIMED, Acquire, Relaxed).is_ok();
            if let Some(region) = blocks().flat_map(|block| &block.regions).find(free) {
                region.bytes.store(bytes, Relaxed);
                region.base.store(base, Release);
                return Ok(region);
            }
            add_block()?;
        }
    }

    /// Removes the mapping, which nobody uses any more.
    pub fn leave(&self) {
        self.base.store(0, Release);
    }

    fn containing(address: usize) -> Option<(usize, usize)> {
        blocks().flat_map(|block| &block.regions).find_map(|region| {
            let (base, bytes) = (region.base.load(Acquire), region.bytes.load(Relaxed));
            (base > CLAIMED && address.wrapping_sub(base) < bytes).then_some((base, bytes))
        })
    }
}

/// The action of a process for SIGBUS: a `sigaction` without its restorer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Action {
    handler: usize,
    flags: i32,
    mask: u64,
}

impl Action {
    const DEFAULT: Action = Action { handler: libc::SIG_DFL, flags: 0, mask: 0 };

    fn of(action: &libc::sigaction) -> Action {
        // SAFETY: a signal set is plain data and begins with the 64 bits that the kernel knows.
        let mask = unsafe { (&raw const action.sa_mask).cast::<u64>().read() };
        Action { handler: action.sa_sigaction, flags: action.sa_flags, mask }
    }

    fn to_libc(self) -> libc::sigaction {
        // SAFETY: plain data, for which zeros are valid; the set begins with the 64 bits that the
        // kernel knows.
        unsafe {
            let mut action: libc::sigaction = zeroed();
            action.sa_sigaction = self.handler;
            action.sa_flags = self.flags;
            (&raw mut action.sa_mask).cast::<u64>().write(self.mask);
            action
        }
    }
}

/// An [`Action`] that the handler reads while others change it: a sequence lock, odd while it
/// changes.
struct SharedAction {
    sequence: AtomicU32,
    handler: AtomicUsize,
    flags: AtomicI32,
    mask: AtomicU64,
}

impl SharedAction {
    const fn new() -> SharedAction {
        SharedAction {
            sequence: AtomicU32::new(0),
            handler: AtomicUsize::new(libc::SIG_DFL),
            flags: AtomicI32::new(0),
            mask: AtomicU64::new(0),
        }
    }

    fn load(&self) -> Action {
        loop {
            let before = self.sequence.load(Acquire);
            let action = Action {
                handler: self.handler.load(Relaxed),
                flags: self.flags.load(Relaxed),
                mask: self.mask.load(Relaxed),
            };
            fence(Acquire);
            if before.is_multiple_of(2) && before == self.sequence.load(Relaxed) {
                return action;
            }
            std::hint::spin_loop();
        }
    }

    /// The caller holds the [`Turn`], with all signals blocked: no reader of this thread is in
    /// between.
    fn store(&self, action: Action) {
        let before = self.sequence.load(Relaxed);
        self.sequence.store(before.wrapping_add(1), Relaxed);
        fence(Release);
        self.handler.store(action.handler, Relaxed);
        self.flags.store(action.flags, Relaxed);
        self.mask.store(action.mask, Relaxed);
        self.sequence.store(before.wrapping_add(2), Release);
    }
}

/// The program's action.
static PROGRAMS: SharedAction = SharedAction::new();
/// The program's action before it displaced the handler by a system call of its own; its new
/// handler may call ours as the one that it found.
static BELOW: SharedAction = SharedAction::new();
static WAS_DISPLACED: AtomicBool = AtomicBool::new(false);
/// Whether the handler has been installed.
static PROTECTING: AtomicBool = AtomicBool::new(false);
/// Called by the handler; see [`on_loss`].
static ON_LOSS: AtomicPtr<()> = AtomicPtr::new(null_mut());
static LOST: AtomicBool = AtomicBool::new(false);

/// Leave to change what is done about SIGBUS. While it is held, all signals are blocked in the
/// calling thread.
struct Turn(u64);

static TAKEN: AtomicBool = AtomicBool::new(false);

impl Turn {
    fn take() -> Turn {
        let before = change_mask(libc::SIG_SETMASK, u64::MAX);
        // A forked child may inherit it taken by a thread that it does not have: after a while it
        // is nobody's.
        for _ in 0..10_000 {
            if !TAKEN.swap(true, Acquire) {
                break;
            }
            std::thread::yield_now();
        }
        Turn(before)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        TAKEN.store(false, Release);
        change_mask(libc::SIG_SETMASK, self.0);
    }
}

/// The bit of a signal in a set of the kernel's.
pub(crate) const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// Changes which signals the calling thread blocks, and gives what it blocked before. The plain
/// system call, because `libapex.so` exports `pthread_sigmask`.
pub(crate) fn change_mask(how: i32, set: u64) -> u64 {
    let mut before = 0u64;
    // SAFETY: two valid sets of the kernel's size.
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, how, &raw const set, &raw mut before, size_of::<u64>())
    };
    before
}

/// Puts the handler in front of whatever the process does about SIGBUS, and makes sure that the
/// calling thread does not block the signal: a fault that is blocked ends the program.
pub(crate) fn protect() {
    unblock();
    let ours = entry as *const () as usize;
    // SAFETY: a null new action only reads; `sigaction` is plain data.
    let found = unsafe {
        let mut found: libc::sigaction = zeroed();
        __sigaction(libc::SIGBUS, null(), &mut found);
        found
    };
    if found.sa_sigaction == ours {
        return;
    }
    let _turn = Turn::take();
    if PROTECTING.load(Acquire) {
        BELOW.store(PROGRAMS.load());
        WAS_DISPLACED.store(true, Release);
    }
    let programs = Action::of(&found);
    PROGRAMS.store(programs);
    install(programs);
    PROTECTING.store(true, Release);
}

/// Lets SIGBUS through to the calling thread.
pub fn unblock() {
    change_mask(libc::SIG_UNBLOCK, bit(libc::SIGBUS));
}

/// Gives our handler to the kernel, with those of the program's wishes that the kernel carries out.
fn install(programs: Action) {
    let kept = libc::SA_NODEFER | libc::SA_RESTART;
    let action = Action {
        handler: entry as *const () as usize,
        flags: libc::SA_SIGINFO | libc::SA_ONSTACK | programs.flags & kept,
        mask: programs.mask,
    };
    let action = action.to_libc();
    // SAFETY: `entry` is a handler that may be called at any moment.
    unsafe { __sigaction(libc::SIGBUS, &action, null_mut()) };
}

/// Whether the handler is in front of the program's action, so that [`program_action`] answers for
/// the kernel.
pub fn is_protecting() -> bool {
    PROTECTING.load(Acquire)
}

/// Does what `sigaction(SIGBUS, new, old)` does, for the program while the handler is installed.
///
/// # Safety
/// `new` is null or points to an action, `old` is null or valid for writing.
pub unsafe fn program_action(new: *const libc::sigaction, old: *mut libc::sigaction) {
    let _turn = Turn::take();
    let before = PROGRAMS.load();
    // SAFETY: by contract. (`new` is read before `old` is written: they may be the same.)
    unsafe {
        if let Some(new) = new.as_ref() {
            let wanted = Action::of(new);
            PROGRAMS.store(wanted);
            install(wanted);
        }
        if !old.is_null() {
            *old = before.to_libc();
        }
    }
}

/// Registers what is called, from within the signal handler, when a mapping was lost: it may make
/// system calls and atomic accesses only.
pub fn on_loss(call: extern "C" fn()) {
    ON_LOSS.store(call as *mut (), Release);
}

/// Whether a session file was truncated, or failed, while it was mapped.
pub fn has_lost() -> bool {
    LOST.load(Relaxed)
}

/// Forgets the losses that a forked child inherits from its parent: they are not its own.
pub(crate) fn forget_losses() {
    LOST.store(false, Relaxed);
}

/// Notes that a session file is not what this process made of it.
pub(crate) fn lose() {
    if LOST.swap(true, Relaxed) {
        return;
    }
    let call = ON_LOSS.load(Acquire);
    if !call.is_null() {
        // SAFETY: `on_loss` stored a function of this type.
        unsafe { std::mem::transmute::<*mut (), extern "C" fn()>(call)() };
    }
}

/// Replaces the mapping of ours that holds `address` by memory; false if there is none, or no
/// memory.
fn replace(address: usize) -> bool {
    let Some((base, bytes)) = Region::containing(address) else { return false };
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    // SAFETY: the range is a mapping of ours, which its users expect to be readable and writable
    // memory. The plain system call, because some programs interpose `mmap`.
    let made = unsafe { libc::syscall(libc::SYS_mmap, base, bytes, protection, flags, -1, 0) };
    if made as usize != base {
        return false;
    }
    lose();
    true
}

/// Handles the signal: repairs a fault of ours and returns 0, else returns the program's handler,
/// or 0 once there is nothing more to do. `delivered` is 0 if another handler called ours.
extern "C" fn decide(_: i32, info: *const libc::siginfo_t, _: *mut libc::c_void, delivered: u32) -> usize {
    // SAFETY: the calling thread's own, which a handler must leave as it was.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let saved = unsafe { *errno };
    // SAFETY: the kernel, or a handler that passes on what the kernel gave it, calls with the
    // signal's description.
    let (is_fault, address) = unsafe { ((*info).si_code > 0, (*info).si_addr() as usize) };
    let next = if is_fault && replace(address) { 0 } else { pass_on(is_fault, delivered != 0) };
    // SAFETY: as above.
    unsafe { *errno = saved };
    next
}

/// The program's handler for a signal that is not ours. Without one the kernel does what is its
/// default, on return.
fn pass_on(is_fault: bool, delivered: bool) -> usize {
    let was_called = !delivered && WAS_DISPLACED.load(Acquire);
    let action = if was_called { BELOW.load() } else { PROGRAMS.load() };
    match action.handler {
        libc::SIG_IGN if !is_fault => 0,
        libc::SIG_DFL | libc::SIG_IGN => {
            let default = Action::DEFAULT.to_libc();
            // SAFETY: the default action; `raise` sends a signal that this thread, in its handler,
            // takes on return. A fault comes again by itself.
            unsafe {
                __sigaction(libc::SIGBUS, &default, null_mut());
                if !is_fault {
                    libc::raise(libc::SIGBUS);
                }
            }
            0
        }
        handler => {
            if action.flags & libc::SA_RESETHAND != 0 {
                let _turn = Turn::take();
                PROGRAMS.store(Action::DEFAULT);
            }
            handler
        }
    }
}

/// The handler. The kernel enters one with its frame's beginning in rsp: the return address, and
/// behind it the context to which rdx points. Who else calls has another return address there. The
/// program's handler is entered by a jump, with the registers and the stack that the kernel gave:
/// so it can unwind, and leave by a long jump, as ever.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn entry() {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "push rdx",
        ".cfi_adjust_cfa_offset 8",
        "lea rax, [rsp + 32]",
        "xor ecx, ecx",
        "cmp rax, rdx",
        "sete cl",
        "call {decide}",
        "pop rdx",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "test rax, rax",
        "jz 2f",
        "jmp rax",
        "2: ret",
        ".cfi_endproc",
        decide = sym decide,
    )
}

/// The handler on other machines, whose injected library does not exist: nothing but what the
/// kernel would do.
#[cfg(not(target_arch = "x86_64"))]
extern "C" fn entry(signal: i32, info: *const libc::siginfo_t, context: *mut libc::c_void) {
    let handler = decide(signal, info, context, 1);
    if handler != 0 {
        // SAFETY: the program's handler, which takes these arguments or fewer.
        unsafe {
            let handler: extern "C" fn(i32, *const libc::siginfo_t, *mut libc::c_void) =
                std::mem::transmute(handler);
            handler(signal, info, context);
        }
    }
}
