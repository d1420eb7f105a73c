"""Two networks with branches, for inference, of short kernels: what scheduling.py measures beside unmodified CUDA programs.

    branched_networks.py NETWORK WAYS ROWS

NETWORK: `inception` (blocks of four branches of convolutions) or `recommender` (towers of embeddings, their interaction, and
layers above). WAYS, with commas, which take turns: `serial` (one stream), `graph` (a CUDA graph of one stream), `streams`
(branches on streams of their own, with events), `branches` (a CUDA graph of these). A row is 20 steps without a wait between them. Prints a line of JSON for each
way: the median time of a step in the second half of the rows, µs, the launches of a step, those of its longest chain, and a
digest of the outputs. It needs CuPy; with CUPY_COMPILE_WITH_PTX=1 the driver compiles the kernels.
"""

import hashlib
import json
import sys
import time

import cupy
import numpy

SOURCE = r"""
extern "C" {
// Rows of `to` (channels) from those of `from`, each weighted over a window of `k` by `k` around a point, and cut off at 0.
__global__ void convolve(float *to, const float *from, const float *weights, int channels, int side, int k) {
  int at = blockIdx.x * blockDim.x + threadIdx.x, points = side * side, half = k / 2;
  if (at >= points) return;
  int channel = blockIdx.y, y = at / side, x = at % side;
  float sum = 0;
  for (int c = 0; c < channels; c++)
    for (int dy = -half; dy <= half; dy++)
      for (int dx = -half; dx <= half; dx++) {
        int v = y + dy, u = x + dx;
        if (v >= 0 && v < side && u >= 0 && u < side)
          sum += from[c * points + v * side + u] * weights[((channel * channels + c) * k + dy + half) * k + dx + half];
      }
  to[channel * points + at] = sum > 0 ? sum : 0;
}

__global__ void greatest(float *to, const float *from, int side) {
  int at = blockIdx.x * blockDim.x + threadIdx.x, points = side * side;
  if (at >= points) return;
  int y = at / side, x = at % side;
  float most = -1e30f;
  for (int v = max(y - 1, 0); v <= min(y + 1, side - 1); v++)
    for (int u = max(x - 1, 0); u <= min(x + 1, side - 1); u++) most = fmaxf(most, from[blockIdx.y * points + v * side + u]);
  to[blockIdx.y * points + at] = most;
}

// The channels of four branches behind each other.
__global__ void join(float *to, const float *a, const float *b, const float *c, const float *d, int each) {
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= each) return;
  to[at] = a[at]; to[each + at] = b[at]; to[2 * each + at] = c[at]; to[3 * each + at] = d[at];
}

// For each row, the sum of the rows of a table that its indices name.
__global__ void embed(float *to, const float *table, const int *indices, int bag, int width) {
  int at = threadIdx.x, row = blockIdx.x;
  float sum = 0;
  for (int i = 0; i < bag; i++) sum += table[indices[row * bag + i] * width + at];
  to[row * width + at] = sum;
}

// A layer: a row of `to` is a row of `from` times a matrix, cut off at 0.
__global__ void layer(float *to, const float *from, const float *weights, int inner, int outer) {
  int at = threadIdx.x, row = blockIdx.x;
  float sum = 0;
  for (int i = 0; i < inner; i++) sum += from[row * inner + i] * weights[i * outer + at];
  to[row * outer + at] = sum > 0 ? sum : 0;
}

// The products of all pairs of four towers, in a row.
__global__ void interact(float *to, const float *a, const float *b, const float *c, const float *d, int width) {
  int at = threadIdx.x, row = blockIdx.x, from = row * width + at;
  float w = a[from], x = b[from], y = c[from], z = d[from], *out = to + row * 6 * width + at;
  out[0] = w * x; out[width] = w * y; out[2 * width] = w * z; out[3 * width] = x * y; out[4 * width] = x * z; out[5 * width] = y * z;
}
}
"""

STEPS_OF_ROW, CHECKED = 20, 3
random = numpy.random.default_rng(1)


def values(*shape):
    return cupy.asarray((random.random(shape, dtype=numpy.float32) - numpy.float32(0.4)) * numpy.float32(0.2))


class Network:
    """Launches of a step: each with the branch in which it is, and the branches for which it waits."""

    def __init__(self):
        self.module = cupy.RawModule(code=SOURCE)
        self.launches, self.chains = [], {}

    def add(self, branch, name, grid, block, *arguments, after=()):
        kernel = self.module.get_function(name)
        given = tuple(one if isinstance(one, cupy.ndarray) else cupy.int32(one) for one in arguments)
        events = [(other, cupy.cuda.Event(disable_timing=True)) for other in after]
        self.launches.append((branch, events, kernel, grid, block, given))
        self.chains[branch] = 1 + max(self.chains.get(one, 0) for one in (branch, *after))

    def serial(self):
        for _, _, kernel, grid, block, given in self.launches:
            kernel(grid, block, given)

    def on(self, streams):
        """The same, each branch on its stream. A branch waits for another by an event that is recorded then."""
        for branch, after, kernel, grid, block, given in self.launches:
            for other, event in after:
                streams[other].record(event)
                streams[branch].wait_event(event)
            with streams[branch]:
                kernel(grid, block, given)


def convolution(network, branch, channels, outer, side, k, from_, after=()):
    to = cupy.zeros((outer, side, side), cupy.float32)
    grid = ((side * side + 63) // 64, outer)
    network.add(branch, "convolve", grid, (64,), to, from_, values(outer, channels, k, k), channels, side, k, after=after)
    return to


def inception(side=28, channels=64, blocks=4):
    network, each = Network(), channels // 4
    image = now = values(channels, side, side)
    for _ in range(blocks):
        # The branches begin once the join of the block before, on branch 0, is over; its own launch comes last.
        begin = (0,)
        three = convolution(network, 1, each, each, side, 3, convolution(network, 1, channels, each, side, 1, now, begin))
        five = convolution(network, 2, each, each, side, 5, convolution(network, 2, channels, each, side, 1, now, begin))
        pooled = cupy.zeros_like(now)
        network.add(3, "greatest", ((side * side + 63) // 64, channels), (64,), pooled, now, side, after=begin)
        last = convolution(network, 3, channels, each, side, 1, pooled)
        one = convolution(network, 0, channels, each, side, 1, now)
        now, count = cupy.zeros_like(now), each * side * side
        network.add(0, "join", ((count + 255) // 256,), (256,), now, one, three, five, last, count, after=(1, 2, 3))
    return network, image, now


def recommender(rows=128, width=64, towers=4, bag=20, size=20_000):
    network, ends = Network(), []
    for tower in (*range(1, towers), 0):
        chosen = cupy.asarray(random.integers(0, size, (rows, bag), dtype=numpy.int32))
        now = cupy.zeros((rows, width), cupy.float32)
        network.add(tower, "embed", (rows,), (width,), now, values(size, width), chosen, bag, width, after=(0,) if tower else ())
        for _ in range(3):
            before, now = now, cupy.zeros((rows, width), cupy.float32)
            network.add(tower, "layer", (rows,), (width,), now, before, values(width, width), width, width)
        ends.append(now)
    joint = cupy.zeros((rows, 6 * width), cupy.float32)
    network.add(0, "interact", (rows,), (width,), joint, *ends, width, after=tuple(range(1, towers)))
    now, inner = joint, 6 * width
    for outer in (256, 64, 1):
        before, now = now, cupy.zeros((rows, outer), cupy.float32)
        network.add(0, "layer", (rows,), (outer,), now, before, values(inner, outer), inner, outer)
        inner = outer
    return network, chosen, now


def step_of(way, network, stream):
    if way == "serial":
        return network.serial
    streams = [stream] + [cupy.cuda.Stream(non_blocking=True) for _ in range(3)]
    if way == "streams":
        return lambda: network.on(streams)
    stream.begin_capture()
    network.serial() if way == "graph" else network.on(streams)
    graph = stream.end_capture()
    return lambda: graph.launch(stream)


def row(step, stream):
    """The time of a step, µs."""
    stream.synchronize()
    begun = time.perf_counter()
    for _ in range(STEPS_OF_ROW):
        step()
    stream.synchronize()
    return (time.perf_counter() - begun) * 1e6 / STEPS_OF_ROW


def main():
    name, ways, rows = sys.argv[1], sys.argv[2].split(","), int(sys.argv[3])
    network, input_, output = {"inception": inception, "recommender": recommender}[name]()
    digests, times = {way: hashlib.sha256() for way in ways}, {way: [] for way in ways}
    cupy.cuda.runtime.deviceSynchronize()
    with cupy.cuda.Stream(non_blocking=True) as stream:
        network.serial()
        steps = {way: step_of(way, network, stream) for way in ways}
        for number in range(rows):
            is_checked = number % (rows // CHECKED) == 0
            for way in ways if number % 2 == 0 else reversed(ways):
                if is_checked:
                    output.fill(-1)
                times[way].append(row(steps[way], stream))
                if is_checked:
                    digests[way].update(output.get().tobytes())
            if is_checked:
                # Another input: what was kept of an earlier step would show.
                input_[...] = input_[::-1].copy()
        total = float(output.sum())
    for way in ways:
        second = sorted(times[way][rows // 2 :])
        print(json.dumps({
            "program": name, "way": way, "us": second[len(second) // 2], "launches": len(network.launches),
            "longest_chain": max(network.chains.values()), "sum": total, "digest": digests[way].hexdigest(),
        }))


if __name__ == "__main__":
    main()
