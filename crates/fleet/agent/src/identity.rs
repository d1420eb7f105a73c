//! The identity of a recording: identifier, job, owner, host, code version.

use apex_aggregate::{Allocation, Job, MOST_DEVICES, shortened};
use apex_conventions::launchers;
use apex_untrusted::read;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Most bytes of a file of a repository that is read.
const MOST_REFS: u64 = 16 << 20;
/// Most bytes of the table of users that is read.
const MOST_USERS: u64 = 1 << 20;
/// Variables that list the GPUs which a scheduler gave on this host, the surest first: those of the
/// job by Slurm, then those that the program may see.
const ALLOCATIONS: [&str; 4] =
    ["SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"];
/// Run identifier of torchrun if the user gives none: it is no name of a job.
const NO_RUN: &str = "none";

/// Identity of a recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Identity {
    /// 32 hexadecimal digits of the system's random generator.
    pub recording: String,
    /// The job.
    pub job: Job,
    /// The user.
    pub owner: String,
    /// The commit that is checked out in the program's folder.
    pub code_version: String,
    /// GPUs that the scheduler gave.
    pub allocation: Option<Allocation>,
}

impl Identity {
    /// The identity of a recording that begins now, in this folder. `job` is the name that the user
    /// gives the job; otherwise the launcher's variables tell it, and a recording without either is
    /// a job of its own.
    ///
    /// # Errors
    /// If the system gives no random numbers.
    pub fn of_this(job: Option<&str>, folder: &Path) -> io::Result<Self> {
        let recording = random()?;
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let owner = variable("USER").or_else(|| variable("LOGNAME")).unwrap_or_else(user);
        let job = job_of(job, &recording, variable);
        Ok(Self {
            recording,
            job,
            owner: shortened(&owner),
            code_version: commit(folder).unwrap_or_default(),
            allocation: allocation(variable),
        })
    }
}

/// The job by its user's name for it, by the launcher's, or by the recording's.
fn job_of(named: Option<&str>, recording: &str, variable: impl Fn(&str) -> Option<String>) -> Job {
    // A launcher whose variables contradict each other tells nothing.
    let rank = launchers::rank(&variable).ok().flatten();
    let launched = rank.as_ref().and_then(|rank| rank.job.clone()).filter(|job| job != NO_RUN);
    let launched = launched.or_else(|| variable("SLURM_JOB_ID"));
    let id = named.map(str::to_owned).or(launched).unwrap_or_else(|| recording.to_owned());
    Job {
        id: shortened(&id),
        launcher: rank.as_ref().map_or(String::new(), |rank| rank.launcher.name().to_owned()),
        rank: rank.as_ref().map(|rank| rank.rank),
        ranks: rank.and_then(|rank| rank.world_size).unwrap_or(0),
    }
}

/// The GPUs that a scheduler gave: indices (`0,1`, `0-3`) or UUIDs. Words such as `all` say nothing
/// of their number.
fn allocation(variable: impl Fn(&str) -> Option<String>) -> Option<Allocation> {
    ALLOCATIONS.iter().find_map(|&source| {
        let devices: Vec<String> =
            variable(source)?.split(',').map(listed).collect::<Option<Vec<_>>>()?.concat();
        let is_possible = (1..=MOST_DEVICES).contains(&devices.len());
        is_possible.then(|| Allocation { source: source.to_owned(), devices })
    })
}

/// The devices of an entry of a list; `None` if it names none.
fn listed(entry: &str) -> Option<Vec<String>> {
    let entry = entry.trim();
    if entry.starts_with("GPU-") || entry.starts_with("MIG-") {
        return Some(vec![shortened(entry)]);
    }
    let (first, last) = entry.split_once('-').unwrap_or((entry, entry));
    let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last && usize::from(last - first) < MOST_DEVICES)
        .then(|| (first..=last).map(|index| index.to_string()).collect())
}

/// The user of this process, where the environment does not name it.
fn user() -> String {
    let uid = std::fs::metadata("/proc/self").map_or(0, |found| found.uid());
    let users = read::read_to_string(Path::new("/etc/passwd"), MOST_USERS).unwrap_or_default();
    let name = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == uid.to_string()).then(|| name.to_owned())
    });
    name.unwrap_or_else(|| format!("user {uid}"))
}

fn random() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The commit that is checked out in a folder or around it. Only files of the repository are read.
fn commit(folder: &Path) -> Option<String> {
    let git = folder.ancestors().map(|folder| folder.join(".git")).find(|git| git.is_dir())?;
    let text = |name: &str| read::read_to_string(&git.join(name), MOST_REFS).ok();
    let head = text("HEAD")?;
    let Some(name) = head.trim().strip_prefix("ref: ") else { return hash(head.trim()) };
    let is_plain = !name.starts_with('/') && !name.split('/').any(|part| part == "..");
    let loose = is_plain.then(|| text(name)).flatten().and_then(|text| hash(text.trim()));
    loose.or_else(|| {
        let packed = text("packed-refs")?;
        packed.lines().find_map(|line| hash(line.strip_suffix(name)?.strip_suffix(' ')?))
    })
}

/// The text, if it is a hash.
fn hash(text: &str) -> Option<String> {
    let is_hash = matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_commit_is_read_from_the_repository_around_a_folder() {
        let root = tempfile::tempdir().unwrap();
        let (git, inside) = (root.path().join(".git"), root.path().join("a/b"));
        fs::create_dir_all(git.join("refs/heads")).unwrap();
        fs::create_dir_all(&inside).unwrap();
        let [one, two, three] = ["1", "2", "3"].map(|digit| digit.repeat(40));
        fs::write(git.join("HEAD"), format!("{one}\n")).unwrap();
        assert_eq!(commit(&inside), Some(one));
        fs::write(git.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        assert_eq!(commit(&inside), None);
        fs::write(
            git.join("packed-refs"),
            format!("# pack\n{three} refs/heads/maintain\n{two} refs/heads/main\n"),
        )
        .unwrap();
        assert_eq!(commit(&inside), Some(two));
        fs::write(git.join("refs/heads/main"), format!("{three}\n")).unwrap();
        assert_eq!(commit(&inside), Some(three.clone()));
        fs::write(git.join("HEAD"), "ref: ../../etc/passwd\n").unwrap();
        assert_eq!(commit(&inside), None);
    }

    #[test]
    fn an_allocation_is_what_the_surest_variable_lists() {
        let of = |variables: &[(&str, &str)]| {
            let found = |name: &str| variables.iter().find(|(of, _)| *of == name);
            allocation(|name| found(name).map(|(_, value)| (*value).to_owned()))
                .map(|of| (of.source, of.devices.join(" ")))
        };
        let says = |source: &str, devices: &str| Some((source.to_owned(), devices.to_owned()));
        assert_eq!(of(&[]), None);
        let both = [("CUDA_VISIBLE_DEVICES", "0"), ("SLURM_JOB_GPUS", "2,4-6")];
        assert_eq!(of(&both), says("SLURM_JOB_GPUS", "2 4 5 6"));
        assert_eq!(of(&both[..1]), says("CUDA_VISIBLE_DEVICES", "0"));
        let container = [("SLURM_JOB_GPUS", "a"), ("NVIDIA_VISIBLE_DEVICES", "GPU-8f, MIG-3")];
        assert_eq!(of(&container), says("NVIDIA_VISIBLE_DEVICES", "GPU-8f MIG-3"));
        for nothing in ["all", "none", "void", "", "-1", "0,", "3-1", "0-99999", "0-64"] {
            assert_eq!(of(&[("NVIDIA_VISIBLE_DEVICES", nothing)]), None, "{nothing}");
        }
    }

    #[test]
    fn a_job_has_the_users_name_or_the_launchers_or_is_alone() {
        let of = |named: Option<&str>, variables: &[(&str, &str)]| {
            let variables: Vec<(String, String)> =
                variables.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
            job_of(named, "r", |name| {
                variables.iter().find(|(of, _)| of == name).map(|(_, value)| value.clone())
            })
        };
        assert_eq!(of(None, &[]), Job { id: "r".to_owned(), ..Job::default() });
        assert_eq!(of(Some("mine"), &[]).id, "mine");
        assert_eq!(of(None, &[("SLURM_JOB_ID", "12")]).id, "12");
        let torch =
            [("TORCHELASTIC_RUN_ID", "none"), ("RANK", "3"), ("WORLD_SIZE", "8"), ("LOCAL_RANK", "3")];
        let job = of(None, &torch);
        assert_eq!(
            (job.id.as_str(), job.rank, job.ranks, job.launcher.as_str()),
            ("r", Some(3), 8, "torchrun")
        );
        assert_eq!(of(None, &[("TORCHELASTIC_RUN_ID", "run7"), torch[1], torch[2], torch[3]]).id, "run7");
    }
}
