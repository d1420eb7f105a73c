//! One event of a lane, and blocks of events as bytes.
//!
//! Events of a lane follow each other: none begins before the one before it has ended. A block
//! holds up to [`IN_BLOCK`] of them, each as differences to the one before.

use apex_profile::{IdleCause, Use};

use crate::leb128::{Taker, put, put_signed};

/// Events of a block.
pub const IN_BLOCK: usize = 256;
/// The end of time: later moments are cut to it.
pub const END: u64 = 1 << 60;

/// The use of an event's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct What(u8);

impl What {
    /// The number of uses.
    pub const COUNT: usize = 5 + IdleCause::ALL.len();
    /// A range of the program.
    pub const RANGE: Self = Self(4);
    const NAMES: [&str; Self::COUNT] = [
        "kernels",
        "collectives",
        "copies",
        "unknown",
        "range",
        "launching",
        "allocating",
        "transferring",
        "synchronising",
        "loading",
        "capturing",
        "other_calls",
        "host_code",
        "unrecorded",
    ];

    /// Returns the use of a device.
    pub fn of(on: Use) -> Self {
        match on {
            Use::Kernels => Self(0),
            Use::Collectives => Self(1),
            Use::Copies => Self(2),
            Use::Unknown => Self(3),
            Use::Idle(cause) => Self(5 + cause as u8),
        }
    }

    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT as u8).map(Self)
    }

    /// As answers name it.
    pub fn name(self) -> &'static str {
        Self::NAMES[self.place()]
    }

    /// Its place among all.
    pub fn place(self) -> usize {
        usize::from(self.0)
    }

    pub fn is_collective(self) -> bool {
        self.0 == 1
    }

    fn from_raw(raw: u8) -> Option<Self> {
        (usize::from(raw) < Self::COUNT).then_some(Self(raw))
    }
}

/// The basis of an event's duration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Basis {
    /// A clock.
    #[default]
    Measured,
    /// The model of the device: what other launches of the kernel take, the bytes of a copy, what
    /// the host saw.
    Modelled,
    /// Nothing.
    Unknown,
}

impl Basis {
    const ALL: [Self; 3] = [Self::Measured, Self::Modelled, Self::Unknown];

    /// As answers name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Modelled => "modelled",
            Self::Unknown => "unknown",
        }
    }
}

/// An event. Times are nanoseconds since the session's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    pub start: u64,
    pub end: u64,
    pub what: What,
    pub basis: Basis,
    /// The launched or called function: index among the names, from 1 on; 0 if it has none.
    pub name: u32,
    /// The start of the call that queued it.
    pub call_start: u64,
    /// The lane of the thread that made that call, plus 1; 0 if it has none.
    pub call_lane: u32,
    /// Bytes that it copies, sets or allocates.
    pub bytes: u64,
    /// Place among the ranges, from 1 on; 0 if it is in none.
    pub range: u32,
    /// Its end may be off by so much: [`off_code`].
    pub off: u8,
}

impl Event {
    /// An event with nothing but its time.
    pub fn new(start: u64, end: u64, what: What) -> Self {
        Self {
            start,
            end,
            what,
            basis: Basis::Measured,
            name: 0,
            call_start: start,
            call_lane: 0,
            bytes: 0,
            range: 0,
            off: 0,
        }
    }

    /// Returns the duration.
    pub fn duration(&self) -> u64 {
        self.end - self.start
    }
}

/// A duration as one byte: a quarter of an octave, rounded up.
pub fn off_code(ns: f64) -> u8 {
    if ns < 1.0 { 0 } else { (1.0 + (4.0 * ns.log2()).ceil()).min(255.0) as u8 }
}

/// The duration of such a byte.
pub fn off_ns(code: u8) -> u64 {
    if code == 0 { 0 } else { (f64::from(code - 1) / 4.0).exp2().ceil() as u64 }
}

const HAS_CALL: u8 = 1;
const HAS_LANE: u8 = 2;
const HAS_BYTES: u8 = 4;
const HAS_RANGE: u8 = 8;
const HAS_OFF: u8 = 16;

/// Events as bytes. `collectives` of the lane come before them.
pub fn encode(events: &[Event], collectives: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(16 * events.len());
    let base = events.first().map_or(0, |event| event.start);
    [events.len() as u64, base, collectives].into_iter().for_each(|number| put(&mut out, number));
    let mut before = Event::new(base, base, What(0));
    for event in events {
        let fields = [
            (HAS_CALL, event.call_start != event.start),
            (HAS_LANE, event.call_lane != before.call_lane),
            (HAS_BYTES, event.bytes != 0),
            (HAS_RANGE, event.range != before.range),
            (HAS_OFF, event.off != 0),
        ];
        let mask = fields.iter().filter(|(_, has)| *has).fold(0, |mask, (bit, _)| mask | bit);
        out.push(event.what.0 | (event.basis as u8) << 4 | u8::from(mask != 0) << 6);
        if mask != 0 {
            out.push(mask);
        }
        put(&mut out, event.start - before.end);
        put(&mut out, event.duration());
        put(&mut out, event.name.into());
        if mask & HAS_CALL != 0 {
            put_signed(&mut out, event.call_start.wrapping_sub(before.call_start).cast_signed());
        }
        if mask & HAS_LANE != 0 {
            put(&mut out, event.call_lane.into());
        }
        if mask & HAS_BYTES != 0 {
            put(&mut out, event.bytes);
        }
        if mask & HAS_RANGE != 0 {
            put(&mut out, event.range.into());
        }
        if mask & HAS_OFF != 0 {
            out.push(event.off);
        }
        before = *event;
    }
    out
}

/// The events of a block, and how many collectives of the lane come before them; `None` if the
/// bytes are no block.
pub fn decode(bytes: &[u8]) -> Option<(Vec<Event>, u64)> {
    let mut taker = Taker(bytes);
    let count = usize::try_from(taker.number()?).ok().filter(|&count| count <= IN_BLOCK)?;
    let (base, collectives) = (taker.number().filter(|&base| base <= END)?, taker.number()?);
    let mut before = Event::new(base, base, What(0));
    let mut events = Vec::with_capacity(count);
    for _ in 0..count {
        let event = decode_one(&mut taker, &before)?;
        events.push(event);
        before = event;
    }
    Some((events, collectives))
}

fn decode_one(taker: &mut Taker<'_>, before: &Event) -> Option<Event> {
    let head = taker.byte()?;
    let mask = if head & 0x40 != 0 { taker.byte()? } else { 0 };
    let start = before.end.checked_add(taker.number()?)?;
    let end = start.checked_add(taker.number()?).filter(|&end| end <= END)?;
    let mut event = Event::new(start, end, What::from_raw(head & 0xf)?);
    event.basis = *Basis::ALL.get(usize::from(head >> 4 & 3))?;
    event.name = taker.small()?;
    (event.call_lane, event.range) = (before.call_lane, before.range);
    if mask & HAS_CALL != 0 {
        event.call_start = before.call_start.wrapping_add(taker.signed()?.cast_unsigned());
    }
    if mask & HAS_LANE != 0 {
        event.call_lane = taker.small()?;
    }
    if mask & HAS_BYTES != 0 {
        event.bytes = taker.number()?;
    }
    if mask & HAS_RANGE != 0 {
        event.range = taker.small()?;
    }
    if mask & HAS_OFF != 0 {
        event.off = taker.byte()?;
    }
    Some(event)
}
