//! Files: T4 in and out, T1 and the short form in; what is wrong in them is named.

use apex_search::{Invalid, Key, Measured, Outcome, Results, Value, difference, input, t4};
use proptest::prelude::*;

/// As Kernel Tuner 1.5 writes it: a failed configuration is `correct` by number, has an error for a
/// measurement, and a ratio is in milliseconds.
const OF_KERNEL_TUNER: &str = r#"{"results": [
  {"timestamp": "t", "configuration": {"tile": 2, "block": 32}, "times": {"compilation": 1.0, "benchmark": 2,
   "framework": 0, "search_algorithm": 0, "validation": 0, "runtimes": [2.0, 2.5]}, "invalidity": "correct",
   "correctness": 1, "measurements": [{"name": "time", "value": 2.25, "unit": "ms"},
   {"name": "times_faster", "value": 4.0, "unit": "ms"}], "objectives": ["time"]},
  {"configuration": {"tile": 1, "block": 64}, "times": {"runtimes": []}, "invalidity": "compile", "correctness": 1,
   "measurements": [{"name": "__error__", "value": "", "unit": ""}], "objectives": ["time"]}
], "schema_version": "1.0.0", "metadata": {"timeunit": "miliseconds"}}"#;

fn measured(values: [i64; 2], outcome: Outcome) -> Measured {
    let names = ["tile", "block"].map(str::to_owned);
    let configuration = names.into_iter().zip(values.map(Value::Int)).collect();
    Measured { configuration, outcome, timestamp: None }
}

#[test]
fn results_of_kernel_tuner_are_read() {
    let read = t4::read(OF_KERNEL_TUNER).unwrap();
    assert!(read.key.is_none());
    assert_eq!(read.results[0].outcome, Outcome::Times(vec![2.25]));
    assert_eq!(read.results[1].outcome, Outcome::Failed(Invalid::Compile, String::new()));
    let space = t4::space(&read.results).unwrap();
    assert_eq!((space.len(), space.parameters()[0].name.as_str()), (2, "tile"));
    let results = Results::new(read.results, &space);
    assert_eq!(results.get(1), Some(&Outcome::Times(vec![2.25])), "{}", space.describe(1));
}

#[test]
fn what_is_written_is_read_again() {
    let results = vec![
        measured([1, 32], Outcome::Times(vec![1.5, 1.25])),
        measured([2, 32], Outcome::Failed(Invalid::Timeout, "longer".to_owned())),
    ];
    let key = Key::from([("device".to_owned(), "NVIDIA H200".to_owned())]);
    let text = t4::write(&key, &results);
    let read = t4::read(&text).unwrap();
    assert_eq!((read.key, read.results), (Some(key), results));
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["metadata"]["timeunit"], "milliseconds");
    assert_eq!(document["results"][0]["measurements"][0]["value"], 1.375);
    assert_eq!(document["results"][1]["correctness"], 0.0);
}

#[test]
fn units_of_the_metadata_count() {
    for (unit, expected) in [("seconds", 2250.0), ("microseconds", 0.00225), ("milliseconds", 2.25)] {
        let text = OF_KERNEL_TUNER.replace("miliseconds", unit);
        let Outcome::Times(times) = &t4::read(&text).unwrap().results[0].outcome else {
            panic!("it is correct")
        };
        assert!((times[0] / expected - 1.0).abs() < 1e-12, "{unit}");
    }
}

#[test]
fn wrong_results_are_named() {
    let said = |from: &str, to: &str| t4::read(&OF_KERNEL_TUNER.replace(from, to)).unwrap_err().to_string();
    assert_eq!(said("\"compile\"", "\"other\""), "result 2: unknown invalidity \"other\"");
    let without_times = OF_KERNEL_TUNER.replace("2.25", "-1").replace("[2.0, 2.5]", "[]");
    let error = t4::read(&without_times).unwrap_err().to_string();
    assert_eq!(error, "result 1: it is correct, and its \"time\" is no positive number");
    assert!(said("\"results\"", "\"result\"").contains("missing field `results`"));
    let other = OF_KERNEL_TUNER.replace(r#""tile": 1"#, r#""tail": 1"#);
    let results = t4::read(&other).unwrap().results;
    assert!(t4::space(&results).unwrap_err().to_string().contains("result 2: it has other parameters"));
    assert!(t4::space(&[]).is_err());
}

#[test]
fn keys_that_differ_say_where() {
    let key = |driver: &str| Key::from([("driver".to_owned(), driver.to_owned())]);
    assert_eq!(difference(&key("580"), &key("580")), None);
    assert_eq!(difference(&key("580"), &key("595")).unwrap(), "driver was `580` and is `595`");
    assert_eq!(difference(&Key::new(), &key("595")).unwrap(), "driver was nothing and is `595`");
}

#[test]
fn results_outlive_a_change_of_the_space() {
    let space = |tiles: &str| {
        input::read(&format!(r#"{{"parameters": {{"tile": {tiles}, "block": [32, 64]}}}}"#)).unwrap().space
    };
    let small = space("[1]");
    let all =
        vec![measured([1, 64], Outcome::Times(vec![1.0])), measured([2, 64], Outcome::Times(vec![2.0]))];
    let results = Results::new(all.clone(), &small);
    assert_eq!((results.get(1).is_some(), results.all()), (true, &all[..]));
    let larger = space("[2, 1]");
    let results = Results::new(results.all().to_vec(), &larger);
    assert_eq!(results.get(1), Some(&Outcome::Times(vec![2.0])));
    assert_eq!(results.get(3), Some(&Outcome::Times(vec![1.0])));
}

/// The form of the public hub's files.
const T1: &str = r#"{"ConfigurationSpace": {"TuningParameters": [
  {"Name": "block", "Type": "int", "Values": "[32 * i for i in range(1, 5)]", "Default": 64},
  {"Name": "method", "Type": "int", "Values": "[0, 1]", "Default": [1]}],
  "Conditions": [{"Expression": "method == 0 or block % 64 == 0", "Parameters": ["method", "block"]}]},
  "KernelSpecification": {"Language": "CUDA"}}"#;

#[test]
fn t1_files_are_read() {
    let input = input::read(T1).unwrap();
    assert_eq!(input.space.len(), 6);
    assert_eq!(input.space.describe(input.original.unwrap()), "block=64, method=1");
    let invalid = input::read(&T1.replace("\"Default\": 64", "\"Default\": 32")).unwrap();
    assert_eq!(invalid.original, None, "defaults that break a condition are none");
}

#[test]
fn wrong_spaces_are_named() {
    let said = |text: &str| input::read(text).unwrap_err().to_string();
    assert!(said("{}").contains("it has no member `parameters`"));
    assert!(said("[1]").contains("it describes no space"));
    assert_eq!(
        said(r#"{"parameters": {"x": "open('/etc/passwd')"}}"#).split(" (").next().unwrap(),
        "the values of parameter `x`: calls of `open` are not supported"
    );
    for member in ["restriction", "orignal"] {
        let text = said(&format!(r#"{{"parameters": {{"x": [1]}}, "{member}": []}}"#));
        assert!(text.starts_with(&format!("its member `{member}` has no meaning")), "{text}");
    }
    for (text, expected) in [
        (r#"{"parameters": {"x": [1, null]}}"#, "the values of parameter `x`: value 2 is `null`, and not a"),
        (r#"{"parameters": {"x": 5}}"#, "the values of parameter `x`: `5` is neither a list nor an"),
        (r#"{"parameters": [1]}"#, "it describes no space: its member `parameters`: invalid type"),
        (r#"{"parameters": {"x": [1]}, "restrictions": [5]}"#, "its member `restrictions` must be a list"),
        (r#"{"parameters": {"x": [1]}, "restrictions": "x"}"#, "its member `restrictions` must be a list"),
        (r#"{"parameters": {"x": [1]}, "original": {"x": []}}"#, "`original`: the value of `x` is `[]`"),
        (r#"{"parameters": {"x": [1]}, "configurations": [1]}"#, "its member `configurations` must be"),
    ] {
        assert!(said(text).starts_with(expected), "{}", said(text));
    }
    let original = r#"{"parameters": {"x": [1, 2]}, "original": {"x": 3}}"#;
    assert!(said(original).contains("`original` is no configuration"));
    assert!(said(&original.replace("3}", "1, \"y\": 2}")).contains("`original` is no configuration"));
    assert!(
        said(r#"{"parameters": {"x": [1, 2]}, "configurations": [[0], [2]]}"#).contains("configuration 2")
    );
}

#[test]
fn listed_configurations_are_the_space() {
    let text = r#"{"parameters": {"x": [1, 2], "y": ["a", "b"]}, "configurations": [[1, 0], [0, 1]]}"#;
    let space = input::read(text).unwrap().space;
    assert_eq!([space.describe(0), space.describe(1)], ["x=1, y=b", "x=2, y=a"]);
}

proptest! {
    #[test]
    fn damaged_files_are_refused_or_read(at in 0usize..2000, byte in 0u8..128) {
        for text in [OF_KERNEL_TUNER, T1] {
            let mut bytes = text.as_bytes().to_vec();
            let at = at % bytes.len();
            bytes[at] = byte;
            let text = String::from_utf8(bytes).expect("ASCII");
            if let Ok(read) = t4::read(&text) {
                let _ = t4::space(&read.results);
                prop_assert!(t4::read(&t4::write(&Key::new(), &read.results)).is_ok());
            }
            let _ = input::read(&text);
        }
    }
}
