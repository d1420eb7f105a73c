"""Whether an L2 persistence window over a buffer that every step reads makes PyTorch programs faster.

    l2_window.py ROUNDS [PROGRAM]…

A program (fast.py) takes its steps on a stream of its own, without a window and with one over each of its largest segments of
memory, in turn; an automatic choice cannot be better than the best of these. `graphs` is captured anew for each window. Prints
JSON Lines: GPU time of a step, ms, by round.
"""

import ctypes
import json
import sys

import torch

import fast

PROGRAMS = ["graphs", "decode", "resnet50", "gpt2", "matmul"]
STEPS = {"graphs": 300, "decode": 60, "resnet50": 20, "gpt2": 12, "matmul": 60}
SEGMENTS = 3
# CU_LIMIT_PERSISTING_L2_CACHE_SIZE, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW and CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE and _MAX_ACCESS_POLICY_WINDOW_SIZE.
LIMIT, WINDOW, PERSISTING, LARGEST_WINDOW = 6, 1, 108, 109
NORMAL, STREAMING, PERSIST = 0, 1, 2

driver = ctypes.CDLL("libcuda.so.1")


class Window(ctypes.Structure):
    """CUaccessPolicyWindow, in a union of 64 bytes."""

    _fields_ = [
        ("base", ctypes.c_void_p), ("bytes", ctypes.c_size_t), ("hit_ratio", ctypes.c_float),
        ("hit", ctypes.c_int), ("miss", ctypes.c_int), ("rest", ctypes.c_byte * 32),
    ]  # fmt: skip


def check(result):
    if result:
        raise RuntimeError(f"the driver returned {result}")


def device_attribute(attribute):
    value = ctypes.c_int()
    check(driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, 0))
    return value.value


def set_window(stream, base=None, size=0):
    """Sets the stream's window over this range; none if it has no bytes."""
    persisting, largest = device_attribute(PERSISTING), device_attribute(LARGEST_WINDOW)
    size = min(size, largest)
    ratio = min(1.0, persisting / size) if size else 0.0
    window = Window(base, size, ratio, PERSIST if size else NORMAL, STREAMING if size else NORMAL)
    check(driver.cuCtxSetLimit(LIMIT, ctypes.c_size_t(persisting if size else 0)))
    check(driver.cuStreamSetAttribute(ctypes.c_void_p(stream.cuda_stream), WINDOW, ctypes.byref(window)))
    check(driver.cuCtxResetPersistingL2Cache())


def step_ms(step, steps, stream):
    begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begun.record(stream)
    for _ in range(steps):
        step()
    ended.record(stream)
    ended.synchronize()
    return begun.elapsed_time(ended) / steps


def captured(name, stream):
    """What takes a step: the program's own, or for `graphs` that of `decode` captured on `stream`, whose window its kernels keep."""
    step = fast.decode() if name == "graphs" else getattr(fast, name)()
    if name != "graphs":
        return lambda: step
    for _ in range(3):
        step()

    def capture():
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            step()
        return graph.replay

    return capture


def run(name, rounds):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        make = captured(name, stream)
        step = make()
        for _ in range(5):
            step()
        torch.cuda.synchronize()
        segments = sorted(torch.cuda.memory_snapshot(), key=lambda segment: -segment["allocated_size"])[:SEGMENTS]
        windows = {"none": (None, 0)}
        for number, segment in enumerate(segments, 1):
            windows[f"segment {number} ({segment['total_size'] >> 20} MiB)"] = (segment["address"], segment["total_size"])
        steps = {}
        for title, window in windows.items():
            set_window(stream, *window)
            steps[title] = make()
        row = {"program": name, "windows": {title: [] for title in windows}}
        for _ in range(rounds):
            for title, window in windows.items():
                set_window(stream, *window)
                torch.cuda.synchronize()
                step_ms(steps[title], max(STEPS[name] // 4, 1), stream)
                row["windows"][title].append(step_ms(steps[title], STEPS[name], stream))
    print(json.dumps(row), flush=True)


def main():
    rounds, names = int(sys.argv[1]), sys.argv[2:] or PROGRAMS
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    for name in names:
        run(name, rounds)


if __name__ == "__main__":
    main()
