//! Follows undefined values from the loads that create them to the uses that are defects.
//!
//! Such uses are branches, addresses, stores to global or shared memory, and any other operation by
//! which a value leaves the thread. A reported value counts as defined afterwards, so that its
//! consequences are not reported again.

use crate::code::Op;
use crate::observe::check::{Checker, UNINITIALIZED, describe};
use crate::observe::probe::Moment;
use crate::observe::survey::Spot;
use crate::observe::undefined::{Origin, Undefined, guard, registers};
use crate::operands::{AccessArgs, AccessKind, Class, Reg, Role};
use crate::registers::lanes::{WARP, each_lane};

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
        let Some(undefined) = self.values.of(moment, class, reg) else { return };
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
        let Origin { place: loaded, spot, bytes, frame } = origin;
        let who = self.who(moment.warp * WARP as u32 + lane as u32);
        let link = self.memory_of(loaded.0, frame, spot);
        let (launch, place) = (self.launch, (moment.function, moment.pc));
        self.defects.note(UNINITIALIZED, place, Some(loaded), times.into(), || {
            let at = describe(launch, (loaded.0, frame), spot);
            (
                format!("{who} {verb} a value of {bytes} bytes that nobody has written, loaded {at}"),
                vec![link],
            )
        });
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
        each_lane(unwritten, |lane| origins[lane] = self.origin_of(moment, lane, spots[lane], bytes));
        let class = if args.wide { Class::Long } else { Class::Word };
        let each = element_bytes(args, bytes);
        for (element, &reg) in args.data.iter().enumerate().filter(|(_, reg)| reg.is_some()) {
            let mut undefined = Undefined { origins, ..Undefined::NOTHING };
            each_lane(unwritten, |lane| {
                let first = element as u32 * each;
                undefined.bits[lane] = self.unwritten_bits(spots[lane], first, each, is_signed(self, moment));
            });
            self.values.set(moment, class, reg, moment.lanes.mask, Some(&undefined));
        }
    }

    /// The origin of what a lane loads: that of a value which was stored there undefined, or this
    /// load.
    fn origin_of(&mut self, moment: &Moment, lane: usize, spot: Spot, bytes: u32) -> u32 {
        if let Spot::Local(thread, offset) = spot
            && let Some(&origin) = self.stored.get(&self.local_place(thread, offset))
        {
            return origin;
        }
        let place = (moment.function, moment.pc);
        let thread = moment.warp * WARP as u32 + lane as u32;
        self.values.add_origin(thread, Origin { place, spot, bytes, frame: moment.local })
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
        let sign = 1u64 << (8 * bytes - 1).min(63);
        // The sign is copied into all bits above.
        if signed && bits & sign != 0 { bits | !(sign - 1) } else { bits }
    }

    /// A store of an undefined value is a defect where others can read it; local memory becomes
    /// undefined again.
    pub(super) fn store(&mut self, moment: &Moment, args: &AccessArgs, spots: &[Spot; WARP], bytes: u32) {
        self.write(moment, spots, bytes);
        if self.values.is_empty() {
            return;
        }
        let class = if args.wide { Class::Long } else { Class::Word };
        let each = element_bytes(args, bytes);
        let wanted = u64::MAX >> (64 - 8 * each.clamp(1, 8));
        for (element, &reg) in args.data.iter().enumerate().filter(|(_, reg)| reg.is_some()) {
            let Some(&undefined) = self.values.of(moment, class, reg) else { continue };
            let lanes = undefined.lanes(moment.lanes.mask, wanted);
            let mut visible = 0u32;
            each_lane(lanes, |lane| match spots[lane] {
                Spot::Local(thread, offset) => {
                    let place = self.local_place(thread, offset + u64::from(element as u32 * each));
                    let undefined_byte = |byte: &u32| undefined.bits[lane] >> (8 * byte) & 0xff != 0;
                    for byte in (0..each).filter(undefined_byte) {
                        self.local.unmark(place + u64::from(byte), 1);
                    }
                    self.stored.insert(place, undefined.origins[lane]);
                }
                _ => visible |= 1 << lane,
            });
            if visible != 0 {
                self.check(moment, class, reg, visible, wanted, "stores");
            }
        }
    }

    /// What a texture or surface gives for undefined coordinates is undefined; what is stored must
    /// not be.
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
            let Some(source) = self.values.of(moment, *class, *reg) else { continue };
            each_lane(source.lanes(moment.lanes.mask, u64::MAX), |lane| {
                (undefined.bits[lane], undefined.origins[lane]) = (u64::MAX, source.origins[lane]);
            });
        }
        for (reg, class, _) in results {
            self.values.set(moment, *class, *reg, moment.lanes.mask, Some(&undefined));
        }
    }
}

/// Bytes of one register of an access to so many.
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
