//! The chart in `deploy/helm` makes what the manifests in `deploy/kubernetes` have, and what it
//! makes runs.

use crate::common::{APEX, Running, Sandbox, installed, output, text};
use crate::hub::{certificate, deployed, get, words};
use serde_json::{Value, json};
use std::path::PathBuf;

/// What Helm says of the chart with some values, by its own library: its messages by severity (3 is
/// an error) and the objects that it makes. Beside them the objects of the plain manifests.
struct Helm {
    python: PathBuf,
    library: PathBuf,
}

const SCRIPT: &str = "
import json, sys, yaml
from helm_python import Chart, lint
folder, values, *plain = sys.argv[1:]
values = json.loads(values)
messages = lint(folder, values, strict=True, namespace='apex', kube_version='v1.33.0')['messages']
made = []
if all(of['severity'] < 3 for of in messages):
    with Chart.load(folder) as chart:
        texts = chart.render(values, name='apex', namespace='apex')
    made = [of for name, text in texts.items() if name.endswith('.yaml') for of in yaml.safe_load_all(text) if of]
    notes = texts['apex/templates/NOTES.txt']
else:
    notes = ''
plain = [of for name in plain for of in yaml.safe_load_all(open(name))]
print(json.dumps({'messages': messages, 'made': made, 'notes': notes, 'plain': plain}))
";

impl Helm {
    /// Helm where it is installed.
    fn installed() -> Option<Self> {
        let library = installed("helm")?;
        Some(Self { python: installed("schemathesis/bin/python")?, library })
    }

    fn with(&self, sandbox: &Sandbox, values: &Value) -> Value {
        let mut command = sandbox.command(&self.python);
        command.args(["-c", SCRIPT]).arg(deployed("helm/apex")).arg(values.to_string());
        command.args(["hub.yaml", "deliver.yaml"].map(|name| deployed(&format!("kubernetes/{name}"))));
        serde_json::from_slice(&output(command.env("PYTHONPATH", &self.library), 0).stdout).unwrap()
    }
}

/// An object without what only one of both has: labels of Helm, and that it keeps the disk.
fn stripped(of: &Value) -> Value {
    let mut of = of.clone();
    let metadata = of["metadata"].as_object_mut().unwrap();
    metadata.remove("labels");
    metadata.remove("annotations");
    of
}

/// An object of a kind.
fn of_kind<'a>(made: &'a Value, kind: &str) -> &'a Value {
    made.as_array().unwrap().iter().find(|of| of["kind"] == kind).unwrap_or(&Value::Null)
}

/// The container of this name.
fn container<'a>(object: &'a Value, name: &str) -> &'a Value {
    let pod = &object["spec"]["template"]["spec"];
    let all = ["initContainers", "containers"].map(|kind| pod[kind].as_array());
    all.into_iter().flatten().flatten().find(|of| of["name"] == name).unwrap_or(&Value::Null)
}

#[test]
fn the_chart_of_helm_makes_what_the_manifests_have() {
    let Some(helm) = Helm::installed() else { return };
    let sandbox = Sandbox::new();
    let found = helm.with(&sandbox, &json!({}));
    let messages = found["messages"].as_array().unwrap();
    let said = |of: &Value| of["error"].as_str().unwrap().to_owned();
    assert_eq!(messages.iter().map(said).collect::<Vec<_>>(), ["icon is recommended"]);
    let sorted = |of: &Value, leaves_out: &str| {
        let mut all: Vec<Value> =
            of.as_array().unwrap().iter().filter(|of| of["kind"] != leaves_out).map(stripped).collect();
        all.sort_by_key(|of| of["kind"].as_str().unwrap().to_owned());
        all
    };
    // (Helm makes the namespace by --create-namespace.)
    let (made, plain) = (sorted(&found["made"], ""), sorted(&found["plain"], "Namespace"));
    assert_eq!(made.len(), 4);
    for (made, plain) in made.iter().zip(&plain) {
        assert_eq!(made, plain);
    }
    assert_eq!(made.len(), plain.len());
    let claim = of_kind(&found["made"], "PersistentVolumeClaim");
    assert_eq!(claim["metadata"]["annotations"]["helm.sh/resource-policy"], "keep");
    assert!(found["notes"].as_str().unwrap().contains("APEX_HUB=http://apex-hub.apex.svc:8765"));
}

#[test]
fn values_of_the_chart_change_what_they_say_and_wrong_ones_are_refused() {
    let Some(helm) = Helm::installed() else { return };
    let sandbox = Sandbox::new();
    for (wrong, named) in [
        (json!({"hubs": {}}), "hubs"),
        (json!({"hub": {"tls": {"secret": 1}}}), "/hub/tls/secret"),
        (json!({"hub": {"tenant": "a; rm -rf /data"}}), "/hub/tenant"),
        (json!({"hub": {"args": ["report"]}}), "/hub/args"),
        (json!({"hub": {"storage": {"size": "much"}}}), "/hub/storage/size"),
        (json!({"segments": {"to": "s3://b/$(rm -rf /data)"}}), "/segments/to"),
        (json!({"deliver": {"spool": "relative"}}), "/deliver/spool"),
    ] {
        let messages = helm.with(&sandbox, &wrong)["messages"].to_string();
        assert!(messages.contains("\"severity\":3") && messages.contains(named), "{wrong}: {messages}");
    }
    let values = json!({
        "image": {"repository": "other/apex", "tag": "1", "pullPolicy": "Always", "pullSecrets": [{"name": "r"}]},
        "hub": {"args": ["--keep-days=14"], "service": {"type": "NodePort", "port": 443},
                "storage": {"existingClaim": "mine"}, "nodeSelector": {"disk": "ssd"}},
        "deliver": {"enabled": false},
        "segments": {"to": "s3://bucket/apex", "endpoint": "http://store:9000"},
    });
    let found = helm.with(&sandbox, &values);
    let made = &found["made"];
    assert_eq!(made.as_array().unwrap().len(), 2, "{}", found["messages"]);
    let deployment = of_kind(made, "Deployment");
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["nodeSelector"]["disk"], "ssd");
    assert_eq!(pod["imagePullSecrets"], json!([{"name": "r"}]));
    assert_eq!(pod["volumes"][0]["persistentVolumeClaim"]["claimName"], "mine");
    for name in ["first-token", "hub", "segments"] {
        let of = container(deployment, name);
        assert_eq!(
            (&of["image"], &of["imagePullPolicy"]),
            (&"other/apex:1".into(), &"Always".into()),
            "{name}"
        );
    }
    assert!(words(&container(deployment, "hub")["args"]).contains(&"--keep-days=14"));
    let service = of_kind(made, "Service");
    assert_eq!(
        (&service["spec"]["type"], &service["spec"]["ports"][0]["port"]),
        (&"NodePort".into(), &443.into())
    );
    // What puts segments into a store is a command that there is.
    let of = container(deployment, "segments");
    let script = words(&of["command"])[2];
    let export = script.lines().find_map(|line| line.trim().strip_prefix("apex ")).unwrap();
    let mut export: Vec<&str> = export.split(' ').collect();
    export.push("--help");
    output(&mut sandbox.apex(&export), 0);
    assert_eq!(of["env"][1], json!({"name": "AWS_ENDPOINT_URL_S3", "value": "http://store:9000"}));
    assert_eq!(of["envFrom"][0]["secretRef"]["optional"], true);
}

#[test]
fn what_the_chart_makes_for_tls_runs() {
    let Some(helm) = Helm::installed() else { return };
    let sandbox = Sandbox::new();
    let found = helm.with(&sandbox, &json!({"hub": {"tls": {"secret": "hub-tls"}}}));
    let deployment = of_kind(&found["made"], "Deployment");
    let here = |text: &str| {
        let data = sandbox.path("data").display().to_string();
        text.replace("/data", &data).replace("0.0.0.0:8765", "0.0.0.0:0")
    };
    std::fs::create_dir(sandbox.path("data")).unwrap();
    // The first start makes a token, and a second one none.
    let folder = std::path::Path::new(APEX).parent().unwrap().display();
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap_or_default());
    let first = here(words(&container(deployment, "first-token")["command"])[2]);
    for _ in 0..2 {
        output(sandbox.command("/bin/sh").args(["-c", &first]).env("PATH", &path), 0);
    }
    let token = std::fs::read_to_string(sandbox.path("data/first-token")).unwrap().trim().to_owned();
    assert_eq!(token.len(), 64);
    // The hub as it is started, with the certificate that the Secret has.
    let arguments: Vec<String> = words(&container(deployment, "hub")["args"]).into_iter().map(here).collect();
    let arguments: Vec<String> = arguments
        .iter()
        .map(|word| match word.as_str() {
            "/tls/tls.crt" => certificate("own.crt"),
            "/tls/tls.key" => certificate("own.key"),
            word => word.to_owned(),
        })
        .collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut running = Running::start(&mut sandbox.apex(&arguments));
    let port = running.read_until("https://").trim_end_matches('/').rsplit_once(':').unwrap().1.to_owned();
    assert_eq!(get(&format!("127.0.0.1:{port}"), "/", "").0, 426);
    // What a node delivers reaches it: the variables are those of the chart, but for the address.
    std::fs::create_dir(sandbox.path("spools")).unwrap();
    let url = format!("https://127.0.0.1:{port}");
    let options = ["--spool", "spools/pod", "--job", "of the pod"];
    output(&mut sandbox.record(&options, &["launch", "10"]), 0);
    let delivers = container(of_kind(&found["made"], "DaemonSet"), "deliver");
    let script =
        words(&delivers["command"])[2].replace("/spool", &sandbox.path("spools").display().to_string());
    let script = script.replace("/opt/apex/bin/apex", APEX).replace("sleep 600", "exit 0");
    // (Only root may leave its groups.)
    let script = script.replace("--clear-groups", "--keep-groups");
    let mut deliver = sandbox.command("/bin/sh");
    deliver.args(["-c", &script]);
    for of in delivers["env"].as_array().unwrap() {
        let value = match (of["name"].as_str().unwrap(), of["value"].as_str()) {
            ("APEX_HUB", Some("https://apex-hub.apex.svc:8765")) => url.clone(),
            ("APEX_HUB_TOKEN", None) => token.clone(),
            ("APEX_HUB_CA", Some("/tls/trusted.crt")) => certificate("own.crt"),
            other => panic!("{other:?}"),
        };
        deliver.env(of["name"].as_str().unwrap(), value);
    }
    let said = output(&mut deliver, 0);
    assert!(
        text(&said.stdout).contains("1 confirmed, 0 wait"),
        "{}{}",
        text(&said.stdout),
        text(&said.stderr)
    );
}
