//! What a kernel is made of: its instructions counted by kind, and the bytes that one pass through them moves.
//!
//! Counts are *static*: each instruction once, however often it is executed; [`Mix::in_loops`] counts again those that a
//! backward branch repeats. Bodies of called functions are not followed. A predicated instruction counts as if it ran.

use std::collections::HashMap;

use crate::syntax::ScalarType;
use crate::syntax::{Constant, Function, Instruction, Operand, Statement};

/// A kind of instruction. Each instruction is of exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Arithmetic on `.f32`, other than [`Class::Special`].
    Single,
    /// Arithmetic on `.f64`.
    Double,
    /// Arithmetic on `.f16`, `.bf16` and narrower.
    Half,
    /// Arithmetic, logic and shifts of integers.
    Integer,
    /// Approximations of the special function units, and division.
    Special,
    /// Products of matrices.
    Tensor,
    /// Loads from global memory, generic ones included.
    GlobalLoad,
    /// Stores to global memory, generic ones included.
    GlobalStore,
    /// Loads from shared memory.
    SharedLoad,
    /// Stores to shared memory.
    SharedStore,
    /// Loads from and stores to local memory.
    Local,
    /// Loads from constant memory, textures and parameters.
    ReadOnly,
    /// Asynchronous copies.
    AsyncCopy,
    /// Atomic operations and reductions in memory.
    Atomic,
    /// Barriers and fences.
    Barrier,
    /// Shuffles, votes and matches between lanes.
    Warp,
    /// Comparisons and selections.
    Compare,
    /// Branches, calls, returns.
    Control,
    /// Conversions.
    Convert,
    /// Moves, and what is none of the above.
    Other,
}

impl Class {
    /// All of them, in the order of [`Class::name`]s that tables use.
    pub const ALL: [Class; 20] = [
        Class::Single,
        Class::Double,
        Class::Half,
        Class::Integer,
        Class::Special,
        Class::Tensor,
        Class::GlobalLoad,
        Class::GlobalStore,
        Class::SharedLoad,
        Class::SharedStore,
        Class::Local,
        Class::ReadOnly,
        Class::AsyncCopy,
        Class::Atomic,
        Class::Barrier,
        Class::Warp,
        Class::Compare,
        Class::Control,
        Class::Convert,
        Class::Other,
    ];

    /// As columns of tables have it.
    pub fn name(self) -> &'static str {
        match self {
            Class::Single => "single",
            Class::Double => "double",
            Class::Half => "half",
            Class::Integer => "integer",
            Class::Special => "special",
            Class::Tensor => "tensor",
            Class::GlobalLoad => "global_load",
            Class::GlobalStore => "global_store",
            Class::SharedLoad => "shared_load",
            Class::SharedStore => "shared_store",
            Class::Local => "local",
            Class::ReadOnly => "read_only",
            Class::AsyncCopy => "async_copy",
            Class::Atomic => "atomic",
            Class::Barrier => "barrier",
            Class::Warp => "warp",
            Class::Compare => "compare",
            Class::Control => "control",
            Class::Convert => "convert",
            Class::Other => "other",
        }
    }

    /// The kind of an instruction.
    pub fn of(instruction: &Instruction) -> Class {
        let mnemonic = &instruction.mnemonic;
        match mnemonic.opcode() {
            "ld" | "ldu" | "ldmatrix" => load(instruction),
            "st" | "stmatrix" => store(instruction),
            "tex" | "tld4" | "suld" => Class::ReadOnly,
            "sust" => Class::GlobalStore,
            "cp" => Class::AsyncCopy,
            "atom" | "red" => Class::Atomic,
            "bar" | "barrier" | "membar" | "fence" | "mbarrier" | "griddepcontrol" => Class::Barrier,
            "shfl" | "vote" | "match" | "activemask" | "redux" | "elect" => Class::Warp,
            "setp" | "set" | "selp" | "slct" | "testp" => Class::Compare,
            "bra" | "brx" | "call" | "ret" | "exit" | "trap" => Class::Control,
            "cvt" | "cvta" => Class::Convert,
            "wmma" | "mma" | "wgmma" | "tcgen05" => match mnemonic.has("load") || mnemonic.has("store") {
                true => fragment(instruction),
                false => Class::Tensor,
            },
            "sin" | "cos" | "ex2" | "lg2" | "rcp" | "rsqrt" | "sqrt" | "tanh" | "div" | "rem" => {
                Class::Special
            }
            "mov" | "isspacep" | "prefetch" | "prefetchu" | "nanosleep" | "pragma" | "discard" => {
                Class::Other
            }
            _ => arithmetic(instruction),
        }
    }
}

fn load(instruction: &Instruction) -> Class {
    match space(instruction) {
        "shared" => Class::SharedLoad,
        "local" => Class::Local,
        "const" | "param" => Class::ReadOnly,
        _ => Class::GlobalLoad,
    }
}

fn store(instruction: &Instruction) -> Class {
    match space(instruction) {
        "shared" => Class::SharedStore,
        "local" => Class::Local,
        "param" => Class::Other,
        _ => Class::GlobalStore,
    }
}

/// Loads and stores of a matrix's fragments are loads and stores.
fn fragment(instruction: &Instruction) -> Class {
    if instruction.mnemonic.has("load") { load(instruction) } else { store(instruction) }
}

fn arithmetic(instruction: &Instruction) -> Class {
    match instruction.mnemonic.types().next() {
        Some(ScalarType::F32) => Class::Single,
        Some(ScalarType::F64) => Class::Double,
        Some(ty)
            if ty.name().starts_with("bf") || ty.name().starts_with('f') || ty.name().starts_with('e') =>
        {
            Class::Half
        }
        Some(_) => Class::Integer,
        None => Class::Other,
    }
}

/// The state space of a memory instruction, without `::cta`; empty for generic addresses.
pub(crate) fn space(instruction: &Instruction) -> &str {
    const SPACES: [&str; 5] = ["global", "shared", "local", "const", "param"];
    let modifiers = instruction.mnemonic.modifiers();
    let mut plain = modifiers.map(|modifier| modifier.split("::").next().unwrap_or(modifier));
    plain.find(|modifier| SPACES.contains(modifier)).unwrap_or("")
}

/// Bytes that a memory instruction moves for a thread, as far as its mnemonic tells.
fn bytes(instruction: &Instruction) -> u64 {
    let mnemonic = &instruction.mnemonic;
    let element = mnemonic.types().next_back().map_or(0, ScalarType::bytes);
    let parts = instruction.operands.iter().find_map(|operand| match operand {
        Operand::Vector(parts) => Some(parts.len() as u64),
        _ => None,
    });
    match mnemonic.opcode() {
        // Registers of a matrix's fragment hold pairs of narrow elements.
        "wmma" => element.max(4) * parts.unwrap_or(1),
        "cp" => copied(instruction),
        _ => element * parts.unwrap_or(1),
    }
}

/// Bytes of an asynchronous copy: its third operand.
fn copied(instruction: &Instruction) -> u64 {
    match instruction.operands.get(2) {
        Some(Operand::Constant(Constant::Integer(bytes))) => u64::try_from(*bytes).unwrap_or(0),
        _ => 0,
    }
}

/// A kernel's instructions, counted.
///
/// ```
/// let source = "
/// .version 8.0
/// .target sm_80
/// .address_size 64
/// .visible .entry double(.param .u64 to)
/// {
///     .reg .f32 %f<2>;
///     .reg .b64 %rd<2>;
///     ld.param.u64 %rd0, [to];
///     cvta.to.global.u64 %rd1, %rd0;
///     ld.global.f32 %f0, [%rd1];
///     add.f32 %f1, %f0, %f0;
///     st.global.f32 [%rd1], %f1;
///     ret;
/// }
/// ";
/// let module = ptx::parse(source).unwrap();
/// let mix = ptx::Mix::of(module.functions().next().unwrap());
/// assert_eq!(mix.instructions(), 6);
/// assert_eq!(mix.count(ptx::Class::Single), 1);
/// assert_eq!((mix.global_load_bytes, mix.global_store_bytes), (4, 4));
/// assert_eq!(mix.loops, 0);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mix {
    /// Instructions of each kind, in the order of [`Class::ALL`].
    pub counts: [u64; Class::ALL.len()],
    /// Of these, those that stand between the target of a backward branch and the branch.
    pub in_loops: [u64; Class::ALL.len()],
    /// Backward branches.
    pub loops: u64,
    /// Instructions under a predicate, branches included.
    pub predicated: u64,
    /// Bytes that a thread loads from global memory in one pass.
    pub global_load_bytes: u64,
    /// Bytes that a thread stores to global memory in one pass.
    pub global_store_bytes: u64,
    /// Bytes that a thread loads from and stores to shared memory in one pass.
    pub shared_bytes: u64,
    /// Bytes that a thread loads from and stores to local memory in one pass.
    pub local_bytes: u64,
    /// Of the bytes of global memory, those that a loop repeats.
    pub global_bytes_in_loops: u64,
}

impl Mix {
    /// Counts the instructions of a function; none if it is only declared.
    pub fn of(function: &Function) -> Mix {
        let listing = listing(function);
        let looped = looped(&listing);
        let mut mix = Mix { loops: backward_branches(&listing).count() as u64, ..Mix::default() };
        for (line, looped) in listing.iter().zip(looped) {
            if let Line::Instruction(instruction) = line {
                mix.add(instruction, looped);
            }
        }
        mix
    }

    fn add(&mut self, instruction: &Instruction, looped: bool) {
        let class = Class::of(instruction);
        self.counts[class as usize] += 1;
        self.in_loops[class as usize] += u64::from(looped);
        self.predicated += u64::from(instruction.predicate.is_some());
        let bytes = bytes(instruction);
        match class {
            Class::GlobalLoad => self.global_load_bytes += bytes,
            Class::GlobalStore => self.global_store_bytes += bytes,
            Class::SharedLoad | Class::SharedStore => self.shared_bytes += bytes,
            Class::Local => self.local_bytes += bytes,
            Class::AsyncCopy => {
                self.global_load_bytes += bytes;
                self.shared_bytes += bytes;
            }
            _ => {}
        }
        if looped && matches!(class, Class::GlobalLoad | Class::GlobalStore | Class::AsyncCopy) {
            self.global_bytes_in_loops += bytes;
        }
    }

    /// All instructions.
    pub fn instructions(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Instructions of a kind.
    pub fn count(&self, class: Class) -> u64 {
        self.counts[class as usize]
    }

    /// Instructions of a kind that a loop repeats.
    pub fn in_loops(&self, class: Class) -> u64 {
        self.in_loops[class as usize]
    }
}

/// What matters of a body, in order.
enum Line<'a> {
    Label(&'a str),
    Instruction(&'a Instruction),
}

fn listing(function: &Function) -> Vec<Line<'_>> {
    let mut lines = Vec::new();
    let mut open: Vec<std::slice::Iter<'_, Statement>> =
        function.body.iter().map(|body| body.iter()).collect();
    while let Some(top) = open.last_mut() {
        match top.next() {
            None => drop(open.pop()),
            Some(Statement::Block(inner)) => open.push(inner.iter()),
            Some(Statement::Label(name, _)) => lines.push(Line::Label(name)),
            Some(Statement::Instruction(instruction)) => lines.push(Line::Instruction(instruction)),
            Some(_) => {}
        }
    }
    lines
}

/// Index of the target and of the branch, for each branch to a label before it.
fn backward_branches<'a>(lines: &'a [Line<'a>]) -> impl Iterator<Item = (usize, usize)> + 'a {
    let label = |(index, line): (usize, &Line<'a>)| match line {
        Line::Label(name) => Some((*name, index)),
        Line::Instruction(_) => None,
    };
    let labels: HashMap<&str, usize> = lines.iter().enumerate().filter_map(label).collect();
    lines.iter().enumerate().filter_map(move |(index, line)| {
        let Line::Instruction(instruction) = line else { return None };
        let Some(Operand::Name(target)) = instruction.operands.first() else { return None };
        let &start = labels.get(&**target).filter(|_| instruction.mnemonic.opcode() == "bra")?;
        (start < index).then_some((start, index))
    })
}

/// Whether each line is repeated by a backward branch.
fn looped(lines: &[Line<'_>]) -> Vec<bool> {
    // Where regions begin and end; a line is inside as long as more have begun than ended.
    let mut change = vec![0i64; lines.len() + 1];
    for (start, end) in backward_branches(lines) {
        change[start] += 1;
        change[end + 1] -= 1;
    }
    let mut depth = 0;
    let inside = |step: &i64| {
        depth += step;
        depth > 0
    };
    change[..lines.len()].iter().map(inside).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mix(body: &str) -> Mix {
        let source = format!(
            ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry f(.param .u64 p) {{\n{body}\nret;\n}}"
        );
        let module = crate::parse(&source).unwrap_or_else(|error| panic!("{}", error.render("f", &source)));
        Mix::of(module.functions().next().expect("the entry"))
    }

    #[test]
    fn instructions_are_classed() {
        let classes = [
            ("fma.rn.f32 %a, %b, %c, %d;", Class::Single),
            ("add.f64 %a, %b, %c;", Class::Double),
            ("fma.rn.f16x2 %a, %b, %c, %d;", Class::Half),
            ("fma.rn.bf16x2 %a, %b, %c, %d;", Class::Half),
            ("mad.lo.s32 %a, %b, %c, %d;", Class::Integer),
            ("lop3.b32 %a, %b, %c, %d, 0x96;", Class::Integer),
            ("ex2.approx.ftz.f32 %a, %b;", Class::Special),
            ("div.rn.f32 %a, %b, %c;", Class::Special),
            ("ld.global.nc.v4.f32 {%a, %b, %c, %d}, [%p];", Class::GlobalLoad),
            ("ld.u32 %a, [%p];", Class::GlobalLoad),
            ("ld.shared::cta.u32 %a, [%p];", Class::SharedLoad),
            ("ld.param.u64 %a, [p];", Class::ReadOnly),
            ("ld.const.f32 %a, [%p];", Class::ReadOnly),
            ("st.shared.u32 [%p], %a;", Class::SharedStore),
            ("st.local.u32 [%p], %a;", Class::Local),
            ("cp.async.ca.shared.global [%p], [%q], 4;", Class::AsyncCopy),
            ("atom.global.add.u32 %a, [%p], %b;", Class::Atomic),
            ("bar.sync 0;", Class::Barrier),
            ("shfl.sync.bfly.b32 %a|%b, %c, 1, 31, -1;", Class::Warp),
            ("setp.lt.f32 %p, %a, %b;", Class::Compare),
            ("cvt.rn.f32.s32 %a, %b;", Class::Convert),
            ("mov.f32 %a, %b;", Class::Other),
        ];
        for (text, class) in classes {
            let mix = mix(text);
            assert_eq!(mix.count(class), 1, "{text}: {mix:?}");
            assert_eq!(mix.instructions(), 2, "{text}, and ret");
        }
    }

    #[test]
    fn bytes_follow_width_and_type() {
        let mix = mix(
            "ld.global.v4.f32 {%a, %b, %c, %d}, [%p]; ld.global.u8 %e, [%p]; st.global.v2.f64 [%p], {%x, %y};
             ld.shared.f64 %x, [%s]; st.local.b16 [%l], %h; cp.async.cg.shared.global [%s], [%p], 16;
             wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%a, %b, %c, %d, %e, %f, %g, %h}, [%p], %n;",
        );
        assert_eq!(mix.global_load_bytes, 16 + 1 + 16 + 32);
        assert_eq!(mix.global_store_bytes, 16);
        assert_eq!((mix.shared_bytes, mix.local_bytes), (8 + 16, 2));
    }

    #[test]
    fn a_loop_is_what_a_backward_branch_repeats() {
        let mix = mix(
            "add.s32 %a, %a, 1;
             TOP: ld.global.f32 %f, [%p]; add.f32 %g, %g, %f; @%q bra INNER; mul.f32 %g, %g, %g; INNER: @%q bra TOP;
             st.global.f32 [%p], %g; @%q bra END; add.f32 %g, %g, %g; END:",
        );
        assert_eq!(mix.loops, 1);
        assert_eq!((mix.count(Class::Single), mix.in_loops(Class::Single)), (3, 2));
        assert_eq!((mix.count(Class::Integer), mix.in_loops(Class::Integer)), (1, 0));
        assert_eq!(mix.global_bytes_in_loops, 4);
        assert_eq!(mix.predicated, 3);
    }

    #[test]
    fn every_class_has_its_place_and_its_own_name() {
        for (index, class) in Class::ALL.into_iter().enumerate() {
            assert_eq!(class as usize, index);
            assert!(Class::ALL.iter().filter(|other| other.name() == class.name()).count() == 1);
        }
    }

    #[test]
    fn a_declaration_has_no_instructions() {
        let module =
            crate::parse(".version 8.0\n.target sm_80\n.address_size 64\n.extern .func g();").unwrap();
        assert_eq!(Mix::of(module.functions().next().unwrap()), Mix::default());
    }
}
