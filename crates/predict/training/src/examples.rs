//! Data sets as cases with known outcome, and the cases as rows of numbers.
//!
//! Data sets of several devices are one [`Data`]: a family has the same number on each of them, so
//! that what is held out is held out on all.

use crate::Error;
use crate::work::Code;
use apex_dataset::{DataSet, KernelRow, LaunchRow};
use apex_model::Matrix;
use apex_model::train::Examples;
use apex_predict::features::{self, Measured, Set};
use apex_predict::{Basis, Case, Device, Placed};
use std::collections::{BTreeMap, HashMap};

/// The measurements of a launch; not a number if one was not measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Truth {
    /// Achieved occupancy, 0 to 1.
    pub achieved_occupancy: f32,
    /// SM throughput, 0 to 1.
    pub sm_utilisation: f32,
    /// Instructions issued, of the most possible: what stands in for SM throughput in training
    /// where that was not measured, as it takes many passes. Never judged against.
    pub issue: f32,
    /// Average active threads per warp, as a fraction of the warp.
    pub warp_efficiency: f32,
    /// The kernel's own duration, microseconds.
    pub duration_us: f32,
    /// The time above an empty kernel's, between two events in another run, microseconds.
    pub event_us: f32,
}

/// A launch of a data set.
#[derive(Clone, Debug)]
pub struct Row {
    /// Everything that is known about it.
    pub case: Case,
    /// The source of the measurement: an index into [`Data::sources`].
    pub source: usize,
    /// Its family: an index into [`Data::families`].
    pub family: usize,
    /// Launches of one kernel on one problem, measured on one device, have the same number.
    pub problem: usize,
    /// The measurements.
    pub truth: Truth,
}

impl Row {
    /// The case with only the knowledge of this basis.
    pub fn known(&self, basis: Basis) -> Case {
        let Case { launch, kernel, mix, work } = self.case.clone();
        Case {
            launch,
            kernel: kernel.filter(|_| basis >= Basis::Kernel),
            mix: mix.filter(|_| basis >= Basis::Code),
            work: work.filter(|_| basis >= Basis::Work),
        }
    }

    /// The basis with the most knowledge that it has.
    pub fn basis(&self) -> Basis {
        match &self.case {
            Case { work: Some(_), .. } => Basis::Work,
            Case { mix: Some(_), .. } => Basis::Code,
            Case { kernel: Some(_), .. } => Basis::Kernel,
            Case { .. } => Basis::Launch,
        }
    }
}

/// A device that launches were measured on.
#[derive(Clone, Debug)]
pub struct Source {
    /// The device.
    pub device: Device,
    /// The time of the measurement, UTC.
    pub measured: String,
}

/// Data sets, one of each device, ready to be learned from.
#[derive(Clone, Debug)]
pub struct Data {
    /// The devices that it was measured on.
    pub sources: Vec<Source>,
    /// Names of the families.
    pub families: Vec<String>,
    /// The launches with counters that can run according to the occupancy calculator.
    pub rows: Vec<Row>,
}

impl Data {
    /// Takes over a data set. `ptx-estimate` finds what launches of APEX's own suite execute.
    ///
    /// # Errors
    /// A device whose rules are not known, or a data set without counters.
    pub fn new(set: &DataSet) -> Result<Data, Error> {
        let attributes: Vec<(u32, i32)> =
            set.manifest.device_attributes.iter().map(|(&id, &value)| (id, value)).collect();
        let name = &set.manifest.device_name;
        let device = Device::from_pairs(name, &attributes)
            .ok_or_else(|| Error::Refused(format!("the rules of occupancy of {name} are not known")))?;
        let kernels: HashMap<&str, &KernelRow> =
            set.kernels.iter().map(|kernel| (kernel.kernel.as_str(), kernel)).collect();
        let mut families = Numbers::default();
        let mut problems = Numbers::default();
        let code = Code::of(set);
        let mut rows = Vec::new();
        for launch in
            set.launches.iter().filter(|launch| launch.counters.achieved_occupancy_percent.is_some())
        {
            let kernel = kernels[launch.kernel.as_str()];
            let case = case(kernel, launch, &code);
            let Ok(placed) = Placed::new(&device, &case) else { continue };
            let truth = truth(&placed, launch);
            let problem = format!("{} {:?} {:?}", launch.kernel, launch.n, launch.m);
            let (family, problem) = (families.number(&kernel.family), problems.number(&problem));
            rows.push(Row { source: 0, family, problem, truth, case });
        }
        if rows.is_empty() {
            return Err(Error::Refused(
                "the data set has no counters: collect with --counters require".to_owned(),
            ));
        }
        let measured = set.manifest.started.clone();
        Ok(Data { sources: vec![Source { device, measured }], families: families.names, rows })
    }

    /// This and the data of other devices.
    ///
    /// # Errors
    /// A device that this has data of already.
    pub fn join(mut self, other: Data) -> Result<Data, Error> {
        let devices = |data: &Data| -> Vec<Device> {
            data.sources.iter().map(|source| source.device.clone()).collect()
        };
        let known = devices(&self);
        if let Some(twice) = devices(&other).into_iter().find(|device| known.contains(device)) {
            let name = &twice.name;
            return Err(Error::Refused(format!("two data sets are of the {name}: name one of each device")));
        }
        let mut families = Numbers::default();
        self.families.iter().for_each(|name| _ = families.number(name));
        let numbers: Vec<usize> = other.families.iter().map(|name| families.number(name)).collect();
        let problems = self.rows.iter().map(|row| row.problem + 1).max().unwrap_or(0);
        self.rows.extend(other.rows.into_iter().map(|row| Row {
            source: row.source + known.len(),
            family: numbers[row.family],
            problem: row.problem + problems,
            ..row
        }));
        self.sources.extend(other.sources);
        self.families = families.names;
        Ok(self)
    }

    /// The device that a row was measured on.
    pub fn device(&self, row: usize) -> &Device {
        &self.sources[self.rows[row].source].device
    }

    /// A case on the device of a row, whose launch it is. It ran with all that is known of its
    /// kernel, so it runs with less.
    pub(crate) fn place<'a>(&'a self, row: usize, case: &'a Case) -> Result<Placed<'a>, Error> {
        Placed::new(self.device(row), case).map_err(|why| Error::Refused(why.to_string()))
    }

    /// Features and targets of some rows, each on each of these bases that it has.
    pub fn examples(&self, set: Set, rows: &[usize], bases: &[Basis]) -> Result<Table, Error> {
        let mut table = Table::default();
        for &row in rows {
            for &basis in bases.iter().filter(|&&basis| basis <= self.rows[row].basis()) {
                let case = self.rows[row].known(basis);
                let placed = self.place(row, &case)?;
                let mut numbers = Vec::new();
                match set {
                    Set::Small => features::small(&placed, &mut numbers),
                    _ => features::full(&placed, &mut numbers),
                }
                table.inputs.push(numbers);
                table.targets.push(self.rows[row].truth.targets(&placed, set).to_vec());
                table.origin.push(Origin { row, from: None, basis });
            }
        }
        Ok(table)
    }

    /// Features and targets of pairs of launches, from one to the other, on one basis.
    pub fn pairs(&self, pairs: &[(usize, usize)], bases: &[Basis]) -> Result<Table, Error> {
        let mut table = Table::default();
        for &(from, to) in pairs {
            for &basis in bases.iter().filter(|&&basis| basis <= self.rows[from].basis()) {
                let cases = [from, to].map(|row| self.rows[row].known(basis));
                let (before, after) = (self.place(from, &cases[0])?, self.place(to, &cases[1])?);
                let [was, is] = [from, to].map(|row| self.rows[row].truth.duration_us);
                let bounds = (after.least_duration_us() / before.least_duration_us()) as f32;
                let mut numbers = Vec::new();
                features::what_if(&before, &Measured { duration_us: was.into() }, &after, &mut numbers);
                table.inputs.push(numbers);
                table.targets.push(vec![(is / was / bounds).log2()]);
                table.origin.push(Origin { row: to, from: Some(from), basis });
            }
        }
        Ok(table)
    }
}

/// Names, numbered as they come.
#[derive(Default)]
struct Numbers {
    known: BTreeMap<String, usize>,
    names: Vec<String>,
}

impl Numbers {
    fn number(&mut self, name: &str) -> usize {
        if let Some(&number) = self.known.get(name) {
            return number;
        }
        self.names.push(name.to_owned());
        self.known.insert(name.to_owned(), self.names.len() - 1);
        self.names.len() - 1
    }
}

/// The origin of an example.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// The launch that is predicted.
    pub row: usize,
    /// The launch that was measured, if there is one.
    pub from: Option<usize>,
    /// The known facts.
    pub basis: Basis,
}

/// Examples with their origins.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Features.
    pub inputs: Vec<Vec<f32>>,
    /// Targets.
    pub targets: Vec<Vec<f32>>,
    /// Origins.
    pub origin: Vec<Origin>,
}

impl Table {
    /// The features.
    pub fn matrix(&self) -> Result<Matrix, Error> {
        matrix(&self.inputs)
    }

    /// All as examples.
    pub fn examples(&self) -> Result<Examples, Error> {
        Ok(Examples::new(matrix(&self.inputs)?, matrix(&self.targets)?)?)
    }
}

fn matrix(rows: &[Vec<f32>]) -> Result<Matrix, Error> {
    let mut matrix = Matrix::empty(rows.first().map_or(0, Vec::len));
    rows.iter().try_for_each(|row| matrix.push(row))?;
    Ok(matrix)
}

impl Truth {
    /// As small and large predict it: see [`apex_predict::target`]. Without knowing what a launch
    /// executes, large has nothing to say of its duration that small does not say too, and would
    /// only be led astray.
    fn targets(&self, placed: &Placed<'_>, set: Set) -> [f32; 4] {
        let duration = (self.duration_us / placed.least_duration_us() as f32).log2();
        let utilisation = if self.sm_utilisation.is_nan() { self.issue } else { self.sm_utilisation };
        let has_duration = set == Set::Small || placed.basis() == Basis::Work;
        [
            (self.achieved_occupancy / placed.occupancy_bound() as f32).clamp(0.0, 1.0),
            utilisation,
            (self.warp_efficiency / placed.warp_efficiency_bound() as f32).clamp(0.0, 1.0),
            if has_duration { duration } else { f32::NAN },
        ]
    }
}

fn truth(placed: &Placed<'_>, launch: &LaunchRow) -> Truth {
    let counters = &launch.counters;
    let fraction =
        |value: Option<f64>, of: f64| value.map_or(f32::NAN, |value| (value / of).clamp(0.0, 1.0) as f32);
    let warp = f64::from(placed.device.limits.attributes.warp_size);
    Truth {
        achieved_occupancy: fraction(counters.achieved_occupancy_percent, 100.0),
        sm_utilisation: fraction(counters.sm_throughput_percent, 100.0),
        issue: fraction(counters.sm_issue_percent, 100.0),
        warp_efficiency: fraction(counters.threads_per_instruction, warp),
        duration_us: counters.profiled_time_us.map_or(f32::NAN, |us| us as f32),
        event_us: launch.timing.time_us.map_or(f32::NAN, |us| us as f32),
    }
}

fn case(kernel: &KernelRow, launch: &LaunchRow, code: &Code) -> Case {
    let (configuration, attributes) = (launch.config(), kernel.attributes());
    let work = launch.n.zip(launch.m).and_then(|(n, m)| code.work(&kernel.kernel, &configuration, n, m));
    Case { launch: configuration, kernel: Some(attributes), mix: kernel.ptx.0.clone(), work }
}
