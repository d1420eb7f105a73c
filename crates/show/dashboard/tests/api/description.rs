//! `openapi.json` and the samples of the page say what the server answers.

use crate::serving::Serving;
use apex_dashboard::{Sides, TIMELINE_PARAMETERS, ViewParameters, WHAT_IF_PARAMETERS};
use serde_json::Value;
use std::path::Path;

#[test]
fn the_description_is_true() {
    let serving = Serving::recorded(&["s"]);
    let description = serving.json("/api/v1/openapi.json");
    let id = serving.ids().remove(0);
    let kernel = serving.kernel(&id);
    let building = serving.json(&format!("/api/v1/sessions/{id}/timeline"));
    conforms(&description, &description["components"]["schemas"]["Timeline"], &building, "building");
    let timeline = serving.timeline(&id, "?events=0");
    let lanes = timeline["lanes"].as_array().unwrap();
    let stream = lanes.iter().find(|lane| lane["kind"] == "stream").unwrap();
    let launch = format!("?lane={}&at={}", stream["id"].as_str().unwrap(), stream["start_ns"]);
    let columns = &description["components"]["schemas"]["Timeline"];
    conforms(&description, columns, &timeline, "columns");
    let paths = description["paths"].as_object().unwrap();
    assert_eq!(paths.len(), 10);
    for (path, methods) in paths {
        let operation = &methods["get"];
        assert_eq!(methods.as_object().unwrap().len(), 1, "{path}");
        let parameters = operation["parameters"].as_array().map_or(&[][..], Vec::as_slice);
        let names = parameters.iter().map(|parameter| parameter["$ref"].as_str().unwrap());
        let names: Vec<&str> = names.map(|name| name.rsplit('/').next().unwrap()).collect();
        let takes = match path.split_once("{id}").map(|(_, what)| what) {
            None if path == "/api/v1/compare" => Sides::PARAMETERS.to_vec(),
            None => Vec::new(),
            Some("/kernels/{kernel_id}/what-if") => {
                [&["id", "kernel_id"], &ViewParameters::PARAMETERS[..], &WHAT_IF_PARAMETERS[..]].concat()
            }
            Some("/kernels/{kernel_id}/lines") => {
                [&["id", "kernel_id"], &ViewParameters::PARAMETERS[..]].concat()
            }
            Some("/timeline") => [&["id"], TIMELINE_PARAMETERS[0]].concat(),
            Some("/timeline/span") => [&["id"], TIMELINE_PARAMETERS[1]].concat(),
            Some("/timeline/launch") => [&["id"], TIMELINE_PARAMETERS[2]].concat(),
            Some(_) => [&["id"], &ViewParameters::PARAMETERS[..]].concat(),
        };
        assert_eq!(names, takes, "{path}");
        for status in ["401", "403", "421", "503"] {
            assert!(operation["responses"][status].is_object(), "{path}: {status}");
        }
        let path = match path.as_str() {
            "/api/v1/compare" => format!("{path}?before={id}&after={id}"),
            path => path.replace("{id}", &id).replace("{kernel_id}", &kernel),
        };
        if path.ends_with("/events") {
            let (name, condition) = serving.events(&id, "").next();
            assert_eq!(name, "condition");
            conforms(&description, &description["components"]["schemas"]["Condition"], &condition, &path);
        } else {
            let schema = &operation["responses"]["200"]["content"]["application/json"]["schema"];
            let query = match path.rsplit('/').next() {
                Some("launch") => &launch,
                Some("what-if") => "?block=32",
                _ => "",
            };
            let answer = serving.json(&format!("{path}{query}"));
            assert!(!path.ends_with("/launch") || answer["event"]["collective"].is_object(), "{answer}");
            conforms(&description, schema, &answer, &path);
        }
    }
}

#[test]
fn the_samples_of_the_page_are_what_the_description_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    let description: Value = serde_json::from_str(&read("openapi.json")).unwrap();
    let page = read("../../../docs/api.md");
    let (_, rest) = page.split_once("```json\n").unwrap();
    let sessions = serde_json::from_str(rest.split_once("```").unwrap().0).unwrap();
    let condition = page.lines().find_map(|line| line.strip_prefix("data: {\"state\"")).unwrap();
    let condition = serde_json::from_str(&format!("{{\"state\"{condition}")).unwrap();
    let after = |heading: &str| {
        let (_, rest) = page.split_once(heading).unwrap();
        let (_, sample) = rest.split_once("```json\n").unwrap();
        serde_json::from_str(sample.split_once("```").unwrap().0).unwrap()
    };
    let samples = [
        ("Sessions", sessions),
        ("Condition", condition),
        ("Timeline", after("## Timeline")),
        ("TimelineSpan", after("### What lies between two moments")),
        ("TimelineLaunch", after("### One launch")),
        ("WhatIf", after("## What if")),
    ];
    for (name, sample) in samples {
        conforms(&description, &description["components"]["schemas"][name], &sample, name);
    }
    let timelines = TIMELINE_PARAMETERS.into_iter().flatten();
    let others = Sides::PARAMETERS.iter().chain(&WHAT_IF_PARAMETERS);
    for parameter in ViewParameters::PARAMETERS.iter().chain(others).chain(timelines) {
        assert!(page.contains(&format!("| `{parameter}=")), "{parameter} is not in the page");
    }
}

/// Checks a value against the words of JSON Schema that the description uses.
pub fn conforms(description: &Value, schema: &Value, value: &Value, at: &str) {
    if let Some(reference) = schema["$ref"].as_str() {
        return conforms(description, description.pointer(&reference[1..]).unwrap(), value, at);
    }
    if let Some(constant) = schema.get("const") {
        assert_eq!(constant, value, "{at}");
        return;
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let kinds =
        schema["type"].as_array().map_or_else(|| vec![&schema["type"]], |kinds| kinds.iter().collect());
    let allows = |allowed: &&Value| **allowed == kind || (kind == "integer" && **allowed == "number");
    assert!(kinds.iter().any(allows), "{at}: {value} is none of {kinds:?}");
    for item in value.as_array().into_iter().flatten() {
        conforms(description, &schema["items"], item, &format!("{at}[]"));
    }
    let others = &schema["additionalProperties"];
    for (name, member) in value.as_object().into_iter().flatten().filter(|_| others.is_object()) {
        conforms(description, others, member, &format!("{at}.{name}"));
    }
    if let (Some(members), Some(properties)) = (value.as_object(), schema["properties"].as_object()) {
        let required = schema["required"].as_array().unwrap();
        assert!(required.iter().all(|name| members.contains_key(name.as_str().unwrap())), "{at}: {value}");
        for (name, member) in members {
            match properties.get(name) {
                Some(property) => conforms(description, property, member, &format!("{at}.{name}")),
                None => assert_eq!(others, true, "{at}.{name} is not described"),
            }
        }
    }
}
