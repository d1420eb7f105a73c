//! Two launches as one: the kernel that does for each thread what both kernels did.
//!
//! [`Fused::of`] writes the code of both kernels one after the other into a new kernel (`joined`),
//! and has the proof of the crate `reshape` judge that kernel: no thread meets what another one
//! stores, neither in one of the kernels nor between them. Then it does not matter that a thread
//! begins with the second kernel's code before others have ended the first one's. What depends on
//! the launch, [`Fused::judge`] decides about one launch.
//!
//! # Invariants
//! 1. *Unknown means no*, with the instruction and its line.
//! 2. *Every result has the same bits.* A multiplication without a rounding modifier may be
//!    contracted with an addition; `contraction` refuses kernels in which that happens, and forbids
//!    it at the seam.
//! 3. Nothing that the first kernel stores is left out; what the second one reads of it comes from
//!    a register (`forward`).

mod contraction;
mod forward;
mod joined;

use apex_reshape::{Launch, Proof};
use cuda_launch::LaunchConfig;
use launch_condition::Condition;
use ptx::syntax::tree::{Function, Item, Name, Statement};
use ptx::syntax::{FunctionKind, Module, StateSpace};
use std::fmt;

/// The name of the new kernel.
pub const NAME: &str = "apex_fused";
/// Most bytes of a kernel's parameters.
const MOST_PARAMETER_BYTES: u64 = 4096;

/// A kernel of a module.
#[derive(Clone, Copy)]
pub struct Kernel<'m> {
    /// The module.
    pub module: &'m Module,
    /// The kernel's name in it.
    pub name: &'m str,
}

/// Which of two kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// The one that is launched first.
    First,
    /// The one that is launched next.
    Second,
}

/// Parameters of both kernels that have one value in the launches: the places of the parameters,
/// from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Same {
    /// In the first kernel.
    pub first: usize,
    /// In the second kernel.
    pub second: usize,
}

/// A kernel that does what two did.
#[derive(Clone, Debug)]
pub struct Fused {
    /// Its module; the kernel is called [`NAME`].
    pub module: Module,
    /// Where each of its parameters comes from: the kernel, and the place in that one's.
    pub parameters: Vec<(Part, usize)>,
    proof: Proof,
}

/// The reason why two kernels are not joined.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// The module has no code of the kernel.
    NoCode(Part),
    /// A construct that is not moved into another module: its text and PTX line.
    Construct(Part, String, u32),
    /// The modules are for different targets or address sizes.
    Targets,
    /// The parameters of both do not fit into those of one kernel, or those that are said to have
    /// one value do not have one type.
    Parameters,
    /// An addition may be contracted with a multiplication within the kernel: its PTX line. The
    /// compiler decides whether it is, and might decide otherwise in another kernel.
    Contraction(Part, u32),
    /// No proof about a kernel by itself.
    Alone(Part, apex_reshape::Refusal),
    /// No proof about both together.
    Together(apex_reshape::Refusal),
    /// The joined kernel is no correct PTX: what is wrong with it.
    Malformed(String),
}

impl fmt::Display for Part {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Part::First => "the first kernel",
            Part::Second => "the second kernel",
        })
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NoCode(part) => write!(out, "there is no code of {part}"),
            Refusal::Construct(part, text, line) => {
                write!(out, "{part} cannot be moved into another module: `{text}` (PTX line {line})")
            }
            Refusal::Targets => write!(out, "the kernels are compiled for different targets"),
            Refusal::Parameters => write!(out, "the parameters of both kernels do not fit together"),
            Refusal::Contraction(part, line) => write!(
                out,
                "{part} leaves it to the compiler whether a product and a sum are rounded once (PTX line {line})"
            ),
            Refusal::Alone(part, refusal) => write!(out, "{part}: {refusal}"),
            Refusal::Together(refusal) => write!(out, "a thread may meet what another one stores: {refusal}"),
            Refusal::Malformed(what) => write!(out, "the joined kernel is no correct PTX: {what}"),
        }
    }
}

impl std::error::Error for Refusal {}

impl Fused {
    /// Joins two kernels, of which some parameters have one value.
    ///
    /// # Errors
    /// If the joined kernel might compute something else in every launch, or cannot be written.
    pub fn of(first: Kernel<'_>, second: Kernel<'_>, same: &[Same]) -> Result<Fused, Refusal> {
        Fused::proven(first, second, same, apex_reshape::Rules::ALL)
    }

    /// The same without some conditions of the proof: the result may be wrong.
    #[doc(hidden)]
    pub fn proven(
        first: Kernel<'_>,
        second: Kernel<'_>,
        same: &[Same],
        rules: apex_reshape::Rules,
    ) -> Result<Fused, Refusal> {
        for (part, kernel) in [(Part::First, first), (Part::Second, second)] {
            let function = kernel.function().ok_or(Refusal::NoCode(part))?;
            check(part, kernel.module, function)?;
            Proof::with_rules(kernel.module, kernel.name, rules)
                .map_err(|refusal| Refusal::Alone(part, refusal))?;
            contraction::check(function).map_err(|line| Refusal::Contraction(part, line))?;
        }
        let (module, parameters) = joined::module(first, second, same)?;
        // (What a user gets is the text.)
        let module = ptx::parse(&module.to_string()).map_err(|wrong| Refusal::Malformed(wrong.message))?;
        if let Some(wrong) = ptx::verify(&module).into_iter().next() {
            return Err(Refusal::Malformed(wrong.message));
        }
        let proof = Proof::with_rules(&module, NAME, rules).map_err(Refusal::Together)?;
        // (The proof is about the code that loads; what stays in registers are the same values.)
        let is_sound = |module: &Module| ptx::verify(module).is_empty();
        let module = forward::forwarded(&module).filter(is_sound).unwrap_or(module);
        Ok(Fused { module, parameters, proof })
    }

    /// What must hold of a launch of the joined kernel, in the blocks that both launches have, as
    /// data for who cannot read PTX.
    ///
    /// # Errors
    /// If a number in it is too large for one, or the pointer of an access is not known.
    pub fn condition(&self) -> Result<Condition, apex_reshape::Refusal> {
        self.proof.condition()
    }

    /// The module with another name of the kernel.
    #[must_use]
    pub fn named(&self, name: &str) -> Module {
        let mut module = self.module.clone();
        for item in &mut module.items {
            if let Item::Function(function) = item {
                function.name = Name::from(name);
            }
        }
        module
    }

    /// Decides whether one launch may stand for both: `parameters` are those of the joined kernel.
    ///
    /// # Errors
    /// If memory that is written may overlap other memory, or numbers may wrap, in this launch.
    pub fn judge(
        &self,
        config: LaunchConfig,
        parameters: &[u8],
        allocation: &dyn Fn(u64) -> Option<(u64, u64)>,
    ) -> Result<(), apex_reshape::Refusal> {
        let launch = Launch { config, cooperative: false, parameters, allocation };
        self.proof.judge(&launch, config.block).map(|_| ())
    }
}

/// What a joined kernel becomes when loads of its second part take values from registers, if one
/// can: for tests.
#[doc(hidden)]
pub fn forwarded(joined: &Module) -> Option<Module> {
    forward::forwarded(joined)
}

impl<'m> Kernel<'m> {
    /// Its code.
    pub fn function(&self) -> Option<&'m Function> {
        self.module.functions().find(|function| {
            &*function.name == self.name && function.kind == FunctionKind::Entry && function.body.is_some()
        })
    }
}

/// Refuses what cannot be moved into another module: names of the module, declarations that are not
/// of a thread, and names that the joined kernel has for its own parameters and labels.
fn check(part: Part, module: &Module, function: &Function) -> Result<(), Refusal> {
    let mut found = None;
    let mut refuse = |text: String, line: u32| {
        found.get_or_insert(Refusal::Construct(part, text, line));
    };
    let is_of_module = |name: &str| {
        module.variables().any(|known| &*known.name == name)
            || module.functions().any(|known| &*known.name == name)
    };
    function.visit(&mut |statement| match statement {
        Statement::Instruction(instruction) => instruction.names(&mut |name| {
            if is_of_module(name) {
                refuse(name.to_owned(), instruction.position.line);
            }
        }),
        Statement::Variable(variable) => {
            let own = [StateSpace::Reg, StateSpace::Local].contains(&variable.space);
            if !own || is_of_module(&variable.name) || joined::is_reserved(&variable.name) {
                refuse(variable.name.to_string(), variable.position.line);
            }
        }
        Statement::Label(name, position) if joined::is_reserved(name) => {
            refuse(name.to_string(), position.line);
        }
        Statement::Prototype(prototype) => refuse(prototype.name.to_string(), 0),
        Statement::CallTargets(name, _) => refuse(name.to_string(), 0),
        _ => {}
    });
    found.map_or(Ok(()), Err)
}
