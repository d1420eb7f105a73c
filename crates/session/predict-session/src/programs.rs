//! The code of a recorded session's kernels: PTX out of the images that the session keeps
//! and what launches were given (`apex run --code`), as an estimate takes it. Of a kernel whose
//! image has machine code alone, what the tables beside that say, and what its instructions are.

use apex_predict::Case;
use apex_predict::code::{Code, LaunchArguments};
use apex_profile::{CodeFact, Kernel, KernelArguments, KnownCode, MachineCode, Parameter, Profile};
use cuda_launch::{FunctionAttributes, LaunchConfig};
use fatbin::{Image, cubin, kept};
use ptx::{FactKind, Module, Variable};
use ptx_estimate::{Argument, allocation_address};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

/// Most kernels of a session whose launches are walked, of those that take most time: each takes
/// some milliseconds.
const MOST_WALKED: usize = 512;
/// Most different arguments of a kernel that are walked.
const MOST_ARGUMENTS: usize = 8;
/// Most allocations of a launch whose sizes are used; a kernel has no more parameters.
const MOST_ALLOCATIONS: usize = 4096;

/// The images of a profile's kernels; what is read of one is kept.
pub struct Programs<'p> {
    profile: &'p Profile,
    /// Symbols and images of the kernels that are walked.
    walked: HashSet<(&'p str, &'p str)>,
    /// By image and architecture.
    contents: RefCell<HashMap<(String, u32), Rc<Content<'p>>>>,
}

/// The content of an image for the kernels that are walked.
struct Content<'p> {
    /// The modules of its PTX.
    modules: Vec<Arc<Module>>,
    /// The kernels that were asked for, by symbol: all configurations of one share what is made of
    /// its code.
    kernels: RefCell<HashMap<String, Option<Code>>>,
    /// Properties of the kernels' machine code, by symbol.
    tables: HashMap<&'p str, Machine>,
}

/// Properties of a kernel's machine code.
struct Machine {
    tables: cubin::Kernel,
    facts: Vec<CodeFact>,
}

impl Machine {
    /// Reads the kernel of this name; `None` if the cubin has none.
    fn of(cubin: &[u8], symbol: &str) -> Option<Self> {
        let tables = cubin::kernel(cubin, symbol).ok().flatten()?;
        let code = cubin::code(cubin, symbol).ok().flatten();
        let facts = code.map_or_else(Vec::new, |code| machine_facts(&code, &tables));
        Some(Self { tables, facts })
    }
}

/// Largest kernel whose instructions are looked at, bytes.
const MOST_CODE_BYTES: usize = 1 << 20;
/// Bytes of the array that sine and cosine have for large arguments, in FP64; with a frame around.
const REDUCTION_BYTES: u32 = 48;

/// Returns the facts of machine code about a kernel's cost: fewer kinds than PTX has, computed
/// likewise.
fn machine_facts(code: &cubin::Code<'_>, tables: &cubin::Kernel) -> Vec<CodeFact> {
    if code.bytes.len() > MOST_CODE_BYTES {
        return Vec::new();
    }
    let work = fatbin::machine::Work::of(code.bytes);
    let of = |kind, part: f64, all: f64, cost: f64, least: f64| {
        let share = part / all.max(part);
        let fact = CodeFact { kind, share, cost, least, by_parameter: false, file: None, line: None };
        (part > 0.0).then_some(fact)
    };
    let calls = |name: &[u8]| f64::from(u8::from(code.callees.contains(&name)));
    let arrays = if tables.local_bytes > Some(REDUCTION_BYTES) { work.arrays } else { 0.0 };
    let (conversions, each) =
        (work.conversions / work.double.max(1.0), work.double / work.global_loads.max(1.0));
    let facts = [
        of(FactKind::Doubles, work.double, work.double + work.single, conversions, each),
        of(FactKind::LocalArray, arrays, work.accesses, 0.0, 0.0),
        of(FactKind::Printf, calls(b"vprintf"), 1.0, 0.0, 0.0),
        of(FactKind::DeviceHeap, calls(b"malloc"), 1.0, 0.0, 0.0),
    ];
    facts.into_iter().flatten().collect()
}

/// A fact as a profile has it.
fn fact(fact: ptx::Fact) -> CodeFact {
    let (file, line) = fact.place.unzip();
    CodeFact {
        kind: fact.kind,
        share: fact.share,
        cost: fact.cost,
        least: fact.least,
        by_parameter: fact.by_parameter,
        file,
        line,
    }
}

/// The knowledge of a recorded kernel's code.
#[derive(Debug)]
pub enum Recorded {
    /// Nothing beyond its attributes.
    Kernel,
    /// The instruction mix of its PTX.
    Mix(ptx::Mix),
    /// Its PTX, and perhaps what launches were given.
    Code(Code),
    /// The tables of its machine code: there is no PTX.
    Tables(cubin::Kernel),
}

impl Recorded {
    /// All that is known of a launch of it in this configuration.
    pub fn case(&self, launch: LaunchConfig, kernel: Option<FunctionAttributes>) -> Case {
        match (self, kernel) {
            (Self::Code(code), Some(kernel)) => code.case(kernel, launch),
            (Self::Mix(mix), _) => Case { kernel, mix: Some(mix.clone()), ..Case::of_launch(launch) },
            (Self::Tables(tables), _) => {
                Case { kernel: with_tables(kernel, tables), ..Case::of_launch(launch) }
            }
            _ => Case { kernel, ..Case::of_launch(launch) },
        }
    }

    /// Returns the part of the kernel that its image holds, as a profile states it; `None` if
    /// nothing is known.
    pub fn known(&self) -> Option<KnownCode> {
        match self {
            Self::Kernel | Self::Mix(_) => None,
            Self::Code(_) => Some(KnownCode::Ptx),
            Self::Tables(tables) => Some(KnownCode::MachineCode(MachineCode {
                registers: tables.registers,
                static_shared_bytes: tables.static_shared_bytes,
                local_bytes: tables.local_bytes,
                barriers: tables.barriers,
                max_threads: tables.threads(),
                parameters: tables
                    .parameters
                    .as_ref()
                    .map(|all| all.iter().map(|parameter| (parameter.offset, parameter.bytes)).collect()),
            })),
        }
    }
}

/// A kernel's attributes: what the driver said, and the barriers, which it does not tell; without
/// it, what the tables say, if they say the registers.
fn with_tables(driver: Option<FunctionAttributes>, tables: &cubin::Kernel) -> Option<FunctionAttributes> {
    let from_tables = || {
        Some(FunctionAttributes {
            registers: tables.registers?,
            static_shared_bytes: tables.static_shared_bytes,
            local_bytes: tables.local_bytes.unwrap_or(0),
            max_threads_per_block: tables.threads().unwrap_or(0),
            ..FunctionAttributes::default()
        })
    };
    let attributes = driver.or_else(from_tables)?;
    Some(FunctionAttributes { barriers: tables.barriers, ..attributes })
}

impl<'p> Programs<'p> {
    /// Those of a profile.
    pub fn of(profile: &'p Profile) -> Self {
        let image = |kernel: &'p Kernel| Some((&*kernel.symbol, kernel.code.as_ref()?.image.as_deref()?));
        let walked = profile.kernels.iter().filter_map(image).take(MOST_WALKED).collect();
        Self { profile, walked, contents: RefCell::default() }
    }

    /// Returns the knowledge of a kernel's code.
    pub fn recorded(&self, kernel: &Kernel) -> Recorded {
        self.find(kernel).unwrap_or(Recorded::Kernel)
    }

    /// Returns the facts about a kernel before it runs.
    pub fn case(&self, kernel: &Kernel) -> Case {
        self.recorded(kernel).case(kernel.launch, kernel.attributes)
    }

    /// Returns the facts about a kernel's cost, if its PTX or its machine code is known.
    pub fn facts(&self, kernel: &Kernel) -> Vec<CodeFact> {
        match self.find(kernel) {
            Some(Recorded::Code(code)) => code.facts(&kernel.launch).into_iter().map(fact).collect(),
            Some(Recorded::Tables(_)) => self.machine_facts(kernel).unwrap_or_default(),
            _ => Vec::new(),
        }
    }

    fn machine_facts(&self, kernel: &Kernel) -> Option<Vec<CodeFact>> {
        let image = kernel.code.as_ref()?.image.as_deref()?;
        let content = self.content(image, self.architecture(kernel)?);
        Some(content.tables.get(&*kernel.symbol)?.facts.clone())
    }

    /// The architecture of the device that ran a kernel (90 for 9.0).
    fn architecture(&self, kernel: &Kernel) -> Option<u32> {
        let (major, minor) = self.profile.devices.get(kernel.device?)?.compute_capability?;
        Some(major.saturating_mul(10).saturating_add(minor))
    }

    fn find(&self, kernel: &Kernel) -> Option<Recorded> {
        let code = kernel.code.as_ref()?;
        let image = code.image.as_deref()?;
        if !self.walked.contains(&(&*kernel.symbol, image)) {
            return None;
        }
        let content = self.content(image, self.architecture(kernel)?);
        let given = |parameters: &[Variable]| -> Vec<LaunchArguments> {
            code.arguments.iter().take(MOST_ARGUMENTS).filter_map(|one| given(parameters, one)).collect()
        };
        let tables =
            || content.tables.get(&*kernel.symbol).map(|machine| Recorded::Tables(machine.tables.clone()));
        content.code(&kernel.symbol, given).map(Recorded::Code).or_else(tables)
    }

    /// Returns the content of an image for an architecture.
    fn content(&self, image: &str, architecture: u32) -> Rc<Content<'p>> {
        let read = || {
            let packed = self.profile.images.get(image).map_or(&[][..], |packed| packed);
            let symbols = self.walked.iter().filter(|(_, of)| *of == image).map(|(symbol, _)| *symbol);
            Rc::new(Content::read(packed, architecture, symbols))
        };
        Rc::clone(self.contents.borrow_mut().entry((image.to_owned(), architecture)).or_insert_with(read))
    }
}

impl<'p> Content<'p> {
    /// Reads a packed image; damaged parts are left out.
    fn read(packed: &[u8], architecture: u32, symbols: impl Iterator<Item = &'p str>) -> Self {
        let parts = kept::unpack(packed).unwrap_or_default();
        let texts = texts(&parts, architecture);
        let parsed = texts.filter_map(|text| ptx::parse(std::str::from_utf8(&text).ok()?).ok());
        let modules = linked(parsed.collect()).into_iter().map(Arc::new).collect();
        let cubins: Vec<_> =
            parts.iter().filter_map(|part| fatbin::machine_code(part).ok()).flatten().collect();
        let table = |symbol| Some((symbol, cubins.iter().find_map(|bytes| Machine::of(bytes, symbol))?));
        Self { modules, kernels: RefCell::default(), tables: symbols.filter_map(table).collect() }
    }

    /// The PTX of a kernel, and what launches of it were given.
    fn code(&self, symbol: &str, given: impl FnOnce(&[Variable]) -> Vec<LaunchArguments>) -> Option<Code> {
        let mut kernels = self.kernels.borrow_mut();
        let find = || self.modules.iter().find_map(|module| Code::of_module(module, symbol));
        let code = kernels.entry(symbol.to_owned()).or_insert_with(find);
        code.as_ref().map(|code| code.with(given))
    }
}

/// One module of those of an image, if one of them calls a function of another: that is what the
/// program's linker did (`nvcc -rdc=true`). Modules that cannot be linked stay as they are.
fn linked(modules: Vec<Module>) -> Vec<Module> {
    let bodies: HashSet<&str> =
        modules.iter().flat_map(Module::functions).filter(|f| f.body.is_some()).map(|f| &*f.name).collect();
    let calls_another = modules.iter().any(|module| {
        let own: HashSet<&str> =
            module.functions().filter(|function| function.body.is_some()).map(|f| &*f.name).collect();
        let mut declared = module.functions().map(|function| &*function.name);
        declared.any(|name| !own.contains(name) && bodies.contains(name))
    });
    if !calls_another {
        return modules;
    }
    ptx::link(modules.clone()).map_or(modules, |module| vec![module])
}

/// The PTX for an architecture of the parts of an image.
pub(crate) fn texts(parts: &[Vec<u8>], architecture: u32) -> impl Iterator<Item = Cow<'_, [u8]>> {
    parts.iter().filter_map(move |part| match fatbin::read(part, architecture).ok()? {
        Image::Ptx(ptx) => Some(ptx.text),
        _ => None,
    })
}

/// Recorded arguments as the parameters of the PTX take them; `None` if they are not those of these
/// parameters.
fn given(parameters: &[Variable], recorded: &KernelArguments) -> Option<LaunchArguments> {
    if parameters.len() != recorded.parameters.len() {
        return None;
    }
    let pairs = parameters.iter().zip(&recorded.parameters);
    let arguments = pairs.map(|(parameter, given)| argument(parameter, given)).collect::<Option<_>>()?;
    let mut allocations = Vec::new();
    for pointer in recorded.parameters.iter().flat_map(|parameter| &parameter.pointers) {
        let index = (pointer.allocation as usize).min(MOST_ALLOCATIONS);
        allocations.resize(allocations.len().max(index + 1), 0);
        allocations[index] = pointer.allocation_bytes;
    }
    Some(LaunchArguments { launches: recorded.launches.max(1) as f64, arguments, allocations })
}

/// A pointer becomes an address of its allocation's own, so that it is as well aligned as it was,
/// and points where others of its allocation do.
fn argument(parameter: &Variable, given: &Parameter) -> Option<Argument> {
    let digits = given.bytes.as_bytes().chunks(2);
    let mut bytes: Vec<u8> = digits
        .map(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok())
        .collect::<Option<_>>()?;
    if parameter.bytes() != Some(bytes.len() as u64) {
        return None;
    }
    for pointer in &given.pointers {
        let address = allocation_address(pointer.allocation).wrapping_add(pointer.offset);
        let at = pointer.at as usize;
        bytes.get_mut(at..at.checked_add(8)?)?.copy_from_slice(&address.to_le_bytes());
    }
    Some(match <[u8; 8]>::try_from(&bytes[..]) {
        Ok(word) => Argument::Bits(u64::from_le_bytes(word)),
        Err(_) => Argument::Bytes(bytes.into()),
    })
}
