//! Warps that execute together compute, count and fault as they do one by one.
//!
//! Watched launches have no batches, so random kernels are run both ways and compared.

use std::fmt::Write;

use apex_random::Random;
use cuda_launch::LaunchConfig;
use ptx_exec::{Engine, Fault, LaunchParams, LaunchStats};

use crate::device::{Device, pack};

/// A kernel that is being written. `%r0` is the thread, `%r1` to `%r6` hold what it computes.
struct Kernel {
    random: Random,
    body: String,
    labels: u32,
    /// Depth of branches and loops that not all threads of the block take alike.
    parted: u32,
    /// Depth of loops.
    loops: u32,
}

const BLOCKS: u32 = 5;

/// Words of shared memory: one for each thread of the largest block, and one for all.
const SHARED: u32 = 1024 + 1;

impl Kernel {
    fn write(seed: u64) -> String {
        let mut kernel =
            Kernel { random: Random::new(seed), body: String::new(), labels: 0, parted: 0, loops: 0 };
        (0..10).for_each(|_| kernel.part());
        format!(
            ".version 7.0\n.target sm_80\n.address_size 64\n
             .func (.reg .u32 %result) twice(.reg .u32 %value) {{ add.u32 %result, %value, %value; ret; }}
             .visible .entry k(.param .u64 in, .param .u64 out) {{
                 .reg .pred %p<3>; .reg .b32 %r<10>; .reg .b32 %t<9>; .reg .b32 %n<4>; .reg .b64 %rd<12>;
                 .shared .align 4 .b8 memory[{bytes}];
                 ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out];
                 mov.u32 %t1, %tid.x; mov.u32 %t2, %tid.y; mov.u32 %t3, %ntid.x; mov.u32 %t4, %ntid.y;
                 mad.lo.u32 %r0, %t2, %t3, %t1;
                 mov.u32 %t5, %ctaid.x;
                 mul.lo.u32 %t4, %t4, %t3;
                 mad.lo.u32 %r7, %t5, %t4, %r0;
                 mul.wide.u32 %rd3, %r7, 4; add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;
                 ld.global.u32 %r1, [%rd4];
                 mov.u32 %r2, %r0; mov.u32 %r3, %t5; mov.u32 %r4, 7; mov.u32 %r5, %laneid; shr.u32 %r6, %r0, 5;
                 mov.u32 %t6, memory; mad.lo.u32 %t6, %r0, 4, %t6;
                 {body}
                 xor.b32 %r1, %r1, %r2; mad.lo.u32 %r1, %r1, 31, %r3; mad.lo.u32 %r1, %r1, 31, %r4;
                 mad.lo.u32 %r1, %r1, 31, %r5; mad.lo.u32 %r1, %r1, 31, %r6;
                 st.global.u32 [%rd5], %r1;
                 ret;
             }}",
            bytes = 4 * SHARED,
            body = kernel.body,
        )
    }

    fn add(&mut self, line: std::fmt::Arguments) {
        self.body.write_fmt(line).unwrap();
        self.body.push('\n');
    }

    fn register(&mut self) -> u64 {
        1 + self.random.below(6)
    }

    /// A predicate that threads, warps or blocks may see differently; whether all threads of a
    /// block see the same.
    fn condition(&mut self) -> bool {
        let limit = self.random.below(9);
        let (of, alike) = match self.random.below(4) {
            0 => ("mov.u32 %t7, %ctaid.x;", true),
            1 => ("shr.u32 %t7, %r0, 5;", false),
            2 => ("mov.u32 %t7, %laneid;", false),
            _ => ("and.b32 %t7, %r1, 7;", false),
        };
        let comparison = self.random.choose(&["lt", "ge", "eq", "ne"]);
        self.add(format_args!("{of} setp.{comparison}.u32 %p1, %t7, {limit};"));
        alike
    }

    fn part(&mut self) {
        let (a, b, c) = (self.register(), self.register(), self.register());
        let together = self.parted == 0;
        match self.random.below(13) {
            0 => self.add(format_args!("mad.lo.u32 %r{a}, %r{b}, 13, %r{c};")),
            1 => self.add(format_args!("xor.b32 %r{a}, %r{b}, %r{c}; shr.u32 %r{b}, %r{b}, 1;")),
            2 => {
                self.condition();
                self.add(format_args!("@%p1 add.u32 %r{a}, %r{b}, %r{c};"));
            }
            3 => {
                self.condition();
                let wanted = self.random.choose(&["", "!"]);
                self.add(format_args!("@{wanted}%p1 ld.global.u32 %r{a}, [%rd4];"));
            }
            4 => self.add(format_args!(
                "and.b32 %t7, %r{a}, 127; mul.wide.u32 %rd6, %t7, 4; add.s64 %rd7, %rd1, %rd6;
                 ld.global.u32 %r{b}, [%rd7];"
            )),
            5 | 6 => self.branch(),
            7 => self.repeat(),
            8 if together => {
                let way = self.random.choose(&["bfly", "down"]);
                self.add(format_args!("shfl.sync.{way}.b32 %r{a}, %r{b}, 5, 31, 0xffffffff;"));
            }
            9 if together => self.add(format_args!(
                "bar.sync 0; st.shared.u32 [%t6], %r{a}; bar.sync 0;
                 xor.b32 %t7, %r0, 33; rem.u32 %t7, %t7, %t4; mov.u32 %t8, memory; mad.lo.u32 %t7, %t7, 4, %t8;
                 ld.shared.u32 %r{b}, [%t7];"
            )),
            10 if together => self.add(format_args!(
                "bar.sync 0; red.shared.add.u32 [memory+{last}], %r{a}; membar.cta; bar.sync 0;
                 ld.shared.u32 %r{b}, [memory+{last}];",
                last = 4 * (SHARED - 1),
            )),
            11 => self.add(format_args!("call.uni (%r{a}), twice, (%r{b});")),
            _ => self.add(format_args!("add.u32 %r{a}, %r{a}, %r{b};")),
        }
    }

    /// Adds a branch that only some threads take, or two that some and others take.
    fn branch(&mut self) {
        let alike = self.condition();
        let label = self.labels;
        self.labels += 2;
        self.parted += u32::from(!alike);
        self.add(format_args!("@%p1 bra L{label};"));
        self.part();
        if self.random.below(2) == 0 {
            self.add(format_args!("bra L{}; L{label}:", label + 1));
            self.part();
            self.add(format_args!("L{}:", label + 1));
        } else {
            self.add(format_args!("L{label}:"));
        }
        self.parted -= u32::from(!alike);
    }

    /// A loop of one to four rounds.
    fn repeat(&mut self) {
        if self.loops == 4 {
            return;
        }
        let (label, counter) = (self.labels, self.loops);
        self.labels += 1;
        let (rounds, alike) =
            self.random.choose(&[("3", true), ("%ctaid.x", true), ("%r6", false), ("%laneid", false)]);
        self.add(format_args!(
            "mov.u32 %n{counter}, {rounds}; and.b32 %n{counter}, %n{counter}, 3; L{label}:"
        ));
        (self.loops, self.parted) = (self.loops + 1, self.parted + u32::from(!alike));
        self.part();
        self.part();
        (self.loops, self.parted) = (self.loops - 1, self.parted - u32::from(!alike));
        self.add(format_args!(
            "setp.ne.u32 %p2, %n{counter}, 0; sub.u32 %n{counter}, %n{counter}, 1; @%p2 bra L{label};"
        ));
    }
}

/// Runs a kernel by an engine, or by that of the environment.
fn run(
    source: &str,
    watched: bool,
    block: [u32; 3],
    contents: &[u8],
    engine: Option<Engine>,
) -> Result<(LaunchStats, Vec<u8>), Fault> {
    let device = Device::watched(watched);
    let linked = device.load(source);
    let linked = match engine {
        Some(engine) => linked.with_engine(engine),
        None => linked,
    };
    let kernel = linked.program().kernel("k").unwrap();
    let bytes = (4 * BLOCKS * block[0] * block[1]) as usize;
    let (input, output) = (device.upload(contents), device.upload(&vec![0xee; bytes]));
    let params = pack(&linked, kernel, &[input, output].map(|address| address.to_le_bytes().to_vec()));
    let launch = LaunchParams {
        config: LaunchConfig::new(BLOCKS, block),
        cooperative: false,
        stack: 1024,
        workers: 1,
        params: &params,
    };
    let stats = device.run(&linked, kernel, &launch)?;
    Ok((stats, device.download(output, bytes)))
}

const SHAPES: [[u32; 3]; 7] =
    [[64, 1, 1], [96, 1, 1], [256, 1, 1], [200, 1, 1], [16, 16, 1], [1024, 1, 1], [24, 20, 1]];

#[test]
fn random_kernels_compute_the_same_together_and_alone() {
    let mut random = Random::new(31);
    let contents: Vec<u8> = (0..4 * BLOCKS * 1024).map(|_| random.below(256) as u8).collect();
    let (mut instructions, mut divergent) = (0, 0);
    for seed in 0..250 {
        let source = Kernel::write(seed);
        let block = random.choose(&SHAPES);
        let together = run(&source, false, block, &contents, Some(Engine::Interpreter));
        let alone = run(&source, true, block, &contents, None);
        let (together, alone) = match (together, alone) {
            (Ok(together), Ok(alone)) => (together, alone),
            (one, other) => panic!("seed {seed}, {block:?}: {:?}, {:?}\n{source}", one.err(), other.err()),
        };
        assert_eq!(together.0, alone.0, "seed {seed}, {block:?}\n{source}");
        assert_eq!(together.1, alone.1, "seed {seed}, {block:?}\n{source}");
        // Machine code counts the instructions of threads exactly, those of warps not everywhere.
        let default = run(&source, false, block, &contents, None).expect("it runs without machine code");
        let threads = [together.0, default.0].map(|stats| stats.thread_instructions);
        assert_eq!(threads[0], threads[1], "seed {seed}, {block:?}\n{source}");
        assert_eq!(together.1, default.1, "seed {seed}, {block:?}\n{source}");
        instructions += together.0.warp_instructions;
        divergent += together.0.divergent_branches;
    }
    assert!(instructions > 100_000 && divergent > 1000, "{instructions} instructions, {divergent} divergent");
}

#[test]
fn the_first_thread_to_fault_is_the_same_together_and_alone() {
    // Thread `in[i]` of phase `i` leaves the memory; a barrier follows the second phase.
    let phase = |index: usize| {
        format!(
            "ld.global.u32 %r1, [%rd1+{}]; setp.eq.u32 %p1, %r0, %r1; selp.b64 %rd6, 0, %rd5, %p1;
             st.global.u32 [%rd6], %r0; add.u32 %r2, %r2, %r1;",
            4 * index
        )
    };
    let source = format!(
        ".version 7.0\n.target sm_80\n.address_size 64\n
         .visible .entry k(.param .u64 in, .param .u64 out) {{
             .reg .pred %p1; .reg .b32 %r<4>; .reg .b64 %rd<8>;
             ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out];
             mov.u32 %r0, %tid.x; mov.u32 %r2, 0;
             mul.wide.u32 %rd3, %r0, 4; add.s64 %rd5, %rd2, %rd3;
             {}\n{}\nbar.sync 0;\n{}\nst.global.u32 [%rd5], %r2;\nret;\n}}",
        phase(0),
        phase(1),
        phase(2),
    );
    let mut random = Random::new(77);
    let mut lines = Vec::new();
    for _ in 0..60 {
        // Beyond the block: nobody.
        let threads: Vec<u32> = (0..3).map(|_| random.below(400) as u32).collect();
        let contents: Vec<u8> = threads.iter().flat_map(|thread| thread.to_le_bytes()).collect();
        let outcome = |watched| run(&source, watched, [256, 1, 1], &contents, None);
        match (outcome(false), outcome(true)) {
            (Ok(together), Ok(alone)) => assert_eq!(together, alone),
            (Err(together), Err(alone)) => {
                let what = |fault: &Fault| (fault.kind, fault.block, fault.thread, fault.address, fault.line);
                assert_eq!(what(&together), what(&alone), "{threads:?}");
                lines.push(together.line);
            }
            (one, other) => panic!("{threads:?}: {:?}, {:?}", one.err(), other.err()),
        }
    }
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), 3, "each phase was the first to fault");
}
