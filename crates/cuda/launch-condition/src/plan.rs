//! The plan of one run: which kernels are launched in which blocks, and which pairs of launches are
//! made as one. `apex` writes it into the session, and the injected library reads it.
//!
//! The form is private to the two: little-endian numbers, a list as its length and its entries.
//! Reading trusts nothing: a plan of another version, or one that is cut short, is damaged.

use crate::condition::{Apart, Bound, Condition, Product, Region, Sum, Term};
use cuda_launch::{Dim3, LaunchConfig};
use std::fmt;

/// First bytes of a plan: name and version.
const MAGIC: &[u8; 8] = b"APEXPLN3";
/// Most entries of a list.
const MOST_ENTRIES: u32 = 1 << 12;
/// Longest name in bytes.
const MOST_TEXT: u32 = 1 << 14;
/// Longest PTX in bytes.
const MOST_PTX: u32 = 1 << 20;

/// See the [module](self).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The device's name, as the driver gives it. On another device nothing is reshaped.
    pub device: String,
    /// The driver's version, as the driver gives it.
    pub driver_version: u32,
    /// The kernels.
    pub kernels: Vec<PlannedKernel>,
    /// Kernels of which launches that follow each other are made as one.
    pub pairs: Vec<PlannedPair>,
}

/// Two kernels, and the one that does what both do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlannedPair {
    /// Both kernels, in the order of their launches: [`code_hash`] of the PTX that the driver
    /// loads, and the name in it.
    pub kernels: [(u128, String); 2],
    /// The name of the joined kernel.
    pub name: String,
    /// Its PTX.
    pub ptx: String,
    /// Where its parameters come from: whether from the second kernel, and the place among that
    /// one's.
    pub parameters: Vec<(bool, u32)>,
    /// Places of parameters of the first and the second kernel that must have one value.
    pub same: Vec<(u32, u32)>,
    /// Conditions that its launch, in the program's blocks, must meet.
    pub condition: Condition,
}

/// A kernel and its blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlannedKernel {
    /// [`code_hash`] of the PTX that the driver loads.
    pub code: u128,
    /// Its name in the PTX.
    pub name: String,
    /// Conditions that its launches must meet.
    pub condition: Condition,
    /// The blocks, by what the program asks for.
    pub choices: Vec<Choice>,
}

/// The blocks for launches of one size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// The block that the program asks for.
    pub asked: Dim3,
    /// [`size_class`] of the launch.
    pub size_class: u32,
    /// The blocks of which one is launched instead.
    pub blocks: Vec<Dim3>,
    /// Whether each launch draws at random between `asked` and `blocks`; else the first of `blocks`
    /// is launched.
    pub draws: bool,
}

/// The class of a launch's size: launches of one class have, within a factor of two, as many
/// threads.
pub fn size_class(launch: &LaunchConfig) -> u32 {
    launch.threads().max(1).ilog2()
}

/// A number that stands for the text of PTX: FNV-1a of 128 bits, without zeros and white space at
/// the end.
pub fn code_hash(ptx: &[u8]) -> u128 {
    let end = ptx.iter().rposition(|byte| *byte != 0 && !byte.is_ascii_whitespace()).map_or(0, |at| at + 1);
    ptx[..end].iter().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |hash: u128, &byte| {
        (hash ^ u128::from(byte)).wrapping_mul(0x0100_0000_0000_0000_0000_013b)
    })
}

/// The bytes are no plan that this version reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged;

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the plan of launches is damaged, or of another version of APEX")
    }
}

impl std::error::Error for Damaged {}

impl Plan {
    /// Name of the plan's file in a session.
    pub const FILE: &'static str = "launches.plan";

    /// The plan as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Out(MAGIC.to_vec());
        out.text(&self.device);
        out.number(self.driver_version);
        out.list(&self.kernels, Out::kernel);
        out.list(&self.pairs, Out::pair);
        out.0
    }

    /// Reads what [`Plan::to_bytes`] wrote.
    ///
    /// # Errors
    /// Other bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Damaged> {
        let mut rest = Rest(bytes.strip_prefix(MAGIC).ok_or(Damaged)?);
        let device = rest.text()?;
        let driver_version = rest.number()?;
        let kernels = rest.list(Rest::kernel)?;
        let pairs = rest.list(Rest::pair)?;
        if rest.0.is_empty() { Ok(Self { device, driver_version, kernels, pairs }) } else { Err(Damaged) }
    }
}

/// The bytes of a plan, as far as they are written.
pub(crate) struct Out(pub(crate) Vec<u8>);

impl Out {
    pub(crate) fn number(&mut self, number: u32) {
        self.0.extend(number.to_le_bytes());
    }

    pub(crate) fn flag(&mut self, flag: bool) {
        self.0.push(flag.into());
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.number(text.len() as u32);
        self.0.extend(text.as_bytes());
    }

    pub(crate) fn list<T>(&mut self, list: &[T], mut entry: impl FnMut(&mut Self, &T)) {
        self.number(list.len() as u32);
        list.iter().for_each(|one| entry(self, one));
    }

    fn block(&mut self, block: &Dim3) {
        block.to_array().iter().for_each(|&side| self.number(side));
    }

    fn kernel(&mut self, kernel: &PlannedKernel) {
        self.0.extend(kernel.code.to_le_bytes());
        self.text(&kernel.name);
        self.condition(&kernel.condition);
        self.list(&kernel.choices, |out, choice| {
            out.block(&choice.asked);
            out.number(choice.size_class);
            out.list(&choice.blocks, Self::block);
            out.flag(choice.draws);
        });
    }

    fn pair(&mut self, pair: &PlannedPair) {
        for (code, name) in &pair.kernels {
            self.0.extend(code.to_le_bytes());
            self.text(name);
        }
        self.text(&pair.name);
        self.text(&pair.ptx);
        self.list(&pair.parameters, |out, &(is_second, place)| {
            out.flag(is_second);
            out.number(place);
        });
        self.list(&pair.same, |out, &(first, second)| {
            out.number(first);
            out.number(second);
        });
        self.condition(&pair.condition);
    }

    fn condition(&mut self, condition: &Condition) {
        condition.same_threads.iter().for_each(|&same| self.flag(same));
        self.list(&condition.bounds, |out, bound| {
            out.0.push(bound.axis);
            out.sum(&bound.limit);
        });
        self.list(&condition.at_most, |out, (less, more)| {
            out.sum(less);
            out.sum(more);
        });
        self.list(&condition.regions, |out, region| {
            out.sum(&region.start);
            out.flag(region.bytes.is_some());
            region.bytes.iter().for_each(|bytes| out.sum(bytes));
        });
        self.list(&condition.apart, |out, apart| {
            out.0.extend([apart.first, apart.second]);
            out.flag(apart.or_same);
        });
    }

    pub(crate) fn sum(&mut self, sum: &Sum) {
        self.list(&sum.0, |out, product| {
            out.0.extend(product.factor.to_le_bytes());
            out.list(&product.terms, |out, term| match *term {
                Term::Threads(axis) => out.0.extend([0, axis]),
                Term::Parameter { offset, bytes, signed } => {
                    out.0.extend([1, bytes, signed.into()]);
                    out.number(offset);
                }
            });
        });
    }
}

/// The bytes of a plan that are not read yet.
pub(crate) struct Rest<'b>(pub(crate) &'b [u8]);

impl Rest<'_> {
    fn take<const BYTES: usize>(&mut self) -> Result<[u8; BYTES], Damaged> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Damaged)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn byte(&mut self) -> Result<u8, Damaged> {
        self.take::<1>().map(|[byte]| byte)
    }

    pub(crate) fn number(&mut self) -> Result<u32, Damaged> {
        self.take().map(u32::from_le_bytes)
    }

    pub(crate) fn flag(&mut self) -> Result<bool, Damaged> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Damaged),
        }
    }

    pub(crate) fn text(&mut self) -> Result<String, Damaged> {
        self.text_of(MOST_TEXT)
    }

    fn text_of(&mut self, most: u32) -> Result<String, Damaged> {
        let bytes = self.number()?.min(most) as usize;
        let (text, rest) = self.0.split_at_checked(bytes).ok_or(Damaged)?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).map_err(|_| Damaged)
    }

    pub(crate) fn list<T>(
        &mut self,
        mut entry: impl FnMut(&mut Self) -> Result<T, Damaged>,
    ) -> Result<Vec<T>, Damaged> {
        match self.number()? {
            entries if entries <= MOST_ENTRIES => (0..entries).map(|_| entry(self)).collect(),
            _ => Err(Damaged),
        }
    }

    fn block(&mut self) -> Result<Dim3, Damaged> {
        Ok(Dim3::new(self.number()?, self.number()?, self.number()?))
    }

    fn kernel(&mut self) -> Result<PlannedKernel, Damaged> {
        Ok(PlannedKernel {
            code: u128::from_le_bytes(self.take()?),
            name: self.text()?,
            condition: self.condition()?,
            choices: self.list(|rest| {
                Ok(Choice {
                    asked: rest.block()?,
                    size_class: rest.number()?,
                    blocks: rest.list(Self::block)?,
                    draws: rest.flag()?,
                })
            })?,
        })
    }

    fn pair(&mut self) -> Result<PlannedPair, Damaged> {
        let mut kernel = || Ok((u128::from_le_bytes(self.take()?), self.text()?));
        let kernels = [kernel()?, kernel()?];
        Ok(PlannedPair {
            kernels,
            name: self.text()?,
            ptx: self.text_of(MOST_PTX)?,
            parameters: self.list(|rest| Ok((rest.flag()?, rest.number()?)))?,
            same: self.list(|rest| Ok((rest.number()?, rest.number()?)))?,
            condition: self.condition()?,
        })
    }

    fn condition(&mut self) -> Result<Condition, Damaged> {
        Ok(Condition {
            same_threads: [self.flag()?, self.flag()?, self.flag()?],
            bounds: self.list(|rest| Ok(Bound { axis: rest.byte()?, limit: rest.sum()? }))?,
            at_most: self.list(|rest| Ok((rest.sum()?, rest.sum()?)))?,
            regions: self.list(|rest| {
                Ok(Region { start: rest.sum()?, bytes: if rest.flag()? { Some(rest.sum()?) } else { None } })
            })?,
            apart: self.list(|rest| {
                Ok(Apart { first: rest.byte()?, second: rest.byte()?, or_same: rest.flag()? })
            })?,
        })
    }

    pub(crate) fn sum(&mut self) -> Result<Sum, Damaged> {
        let product = |rest: &mut Self| {
            let factor = i64::from_le_bytes(rest.take()?);
            Ok(Product { factor, terms: rest.list(Self::term)? })
        };
        self.list(product).map(Sum)
    }

    fn term(&mut self) -> Result<Term, Damaged> {
        match self.byte()? {
            0 => Ok(Term::Threads(self.byte()?)),
            1 => {
                let (bytes, signed) = (self.byte()?, self.flag()?);
                Ok(Term::Parameter { offset: self.number()?, bytes, signed })
            }
            _ => Err(Damaged),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        let n = Term::Parameter { offset: 16, bytes: 4, signed: true };
        let p = Term::Parameter { offset: 0, bytes: 8, signed: false };
        let condition = Condition {
            same_threads: [false, true, true],
            bounds: vec![Bound { axis: 0, limit: Sum::of(1, n).plus(Sum::constant(-1)) }],
            at_most: vec![(Sum::constant(1), Sum::of(1, Term::Threads(1)))],
            regions: vec![
                Region { start: Sum::of(1, p), bytes: Some(Sum::of(4, n)) },
                Region { start: Sum::of(1, p), bytes: None },
            ],
            apart: vec![Apart { first: 0, second: 0, or_same: true }],
        };
        let choice =
            Choice { asked: 16.into(), size_class: 20, blocks: vec![64.into(), (32, 8).into()], draws: true };
        let pair = PlannedPair {
            kernels: [(7 << 100, "copy".into()), (8, "scale".into())],
            name: "both".into(),
            ptx: ".version 8.0".into(),
            parameters: vec![(false, 0), (true, 1)],
            same: vec![(1, 0)],
            condition: condition.clone(),
        };
        let kernel = PlannedKernel { code: 7 << 100, name: "copy".into(), condition, choices: vec![choice] };
        let (kernels, pairs) = (vec![kernel], vec![pair]);
        Plan { device: "NVIDIA H200".into(), driver_version: 13_000, kernels, pairs }
    }

    #[test]
    fn a_plan_is_read_as_it_was_written() {
        assert_eq!(Plan::from_bytes(&plan().to_bytes()), Ok(plan()));
        assert_eq!(Plan::from_bytes(&Plan::default().to_bytes()), Ok(Plan::default()));
    }

    #[test]
    fn damaged_plans_are_refused() {
        let bytes = plan().to_bytes();
        for end in 0..bytes.len() {
            assert_eq!(Plan::from_bytes(&bytes[..end]), Err(Damaged), "{end} bytes of {}", bytes.len());
        }
        assert_eq!(Plan::from_bytes(&[&bytes[..], &[0]].concat()), Err(Damaged));
        let mut other = bytes;
        other[7] = b'2';
        assert_eq!(Plan::from_bytes(&other), Err(Damaged));
    }

    #[test]
    fn the_hash_of_code_ignores_its_end() {
        assert_eq!(code_hash(b""), 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        assert_eq!(code_hash(b"a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
        assert_eq!(code_hash(b"ret;\n\0"), code_hash(b"ret;"));
        assert_ne!(code_hash(b"ret;"), code_hash(b" ret;"));
    }

    #[test]
    fn sizes_of_one_class_are_within_a_factor_of_two() {
        assert_eq!(size_class(&LaunchConfig::new(63, 16)), 9);
        assert_eq!(size_class(&LaunchConfig::new(64, 16)), 10);
        assert_eq!(size_class(&LaunchConfig::new(0, 16)), 0);
    }
}
