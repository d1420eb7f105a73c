//! Collectives: NCCL, and the one-kernel collectives of frameworks.
//!
//! NCCL compiles one kernel for each collective and type; its name says `Sum`, `RING` and `LL`
//! whichever operation, algorithm and protocol run, so that only the collective and the type are
//! read. All-gather and broadcast move bytes: their kernels have no type.

use super::{Name, joined, known};
use crate::words::words;
use crate::{DataType, Identity, Operation, Owner};

pub(super) fn identify(name: &Name<'_>) -> Option<Identity> {
    nccl(name).or_else(|| of_framework(name))
}

fn nccl(name: &Name<'_>) -> Option<Identity> {
    let function = name.function().name;
    let rest = ["ncclDevKernel_", "ncclSymkDevKernel_", "ncclSymDevKernel_", "ncclKernel_"]
        .iter()
        .find_map(|prefix| function.strip_prefix(prefix))?;
    let mut parts = rest.split('_');
    let collective = words(parts.next()?).join("_");
    // `ncclKernel_Broadcast_RING_LL_Sum_int8_t` moves bytes.
    let moves_bytes = ["broadcast", "all_gather", "send_recv", "generic"].contains(&collective.as_str());
    let data = parts.find_map(DataType::in_code).filter(|_| !moves_bytes);
    let short = joined([Some("nccl".to_owned()), Some(collective), data.map(|data| data.name().to_owned())]);
    Some(known(short, Operation::Collective, data, Owner::Nccl))
}

/// PyTorch's symmetric memory and vLLM's custom all-reduce.
fn of_framework(name: &Name<'_>) -> Option<Identity> {
    let function = name.function();
    let collective = [
        "one_shot_all_reduce",
        "two_shot_all_reduce",
        "cross_device_reduce",
        "multimem_all_gather",
        "multimem_one_shot",
        "multimem_all_reduce",
    ]
    .iter()
    .find(|prefix| function.name.starts_with(**prefix))?;
    let data = function.arguments().into_iter().find_map(DataType::in_cpp);
    let owner = if name.is_in("vllm") { Owner::Vllm } else { Owner::PyTorch };
    Some(known(super::typed(collective, data), Operation::Collective, data, owner))
}
