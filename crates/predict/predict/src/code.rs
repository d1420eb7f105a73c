//! A kernel's PTX: its instruction mix, the work of a launch, and the attributes that it
//! determines.

use crate::Case;
use cuda_launch::{FunctionAttributes, LaunchConfig};
use ptx::{Function, Module, ScalarType, StateSpace, Statement, Variable};
use ptx_estimate::{Argument, BUDGET, Estimator, Work};
use std::sync::{Arc, OnceLock};

/// An argument of the kernel, as typed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Typed {
    /// `?`: not known.
    Unknown,
    /// `ptr`: a pointer to memory of its own.
    Pointer,
    /// A whole number.
    Integer(i128),
    /// A number with a fraction.
    Real(f64),
    /// A number that says its type, as its bits and how many.
    Bits(u64, u64),
}

/// Parses `ptr`, `?`, `4096`, `-1`, `1.5`, `u32:4096`, `f32:1.5`.
pub fn argument(text: &str) -> Result<Typed, String> {
    let explain = || {
        format!(
            "`{text}` is no argument; write ptr, a number such as 4096 or 1.5, one with its type such as u32:4096 or f32:1.5, or ?"
        )
    };
    match text.split_once(':') {
        None => match text {
            "?" => Ok(Typed::Unknown),
            "ptr" => Ok(Typed::Pointer),
            _ => number(text).ok_or_else(explain),
        },
        Some((name, value)) => {
            let ty = ScalarType::from_name(name).ok_or_else(explain)?;
            let bits = bits(number(value).ok_or_else(explain)?, ty);
            bits.map(|bits| Typed::Bits(bits, ty.bytes()))
                .ok_or_else(|| format!("`{value}` does not fit {name}"))
        }
    }
}

fn number(text: &str) -> Option<Typed> {
    let hexadecimal = text.strip_prefix("0x").and_then(|digits| i128::from_str_radix(digits, 16).ok());
    let integer =
        hexadecimal.or_else(|| text.parse().ok()).filter(|value: &i128| value.unsigned_abs() < 1 << 64);
    integer.map(Typed::Integer).or_else(|| text.parse().ok().map(Typed::Real))
}

/// The bits of a number as a value of this type; `None` if it does not fit.
fn bits(number: Typed, ty: ScalarType) -> Option<u64> {
    let width = 8 * ty.bytes().min(8) as u32;
    match (number, ty) {
        _ if width == 0 => None,
        (Typed::Integer(value), ScalarType::F32) => Some(u64::from((value as f32).to_bits())),
        (Typed::Integer(value), ScalarType::F64) => Some((value as f64).to_bits()),
        (Typed::Real(value), ScalarType::F32) => Some(u64::from((value as f32).to_bits())),
        (Typed::Real(value), ScalarType::F64) => Some(value.to_bits()),
        (Typed::Integer(value), _) => {
            let fits = (-(1i128 << (width - 1))..1i128 << width).contains(&value);
            let mask = u64::MAX >> (64 - width);
            fits.then_some(value as u64 & mask)
        }
        _ => None,
    }
}

/// The reason why a kernel cannot be taken from PTX.
#[derive(Debug, thiserror::Error)]
pub enum CodeError {
    /// The text is no PTX: the message shows the place on several lines.
    #[error("{0}")]
    Syntax(String),
    /// There is no such kernel, or its parameters do not take the arguments.
    #[error("{0}")]
    Kernel(String),
}

/// The arguments that launches of a kernel were given.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LaunchArguments {
    /// The number of launches.
    pub launches: f64,
    /// The arguments, in the order of the kernel's parameters.
    pub arguments: Vec<Argument>,
    /// Bytes of the allocations that pointers among them point into; of others, nothing is known.
    pub allocations: Vec<u64>,
}

/// A kernel of a PTX file.
#[derive(Clone, Debug)]
pub struct Code {
    module: Arc<Module>,
    /// The kernel's name.
    pub name: String,
    /// Several where launches differ; none where it is not known what they execute.
    given: Vec<LaunchArguments>,
    mix: ptx::Mix,
    /// Made when it is needed first, for all launches of the kernel.
    estimator: Arc<OnceLock<Estimator>>,
}

impl Code {
    /// Finds a kernel in PTX; it must be named if there are several. With no arguments nothing is
    /// known of what a launch executes. `shown` is the name of the source in messages.
    ///
    /// # Errors
    /// Text that is no PTX, a kernel that is not in it, arguments that do not fit its parameters.
    pub fn parse(
        source: &str,
        shown: &str,
        kernel: Option<&str>,
        arguments: &[Typed],
    ) -> Result<Code, CodeError> {
        let module = ptx::parse(source).map_err(|wrong| CodeError::Syntax(wrong.render(shown, source)))?;
        let unfit = |why: String| CodeError::Kernel(format!("{shown}: {why}"));
        let function = find(&module, kernel).map_err(unfit)?;
        let name = function.name.to_string();
        let arguments_of = given(function, arguments).map_err(|why| unfit(format!("{name}: {why}")))?;
        let mix = ptx::Mix::of(function);
        let mut code =
            Code { name, given: Vec::new(), mix, estimator: Arc::default(), module: Arc::new(module) };
        if !arguments.is_empty() {
            code.given.push(LaunchArguments {
                launches: 1.0,
                arguments: arguments_of,
                allocations: Vec::new(),
            });
        }
        Ok(code)
    }

    /// The kernel of this name in a module, without anything that launches of it were given. `None`
    /// if there is no such kernel.
    pub fn of_module(module: &Arc<Module>, name: &str) -> Option<Code> {
        let function = module.kernel(name)?;
        let mix = ptx::Mix::of(function);
        let (module, name) = (Arc::clone(module), name.to_owned());
        Some(Code { module, name, given: Vec::new(), mix, estimator: Arc::default() })
    }

    /// The same kernel. `given` tells what launches of it were given, for its parameters; where it
    /// tells nothing, nothing is known of what they execute.
    pub fn with(&self, given: impl FnOnce(&[Variable]) -> Vec<LaunchArguments>) -> Code {
        Code { given: given(&self.function().params), ..self.clone() }
    }

    /// The module that the kernel is in.
    pub fn module(&self) -> &Module {
        &self.module
    }

    /// What launches of it were given; empty if that is not known.
    pub fn given(&self) -> &[LaunchArguments] {
        &self.given
    }

    fn function(&self) -> &Function {
        find(&self.module, Some(&self.name)).expect("it was found")
    }

    /// Completes the known attributes of the kernel with those that its PTX determines.
    pub fn kernel(&self, known: FunctionAttributes) -> FunctionAttributes {
        let function = self.function();
        let threads = ["reqntid", "maxntid"].into_iter().find_map(|name| function.directive(name));
        let most = threads.map_or(0, |sides| sides.iter().product::<u64>());
        FunctionAttributes {
            static_shared_bytes: match known.static_shared_bytes {
                0 => {
                    let bytes = ptx::analysis::static_shared_bytes(&self.module, function);
                    u32::try_from(bytes).unwrap_or(u32::MAX)
                }
                given => given,
            },
            local_bytes: match known.local_bytes {
                0 => local_bytes(function),
                given => given,
            },
            max_threads_per_block: match known.max_threads_per_block {
                0 => u32::try_from(most).unwrap_or(u32::MAX),
                given => given,
            },
            ..known
        }
    }

    /// Returns the facts that the code tells about the cost of a launch.
    pub fn facts(&self, launch: &LaunchConfig) -> Vec<ptx::Fact> {
        let function = self.function();
        ptx::facts(&self.module, function, &self.estimator().probe(function, launch))
    }

    fn estimator(&self) -> &Estimator {
        self.estimator.get_or_init(|| Estimator::new(&self.module, self.function()))
    }

    /// All that is known of a launch of it.
    pub fn case(&self, kernel: FunctionAttributes, launch: LaunchConfig) -> Case {
        let budget = BUDGET / self.given.len().max(1) as u64;
        let work = (!self.given.is_empty()).then(|| {
            let estimator = self.estimator();
            let of = |given: &LaunchArguments| {
                estimator.estimate_in(&given.allocations, &launch, &given.arguments, budget)
            };
            Work::mean(&self.given.iter().map(|given| (given.launches, of(given))).collect::<Vec<_>>())
        });
        Case { launch, kernel: Some(kernel), mix: Some(self.mix.clone()), work }
    }
}

fn find<'a>(module: &'a Module, name: Option<&str>) -> Result<&'a Function, String> {
    let kernels: Vec<_> = module.kernels().collect();
    let names = || kernels.iter().map(|kernel| kernel.name.to_string()).collect::<Vec<_>>().join(", ");
    match (name, &kernels[..]) {
        (_, []) => Err("there is no kernel in it".to_owned()),
        (None, [only]) => Ok(only),
        (None, _) => Err(format!("there are several kernels in it: name one with --kernel: {}", names())),
        (Some(name), kernels) => {
            let same = |kernel: &&&Function| {
                &*kernel.name == name
                    || apex_kernel_names::function_name(&kernel.name) == name
                    || apex_kernel_names::identify(&kernel.name).short_name == name
            };
            kernels
                .iter()
                .find(same)
                .copied()
                .ok_or_else(|| format!("there is no kernel {name} in it, but {}", names()))
        }
    }
}

/// The arguments as the parameters of a kernel take them.
///
/// # Errors
/// More arguments than parameters, or one that does not fit its parameter.
pub fn given(function: &Function, arguments: &[Typed]) -> Result<Vec<Argument>, String> {
    if arguments.len() > function.params.len() {
        let (given, taken) = (arguments.len(), function.params.len());
        return Err(format!("{given} arguments are given, and it takes {taken}"));
    }
    let one = |(parameter, argument): (&Variable, &Typed)| {
        let bytes = parameter.bytes().unwrap_or(0);
        let wrong = |why: String| format!("parameter {}: {why}", parameter.name);
        match *argument {
            Typed::Unknown => Ok(Argument::Unknown),
            Typed::Pointer => Ok(Argument::Pointer),
            Typed::Bits(_, wide) if wide > bytes => {
                Err(wrong(format!("the argument has {wide} bytes, and it has {bytes}")))
            }
            Typed::Bits(bits, _) => Ok(Argument::Bits(bits)),
            number => bits(number, parameter.ty)
                .map(Argument::Bits)
                .ok_or_else(|| wrong(format!("this number is no .{}", parameter.ty.name()))),
        }
    };
    function.params.iter().zip(arguments).map(one).collect()
}

/// Bytes of the local variables that a kernel declares.
fn local_bytes(function: &Function) -> u32 {
    let mut bytes = 0u64;
    function.visit(&mut |statement| {
        if let Statement::Variable(variable) = statement
            && variable.space == StateSpace::Local
        {
            bytes = bytes.saturating_add(variable.bytes().unwrap_or(0));
        }
    });
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two kernels; the first has bounds, memory of both spaces, and a parameter of each sort.
    const SOURCE: &str = "
.version 8.0
.target sm_80
.address_size 64
.shared .align 4 .b8 tile[1024];
.shared .align 4 .b8 other[64];
.visible .entry scale(.param .u64 to, .param .u32 n, .param .f32 by)
.maxntid 128, 2, 1
{
    .local .align 4 .b8 depot[16];
    .shared .align 4 .b8 own[32];
    .reg .u32 %r<4>;
    mov.u32 %r0, tile;
    mov.u32 %r1, own;
    ret;
}
.visible .entry plain() { ret; }
";

    fn read(source: &str, kernel: Option<&str>, arguments: &[Typed]) -> Result<Code, String> {
        Code::parse(source, "k.ptx", kernel, arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn the_ptx_tells_bounds_and_memory_unless_they_are_given() {
        let code = read(SOURCE, Some("scale"), &[]).unwrap();
        let registers = FunctionAttributes { registers: 24, ..FunctionAttributes::default() };
        let known = code.kernel(registers);
        let expected = FunctionAttributes {
            static_shared_bytes: 1056,
            local_bytes: 16,
            max_threads_per_block: 256,
            ..registers
        };
        assert_eq!(known, expected);
        let given = FunctionAttributes {
            static_shared_bytes: 1,
            local_bytes: 2,
            max_threads_per_block: 3,
            ..registers
        };
        assert_eq!(code.kernel(given), given);
    }

    #[test]
    fn a_launch_is_walked_if_there_are_arguments() {
        let launch = LaunchConfig::new(10, 32);
        let case = |arguments: &[Typed]| {
            let code = read(SOURCE, Some("scale"), arguments).unwrap();
            code.case(
                code.kernel(FunctionAttributes { registers: 24, ..FunctionAttributes::default() }),
                launch,
            )
        };
        assert_eq!((case(&[]).mix.unwrap().instructions(), case(&[]).work), (3, None));
        let work = case(&[Typed::Pointer, Typed::Integer(7)]).work.unwrap();
        assert_eq!((work.warps, work.total()), (10.0, 30.0));
    }

    #[test]
    fn arguments_are_what_their_parameters_take() {
        let given = |texts: &[&str]| -> Result<Vec<Argument>, String> {
            let typed: Vec<Typed> = texts.iter().map(|text| argument(text).unwrap()).collect();
            read(SOURCE, Some("scale"), &typed).map(|code| code.given[0].arguments.clone())
        };
        assert_eq!(
            given(&["ptr", "4096", "2"]),
            Ok(vec![Argument::Pointer, Argument::Bits(4096), Argument::Bits(2f32.to_bits().into())])
        );
        assert_eq!(
            given(&["0x7f00", "-1", "1.5"]),
            Ok(vec![
                Argument::Bits(0x7f00),
                Argument::Bits(0xffff_ffff),
                Argument::Bits(1.5f32.to_bits().into())
            ])
        );
        assert_eq!(given(&["?", "s32:-2"]), Ok(vec![Argument::Unknown, Argument::Bits(0xffff_fffe)]));
        for (texts, why) in [
            (&["ptr", "4294967296"][..], "scale: parameter n: this number is no .u32"),
            (&["ptr", "1.5"], "parameter n: this number is no .u32"),
            (&["ptr", "u64:1"], "parameter n: the argument has 8 bytes, and it has 4"),
            (&["1", "2", "3", "4"], "scale: 4 arguments are given, and it takes 3"),
        ] {
            let error = given(texts).unwrap_err();
            assert!(error.contains(why), "{texts:?}: {error}");
        }
        for (text, why) in [
            ("", "is no argument"),
            ("many", "is no argument"),
            ("u33:1", "is no argument"),
            ("u8:x", "is no argument"),
            ("u8:256", "does not fit u8"),
            ("u32:1.5", "does not fit u32"),
            ("pred:1", "does not fit pred"),
        ] {
            assert!(argument(text).unwrap_err().contains(why), "{text}: {:?}", argument(text));
        }
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        for (source, kernel, why) in [
            (SOURCE, None, "there are several kernels in it: name one with --kernel: scale, plain"),
            (SOURCE, Some("gone"), "there is no kernel gone in it, but scale, plain"),
            (".version 8.0\n.target sm_80\n", None, "there is no kernel in it"),
            (".version 8.0\n.target sm_80\n.entry k( {", None, "k.ptx:3:"),
        ] {
            let error = read(source, kernel, &[]).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
