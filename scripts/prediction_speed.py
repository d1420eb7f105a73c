"""Tables of how long predictions take, from the file that `cargo bench -p apex-model -- --json FILE` writes.

    prediction_speed.py tables FILE

The page docs/results/prediction-speed.md shows them, and a test compares (xtask/tests/figures.rs).
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "gpu"))
from figures import read_results

HEADER = "| what | weights | warm, µs | cold, µs | goal, µs | error, mean (greatest) |\n| --- | --- | ---: | ---: | ---: | ---: |"


def quantile(samples, fraction):
    """The sample at this place of the sorted ones, the nearest where none is."""
    return sorted(samples)[round((len(samples) - 1) * fraction)]


def time(seconds):
    """`28.0 (26.7 to 30.9)`: median, first and ninth decile, in microseconds."""
    low, median, high = (quantile(seconds, fraction) * 1e6 for fraction in (0.1, 0.5, 0.9))
    digits = 3 if median < 1 else 1
    return f"{median:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def power(value):
    """`5.8e-8`."""
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def row(series):
    goal = "-" if series["goal_us"] is None else f"{series['goal_us']:g}"
    error = "-"
    if series["error_mean"] is not None:
        error = f"{power(series['error_mean'])} ({power(series['error_greatest'])})"
    times = f"{time(series['warm_seconds'])} | {time(series['cold_seconds'])}"
    return f"| {series['what']} | {series['precision']} | {times} | {goal} | {error} |"


def tables(path):
    data = read_results(path)
    print(f"{data['cpu']}, one thread, ONNX Runtime {data['onnxruntime'] or 'not installed'}.")
    print("Microseconds for one prediction: medians (1st to 9th decile).")
    for network in data["networks"]:
        print(f"\n**{network['name']}**, {network['shape']}, {network['parameters']} parameters:\n")
        print(HEADER)
        for series in network["series"]:
            print(row(series))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["tables", path]:
            tables(path)
        case _:
            sys.exit(__doc__)
