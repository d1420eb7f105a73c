//! The instruction mix of a kernel: its instructions by kind, and the bytes that one pass through
//! them moves.
//!
//! Counts are *static*: each instruction once, however often it is executed; [`Mix::in_loops`]
//! counts again those that a backward branch repeats. Bodies of called functions are not followed.
//! A predicated instruction counts as if it ran.

use crate::body::Names;
use crate::flow::{Range, ranges};
use crate::instruction::{Class, Operation, Operations, accesses};
use crate::syntax::tree::Function;

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
    /// Those of them that stand between the target of a backward branch and the branch.
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
    /// The part of the bytes of global memory that a loop repeats.
    pub global_bytes_in_loops: u64,
}

impl Mix {
    /// Counts the instructions of a function; none if it is only declared.
    pub fn of(function: &Function) -> Mix {
        let body = Names::default().body(function);
        let operations = Operations::of(&body);
        let loops = ranges(&body, &operations);
        let mut mix = Mix { loops: loops.len() as u64, ..Mix::default() };
        let looped = repeated(body.lines.len(), &loops);
        for ((line, operation), looped) in body.lines.iter().zip(operations.iter()).zip(looped) {
            let bytes = accesses(operation, &line.operands).first().map_or(0, |access| access.bytes);
            mix.add(operation, bytes, looped);
            mix.predicated += u64::from(line.guard.is_some());
        }
        mix
    }

    fn add(&mut self, operation: &Operation, bytes: u64, looped: bool) {
        let class = operation.class();
        self.counts[class as usize] += 1;
        self.in_loops[class as usize] += u64::from(looped);
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

/// Whether each instruction of a listing is in one of these loops.
fn repeated(length: usize, loops: &[Range]) -> Vec<bool> {
    // Where loops begin and end; an instruction is inside as long as more have begun than ended.
    let mut change = vec![0i64; length + 1];
    for Range { first, last } in loops {
        change[first.index()] += 1;
        change[last.index() + 1] -= 1;
    }
    let mut depth = 0;
    let inside = |step: &i64| {
        depth += step;
        depth > 0
    };
    change[..length].iter().map(inside).collect()
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
