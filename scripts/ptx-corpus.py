#!/usr/bin/env python3
"""Lowers PTX for 9.0 to 12.1 from many sources for older GPUs, and asks ptxas 13.5 whether it takes the result.

    cargo build --workspace --example lower
    scripts/ptx-corpus.py [--lower PROGRAM] [--work FOLDER] [--toolkits N] [--gpus 80,90] [--triton PYTHON] > docs/results/ptx-corpus.txt

The modules: a kernel for each gated form, special register and directive of the table of forms
(crates/ptx/ptx-retarget/tests/gates/statements.tsv), for the first target that has it; the sources of crates/ptx/ptx/tests/corpus
and the ones below, with libcu++ and CUB of the CUDA Core Compute Libraries and CuTe of CUTLASS, compiled by NVRTC of four toolkits; and
kernels of Triton, if PYTHON has it. What a source does not compile for is left out and counted; what has been compiled is kept. Installs NVIDIA's wheels, 600 MB,
into FOLDER (target/ptx-corpus); needs no GPU and takes about ten minutes on two cores.
"""

import argparse
import collections
import concurrent.futures
import ctypes
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GATES = ROOT / "crates/ptx/ptx-retarget/tests/gates"
SOURCES = ROOT / "crates/ptx/ptx/tests/corpus"
PTXAS = "nvidia-cuda-nvcc==13.5.37"
HEADERS_12 = ["nvidia-cuda-runtime-cu12==12.9.79", "nvidia-cuda-cccl-cu12==12.9.27"]
HEADERS_13 = ["nvidia-cuda-runtime==13.0.88", "nvidia-cuda-crt==13.0.88", "nvidia-cuda-cccl==13.0.85"]
CUTLASS = "nvidia-cutlass==4.2.0.0"
OLD = ["90", "90a", "100", "100a", "120", "120a"]
NEW = [*OLD, "100f", "103", "120f", "121"]
COMPILERS = {
    "nvidia-cuda-nvrtc-cu12==12.8.93": (HEADERS_12, OLD),
    "nvidia-cuda-nvrtc-cu12==12.9.86": (HEADERS_12, NEW),
    "nvidia-cuda-nvrtc==13.0.88": (HEADERS_13, NEW),
    "nvidia-cuda-nvrtc==13.5.37": (HEADERS_13, NEW),
}
GPUS = ["75", "80", "90", "100", "120"]
# Targets for a kernel of its own, the first that ptxas takes; PTX versions go with it.
TARGETS = ["90", "90a", "100", "120", "100f", "120f", "103", "110f", "100a", "120a", "103a", "121a", "107a"]

# Sources that use what is new: each compiles for all targets, or for some alone.
OWN = {
    "pairs": """
__device__ float2 twice(float2 a, float2 b) { return __fadd2_rn(__fmul2_rn(a, b), a); }
extern "C" __global__ void pairs(float2 *to, const float2 *from) { int i = threadIdx.x; to[i] = twice(to[i], from[i]); }
""",
    "bfloat": """
#include <cuda_bf16.h>
extern "C" __global__ void bfloat(__nv_bfloat162 *to, const __nv_bfloat162 *from) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    to[i] = __hmax2(__hfma2(to[i], from[i], from[i]), __hadd2(__hmul2(to[i], from[i]), h2exp2(from[i])));
    atomicAdd(to, from[i]);
}
""",
    "narrow": """
#include <cuda_fp8.h>
extern "C" __global__ void narrow(__nv_fp8x2_e4m3 *to, const float2 *from, float2 *back) {
    int i = threadIdx.x;
    to[i] = __nv_fp8x2_e4m3(from[i]);
    back[i] = float2(to[i]);
}
""",
    "clusters": """
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void clusters(int *to) {
    __shared__ int cell;
    auto cluster = cg::this_cluster();
    if (threadIdx.x == 0) cell = cluster.block_rank();
    cluster.sync();
    to[blockIdx.x] = *cluster.map_shared_rank(&cell, 0);
    cluster.sync();
}
""",
    "barrier": """
#include <cuda/barrier>
#include <cuda/std/utility>
extern "C" __global__ void barrier(int *to, const int *from) {
    __shared__ cuda::barrier<cuda::thread_scope_block> bar;
    __shared__ alignas(16) int cells[256];
    if (threadIdx.x == 0) init(&bar, blockDim.x);
    __syncthreads();
    cuda::memcpy_async(cells + threadIdx.x * 4, from + threadIdx.x * 4, cuda::aligned_size_t<16>(16), bar);
    bar.arrive_and_wait();
    to[threadIdx.x] = cells[threadIdx.x];
}
""",
    "reduce": """
#include <cub/block/block_reduce.cuh>
#include <cub/warp/warp_scan.cuh>
extern "C" __global__ void reduce(int *to, const int *from) {
    using Reduce = cub::BlockReduce<int, 128>;
    __shared__ typename Reduce::TempStorage storage;
    __shared__ typename cub::WarpScan<int>::TempStorage of_warp[4];
    int sum = Reduce(storage).Sum(from[threadIdx.x]), before;
    cub::WarpScan<int>(of_warp[threadIdx.x / 32]).ExclusiveSum(from[threadIdx.x], before);
    to[threadIdx.x] = sum + before + __reduce_add_sync(~0u, before);
}
""",
    "cute": """
#include <cute/tensor.hpp>
#include <cute/atom/mma_atom.hpp>
using namespace cute;
extern "C" __global__ void product(half_t *a, half_t *b, float *c) {
    auto mma = make_tiled_mma(SM80_16x8x16_F32F16F16F32_TN{});
    auto ga = make_tensor(make_gmem_ptr(a), make_layout(make_shape(Int<16>{}, Int<16>{}), LayoutRight{}));
    auto gb = make_tensor(make_gmem_ptr(b), make_layout(make_shape(Int<8>{}, Int<16>{}), LayoutRight{}));
    auto gc = make_tensor(make_gmem_ptr(c), make_layout(make_shape(Int<16>{}, Int<8>{}), LayoutRight{}));
    auto thread = mma.get_thread_slice(threadIdx.x);
    auto fa = thread.partition_fragment_A(ga); auto fb = thread.partition_fragment_B(gb); auto fc = thread.partition_fragment_C(gc);
    copy(thread.partition_A(ga), fa); copy(thread.partition_B(gb), fb); clear(fc);
    gemm(mma, fa, fb, fc); copy(fc, thread.partition_C(gc));
}
""",
    "cute group": """
#include <cute/tensor.hpp>
#include <cute/atom/mma_atom.hpp>
#include <cute/atom/copy_atom.hpp>
using namespace cute;
extern "C" __global__ void __launch_bounds__(128) group(half_t *a, half_t *b, float *c) {
    using Swizzled = decltype(tile_to_shape(GMMA::Layout_K_SW128_Atom<half_t>{}, Shape<_64, _64>{}));
    __shared__ alignas(128) half_t cells[2][64 * 64];
    auto sa = make_tensor(make_smem_ptr(cells[0]), Swizzled{}), sb = make_tensor(make_smem_ptr(cells[1]), Swizzled{});
    auto rows = make_layout(Shape<_64, _64>{}, LayoutRight{});
    auto ga = make_tensor(make_gmem_ptr(a), rows), gb = make_tensor(make_gmem_ptr(b), rows);
    auto gc = make_tensor(make_gmem_ptr(c), rows);
    for (int i = threadIdx.x; i < 64 * 64; i += 128) { sa(i / 64, i % 64) = ga(i / 64, i % 64); sb(i / 64, i % 64) = gb(i / 64, i % 64); }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    auto mma = make_tiled_mma(SM90_64x64x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>{});
    auto thread = mma.get_thread_slice(threadIdx.x);
    auto fa = thread.make_fragment_A(thread.partition_A(sa)); auto fb = thread.make_fragment_B(thread.partition_B(sb));
    auto fc = partition_fragment_C(mma, Shape<_64, _64>{});
    clear(fc);
    warpgroup_arrive(); gemm(mma, fa, fb, fc); warpgroup_commit_batch(); warpgroup_wait<0>();
    copy(fc, thread.partition_C(gc));
}
""",
    "cute tile": """
#include <cute/tensor.hpp>
#include <cute/arch/copy_sm90_tma.hpp>
#include <cutlass/arch/barrier.h>
extern "C" __global__ void __launch_bounds__(128) tile(const __grid_constant__ cute::TmaDescriptor map, int *to) {
    __shared__ alignas(128) int cells[32 * 32];
    __shared__ uint64_t bar;
    if (threadIdx.x == 0) {
        cute::initialize_barrier(bar, 1);
        cute::set_barrier_transaction_bytes(bar, sizeof(cells));
        cute::SM90_TMA_LOAD_2D::copy(&map, &bar, 0, cells, 0, 32 * blockIdx.x);
    }
    __syncthreads();
    cute::wait_barrier(bar, 0);
    to[threadIdx.x] = cells[threadIdx.x] + cells[1023 - threadIdx.x];
}
""",
    "cute small": """
#include <cute/tensor.hpp>
#include <cute/arch/mma_sm120.hpp>
extern "C" __global__ void small(uint32_t *a, uint32_t *b, float *c) {
    int t = threadIdx.x;
    float d0, d1, d2, d3;
    cute::SM120_16x8x32_TN<cute::float_e2m1_t, cute::float_e4m3_t, float>::fma(d0, d1, d2, d3, a[t], a[t + 32], a[t + 64], a[t + 96], b[t], b[t + 32], c[t], c[t + 32], c[t + 64], c[t + 96]);
    c[t] = d0 + d1 + d2 + d3;
}
""",
    "wide": """
struct alignas(32) Eight { int cells[8]; };
extern "C" __global__ void wide(Eight *to, const Eight *from) { to[threadIdx.x] = from[threadIdx.x]; }
""",
    "dependent": """
extern "C" __global__ void __launch_bounds__(128) dependent(float *to, const float *from) {
    asm volatile("griddepcontrol.wait;" ::: "memory");
    to[threadIdx.x] = fminf(fminf(from[threadIdx.x], 2.f), to[threadIdx.x]);
    asm volatile("griddepcontrol.launch_dependents;");
}
""",
}

TRITON = """
import sys, triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < n) + tl.load(y + at, at < n), at < n)

@triton.jit
def softmax(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.load(x + tl.program_id(0) * n + at, at < n, -float("inf"))
    e = tl.exp(row - tl.max(row, 0))
    tl.store(out + tl.program_id(0) * n + at, e / tl.sum(e, 0), at < n)

@triton.jit
def product(a, b, c, n, BLOCK: tl.constexpr):
    i = tl.arange(0, 64)
    k = tl.arange(0, BLOCK)
    sum = tl.zeros((64, 64), tl.float32)
    for at in range(0, n, BLOCK):
        sum += tl.dot(tl.load(a + i[:, None] * n + at + k[None, :]), tl.load(b + (at + k)[:, None] * 64 + i[None, :]))
    tl.store(c + i[:, None] * 64 + i[None, :], sum)

pointers = {"add": "*fp32", "softmax": "*fp32", "product": "*fp16"}
for kernel in (add, softmax, product):
    name = kernel.fn.__name__
    for capability in (90, 100, 120):
        names = [each for each in kernel.arg_names if each != "BLOCK"]
        signature = {each: "i32" if each == "n" else pointers[name] for each in names} | {"BLOCK": "constexpr"}
        if name == "product":
            signature["c"] = "*fp32"
        source = ASTSource(kernel, signature, {(kernel.arg_names.index("BLOCK"),): 64})
        try:
            text = triton.compile(source, target=GPUTarget("cuda", capability, 32)).asm["ptx"]
        except Exception as error:
            print(name, capability, str(error)[:200], file=sys.stderr)
            continue
        open(f"{sys.argv[1]}/triton-{triton.__version__}.{name}.{capability}.ptx", "w").write(text)
"""


def install(folder, packages):
    """The folder with these packages, which are installed if they are not there yet."""
    if not folder.exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--root-user-action=ignore"]
        subprocess.run([*pip, "--only-binary=:all:", "--target", folder, *packages], check=True)
    return folder


class Compiler:
    """NVRTC of a toolkit."""

    def __init__(self, work, package, headers):
        folder = install(work / package.replace("==", "-"), [package, *headers])
        library = next(path for path in folder.rglob("libnvrtc.so.*") if "builtins" not in path.name and "alt" not in path.name)
        self.library = ctypes.CDLL(str(library))
        cutlass = install(work / CUTLASS.replace("==", "-"), [CUTLASS])
        roots = [path.parent for path in cutlass.rglob("cute") if (path / "tensor.hpp").exists()]
        includes = {path.parent for path in folder.rglob("cuda_runtime.h")} | {path.parent for path in folder.rglob("cub") if path.is_dir()}
        crt = {path.parent.parent for path in folder.rglob("crt/host_defines.h")}
        self.includes = [*sorted(includes | crt), *roots[:1]]

    def ptx(self, name, text, target):
        """The PTX of a source; empty if it does not compile."""
        options = [f"--gpu-architecture=compute_{target}", "--std=c++17", "--device-int128", "-default-device"]
        options += [f"--include-path={folder}" for folder in self.includes]
        program = ctypes.c_void_p()
        self.library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), f"{name}.cu".encode(), 0, None, None)
        given = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
        if self.library.nvrtcCompileProgram(program, len(options), given):
            return ""
        size = ctypes.c_size_t()
        self.library.nvrtcGetPTXSize(program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        self.library.nvrtcGetPTX(program, text)
        return text.value.decode()


def refusal(ptxas, file, target):
    """What ptxas says first against a text; empty if it takes it."""
    done = subprocess.run([ptxas, "-arch", f"sm_{target}", "-o", "/dev/null", file], capture_output=True, text=True, timeout=300)
    if done.returncode == 0:
        return ""
    lines = [line for line in done.stderr.splitlines() if "error" in line or "fatal" in line]
    return lines[0] if lines else f"status {done.returncode}"


def lowered_refusal(ptxas, file, gpu):
    """The same for a GPU: an sm_90 is also an sm_90a."""
    own = f".target sm_{gpu}a" in file.read_text()[:200]
    return refusal(ptxas, file, f"{gpu}a" if own else gpu)


def own_kernels(ptxas, folder):
    """A kernel for each line of statements.tsv that some target has."""
    if any(folder.glob("own.*")):
        return
    prelude = (GATES / "prelude.txt").read_text()
    rows = [line.split("\t") for line in (GATES / "statements.tsv").read_text().splitlines() if not line.startswith("#")]

    def write(number, kind, text):
        body = f"{prelude}{text}\nDONE: ret;\n}}\n"
        if kind == "directive":
            body = f".address_size 64\n.visible .entry k() {text} {{ ret; }}\n"
        for target in TARGETS:
            file = folder / f"own.{number:03}.{target}.ptx"
            file.write_text(f".version 9.5\n.target sm_{target}\n{body}")
            if not refusal(ptxas, file, target):
                return True
            file.unlink()
        return False

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda row: write(row[0], *row[1]), enumerate(rows)))


def compiled(work, folder, toolkits):
    """The sources by each compiler for each of its targets; counts what does not compile."""
    failed = collections.Counter()
    texts = {path.stem: path.read_text() for path in sorted(SOURCES.glob("*.cu"))} | OWN
    for package, (headers, targets) in list(COMPILERS.items())[:toolkits]:
        compiler = Compiler(work, package, headers)
        version = package.split("==")[1]
        for name, text in texts.items():
            for target in targets:
                file = folder / f"nvrtc-{version}.{name}.{target}.ptx"
                none = file.with_suffix(".failed")
                if not file.exists() and not none.exists():
                    ptx = compiler.ptx(name, text, target)
                    (file if ptx else none).write_text(ptx)
                failed[version] += none.exists()
    return failed


def kind_of(name):
    return name.split(".")[0] if name.startswith("own") else re.match(r"[a-z]+-[\d.]+\d", name).group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lower", type=Path, default=ROOT / "target/debug/examples/lower")
    parser.add_argument("--work", type=Path, default=ROOT / "target/ptx-corpus")
    parser.add_argument("--triton", type=Path, help="a Python interpreter with Triton")
    parser.add_argument("--toolkits", type=int, default=len(COMPILERS), help="how many of the toolkits compile")
    parser.add_argument("--gpus", type=lambda text: text.split(","), default=GPUS, help="capabilities: 80,90")
    options = parser.parse_args()
    work, gpus = options.work, options.gpus
    modules, lowered = work / "modules", work / "lowered"
    for folder in (modules, lowered):
        folder.mkdir(parents=True, exist_ok=True)
    for file in lowered.glob("*.ptx"):
        file.unlink()
    ptxas = next(install(work / PTXAS.replace("==", "-"), [PTXAS]).rglob("ptxas"))
    ptxas.chmod(0o755)
    own_kernels(ptxas, modules)
    failed = compiled(work, modules, options.toolkits)
    if options.triton:
        (work / "kernels.py").write_text(TRITON)
        subprocess.run([options.triton, work / "kernels.py", modules], check=True)
    told = subprocess.run([options.lower, modules, lowered, *gpus], capture_output=True, text=True, check=True).stdout
    rows = [line.split("\t") for line in told.splitlines()]
    files = {(name, gpu): lowered / f"{name}.sm_{gpu}.ptx" for name, gpu, verdict, _ in rows if verdict == "lowered"}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        refused = dict(zip(files, pool.map(lambda place: lowered_refusal(ptxas, files[place], place[1]), files)))
    wrong = {place: reason for place, reason in refused.items() if reason}

    kinds, used, lacking = collections.defaultdict(collections.Counter), collections.Counter(), collections.Counter()
    for name, gpu, verdict, detail in rows:
        kinds[kind_of(name)][gpu, verdict] += 1
        if verdict == "lowered":
            used.update(detail.split(", ") if detail else ["the header alone"])
        elif verdict in ("cannot", "invalid"):
            lacking[verdict, re.match(r"\.?[^.]*", detail).group() if verdict == "cannot" else detail] += 1
    count = len({name for name, *_ in rows})
    command = "scripts/ptx-corpus.py" + (f" --toolkits {options.toolkits}" if options.toolkits < len(COMPILERS) else "")
    command += f" --gpus {','.join(gpus)}" * (gpus != GPUS) + " --triton PYTHON" * bool(options.triton)
    print(f"{command}: {count} modules for 9.0 to 12.1, ptxas 13.5.37")
    print(f"{len(refused)} lowered texts, of which ptxas refuses {len(wrong)} for the GPU; {sum(failed.values())} sources did not compile for a target")
    print("\nmodules that run as they are / lowered / not, by GPU\n")
    print("| modules | count | " + " | ".join(f"sm_{gpu}" for gpu in gpus) + " |\n| --- | ---: |" + " ---: |" * len(gpus))
    for kind, counts in sorted(kinds.items()):
        cells = [" / ".join(str(counts[gpu, verdict]) for verdict in ("runs", "lowered", "cannot")) for gpu in gpus]
        print(f"| {kind} | {sum(counts.values()) // len(gpus)} | {' | '.join(cells)} |")
    print("\nrows that were used, by modules and GPUs\n")
    for row, times in sorted(used.items()):
        print(f"{times:6} {row}")
    print("\ninstructions without a row, by modules and GPUs (the first of each)\n")
    for (verdict, form), times in sorted(lacking.items()):
        print(f"{times:6} {form if verdict == 'cannot' else f'invalid: {form}'}")
    for (name, gpu), reason in sorted(wrong.items()):
        print(f"refused: {name} for sm_{gpu}: {reason}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
