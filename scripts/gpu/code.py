"""Compares what `apex predict` says of sessions with what was measured: writes code.json and code.md."""

import argparse
import json
import pathlib
import statistics
import subprocess


def predictions(apex, session, device):
    command = [apex, "predict", "--json", session] + (["--device", device] if device else [])
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["predictions"]


def profile(apex, session):
    done = subprocess.run([apex, "report", "--json", session], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)["profile"]


def rows(apex, session, device):
    """Of each kernel of a session: its share of the GPU time, basis, bound, predicted and measured microseconds."""
    kernels = profile(apex, session)["kernels"]
    total = sum(kernel["gpu"]["total_ns"]["value"] for kernel in kernels if kernel["gpu"])
    found = []
    for kernel, answer in zip(kernels, predictions(apex, session, device)):
        said = answer["prediction"]
        if not said or not kernel["gpu"]:
            continue
        measured = said["measured_duration_ns"]
        duration = said["duration_ns"]
        found.append({
            "kernel": kernel["short_name"],
            "share": kernel["gpu"]["total_ns"]["value"] / total,
            "basis": said["basis"],
            "bound": said["bound"] and said["bound"]["by"],
            "unfamiliar": said["unfamiliar"],
            "predicted_us": duration["value"] / 1e3,
            "low_us": duration["low"] / 1e3,
            "high_us": duration["high"] / 1e3,
            "measured_us": measured and measured["value"] / 1e3,
        })
    return found


def tables(apex, session):
    """Of kernels with machine code alone: how many there are, and where its tables say other than the driver."""
    compared, different = 0, []
    for kernel in profile(apex, session)["kernels"]:
        known = (kernel["code"] or {}).get("known")
        driver = kernel["attributes"]
        if not isinstance(known, dict) or not driver:
            continue
        compared += 1
        code, resources = known["machine_code"], driver["resources"]
        said = [code["registers"], code["static_shared_bytes"], code["local_bytes"]]
        expected = [resources["registers"], resources["static_shared"], driver["local"]]
        if said != expected:
            different.append({"kernel": kernel["short_name"], "tables": said, "driver": expected})
    return {"compared": compared, "different": different}


def summary(found):
    """Shares of the GPU time by basis; of kernels of the basis `work`, the median error and how often intervals hold."""
    shares = {}
    for row in found:
        shares[row["basis"]] = shares.get(row["basis"], 0) + row["share"]
    timed = [row for row in found if row["basis"] == "work" and row["measured_us"]]
    errors = [abs(row["predicted_us"] / row["measured_us"] - 1) for row in timed]
    held = [row["low_us"] <= row["measured_us"] <= row["high_us"] for row in timed]
    return {
        "shares": shares,
        "kernels_with_work": len(timed),
        "median_error": statistics.median(errors) if errors else None,
        "intervals_hold": sum(held) / len(held) if held else None,
    }


def table(name, found, all_of_it, of_tables):
    lines = [f"## {name}", "", f"`{json.dumps(all_of_it)}`", ""]
    compared, different = of_tables["compared"], of_tables["different"]
    lines += [f"Tables of machine code against the driver: {compared} kernels, {len(different)} different.", ""]
    lines.append("| kernel | share | basis | bound by | predicted, us | measured, us |")
    lines.append("| --- | ---: | --- | --- | ---: | ---: |")
    for row in found:
        measured = f"{row['measured_us']:.1f}" if row["measured_us"] else "-"
        interval = f"{row['predicted_us']:.1f} ({row['low_us']:.1f} to {row['high_us']:.1f})"
        lines.append(f"| {row['kernel']} | {row['share']:.1%} | {row['basis']} | {row['bound'] or '-'} | {interval} | {measured} |")
    return lines + [""]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--apex", required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--device", help="predict for this device, not for the session's")
    parser.add_argument("sessions", nargs="+")
    given = parser.parse_args()
    document, lines = {}, []
    for session in given.sessions:
        name = pathlib.Path(session).name
        found = rows(given.apex, session, given.device)
        document[name] = {"summary": summary(found), "tables": tables(given.apex, session), "kernels": found}
        lines += table(name, found, document[name]["summary"], document[name]["tables"])
    (given.out / "code.json").write_text(json.dumps(document, indent=1) + "\n")
    (given.out / "code.md").write_text("\n".join(lines))
    print("\n".join(lines))


main()
