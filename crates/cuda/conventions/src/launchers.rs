//! Which rank of a distributed job a process is, from the variables that its launcher sets.
//!
//! [`rank`] is a pure function of a lookup of variables, so that a program's own environment, the
//! variables that a session recorded and a test can all be asked. It reads nothing else, and it
//! accepts only what is certain: a launcher that says no rank is no launcher, and a rank that
//! cannot be right is [`Refused`] with the reason.
//!
//! Launchers nest, and the variables of the outer ones are inherited. The order is:
//!
//! 1. torchrun and DeepSpeed, recognised by variables of their own: they start the processes that
//!    form the process group, whatever has started them.
//! 2. `RANK` with `WORLD_SIZE` (set by a script, or by a library that starts processes), and MPI's
//!    launchers: the one with the larger world, because a nested launcher multiplies processes. Of
//!    equal worlds, `RANK` counts, because it is what the program reads.
//! 3. Slurm's steps. The script of `sbatch` itself has `SLURM_PROCID` too (always 0), but belongs
//!    to no step: it is no rank.

use std::fmt;

/// Maximum number of processes of a job.
pub const MAX_WORLD_SIZE: u32 = 1 << 24;
/// Maximum length of a job's name, bytes.
pub const MAX_JOB_BYTES: usize = 128;

/// Identity of a process in a distributed job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rank {
    /// Number among the processes of the job, from 0.
    pub rank: u32,
    /// Number among the job's processes on this host, from 0; `None` if the launcher does not say.
    pub local_rank: Option<u32>,
    /// Processes of the job; `None` if the launcher does not say. Greater than `rank`.
    pub world_size: Option<u32>,
    /// How often the launcher had restarted the job's processes before this one.
    pub restarts: u32,
    /// Who assigned the rank.
    pub launcher: Launcher,
    /// The job's name, equal on all of its ranks: torchrun's run identifier, Slurm's job and step
    /// (`1234.0`), or PMIx's namespace. `None` if no launcher gives one.
    pub job: Option<String>,
}

/// Who assigned a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Launcher {
    /// torchrun, `accelerate launch` on several processes, and everything else that uses PyTorch's
    /// elastic agent.
    Torchrun,
    /// DeepSpeed's launcher.
    DeepSpeed,
    /// A script or a library that sets `RANK` and `WORLD_SIZE`.
    Environment,
    /// Open MPI's mpirun.
    OpenMpi,
    /// MVAPICH2's launcher.
    Mvapich,
    /// Hydra: mpiexec of MPICH and of Intel MPI.
    Hydra,
    /// Horovod's launcher without MPI.
    Horovod,
    /// A launcher of PMIx without variables of its own.
    Pmix,
    /// Flux.
    Flux,
    /// Slurm's srun.
    Slurm,
}

impl Launcher {
    /// The name that sessions and documents use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Torchrun => "torchrun",
            Self::DeepSpeed => "deepspeed",
            Self::Environment => "environment",
            Self::OpenMpi => "openmpi",
            Self::Mvapich => "mvapich",
            Self::Hydra => "hydra",
            Self::Horovod => "horovod",
            Self::Pmix => "pmix",
            Self::Flux => "flux",
            Self::Slurm => "slurm",
        }
    }
}

/// Why a process has no rank although a launcher's variables are set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The variable that cannot be right.
    pub variable: &'static str,
    reason: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.variable, self.reason)
    }
}

impl std::error::Error for Refused {}

/// The variables by which a launcher tells a process its rank. An empty name: there is none.
struct Family {
    launcher: Launcher,
    /// A variable without which the others are somebody else's.
    marker: &'static str,
    rank: &'static str,
    local_rank: &'static str,
    world_size: &'static str,
}

const fn family(
    launcher: Launcher,
    marker: &'static str,
    [rank, local_rank, world_size]: [&'static str; 3],
) -> Family {
    Family { launcher, marker, rank, local_rank, world_size }
}

const OF_TORCH: [&str; 3] = ["RANK", "LOCAL_RANK", "WORLD_SIZE"];

/// They start the processes of the process group.
const INNERMOST: [Family; 2] = [
    family(Launcher::Torchrun, "TORCHELASTIC_RUN_ID", OF_TORCH),
    family(Launcher::DeepSpeed, "CROSS_RANK", OF_TORCH),
];

/// Of these, the one with the largest world counts, and of equal ones the first.
const BETWEEN: [Family; 6] = [
    family(Launcher::Environment, "WORLD_SIZE", OF_TORCH),
    family(
        Launcher::OpenMpi,
        "OMPI_COMM_WORLD_SIZE",
        ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"],
    ),
    family(
        Launcher::Mvapich,
        "MV2_COMM_WORLD_SIZE",
        ["MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_SIZE"],
    ),
    family(Launcher::Hydra, "PMI_SIZE", ["PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE"]),
    family(Launcher::Horovod, "HOROVOD_SIZE", ["HOROVOD_RANK", "HOROVOD_LOCAL_RANK", "HOROVOD_SIZE"]),
    family(Launcher::Flux, "FLUX_JOB_SIZE", ["FLUX_TASK_RANK", "FLUX_TASK_LOCAL_ID", "FLUX_JOB_SIZE"]),
];

/// They start the launchers above, or programs that none of them starts.
const OUTERMOST: [Family; 2] = [
    family(Launcher::Slurm, "SLURM_STEP_ID", ["SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_NUM_TASKS"]),
    family(Launcher::Pmix, "PMIX_RANK", ["PMIX_RANK", "", ""]),
];

/// Further variables that [`rank`] reads.
const OTHERS: [&str; 8] = [
    "FLUX_JOB_ID",
    "PMIX_NAMESPACE",
    "SLURM_JOB_ID",
    "SLURM_NTASKS",
    "SLURM_RESTART_COUNT",
    "SLURM_STEP_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_RUN_ID",
];

/// The step identifier that Slurm gives the script of `sbatch` (`SLURM_BATCH_SCRIPT`), and those
/// of other steps without tasks of the job's own, are not below this.
const FIRST_SPECIAL_STEP: u64 = 0xffff_fff0;

/// Every variable that [`rank`] reads, sorted.
pub fn variables() -> Vec<&'static str> {
    let of = |family: &Family| [family.marker, family.rank, family.local_rank, family.world_size];
    let families = INNERMOST.iter().chain(&BETWEEN).chain(&OUTERMOST);
    let mut all: Vec<_> = families.flat_map(of).chain(OTHERS).filter(|name| !name.is_empty()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The rank of a process whose environment has these variables; `None` if no launcher gave it one.
///
/// # Errors
///
/// A launcher's variables contradict each other, or are no numbers.
pub fn rank(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Rank>, Refused> {
    let variable = &variable;
    let first = |families: &[Family]| {
        families.iter().find_map(|family| of_family(family, variable).transpose()).transpose()
    };
    let found = match first(&INNERMOST)? {
        Some(rank) => Some(rank),
        None => match between(variable)? {
            Some(rank) => Some(rank),
            None => first(&OUTERMOST)?,
        },
    };
    let Some(rank) = found else { return Ok(None) };
    Ok(Some(Rank { restarts: restarts(rank.launcher, variable)?, job: job(variable)?, ..rank }))
}

fn between(variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<Rank>, Refused> {
    let mut best: Option<Rank> = None;
    for family in &BETWEEN {
        let rank = of_family(family, variable)?;
        if rank.as_ref().map(|rank| rank.world_size) > best.as_ref().map(|best| best.world_size) {
            best = rank;
        }
    }
    Ok(best)
}

/// The rank that a launcher gives, without the job.
fn of_family(family: &Family, variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<Rank>, Refused> {
    let Some(of_rank) = set(family.rank, variable) else { return Ok(None) };
    let Some(marker) = set(family.marker, variable) else { return Ok(None) };
    if family.launcher == Launcher::Slurm && marker.parse().is_ok_and(|step: u64| step >= FIRST_SPECIAL_STEP)
    {
        return Ok(None);
    }
    let rank = number(family.rank, &of_rank)?;
    let local_rank = number_of(family.local_rank, variable)?;
    let world_size = world_size(family, variable)?;
    let beyond = |name, value: Option<u32>| match (value, world_size) {
        (Some(value), Some(world)) if value >= world => Err(Refused {
            variable: name,
            reason: format!("{value} is no rank among {world} processes ({})", family.world_size),
        }),
        _ => Ok(()),
    };
    beyond(family.rank, Some(rank))?;
    beyond(family.local_rank, local_rank)?;
    let launcher = family.launcher;
    Ok(Some(Rank { rank, local_rank, world_size, restarts: 0, launcher, job: None }))
}

fn world_size(family: &Family, variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<u32>, Refused> {
    let mut size = number_of(family.world_size, variable)?;
    if family.launcher == Launcher::Slurm && size.is_none() {
        size = number_of("SLURM_NTASKS", variable)?;
    }
    match size {
        Some(world) if world > MAX_WORLD_SIZE => Err(Refused {
            variable: family.world_size,
            reason: format!("{world} is more than {MAX_WORLD_SIZE} processes"),
        }),
        size => Ok(size),
    }
}

/// How often the job was restarted by the launcher of a process, which otherwise is Slurm.
fn restarts(launcher: Launcher, variable: &dyn Fn(&str) -> Option<String>) -> Result<u32, Refused> {
    let name = match launcher {
        Launcher::Torchrun => "TORCHELASTIC_RESTART_COUNT",
        _ => "SLURM_RESTART_COUNT",
    };
    Ok(number_of(name, variable)?.unwrap_or(0))
}

/// The name that the innermost launcher gives the job. torchrun's is `none` if nobody chose one.
fn job(variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<String>, Refused> {
    let named = |name| set(name, variable).map(|job| checked_job(name, job)).transpose();
    if let Some(run) = named("TORCHELASTIC_RUN_ID")?.filter(|run| run != "none") {
        return Ok(Some(run));
    }
    if let Some(job) = named("SLURM_JOB_ID")? {
        return Ok(Some(match named("SLURM_STEP_ID")? {
            Some(step) => format!("{job}.{step}"),
            None => job,
        }));
    }
    Ok(named("FLUX_JOB_ID")?.or(named("PMIX_NAMESPACE")?))
}

fn checked_job(variable: &'static str, job: String) -> Result<String, Refused> {
    let fault = if job.len() > MAX_JOB_BYTES {
        format!("a job's name has at most {MAX_JOB_BYTES} bytes, this one has {}", job.len())
    } else if !job.bytes().all(|byte| byte.is_ascii_graphic()) {
        "a job's name has printable ASCII characters without spaces".to_owned()
    } else {
        return Ok(job);
    };
    Err(Refused { variable, reason: fault })
}

/// The value of a variable; an empty one is none.
fn set(name: &str, variable: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    variable(name).filter(|value| !name.is_empty() && !value.is_empty())
}

fn number_of(name: &'static str, variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<u32>, Refused> {
    set(name, variable).map(|value| number(name, &value)).transpose()
}

/// A decimal number without sign.
fn number(variable: &'static str, value: &str) -> Result<u32, Refused> {
    let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    value.parse().ok().filter(|_| digits).ok_or_else(|| Refused {
        variable,
        reason: format!("{:?} is no rank or number of processes", shortened(value)),
    })
}

/// The beginning of a value, for a message.
fn shortened(value: &str) -> String {
    value.chars().take(24).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &str) -> Result<Option<Rank>, Refused> {
        let pairs: Vec<_> = variables.split_whitespace().map(|pair| pair.split_once('=').unwrap()).collect();
        rank(|name| {
            assert!(super::variables().contains(&name) || name.is_empty(), "{name} is not listed");
            pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    /// Launcher, rank, local rank, world, restarts and job in a line.
    fn said(variables: &str) -> String {
        let Some(rank) = of(variables).unwrap() else { return "none".to_owned() };
        let or = |number: Option<u32>| number.map_or("?".to_owned(), |number| number.to_string());
        format!(
            "{} {} {} {} {} {}",
            rank.launcher.name(),
            rank.rank,
            or(rank.local_rank),
            or(rank.world_size),
            rank.restarts,
            rank.job.as_deref().unwrap_or("?")
        )
    }

    const TORCHRUN: &str =
        "RANK=5 LOCAL_RANK=1 WORLD_SIZE=8 TORCHELASTIC_RESTART_COUNT=2 TORCHELASTIC_RUN_ID=";

    #[test]
    fn each_launcher_gives_its_rank() {
        assert_eq!(said(""), "none");
        assert_eq!(said(&format!("{TORCHRUN}run7")), "torchrun 5 1 8 2 run7");
        assert_eq!(said(&format!("{TORCHRUN}none")), "torchrun 5 1 8 2 ?");
        assert_eq!(said("RANK=1 LOCAL_RANK=1 WORLD_SIZE=2 CROSS_RANK=0"), "deepspeed 1 1 2 0 ?");
        assert_eq!(said("RANK=1 WORLD_SIZE=2"), "environment 1 ? 2 0 ?");
        let open = "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_SIZE=4 PMIX_RANK=3";
        assert_eq!(said(&format!("{open} PMIX_NAMESPACE=prterun-a-7@1")), "openmpi 3 1 4 0 prterun-a-7@1");
        assert_eq!(said("PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=0"), "hydra 1 0 2 0 ?");
        assert_eq!(said("MV2_COMM_WORLD_RANK=1 MV2_COMM_WORLD_SIZE=2"), "mvapich 1 ? 2 0 ?");
        assert_eq!(said("HOROVOD_RANK=1 HOROVOD_SIZE=2 HOROVOD_LOCAL_RANK=1"), "horovod 1 1 2 0 ?");
        assert_eq!(said("FLUX_TASK_RANK=1 FLUX_JOB_SIZE=2 FLUX_JOB_ID=f2"), "flux 1 ? 2 0 f2");
        assert_eq!(said("PMIX_RANK=1 PMIX_NAMESPACE=n"), "pmix 1 ? ? 0 n");
        let slurm = "SLURM_PROCID=3 SLURM_LOCALID=1 SLURM_NTASKS=9 SLURM_STEP_NUM_TASKS=4 SLURM_JOB_ID=77";
        assert_eq!(said(&format!("{slurm} SLURM_STEP_ID=0")), "slurm 3 1 4 0 77.0");
        assert_eq!(said("SLURM_PROCID=3 SLURM_STEP_ID=1 SLURM_NTASKS=9"), "slurm 3 ? 9 0 ?");
    }

    #[test]
    fn the_script_of_sbatch_is_no_rank() {
        let script = "SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NTASKS=4 SLURM_JOB_ID=77";
        assert_eq!(said(script), "none");
        assert_eq!(said(&format!("{script} SLURM_STEP_ID=4294967291")), "none");
    }

    #[test]
    fn the_inner_one_of_nested_launchers_counts() {
        let step = "SLURM_PROCID=1 SLURM_LOCALID=0 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_ID=0 SLURM_JOB_ID=77";
        assert_eq!(said(&format!("{step} {TORCHRUN}none")), "torchrun 5 1 8 2 77.0");
        assert_eq!(said(&format!("{step} PMI_RANK=1 PMI_SIZE=2")), "hydra 1 ? 2 0 77.0");
        // A sweep: sixteen independent jobs of two processes in one step.
        let sweep = "SLURM_PROCID=9 SLURM_STEP_NUM_TASKS=16 SLURM_STEP_ID=0 SLURM_JOB_ID=77";
        let of_sweep = said(&format!("{sweep} RANK=1 WORLD_SIZE=2 TORCHELASTIC_RUN_ID=u8"));
        assert_eq!(of_sweep, "torchrun 1 ? 2 0 u8");
        // Processes that mpirun starts in a container which has a rank of its own, and processes
        // that a library starts in a rank of mpirun.
        let open = "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE";
        assert_eq!(said(&format!("RANK=0 WORLD_SIZE=2 {open}=8")), "openmpi 1 ? 8 0 ?");
        assert_eq!(said(&format!("RANK=5 WORLD_SIZE=8 {open}=2")), "environment 5 ? 8 0 ?");
        assert_eq!(said(&format!("RANK=1 WORLD_SIZE=2 {open}=2")), "environment 1 ? 2 0 ?");
    }

    #[test]
    fn what_is_incomplete_is_no_launchers() {
        assert_eq!(said("RANK=3"), "none");
        assert_eq!(said("WORLD_SIZE=3 LOCAL_RANK=1"), "none");
        assert_eq!(said("RANK= WORLD_SIZE=2"), "none");
        assert_eq!(said("PMI_RANK=1 PMIX_RANK=1"), "pmix 1 ? ? 0 ?");
    }

    #[test]
    fn what_cannot_be_right_is_refused_with_the_reason() {
        let refused = |variables: &str| of(variables).unwrap_err().to_string();
        assert_eq!(refused("RANK=8 WORLD_SIZE=8"), "RANK: 8 is no rank among 8 processes (WORLD_SIZE)");
        let local = "LOCAL_RANK: 3 is no rank among 2 processes (WORLD_SIZE)";
        assert_eq!(refused("RANK=1 LOCAL_RANK=3 WORLD_SIZE=2"), local);
        for bad in ["-1", "+1", "1.0", "0x1", "4294967296", "x"] {
            let said = refused(&format!("RANK={bad} WORLD_SIZE=2"));
            assert_eq!(said, format!("RANK: {bad:?} is no rank or number of processes"));
        }
        assert_eq!(refused("RANK=0 WORLD_SIZE=0"), "RANK: 0 is no rank among 0 processes (WORLD_SIZE)");
        assert!(refused("RANK=0 WORLD_SIZE=16777217").contains("more than 16777216"));
        let job = format!("{TORCHRUN}{}", "x".repeat(129));
        assert_eq!(
            refused(&job),
            "TORCHELASTIC_RUN_ID: a job's name has at most 128 bytes, this one has 129"
        );
        assert!(refused(&format!("{TORCHRUN}caf\u{e9}")).contains("printable ASCII"));
        let long = refused(&format!("RANK={} WORLD_SIZE=2", "9".repeat(10_000)));
        assert!(long.len() < 100, "{long}");
    }
}
