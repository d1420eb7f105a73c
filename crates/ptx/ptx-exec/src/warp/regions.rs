//! Enters regions of machine code (`crate::native`), performs the accesses that their code leaves
//! to others, and counts.

use std::ffi::c_void;

use ptx_compile::{
    Bases, Code, Context, Element, Frame, Group, LOOP, MEETING, Outcome, Register, STRIPS, Stop, WARPS,
    Window,
};

use crate::code::Op;
use crate::device::Region as Allocation;
use crate::launch::Launch;
use crate::memory::kept::Kept;
use crate::memory::spaces::{Regular, Spaces};
use crate::native::NativeRegion;
use crate::operands::{AccessArgs, AccessKind, Class, Indexed, Reg, Space};
use crate::registers::lanes::{Lanes, WARP};
use crate::registers::pattern::PARTS;
use crate::warp::{Counts, Surroundings, exchange};

/// Lanes of a strip.
const STRIP: usize = WARP / STRIPS;

/// Where warps have left a region.
pub(crate) enum Left {
    /// All at this step.
    At(u32),
    /// Each at its own step.
    Apart(Vec<u32>),
    /// One of them, of which strips have been stopped: see [`Stopped`](Outcome::Stopped).
    Stopped {
        warp: usize,
        /// The steps of warps before it.
        before: Vec<u32>,
        /// The step of warps after it.
        after: u32,
        /// The lanes that go on at a step, and whether others are to go first.
        paths: Vec<(u32, u32, bool)>,
    },
}

/// State of the interpreter that the helper works on.
struct Caller<'a, 'm> {
    launch: &'a Launch<'a>,
    spaces: &'a mut Spaces<'m>,
    region: &'a NativeRegion,
    code: &'a Code,
    /// What is the same in all warps is found in the first.
    warps: &'a [Lanes],
    windows: *mut Window,
}

/// Executes the region `index` of the kernel for warps that are at its start. `None` if they cannot
/// enter: nothing has been done then.
///
/// # Safety
///
/// The lanes are frames of the kernel, and nothing of them is deferred but the index of a prologue;
/// the windows of `around` are the block's own memory.
pub(crate) unsafe fn enter(
    region_index: usize,
    region: &NativeRegion,
    warps: &[Lanes],
    around: &mut Surroundings,
) -> Option<Left> {
    let whole = warps.len() <= WARPS && warps.iter().all(|lanes| lanes.mask == u32::MAX);
    let whole = whole && region.exits.barriers.iter().all(|&barrier| around.barriers.is_unused(barrier));
    // SAFETY: the caller's promise.
    if !whole || !unsafe { is_uniform(region, warps) } {
        return None;
    }
    // SAFETY: the caller's promise.
    let code = region.code(&|register| unsafe {
        around.write_index(&warps[..1]);
        is_same(register, &warps[0])
    })?;
    let mut frames = [Frame {
        words: std::ptr::null_mut(),
        longs: std::ptr::null_mut(),
        predicates: std::ptr::null_mut(),
        lanes: std::ptr::null(),
    }; WARPS];
    let mut kept = around.spaces.take_kept(region_index, code, warps.len());
    if code.has_memory_of_lanes() {
        kept.lanes.clear();
        kept.lanes.extend(warps.iter().map(|lanes| around.spaces.starts_of_lanes(lanes.local)));
    }
    for (index, (frame, lanes)) in frames.iter_mut().zip(warps).enumerate() {
        let starts = kept.lanes.get(index).map_or(std::ptr::null(), |starts| starts.as_ptr());
        let (words, longs) = (lanes.words.cast(), lanes.longs.cast());
        *frame = Frame { words, longs, predicates: lanes.predicates, lanes: starts };
    }
    // SAFETY: the caller's promise.
    unsafe { find_bases(region, code, warps, around, &mut kept.bases) };
    let Kept { windows, bases, counters, laps, .. } = &mut kept;
    let mut caller = Caller {
        launch: around.launch,
        spaces: &mut *around.spaces,
        region,
        code,
        warps,
        windows: windows.as_mut_ptr(),
    };
    let user = (&raw mut caller).cast();
    // SAFETY: code is only made where the CPU has its instructions; the frames have the registers
    // that their code names; windows are what the memory's owner and the block allow.
    let outcome = unsafe { code.run(&frames[..warps.len()], windows, bases, counters, laps, (help, user)) };
    count(region, counters, around.counts);
    if code.laps() > 0 {
        laps.chunks(code.laps()).for_each(|laps| count_lane_loops(region, laps, around.counts));
    }
    around.spaces.native[region_index] = kept;
    Some(match outcome {
        Outcome::Left(exit) => Left::At(region.exits.steps[exit as usize]),
        Outcome::Apart(exits) => Left::Apart(steps_of(region, &exits[..warps.len()])),
        Outcome::Stopped { warp, exit, exits, passed, stops } => Left::Stopped {
            warp,
            before: steps_of(region, &exits[..warp]),
            after: passed.map_or(region.start, |barrier| region.meeting(barrier as usize) + 1),
            paths: stopped(region, exit, &stops),
        },
    })
}

/// The steps of exits and meetings.
fn steps_of(region: &NativeRegion, exits: &[u32]) -> Vec<u32> {
    exits.iter().map(|&exit| region.exits.steps[exit as usize]).collect()
}

/// Finds the addresses that are known on entering, for all strips: those of elements whose index is
/// that of a deferred prologue. Of others the code finds out as fast. The index is put into its
/// register only if somebody has to read it there.
///
/// # Safety
/// As for [`enter`].
unsafe fn find_bases(
    region: &NativeRegion,
    code: &Code,
    warps: &[Lanes],
    around: &mut Surroundings,
    bases: &mut Vec<Bases>,
) {
    let steps = &around.launch.code(around.launch.kernel_function).steps;
    let index = around.spaces.found.as_ref().map(|found| found.index);
    bases.resize(code.early().len(), [0; WARPS * STRIPS]);
    let mut known = true;
    for (early, bases) in code.early().iter().zip(bases) {
        let group = &code.groups()[early.group];
        let regular = match &steps[region.sites[early.access].step as usize].op {
            Op::Access { args, .. } if index.is_some() && args.indexed.map(|of| of.index) == index => {
                let offsets = (group.least, group.most);
                // SAFETY: the frames have the registers of the address.
                unsafe { around.spaces.regular_alone(warps, args, offsets, group.bytes, group.store) }
            }
            _ => None,
        };
        let consecutive = regular.filter(|regular| regular.step == group.bytes);
        let Some(Regular { first, between, .. }) = consecutive else {
            known = false;
            // The first is known if any is.
            if bases[0] != 0 {
                *bases = [0; WARPS * STRIPS];
            }
            continue;
        };
        let mut moved = 0u64;
        for strips in bases.as_chunks_mut::<STRIPS>().0 {
            *strips = first.map(|first| first.wrapping_add(moved));
            moved = moved.wrapping_add(between);
        }
    }
    if index.is_some_and(|index| !known || code.reads_word(index.0)) {
        // SAFETY: the caller's promise.
        unsafe { around.write_index(warps) };
    }
}

/// Whether the registers on which branches depend are the same everywhere.
///
/// # Safety
/// The lanes are frames of the kernel.
unsafe fn is_uniform(region: &NativeRegion, warps: &[Lanes]) -> bool {
    region.uniform.iter().all(|&(class, reg)| {
        // SAFETY: the frame has the register, of this class.
        unsafe {
            match class {
                Class::Word => {
                    let first = warps[0].source::<u32>(reg)[0];
                    warps.iter().all(|lanes| lanes.source::<u32>(reg).iter().all(|&value| value == first))
                }
                Class::Long => {
                    let first = warps[0].source::<u64>(reg)[0];
                    warps.iter().all(|lanes| lanes.source::<u64>(reg).iter().all(|&value| value == first))
                }
                Class::Predicate => {
                    let first = warps[0].predicate(reg);
                    matches!(first, 0 | u32::MAX) && warps.iter().all(|lanes| lanes.predicate(reg) == first)
                }
            }
        }
    })
}

/// Whether the threads of each strip of a warp have the same value of a register.
///
/// # Safety
/// The frame has the register.
unsafe fn is_same(register: &Register, lanes: &Lanes) -> bool {
    fn alike<T: PartialEq>(values: &[T]) -> bool {
        values.chunks(STRIP).all(|strip| strip.iter().all(|value| *value == strip[0]))
    }
    let reg = Reg(register.place);
    // SAFETY: the caller's promise.
    unsafe {
        match register.class {
            ptx_compile::Class::Word => alike(lanes.source::<u32>(reg)),
            ptx_compile::Class::Long => alike(lanes.source::<u64>(reg)),
            ptx_compile::Class::Predicate => {
                lanes.predicate(reg).to_le_bytes().iter().all(|byte| matches!(byte, 0 | 0xff))
            }
        }
    }
}

/// Adds what the code counted, in strips, to what the interpreter counts, in warps.
fn count(region: &NativeRegion, counters: &[u64], counts: &mut Counts) {
    let (strips, blocks) = (STRIPS as u64, region.blocks.len());
    for (index, block) in region.blocks.iter().enumerate().filter(|(_, block)| block.lane_loop.is_none()) {
        let (executed, taken) = (counters[index], counters[blocks + index]);
        counts.warp_instructions += executed * block.steps / strips;
        if block.is_masked {
            // What was taken is the threads that executed it.
            counts.thread_instructions += taken * block.unguarded;
            counts.branches += if block.jumps { executed } else { 0 } / strips;
            continue;
        }
        // The threads that take a branch which others do not take are counted one by one.
        let of_all = if block.divides { 0 } else { taken };
        counts.thread_instructions += (executed * block.unguarded + of_all) * STRIP as u64;
        counts.branches += (taken + if block.jumps { executed } else { 0 }) / strips;
    }
    counts.thread_instructions += counters[2 * blocks];
}

/// Adds what a warp did in loops that its threads left one by one: it goes on until the last of them
/// leaves, and branches differently whenever some leave and others stay.
fn count_lane_loops(region: &NativeRegion, laps: &[[u32; STRIP]], counts: &mut Counts) {
    let loops = laps.len() / STRIPS;
    for (block, index) in region.blocks.iter().filter_map(|block| Some((block, block.lane_loop?))) {
        let of_threads = laps.iter().skip(index).step_by(loops).flatten().copied();
        let (mut most, mut sum, mut last) = (0, 0, [0u32; WARP]);
        for (thread, laps) in of_threads.enumerate() {
            (most, sum, last[thread]) = (most.max(u64::from(laps)), sum + u64::from(laps), laps);
        }
        if most == 0 {
            continue;
        }
        last.sort_unstable();
        let different = last.windows(2).filter(|pair| pair[0] != pair[1]).count() as u64;
        counts.warp_instructions += most * block.steps;
        // The jump is the step with a guard: who leaves does not execute it.
        counts.thread_instructions += sum * block.steps - WARP as u64;
        counts.branches += most - 1;
        counts.divergent_branches += different;
    }
}

/// The paths of a warp of which strips were stopped. Those that stopped first go first: they are at
/// the access that the interpreter would have come to first.
#[cold]
fn stopped(region: &NativeRegion, exit: u32, stops: &[Stop; STRIPS]) -> Vec<(u32, u32, bool)> {
    let place = |stop: &Stop| match stop.site & LOOP {
        0 => region.sites[stop.site as usize].step,
        _ => region.blocks[(stop.site & !LOOP) as usize].start,
    };
    let after = region.exits.steps[exit as usize];
    if stops.iter().all(|stop| stop.stopped == 0) {
        // The warp has stopped at a meeting.
        return vec![(u32::MAX, after, false)];
    }
    let key = |stop: &Stop| (stop.time(), place(stop));
    let first = stops.iter().filter(|stop| stop.stopped != 0).map(key).min();
    let mut paths: Vec<(u32, u32, bool)> = Vec::new();
    for (strip, stop) in stops.iter().enumerate() {
        let shift = strip * STRIP;
        if stop.stopped == 0 {
            paths.push((0xff << shift, after, true));
            continue;
        }
        let (at, waits, mask) = (place(stop), Some(key(stop)) != first, u32::from(stop.masks[0]) << shift);
        // Later strips at the same place may be in another round of a loop: they stay apart.
        match paths.iter_mut().find(|(_, other, late)| !waits && !*late && *other == at) {
            Some((lanes, ..)) => *lanes |= mask,
            None => paths.push((mask, at, waits)),
        }
        let waiting = waiting(region, stop);
        paths.extend(waiting.into_iter().map(|(mask, at)| (mask << shift, at, true)));
    }
    paths
}

/// The threads of a strip that were not where it stopped, and the steps at which they wait.
fn waiting(region: &NativeRegion, stop: &Stop) -> Vec<(u32, u32)> {
    let site = region.sites.get(stop.site as usize).filter(|_| stop.site & LOOP == 0);
    let steps = site.map_or(&[][..], |site| &site.waiting);
    let mut others = !u32::from(stop.masks[0]) & 0xff;
    let mut waiting = Vec::new();
    for (index, &step) in steps.iter().enumerate() {
        let sent = stop.masks.get(index + 1).map_or(0, |&mask| u32::from(mask));
        let here = if index + 1 == steps.len() { others } else { others & sent };
        others &= !here;
        waiting.extend((here != 0).then_some((here, step)));
    }
    waiting
}

/// Performs an access that the code cannot check.
///
/// # Safety
/// The context is the one of code that [`enter`] runs.
unsafe extern "sysv64" fn help(context: *mut Context, site: u32, mask: u32) -> u32 {
    // SAFETY: the code passes the context, and nobody else uses it or the caller meanwhile.
    let (context, caller) = unsafe {
        let context = &mut *context;
        let caller: *mut c_void = context.user;
        (context, &mut *caller.cast::<Caller>())
    };
    if site & LOOP != 0 {
        return caller.launch.cancelled().into();
    }
    if site & MEETING != 0 {
        let meeting = (site & !MEETING) as usize;
        // SAFETY: the frames have the registers that their code names.
        return u32::from(unsafe { caller.hold(context.warp as usize, meeting) }.is_none());
    }
    // SAFETY: as above.
    u32::from(unsafe { caller.access(context, site as usize, mask) }.is_none())
}

/// Loads or stores an element.
///
/// # Safety
/// The element at this index from the address on may be accessed.
unsafe fn transfer<T: Copy>(address: u64, element: usize, value: &mut T, store: bool) {
    // SAFETY: the caller's promise.
    unsafe {
        let at = (address as *mut T).add(element);
        match store {
            true => at.write(*value),
            false => *value = at.read(),
        }
    }
}

/// Loads or stores what a lane accesses of an element, which stands in the context's data.
///
/// # Safety
/// As for [`transfer`].
unsafe fn transfer_element(
    kind: Element,
    address: u64,
    (element, lane): (usize, usize),
    context: &mut Context,
    store: bool,
) {
    // SAFETY: the caller's promise. Longs take two rows of the data.
    unsafe {
        if kind == Element::Long {
            let data = context.data.as_mut_ptr().cast::<[u64; STRIP]>().add(element);
            return transfer(address, element, &mut (*data)[lane], store);
        }
        let word = &mut context.data[element][lane];
        match kind {
            Element::Narrow { bytes: 1, signed } => {
                let mut byte = *word as u8;
                transfer(address, element, &mut byte, store);
                *word = if signed { byte as i8 as u32 } else { byte.into() };
            }
            Element::Narrow { signed, .. } => {
                let mut half = *word as u16;
                transfer(address, element, &mut half, store);
                *word = if signed { half as i16 as u32 } else { half.into() };
            }
            _ => transfer(address, element, word, store),
        }
    }
}

impl Caller<'_, '_> {
    /// Executes the step of a meeting for a warp; `None` if it is refused, and nothing has been
    /// done.
    ///
    /// # Safety
    /// The frame has the registers of the step.
    unsafe fn hold(&mut self, warp: usize, meeting: usize) -> Option<()> {
        let steps = &self.launch.code(self.launch.kernel_function).steps;
        let lanes = &self.warps[warp];
        // SAFETY: the caller's promise.
        unsafe {
            match &steps[self.region.meeting(meeting) as usize].op {
                Op::Warp { op, members, args } => exchange::run(lanes, *op, *members, args),
                Op::Matrix(step) => {
                    self.spaces.warp_local = lanes.local;
                    step.run(lanes, self.spaces).ok()?;
                }
                _ => return None,
            }
        }
        Some(())
    }

    /// Performs an access in the lanes of a mask; `None` if any of them may not, and nothing has
    /// been done.
    ///
    /// # Safety
    /// The context is that of the code, which has put address and words there.
    unsafe fn access(&mut self, context: &mut Context, site: usize, mask: u32) -> Option<()> {
        let code = self.launch.code(self.launch.kernel_function);
        let (number, site) = (site, &self.region.sites[site]);
        let Op::Access { args, .. } = &code.steps[site.step as usize].op else { return None };
        let group = self.code.groups()[self.code.group_of()[number]];
        let store = args.kind == AccessKind::Store;
        self.spaces.warp_local = self.warps[context.warp as usize].local;
        // SAFETY: the frame has the registers of the address.
        let (mut addresses, bias) = unsafe { self.addresses(args, context) };
        let lanes = || (0..STRIP).filter(move |lane| mask >> lane & 1 != 0);
        for lane in lanes() {
            self.spaces.allows(args.space, addresses[lane], group.bytes, store).then_some(())?;
        }
        if args.space == Space::Local {
            let origin = self.spaces.start_of(args.space);
            let places = addresses.iter_mut().zip(context.lanes);
            places.for_each(|(address, start)| *address = address.wrapping_sub(origin).wrapping_add(start));
            let window = Window::new(0, self.spaces.local_bytes, 0, &group);
            // SAFETY: the code has as many windows as groups, and does not read them now.
            unsafe { self.windows.add(self.code.group_of()[number]).write(window) };
        }
        let elements = args.data.iter().take_while(|reg| reg.is_some()).count();
        for (lane, element) in lanes().flat_map(|lane| (0..elements).map(move |element| (lane, element))) {
            // SAFETY: the access has been allowed, aligned to its size, which is that of its
            // elements.
            unsafe { transfer_element(site.element, addresses[lane], (element, lane), context, store) };
        }
        if let Some(lane) = lanes().next() {
            self.widen(args, addresses[lane], bias, &group, number);
        }
        Some(())
    }

    /// The host addresses of the lanes, and what makes a host address of the register.
    ///
    /// # Safety
    /// The frame has the registers of the address.
    unsafe fn addresses(&self, args: &AccessArgs, context: &Context) -> ([u64; STRIP], u64) {
        let origin = self.spaces.start_of(args.space);
        let words = |lane: usize| (context.address[lane / 2] >> (32 * (lane % 2))) as u32;
        let offset = args.offset as u64;
        match &args.indexed {
            Some(Indexed { base, index: _, signed, shift }) => {
                // SAFETY: the caller's promise; the base is the same everywhere.
                let base = origin.wrapping_add(unsafe { self.warps[0].source::<u64>(*base)[0] });
                let extend = |word: u32| if *signed { word as i32 as u64 } else { u64::from(word) };
                let of = |lane| base.wrapping_add(extend(words(lane)) << shift).wrapping_add(offset);
                (std::array::from_fn(of), base)
            }
            None if args.narrow => {
                let of = |lane| origin.wrapping_add(words(lane).wrapping_add(args.offset as u32).into());
                (std::array::from_fn(of), origin)
            }
            None => {
                let of = |lane: usize| context.address[lane].wrapping_add(origin).wrapping_add(offset);
                (std::array::from_fn(of), origin)
            }
        }
    }

    /// Allows the group of an access what the access has shown to be allowed.
    fn widen(&mut self, args: &AccessArgs, address: u64, bias: u64, group: &Group, site: usize) {
        let found = self.spaces.allocation(args.space, address, group.bytes);
        let Some(Allocation { start, end, writable }) = found else { return };
        if group.store && !writable {
            return;
        }
        let index = self.code.group_of()[site];
        // SAFETY: the code has as many windows as groups, and does not read them now.
        unsafe { self.windows.add(index).write(Window::new(start, end, bias, group)) };
    }
}

const _: () = assert!(STRIP == 8 && STRIPS == PARTS, "the generator has strips of eight lanes");
