"""A cave is shown by the light of a lamp that moves through it: rays march through its rock, pixel by pixel."""

import argparse
import math
import time

import cupy as cp

WIDTH, HEIGHT = 1920, 1080

SOURCE = r"""
__device__ float rock(float x, float y, float z) {
    float wall = 1.6f - sqrtf(x * x + y * y);
    float drip = sinf(3.1f * x) * sinf(2.7f * y) * sinf(2.3f * z);
    float edge = sinf(7.3f * x + 0.4f) * sinf(6.1f * y) * sinf(6.7f * z);
    return wall + 0.22f * drip + 0.06f * edge;
}

extern "C" __global__ void light(float *picture, int width, int height, float at, float lamp) {
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= width || row >= height) return;
    float u = (column - 0.5f * width) / height, v = (row - 0.5f * height) / height;
    float length = rsqrtf(u * u + v * v + 1.0f);
    float dx = u * length, dy = v * length, dz = length;
    float way = 0.02f, x = 0, y = 0, z = 0;
    for (int step = 0; step < 96; ++step) {
        x = way * dx;
        y = way * dy;
        z = at + way * dz;
        float near = rock(x, y, z);
        if (near < 0.001f) break;
        way += 0.45f * near;
    }
    float here = rock(x, y, z);
    float nx = rock(x + 0.01f, y, z) - here, ny = rock(x, y + 0.01f, z) - here, nz = rock(x, y, z + 0.01f) - here;
    float size = rsqrtf(nx * nx + ny * ny + nz * nz + 1e-12f);
    float lx = 0.3f * cosf(lamp) - x, ly = 0.3f * sinf(lamp) - y, lz = at + 1.0f - z;
    float far = lx * lx + ly * ly + lz * lz + 1e-6f;
    float shine = fmaxf(0.0f, (nx * lx + ny * ly + nz * lz) * size * rsqrtf(far));
    picture[row * width + column] = shine / (1.0f + 0.3f * far);
}
"""


def compiled():
    return cp.RawKernel(SOURCE, "light", options=("--device-debug",))


class Cave:
    def __init__(self):
        self.kernel = compiled()
        self.picture = cp.zeros((HEIGHT, WIDTH), dtype=cp.float32)
        self.kept = cp.zeros((HEIGHT, WIDTH), dtype=cp.float32)

    def show(self, frame):
        at, lamp = cp.float32(0.02 * frame), cp.float32(0.11 * frame % (2 * math.pi))
        grid, block = ((WIDTH + 31) // 32, (HEIGHT + 7) // 8), (32, 8)
        self.kernel(grid, block, (self.picture, cp.int32(WIDTH), cp.int32(HEIGHT), at, lamp))
        self.kept *= 0.8
        self.kept += self.picture


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=4)
    args = parser.parse_args()
    cave = Cave()
    for frame in range(5):
        cave.show(frame)
    cp.cuda.Device().synchronize()
    began, frames = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        cave.show(frames)
        frames += 1
        if frames % 20 == 0:
            cp.cuda.Device().synchronize()
        if frames % 1000 == 0:
            print(f"frame {frames}: brightness {float(cave.kept.mean()):.4f}")
    cp.cuda.Device().synchronize()
    print(f"{frames / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
