#!/usr/bin/env python3
"""PTX of other GPUs than the one here: each row of the table of lowerings, the cures of `apex run --universal`, and random
programs for compute capability 9.0.

    UNIVERSAL_CASES=$PWD/cases cargo test -p ptx-retarget --test rows -- --ignored     # writes the cases; no GPU
    universal.py rows CASES --out OUT             # runs each case as it is and lowered, and compares the bits
    universal.py load --apex BIN --ptxas PTXAS --out OUT      # PTXAS: of a toolkit newer than the driver, of its major version
    cargo build --release -p apex-differential                   # on any machine with a C library no newer than the one here
    universal.py programs --differential PROGRAM --out OUT       # runs 2,000 random programs and keeps all that they compute
    universal.py client FILE                      # what `load` starts: loads FILE and prints what its kernel writes

`BIN` is a folder with `apex` and its libraries. OUT gets universal-rows.json, universal-load.json, and the folder programs
with universal-programs.json, which `differential check` compares with the CPU device. `rows` exits with 1 if a
lowered kernel leaves other bits than the kernel that this GPU runs as it is, or either other bits than the CPU device.
"""

import argparse
import ctypes
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

THREADS, WORDS = 128, 8
KERNEL = """.version {version}
.target {target}
.address_size 64
.visible .entry k(.param .u64 to) {{
.reg .b64 %rd<3>; .reg .b32 %r<3>;
ld.param.u64 %rd0, [to]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd1, %r0, 4; add.u64 %rd0, %rd0, %rd1;
mad.lo.u32 %r1, %r0, 3, 1;
st.global.u32 [%rd0], %r1;
ret;
}}
"""
# What is loaded: a version that the driver does not read, and a target that the GPU does not have.
FILES = {"version": ("9.5", "sm_80"), "version of one architecture": ("9.5", "sm_90a"), "target": ("9.0", "sm_100")}


class Gpu:
    """The driver with a context on the first device."""

    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        context, device, version = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
        self("cuInit", 0)
        self("cuDriverGetVersion", ctypes.byref(version))
        self("cuDeviceGet", ctypes.byref(device), 0)
        self("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self("cuCtxSetCurrent", context)
        self.version = version.value

    def __call__(self, name, *arguments):
        result = getattr(self.driver, name)(*arguments)
        if result:
            raise RuntimeError(f"{name}: error {result}")

    def load(self, code):
        """The kernel `k` of a module; raises with the driver's error."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(code))
        self("cuModuleGetFunction", ctypes.byref(function), module, b"k")
        return function

    def memory(self, data):
        """The address of new memory with these bytes."""
        address = ctypes.c_uint64()
        self("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(len(data)))
        self("cuMemcpyHtoD_v2", address, data, ctypes.c_size_t(len(data)))
        return address

    def launch(self, function, threads, addresses, size):
        """Launches one block with these arguments; the bytes behind the last."""
        arguments = (ctypes.c_void_p * len(addresses))(*map(ctypes.addressof, addresses))
        self("cuLaunchKernel", function, 1, 1, 1, threads, 1, 1, 0, None, arguments, None)
        self("cuCtxSynchronize")
        data = ctypes.create_string_buffer(size)
        self("cuMemcpyDtoH_v2", data, addresses[-1], ctypes.c_size_t(size))
        return data.raw


def initial(data):
    """What lies in the output before the kernel: the words of the input from the end, numbers of a moderate size."""
    words = [int.from_bytes(data[at : at + 4], "little") & 0x7FFF3FFF for at in range(0, len(data), 4)]
    return b"".join(word.to_bytes(4, "little") for word in reversed(words))


def ran(gpu, file, data):
    """The words that a kernel leaves, or the error."""
    try:
        function = gpu.load(file.read_bytes() + b"\0")
        left = gpu.launch(function, THREADS, [gpu.memory(data), gpu.memory(initial(data))], len(data))
        return [int.from_bytes(left[at : at + 4], "little") for at in range(0, len(left), 4)]
    except RuntimeError as error:
        return str(error)


def different(one, other):
    """How many words differ, and the first of them; the error if there is one."""
    if isinstance(one, str) or isinstance(other, str):
        return one if isinstance(one, str) else other
    places = [at for at in range(len(one)) if one[at] != other[at]]
    first = places and f"thread {places[0] // WORDS} word {places[0] % WORDS}: {one[places[0]]:#x}, {other[places[0]]:#x}"
    return {"words": len(one), "different": len(places)} | ({"first": first} if places else {})


def hardware():
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()


def head(gpu=None):
    command = " ".join([Path(sys.argv[0]).name, *(Path(word).name for word in sys.argv[1:])])
    told = {"command": command, "date": datetime.date.today().isoformat(), "hardware": hardware()}
    return told | ({"driver": gpu.version} if gpu else {})


def rows(options):
    gpu, cases, wrong = Gpu(), [], 0
    for file in sorted(options.cases.glob("*.row")):
        row, body = file.read_text().splitlines()[:2]
        data, expected = (file.with_suffix(f".{what}").read_bytes() for what in ("from", "expected"))
        expected = [int.from_bytes(expected[at : at + 4], "little") for at in range(0, len(expected), 4)]
        native = ran(gpu, file.with_suffix(".native.ptx"), data)
        case = {"row": row or "product", "body": body, "native and CPU device": different(native, expected)}
        lowered = file.with_suffix(".lowered.ptx")
        if lowered.exists():
            lowered = ran(gpu, lowered, data)
            case["lowered and native"] = different(lowered, native)
        cases.append(case)
        told = [case[key] for key in ("native and CPU device", "lowered and native") if key in case]
        is_wrong = any(isinstance(each, str) or each["different"] for each in told)
        wrong += is_wrong
        print("differs" if is_wrong else "same", row or "product", told if is_wrong else "")
    (options.out / "universal-rows.json").write_text(json.dumps(head(gpu) | {"cases": cases}, indent=1) + "\n")
    print(f"{len(cases)} cases, {wrong} differ")
    return wrong > 0


def client(file):
    """Prints the driver's result, and whether the kernel wrote what it should if it was loaded."""
    gpu, threads = Gpu(), 32
    told = {"driver": gpu.version, "result": "loaded"}
    try:
        function = gpu.load(Path(file).read_bytes() + b"\0")
        left = gpu.launch(function, threads, [gpu.memory(bytes(4 * threads))], 4 * threads)
        told["right"] = left == b"".join((3 * thread + 1).to_bytes(4, "little") for thread in range(threads))
    except RuntimeError as error:
        told["result"] = str(error)
    print(json.dumps(told))


def loaded(apex, session, file, ptxas):
    """What the client prints under `apex run --universal`, and what its session says of the module."""
    environment = os.environ | {"APEX_PTXAS": str(ptxas)}
    command = [apex / "apex", "run", "--quiet", "--universal", "-o", session, "--", sys.executable, __file__, "client", file]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=90, check=False)
    if done.returncode:
        return {"result": done.stderr[-2000:]}
    report = subprocess.run([apex / "apex", "report", "--json", session], capture_output=True, text=True, timeout=60, check=False)
    told = json.loads(report.stdout)["run"].get("universal", []) if report.returncode == 0 else report.stderr[-2000:]
    return json.loads(done.stdout) | {"session": told}


def load(options):
    with tempfile.TemporaryDirectory() as folder:
        told = subprocess.run([options.ptxas, "--version"], capture_output=True, text=True, check=True).stdout
        results = head() | {"ptxas": next(line for line in told.splitlines() if "release" in line), "files": {}}
        for name, (version, target) in FILES.items():
            file = Path(folder) / "k.ptx"
            file.write_text(KERNEL.format(version=version, target=target))
            bare = subprocess.run([sys.executable, __file__, "client", file], capture_output=True, text=True, timeout=60, check=True)
            of_file = results["files"][f"{name}: PTX {version}, {target}"] = {"bare": json.loads(bare.stdout)}
            for way, ptxas in {"with ptxas": options.ptxas, "without": "/nonexistent"}.items():
                session = Path(folder) / f"{version}{target}{way}".replace(" ", "-")
                of_file[way] = loaded(options.apex, session, file, ptxas)
                print(name, way, json.dumps(of_file[way])[:300])
        (options.out / "universal-load.json").write_text(json.dumps(results, indent=1) + "\n")


def programs(options):
    """Runs the programs; progress goes to standard error."""
    out, began = options.out / "programs", time.monotonic()
    command = [options.differential, "record", "--driver", "libcuda.so.1", "--hopper", options.count, "--out", out, "--whole"]
    command += ["--workers", options.workers, "--seconds", options.seconds, "--case-seconds", 4]
    command += ["--driver-version", hardware().split(",")[-1].strip(), "--date", datetime.date.today().isoformat()]
    environment = os.environ | {"CUDA_CACHE_DISABLE": "1"}
    done = subprocess.run([str(word) for word in command], env=environment, stdout=subprocess.PIPE, text=True, check=False)
    said = done.stdout.splitlines()
    failed = [line for line in said if ": " in line]
    results = head() | {"status": done.returncode, "seconds": round(time.monotonic() - began, 1), "said": said[-2:], "failed": failed}
    (options.out / "universal-programs.json").write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results)[:1500])
    return done.returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser("rows", help="run each case as it is and lowered")
    verb.add_argument("cases", type=Path)
    verb.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "out")))
    verb = verbs.add_parser("load", help="load PTX that is too new, with and without APEX")
    verb.add_argument("--apex", type=lambda path: Path(path).absolute(), required=True)
    verb.add_argument("--ptxas", type=lambda path: Path(path).absolute(), required=True)
    verb.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "out")))
    verb = verbs.add_parser("programs", help="run random programs for compute capability 9.0")
    verb.add_argument("--differential", type=lambda path: Path(path).absolute(), required=True)
    verb.add_argument("--count", type=int, default=2000)
    verb.add_argument("--seconds", type=int, default=60, help="after which no program begins")
    verb.add_argument("--workers", type=int, default=8, help="processes, each with a context")
    verb.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "out")))
    verb = verbs.add_parser("client", help="load one file")
    verb.add_argument("file")
    options = parser.parse_args()
    if options.verb == "client":
        return client(options.file)
    options.out.mkdir(parents=True, exist_ok=True)
    return {"rows": rows, "load": load, "programs": programs}[options.verb](options)


if __name__ == "__main__":
    sys.exit(main())
