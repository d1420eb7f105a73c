"""Compares the echoes at 32 microphones with the calls of many kinds of bats; each kind calls for its own time."""

import argparse
import time

import cupy as cp

MICROPHONES, RATE, KINDS = 32, 250_000, 36


class Kind:
    def __init__(self, number, random):
        self.length = 2400 + 188 * number
        moments = cp.arange(self.length, dtype=cp.float32) / RATE
        start, end = 90_000 - 1200 * number, 30_000 + 400 * number
        sweep = start + (end - start) * moments / moments[-1] / 2
        call = cp.sin(2 * cp.pi * sweep * moments) * cp.hanning(self.length)
        self.spectrum = cp.conj(cp.fft.rfft(call.astype(cp.float32)))
        self.heard = 0.0

    def strongest(self, night, began):
        window = night[:, began : began + self.length]
        echoes = cp.fft.irfft(cp.fft.rfft(window) * self.spectrum, self.length)
        return cp.abs(echoes).max()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true")
    args = parser.parse_args()
    if args.remedied:
        cp.fft.config.get_plan_cache().set_size(128)
    random = cp.random.default_rng(1)
    night = random.standard_normal((MICROPHONES, 4 * RATE), dtype=cp.float32)
    kinds = [Kind(number, random) for number in range(KINDS)]
    scores = cp.zeros(KINDS, dtype=cp.float32)

    def listen(moment):
        began = moment * 500 % (3 * RATE)
        for number, kind in enumerate(kinds):
            scores[number] = 0.9 * scores[number] + 0.1 * kind.strongest(night, began)

    for moment in range(4):
        listen(moment)
    cp.cuda.Device().synchronize()
    began, moments = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        listen(moments)
        moments += 1
        if moments % 50 == 0:
            print(f"{moments}: most like kind {int(scores.argmax())}")
    cp.cuda.Device().synchronize()
    print(f"{moments / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
