"""A small transformer under DistributedDataParallel of which one rank is late, and what APEX says of it.

    ranks.py measure [--out DIR] [--ranks N]      # runs everything; needs N GPUs, or one with --one-gpu
    ranks.py check DIR                            # what `apex report` says of DIR's sessions, beside NCCL's own log
    torchrun --nproc-per-node N ranks.py train --late host

`measure` runs the training bare and recorded: no rank late, the last one late by host code, by its input, and by more work. Each run prints a digest of
the trained parameters, which must not depend on recording. In one more run each rank has an `apex run` of its own, all into one folder, and NCCL writes
each collective into a log. Sessions and logs go to DIR. `APEX_BIN` names the folder of `apex` and its libraries.

With --one-gpu, all ranks share the GPU 0. NCCL refuses that, unless it takes the ranks for processes of different hosts (NCCL_HOSTID): they then exchange
data over sockets, and the GPU changes between them in time slices. Times are not those of a real job, but the delays are as planted, and so are the
names, the ranges and the order of the collectives.
"""

import argparse
import hashlib
import json
import os
import re
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

# Longest run of a program, in seconds.
LIMIT = 90
STEPS, WARMUP = 60, 10
# The delay of the late rank in each step, in seconds, and how many times as many rows it has.
DELAY, MORE_WORK = 0.040, 4
LATE = ["none", "host", "input", "work"]
BIN = Path(os.environ.get("APEX_BIN", "target/release"))


def slow_tokenizer(seconds):
    """Host code of the late rank."""
    begun, total = time.perf_counter(), 0
    while time.perf_counter() - begun < seconds:
        total += sum(ord(letter) for letter in "a sentence that is tokenized one letter at a time")
    return total


def train(late, one_gpu):
    """One rank of the training."""
    if one_gpu:
        os.environ |= {"NCCL_HOSTID": f"host-{os.environ['RANK']}", "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1"}
    import torch
    import torch.distributed as dist
    from torch import nn

    rank, local, world = (int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
    local = 0 if one_gpu else local
    torch.cuda.set_device(local)
    torch.use_deterministic_algorithms(True)
    dist.init_process_group("nccl", device_id=torch.device("cuda", local))
    metrics = dist.new_group()
    is_late = rank == world - 1
    width, length = (512 if one_gpu else 1024), 256

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x):
            rows, tokens, _ = x.shape
            heads = self.qkv(self.first(x)).view(rows, tokens, 3, 16, width // 16).permute(2, 0, 3, 1, 4)
            scores = (heads[0] @ heads[1].transpose(-1, -2) / 8).softmax(-1)
            x = x + self.out((scores @ heads[2]).transpose(1, 2).reshape(rows, tokens, width))
            return x + self.feed(self.second(x))

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return STEPS

        def __getitem__(self, step):
            if late == "input" and is_late:
                # A disk that is slow.
                time.sleep(DELAY)
            rows = 8 * (MORE_WORK if late == "work" and is_late else 1)
            return torch.randn(rows, length, width, generator=torch.Generator().manual_seed(step * world + rank))

    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*(Block() for _ in range(6))).cuda(), device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    # Without workers, the loader reads in this process.
    times = []
    for step, rows in enumerate(torch.utils.data.DataLoader(Rows(), batch_size=None)):
        begun = time.perf_counter()
        if late == "host" and is_late:
            slow_tokenizer(DELAY)
        loss = model(rows.cuda()).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 9:
            dist.all_reduce(loss.detach(), group=metrics)
        loss.item()
        times.append(time.perf_counter() - begun)
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().cpu().numpy().tobytes())
    if rank == 0:
        print(f"digest {digest.hexdigest()}")
        print(f"step_ms {statistics.median(times[WARMUP:]) * 1e3:.3f}")
        print(f"versions torch {torch.__version__}, NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}")
    dist.destroy_process_group()


def run(command, **environment):
    """What a command prints on stdout."""
    variables = os.environ | {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"} | environment
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=LIMIT, check=False)
    if done.returncode != 0:
        sys.exit(f"{command} exits with status {done.returncode}: {done.stdout[-500:]}{done.stderr[-1500:]}")
    return done.stdout


def of_output(printed):
    """The figures that rank 0 printed."""
    lines = dict(line.split(" ", 1) for line in printed.splitlines() if line.split(" ", 1)[0] in ("digest", "step_ms", "versions"))
    return {"digest": lines["digest"], "step_ms": float(lines["step_ms"]), "versions": lines["versions"]}


def measure(out, ranks, one_gpu):
    """All runs; the raw sessions and logs are packed into `out`."""
    folder = Path(tempfile.mkdtemp())
    apex = [str(BIN / "apex"), "run", "--quiet", "--no-ptx", "-o"]
    results = {"ranks": ranks, "one_gpu": one_gpu, "runs": []}

    def one(late, recorded, apart=False):
        program = [str(Path(__file__).resolve()), "train", "--late", late, *(["--one-gpu"] if one_gpu else [])]
        launcher = ["torchrun", "--standalone", "--nproc-per-node", str(ranks)]
        name = f"{late}{'-apart' if apart else ''}"
        if apart:
            command = [*launcher, "--no-python", *apex, str(folder / name), "--", sys.executable, *program]
        else:
            command = [*launcher, *program]
            command = [*apex, str(folder / name), "--", *command] if recorded else command
        logs = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,COLL", "NCCL_DEBUG_FILE": f"{out}/nccl-%p.log"} if apart else {}
        begun = time.monotonic()
        figures = of_output(run(command, **logs))
        results["runs"].append({"late": late, "recorded": recorded, "apart": apart, **figures})
        print(json.dumps(results["runs"][-1] | {"seconds": round(time.monotonic() - begun, 1)}), flush=True)
        (out / "runs.json").write_text(json.dumps(results, indent=1) + "\n")
        if recorded:
            with tarfile.open(out / "sessions.tar.xz", "w:xz", preset=3) as sessions:
                sessions.add(folder, "sessions")

    # First what tells most, should the time be short.
    one("host", True, apart=True)
    for late, recorded in [("none", False), ("none", True), ("input", True), ("work", True), ("work", False), ("host", True)]:
        one(late, recorded)
    digests = {late: {each["digest"] for each in results["runs"] if (each["late"] == "work") == (late == "work")} for late in ("none", "work")}
    assert all(len(same) == 1 for same in digests.values()), f"recording changed the result: {digests}"


def collectives_of_log(path):
    """The collectives of each communicator in a log of NCCL, in order, and the communicators' identifiers."""
    names, calls = {}, {}
    for line in path.read_text(errors="replace").splitlines():
        if found := re.search(r"comm (0x\w+) rank \d+ .* commId (0x\w+) - Init COMPLETE", line):
            names[found[1]] = f"{int(found[2], 16):016x}"
        if found := re.search(r" (\w+): opCount (\w+) .* comm (0x\w+) \[nranks=", line):
            calls.setdefault(found[3], []).append(found[1])
    return [(names.get(comm), found) for comm, found in calls.items()]


def report(session):
    """What `apex report` says of the ranks of a session, over the whole run."""
    return json.loads(run([str(BIN / "apex"), "report", "--json", "--phase", "all", str(session)]))


def check(folder):
    """The late rank and its cause in each session of `measure`, and whether the collectives are those of NCCL's log."""
    with tempfile.TemporaryDirectory() as unpacked:
        with tarfile.open(folder / "sessions.tar.xz") as sessions:
            sessions.extractall(unpacked, filter="data")
        for session in sorted(Path(unpacked, "sessions").iterdir()):
            found = report(session)
            by_rank = found["by_rank"]
            late = by_rank["late"]
            said = {"session": session.name, "matching": by_rank["matching"], "communicators": by_rank["communicators"]}
            if late:
                said |= {"late": by_rank["ranks"][late["row"]]["rank"], "last": late["last"], "of": late["of"], "cause": late["cause"]}
                said |= {"place": late["place"], "ratio": late["ratio"], "waited_ms": round(late["waited_ns"]["value"] / 1e6, 1)}
            if logs := sorted(folder.glob("nccl-*.log")) if session.name.endswith("-apart") else []:
                logged = [collectives_of_log(log) for log in logs]
                said["nccl_log"] = [{name or "not named": len(calls) for name, calls in log} for log in logged]
                said["logs_agree"] = all([calls for _, calls in log] == [calls for _, calls in logged[0]] for log in logged)
            print(json.dumps(said))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser("train")
    verb.add_argument("--late", choices=LATE, default="none")
    verb.add_argument("--one-gpu", action="store_true")
    verb = verbs.add_parser("measure")
    verb.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "out")))
    verb.add_argument("--ranks", type=int, default=2)
    verb.add_argument("--one-gpu", action="store_true")
    verb = verbs.add_parser("check")
    verb.add_argument("folder", type=Path)
    options = parser.parse_args()
    if options.verb == "check":
        check(options.folder)
    elif options.verb == "train":
        train(options.late, options.one_gpu)
    else:
        options.out.mkdir(parents=True, exist_ok=True)
        measure(options.out.resolve(), options.ranks, options.one_gpu)


if __name__ == "__main__":
    main()
