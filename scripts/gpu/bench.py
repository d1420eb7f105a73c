"""Timing and intervals that the scripts of this folder share. docs/results/method.md says why each step is as it is.

`in_turns` times functions beside each other on a GPU; it needs PyTorch. The statistics need nothing.
"""

import functools
import itertools
import math
import random
import time

ROUNDS = 9
CYCLES_PER_MS = 2_000_000  # of torch.cuda._sleep: at least those of the clocks of H100 and H200
SHORTEST_DELAY_MS, LONGEST_DELAY_MS = 0.2, 60.0
FEWEST_FOR_BOOTSTRAP, RESAMPLES = 30, 4000
# 97.5% quantiles of Student's t distribution, for 1 to 28 degrees of freedom.
T_975 = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281, 2.2010, 2.1788, 2.1604, 2.1448, 2.1314,
    2.1199, 2.1098, 2.1009, 2.0930, 2.0860, 2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484,
)

HOST_SHOWS = "\\* The host was hidden in fewer than half of the rounds: the time includes waiting for it."


def mean(values):
    return math.fsum(values) / len(values)


def median(values):
    ordered, middle = sorted(values), len(values) // 2
    return ordered[middle] if len(values) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def spread(values):
    """The distance between the largest and the smallest value, over the median."""
    return (max(values) - min(values)) / median(values)


def median_interval(values):
    """The median and its 95% confidence interval: percentiles of 4,000 resampled medians, seeded. For 30 values or more."""
    if len(values) < FEWEST_FOR_BOOTSTRAP:
        raise ValueError(f"{len(values)} values are too few for the interval of a median: use mean_interval")
    return median(values), *resampled_bounds(values, median)


def resampled_bounds(values, statistic):
    generator = random.Random(1)
    resampled = sorted(statistic(generator.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return resampled[RESAMPLES // 40 - 1], resampled[-RESAMPLES // 40]


def mean_interval(values):
    """The mean and its 95% confidence interval.

    Fewer than 30 values: Student's t, because percentiles of resampled means are too narrow for few values. From 30 on:
    percentiles of 4,000 resampled means, seeded. A single value has no interval: its bounds are infinite.
    """
    values = [float(value) for value in values]
    middle, count = mean(values), len(values)
    if count < 2:
        return middle, -math.inf, math.inf
    if count < FEWEST_FOR_BOOTSTRAP:
        deviation = math.sqrt(math.fsum((value - middle) ** 2 for value in values) / (count - 1))
        half = T_975[count - 2] * deviation / math.sqrt(count)
        return middle, middle - half, middle + half
    return middle, *resampled_bounds(values, mean)


def ratio_interval(numerators, denominators):
    """The geometric mean of the ratios of values of the same round, and its 95% confidence interval."""
    logarithms = [math.log(a / b) for a, b in zip(numerators, denominators, strict=True)]
    return tuple(map(math.exp, mean_interval(logarithms)))


def shown_ratio(numerators, denominators):
    middle, low, high = ratio_interval(numerators, denominators)
    return f"{middle:.2f} [{low:.2f}, {high:.2f}]"


def fastest(times, names):
    """The one of these names whose times have the smallest median; names without times do not count."""
    return min((name for name in names if name in times), key=lambda name: median(times[name]))


def verdict(numerators, denominators):
    """Whether a ratio of times is above 1 ("faster"), below ("slower"), or its interval has 1 in it ("equal")."""
    _, low, high = ratio_interval(numerators, denominators)
    return "faster" if low > 1 else "slower" if high < 1 else "equal"


def tally(pairs):
    """In how many rows ours is faster, as fast, slower; and the smallest and the largest ratio."""
    pairs = list(pairs)
    verdicts = [verdict(theirs, ours) for theirs, ours in pairs]
    ratios = [ratio_interval(theirs, ours)[0] for theirs, ours in pairs]
    count = {which: verdicts.count(which) for which in ("faster", "equal", "slower")}
    return (f"Against the fastest peer of each row, ours is faster in {count['faster']} of {len(pairs)} rows, slower in "
            f"{count['slower']}, and not distinguishable in {count['equal']} (the interval contains 1): {min(ratios):.2f} to "
            f"{max(ratios):.2f} times as fast, {median(ratios):.2f} in the median row.")


def is_hidden(rounds, times):
    """Whether the host was hidden in at least half of the rounds, so that the median is the GPU's time."""
    return 2 * rounds >= len(times)


def rotating(launches):
    """A function that calls the next of these at each call, so that inputs do not come from the L2 cache."""
    turns = itertools.cycle(launches)
    return lambda: next(turns)()


@functools.cache
def nvml_handle():
    """The first device of NVML, which is initialised once."""
    import pynvml

    pynvml.nvmlInit()
    return pynvml.nvmlDeviceGetHandleByIndex(0)


def sm_clock():
    """The clock of the multiprocessors in MHz, as NVML reads it; None without pynvml."""
    try:
        import pynvml

        return pynvml.nvmlDeviceGetClockInfo(nvml_handle(), pynvml.NVML_CLOCK_SM)
    except Exception:  # NVML's errors have no type where pynvml is missing
        return None


def elapsed(launch, calls, delay_ms):
    """Of so many calls behind a delay on the GPU: milliseconds of a call, whether the host had issued all of them before the
    delay ended, milliseconds of the host for a call, and the clock in MHz.

    Behind the delay no call waits for the host, unless the host takes longer than the delay or waits for the GPU itself.
    """
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    torch.cuda._sleep(int(delay_ms * CYCLES_PER_MS))
    start.record()
    began = time.perf_counter()
    for _ in range(calls):
        launch()
    host_ms = 1e3 * (time.perf_counter() - began)
    end.record()
    was_hidden = not start.query()
    clock = sm_clock()
    end.synchronize()
    return start.elapsed_time(end) / calls, was_hidden, host_ms / calls, clock


def delay_for(launch, calls):
    """The milliseconds of a delay that hides the host of so many calls; the longest one where none does."""
    import torch

    launch(), launch()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(calls):
        launch()
    delay = min(max(2e3 * (time.perf_counter() - began), SHORTEST_DELAY_MS), LONGEST_DELAY_MS)
    while delay < LONGEST_DELAY_MS and not elapsed(launch, calls, delay)[1]:
        delay = min(2 * delay, LONGEST_DELAY_MS)
    return delay


def in_turns(launches, calls, rounds=ROUNDS):
    """Times of functions beside each other, by name: `ms`, `host_ms` and `mhz` of each round, and `hidden`, the number of
    rounds in which the host was hidden. The order is drawn anew in each round. `calls(name)` is how often a round calls a function."""
    delays = {name: delay_for(launch, calls(name)) for name, launch in launches.items()}
    measured = {name: {"ms": [], "host_ms": [], "mhz": [], "hidden": 0} for name in launches}
    for _ in range(rounds):
        for name in random.sample(list(launches), len(launches)):
            row = measured[name]
            ms, was_hidden, host_ms, clock = elapsed(launches[name], calls(name), delays[name])
            if not was_hidden and delays[name] < LONGEST_DELAY_MS:  # the host was late once: once more, with a longer delay
                delays[name] = min(2 * delays[name], LONGEST_DELAY_MS)
                ms, was_hidden, host_ms, clock = elapsed(launches[name], calls(name), delays[name])
            for key, value in (("ms", ms), ("host_ms", host_ms), ("mhz", clock)):
                row[key].append(value)
            row["hidden"] += was_hidden
    return measured


def as_us(measured):
    """What `in_turns` measured, in microseconds."""
    us = lambda key: [round(1e3 * ms, 3) for ms in measured[key]]
    return {"us": us("ms"), "host_us": us("host_ms"), "mhz": measured["mhz"], "hidden": measured["hidden"]}
