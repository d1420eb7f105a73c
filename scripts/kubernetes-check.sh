#!/usr/bin/env bash
# Checks the manifests of deploy/kubernetes, and what the chart of deploy/helm makes with several values,
# against the schemas of Kubernetes 1.28 to 1.37, strictly: unknown members are errors. It installs
# kubernetes-validate (144 MB) and Helm's library (75 MB) in a temporary folder, and needs no cluster.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'kubernetes-validate==1.37.0' 'helm-python-sdk==0.2.2'
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import sys
from helm_python import Chart
tls = {"hub": {"tls": {"secret": "hub-tls", "trusted": "ca.crt"}}, "segments": {"to": "s3://bucket/apex", "endpoint": "http://store:9000"}}
own = {
    "image": {"pullPolicy": "Always", "pullSecrets": [{"name": "registry"}]},
    "hub": {"service": {"type": "LoadBalancer", "annotations": {"a": "b"}}, "storage": {"existingClaim": "mine"}, "nodeSelector": {"a": "b"},
            "tolerations": [{"operator": "Exists"}], "args": ["--keep-days=14"]},
    "deliver": {"tolerations": [], "nodeSelector": {"gpu": "yes"}},
}
with Chart.load("deploy/helm/apex") as chart:
    for name, values in {"usual": {}, "tls": tls, "own": own}.items():
        made = chart.render(values, name="apex", namespace="apex")
        with open(f"{sys.argv[1]}/{name}.yaml", "w") as file:
            file.write("\n---\n".join(text for file, text in sorted(made.items()) if file.endswith(".yaml")))
PYTHON
for version in 1.28 1.33 1.37; do
  "$folder/venv/bin/kubernetes-validate" --strict -k "$version" deploy/kubernetes/*.yaml "$folder"/*.yaml
done
