//! `apex predict`, and predictions in what the other commands say.

use crate::common::{PTX, Running, Sandbox, h200_session, output, text, wait_until};
use apex_model::network::Network;
use apex_model::{Activation, Model};
use apex_predict::Models;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::Stdio;
use test_process::Command;

/// `apex predict` with these arguments.
fn predict(sandbox: &Sandbox, arguments: &[&str]) -> Command {
    let mut command = sandbox.apex(&["predict"]);
    command.args(arguments);
    command
}

/// The entries of its document.
fn entries(sandbox: &Sandbox, arguments: &[&str]) -> Vec<Value> {
    let printed = output(predict(sandbox, arguments).arg("--json"), 0).stdout;
    let document: Value = serde_json::from_slice(&printed).unwrap();
    assert_eq!(document["schema"], "apex.predict/1");
    document["predictions"].as_array().unwrap().clone()
}

/// The estimate, after its interval was found to hold it.
fn estimate(estimate: &Value) -> f64 {
    let [value, low, high] = ["value", "low", "high"].map(|name| estimate[name].as_f64().unwrap());
    assert!(low <= value && value <= high, "{estimate}");
    assert_eq!(estimate["provenance"], "predicted");
    value
}

/// Replaces the models of a folder by others of random weights, each file in one step.
fn random_models(folder: &Path, seed: u64) {
    for file in Models::FILES {
        let shipped = test_manifest::content(&format!("crates/predict/predict/models/{file}.zst"));
        let like = Model::from_bytes(&shipped).unwrap();
        let (features, targets) = (like.features().clone(), like.network().targets().to_vec());
        let calibrations = vec![None; targets.len()];
        let network = Network::new(features.features.len(), &[4], Activation::Silu, targets, seed).unwrap();
        let model = Model::new(features, network, calibrations, like.notes().to_vec()).unwrap();
        model.save(&folder.join(file)).unwrap();
    }
}

#[test]
fn the_more_is_known_the_more_a_prediction_rests_on() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("fill.ptx"), PTX).unwrap();
    let launch = ["--grid", "1000", "--block", "100"];
    let kernel = ["--registers", "40"];
    let code = ["--ptx", "fill.ptx"];
    let work = ["--arg", "ptr", "--arg", "100000"];
    for (more, basis) in [
        (vec![], "launch"),
        (vec![&kernel[..]], "kernel"),
        (vec![&kernel, &code], "code"),
        (vec![&kernel, &code, &work], "work"),
        (vec![&kernel, &code, &work[..2]], "work"),
    ] {
        let arguments = [&[&launch[..]], &more[..]].concat().concat();
        let entries = entries(&sandbox, &arguments);
        let [entry] = &entries[..] else { panic!("{entries:?}") };
        let said = &entry["prediction"];
        assert_eq!(said["basis"], basis);
        assert!(estimate(&said["duration_ns"]) > 0.0);
        for share in ["achieved_occupancy", "sm_utilisation", "warp_efficiency"] {
            assert!((0.0..=1.0).contains(&estimate(&said[share])), "{said}");
        }
        let guessed = match more.get(2) {
            Some(arguments) => json!(arguments.len() < 4),
            None => Value::Null,
        };
        assert_eq!(entry["work_assumed"], guessed, "without n, a guess decides which threads store");
        let computed = &entry["computed"];
        assert_eq!(computed["block_efficiency"], 100.0 / 128.0);
        match basis {
            "launch" => assert!(computed["theoretical_occupancy"].is_null(), "registers are not known"),
            // 40 registers become 1280 for a warp: 48 of 64 warps.
            _ => assert_eq!(computed["theoretical_occupancy"], 0.75),
        }
        let page = text(&output(&mut predict(&sandbox, &arguments), 0).stdout);
        for part in
            ["<<<1000, 100>>> on an NVIDIA H200", "durationᵖ", "achieved occupancyᵖ", "block efficiencyᶜ"]
        {
            assert!(page.contains(part), "no {part}: {page}");
        }
        assert!(page.lines().all(|line| line.chars().count() <= 100), "{page}");
    }
}

#[test]
fn a_change_is_judged_from_the_measured_time() {
    let sandbox = Sandbox::new();
    let launch = ["--grid", "4096", "--block", "128", "--registers", "32", "--kernel", "saxpy"];
    let changes = ["--what-if", "block=256", "--what-if", "grid=64x64,shared=4K,registers=64"];
    let entries = entries(&sandbox, &[&launch[..], &["--measured", "48.5us"], &changes].concat());
    let [measured, block, grid] = &entries[..] else { panic!("{entries:?}") };
    let said = &measured["prediction"];
    assert_eq!((&measured["what_if"], &measured["kernel"]), (&json!(false), &json!("saxpy")));
    assert_eq!(said["measured_duration_ns"]["value"], 48_500.0);
    assert_eq!(said["measured_duration_ns"]["provenance"], "measured");
    let ratio = 48_500.0 / estimate(&said["duration_ns"]);
    assert!((said["measured_over_predicted"].as_f64().unwrap() / ratio - 1.0).abs() < 1e-9);
    assert_eq!(
        block["launch"],
        json!({"grid": [2048, 1, 1], "block": [256, 1, 1], "dynamic_shared_bytes": 0})
    );
    assert_eq!(
        grid["launch"],
        json!({"grid": [64, 64, 1], "block": [128, 1, 1], "dynamic_shared_bytes": 4096})
    );
    assert_eq!(grid["attributes"]["registers"], 64);
    for change in [block, grid] {
        assert_eq!(change["what_if"], true);
        let saved = 1.0 - estimate(&change["prediction"]["duration_ns"]) / 48_500.0;
        assert!((estimate(&change["saves"]) - saved).abs() < 1e-9, "{change}");
    }
    // A measured time is what the change starts from.
    let slower = self::entries(&sandbox, &[&launch[..], &["--measured", "485us"], &changes].concat());
    let times = [&slower[1], block].map(|entry| estimate(&entry["prediction"]["duration_ns"]));
    assert!(times[0] > times[1], "{times:?}");
    let page = text(&output(&mut predict(&sandbox, &[&launch[..], &changes].concat()), 0).stdout);
    assert!(
        page.contains("What if") && page.contains("savesᵖ") && page.contains("<<<2048, 256>>>"),
        "{page}"
    );
}

#[test]
fn a_file_has_an_answer_for_each_line_and_the_rest_passes_through() {
    let sandbox = Sandbox::new();
    let lines = "tag,grid_x,block_x,registers,error\n\"a, \"\"b\"\"\",100,256,32,old\nbad,x,1,,\nlarge,1,2048,,\nlast,7,32,,\n";
    std::fs::write(sandbox.path("l.csv"), lines).unwrap();
    let printed = output(&mut predict(&sandbox, &["l.csv", "--csv"]), 1);
    let rows: Vec<_> = text(&printed.stdout).lines().map(str::to_owned).collect();
    assert!(rows[0].starts_with("tag,grid_x,block_x,registers,predicted_duration_us,"), "{}", rows[0]);
    assert_eq!(rows[0].matches("error").count(), 1, "a column that is written here is not there twice");
    assert!(
        rows[1].starts_with("\"a, \"\"b\"\"\",100,256,32,") && rows[1].ends_with(",false,"),
        "{}",
        rows[1]
    );
    assert!(
        rows[2].starts_with("bad,x,1,,,") && rows[2].contains("column grid_x: `x` is not"),
        "{}",
        rows[2]
    );
    assert!(
        rows[3].starts_with("large,1,2048,,,")
            && rows[3].contains("threads of a block: 2048 is above the device's limit of 1024"),
        "{}",
        rows[3]
    );
    assert!(rows[4].starts_with("last,7,32,,") && rows[4].contains(",launch,"), "{}", rows[4]);
    assert_eq!(rows.len(), 5);
    let remarks = text(&printed.stderr);
    assert!(
        remarks.contains("apex: l.csv:3: column grid_x") && remarks.contains("apex: l.csv:4: "),
        "{remarks}"
    );

    let printed = output(predict(&sandbox, &["l.csv", "--json"]).arg("--device=sm_90"), 1).stdout;
    let document: Value = serde_json::from_slice(&printed).unwrap();
    let found: Vec<_> = document["predictions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| {
            (entry["line"].as_u64().unwrap(), entry["error"].is_null(), entry["input"]["tag"].clone())
        })
        .collect();
    let tags = ["a, \"b\"", "bad", "large", "last"].map(|tag| json!(tag));
    let [a, bad, large, last] = tags;
    assert_eq!(found, [(2, true, a), (3, false, bad), (4, false, large), (5, true, last)]);
    let page = text(&output(&mut predict(&sandbox, &["l.csv"]), 1).stdout);
    assert!(page.contains("4 launches on an NVIDIA H200") && page.contains("<<<100, 256>>>"), "{page}");
}

/// A running `apex predict -`, whose lines are answered one at a time.
struct Asked {
    running: Running,
    answers: BufReader<std::process::ChildStdout>,
}

impl Asked {
    fn start(sandbox: &Sandbox, arguments: &[&str]) -> Self {
        let mut command = predict(sandbox, arguments);
        let remarks = std::fs::File::create(sandbox.path("remarks")).unwrap();
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(remarks).spawn().unwrap();
        let mut running = Running(child);
        let answers = BufReader::new(running.0.stdout.take().unwrap());
        Self { running, answers }
    }

    fn write(&mut self, line: &str) {
        let stdin = self.running.0.stdin.as_mut().unwrap();
        stdin.write_all(line.as_bytes()).unwrap();
    }

    fn read(&mut self) -> String {
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        answer
    }

    /// The answer to a line, which must come before the next line is written.
    fn ask(&mut self, line: &str) -> Value {
        self.write(&format!("{line}\n"));
        serde_json::from_str(&self.read()).unwrap()
    }

    /// Ends the input. Returns the exit code and what is left of the answers.
    fn end(mut self) -> (Option<i32>, String) {
        drop(self.running.0.stdin.take());
        let mut rest = String::new();
        self.answers.read_to_string(&mut rest).unwrap();
        (self.running.0.wait().unwrap().code(), rest)
    }
}

#[test]
fn each_line_of_stdin_is_answered_before_the_next_comes() {
    let sandbox = Sandbox::new();
    let mut asked = Asked::start(&sandbox, &["-"]);
    for blocks in 1..5 {
        let answer = asked.ask(&format!(r#"{{"grid_x": {blocks}, "block_x": 64, "mine": [{blocks}]}}"#));
        assert_eq!(answer["schema"], "apex.prediction/1");
        assert_eq!((&answer["line"], &answer["input"]["mine"]), (&json!(blocks), &json!([blocks])));
        assert!(estimate(&answer["prediction"]["duration_ns"]) > 0.0);
    }
    assert!(asked.ask("{}")["error"].as_str().unwrap().contains("grid_x is empty or missing"));
    assert_eq!(asked.end(), (Some(1), String::new()));

    // CSV is answered as CSV, unless asked otherwise.
    let mut asked = Asked::start(&sandbox, &["-"]);
    asked.write("grid_x,block_x\n");
    assert!(asked.read().starts_with("grid_x,block_x,predicted_duration_us,"));
    asked.write("3,32\n");
    assert!(asked.read().starts_with("3,32,"));
    assert_eq!(asked.end(), (Some(0), String::new()));
    let mut asked = Asked::start(&sandbox, &["-", "--csv"]);
    asked.write("{\"mine\": \"x\", \"grid_x\": 3, \"block_x\": 32}\n");
    assert!(asked.read().starts_with("block_x,grid_x,mine,predicted_"));
    assert!(asked.read().starts_with("32,3,x,"));
    assert_eq!(asked.end(), (Some(0), String::new()));
    let mut asked = Asked::start(&sandbox, &["-", "--json"]);
    asked.write("grid_x,block_x\n");
    assert_eq!(asked.ask("3,32")["line"], 2);
    assert_eq!(asked.end(), (Some(0), String::new()));
}

#[test]
fn models_are_replaced_while_lines_are_answered() {
    let sandbox = Sandbox::new();
    let models = sandbox.path("m");
    std::fs::create_dir(&models).unwrap();
    random_models(&models, 1);
    let mut asked = Asked::start(&sandbox, &["-", "--models", "m"]);
    let mut count = 0;
    let mut said = |asked: &mut Asked| {
        count += 1;
        let answer = asked.ask(r#"{"grid_x": 1000, "block_x": 128}"#);
        assert_eq!(answer["line"], count, "no line is lost or answered twice");
        answer["prediction"]["duration_ns"]["value"].clone()
    };
    let first = said(&mut asked);
    assert_eq!(said(&mut asked), first);
    let remarks = || std::fs::read_to_string(sandbox.path("remarks")).unwrap();

    random_models(&models, 2);
    wait_until("the new models are in use", || said(&mut asked) != first);
    wait_until("that is said", || remarks().contains("apex: the models in m were replaced"));
    let second = said(&mut asked);

    std::fs::write(models.join(Models::FILES[0]), "no model").unwrap();
    wait_until("the broken file is refused", || {
        remarks().contains("keeping the old ones: m/small.apexmodel: ")
    });
    assert_eq!(said(&mut asked), second);

    random_models(&models, 1);
    wait_until("the first models are back", || said(&mut asked) == first);
    assert_eq!(asked.end(), (Some(0), String::new()));

    std::fs::write(models.join(Models::FILES[0]), "no model").unwrap();
    let refused = output(&mut predict(&sandbox, &["--grid", "1", "--block", "32", "--models", "m"]), 125);
    assert!(text(&refused.stderr).contains("cannot use the models in m: "), "{}", text(&refused.stderr));
}

#[test]
fn whoever_reads_may_stop() {
    let sandbox = Sandbox::new();
    let mut asked = Asked::start(&sandbox, &["-"]);
    asked.ask(r#"{"grid_x": 1, "block_x": 64}"#);
    let Asked { mut running, answers } = asked;
    drop(answers);
    let line = b"{\"grid_x\": 1, \"block_x\": 64}\n";
    // It ends at the first line that it cannot answer; until then there is room in the pipe.
    let mut stdin = running.0.stdin.take().unwrap();
    while stdin.write_all(line).is_ok() {}
    assert_eq!(running.0.wait().unwrap().code(), Some(0));
}

#[test]
fn what_cannot_be_predicted_is_said() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("fill.ptx"), PTX).unwrap();
    std::fs::write(sandbox.path("empty.csv"), "").unwrap();
    std::fs::write(sandbox.path("other.csv"), "a,b\n1,2\n").unwrap();
    std::fs::create_dir(sandbox.path("folder")).unwrap();
    let launch = ["--grid", "10", "--block", "64"];
    let with = |more: &[&'static str]| [&launch[..], more].concat();
    for (arguments, code, why) in [
        (
            vec![],
            125,
            "nothing to predict: give --grid and --block, a file of launches, - for stdin, or a session",
        ),
        (vec!["--grid", "10"], 2, "--block"),
        (vec!["--grid", "10", "--block", "a"], 2, "invalid extent"),
        (
            vec!["--grid", "10", "--block", "2048"],
            1,
            "apex: <<<10, 2048>>>: threads of a block: 2048 is above",
        ),
        (
            vec!["--grid", "3000000000", "--block", "64"],
            1,
            "x of the grid: 3000000000 is above the device's limit of",
        ),
        (vec!["--grid", "5000000000", "--block", "64"], 2, "a grid has at most 2147483647 blocks in x"),
        (
            vec!["--grid", "1,70000", "--block", "64"],
            1,
            "y of the grid: 70000 is above the device's limit of 65535",
        ),
        (vec!["--grid", "1", "--block", "1,1,65"], 1, "z of the block: 65 is above the device's limit of 64"),
        (with(&["--registers", "256"]), 1, "registers of a thread: 256 is above the device's limit of 255"),
        (
            with(&["--shared", "228K"]),
            1,
            "shared memory of a block, bytes: 233472 is above the device's limit of 232448",
        ),
        (
            with(&["--what-if", "block=1025"]),
            1,
            "threads of a block: 1025 is above the device's limit of 1024",
        ),
        (
            with(&["--what-if", "grid=1x65536"]),
            1,
            "y of the grid: 65536 is above the device's limit of 65535",
        ),
        (vec!["--grid", "0", "--block", "64"], 1, "apex: <<<0, 64>>>: the grid has a side of 0"),
        (with(&["--static-shared", "4K"]), 2, "--registers"),
        (
            with(&["--registers", "32", "--static-shared", "1M"]),
            1,
            "static shared memory of a block, bytes: 1048576",
        ),
        (with(&["--shared", "9G"]), 2, "more than any launch can have"),
        (with(&["--measured", "0"]), 2, "invalid duration"),
        (with(&["--what-if", "size=3"]), 2, "cannot be changed"),
        (with(&["--what-if", "registers=8"]), 125, "registers can be changed only where they are known"),
        (with(&["--what-if", "block=0"]), 125, "the grid does not follow from this block"),
        (with(&["--arg", "3"]), 2, "--ptx"),
        (with(&["--ptx", "fill.ptx"]), 125, "the register count of fill: set --registers"),
        (with(&["--ptx", "gone.ptx", "--registers", "8"]), 125, "cannot read gone.ptx"),
        (with(&["--ptx", "other.csv", "--registers", "8"]), 125, "other.csv:1:1: error:"),
        (
            with(&["--ptx", "fill.ptx", "--registers", "8", "--kernel", "k"]),
            125,
            "there is no kernel k in it, but fill",
        ),
        (with(&["--ptx", "fill.ptx", "--registers", "8", "--arg", "x"]), 2, "is no argument"),
        (
            with(&["--device", "a100"]),
            125,
            "there is no device or folder a100: write h200, h100, sm_90, or the folder",
        ),
        (with(&["--device", "sm_80"]), 125, "no predictions for sm_80: the models were trained on sm_90"),
        (with(&["--device", "folder"]), 125, "folder"),
        (with(&["--models", "gone"]), 125, "cannot use the models in gone: gone/small.apexmodel"),
        (with(&["--json", "--csv"]), 2, "cannot be used with"),
        (with(&["other.csv"]), 2, "cannot be used with"),
        (vec!["gone.csv"], 125, "cannot open gone.csv"),
        (vec!["empty.csv"], 125, "empty.csv:1: there is nothing here"),
        (vec!["other.csv"], 125, "other.csv:1: there is no column grid_x"),
        (vec!["other.csv", "--what-if", "block=32"], 125, "apply to a launch or a session"),
        (vec!["folder"], 125, "folder"),
    ] {
        let said = output(&mut predict(&sandbox, &arguments), code);
        let said = text(&said.stderr);
        assert!(said.contains(why), "{arguments:?}: {said}");
        assert!(!said.contains("panicked"), "{arguments:?}: {said}");
    }
}

#[test]
fn a_session_is_predicted_beside_what_was_measured() {
    let sandbox = Sandbox::new();
    h200_session(&sandbox.path("s"), &[("uneven", 5000, 100, 40_000), ("even", 4096, 256, 7_000)]);
    let entries = entries(&sandbox, &["s"]);
    let names: Vec<_> = entries.iter().map(|entry| entry["kernel"].as_str().unwrap()).collect();
    assert_eq!(names, ["uneven", "even"]);
    for (entry, gpu) in entries.iter().zip([40_000.0, 7_000.0]) {
        assert_eq!(entry["prediction"]["basis"], "kernel");
        let own = entry["prediction"]["measured_duration_ns"]["value"].as_f64().unwrap();
        assert_eq!(own, gpu + 1_100.0);
        assert!(entry["prediction"]["duration_ns"].is_null(), "{entry}");
    }
    let changed = self::entries(&sandbox, &["s", "--kernel", "uneven", "--what-if", "block=128"]);
    assert_eq!((changed.len(), &changed[1]["launch"]["grid"]), (2, &json!([3907, 1, 1])));
    assert!(estimate(&changed[1]["saves"]) < 1.0);
    let page = text(&output(&mut predict(&sandbox, &["s", "--what-if", "block=128"]), 0).stdout);
    assert!(page.contains("→ uneven") && page.contains("measuredᵐ") && page.contains("savesᵖ"), "{page}");
    let flat = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains("A measured kernel whose work is not known has no predicted duration"), "{page}");
    let none = output(&mut predict(&sandbox, &["s", "--kernel", "odd"]), 125);
    assert!(text(&none.stderr).contains("s has no kernel odd"));

    // As a device: what the session says of it.
    let on =
        self::entries(&sandbox, &["--grid", "4096", "--block", "256", "--registers", "24", "--device", "s"]);
    assert_eq!(on[0]["computed"], entries[1]["computed"]);
}

#[test]
fn a_change_that_a_kernel_does_not_allow_is_shown_beside_the_others() {
    let sandbox = Sandbox::new();
    h200_session(&sandbox.path("s"), &[("uneven", 5000, 100, 40_000), ("even", 4096, 256, 7_000)]);
    let page = |changes: &[&str], code| output(&mut predict(&sandbox, &[&["s"][..], changes].concat()), code);
    let both = page(&["--what-if", "block=2048", "--what-if", "block=128"], 0);
    let (shown, remarks) = (text(&both.stdout), text(&both.stderr));
    let flat = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(flat.matches("cannot run").count(), 2, "{shown}");
    assert_eq!(flat.matches("→ uneven").count(), 2, "{shown}");
    assert!(remarks.contains("threads of a block: 2048 is above"), "{remarks}");
    // Where no kernel allows the change, nothing was answered.
    let none = page(&["--what-if", "block=2048"], 1);
    assert!(text(&none.stdout).contains("cannot run"), "{}", text(&none.stdout));
    // Nor does a grid follow from a block of no threads.
    let none = page(&["--what-if", "block=0"], 1);
    assert!(text(&none.stderr).contains("uneven: the grid does not follow"));
    assert_eq!(page(&["--json", "--what-if", "block=0", "--what-if", "block=128"], 0).status.code(), Some(0));
}

#[test]
fn reports_advice_and_exports_have_predictions() {
    let sandbox = Sandbox::new();
    h200_session(&sandbox.path("s"), &[("uneven", 5000, 100, 40_000), ("even", 4096, 256, 7_000)]);
    let report = sandbox.json(&["report", "--json", "s"]);
    for width in [80usize, 100, 160] {
        let page = text(&output(sandbox.apex(&["report", "s"]).env("COLUMNS", width.to_string()), 0).stdout);
        // What the launches execute is not known: no duration is predicted beside the measured
        // one.
        let shown = ["\nPredicted\n", "durationᵖ", "ᵐ/ᵖ"].map(|part| page.contains(part));
        assert_eq!(shown, [false; 3], "{page}");
        assert!(page.lines().all(|line| line.chars().count() <= width), "{page}");
    }
    let kernel = &report["profile"]["kernels"][0];
    let said = &kernel["prediction"];
    let own = said["measured_duration_ns"]["value"].as_f64().unwrap();
    assert!(said["duration_ns"].is_null() && said["measured_over_predicted"].is_null(), "{said}");
    assert_eq!(report["profile"]["unpredicted"], json!([]));

    let advice = sandbox.json(&["advise", "--json", "s"]);
    let findings = advice["advice"]["findings"].as_array().unwrap();
    let found = findings.iter().find(|finding| finding["rule"] == "APEX-L01").unwrap();
    let found = &found["kernels"][0];
    assert_eq!(found["to"], json!({"grid": [3907, 1, 1], "block": [128, 1, 1]}));
    assert_eq!(found["what_if"]["configuration"], found["to"]);
    let saved = 1.0 - estimate(&found["what_if"]["duration_ns"]) / own;
    assert!((estimate(&found["what_if"]["saves"]) - saved).abs() < 1e-9);
    let page = text(&output(&mut sandbox.apex(&["advise", "s"]), 0).stdout);
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(page.contains("Predicted from the measured time:"), "{page}");

    let rows =
        text(&output(&mut sandbox.apex(&["export", "--format", "csv", "--what", "kernels", "s"]), 0).stdout);
    std::fs::write(sandbox.path("kernels.csv"), &rows).unwrap();
    let again = entries(&sandbox, &["kernels.csv"]);
    for (entry, kernel) in again.iter().zip(report["profile"]["kernels"].as_array().unwrap()) {
        for member in ["achieved_occupancy", "sm_utilisation"] {
            let [a, b] = [entry, kernel].map(|said| estimate(&said["prediction"][member]));
            assert!((a / b - 1.0).abs() < 1e-9, "{member}: {a} of the exported table, {b} of the report");
        }
        assert_eq!(entry["input"]["predicted_duration_ns"], "");
        let exported = entry["input"]["predicted_achieved_occupancy"].as_str().unwrap();
        let reported = estimate(&kernel["prediction"]["achieved_occupancy"]);
        assert!((exported.parse::<f64>().unwrap() / reported - 1.0).abs() < 1e-9, "{exported}, {reported}");
    }
}

#[test]
fn of_a_device_that_the_models_do_not_know_nothing_is_predicted() {
    let sandbox = Sandbox::new();
    sandbox.recorded(&["--timing", "all"], &["launch", "8"]);
    let page = text(&output(&mut sandbox.apex(&["report", "s"]), 0).stdout);
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        page.contains("no predictions for APEX CPU device (sm_80): it has compute capability 8.0"),
        "{page}"
    );
    let report = sandbox.json(&["report", "--json", "s"]);
    assert!(report["profile"]["kernels"][0]["prediction"].is_null());
    assert_eq!(report["profile"]["unpredicted"].as_array().unwrap().len(), 1);
    let refused = output(&mut predict(&sandbox, &["s"]), 125);
    assert!(text(&refused.stderr).contains("--device h200 predicts the same launches for an H200"));
    let refused = output(&mut predict(&sandbox, &["--grid", "1", "--block", "32", "--device", "s"]), 125);
    assert!(text(&refused.stderr).contains("no predictions for APEX CPU device"));

    // On another device, its launches are predicted, and what they took here does not count.
    let entries = entries(&sandbox, &["s", "--device", "h200"]);
    assert!(entries.iter().all(|entry| entry["prediction"]["measured_duration_ns"].is_null()));
}

#[test]
fn a_data_set_is_predicted_beside_what_was_measured() {
    let sandbox = Sandbox::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/h200/launches");
    let folder = folder.to_str().unwrap();
    let rows = String::from_utf8(test_manifest::content("data/h200/launches/launches.csv.zst")).unwrap();
    let rows = rows.lines().filter(|line| line.contains(",copy_f32,")).count();
    let all = entries(&sandbox, &[folder, "--kernel", "copy_f32"]);
    assert_eq!((all.len(), rows > 10), (rows, true));
    assert!(all.iter().all(|entry| entry["prediction"]["basis"] == "code"));
    assert!(all.iter().all(|entry| entry["prediction"]["measured_over_predicted"].is_f64()));
    // The same device by its folder: what was measured counts all the same.
    assert_eq!(entries(&sandbox, &[folder, "--kernel", "copy_f32", "--device", folder]), all);

    output(&mut sandbox.apex(&["collect", "-o", "d", "--device", "cpu", "--rows", "4"]), 0);
    let refused = output(&mut predict(&sandbox, &["d"]), 125);
    assert!(
        text(&refused.stderr).contains("no predictions for APEX CPU device"),
        "{}",
        text(&refused.stderr)
    );
    let elsewhere = entries(&sandbox, &["d", "--device", "h200"]);
    assert_eq!(elsewhere.len(), 4);
    assert!(elsewhere.iter().all(|entry| entry["prediction"]["measured_duration_ns"].is_null()));
    assert!(elsewhere.iter().all(|entry| entry["prediction"]["basis"] == "code"));
}
