"""Whales under water: calls that are known are looked for in what many hydrophones record, by correlation."""

import argparse
import time

import cupy as cp
import numpy as np

HYDROPHONES, SAMPLES, CALL, CALLS = 64, 250_000, 12_008, 8


def known_calls():
    """Calls that rise or fall in pitch, as a book of sounds has them."""
    at = np.arange(CALL) / CALL
    fade = np.sin(np.pi * at) ** 2
    return np.stack([fade * np.sin(2 * np.pi * (60 + 20 * k) * at * (1 + 0.5 * (-1) ** k * at)) for k in range(CALLS)])


class Listener:
    def __init__(self):
        self.length = SAMPLES + CALL - 1
        calls = cp.asarray(known_calls(), dtype=cp.float32)
        calls /= cp.sqrt((calls**2).sum(axis=1, keepdims=True))
        self.calls = cp.conj(cp.fft.rfft(calls, n=self.length))
        self.loudest = cp.zeros((CALLS, HYDROPHONES), dtype=cp.float32)

    def listen(self, sound):
        heard = cp.fft.rfft(sound, n=self.length)
        for number in range(CALLS):
            alike = cp.fft.irfft(heard * self.calls[number], n=self.length)
            self.loudest[number] = alike[:, : SAMPLES - CALL + 1].max(axis=1)
        return self.loudest

    def loudest_call(self):
        return int(self.loudest.max(axis=1).argmax())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=4)
    args = parser.parse_args()
    listener = Listener()
    cp.random.seed(12)
    sounds = [cp.random.standard_normal((HYDROPHONES, SAMPLES), dtype=cp.float32) for _ in range(4)]
    for sound in sounds[:3]:
        listener.listen(sound)
    cp.cuda.Device().synchronize()
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        listener.listen(sounds[steps % len(sounds)])
        steps += 1
        if steps % 10 == 0:
            cp.cuda.Device().synchronize()
        if steps % 200 == 0:
            print(f"recording {steps}: call {listener.loudest_call()} is the loudest")
    cp.cuda.Device().synchronize()
    print(f"{steps / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
