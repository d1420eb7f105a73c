#!/usr/bin/env bash
# Installs what `cargo xtask dist` made on a bare Debian, as users would, and runs the demo there.
#
#   scripts/dist-check.sh DIST [WORK]
#
# Needs root, debootstrap and Debian's archive. WORK (a new temporary folder by default) gets the bare
# system; it is kept if it was named, and used again. Each line that it prints is one way of installing.
set -euo pipefail
dist=$(realpath "$1")
work=${2:-$(mktemp -d)}
root=$work/root
mkdir -p "$work"

if [ ! -x "$root/bin/sh" ]; then
    echo "making a bare Debian in $root" >&2
    debootstrap --variant=minbase bookworm "$root" >"$work/debootstrap.log"
fi
mkdir -p "$root/dist"
cp "$dist"/* "$root/dist"
mountpoint -q "$root/proc" || mount -t proc proc "$root/proc"
cleanup() {
    umount "$root/proc"
    [ -n "${2:-}" ] || rm -rf "$work"
}
trap 'cleanup "$@"' EXIT

# in_root USER COMMAND: with an empty environment and without a home.
in_root() {
    chroot --userspec="$1" "$root" /usr/bin/env -i HOME=/nonexistent PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin /bin/sh -euc "$2"
}

# tried NAME APEX: as a user without a home, in a folder of his own, runs the demo and reads its session.
tried() {
    local folder
    folder=$(in_root nobody:nogroup 'mktemp -d')
    in_root nobody:nogroup "cd $folder; $2 demo >demo.txt 2>demo.err; test -s demo.txt; $2 report --json >report.json"
    in_root nobody:nogroup "cd $folder; grep -q matrix demo.txt || grep -q matmul demo.txt; grep -q apex.report report.json"
    echo "ok: $1: $(in_root nobody:nogroup "$2 --version"); the demo runs and its report is read"
}

(cd "$dist" && sha256sum --quiet -c SHA256SUMS)
echo "ok: checksums"
archive=$(basename "$dist"/apex-*.tar.gz)
in_root root "cd /opt; tar xzf /dist/$archive; mv ${archive%.tar.gz} moved; chmod -R a-w moved"
tried "archive, moved, read-only" /opt/moved/bin/apex
in_root root "ln -sf /opt/moved/bin/apex /usr/local/bin/apex-link"
tried "archive, by a link" apex-link
in_root root "rm -rf /opt/moved /usr/local/bin/apex-link; dpkg -i /dist/apex-cuda_*.deb >/dev/null"
tried "Debian package" apex
in_root root "test -s /usr/share/man/man1/apex-run.1; dpkg -r apex-cuda >/dev/null; ! command -v apex"
echo "ok: Debian package, removed"
in_root root "command -v pip3 >/dev/null || { apt-get -q update && apt-get -qy install python3-venv; } >/dev/null 2>&1"
in_root root "python3 -m venv /opt/venv; /opt/venv/bin/pip -q install --no-index /dist/apex_cuda-*.whl"
tried "wheel, in a virtual environment" /opt/venv/bin/apex
in_root nobody:nogroup 'cd $(mktemp -d); cat >use.py; /opt/venv/bin/python -m apex_cuda run --quiet -o s use.py' <<'PYTHON'
import subprocess
import sys
from pathlib import Path

import apex_cuda

demo = Path(sys.executable).with_name("apex")
with apex_cuda.record("s") as session, apex_cuda.range("forward"):
    subprocess.run([demo, "demo", "--bare", "matmul"], check=True, stdout=subprocess.DEVNULL)
assert apex_cuda.is_loaded()
assert session is not None and {row["executable"] for row in session.rows("launches")} == {str(demo)}
assert session.report()["schema"].startswith("apex.report/")
PYTHON
echo "ok: wheel, python -m apex_cuda, without pyarrow"
in_root root "rm -rf /opt/venv"
