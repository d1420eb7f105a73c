//! Known causes: variables of the environment from the program to the report, and files of users.

use crate::common::*;

const OURS: &str = r#"
[[cause]]
id = "ours-slow-copy"
title = "Our slow copy"
meaning = "it copies everything twice"
source = "https://example.com/copies"
remedy.any = "Use our fast copy"
saves = [0.3, 0.6, 0.7]
check = "kernels slow_copy disappear"
match = { kernels = ["slow_copy*"] }
example = { kernel = "slow_copy" }
"#;

#[test]
fn a_session_keeps_the_variables_of_the_table_and_no_others() {
    let sandbox = Sandbox::new();
    let mut run = sandbox.record(&[], &["launch", "3"]);
    output(
        run.env("CUDA_LAUNCH_BLOCKING", "1").env("NCCL_ALGO", "x".repeat(2000)).env("MY_TOKEN", "secret"),
        0,
    );
    let report = sandbox.json(&["report", "s", "--json"]);
    let environment = &report["profile"]["processes"][0]["environment"];
    assert_eq!(environment["CUDA_LAUNCH_BLOCKING"], "1");
    let cut = environment["NCCL_ALGO"].as_str().unwrap();
    assert_eq!(cut.len(), apex_trace::environment::MAX_VALUE_BYTES);
    let names = environment.as_object().unwrap().keys();
    assert!(
        names.clone().all(|name| {
            let kept = apex_trace::environment::NAMES.iter().chain(apex_trace::environment::OF_LAUNCHERS);
            kept.into_iter().any(|known| known == name)
        }),
        "{environment}"
    );
    assert!(!report.to_string().contains("secret"));
    let findings = report["advice"]["findings"].as_array().unwrap();
    assert!(findings.iter().any(|finding| finding["cause"]["id"] == "launch-blocking"), "{findings:?}");
}

fn with_a_slow_copy(sandbox: &Sandbox) {
    h200_session(&sandbox.path("s"), &[("slow_copy", 1000, 256, 90_000), ("other", 1000, 256, 10_000)]);
}

#[test]
fn a_users_file_names_causes() {
    let sandbox = Sandbox::new();
    with_a_slow_copy(&sandbox);
    std::fs::write(sandbox.path("ours.toml"), OURS).unwrap();
    let of = |arguments: &[&str]| sandbox.json(arguments)["advice"]["findings"][0].clone();
    let finding = of(&["advise", "--json", "--knowledge", "ours.toml", "s"]);
    assert_eq!(finding["cause"]["id"], "ours-slow-copy");
    assert_eq!(finding["change"], "Use our fast copy");
    assert_ne!(of(&["advise", "--json", "s"])["cause"]["id"], "ours-slow-copy");
    let folder = sandbox.path("config/apex/knowledge");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("ours.toml"), OURS).unwrap();
    let mut advise = sandbox.apex(&["advise", "s"]);
    let told = output(advise.env("XDG_CONFIG_HOME", sandbox.path("config")), 0);
    assert!(text(&told.stdout).contains("Our slow copy"), "{}", text(&told.stdout));
}

#[test]
fn a_broken_file_is_refused_with_its_line() {
    let sandbox = Sandbox::new();
    with_a_slow_copy(&sandbox);
    std::fs::write(sandbox.path("ours.toml"), OURS.replace("\"slow_copy\"", "\"fast_copy\"")).unwrap();
    let told = output(&mut sandbox.apex(&["advise", "--knowledge", "ours.toml", "s"]), 125);
    let message = text(&told.stderr);
    assert!(message.contains("ours.toml:2: cause `ours-slow-copy`"), "{message}");
    let told = output(&mut sandbox.apex(&["advise", "--knowledge", "none.toml", "s"]), 125);
    assert!(text(&told.stderr).contains("none.toml"), "{}", text(&told.stderr));
}
