//! The values that are in registers before a function starts.

use ptx_lower::scalar::lane_mask;

use crate::code::Input;
use crate::launch::Launch;
use crate::registers::lanes::WARP;

/// The values that an input may depend on.
pub(crate) struct Setting<'l> {
    pub(crate) launch: &'l Launch<'l>,
    /// `%ctaid`.
    pub(crate) block: [u32; 3],
    /// The start of the block's shared memory.
    pub(crate) shared: u64,
    /// Index of the warp in the block.
    pub(crate) warp: u32,
    /// The start of the local memory of the warp's first lane.
    pub(crate) local: u64,
    /// The start of the function's frame in local memory.
    pub(crate) frame: u32,
}

impl Input {
    /// Whether it is the same in all lanes of a warp.
    pub(crate) fn is_uniform(self) -> bool {
        !matches!(
            self,
            Input::Thread(_) | Input::Lane | Input::LaneMask(_) | Input::LocalWindow | Input::LocalWindowEnd
        )
    }

    /// Whether it differs between the warps of a block.
    pub(crate) fn is_of_warp(self) -> bool {
        !self.is_uniform() || self == Input::Warp
    }
}

impl Setting<'_> {
    /// The input in every lane.
    pub(crate) fn values(&self, input: Input) -> [u64; WARP] {
        match input.is_uniform() {
            true => [self.of_lane(input, 0); WARP],
            false => std::array::from_fn(|lane| self.of_lane(input, lane as u32)),
        }
    }

    fn of_lane(&self, input: Input, lane: u32) -> u64 {
        let launch = self.launch;
        match input {
            Input::Constant(bits) => bits,
            Input::Thread(axis) => launch.thread(self.warp * WARP as u32 + lane)[axis as usize].into(),
            Input::BlockSize(axis) => launch.config.block.to_array()[axis as usize].into(),
            Input::Block(which) => launch.block_value(self.block, which).into(),
            Input::Cluster(which) => launch.cluster_input(which, self.shared, self.block),
            Input::GridSize(axis) => launch.config.grid.to_array()[axis as usize].into(),
            Input::Lane => lane.into(),
            Input::Warp => self.warp.into(),
            Input::Warps => launch.warps().into(),
            // One multiprocessor: where a block runs is nobody's business.
            Input::Processor => 0,
            Input::Processors => 1,
            Input::Grid => launch.identity,
            Input::Workspace { high: true } => launch.workspace >> 32,
            Input::Workspace { high: false } => launch.workspace & 0xffff_ffff,
            Input::LaneMask(register) => lane_mask(register, lane).into(),
            Input::SharedBytes { fixed, dynamic } => {
                let sized_at_launch = u64::from(launch.config.dynamic_shared_bytes);
                let fixed = if fixed { launch.shared_bytes - sized_at_launch } else { 0 };
                fixed + if dynamic { sized_at_launch } else { 0 }
            }
            Input::Param { offset, bytes, signed } => launch.param(offset, bytes, signed),
            Input::ParamAddress(offset) => launch.params.start + u64::from(offset),
            Input::ParamEnd => launch.params.end,
            Input::SharedVariable(index) => launch.shared_offset(index),
            Input::SharedWindow => self.shared,
            Input::SharedWindowEnd => self.shared + launch.shared_bytes,
            Input::LocalWindow => self.local + u64::from(lane) * launch.local_bytes,
            Input::LocalWindowEnd => self.local + (u64::from(lane) + 1) * launch.local_bytes,
            Input::StackStart => launch.frames_bytes,
            Input::StackEnd => launch.local_bytes,
            Input::Frame(offset) => u64::from(self.frame) + u64::from(offset),
            Input::Global(index) => launch.global(index),
        }
    }
}
