#!/usr/bin/env bash
# Checks the manifests of deploy/kubernetes against the schemas of Kubernetes 1.28 to 1.37, strictly:
# unknown members are errors. It installs kubernetes-validate (144 MB) in a temporary folder, and needs
# no cluster.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'kubernetes-validate==1.37.0'
for version in 1.28 1.33 1.37; do
  "$folder/venv/bin/kubernetes-validate" --strict -k "$version" deploy/kubernetes/*.yaml
done
