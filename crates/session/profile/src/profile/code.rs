//! The image and the arguments of a kernel, in a session that stores code.

use apex_ordered::{Gather, Order};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use apex_counts::FactKind;
use apex_trace::definition::{Arguments, Pointer};
use apex_trace::layout::MemoryKind;
use apex_trace::{KeptCode, image};
use serde::Serialize;

use super::{Kernel, serde_layout};

/// Most different arguments that are kept of a kernel, over all processes.
const MOST_ARGUMENTS: usize = 16;

/// Images by hash, packed as the session has them. No part of what is written.
pub type Images = BTreeMap<String, Arc<[u8]>>;

/// The code that was kept of the images that programs loaded.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SessionCode {
    /// Most bytes that images could take.
    pub max_bytes: u64,
    /// Images.
    pub images: u64,
    /// Bytes of their files.
    pub bytes: u64,
    /// Loads of images that were not kept: there was no room, or they could not be read.
    pub left_out: u64,
    /// Bytes of these, as far as they are known.
    pub left_out_bytes: u64,
    /// The knowledge of the kernels' code: shares of the GPU time, by [`KnownCode::name`], or
    /// `none`. Empty before kernels are predicted, and if none was timed.
    pub known: BTreeMap<String, f64>,
}

impl SessionCode {
    /// Adds what another session kept.
    pub(super) fn merge(&mut self, other: &Self) {
        self.max_bytes = self.max_bytes.saturating_add(other.max_bytes);
        self.images = self.images.saturating_add(other.images);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.left_out = self.left_out.saturating_add(other.left_out);
        self.left_out_bytes = self.left_out_bytes.saturating_add(other.left_out_bytes);
    }
}

impl From<KeptCode> for SessionCode {
    fn from(kept: KeptCode) -> Self {
        let KeptCode { max_bytes, images, bytes, left_out, left_out_bytes } = kept;
        Self { max_bytes, images, bytes, left_out, left_out_bytes, known: BTreeMap::new() }
    }
}

/// The code and arguments of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct KernelCode {
    /// The image that it is from, by its hash; `None` if that was not kept.
    pub image: Option<String>,
    /// The arguments of launches that were examined, the most frequent first.
    pub arguments: Vec<KernelArguments>,
    /// Launches that were looked at and given others than these.
    pub other_arguments: u64,
    /// The part of its code that the image holds; `None` if the image could not be read, and before
    /// kernels are predicted.
    pub known: Option<KnownCode>,
    /// Facts that its PTX tells about its cost; empty for kernels that take little of the GPU time,
    /// and before kernels are predicted.
    pub facts: Vec<CodeFact>,
}

/// A fact that a kernel's PTX tells about its cost.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CodeFact {
    /// The kind of fact.
    pub kind: FactKind,
    /// Share of the kernel's work, as far as the listing tells it.
    pub share: f64,
    /// The cost.
    pub cost: f64,
    /// The least possible cost.
    pub least: f64,
    /// Whether it holds only if a parameter of the kernel is large.
    pub by_parameter: bool,
    /// The source file, as the compiler named it.
    pub file: Option<String>,
    /// The line in it.
    pub line: Option<u32>,
}

/// The part of a kernel's code that an image holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KnownCode {
    /// Its PTX, which tells what launches execute.
    Ptx,
    /// Its machine code alone: what the tables beside that say.
    MachineCode(MachineCode),
}

impl KnownCode {
    /// In a word.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ptx => "ptx",
            Self::MachineCode(_) => "machine_code",
        }
    }
}

/// The properties of a kernel in the tables of machine code; `None` if they do not give it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MachineCode {
    /// Registers of a thread.
    pub registers: Option<u32>,
    /// Static shared memory of a block.
    pub static_shared_bytes: u32,
    /// Local memory of a thread.
    pub local_bytes: Option<u32>,
    /// Barriers of a block.
    pub barriers: u32,
    /// Most threads of a block that the code says.
    pub max_threads: Option<u32>,
    /// The offset and size of each parameter, in bytes.
    pub parameters: Option<Vec<(u32, u32)>>,
}

/// The arguments of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct KernelArguments {
    /// Launches with these arguments, of those that were looked at: the first one of the
    /// configuration, and those that were timed.
    pub launches: u64,
    /// The parameters, in their order.
    pub parameters: Vec<Parameter>,
}

/// The kind of memory that a pointer among a kernel's arguments pointed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ArgumentMemory {
    /// The parameter, from 0.
    pub parameter: u32,
    /// The memory.
    #[serde(with = "serde_layout::memory_kind")]
    pub kind: MemoryKind,
}

/// A parameter of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Parameter {
    /// The offset in the kernel's parameter space.
    pub offset: u32,
    /// Its bytes, in hexadecimal digits, the first byte first; zeros in place of pointers.
    pub bytes: String,
    /// The pointers to device memory in it.
    pub pointers: Vec<PointerTo>,
}

/// A pointer to device memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PointerTo {
    /// The offset in the parameter.
    pub at: u32,
    /// The index of the allocation among those that these arguments point into.
    pub allocation: u32,
    /// Bytes of that allocation.
    pub allocation_bytes: u64,
    /// The offset of the target from the allocation's start, in bytes.
    pub offset: u64,
}

/// The counts of a kernel's arguments.
#[derive(Default)]
pub(super) struct ArgumentCounts {
    /// Without identifiers.
    each: Vec<(Arguments, u64)>,
    others: u64,
}

impl ArgumentCounts {
    /// A launch that was looked at; `None` where its arguments were not kept.
    pub fn add(&mut self, arguments: Option<&Arguments>) {
        match arguments {
            Some(arguments) => self.add_many(Arguments { id: 0, config: 0, ..arguments.clone() }, 1),
            None => self.others += 1,
        }
    }

    fn add_many(&mut self, arguments: Arguments, launches: u64) {
        match self.each.iter().position(|(known, _)| *known == arguments) {
            Some(known) => self.each[known].1 += launches,
            None if self.each.len() < MOST_ARGUMENTS => self.each.push((arguments, launches)),
            None => self.others += launches,
        }
    }

    pub fn merge(&mut self, other: Self) {
        other.each.into_iter().for_each(|(arguments, launches)| self.add_many(arguments, launches));
        self.others += other.others;
    }

    /// `None` where nothing is known.
    pub fn finish(mut self, image: Option<u128>) -> Option<KernelCode> {
        if image.is_none() && self.each.is_empty() && self.others == 0 {
            return None;
        }
        self.each.order_by_key(|(_, launches)| std::cmp::Reverse(*launches));
        let arguments = |(arguments, launches): &(Arguments, u64)| KernelArguments {
            launches: *launches,
            parameters: arguments.parameters.iter().map(|&place| parameter(arguments, place)).collect(),
        };
        Some(KernelCode {
            image: image.map(|hash| format!("{hash:032x}")),
            arguments: self.each.iter().map(arguments).collect(),
            other_arguments: self.others,
            known: None,
            facts: Vec::new(),
        })
    }
}

/// Returns the parameter of `length` bytes at this offset. A file may claim more than it has: then
/// only the existing part is returned.
fn parameter(arguments: &Arguments, (offset, length): (u32, u32)) -> Parameter {
    let end = offset.saturating_add(length);
    let place = offset as usize..(end as usize).min(arguments.bytes.len());
    let bytes = arguments.bytes.get(place).unwrap_or_default();
    let within = |pointer: &&Pointer| (offset..end).contains(&pointer.at);
    let pointer = |pointer: &Pointer| PointerTo {
        at: pointer.at - offset,
        allocation: pointer.allocation,
        allocation_bytes: pointer.allocation_bytes,
        offset: pointer.offset,
    };
    Parameter {
        offset,
        bytes: bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        pointers: arguments.pointers.iter().filter(within).map(pointer).collect(),
    }
}

/// Forgets the image of a kernel if it is none of these, and its code if nothing else is known.
pub(super) fn keep_known(code: &mut Option<KernelCode>, images: &BTreeSet<String>) {
    let Some(known) = code else { return };
    known.image = known.image.take().filter(|image| images.contains(image));
    if known.image.is_none() && known.arguments.is_empty() && known.other_arguments == 0 {
        *code = None;
    }
}

/// The images of these kernels that can be read in the session in `dir`.
pub(super) fn images(dir: &Path, kernels: &[Kernel]) -> Images {
    let wanted = kernels.iter().filter_map(|kernel| kernel.code.as_ref()?.image.clone());
    let wanted: BTreeSet<String> = wanted.gathered();
    let read = |name: String| {
        let hash = u128::from_str_radix(&name, 16).ok()?;
        Some((name, Arc::from(image::read(dir, hash).ok()?)))
    };
    wanted.into_iter().filter_map(read).collect()
}
