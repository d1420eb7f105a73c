//! Code for accesses to memory.
//!
//! The first access of a group finds out how its threads access, checks that all may, and keeps on
//! the stack what the others need: the host address of the first thread, a [`Mode`], and in the
//! mode [`Mode::SCATTERED`] the addresses of all. What cannot be checked here is left to the helper,
//! access by access.
//!
//! Who enters the code may have checked a group for all strips at once, if that is one of
//! [`early`](crate::Code::early); its address is in a table then, and nothing has to be found out.

use super::{A, B, C, GROUP, Generator, VECTOR, stack};
use crate::assembler::{Gpr, If, Label, R8, RAX, RBP, RBX, RCX, RSP, Rm, op};
use crate::context::{Bases, Window, at};
use crate::liveness::Set;
use crate::region::{Access, Address, Class, Element, Guard, Mask, Reg};

/// Way in which the threads of a strip access memory.
pub(super) struct Mode;

impl Mode {
    /// Consecutive words.
    pub(super) const CONSECUTIVE: u32 = 0;
    /// All the same.
    pub(super) const SAME: u32 = 1;
    /// Any.
    const SCATTERED: u32 = 2;
    /// The helper has to see.
    const UNKNOWN: u32 = 3;
}

/// Places of a group on the stack.
#[derive(Clone, Copy)]
pub(super) struct Slots {
    pub(super) base: i32,
    pub(super) mode: i32,
    addresses: i32,
    /// The offset of the group's window.
    window: i32,
    /// The least offset of the group.
    least: i64,
    /// The alignment of the accesses.
    bytes: u32,
    /// Whether the group has one access.
    is_alone: bool,
}

impl<'r> Generator<'r> {
    /// An access; `live` is what is live before it.
    pub(super) fn access(&mut self, access: &'r Access, guard: Option<Guard>, live: Set) {
        let (group, first) = self.groups.of_access[self.accesses];
        if let Some(label) = self.resume[self.accesses] {
            self.asm.bind(label);
        }
        self.accesses += 1;
        let slots = self.slots(group);
        let (done, slow) = (self.asm.label(), self.asm.label());
        if let Some(guard) = guard {
            let some = self.asm.label();
            self.some_lanes(guard, some, done);
            self.later.push(Box::new(move |this| {
                this.asm.bind(some);
                this.masked_access(access, guard, slots, done, slow);
            }));
        }
        let block = &self.region.blocks[self.block];
        let loop_mask = block.lane_loop.map(|lane_loop| Mask { here: lane_loop.mask, later: Vec::new() });
        let mask = block.mask.clone().or(loop_mask);
        let early = self.groups.early.iter().position(|early| first && early.group == group);
        match early {
            Some(place) => self.known_access(access, slots, place as i32, group, done, slow),
            None => self.checked_access(access, slots, first, done, slow),
        }
        self.asm.bind(done);
        self.later.push(Box::new(move |this| {
            this.asm.bind(slow);
            this.slow(access, guard, (&live, mask.as_ref()), done);
        }));
    }

    /// An access whose address may have been checked on entering.
    fn known_access(
        &mut self,
        access: &'r Access,
        slots: Slots,
        place: i32,
        group: usize,
        done: Label,
        slow: Label,
    ) {
        let unknown = self.asm.label();
        self.asm.load(RAX, R8, size_of::<Bases>() as i32 * place);
        self.asm.test_zero(RAX);
        self.asm.jump_if(If::Zero, unknown);
        if self.groups.members[group] > 1 {
            self.asm.store(RSP, slots.base, RAX);
            self.asm.store_number(RSP, slots.mode, Mode::CONSECUTIVE);
        }
        self.consecutive(access, slots, RAX);
        self.later.push(Box::new(move |this| {
            this.asm.bind(unknown);
            this.checked_access(access, slots, true, done, slow);
            this.asm.jump(done);
        }));
    }

    /// An access in the mode of its group, which the first one finds.
    fn checked_access(&mut self, access: &'r Access, slots: Slots, first: bool, done: Label, slow: Label) {
        let distance = (access.offset - slots.least) as i32;
        let others = self.asm.label();
        if first && slots.is_alone && access.data.len() == 1 && !access.of_lane {
            return self.single_access(access, slots, [others, done, slow]);
        }
        if access.of_lane {
            return self.access_of_lanes(access, slots, first, slow);
        }
        if first {
            self.find_mode(access, slots);
        }
        self.asm.compare_in_memory(RSP, slots.mode, Mode::CONSECUTIVE as i32);
        self.asm.jump_if(If::NotZero, others);
        self.asm.load(RAX, RSP, slots.base);
        self.consecutive(access, slots, RAX);
        self.later.push(Box::new(move |this| {
            this.asm.bind(others);
            this.other_modes(access, slots, distance, done, slow);
        }));
    }

    /// An access to memory of the lanes: their addresses are never consecutive.
    fn access_of_lanes(&mut self, access: &'r Access, slots: Slots, first: bool, slow: Label) {
        if first {
            let (found, unknown) = (self.asm.label(), self.asm.label());
            self.find_scattered(access, slots, unknown);
            self.asm.bind(found);
            self.later.push(Box::new(move |this| {
                this.asm.bind(unknown);
                this.asm.store_number(RSP, slots.mode, Mode::UNKNOWN);
                this.asm.jump(found);
            }));
        }
        self.asm.compare_in_memory(RSP, slots.mode, Mode::SCATTERED as i32);
        self.asm.jump_if(If::NotZero, slow);
        self.scattered(access, slots, (access.offset - slots.least) as i32);
    }

    /// An access of which no other needs to know where it is.
    fn single_access(&mut self, access: &'r Access, slots: Slots, [others, done, slow]: [Label; 3]) {
        let (differs, unknown) = (self.asm.label(), self.asm.label());
        self.compare_addresses(access, Some(access.element.bytes() as u32), differs);
        self.allow(8, slots, unknown);
        self.consecutive(access, slots, RAX);
        self.later.push(Box::new(move |this| {
            this.asm.bind(differs);
            this.other_ways(access, slots, others, unknown);
            this.asm.bind(unknown);
            this.asm.store_number(RSP, slots.mode, Mode::UNKNOWN);
            this.asm.bind(others);
            this.other_modes(access, slots, 0, done, slow);
        }));
    }

    /// Compares the addresses of the threads with the first one's.
    fn compare_addresses(&mut self, access: &Access, step: Option<u32>, differs: Label) {
        match access.address {
            Address::Long(reg) => self.compare_longs(reg, step, differs),
            Address::Word(reg) => self.compare_words(reg, false, 0, step, differs),
            Address::Indexed { index, signed, shift } => {
                self.compare_words(index, signed, shift, step, differs);
            }
        }
    }

    /// An access of consecutive words or longs, from `base` on.
    pub(super) fn consecutive(&mut self, access: &Access, slots: Slots, base: Gpr) {
        let (reg, distance) = (access.data[0], (access.offset - slots.least) as i32);
        if let Element::Narrow { bytes, signed } = access.element {
            return self.consecutive_narrow((bytes, signed), reg, access.store, (base, distance));
        }
        for half in 0..self.halves(reg) {
            let place = Rm::Memory(base, distance + half as i32 * VECTOR);
            match access.store {
                true => {
                    let from = self.reg(reg, half, A);
                    self.asm.two(op::MOVUPS_STORE, from, place);
                }
                false => {
                    let to = self.target(reg, half, None);
                    self.asm.two(op::MOVUPS_LOAD, to, place);
                    self.finish(reg, half, to, None);
                }
            }
        }
    }

    /// A load of the same in all threads, from `base` on.
    pub(super) fn load_same(&mut self, access: &Access, slots: Slots, base: Gpr) {
        let vex = match access.element {
            Element::Long => op::BROADCASTSD,
            Element::Word => op::BROADCASTSS,
            Element::Narrow { bytes: 1, .. } => op::PBROADCASTB,
            Element::Narrow { .. } => op::PBROADCASTW,
        };
        let distance = (access.offset - slots.least) as i32;
        for (element, &reg) in access.data.iter().enumerate() {
            let place = Rm::Memory(base, distance + access.element.bytes() as i32 * element as i32);
            for half in 0..self.halves(reg) {
                let to = self.target(reg, half, None);
                self.asm.two(vex, to, place);
                if let Element::Narrow { bytes, signed } = access.element {
                    self.extend_narrow((bytes, signed), to, to);
                }
                self.finish(reg, half, to, None);
            }
        }
    }

    pub(super) fn slots(&self, group: usize) -> Slots {
        let start = stack::REST + group as i32 * GROUP;
        let of = &self.groups.all[group];
        Slots {
            base: start,
            mode: start + 8,
            addresses: start + 32,
            window: (group * size_of::<Window>()) as i32,
            least: of.least,
            bytes: of.bytes as u32,
            is_alone: self.groups.members[group] == 1,
        }
    }

    /// Goes past an access that no thread makes, and to `some` if not all do.
    fn some_lanes(&mut self, guard: Guard, some: Label, none: Label) {
        self.lanes_of(guard);
        self.asm.test(RAX, 0xff);
        self.asm.jump_if(If::Zero, none);
        self.asm.compare(RAX, 0xff);
        self.asm.jump_if(If::NotZero, some);
    }

    /// Finds the mode of a group at its first access.
    fn find_mode(&mut self, access: &'r Access, slots: Slots) {
        let (differs, found, unknown) = (self.asm.label(), self.asm.label(), self.asm.label());
        let consecutive = access.data.len() == 1;
        let step = consecutive.then(|| access.element.bytes() as u32);
        self.compare_addresses(access, step, differs);
        if consecutive {
            self.allow(8, slots, unknown);
            self.asm.store(RSP, slots.base, RAX);
            self.asm.store_number(RSP, slots.mode, Mode::CONSECUTIVE);
        } else {
            self.asm.jump(differs);
        }
        self.asm.bind(found);
        self.later.push(Box::new(move |this| {
            this.asm.bind(differs);
            this.other_ways(access, slots, found, unknown);
            this.asm.bind(unknown);
            this.asm.store_number(RSP, slots.mode, Mode::UNKNOWN);
            this.asm.jump(found);
        }));
    }

    /// The first thread's word in `rax`, extended and shifted; goes to `differs` unless the others
    /// follow it at distances of so many bytes, if that is asked. `B` has the differences then.
    pub(super) fn compare_words(
        &mut self,
        word: Reg,
        signed: bool,
        shift: u8,
        step: Option<u32>,
        differs: Label,
    ) {
        let words = self.reg(word, 0, A);
        self.asm.scalar(op::MOVD, words, Rm::Ymm(RAX.0), None);
        self.asm.two(op::PBROADCASTD, B, Rm::Ymm(words));
        self.asm.vector(op::PSUBD, B, words, Rm::Ymm(B));
        let Some(bytes) = step else { return };
        let step = bytes >> shift.min(31);
        let steps = self.asm.constant(std::array::from_fn(|lane| lane as u32 * step));
        self.asm.vector(op::PCMPEQD, C, B, steps);
        self.asm.two(op::PMOVMSKB, RCX.0, Rm::Ymm(C));
        self.asm.compare(RCX, -1);
        self.asm.jump_if(If::NotZero, differs);
        if step == 0 {
            // What is larger than the elements of the access is at no consecutive ones.
            self.asm.jump(differs);
        }
        let last = if signed { i32::MAX as u32 } else { u32::MAX } - 7 * step;
        self.asm.compare(RAX, last as i32);
        self.asm.jump_if(if signed { If::Greater } else { If::Above }, differs);
        self.extend_first(signed, shift);
    }

    /// Makes of the word in `rax` what is to be compared with the window.
    pub(super) fn extend_first(&mut self, signed: bool, shift: u8) {
        if signed {
            self.asm.extend(RAX);
        }
        if shift > 0 {
            self.asm.shift_left(RAX, shift);
        }
    }

    /// The same of a long; `C` and `B` have the differences.
    pub(super) fn compare_longs(&mut self, long: Reg, step: Option<u32>, differs: Label) {
        let low = self.reg(long, 0, A);
        self.asm.scalar(op::MOVQ, low, Rm::Ymm(RAX.0), None);
        self.asm.two(op::PBROADCASTQ, B, Rm::Ymm(low));
        self.asm.vector(op::PSUBQ, C, low, Rm::Ymm(B));
        let high = self.reg(long, 1, A);
        self.asm.vector(op::PSUBQ, B, high, Rm::Ymm(B));
        let Some(bytes) = step else { return };
        for (half, differences) in [C, B].into_iter().enumerate() {
            let step = |word: usize| match word % 2 {
                0 => bytes * (4 * half + word / 2) as u32,
                _ => 0,
            };
            let steps = self.asm.constant(std::array::from_fn(step));
            self.asm.vector(op::PCMPEQQ, A, differences, steps);
            self.asm.two(op::MOVMSKPD, RCX.0, Rm::Ymm(A));
            self.asm.compare(RCX, 15);
            self.asm.jump_if(If::NotZero, differs);
        }
    }

    /// Makes a host address of `rax` if the window allows what threads access from there on; goes to
    /// `refused` if not.
    pub(super) fn allow(&mut self, threads: usize, slots: Slots, refused: Label) {
        let count = if threads == 8 { 8 } else { 16 };
        self.asm.copy(RCX, RAX);
        self.asm.subtract_memory(RCX, RBP, slots.window);
        self.asm.compare_memory(RCX, RBP, slots.window + count);
        self.asm.jump_if(If::AboveOrEqual, refused);
        self.asm.add_memory(RAX, RBP, slots.window + 24);
        self.asm.test(RAX, slots.bytes - 1);
        self.asm.jump_if(If::NotZero, refused);
    }

    /// The modes of threads that do not access consecutive words. The differences are where the
    /// comparison has left them, the first thread's word or long in `rax`.
    fn other_ways(&mut self, access: &Access, slots: Slots, found: Label, unknown: Label) {
        let scattered = self.asm.label();
        if let Address::Long(_) = access.address {
            self.asm.vector(op::POR, B, B, Rm::Ymm(C));
        }
        self.asm.two(op::PTEST, B, Rm::Ymm(B));
        self.asm.jump_if(If::NotZero, scattered);
        if let Address::Indexed { signed, shift, .. } = access.address {
            self.extend_first(signed, shift);
        }
        self.allow(1, slots, unknown);
        self.asm.store(RSP, slots.base, RAX);
        self.asm.store_number(RSP, slots.mode, Mode::SAME);
        self.asm.jump(found);

        self.asm.bind(scattered);
        self.find_scattered(access, slots, unknown);
        self.asm.jump(found);
    }

    /// Checks the addresses of all threads, and keeps them.
    fn find_scattered(&mut self, access: &Access, slots: Slots, unknown: Label) {
        for half in 0..2 {
            self.forbidden_half(access.address, half, slots);
            self.asm.two(op::MOVMSKPD, RCX.0, Rm::Ymm(C));
            self.asm.compare(RCX, 15);
            self.asm.jump_if(If::NotZero, unknown);
            self.asm.two(op::PBROADCASTQ, C, Rm::Memory(RBP, slots.window + 24));
            self.asm.vector(op::PADDQ, A, A, Rm::Ymm(C));
            let low_bits =
                self.asm.constant(std::array::from_fn(|lane| (slots.bytes - 1) * (1 - lane as u32 % 2)));
            self.asm.two(op::PTEST, A, low_bits);
            self.asm.jump_if(If::NotZero, unknown);
            self.add_lanes(access, half);
            self.asm.two(op::MOVUPS_STORE, A, Rm::Memory(RSP, slots.addresses + half as i32 * VECTOR));
        }
        self.asm.store_number(RSP, slots.mode, Mode::SCATTERED);
    }

    /// Adds the starts of the lanes' memory to four addresses in `A`, if the access is to that.
    fn add_lanes(&mut self, access: &Access, half: usize) {
        if access.of_lane {
            self.asm.load(RAX, RSP, stack::LANES);
            self.asm.vector(op::PADDQ, A, A, Rm::Memory(RAX, half as i32 * VECTOR));
        }
    }

    /// Four addresses, as they are compared with the window, in `A`.
    fn address_half(&mut self, address: Address, half: usize) {
        match address {
            Address::Long(reg) => self.fetch(reg, half, A),
            Address::Word(reg) => self.widen(reg, half, false, A),
            Address::Indexed { index, signed, shift } => {
                self.widen(index, half, signed, A);
                let amount = |lane: usize| if lane.is_multiple_of(2) { u32::from(shift) } else { 0 };
                let amounts = self.asm.constant(std::array::from_fn(amount));
                self.asm.vector(op::PSLLVQ, A, A, amounts);
            }
        }
    }

    /// An access whose threads do not access consecutive words.
    fn other_modes(&mut self, access: &Access, slots: Slots, distance: i32, done: Label, slow: Label) {
        if !access.store {
            let scattered = self.asm.label();
            self.asm.compare_in_memory(RSP, slots.mode, Mode::SAME as i32);
            self.asm.jump_if(If::NotZero, scattered);
            self.asm.load(RAX, RSP, slots.base);
            self.load_same(access, slots, RAX);
            self.asm.jump(done);
            self.asm.bind(scattered);
        }
        self.asm.compare_in_memory(RSP, slots.mode, Mode::SCATTERED as i32);
        self.asm.jump_if(If::NotZero, slow);
        self.scattered(access, slots, distance);
        self.asm.jump(done);
    }

    /// An access whose addresses are on the stack.
    fn scattered(&mut self, access: &Access, slots: Slots, distance: i32) {
        for (element, &reg) in access.data.iter().enumerate() {
            let distance = distance + access.element.bytes() as i32 * element as i32;
            match (access.store, access.element) {
                (store, Element::Narrow { bytes, signed }) => {
                    self.scattered_narrow((bytes, signed), reg, store, (slots.addresses, distance), None);
                }
                (true, Element::Word) => self.scatter(reg, slots, distance),
                (true, Element::Long) => self.scatter_longs(reg, slots, distance),
                (false, Element::Word) => self.gather(reg, slots, distance),
                (false, Element::Long) => self.gather_longs(reg, slots, distance),
            }
        }
    }

    /// Leaves the addresses of a half in `A`, and in the sign bits of `C` which of them the window
    /// does not allow. Overwrites `B`.
    fn forbidden_half(&mut self, address: Address, half: usize, slots: Slots) {
        self.address_half(address, half);
        self.asm.two(op::PBROADCASTQ, C, Rm::Memory(RBP, slots.window));
        self.asm.vector(op::PSUBQ, B, A, Rm::Ymm(C));
        self.asm.two(op::PBROADCASTQ, C, Rm::Memory(RBP, slots.window + 16));
        self.asm.vector(op::PCMPGTQ, C, C, Rm::Ymm(B));
        self.asm.vector(op::PANDN, C, B, Rm::Ymm(C));
    }

    /// An access that some threads make, each at an address that is computed for it alone. The
    /// helper makes it if the window does not allow one of them.
    fn masked_access(&mut self, access: &Access, guard: Guard, slots: Slots, done: Label, slow: Label) {
        for half in 0..2 {
            self.forbidden_half(access.address, half, slots);
            self.mask_half(guard, half);
            self.asm.vector(op::PANDN, C, C, Rm::Ymm(B));
            self.asm.two(op::MOVMSKPD, RCX.0, Rm::Ymm(C));
            self.asm.test(RCX, 15);
            self.asm.jump_if(If::NotZero, slow);
            self.asm.two(op::PBROADCASTQ, C, Rm::Memory(RBP, slots.window + 24));
            self.asm.vector(op::PADDQ, A, A, Rm::Ymm(C));
            self.asm.vector(op::PAND, C, A, Rm::Ymm(B));
            let low_bits =
                self.asm.constant(std::array::from_fn(|lane| (slots.bytes - 1) * (1 - lane as u32 % 2)));
            self.asm.two(op::PTEST, C, low_bits);
            self.asm.jump_if(If::NotZero, slow);
            self.add_lanes(access, half);
            self.asm.two(op::MOVUPS_STORE, A, Rm::Memory(RSP, slots.addresses + half as i32 * VECTOR));
        }
        for (element, &reg) in access.data.iter().enumerate() {
            let distance =
                (access.offset - slots.least) as i32 + access.element.bytes() as i32 * element as i32;
            match (access.store, access.element) {
                (store, Element::Narrow { bytes, signed }) => {
                    let places = (slots.addresses, distance);
                    self.scattered_narrow((bytes, signed), reg, store, places, Some(guard));
                }
                (true, _) => self.masked_scatter(reg, guard, slots, distance),
                (false, _) => self.masked_gather(reg, guard, slots, distance),
            }
        }
        self.asm.jump(done);
    }

    /// The threads of half of a guard, as longs of ones in `B`.
    fn mask_half(&mut self, guard: Guard, half: usize) {
        self.widen(guard.predicate, half, true, B);
        if guard.negated {
            let all = self.asm.constant([u32::MAX; 8]);
            self.asm.vector(op::PXOR, B, B, all);
        }
    }

    fn masked_gather(&mut self, reg: Reg, guard: Guard, slots: Slots, distance: i32) {
        let long = self.class(reg) == Class::Long;
        for half in 0..2 {
            self.mask_half(guard, half);
            if !long {
                // The lower words of four longs.
                self.asm.with_byte(op::EXTRACTI128, B, 0, Rm::Ymm(A), 1);
                self.asm.with_byte(op::SHUFPS, B, B, Rm::Ymm(A), 0x88);
            }
            self.asm.two(op::MOVUPS_LOAD, A, Rm::Memory(RSP, slots.addresses + half as i32 * VECTOR));
            match long {
                true => {
                    self.asm.gather(op::GATHERQPD, C, A, distance, B);
                    self.finish(reg, half, C, Some(guard));
                }
                false => {
                    self.asm.gather(op::GATHERQPS, C, A, distance, B);
                    let place = Rm::Memory(RSP, stack::GATHERED + half as i32 * 16);
                    self.asm.scalar(op::MOVUPS_STORE, C, place, None);
                }
            }
        }
        if !long {
            self.asm.two(op::MOVUPS_LOAD, C, Rm::Memory(RSP, stack::GATHERED));
            self.finish(reg, 0, C, Some(guard));
        }
    }

    /// Stores thread by thread, in those of the guard.
    fn masked_scatter(&mut self, reg: Reg, guard: Guard, slots: Slots, distance: i32) {
        self.lanes_of(guard);
        let lanes = 8 / self.halves(reg);
        for half in 0..self.halves(reg) {
            let from = self.reg(reg, half, A);
            self.asm.with_byte(op::EXTRACTI128, from, 0, Rm::Ymm(B), 1);
            for lane in 0..lanes {
                let next = self.asm.label();
                self.asm.test(RAX, 1 << (half * lanes + lane));
                self.asm.jump_if(If::Zero, next);
                self.asm.load(RCX, RSP, slots.addresses + (half * lanes + lane) as i32 * 8);
                let of = if lane < lanes / 2 { from } else { B };
                let vex = if lanes == 8 { op::PEXTRD } else { op::PEXTRQ };
                let part = (lane % (lanes / 2)) as u8;
                self.asm.scalar(vex, of, Rm::Memory(RCX, distance), Some(part));
                self.asm.bind(next);
            }
        }
    }

    fn gather(&mut self, reg: Reg, slots: Slots, distance: i32) {
        for half in 0..2 {
            self.asm.two(op::MOVUPS_LOAD, A, Rm::Memory(RSP, slots.addresses + half * VECTOR));
            self.asm.vector(op::PCMPEQD, B, B, Rm::Ymm(B));
            self.asm.gather(op::GATHERQPS, C, A, distance, B);
            self.asm.scalar(op::MOVUPS_STORE, C, Rm::Memory(RSP, stack::GATHERED + half * 16), None);
        }
        let to = self.target(reg, 0, None);
        self.asm.two(op::MOVUPS_LOAD, to, Rm::Memory(RSP, stack::GATHERED));
        self.finish(reg, 0, to, None);
    }

    fn gather_longs(&mut self, reg: Reg, slots: Slots, distance: i32) {
        for half in 0..2 {
            self.asm.two(op::MOVUPS_LOAD, A, Rm::Memory(RSP, slots.addresses + half as i32 * VECTOR));
            self.asm.vector(op::PCMPEQD, B, B, Rm::Ymm(B));
            self.asm.gather(op::GATHERQPD, C, A, distance, B);
            self.finish(reg, half, C, None);
        }
    }

    /// Stores longs thread by thread.
    fn scatter_longs(&mut self, reg: Reg, slots: Slots, distance: i32) {
        for half in 0..2 {
            let from = self.reg(reg, half, A);
            self.asm.with_byte(op::EXTRACTI128, from, 0, Rm::Ymm(B), 1);
            for lane in 0..4 {
                let of = if lane < 2 { from } else { B };
                self.asm.load(RAX, RSP, slots.addresses + half as i32 * VECTOR + lane * 8);
                self.asm.scalar(op::PEXTRQ, of, Rm::Memory(RAX, distance), Some(lane as u8 % 2));
            }
        }
    }

    /// Stores thread by thread: where several access the same, the last one's word stays.
    fn scatter(&mut self, reg: Reg, slots: Slots, distance: i32) {
        let from = self.reg(reg, 0, A);
        self.asm.with_byte(op::EXTRACTI128, from, 0, Rm::Ymm(B), 1);
        for lane in 0..8 {
            let half = if lane < 4 { from } else { B };
            self.asm.load(RAX, RSP, slots.addresses + lane * 8);
            self.asm.scalar(op::PEXTRD, half, Rm::Memory(RAX, distance), Some(lane as u8 % 4));
        }
    }

    /// Has the helper perform the access, in the threads of the guard. It stops the strip if the
    /// helper refuses.
    fn slow(
        &mut self,
        access: &Access,
        guard: Option<Guard>,
        (live, mask): (&Set, Option<&Mask>),
        done: Label,
    ) {
        let address = access.address.register();
        for half in 0..self.halves(address) {
            let from = self.reg(address, half, A);
            self.asm.two(op::MOVUPS_STORE, from, Rm::Memory(RBX, at::ADDRESS + half as i32 * VECTOR));
        }
        if access.of_lane {
            self.asm.load(RAX, RSP, stack::LANES);
            for half in [0, VECTOR] {
                self.asm.two(op::MOVUPS_LOAD, A, Rm::Memory(RAX, half));
                self.asm.two(op::MOVUPS_STORE, A, Rm::Memory(RBX, at::LANES + half));
            }
        }
        let rows = if access.element == Element::Long { 2 } else { 1 };
        let halves: Vec<(Reg, usize, Rm)> = (0..access.data.len() * rows)
            .map(|row| (access.data[row / rows], row % rows, Rm::Memory(RBX, at::DATA + row as i32 * VECTOR)))
            .collect();
        for &(reg, half, place) in halves.iter().filter(|_| access.store) {
            let from = self.reg(reg, half, A);
            self.asm.two(op::MOVUPS_STORE, from, place);
        }
        if let Some(guard) = guard {
            self.lanes_of(guard);
        }
        self.call(access.site, guard.map(|_| ()));
        self.asm.test(RAX, u32::MAX);
        let refused = self.asm.label();
        self.asm.jump_if(If::NotZero, refused);
        for (reg, half, place) in halves.into_iter().filter(|_| !access.store) {
            let to = self.target(reg, half, guard);
            self.asm.two(op::MOVUPS_LOAD, to, place);
            self.finish(reg, half, to, guard);
        }
        self.asm.jump(done);
        self.asm.bind(refused);
        self.stop(access.site, live, mask);
    }
}
