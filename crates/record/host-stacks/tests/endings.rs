//! Programs that fork, become other programs, end and are killed while they are sampled: neither
//! they nor the sampler take harm. `APEX_HOST_STACKS_ROUNDS=1000` runs more than the usual rounds.

use apex_host_stacks::{HostStacks, Options, Sampler};
use apex_random::Random;
use apex_untrusted::Folder;
use std::process::Stdio;
use std::time::Duration;
use test_process::Command;

/// Rounds unless the variable says another number.
const ROUNDS: u64 = 12;
/// Rounds at most: a busy machine takes few samples in each.
const MOST_ROUNDS: u64 = 120;

#[test]
fn endings_at_any_moment_harm_neither_the_program_nor_the_sampler() {
    let rounds = std::env::var("APEX_HOST_STACKS_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    let rounds: u64 = rounds.unwrap_or(ROUNDS);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/ends.py");
    let mut random = Random::new(0x6e64);
    let (mut samples, mut ended) = (0, 0);
    for round in 0..rounds.max(MOST_ROUNDS) {
        if round >= rounds && samples > 100 && ended > 0 {
            break;
        }
        let mut command = Command::new("python3");
        command.args([script, &round.to_string(), "12"]).stdout(Stdio::null());
        let Ok(mut child) = command.spawn() else {
            test_skip::missing_dependency("no python3");
            return;
        };
        let dir = tempfile::tempdir().unwrap();
        let options = Options { period: Duration::from_millis(1), ..Options::default() };
        let pid = child.id();
        let sampler = Sampler::start(Folder::open(dir.path()).unwrap(), options, move || vec![pid]).unwrap();
        let is_killed = random.below(2) == 0;
        if is_killed {
            std::thread::sleep(Duration::from_millis(random.below(300)));
            child.kill().unwrap();
        }
        let status = child.wait().unwrap();
        assert!(is_killed || status.code() == Some(42), "round {round}: {status}");
        ended += u32::from(!is_killed);
        sampler.finish().unwrap_or_else(|error| panic!("round {round}: {error}"));
        let stacks = HostStacks::read(dir.path());
        assert_eq!(stacks.problems, Vec::<String>::new(), "round {round}");
        samples += stacks.counters.samples;
    }
    assert!(samples > 100 && ended > 0, "{samples} samples, {ended} programs ended by themselves");
}
