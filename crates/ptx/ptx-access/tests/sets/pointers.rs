//! Random kernels that hide where their addresses come from: pointers are selected, taken apart,
//! put together, kept in memory, exchanged between lanes and given to functions, and so are
//! distances between buffers.

use apex_random::Random;

use crate::case::{Case, Layout, Shot, Truth, kernel};
use crate::memory::{Arena, BUFFER, BUFFERS};

/// Where pointers begin in their buffers; they never move as far.
const MIDDLE: usize = 8192;
/// Pointers in the table at the beginning of `c`.
const TABLE: usize = 8;
/// Kernels, if `ACCESS_KERNELS` does not say otherwise.
const COUNT: usize = 800;
/// The place in `c` through which pointers are passed.
const PASSED: usize = 512;

const SETUP: &str = "
.local .align 8 .b8 depot[64]
.shared .align 8 .b8 tile[64]
mov.u32 %i, %tid.x
and.b32 %r1, %i, 1
setp.ne.u32 %p1, %r1, 0
setp.eq.u32 %p2, %n, %n
setp.ne.u32 %p3, %n, %n
mul.wide.u32 %t, %i, 4
add.s64 %q10, %a, 8192
add.s64 %q11, %b, 8192
add.s64 %q12, %c, 8192
";

const FUNCTION: &str = ".func (.param .b64 r) f(.param .b64 x) { .reg .b64 %q<3>; ld.param.b64 %q1, [x]; \
                        st.param.b64 [r], %q1; ret; } \
                        .func g(.param .b64 x) { .reg .b64 %q<3>; ld.param.b64 %q1, [x]; st.u32 [%q1], 5; ret; }";

/// A kernel in the making.
struct Kernel<'r> {
    random: &'r mut Random,
    text: String,
    /// Registers with pointers.
    pool: Vec<u32>,
    next: u32,
    labels: u32,
}

impl Kernel<'_> {
    fn say(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn register(&mut self) -> u32 {
        self.next += 1;
        self.next - 1
    }

    fn pointer(&mut self) -> u32 {
        self.random.choose(&self.pool)
    }

    /// A register with the value of another one, which it got in a devious way.
    fn laundered(&mut self, from: u32) -> u32 {
        let to = self.register();
        let way = match self.random.below(18) {
            0 => "xor.b64 %qT, %qF, 23130; xor.b64 %qT, %qT, 23130".to_owned(),
            1 => "and.b64 %qT, %qF, -1; or.b64 %qT, %qT, 0".to_owned(),
            2 => "mul.lo.s64 %qT, %qF, 1".to_owned(),
            3 => "mad.lo.s64 %qT, %qF, 1, 0".to_owned(),
            4 => "shl.b64 %qT, %qF, 1; shr.s64 %qT, %qT, 1".to_owned(),
            5 => "mov.b64 {%r2, %r3}, %qF; mov.b64 %qT, {%r2, %r3}".to_owned(),
            6 => "st.local.u64 [depot], %qF; ld.local.u64 %qT, [depot]".to_owned(),
            7 => format!("st.global.u64 [%c+{PASSED}], %qF; ld.global.u64 %qT, [%c+{PASSED}]"),
            8 => format!("{TAKE_APART}; st.shared.u32 [tile], %r2; st.shared.u32 [tile+4], %r3; \
                          ld.shared.u32 %r4, [tile]; ld.shared.u32 %r5, [tile+4]; mov.b64 %qT, {{%r4, %r5}}"),
            9 => format!("{TAKE_APART}; st.local.u32 [depot+8], %r2; st.local.u32 [depot+12], %r3; \
                          ld.local.u32 %r4, [depot+8]; ld.local.u32 %r5, [depot+12]; cvt.u64.u32 %qT, %r4; \
                          cvt.u64.u32 %q9, %r5; shl.b64 %q9, %q9, 32; or.b64 %qT, %qT, %q9"),
            10 => "mov.b64 {%r2, %r3}, %qF; shfl.sync.idx.b32 %r4, %r2, 0, 31, -1; \
                   shfl.sync.idx.b32 %r5, %r3, 0, 31, -1; mov.b64 %qT, {%r4, %r5}"
                .to_owned(),
            11 => "{ .param .b64 p; .param .b64 s; st.param.b64 [p], %qF; call.uni (s), f, (p); ld.param.b64 %qT, [s]; }"
                .to_owned(),
            12 => "selp.b64 %qT, 0, %qF, %p3".to_owned(),
            13 => "mov.u64 %qT, 0; @%p2 mov.u64 %qT, %qF".to_owned(),
            14 => {
                self.labels += 1;
                let label = self.labels;
                format!(
                    "mov.u64 %qT, 0; mov.u64 %q8, 0; mov.u32 %r2, 0; $L{label}:; mov.u64 %qT, %q8; mov.u64 %q8, %qF; \
                     add.u32 %r2, %r2, 1; setp.lt.u32 %p4, %r2, 2; @%p4 bra $L{label}"
                )
            }
            15 => format!("{TAKE_APART}; add.cc.u32 %r2, %r2, 8; addc.u32 %r3, %r3, 0; mov.b64 %qT, {{%r2, %r3}}"),
            _ => "mov.u64 %qT, %qF".to_owned(),
        };
        let way = way.replace("%qT", &format!("%q{to}")).replace("%qF", &format!("%q{from}"));
        self.say(&way);
        to
    }

    /// A new pointer from others.
    fn derive(&mut self) {
        let (first, second) = (self.pointer(), self.pointer());
        let made = match self.random.below(9) {
            0 => {
                let to = self.register();
                let offset = 4 * self.random.below(32);
                self.say(&format!("add.s64 %q{to}, %q{first}, {offset}"));
                to
            }
            1 => {
                let to = self.register();
                self.say(&format!("add.s64 %q{to}, %q{first}, %t"));
                to
            }
            2 => {
                let to = self.register();
                self.say(&format!("selp.b64 %q{to}, %q{first}, %q{second}, %p1"));
                to
            }
            3 => {
                let to = self.register();
                self.say(&format!("max.u64 %q{to}, %q{first}, %q{second}"));
                to
            }
            4 => {
                let (to, entry) = (self.register(), 8 * self.random.below(TABLE as u64));
                self.say(&format!("ld.global.u64 %q{to}, [%c+{entry}]"));
                to
            }
            5 => self.laundered(first),
            6 => {
                let (distance, to) = (self.register(), self.register());
                self.say(&format!("sub.s64 %q{distance}, %q{second}, %q{first}"));
                let distance = self.laundered(distance);
                self.say(&format!("sub.s64 %q{to}, %q{second}, %q{distance}"));
                to
            }
            _ => {
                let (distance, to) = (self.register(), self.register());
                self.say(&format!("sub.s64 %q{distance}, %q{first}, %q{second}"));
                let distance = self.laundered(distance);
                self.say(&format!("add.s64 %q{to}, %q{second}, %q{distance}"));
                to
            }
        };
        self.pool.push(made);
    }

    fn access(&mut self) {
        let at = self.pointer();
        let line = match self.random.below(11) {
            0 => "ld.global.u32 %r20, [%qA]; add.u32 %r21, %r21, %r20",
            1 => "ld.u32 %r20, [%qA+4]; add.u32 %r21, %r21, %r20",
            2 => "st.global.u32 [%qA], %r21",
            3 => "st.u32 [%qA+8], %i",
            4 => "atom.global.add.u32 %r20, [%qA], 3",
            5 => "red.global.max.u32 [%qA+4], %i",
            6 => {
                "cp.async.ca.shared.global [tile+32], [%qA], 4; cp.async.wait_all; ld.shared.u32 %r20, [tile+32]; \
                  add.u32 %r21, %r21, %r20"
            }
            7 => "@%p1 st.global.u32 [%qA+12], 7",
            8 => "{ .param .b64 p; st.param.b64 [p], %qA; call.uni g, (p); }",
            9 => "ld.global.nc.u32 %r20, [%qA]; add.u32 %r21, %r21, %r20",
            _ => {
                "cvta.local.u64 %q8, depot; st.u32 [%q8+16], %i; ld.u32 %r20, [%q8+16]; st.global.u32 [%qA+16], %r20"
            }
        };
        self.say(&line.replace("%qA", &format!("%q{at}")));
    }
}

const TAKE_APART: &str = "cvt.u32.u64 %r2, %qF; shr.u64 %q9, %qF, 32; cvt.u32.u64 %r3, %q9";

/// An index that wraps around in 32 bits in all of its threads: its range must not be believed.
fn wrapping() -> Case {
    let body = "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.s32 %i, %r1, %r2, %r3; \
                add.u32 %r4, %i, %n; add.u32 %r4, %r4, 64; mul.wide.u32 %t, %r4, 4; add.s64 %q10, %a, %t; \
                st.global.u32 [%q10], %i";
    let shot = Shot { n: u32::MAX - 63, ..Shot::line(1, 64, 0) };
    Case::new("wrapping", body, vec![Shot { n: 0, ..shot.clone() }, shot], Truth::Depends)
}

/// A kernel of one way to pass a distance on, so that each way occurs alone.
fn case(number: usize, random: &mut Random) -> Case {
    let mut made = Kernel { random, text: SETUP.to_owned(), pool: vec![10, 11, 12], next: 13, labels: 0 };
    made.say("mov.u32 %r21, 1");
    for _ in 0..1 + made.random.below(4) {
        made.derive();
    }
    for _ in 0..1 + made.random.below(3) {
        made.access();
    }
    made.say("st.global.u32 [%a], %r21");
    let source = kernel(&made.text).replacen(".address_size 64", &format!(".address_size 64\n{FUNCTION}"), 1);
    let shot = Shot { layout: Layout::Separate, ..Shot::line(1, 32, 100) };
    Case { name: format!("pointers {number}"), source, shots: vec![shot], truth: Truth::Depends }
}

pub fn cases(seed: u64) -> Vec<Case> {
    let mut random = Random::named(seed, "pointers");
    let given = std::env::var("ACCESS_KERNELS").ok();
    let count = given.map_or(COUNT, |text| text.parse().expect("a number of kernels"));
    let mut cases = vec![wrapping()];
    cases.extend((0..count).map(|number| case(number, &mut random)));
    cases
}

/// Contents of the buffers: numbers, and pointers at the beginning of `c`.
pub fn contents(arena: &Arena, seed: u64) -> Vec<u8> {
    let mut random = Random::named(seed, "contents");
    let mut bytes = random.bytes(BUFFERS * BUFFER);
    for entry in 0..TABLE {
        let address = arena.buffer(entry % 2) + (MIDDLE + 64 * entry) as u64;
        let place = 2 * BUFFER + 8 * entry;
        bytes[place..place + 8].copy_from_slice(&address.to_le_bytes());
    }
    bytes
}
