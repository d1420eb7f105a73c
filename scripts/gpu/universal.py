#!/usr/bin/env python3
"""PTX that is newer than the driver, on a GPU: refused, assembled by a newer ptxas, and lowered.

    universal.py run --apex BIN --ptxas PTXAS --out OUT     # PTXAS: of a toolkit newer than the driver, of its major version
    universal.py client FILE                                # what `run` starts: loads FILE and prints what its kernel writes

`BIN` is a folder with `apex` and its libraries. OUT/universal.json gets what the driver and APEX said.
"""

import argparse
import ctypes
import datetime
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

KERNEL = """.version {version}
.target {target}
.address_size 64
.visible .entry k(.param .u64 to) {{
.reg .b64 %rd<3>; .reg .b32 %r<3>; .reg .f32 %f<3>;
ld.param.u64 %rd0, [to]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd1, %r0, 4; add.u64 %rd0, %rd0, %rd1;
mad.lo.u32 %r1, %r0, 3, 1;
st.global.u32 [%rd0], %r1;
ret;
}}
"""
# What is loaded: a version that the driver does not read, and a target that the GPU does not have.
FILES = {"version": ("9.5", "sm_80"), "version of one architecture": ("9.5", "sm_90a"), "target": ("9.0", "sm_100")}
THREADS = 32


def client(file):
    """Prints the driver's result, and what the kernel wrote if it was loaded."""
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context, module, function = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    version, memory, values = ctypes.c_int(), ctypes.c_uint64(), (ctypes.c_uint32 * THREADS)()
    for result in (cuda.cuInit(0), cuda.cuDriverGetVersion(ctypes.byref(version)), cuda.cuDeviceGet(ctypes.byref(device), 0),
                   cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), cuda.cuCtxSetCurrent(context)):
        assert result == 0, result
    result = cuda.cuModuleLoadData(ctypes.byref(module), ctypes.c_char_p(Path(file).read_bytes()))
    told = {"driver": version.value, "result": result}
    if result == 0:
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(memory))
        for result in (cuda.cuModuleGetFunction(ctypes.byref(function), module, b"k"), cuda.cuMemAlloc_v2(ctypes.byref(memory), 4 * THREADS),
                       cuda.cuLaunchKernel(function, 1, 1, 1, THREADS, 1, 1, 0, None, parameters, None), cuda.cuCtxSynchronize(),
                       cuda.cuMemcpyDtoH_v2(values, memory, 4 * THREADS)):
            assert result == 0, result
        told["right"] = list(values) == [3 * thread + 1 for thread in range(THREADS)]
    print(json.dumps(told))


def loaded(apex, session, file, ptxas):
    """What the client prints under `apex run --universal`, and what its session says of the module."""
    environment = os.environ | {"APEX_PTXAS": str(ptxas)}
    command = [apex / "apex", "run", "--quiet", "--universal", "-o", session, "--", sys.executable, __file__, "client", file]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    report = subprocess.run([apex / "apex", "report", "--json", session], capture_output=True, text=True, timeout=60, check=False)
    told = json.loads(report.stdout)["run"]["universal"] if report.returncode == 0 else report.stderr
    return json.loads(done.stdout) | {"session": told}


def run(options):
    with tempfile.TemporaryDirectory() as folder:
        results = {"command": " ".join(sys.argv), "date": datetime.date.today().isoformat(), "files": {}}
        query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        results["hardware"] = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
        told = subprocess.run([options.ptxas, "--version"], capture_output=True, text=True, check=True).stdout
        results["ptxas"] = next(line for line in told.splitlines() if "release" in line)
        for name, (version, target) in FILES.items():
            file = Path(folder) / "k.ptx"
            file.write_text(KERNEL.format(version=version, target=target))
            bare = subprocess.run([sys.executable, __file__, "client", file], capture_output=True, text=True, timeout=60, check=True)
            of_file = results["files"][f"{name}: PTX {version}, {target}"] = {"bare": json.loads(bare.stdout)}
            for way, ptxas in {"with ptxas": options.ptxas, "without": "/nonexistent"}.items():
                of_file[way] = loaded(options.apex, Path(folder) / f"{version}{target}{way}".replace(" ", "-"), file, ptxas)
        (options.out / "universal.json").write_text(json.dumps(results, indent=1) + "\n")
        print(json.dumps(results, indent=1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser("run")
    verb.add_argument("--apex", type=lambda path: Path(path).absolute(), required=True)
    verb.add_argument("--ptxas", type=lambda path: Path(path).absolute(), required=True)
    verb.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "out")))
    verb = verbs.add_parser("client")
    verb.add_argument("file")
    options = parser.parse_args()
    if options.verb == "client":
        return client(options.file)
    options.out.mkdir(parents=True, exist_ok=True)
    return run(options)


if __name__ == "__main__":
    main()
