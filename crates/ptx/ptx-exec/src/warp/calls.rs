//! Calls: frames, arguments and results, and the returns of lanes.

use crate::code::{Call, Callee, Transfer};
use crate::fault::{FaultKind, Stop};
use crate::program::function_at;
use crate::registers::Shortage;
use crate::registers::lanes::each_lane;
use crate::warp::input::Setting;
use crate::warp::path::{Frame, Path, Return, frame_behind, room_for_a_return};
use crate::warp::{Surroundings, Warp};

impl Warp {
    pub(super) fn call(
        &mut self,
        index: usize,
        active: u32,
        call: &Call,
        around: &mut Surroundings,
    ) -> Result<(), Box<Stop>> {
        let Callee::Indirect(reg) = call.callee else {
            return self.call_one(index, active, call.callee, call, around);
        };
        let frame = self.paths[index].frame;
        let lanes = self.lanes(frame, active);
        // SAFETY: the frame has the register, a long.
        let targets = unsafe { *lanes.source::<u64>(reg) };
        let first = active.trailing_zeros() as usize;
        let mut same = 0;
        each_lane(active, |lane| same |= u32::from(targets[lane] == targets[first]) << lane);
        let (pc, function) = (self.paths[index].pc, self.paths[index].function);
        let known = function_at(targets[first]).filter(|&callee| around.launch.has(callee));
        let Some(callee) = known else {
            let text = format!("call of {:#x}, which is no function", targets[first]);
            let address = Some(targets[first]);
            return Err(self.stop(FaultKind::IllegalInstruction, text, address, first, (function, pc - 1)));
        };
        // Lanes with other targets make the call again, among themselves.
        if active & !same != 0 {
            self.split(index, active & !same).pc = pc - 1;
        }
        let own = self.paths.iter().position(|path| path.mask & same != 0).unwrap_or(index);
        self.call_one(own, same, Callee::Function(callee), call, around)
    }

    fn call_one(
        &mut self,
        index: usize,
        active: u32,
        callee: Callee,
        call: &Call,
        around: &mut Surroundings,
    ) -> Result<(), Box<Stop>> {
        let caller = &self.paths[index];
        let (function, pc, frame) = (caller.function, caller.pc, caller.frame);
        let code = around.launch.code(function);
        let align = around.launch.local_align;
        let lane = active.trailing_zeros() as usize;
        let (depth, stack) = (caller.returns.len(), around.launch.stack);
        let stop = |warp: &Self, kind, text| warp.stop(kind, text, None, lane, (function, pc - 1));
        let overflow = |warp: &Self| {
            let text = format!(
                "stack overflow: calls nest too deeply for a stack of {stack} bytes (cudaLimitStackSize), {depth} deep"
            );
            stop(warp, FaultKind::StackOverflow, text)
        };
        if depth >= around.launch.most_calls {
            return Err(overflow(self));
        }
        let Some(local) = frame_behind(frame.local, code.frame_bytes, align) else {
            return Err(overflow(self));
        };
        let inner = Frame { registers: frame.registers.plus(code.registers), local };
        for Transfer { caller, callee, bytes } in &call.arguments {
            let moved =
                around.spaces.move_local(active, (frame.local, *caller), (inner.local, *callee), *bytes);
            moved.ok_or_else(|| overflow(self))?;
        }
        let callee = match callee {
            Callee::Builtin(builtin) => {
                return crate::runtime::builtin::run(builtin, around, self.index, active, inner.local.into())
                    .map_err(|(kind, text, lane)| self.stop(kind, text, None, lane, (function, pc - 1)));
            }
            Callee::Function(callee) => callee,
            // Resolved by `call`.
            Callee::Indirect(_) => return Ok(()),
        };
        let code = around.launch.code(callee);
        if u64::from(inner.local) + u64::from(code.frame_bytes) > around.launch.local_bytes {
            return Err(overflow(self));
        }
        let grown = self.registers().grow(inner.registers.plus(code.registers), around.share);
        let remembered = room_for_a_return(&mut self.paths[index].returns, around.share);
        match grown.and(remembered) {
            Ok(()) => {}
            Err(Shortage::Registers) => return Err(overflow(self)),
            Err(Shortage::Memory) => {
                let text =
                    "out of memory: the registers of nested calls do not fit into the host's".to_owned();
                return Err(stop(self, FaultKind::OutOfMemory, text));
            }
        }
        let (launch, block, shared) = (around.launch, around.block, around.spaces.shared.start);
        let setting =
            Setting { launch, block, shared, warp: self.index, local: self.local, frame: inner.local };
        for (reg, class, input) in &code.inputs {
            self.registers().set(inner.registers, *class, reg.0, active, &setting.values(*input));
        }
        let part = self.split(index, active);
        part.returns.push(Return { function, pc, frame });
        (part.function, part.pc, part.frame) = (callee, 0, inner);
        Ok(())
    }

    pub(super) fn fetch_results(
        &mut self,
        index: usize,
        active: u32,
        transfers: &[Transfer],
        around: &mut Surroundings,
    ) -> Result<(), Box<Stop>> {
        let Path { function, pc, frame, .. } = self.paths[index];
        let code = around.launch.code(function);
        // The call has been made, so there is a frame.
        let inner =
            frame_behind(frame.local, code.frame_bytes, around.launch.local_align).unwrap_or(u32::MAX);
        for Transfer { caller, callee, bytes } in transfers {
            let moved = around.spaces.move_local(active, (inner, *callee), (frame.local, *caller), *bytes);
            moved.ok_or_else(|| {
                let text = "a result lies outside local memory".to_owned();
                let lane = active.trailing_zeros() as usize;
                self.stop(FaultKind::OutOfBounds, text, None, lane, (function, pc - 1))
            })?;
        }
        Ok(())
    }
}
