//! Programs of many processes and threads: one session.

use crate::common::{Sandbox, launches, output, program};
use apex_trace::Session;

#[test]
fn threads_forks_children_and_execs_are_one_session() {
    let sandbox = Sandbox::new();
    let words = [
        "fork", "11", "launch", "100", "threads", "8", "50", "exec", "launch", "23", "spawn", "launch", "31",
    ];
    sandbox.recorded(&[], &words);
    let session = Session::open(sandbox.path("s")).unwrap();
    let mut counts: Vec<_> = session.processes.iter().map(launches).collect();
    counts.sort_unstable();
    assert_eq!(counts, [11, 23, 31, 500]);
    let threads = session.processes.iter().map(|process| process.threads.len()).max();
    assert_eq!(threads, Some(9), "the first and eight more");
    let totals = &sandbox.json(&["report", "--json", "s"])["profile"]["totals"];
    assert_eq!(totals["launches"], 565);
}

#[test]
fn a_shell_pipeline_is_one_session() {
    let sandbox = Sandbox::new();
    let program = program().display().to_string();
    // The shell does not know the second one, so that it cannot wait for it.
    let script = format!(
        "{program} launch 5 | cat; ({{ {program} launch 6; touch done; }} &) ; {program} launch 7; \
         until test -e done; do sleep 0.05; done"
    );
    output(&mut sandbox.apex(&["run", "--device", "cpu", "-o", "s", "--", "sh", "-c", &script]), 0);
    assert_eq!(sandbox.launches("s"), 18);
}
