//! Kernels that are one instruction many times over, and the time that a warp takes for it.

use std::fmt::Write;

use apex_random::Random;
use cuda_launch::LaunchConfig;
use ptx::ScalarType;
use ptx::forms::{Instance, Kind, Selector};
use ptx_exec::{AddressMode, ChannelFormat, Image, LaunchParams, Sampler, Texture};

use crate::device::{Device, pack};

/// Copies of the instruction in the loop.
const COPIES: usize = 64;

/// Threads of the block: eight warps, as many as execute together.
const THREADS: u64 = 256;

/// Values of each kind that a thread loads.
const KINDS: u64 = 6;

/// The number of runs of a kernel; the fastest run counts.
const RUNS: usize = 5;

/// Processor time that a run is to take at least, in nanoseconds, so that launching it does not
/// count.
const ENOUGH: f64 = 60_000.0;

/// The device, with the values that kernels compute on.
pub struct Bench {
    device: Device,
    input: u64,
}

impl Default for Bench {
    fn default() -> Self {
        let device = Device::default();
        let mut random = Random::new(1);
        let mut random = || random.bits();
        // In the order of `kind_of`: integers; numbers from 1/2 to 2 in each format.
        let values = (0..THREADS * KINDS).map(|index| match index / THREADS {
            0 => random(),
            1 => random() & 0x83ff_83ff_83ff_83ff | 0x3800_3800_3800_3800 | random() & 0x0400_0400_0400_0400,
            2 => random() & 0x80ff_80ff_80ff_80ff | 0x3f00_3f00_3f00_3f00,
            3 => random() & 0x80ff_ffff_80ff_ffff | 0x3f00_0000_3f00_0000,
            4 => random() & 0x801f_ffff_ffff_ffff | 0x3fe0_0000_0000_0000,
            _ => random() & 0x8787_8787_8787_8787 | 0x3030_3030_3030_3030,
        });
        let bytes: Vec<u8> = values.flat_map(u64::to_le_bytes).collect();
        let input = device.upload(&bytes);
        Bench { device, input }
    }
}

/// Returns the number of the input's kind of values that a register of this type gets.
fn kind_of(ty: ScalarType) -> u64 {
    match ty {
        ScalarType::F16 | ScalarType::F16x2 => 1,
        ScalarType::Bf16 | ScalarType::Bf16x2 => 2,
        ScalarType::F32 | ScalarType::F32x2 => 3,
        ScalarType::F64 => 4,
        ScalarType::E4m3x2 | ScalarType::E5m2x2 => 5,
        _ => 0,
    }
}

/// A statement while its operands are made.
#[derive(Default)]
struct Statement {
    registers: String,
    /// The instructions that fill the registers that it reads.
    loads: String,
    count: usize,
}

impl Statement {
    /// Declares a register of this type, filled if it is read; returns its name.
    fn register(&mut self, ty: ScalarType, read: bool) -> String {
        self.count += 1;
        let name = format!("%r{}", self.count);
        let bits = 8 * ty.bytes();
        let _ = writeln!(self.registers, ".reg .b{bits} {name};");
        let from = format!("[%input+{}]", kind_of(ty) * THREADS * 8);
        if read {
            let _ = match bits {
                128 => {
                    writeln!(self.loads, "ld.global.b64 %half, {from}; mov.b128 {name}, {{%half, %half}};")
                }
                _ => writeln!(self.loads, "ld.global.b{bits} {name}, {from};"),
            };
        }
        name
    }

    fn predicate(&mut self, read: bool) -> String {
        self.count += 1;
        let name = format!("%p{}", self.count);
        let _ = writeln!(self.registers, ".reg .pred {name};");
        if read {
            let _ = writeln!(
                self.loads,
                "ld.global.b32 %word, [%input]; and.b32 %word, %word, 1; setp.ne.u32 {name}, %word, 0;"
            );
        }
        name
    }

    /// An operand of this kind; none if it is more than registers and numbers.
    fn operand(&mut self, kind: &Kind, read: bool) -> Option<String> {
        Some(match kind {
            Kind::Selected(ty, Selector::Part) if !read => format!("{}.h1", self.register(*ty, true)),
            Kind::Selected(ty, _) => self.register(*ty, true),
            Kind::Value { ty, .. } => self.register(*ty, read),
            Kind::Vector(element, length) => {
                let elements: Option<Vec<_>> = (0..*length).map(|_| self.operand(element, read)).collect();
                format!("{{{}}}", elements?.join(", "))
            }
            Kind::Predicate => self.predicate(read),
            Kind::Pair(first, second, _) => {
                format!("{}|{}", self.operand(first, read)?, self.operand(second, read)?)
            }
            Kind::Immediate(least, most) => 1.clamp(*least, *most).to_string(),
            Kind::Sink => "_".to_owned(),
            _ => return None,
        })
    }
}

/// Bytes of the widest register of an instance.
pub fn width(instance: &Instance) -> u64 {
    fn of(kind: &Kind) -> u64 {
        match kind {
            Kind::Value { ty, .. } | Kind::Selected(ty, _) => ty.bytes(),
            Kind::Vector(element, length) => of(element) * *length as u64,
            Kind::Pair(first, _, _) => of(first),
            _ => 0,
        }
    }
    instance.operands.iter().map(|operand| of(&operand.kind)).max().unwrap_or(0)
}

impl Bench {
    /// The handle of a texture of 256 by 64 numbers, filtered or not.
    pub fn image(&self, linear: bool) -> u64 {
        let (width, height) = (256u32, 64u32);
        let texels: Vec<u8> =
            (0..width * height).flat_map(|index| (index as f32 / 7.0).to_le_bytes()).collect();
        let image = Image {
            address: self.device.upload(&texels),
            extent: [width, height, 1],
            pitch: u64::from(4 * width),
            layer: u64::from(4 * width * height),
            format: ChannelFormat::F32,
            channels: 1,
        };
        let sampler = Sampler {
            address: [AddressMode::Clamp; 3],
            linear,
            normalized: false,
            fractions: false,
            border: [0.0; 4],
            linear_levels: false,
            level_bias: 0.0,
            level_range: [0.0; 2],
        };
        self.device.make_texture(Texture { levels: vec![image], sampler, linear_memory: false })
    }

    /// Nanoseconds that a warp takes for an instruction on registers; none if that is not all that
    /// it is on, or if it is not executed.
    pub fn cost(&self, instance: &Instance) -> Option<f64> {
        let mut statement = Statement::default();
        let operands: Option<Vec<_>> = instance
            .operands
            .iter()
            .map(|operand| statement.operand(&operand.kind, !operand.is_written()))
            .collect();
        let text = format!("{} {};", instance.mnemonic, operands?.join(", "));
        self.nanoseconds("", &format!("{}{}", statement.registers, statement.loads), &text, 1)
    }

    /// Nanoseconds that a warp takes for each of `instructions` instructions in `body`; none if
    /// they are not executed. `before` stands before the kernel, `setup` at its start: there
    /// `%input` is the thread's part of the input, `%thread` its index, and `%word` and `%half` are
    /// free.
    pub fn nanoseconds(&self, before: &str, setup: &str, body: &str, instructions: usize) -> Option<f64> {
        let copies = COPIES.div_ceil(instructions);
        let source = format!(
            ".version 9.0\n.target sm_100a\n.address_size 64\n{before}\n\
             .visible .entry bench(.param .u64 input, .param .u32 rounds) {{\n\
             .reg .b32 %word, %rounds, %thread; .reg .b64 %half, %input, %base; .reg .pred %more;\n\
             mov.u32 %thread, %tid.x; ld.param.u64 %base, [input]; ld.param.u32 %rounds, [rounds];\n\
             mad.wide.u32 %input, %thread, 8, %base;\n{setup}\nLOOP:\n{}\n\
             sub.u32 %rounds, %rounds, 1; setp.ne.u32 %more, %rounds, 0;\n@%more bra LOOP;\nret;\n}}\n",
            format!("{body}\n").repeat(copies)
        );
        let module = ptx::parse(&source).ok()?;
        let program = ptx_exec::Program::compile(&module).ok()?;
        if program.unsupported().next().is_some() {
            return None;
        }
        let linked = self.device.load(&source);
        let kernel = linked.program().kernel("bench")?;
        let seconds = |rounds: u32| {
            let values = [self.input.to_le_bytes().to_vec(), rounds.to_le_bytes().to_vec()];
            let packed = pack(&linked, kernel, &values);
            let params = LaunchParams {
                config: LaunchConfig::new(1, THREADS as u32),
                cooperative: false,
                stack: 1024,
                workers: 1,
                params: &packed,
            };
            let before = processor_nanoseconds();
            self.device.run(&linked, kernel, &params).unwrap_or_else(|fault| panic!("{body}: {fault}"));
            processor_nanoseconds() - before
        };
        let mut rounds = 4;
        while seconds(rounds) < ENOUGH && rounds < 1 << 20 {
            rounds *= 2;
        }
        let fastest = (0..RUNS).map(|_| seconds(rounds)).fold(f64::INFINITY, f64::min);
        let warps = THREADS as f64 / 32.0;
        Some(fastest / (f64::from(rounds) * warps * (copies * instructions) as f64))
    }
}

/// Nanoseconds that the processors have worked for this process.
fn processor_nanoseconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writing.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    assert_eq!(result, 0, "the clock of the process");
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}
