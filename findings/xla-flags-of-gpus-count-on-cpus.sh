#!/usr/bin/env bash
# XLA of jaxlib 0.10.2 (PyPI: jax) parses the flags of GPUs in a program that uses the CPU alone.
#
# Seen, and expected by this script; no GPU or driver is needed:
#   --xla_gpu_enable_command_buffer=''    switches CUDA graphs off: the quotes are removed, and the list is empty
#   --xla_gpu_graph_level=0               ends the process, as does any flag that this version does not know
#   --xla_gpu_deterministic_ops=yes       ends it too; 1, true, True and TRUE are true
#   … and all that at the first compilation: `import jax` succeeds
# One would guess that the CPU ignores these flags, that quotes which no shell removes stay, and that an import finds errors.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install --quiet --disable-pip-version-check --target packages jax==0.10.2 jaxlib==0.10.2
export PYTHONPATH=$folder/packages
cat >program.py <<'P'
import jax

print("imported", flush=True)
jax.jit(lambda x: x + 1)(1.0)
print("compiled", flush=True)
P
# flags, what the program must print
check() {
  seen=$(JAX_PLATFORMS=cpu XLA_FLAGS="$1" python3 program.py 2>/dev/null | tr '\n' ' ' || true)
  echo "$1: $seen"
  [ "$seen" = "$2" ]
}
check '--xla_gpu_graph_level=0' 'imported '
check '--xla_gpu_deterministic_ops=yes' 'imported '
for word in 1 true True TRUE; do
  check "--xla_gpu_deterministic_ops=$word" 'imported compiled '
done
check '--xla_dump_to=default' 'imported compiled '
check "--xla_gpu_enable_command_buffer='' --xla_dump_to=quoted" 'imported compiled '
graphs() { grep -rh 'xla_gpu_enable_command_buffer:' "$1" | sort -u | wc -l; }
echo "kinds of operations in command buffers: $(graphs default) by default, $(graphs quoted) with ''"
[ "$(graphs default)" -gt 0 ] && [ "$(graphs quoted)" = 0 ]
