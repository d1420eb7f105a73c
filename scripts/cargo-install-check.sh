#!/usr/bin/env bash
# Installs APEX by `cargo install` on a bare Debian that has a C compiler and Rust, and runs the demo there.
#
#   scripts/cargo-install-check.sh [WORK]
#
# Needs root, debootstrap and Debian's archive. The toolchain and the downloaded crates are those of this machine; what is
# installed is the commit that is checked out. WORK (a new temporary folder by default) gets the bare system; it is kept if it
# was named, and used again.
set -euo pipefail
cd "$(dirname "$0")/.."
work=${1:-$(mktemp -d)}
root=$work/root
mkdir -p "$work"

if [ ! -x "$root/usr/bin/cc" ]; then
    echo "making a bare Debian with a C compiler in $root" >&2
    debootstrap --variant=minbase --include=gcc,libc6-dev bookworm "$root" >"$work/debootstrap.log"
fi
cargo fetch --locked --quiet
toolchain=$(rustc --print sysroot)
registry=${CARGO_HOME:-$HOME/.cargo}/registry
rm -rf "$root/src" "$root/installed"
mkdir -p "$root/opt/rust" "$root/opt/cargo/registry" "$root/src" "$root/installed"
git archive HEAD | tar x -C "$root/src"

mount --bind "$toolchain" "$root/opt/rust"
mount --bind "$registry" "$root/opt/cargo/registry"
mount -t proc proc "$root/proc"
cleanup() {
    umount "$root/opt/rust" "$root/opt/cargo/registry" "$root/proc"
    [ -n "${1:-}" ] || rm -rf "$work"
}
trap 'cleanup "$@"' EXIT

# in_root USER HOME COMMAND: with an empty environment.
in_root() {
    local path=/opt/rust/bin:/installed/bin:/usr/bin:/bin
    chroot --userspec="$1" "$root" /usr/bin/env -i HOME="$2" PATH="$path" CARGO_HOME=/opt/cargo /bin/sh -euc "$3"
}

echo "$(in_root root /root 'rustc --version'), $(in_root root /root 'cc --version | head -1')"
in_root root /root "cd /src; cargo install --quiet --offline --locked --path crates/cli --features embedded --root /installed"
in_root root /root "rm -rf /src"
echo "ok: cargo install: $(in_root nobody:nogroup /nonexistent 'apex --version'), $(stat -c %s "$root/installed/bin/apex") bytes"
folder=$(in_root nobody:nogroup /nonexistent 'mktemp -d')
in_root nobody:nogroup "$folder" 'cd; apex demo >demo.txt 2>demo.err; grep -q matmul demo.txt; apex report --json >report.json'
in_root nobody:nogroup "$folder" 'cd; grep -q apex.report report.json; test -d .cache/apex'
echo "ok: the demo runs, its report is read, and the libraries lie in the user's cache"
