//! Strips that the user stops: where their threads are, and at what time.

use std::ffi::c_void;

use ptx::ScalarType;
use ptx::instruction::Comparison;
use ptx_compile::{
    Access, Address, Block, Class, Code, Context, Element, End, Frame, Guard, Instruction, LOOP, LaneLoop,
    Mask, Operation, Outcome, Reg, Region, Register, STRIPS, Stop, Target, Window,
};
use ptx_lower::{Meaning, Op};

/// Registers by number: words, then predicates.
const INDEX: Reg = Reg(0);
const DATA: Reg = Reg(1);
const LAPS: Reg = Reg(2);
const ONE: Reg = Reg(3);
const BOUND: Reg = Reg(4);
const OWN_LAPS: Reg = Reg(5);
const HERE: Reg = Reg(6);
const LATER: Reg = Reg(7);
const STAYS: Reg = Reg(8);
const OWN_MASK: Reg = Reg(9);

/// Refuses every access.
unsafe extern "sysv64" fn refuse(_: *mut Context, site: u32, _: u32) -> u32 {
    u32::from(site & LOOP == 0)
}

fn load(guard: Option<Guard>) -> Instruction {
    let address = Address::Word(INDEX);
    let access = Access {
        site: 3,
        key: 0,
        address,
        offset: 0,
        data: vec![DATA],
        element: Element::Word,
        store: false,
        of_lane: false,
    };
    Instruction { guard, operation: Operation::Access(access) }
}

fn compute(meaning: Meaning, d: Reg, sources: &[Reg]) -> Instruction {
    Instruction { guard: None, operation: Operation::Compute { meaning, d, sources: sources.to_vec() } }
}

/// The stops of a warp that executes the blocks, with these words in its threads.
fn stops(blocks: Vec<Block>, words: &mut [[u32; 32]; 6], predicates: &mut [u32; 4]) -> [Stop; STRIPS] {
    let class = |reg: u32| if reg < HERE.0 { (Class::Word, reg) } else { (Class::Predicate, reg - HERE.0) };
    let registers = (0..=OWN_MASK.0).map(class).map(|(class, place)| Register { class, place }).collect();
    let region = Region { registers, blocks, exits: vec![vec![DATA]], ..Region::default() };
    let code = Code::generate(&region, &|_| false).unwrap();
    let mut longs = [0u64; 0];
    let frame = Frame {
        words: words.as_mut_ptr().cast(),
        longs: longs.as_mut_ptr(),
        predicates: predicates.as_mut_ptr(),
        lanes: std::ptr::null(),
    };
    let mut windows = vec![Window::default(); code.groups().len()];
    let bases = vec![[0; ptx_compile::WARPS * STRIPS]; code.early().len()];
    let (mut counters, mut laps) = (vec![0; code.counters()], vec![[0; 8]; code.laps()]);
    let helper = (refuse as ptx_compile::Helper, std::ptr::null_mut::<c_void>());
    // SAFETY: the CPU has the instructions, the frame the registers, and no window allows anything.
    let outcome = unsafe { code.run(&[frame], &mut windows, &bases, &mut counters, &mut laps, helper) };
    let Outcome::Stopped { warp: 0, stops, .. } = outcome else { panic!("nobody stopped: {outcome:?}") };
    stops
}

#[test]
fn a_stop_tells_which_threads_are_where() {
    if !ptx_compile::is_available() {
        return;
    }
    let here = Guard { predicate: HERE, negated: false };
    let skip = Guard { predicate: HERE, negated: true };
    let first = Block {
        end: End::Branch { guard: skip, taken: Target::Block(2), next: Target::Block(1) },
        ..Block::default()
    };
    let masked = Block {
        mask: Some(Mask { here: HERE, later: vec![LATER] }),
        instructions: vec![load(Some(here))],
        end: End::Jump(Target::Block(2)),
        ..Block::default()
    };
    let (at, after) = (0x0ff0_0301u32, 0x100c_00f0u32);
    let stops = stops(vec![first, masked, Block::default()], &mut [[0; 32]; 6], &mut [at, after, 0, 0]);
    for (strip, stop) in stops.iter().enumerate() {
        let [at, after] = [at, after].map(|bits| (bits >> (8 * strip)) as u8);
        assert_eq!((stop.stopped, stop.site), (1, 3));
        assert_eq!((stop.masks[0], stop.masks[1]), (at, after), "strip {strip}");
    }
}

#[test]
fn strips_are_at_the_same_time_after_a_loop_that_threads_leave_one_by_one() {
    if !ptx_compile::is_available() {
        return;
    }
    let add = compute(Meaning::plain(Op::Add, ScalarType::U32), LAPS, &[LAPS, ONE]);
    let relation = Op::Compare { relation: Comparison::Less, logic: None, truth: ScalarType::Pred };
    let compare = compute(Meaning::plain(relation, ScalarType::U32), STAYS, &[LAPS, BOUND]);
    let stays = Guard { predicate: STAYS, negated: false };
    let lane_loop = Block {
        lane_loop: Some(LaneLoop { mask: OWN_MASK, laps: OWN_LAPS, index: 0 }),
        instructions: vec![add, compare],
        end: End::Branch { guard: stays, taken: Target::Block(0), next: Target::Block(1) },
        ..Block::default()
    };
    let access = Block { instructions: vec![load(None)], ..Block::default() };
    let mut words = [[0; 32]; 6];
    words[ONE.0 as usize] = [1; 32];
    words[BOUND.0 as usize] = std::array::from_fn(|lane| 1 + (lane as u32 / 8) * 20_000 + lane as u32 % 3);
    let stops = stops(vec![lane_loop, access], &mut words, &mut [0; 4]);
    for stop in stops {
        assert_eq!((stop.stopped, stop.site, stop.masks[0]), (1, 3, 0xff));
        assert_eq!(stop.time(), stops[0].time());
    }
}
