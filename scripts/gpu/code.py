"""Compares what `apex predict` says of sessions with what was measured: writes code.json and code.md.

With `--programs` the sessions are folders of many programs, and the comparison is over all of their kernels whose work is
known, each kernel a row of code.json: of each its share of the GPU time, what bounds it, predicted, measured and their ratio, worst first; and how large the
errors are and how often intervals hold. Programs are divided in two halves by their names, one to look at (`a`) while
predictions are worked on and one to judge them by (`b`), whose kernels are listed with `--both-halves` only.

    code.py --apex APEX --out OUT [--device DEVICE] [--programs] SESSION...
    code.py --scores ROWS       # the errors of rows that `--programs` wrote
    code.py --causes ROWS       # half `a` of them, by what decides the prediction and to which side it is off
"""

import argparse
import collections
import hashlib
import json
import math
import pathlib
import statistics
import subprocess

from figures import read_results

# Kernels of a comparison over programs: the least time of a launch, microseconds, and the least
# number of timed launches. Two ways of measuring differ by half a microsecond.
LEAST_US = 5
LEAST_TIMED = 3
# Most kernels of a program, those that take most time: some launch a kernel in hundreds of
# configurations.
MOST_OF_PROGRAM = 12
# Errors up to this are small, in tables of causes.
SMALL_ERROR = 0.2
# Ends of an interval that are this far apart are those of kernels that do what values in memory
# say.
GUESSED_SPAN = 1000


def predictions(apex, session, device, kernels):
    """What is predicted of the kernels of a session for its device, or for another one."""
    if not device or not kernels:
        return [kernel["prediction"] for kernel in kernels]
    command = [apex, "predict", "--json", session, "--device", device]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return [answer["prediction"] for answer in json.loads(done.stdout)["predictions"]]


def profile(apex, session):
    done = subprocess.run([apex, "report", "--json", session], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)["profile"]


def rows(apex, session, device):
    """Of each kernel of a session: its share of the GPU time, basis, bound, predicted and measured microseconds."""
    kernels = profile(apex, session)["kernels"]
    total = sum(kernel["gpu"]["total_ns"]["value"] for kernel in kernels if kernel["gpu"])
    found = []
    for kernel, said in zip(kernels, predictions(apex, session, device, kernels)):
        if not said or not kernel["gpu"]:
            continue
        measured = said["measured_duration_ns"]
        duration = said["duration_ns"] or dict.fromkeys(["value", "low", "high"])
        found.append({
            "kernel": kernel["short_name"],
            "share": kernel["gpu"]["total_ns"]["value"] / total,
            "timed": kernel["gpu"]["each"]["count"],
            "basis": said["basis"],
            "bound": said["bound"] and said["bound"]["by"],
            "unfamiliar": said["unfamiliar"],
            "predicted_us": microseconds(duration["value"]),
            "low_us": microseconds(duration["low"]),
            "high_us": microseconds(duration["high"]),
            "measured_us": measured and measured["value"] / 1e3,
            # A launch that waits for something else, for example for its code to be loaded,
            # counts in a mean.
            "median_us": measured and (measured["value"] - kernel["gpu"]["each"]["mean_ns"] + kernel["gpu"]["each"]["median_ns"]) / 1e3,
        })
    return found


def microseconds(ns):
    return None if ns is None else ns / 1e3


def tables(apex, session):
    """Of kernels with machine code alone: how many there are, and where its tables say other than the driver."""
    compared, different = 0, []
    for kernel in profile(apex, session)["kernels"]:
        known = (kernel["code"] or {}).get("known")
        driver = kernel["attributes"]
        if not isinstance(known, dict) or not driver:
            continue
        compared += 1
        code = known["machine_code"]
        said = [code["registers"], code["static_shared_bytes"], code["local_bytes"]]
        expected = [driver["registers"], driver["static_shared_bytes"], driver["local_bytes"]]
        if said != expected:
            different.append({"kernel": kernel["short_name"], "tables": said, "driver": expected})
    return {"compared": compared, "different": different}


def error(row):
    return abs(row["predicted_us"] / row["measured_us"] - 1)


def holds(row):
    return row["low_us"] <= row["measured_us"] <= row["high_us"]


def summary(found):
    """Shares of the GPU time by basis; of kernels of the basis `work`, the median error and how often intervals hold."""
    shares = {}
    for row in found:
        shares[row["basis"]] = shares.get(row["basis"], 0) + row["share"]
    timed = [row for row in found if row["basis"] == "work" and row["measured_us"]]
    return {
        "shares": shares,
        "kernels_with_work": len(timed),
        "median_error": statistics.median(map(error, timed)) if timed else None,
        "intervals_hold": statistics.mean(map(holds, timed)) if timed else None,
    }


def table(name, found, all_of_it, of_tables):
    lines = [f"## {name}", "", f"`{json.dumps(all_of_it)}`", ""]
    compared, different = of_tables["compared"], of_tables["different"]
    lines += [f"Tables of machine code against the driver: {compared} kernels, {len(different)} different.", ""]
    lines.append("| kernel | share | basis | bound by | predicted, us | measured, us |")
    lines.append("| --- | ---: | --- | --- | ---: | ---: |")
    for row in found:
        measured = f"{row['measured_us']:.1f}" if row["measured_us"] else "-"
        interval = "-" if row["predicted_us"] is None else f"{row['predicted_us']:.1f} ({row['low_us']:.1f} to {row['high_us']:.1f})"
        lines.append(f"| {row['kernel']} | {row['share']:.1%} | {row['basis']} | {row['bound'] or '-'} | {interval} | {measured} |")
    return lines + [""]


def half(program):
    return "ab"[hashlib.sha256(program.encode()).digest()[0] & 1]


def kind(row):
    """What is known of a kernel besides its work."""
    if row["high_us"] > GUESSED_SPAN * row["low_us"]:
        return "guessed"
    return "unfamiliar" if row["unfamiliar"] else "familiar"


def comparable(found):
    """The kernels of a program that predictions are compared with, those that take most time; measured is the median."""
    timed = [{**row, "measured_us": row["median_us"]} for row in found if row["basis"] == "work" and row["timed"] >= LEAST_TIMED]
    clear = [row for row in timed if row["measured_us"] >= LEAST_US]
    return sorted(clear, key=lambda row: -row["share"])[:MOST_OF_PROGRAM]


def scores(kernels):
    """Of each half, of all its kernels and of each kind: how many, median error, the median of the programs'
    median errors, 90th percentile of errors, how often intervals hold."""
    groups = collections.defaultdict(list)
    for row in kernels:
        for group in ("all", kind(row)):
            groups[half(row["program"]), group].append(row)
    lines = ["| half | kernels | programs | of these | median error | by program | 90th percentile | intervals hold |",
             "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for (of, group), found in sorted(groups.items()):
        errors = sorted(map(error, found))
        programs = collections.defaultdict(list)
        for row in found:
            programs[row["program"]].append(error(row))
        by_program = statistics.median(map(statistics.median, programs.values()))
        large = errors[min(int(0.9 * len(errors)), len(errors) - 1)]
        held = statistics.mean(map(holds, found))
        lines.append(f"| {of} | {group} | {len(programs)} | {len(found)} | {statistics.median(errors):.0%} | {by_program:.0%} | {large:.0%} | {held:.0%} |")
    return lines + [""]


def cause(row):
    """What decides the prediction of a kernel, and to which side it is off."""
    if kind(row) == "guessed":
        decides = "values in memory (guessed)"
    else:
        decides = {"compute": "arithmetic", "launch": "launch and tail", "tail": "launch and tail"}.get(row["bound"], row["bound"])
    if error(row) <= SMALL_ERROR:
        return decides, f"within {SMALL_ERROR:.0%}"
    return decides, "predicted too fast" if row["predicted_us"] < row["measured_us"] else "predicted too slow"


def causes(kernels):
    """Of half `a`, each cause: kernels, programs, median of predicted over measured, its share of the sum of all errors (logarithms)."""
    off = lambda row: abs(math.log(row["predicted_us"] / row["measured_us"]))
    groups = collections.defaultdict(list)
    for row in kernels:
        if half(row["program"]) == "a":
            groups[cause(row)].append(row)
    total = sum(off(row) for found in groups.values() for row in found)
    lines = ["| decided by | prediction | kernels | programs | median of predicted over measured | share of the error |", "| --- | --- | ---: | ---: | ---: | ---: |"]
    for (decides, side), found in sorted(groups.items(), key=lambda group: -sum(map(off, group[1]))):
        programs = len({row["program"] for row in found})
        ratio = statistics.median(row["predicted_us"] / row["measured_us"] for row in found)
        lines.append(f"| {decides} | {side} | {len(found)} | {programs} | {ratio:.2g} | {sum(map(off, found)) / total:.0%} |")
    return lines + [""]


def worst_first(kernels):
    lines = ["| program | half | kernel | kind | share | timed | bound by | predicted, us | measured, us | ratio |"]
    lines.append("| --- | --- | --- | --- | ---: | ---: | --- | ---: | ---: | ---: |")
    for row in sorted(kernels, key=lambda row: -abs(math.log(row["predicted_us"] / row["measured_us"]))):
        of = f"| {row['program']} | {half(row['program'])} | `{row['kernel']}` | {kind(row)} | {row['share']:.1%} | {row['timed']} | {row['bound']} "
        times = f"| {row['predicted_us']:.1f} | {row['measured_us']:.1f} | {row['predicted_us'] / row['measured_us']:.3g} |"
        lines.append(of + times)
    return lines + [""]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--apex")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--device", help="predict for this device, not for the session's")
    parser.add_argument("--programs", action="store_true", help="compare over the kernels of all sessions, not one session after the other")
    parser.add_argument("--both-halves", action="store_true", help="list the kernels of half b too")
    parser.add_argument("--scores", type=pathlib.Path, metavar="ROWS")
    parser.add_argument("--causes", type=pathlib.Path, metavar="ROWS")
    parser.add_argument("sessions", nargs="*")
    given = parser.parse_args()
    for file, table_of in ((given.scores, scores), (given.causes, causes)):
        if file:
            print("\n".join(table_of(read_results(file))), end="")
            return
    if not (given.apex and given.out and given.sessions):
        parser.error("give --apex, --out and sessions, or --scores, or --causes")
    document, lines, kernels = {}, [], []
    for session in given.sessions:
        name = pathlib.Path(session).name
        found = rows(given.apex, session, given.device)
        if given.programs:
            kernels += [{"program": name, **row} for row in comparable(found)]
            continue
        document[name] = {"summary": summary(found), "tables": tables(given.apex, session), "kernels": found}
        lines += table(name, found, document[name]["summary"], document[name]["tables"])
    if given.programs:
        for row in kernels:
            row["unfamiliar"] = bool(row["unfamiliar"])
        (given.out / "code.json").write_text("[\n" + ",\n".join(map(json.dumps, kernels)) + "\n]\n")
        listed = [row for row in kernels if given.both_halves or half(row["program"]) == "a"]
        lines = scores(kernels) + worst_first(listed)
    else:
        (given.out / "code.json").write_text(json.dumps(document, indent=1) + "\n")
    (given.out / "code.md").write_text("\n".join(lines))
    print("\n".join(lines))


main()
