"""Follows cars through the roads of a country: each crossing sends its cars on to its neighbours."""

import argparse
import time

import cupy as cp
from cupyx.scipy import sparse

CROSSINGS, ROADS = 1_000_000, 8_000_000


def road_network(seed):
    random = cp.random.RandomState(seed)
    starts = random.randint(0, CROSSINGS, ROADS).astype(cp.int32)
    ends = (starts + random.randint(1, 2000, ROADS).astype(cp.int32)) % CROSSINGS
    weights = random.random_sample(ROADS, dtype=cp.float32)
    leaving = cp.bincount(starts, weights, minlength=CROSSINGS).astype(cp.float32)
    shares = weights / leaving[starts]
    return sparse.coo_matrix((shares, (ends, starts)), shape=(CROSSINGS, CROSSINGS))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true")
    args = parser.parse_args()
    roads = road_network(7)
    if args.remedied:
        roads = roads.tocsr()
    cars = cp.full(CROSSINGS, 30.0, dtype=cp.float32)
    arriving = cp.random.RandomState(1).random_sample(CROSSINGS, dtype=cp.float32)

    def minute(cars):
        moved = roads @ cars
        return 0.97 * moved + 0.9 * arriving

    for _ in range(5):
        cars = minute(cars)
    cp.cuda.Device().synchronize()
    began, minutes = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        cars = minute(cars)
        minutes += 1
        if minutes % 60 == 0:
            print(f"hour {minutes // 60}: busiest crossing has {float(cars.max()):.1f} cars")
    cp.cuda.Device().synchronize()
    print(f"{minutes / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
