//! The code of a recorded session's kernels: PTX out of the images that the session keeps
//! (`apex run --code`), and what launches were given, as an estimate takes it.

use crate::Case;
use crate::code::Code;
use apex_profile::{Kernel, KernelArguments, Parameter, Profile};
use cuda_launch::{FunctionAttributes, LaunchConfig};
use fatbin::{Image, kept};
use ptx::estimate::Argument;
use ptx::{Module, Variable};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

/// Most kernels of a session whose launches are walked, of those that take most time: each takes
/// some milliseconds.
const MOST_WALKED: usize = 512;
/// Most different arguments of a kernel that are walked.
const MOST_ARGUMENTS: usize = 8;

/// The images of a profile's kernels; what is read of one is kept.
pub struct Programs<'p> {
    profile: &'p Profile,
    /// Symbols and images of the kernels that are walked.
    walked: HashSet<(&'p str, &'p str)>,
    /// PTX by image and architecture.
    modules: RefCell<HashMap<(String, u32), Modules>>,
}

/// The modules of PTX in an image.
type Modules = Rc<[Arc<Module>]>;

/// What is known of the code of a recorded kernel.
#[derive(Debug)]
pub enum Recorded {
    /// Nothing beyond its attributes.
    Kernel,
    /// What its PTX is made of.
    Mix(ptx::Mix),
    /// Its PTX, and perhaps what launches were given.
    Code(Code),
}

impl Recorded {
    /// All that is known of a launch of it in this configuration.
    pub fn case(&self, launch: LaunchConfig, kernel: Option<FunctionAttributes>) -> Case {
        match (self, kernel) {
            (Self::Code(code), Some(kernel)) => code.case(kernel, launch),
            (Self::Mix(mix), _) => Case { kernel, mix: Some(mix.clone()), ..Case::of_launch(launch) },
            _ => Case { kernel, ..Case::of_launch(launch) },
        }
    }
}

impl<'p> Programs<'p> {
    /// Those of a profile.
    pub fn of(profile: &'p Profile) -> Self {
        let image = |kernel: &'p Kernel| Some((&*kernel.symbol, kernel.code.as_ref()?.image.as_deref()?));
        let walked = profile.kernels.iter().filter_map(image).take(MOST_WALKED).collect();
        Self { profile, walked, modules: RefCell::default() }
    }

    /// What is known of a kernel's code.
    pub fn recorded(&self, kernel: &Kernel) -> Recorded {
        self.code(kernel).map_or(Recorded::Kernel, Recorded::Code)
    }

    /// What is known of a kernel before it runs.
    pub fn case(&self, kernel: &Kernel) -> Case {
        self.recorded(kernel).case(kernel.launch, kernel.attributes)
    }

    fn code(&self, kernel: &Kernel) -> Option<Code> {
        let code = kernel.code.as_ref()?;
        let image = code.image.as_deref()?;
        if !self.walked.contains(&(&*kernel.symbol, image)) {
            return None;
        }
        let device = self.profile.devices.get(kernel.device?)?;
        let (major, minor) = device.compute_capability?;
        let modules = self.modules(image, major.saturating_mul(10).saturating_add(minor));
        let given = |parameters: &[Variable]| -> Vec<(f64, Vec<Argument>)> {
            let known = code.arguments.iter().take(MOST_ARGUMENTS);
            known.filter_map(|one| Some((one.launches.max(1) as f64, arguments(parameters, one)?))).collect()
        };
        modules.iter().find_map(|module| Code::of_module(module, &kernel.symbol, given))
    }

    /// The PTX of an image for an architecture.
    fn modules(&self, image: &str, architecture: u32) -> Modules {
        let key = (image.to_owned(), architecture);
        let mut known = self.modules.borrow_mut();
        let read = || read(self.profile.images.get(image).map_or(&[], |packed| &packed[..]), architecture);
        Rc::clone(known.entry(key).or_insert_with(read))
    }
}

/// The modules of PTX in a packed image; none where there is only machine code, or it is damaged.
fn read(packed: &[u8], architecture: u32) -> Modules {
    let parts = kept::unpack(packed).unwrap_or_default();
    let texts = parts.iter().filter_map(|part| match fatbin::read(part, architecture).ok()? {
        Image::Ptx(text) => Some(text),
        _ => None,
    });
    let parsed = texts.filter_map(|text| ptx::parse(std::str::from_utf8(&text).ok()?).ok());
    parsed.map(Arc::new).collect()
}

/// Recorded arguments as the parameters of the PTX take them; `None` if they are not those of these
/// parameters.
fn arguments(parameters: &[Variable], given: &KernelArguments) -> Option<Vec<Argument>> {
    if parameters.len() != given.parameters.len() {
        return None;
    }
    parameters.iter().zip(&given.parameters).map(|(parameter, given)| argument(parameter, given)).collect()
}

/// A pointer becomes an address of its allocation's own, so that it is as well aligned as it was, and
/// points where others of its allocation do.
fn argument(parameter: &Variable, given: &Parameter) -> Option<Argument> {
    let digits = given.bytes.as_bytes().chunks(2);
    let mut bytes: Vec<u8> = digits
        .map(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok())
        .collect::<Option<_>>()?;
    if parameter.bytes() != Some(bytes.len() as u64) {
        return None;
    }
    for pointer in &given.pointers {
        let address = ((u64::from(pointer.allocation) + 1) << 40).wrapping_add(pointer.offset);
        let at = pointer.at as usize;
        bytes.get_mut(at..at.checked_add(8)?)?.copy_from_slice(&address.to_le_bytes());
    }
    Some(match <[u8; 8]>::try_from(&bytes[..]) {
        Ok(word) => Argument::Bits(u64::from_le_bytes(word)),
        Err(_) => Argument::Bytes(bytes.into()),
    })
}
