#!/usr/bin/env bash
# Kernel Tuner 1.5.0 (PyPI: kernel-tuner) accepts integer results that are wrong by 10 in a million,
# whatever `atol` is.
#
# Seen, and expected by this script; g++ is needed, but no GPU or driver, because the kernel is C
# for the CPU:
#   answer 10000000, result 10000099, atol=0
#       is correct: the tolerance is atol + 0.00001 * result
#   answer 10000000, result 10000150, atol=0
#       ends the whole tuning with a RuntimeError, after 2 correct configurations
#   answer 10, result 11, atol=0
#       ends it too
# One would guess that `atol`, which the documentation describes as the maximum absolute difference,
# is the only tolerance, that integers must be equal, and that a wrong configuration is one result
# among others, like one that cannot be launched.
# A tuner that takes "correct" from Kernel Tuner can prefer a histogram, a scan or an index kernel
# that loses updates; the argument `verify` with numpy.array_equal finds them.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install --quiet --disable-pip-version-check --no-deps --target packages \
  kernel-tuner==1.5.0 numpy==2.4.6 scipy==1.17.1 python-constraint2==2.9.0 packaging==26.4 \
  jsonschema==4.26.0 jsonschema-specifications==2025.9.1 referencing==0.37.0 rpds-py==2026.9.1 \
  attrs==26.1.0 typing_extensions==4.16.0 xmltodict==1.0.4
export PYTHONPATH=$folder/packages
cat >tune.py <<'P'
import numpy as np
import kernel_tuner

SOURCE = """
extern "C" float fill(int* out, int n, int value) {
  for (int i = 0; i < n; i++) out[i] = value + wrong_by;
  return 1.0f;
}"""


def tune(value, wrong_by, **options):
    out, want = np.zeros(16, np.int32), np.full(16, value, np.int32)
    arguments = [out, np.int32(16), np.int32(value)]
    try:
        results, _ = kernel_tuner.tune_kernel(
            "fill", SOURCE, 1, arguments, {"wrong_by": wrong_by}, answer=[want, None, None],
            lang="C", compiler="g++", quiet=True, iterations=1, **options,
        )  # fmt: skip
        seen = [result["wrong_by"] for result in results]
    except RuntimeError as error:
        seen = str(error)
    print(f"answer {value}, wrong by {wrong_by}, {sorted(options)}: {seen}")
    return seen


assert tune(10_000_000, [0, 99], atol=0) == [0, 99]
assert "verification failed for: wrong_by=150" in tune(10_000_000, [0, 99, 150], atol=0)
assert "verification failed for: wrong_by=1" in tune(10, [1], atol=0)


def equal(answer, result, atol):
    return all(a is None or np.array_equal(a, r) for a, r in zip(answer, result))


assert "verification failed for: wrong_by=99" in tune(10_000_000, [99], verify=equal)
P
python3 -W ignore tune.py
