//! The answer about one launch as data: the members of JSON are those of [`Answer`].

use crate::recorded::{self, figure};
use apex_predict::lines::{Fields, KNOWN, Line, Question};
use apex_predict::{Case, Device, Estimate, Models, Placed};
use apex_profile::{Figure, Prediction};
use cuda_launch::{FunctionAttributes, LaunchConfig};
use occupancy::{Limiter, what_if};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

/// The answer about one launch.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Answer {
    /// Its line in the input.
    pub line: Option<u64>,
    /// The kernel's name, where it has one.
    pub kernel: Option<String>,
    /// The launch; `None` if the line could not be read, or if none follows from a what-if.
    #[serde(serialize_with = "launch_members")]
    pub launch: Option<LaunchConfig>,
    /// The kernel's attributes, where they are known.
    #[serde(serialize_with = "kernel_members")]
    pub attributes: Option<FunctionAttributes>,
    /// Whether it is a change of the last launch before it that is none.
    pub what_if: bool,
    /// Whether guesses decide part of what the launch executes; `None` if that is not known (its
    /// basis is not `work`).
    pub work_assumed: Option<bool>,
    /// The models' prediction.
    pub prediction: Option<Prediction>,
    /// The computed figures.
    pub computed: Option<Computed>,
    /// For a what-if, the share of the launch's duration that the change saves; below 0 if it costs
    /// time.
    pub saves: Option<Figure>,
    /// The reason why nothing is predicted.
    pub error: Option<String>,
    /// The fields of the line; in JSON, those that no other member has.
    #[serde(rename = "input", serialize_with = "unknown_members")]
    pub fields: Fields,
}

/// The figures that follow exactly from launch, kernel and device.
#[derive(Clone, Debug, Serialize)]
pub struct Computed {
    /// Share of the lanes of a block's warps that hold a thread.
    pub block_efficiency: f64,
    /// Theoretical occupancy. It takes the kernel's attributes, like all that follows.
    pub theoretical_occupancy: Option<f64>,
    /// The resources that limit it.
    pub limiters: Option<Vec<&'static str>>,
    /// Blocks over what the device holds at once.
    pub waves: Option<f64>,
    /// Share of block slots empty over all waves.
    pub tail_effect: Option<f64>,
}

impl Computed {
    fn of(placed: &Placed<'_>) -> Self {
        let known = placed.case.kernel.is_some();
        let warp = placed.device.limits.attributes.warp_size;
        // A launch that can run has at most 1024.
        let threads = u32::try_from(placed.case.launch.threads_per_block()).unwrap_or(u32::MAX);
        Self {
            block_efficiency: occupancy::block_efficiency(threads, warp),
            theoretical_occupancy: known.then(|| placed.occupancy.fraction()),
            limiters: known.then(|| placed.occupancy.limiters().map(Limiter::name).collect()),
            waves: known.then_some(placed.waves.waves),
            tail_effect: known.then(|| placed.waves.tail_effect()),
        }
    }
}

/// A kernel of whose bounds nothing is known has those that its registers set, as the driver would
/// say.
pub fn bounded(kernel: FunctionAttributes, device: &Device) -> FunctionAttributes {
    if kernel.max_threads_per_block > 0 {
        return kernel;
    }
    let resources = FunctionAttributes { registers: kernel.registers, ..FunctionAttributes::default() };
    let sizes = what_if::block_sizes(&device.limits, &resources, 0);
    let most = sizes.map(|(threads, _)| threads).max().unwrap_or(0);
    FunctionAttributes { max_threads_per_block: most, ..kernel }
}

impl Answer {
    /// Predicts a case.
    pub fn of(models: &Models, device: &Device, case: &Case, asked: &Question) -> Self {
        let measured = asked.measured_us.map(|time| Figure::measured(time * 1e3));
        let said = recorded::prediction(models, device, case, measured);
        Self {
            kernel: asked.name.clone(),
            launch: Some(case.launch),
            attributes: case.kernel,
            work_assumed: case.work.as_ref().map(|work| work.assumed),
            error: said.as_ref().err().map(ToString::to_string),
            prediction: said.ok(),
            computed: Placed::new(device, case).ok().map(|placed| Computed::of(&placed)),
            fields: Question { launch: case.launch, kernel: case.kernel, ..asked.clone() }.fields(),
            ..Self::default()
        }
    }

    /// Predicts what a line asks; where the line is wrong, says so.
    pub fn of_line(models: &Models, device: &Device, line: Line) -> Self {
        let answer = match line.asked {
            Ok(asked) => {
                let kernel = asked.kernel.map(|kernel| bounded(kernel, device));
                let case = Case { kernel, ..Case::of_launch(asked.launch) };
                Self::of(models, device, &case, &asked)
            }
            Err(why) => Self { error: Some(why), ..Self::default() },
        };
        Self { line: Some(line.number), fields: line.fields, ..answer }
    }

    /// A change that gives no launch: why not.
    pub fn without_change(asked: &Question, why: String) -> Self {
        let kernel = asked.name.clone();
        Self { kernel, what_if: true, error: Some(why), fields: asked.fields(), ..Self::default() }
    }

    /// Predicts a change of a launch: from its measured time, or else from its predicted one, whose
    /// interval then adds to that of the change.
    pub fn of_change(models: &Models, device: &Device, from: &Case, to: &Case, asked: &Question) -> Self {
        let mut answer = Self::of(models, device, to, &Question { measured_us: None, ..asked.clone() });
        answer.what_if = true;
        let before = match asked.measured_us {
            Some(time) => Some(Estimate { value: time, low: time, high: time }),
            None => models.predict(device, from).ok().map(|said| said.duration_us),
        };
        if let (Some(before), Some(prediction)) = (before, &mut answer.prediction)
            && let Ok(expected) = models.what_if(device, from, before.value, to)
        {
            let Estimate { value, low, high } = expected;
            let (below, above) = (before.low / before.value, before.high / before.value);
            let floor_us = Placed::new(device, to).map_or(0.0, |placed| placed.floor_us());
            let duration_us = Estimate { value, low: low * below, high: high * above }.at_least(floor_us);
            prediction.duration_ns = Some(figure(duration_us).scaled(1e3));
            answer.saves = Some(figure(expected).scaled(1.0 / before.value).complement());
        }
        answer
    }
}

fn launch_members<S: Serializer>(launch: &Option<LaunchConfig>, serializer: S) -> Result<S::Ok, S::Error> {
    let members = |launch: &LaunchConfig| {
        json!({
            "grid": launch.grid.to_array(),
            "block": launch.block.to_array(),
            "dynamic_shared_bytes": launch.dynamic_shared_bytes,
        })
    };
    launch.as_ref().map(members).serialize(serializer)
}

fn kernel_members<S: Serializer>(
    kernel: &Option<FunctionAttributes>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let members = |kernel: &FunctionAttributes| {
        json!({
            "registers": kernel.registers,
            "static_shared_bytes": kernel.static_shared_bytes,
            "local_bytes": kernel.local_bytes,
            "max_threads_per_block": kernel.max_threads_per_block,
        })
    };
    kernel.as_ref().map(members).serialize(serializer)
}

fn unknown_members<S: Serializer>(fields: &Fields, serializer: S) -> Result<S::Ok, S::Error> {
    let unknown = fields.iter().filter(|(name, _)| !KNOWN.contains(&name.as_str()));
    serializer.collect_map(unknown.map(|(name, value): &(String, Value)| (name, value)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use apex_predict::lines::Lines;
    use proptest::prelude::*;

    /// All lines of a text.
    fn lines(text: impl AsRef<[u8]>) -> Result<Vec<Line>, String> {
        let mut lines = Lines::new(text.as_ref())?;
        let all = std::iter::from_fn(|| lines.next_line().expect("memory can be read"));
        Ok(all.collect())
    }

    #[test]
    fn registers_bound_a_block_that_nothing_else_bounds() {
        let most = |registers, max_threads_per_block| {
            let kernel =
                FunctionAttributes { registers, max_threads_per_block, ..FunctionAttributes::default() };
            bounded(kernel, &Device::h200()).max_threads_per_block
        };
        // 65,536 registers, in units of 256 for a warp, spread over four partitions.
        assert_eq!((most(24, 0), most(64, 0), most(128, 0), most(255, 0)), (1024, 1024, 512, 256));
        assert_eq!((most(24, 128), most(300, 0)), (128, 0));
    }

    proptest! {
        /// Random lines that look like launches get one answer each.
        #[test]
        fn random_launches_are_answered(
            rows in proptest::collection::vec(proptest::collection::vec("(|-?[0-9]{1,12}|[0-9]+\\.[0-9]|\"[,x\n]\"|[a-z]|NaN)", 4), 1..20),
        ) {
            let text: String = rows.iter().map(|row| row.join(",") + "\n").collect();
            let found = lines(format!("grid_x,block_x,registers,dynamic_shared_bytes\n{text}")).unwrap();
            let blank = |row: &&Vec<String>| row.iter().all(String::is_empty);
            prop_assert_eq!(found.len(), rows.len());
            prop_assert!(rows.iter().filter(blank).count() <= found.iter().filter(|line| line.asked.is_err()).count());
            let (models, device) = (Models::shipped(), Device::h200());
            for line in found {
                let number = line.number;
                let answer = Answer::of_line(&models, &device, line);
                prop_assert_eq!(answer.line, Some(number));
                prop_assert!(answer.prediction.is_some() != answer.error.is_some());
            }
        }
    }
}
