//! The memory accesses of steps that are not one access for each lane: matrices and bulk copies.

use apex_counts::Direction;

use crate::code::Op;
use crate::launch::MAX_SHARED;
use crate::matrix::MatrixStep;
use crate::observe::probe::Moment;
use crate::observe::survey::{self, Spot};
use crate::operands::{AccessArgs, AccessKind};
use crate::registers::lanes::{Lanes, WARP, each_lane};

/// One request to memory.
pub(super) struct Request {
    /// Lanes that take part.
    pub(super) mask: u32,
    /// The spot of each access.
    pub(super) spots: [Spot; WARP],
    /// Bytes of a lane.
    pub(super) bytes: u32,
    pub(super) direction: Direction,
}

impl Request {
    /// Shows the moment as its lanes see it.
    pub(super) fn view(&self, moment: &Moment, look: impl FnOnce(&Moment)) {
        let lanes = Lanes { mask: self.mask, ..*moment.lanes };
        look(&Moment { lanes: &lanes, ..*moment });
    }
}

/// The requests of a step, in order; none if it accesses memory in the plain way, or not at all.
pub(super) fn requests(moment: &Moment) -> Vec<Request> {
    match &moment.step.op {
        Op::Matrix(step) => of_matrix(moment, step),
        Op::Access { args, .. } if args.kind == AccessKind::Bulk => of_bulk_copy(moment, args),
        Op::Access { args, .. } if args.kind == AccessKind::Tensor => of_tensor_copy(moment, args),
        _ => Vec::new(),
    }
}

fn of_matrix(moment: &Moment, step: &MatrixStep) -> Vec<Request> {
    let Some(args) = &step.address else { return Vec::new() };
    let direction = if step.stores() { Direction::Store } else { Direction::Load };
    // SAFETY: the frame has the registers of the step.
    let spans = unsafe { step.spans(moment.lanes) };
    let request = |span: crate::matrix::Span| Request {
        mask: span.mask,
        spots: survey::spots_at(moment, args, &span.offsets),
        bytes: span.bytes,
        direction,
    };
    spans.into_iter().map(request).collect()
}

/// Each lane's copy by itself: first what it reads, then what it writes.
fn of_bulk_copy(moment: &Moment, args: &AccessArgs) -> Vec<Request> {
    // SAFETY: the frame has the registers of the step; of a bulk copy the size is a word.
    let sizes = unsafe { moment.lanes.source::<u32>(args.operands[0]) };
    // Zeros have no source.
    let from = args.data[0].is_some().then(|| survey::generic_spots(moment, args.data[0]));
    let to = survey::spots(moment, args);
    // An operation on what lies there has a number, a copy has none.
    let stores = if args.copied == 0 { Direction::Store } else { Direction::Atomic };
    let mut requests = Vec::new();
    each_lane(moment.lanes.mask, |lane| {
        let (mask, bytes) = (1 << lane, sizes[lane]);
        requests.extend(from.map(|spots| Request { mask, spots, bytes, direction: Direction::Load }));
        requests.push(Request { mask, spots: to, bytes, direction: stores });
    });
    requests
}

/// Each lane's copy by itself: what it reads or writes of shared memory.
fn of_tensor_copy(moment: &Moment, args: &AccessArgs) -> Vec<Request> {
    // SAFETY: the frame has the registers of the step; of a copy the size is a word.
    let sizes = unsafe { moment.lanes.source::<u32>(args.operands[0]) };
    // Only a copy into shared memory has an mbarrier.
    let direction = if args.data[1].is_some() { Direction::Store } else { Direction::Load };
    let (spots, mut requests) = (survey::spots(moment, args), Vec::new());
    each_lane(moment.lanes.mask, |lane| {
        // A map that is none has any size; the copy is then refused.
        let bytes = sizes[lane].min(MAX_SHARED);
        requests.push(Request { mask: 1 << lane, spots, bytes, direction });
    });
    requests
}
