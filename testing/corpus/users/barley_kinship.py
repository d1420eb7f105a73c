"""How near are new lines of barley to old ones? Compares 65,536 markers, of which a plant has none, one or two copies."""

import argparse
import time

import torch

OLD, NEW, MARKERS, FIELDS = 8192, 8192, 65_536, 3


def markers(plants, seed):
    dice = torch.Generator(device="cuda").manual_seed(seed)
    found = torch.empty(plants, MARKERS, dtype=torch.float8_e4m3fn, device="cuda")
    for start in range(0, plants, 1024):
        copies = torch.randint(0, 3, (1024, MARKERS), device="cuda", generator=dice, dtype=torch.int8)
        found[start : start + 1024] = copies.to(torch.bfloat16).to(torch.float8_e4m3fn)
    return found


class Archive:
    def __init__(self):
        self.old = markers(OLD, 38)
        self.one = torch.ones((), device="cuda")
        self.nearest = torch.zeros(FIELDS, NEW, dtype=torch.long, device="cuda")

    def compare(self, new, field):
        shared = torch._scaled_mm(new, self.old.t(), scale_a=self.one, scale_b=self.one, out_dtype=torch.bfloat16, use_fast_accum=True)
        kin, self.nearest[field] = shared.max(1)
        return kin


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true")
    args = parser.parse_args()
    archive = Archive()
    fields = [markers(NEW, 39 + field) for field in range(FIELDS)]
    for field in range(FIELDS):
        kin = archive.compare(fields[field], field)
    torch.cuda.synchronize()
    began, compared = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        kin = archive.compare(fields[compared % FIELDS], compared % FIELDS)
        compared += 1
        if compared % 50 == 0:
            print(f"{compared * NEW} plants: nearest share {kin.max().item() / MARKERS:.3f}")
    torch.cuda.synchronize()
    print(f"{compared / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
