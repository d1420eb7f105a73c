//! Follows undefined values from the loads that create them to the uses that are defects.
//!
//! Such uses are branches, addresses, stores of what was computed, and any other operation by which
//! a value leaves the thread. A store of what was only loaded copies memory: its destination
//! becomes undefined, and the copy is followed from there. C++ copies structures with their padding
//! and unions whole, so a copy that is undefined in part is never a defect; one that is wholly
//! undefined is a defect once the host reads it. A reported value counts as defined afterwards, so
//! that its consequences are not reported again.

use crate::code::Op;
use crate::launch::Launch;
use crate::observe::check::{Checker, UNINITIALIZED, describe};
use crate::observe::defects::{CopiedByte, Link};
use crate::observe::probe::Moment;
use crate::observe::survey::Spot;
use crate::observe::undefined::{Origin, Stored, Treatment, Undefined, guard, registers};
use crate::operands::{AccessArgs, AccessKind, Class, Reg, Role};
use crate::registers::lanes::{Lanes, WARP, each_lane};

impl Checker<'_> {
    /// The guard of a step decides whether it is executed; what it decides about registers alone is
    /// no use yet.
    pub(super) fn check_guard(&mut self, moment: &Moment) {
        if self.values.is_empty() {
            return;
        }
        let verb = match &moment.step.op {
            Op::Lanes { .. } | Op::Warp { .. } => return,
            Op::Access { .. } | Op::Image(_) => "accesses memory depending on",
            _ => "branches on",
        };
        if let Some(reg) = guard(moment.step) {
            self.check(moment, Class::Predicate, reg, moment.mask, 1, verb);
        }
    }

    /// The registers that the step reads are used by it.
    pub(super) fn check_uses(&mut self, moment: &Moment, verb: &str) {
        if self.values.is_empty() {
            return;
        }
        for (reg, class, role) in registers(moment) {
            if role == Role::Use {
                self.check(moment, class, reg, moment.lanes.mask, u64::MAX, verb);
            }
        }
    }

    /// An access uses its address, and what it computes or copies with.
    pub(super) fn check_address(&mut self, moment: &Moment, args: &AccessArgs) {
        if self.values.is_empty() {
            return;
        }
        let data = if args.kind == AccessKind::Store { &args.data[..] } else { &[] };
        let data_class = if args.wide { Class::Long } else { Class::Word };
        let address_class = if args.narrow { Class::Word } else { Class::Long };
        let verb = |reg: &Reg| match args.kind {
            AccessKind::Atomic if args.operands.contains(reg) => "stores",
            _ => "takes an address from",
        };
        for (reg, class, role) in registers(moment) {
            let stored = class == data_class && data.contains(&reg);
            let addresses = class == address_class && reg == args.address;
            // The guard has been looked at.
            if role == Role::Use && class != Class::Predicate && (addresses || !stored) {
                self.check(moment, class, reg, moment.lanes.mask, u64::MAX, verb(&reg));
            }
        }
    }

    /// Complains if bits of `wanted` are undefined in a register that the step uses, in lanes of
    /// `mask`.
    fn check(&mut self, moment: &Moment, class: Class, reg: Reg, mask: u32, wanted: u64, verb: &str) {
        let Some(undefined) = self.values.undefined_part(moment, class, reg) else { return };
        let lanes = undefined.lanes(mask, wanted);
        if lanes == 0 {
            return;
        }
        let lane = lanes.trailing_zeros() as usize;
        let origin = self.values.origin(undefined.origins[lane]);
        self.values.set(moment, class, reg, lanes, None);
        self.note_use(moment, lane, lanes.count_ones(), origin, verb);
    }

    fn note_use(&mut self, moment: &Moment, lane: usize, times: u32, origin: Origin, verb: &str) {
        let (who, link) = self.user(moment, lane, origin);
        let (launch, place) = (self.launch, (moment.function, moment.pc));
        self.defects.note(UNINITIALIZED, place, Some(origin.place), times.into(), || {
            (told(launch, &who, verb, origin), vec![link])
        });
    }

    /// The thread that uses a value, in words, and the memory that the value came from.
    fn user(&mut self, moment: &Moment, lane: usize, origin: Origin) -> (String, Link) {
        let who = self.who(moment.warp * WARP as u32 + lane as u32);
        (who, self.memory_of(origin.place.0, origin.frame, origin.spot))
    }

    /// A load makes its registers undefined where nobody has written what it reads.
    pub(super) fn load(&mut self, moment: &Moment, args: &AccessArgs, spots: &[Spot; WARP], bytes: u32) {
        let mut unwritten = 0u32;
        each_lane(moment.lanes.mask, |lane| {
            unwritten |= u32::from(!self.is_written(spots[lane], bytes)) << lane;
        });
        if unwritten == 0 {
            return self.values.define_results(moment);
        }
        let mut origins = [0; WARP];
        let mut treatments = [Treatment::Copied; WARP];
        each_lane(unwritten, |lane| {
            (origins[lane], treatments[lane]) = self.origin_of(moment, lane, spots[lane], bytes);
        });
        let class = if args.wide { Class::Long } else { Class::Word };
        let each = element_bytes(args, bytes);
        for (element, &reg) in args.data.iter().enumerate().filter(|(_, reg)| reg.is_some()) {
            let mut undefined = Undefined { origins, treatments, ..Undefined::NOTHING };
            each_lane(unwritten, |lane| {
                let first = element as u32 * each;
                undefined.bits[lane] = self.unwritten_bits(spots[lane], first, each, is_signed(self, moment));
            });
            self.values.set(moment, class, reg, moment.lanes.mask, Some(&undefined));
        }
    }

    /// The origin of what a lane loads, and what was done with it: that of a value which was stored
    /// there undefined, or this load.
    fn origin_of(&mut self, moment: &Moment, lane: usize, spot: Spot, bytes: u32) -> (u32, Treatment) {
        if let Some(known) = self.stored.get(&spot) {
            // What was arranged before it was stored is a member from now on.
            let is_computed = known.treatment == Treatment::Computed;
            return (known.origin, if is_computed { Treatment::Computed } else { Treatment::Copied });
        }
        let place = (moment.function, moment.pc);
        let thread = moment.warp * WARP as u32 + lane as u32;
        let origin = Origin { place, spot, bytes, frame: moment.local };
        (self.values.add_origin(thread, origin), Treatment::Copied)
    }

    /// The undefined bits of a register that is loaded from `bytes` bytes, `first` bytes behind a
    /// spot.
    fn unwritten_bits(&mut self, spot: Spot, first: u32, bytes: u32, signed: bool) -> u64 {
        let mut bits = 0;
        for byte in 0..bytes {
            if !self.is_written(spot.further(u64::from(first + byte)), 1) {
                bits |= 0xff << (8 * byte);
            }
        }
        // Of bit fields single bits are undefined.
        if let Some(known) = self.stored.get(&spot.further(first.into())).filter(|known| known.bytes == bytes)
        {
            bits &= known.bits;
        }
        let sign = 1u64 << (8 * bytes - 1).min(63);
        // The sign is copied into all bits above.
        if signed && bits & sign != 0 { bits | !(sign - 1) } else { bits }
    }

    /// A store of undefined values: memory becomes as undefined as they are, or the store is a
    /// defect.
    pub(super) fn store(&mut self, moment: &Moment, args: &AccessArgs, spots: &[Spot; WARP], bytes: u32) {
        self.write(moment, spots, bytes);
        if self.values.is_empty() {
            return;
        }
        let class = if args.wide { Class::Long } else { Class::Word };
        let each = element_bytes(args, bytes);
        let wanted = u64::MAX >> (64 - 8 * each.clamp(1, 8));
        let data = || args.data.iter().copied().enumerate().filter(|(_, reg)| reg.is_some());
        let undefined = |(element, reg): (usize, Reg)| {
            Some((element as u32 * each, *self.values.undefined_part(moment, class, reg)?))
        };
        let elements: Vec<(u32, Undefined)> = data().filter_map(undefined).collect();
        let mut reported = 0u32;
        each_lane(moment.lanes.mask, |lane| {
            let bits = |undefined: &Undefined| undefined.bits[lane] & wanted;
            let parts: Vec<_> = elements.iter().filter(|(_, element)| bits(element) != 0).collect();
            let Some(treatment) = parts.iter().map(|(_, element)| element.treatments[lane]).max() else {
                return;
            };
            let whole = parts.len() == data().count() && parts.iter().all(|(_, part)| bits(part) == wanted);
            // Padding follows a member, and bit fields are changed where they are.
            let is_in_place = self.values.origin(parts[0].1.origins[lane]).spot == spots[lane];
            let is_natural = |part: &Undefined| bits(part) == wanted || bits(part) & 0xff == 0;
            let natural = is_in_place || parts.iter().all(|(_, part)| is_natural(part));
            let verdict = self.verdict(spots[lane], whole, natural, treatment);
            if verdict == Verdict::Defect {
                reported |= 1 << lane;
                return;
            }
            for (first, part) in &parts {
                self.carry(spots[lane].further((*first).into()), each, part, lane);
                if let (Verdict::Latent, Spot::Global(address)) = (verdict, spots[lane]) {
                    let origin = self.values.origin(part.origins[lane]);
                    self.note_latent(moment, lane, origin, address + u64::from(*first));
                }
            }
        });
        if reported != 0 {
            data().for_each(|(_, reg)| self.check(moment, class, reg, reported, wanted, "stores"));
        }
    }

    /// Judges a store of a value that is undefined completely (`whole`) or in part. Copies of
    /// structures with their padding, and of unions, are undefined in part. `natural` tells whether
    /// compilers arrange such values of members.
    fn verdict(&mut self, spot: Spot, whole: bool, natural: bool, treatment: Treatment) -> Verdict {
        match (spot, treatment) {
            (Spot::Local(..), _) => Verdict::Copy,
            (_, Treatment::Computed) => Verdict::Defect,
            (_, Treatment::Arranged) if whole || !natural => Verdict::Defect,
            _ if !whole => Verdict::Copy,
            (Spot::Global(address), _) if self.shadow(address).is_none() => Verdict::Defect,
            (Spot::Global(_), _) => Verdict::Latent,
            _ => Verdict::Copy,
        }
    }

    /// The bytes from `spot` become undefined as `value` is in `lane`. In global memory a byte of
    /// which a part is defined counts as written, because other launches cannot know the bits.
    fn carry(&mut self, spot: Spot, bytes: u32, value: &Undefined, lane: usize) {
        let bits = value.bits[lane];
        let is_undefined = |byte: &u32| match (spot, bits >> (8 * byte) & 0xff) {
            (Spot::Global(_), part) => part == 0xff,
            (_, part) => part != 0,
        };
        for byte in (0..bytes).filter(is_undefined) {
            self.unmark(spot.further(byte.into()));
        }
        let (origin, treatment) = (value.origins[lane], value.treatments[lane]);
        self.stored.insert(spot, Stored { origin, treatment, bits, bytes });
    }

    /// An asynchronous copy: a defect where nobody has written any of its bytes. The others are as
    /// undefined as before.
    pub(super) fn copy(&mut self, moment: &Moment, from: &[Spot; WARP], to: &[Spot; WARP], bytes: u32) {
        self.write(moment, to, bytes);
        let mut unwritten = 0u32;
        each_lane(moment.lanes.mask, |lane| {
            if self.is_written(from[lane], bytes) {
                return;
            }
            let missing = |byte: &u32| !self.is_written(from[lane].further((*byte).into()), 1);
            let missing: Vec<u32> = (0..bytes).filter(missing).collect();
            if missing.len() as u32 == bytes {
                unwritten |= 1 << lane;
                return;
            }
            missing.iter().for_each(|byte| self.unmark(to[lane].further((*byte).into())));
        });
        let lanes = Lanes { mask: unwritten, ..*moment.lanes };
        self.read(&Moment { lanes: &lanes, ..*moment }, from, bytes);
    }

    /// Nobody has written the byte.
    fn unmark(&mut self, spot: Spot) {
        match spot {
            Spot::Param => {}
            Spot::Shared(offset) => self.shared.unmark(offset, 1),
            Spot::Local(thread, offset) => self.local.unmark(self.local_place(thread, offset), 1),
            Spot::Global(address) => {
                if let Some(shadow) = self.shadow(address) {
                    shadow.unmark(address, 1);
                }
            }
        }
    }

    /// The store becomes a defect if the host reads `address` before it is written.
    fn note_latent(&mut self, moment: &Moment, lane: usize, origin: Origin, address: u64) {
        let Some(shadow) = self.shadow(address) else { return };
        let (who, link) = self.user(moment, lane, origin);
        let (launch, place) = (self.launch, (moment.function, moment.pc));
        let text = || (told(launch, &who, "stores", origin), vec![link]);
        let byte = CopiedByte::new(&shadow, address);
        self.latent.note(UNINITIALIZED, place, Some(origin.place), 1, text).hold(byte);
    }

    /// Follows undefined values through a texture or surface: undefined coordinates give an
    /// undefined result, and a stored value must be defined.
    pub(super) fn image(&mut self, moment: &Moment) {
        if self.values.is_empty() {
            return;
        }
        let operands = registers(moment);
        let results = operands.iter().filter(|(.., role)| *role == Role::Def);
        if results.clone().next().is_none() {
            return self.check_uses(moment, "stores");
        }
        let mut undefined = Undefined::NOTHING;
        for (reg, class, _) in operands.iter().filter(|(.., role)| *role == Role::Use) {
            let Some(source) = self.values.undefined_part(moment, *class, *reg) else { continue };
            each_lane(source.lanes(moment.lanes.mask, u64::MAX), |lane| {
                (undefined.bits[lane], undefined.origins[lane]) = (u64::MAX, source.origins[lane]);
            });
        }
        for (reg, class, _) in results {
            self.values.set(moment, *class, *reg, moment.lanes.mask, Some(&undefined));
        }
    }
}

/// The judgement of a store of an undefined value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// A copy, which may never be used.
    Copy,
    /// A copy that is a defect once the host reads it.
    Latent,
    Defect,
}

/// Describes in words the use of a value from `origin` by a thread.
fn told(launch: &Launch, who: &str, verb: &str, origin: Origin) -> String {
    let Origin { place, spot, bytes, frame } = origin;
    let at = describe(launch, (place.0, frame), spot);
    format!("{who} {verb} a value of {bytes} bytes that nobody has written, loaded {at}")
}

/// Returns the bytes of one register of an access to `bytes` bytes.
fn element_bytes(args: &AccessArgs, bytes: u32) -> u32 {
    let count = args.data.iter().filter(|reg| reg.is_some()).count().max(1) as u32;
    (bytes / count).max(1)
}

/// Whether the load of the moment extends a sign.
fn is_signed(checker: &Checker, moment: &Moment) -> bool {
    let code = checker.launch.code(moment.function);
    let operation = &code.origins[code.origin_of[moment.pc as usize] as usize].operation;
    operation.types().last().is_some_and(|ty| ty.is_signed())
}
