"""Small transformers on several GPUs, of which the last rank can be late: what `ranks.py` records.

    torchrun --nproc-per-node N rank_programs.py ddp --late host
    torchrun --nproc-per-node N rank_programs.py fsdp --windows 24 --switch "apex ctl {} SESSION"

`ddp` and `fsdp` train with replicated and with sharded parameters, `tensor` answers requests with each layer split over the ranks, and `experts` trains a
mixture of experts, one expert a rank, to which tokens go by all-to-all. The last rank is late by host code in each step, by its input, or by more work: more
rows, a larger share of each layer, or more tokens for its expert. With `--late link`, the last rank copies buffers to the GPU of rank 0 beside its work, so that
their link carries more than the collectives.

Rank 0 prints a digest of the parameters (of `tensor`: of the last output), which must not depend on recording, and the median of its steps. With --windows,
it runs the command of --switch, with `on` and `off` in turn, between windows of steps, and prints the median of each window.
"""

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import time

STEPS, WARMUP = 60, 10
# Steps of a window; the first ones are not counted, as a switch takes effect at the next call of each thread.
WINDOW, SETTLE = 20, 4
# The delay of the late rank in each step, in seconds, and how many times as much work it has.
DELAY, MORE_WORK = 0.040, 4
LENGTH, LAYERS = 256, 6
PROGRAMS = ["ddp", "fsdp", "tensor", "experts"]
LATE = ["none", "host", "input", "work", "link"]
# What the last rank copies to rank 0 in each step of `link`.
COPIES, COPIED_BYTES = 8, 512 << 20


def slow_tokenizer(seconds):
    """Host code of the late rank."""
    begun, total = time.perf_counter(), 0
    while time.perf_counter() - begun < seconds:
        total += sum(ord(letter) for letter in "a sentence that is tokenized one letter at a time")
    return total


def slow_disk(seconds):
    """Input of the late rank."""
    time.sleep(seconds)


class Rank:
    """Who this process is, and what makes it late."""

    def __init__(self, late, one_gpu):
        self.number, local, self.world = (int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
        self.device, self.width = (0, 512) if one_gpu else (local, 1024)
        self.late = late if self.number == self.world - 1 else "none"
        # Known to all ranks: how much more of the work the last one has.
        self.last_has = MORE_WORK if late == "work" else 1

    def share(self, total):
        """How many of `total` parts each rank has: as many as the others, or `MORE_WORK` times as many for the last."""
        each = total // (self.world - 1 + self.last_has)
        return [each] * (self.world - 1) + [total - each * (self.world - 1)]


def busy_link(torch, rank, step):
    """`step`, beside copies from the last rank's GPU to that of rank 0."""
    if rank.late != "link":
        return step
    stream = torch.cuda.Stream()
    here, there = (torch.empty(COPIED_BYTES, dtype=torch.uint8, device=device) for device in (rank.device, 0))

    def with_copies(number):
        with torch.cuda.stream(stream):
            for _ in range(COPIES):
                there.copy_(here, non_blocking=True)
        step(number)

    return with_copies


def layers_of(torch, rank, feed):
    """Layers of attention, each followed by what `feed` makes."""
    nn, width = torch.nn, rank.width

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.feed = feed()

        def forward(self, x):
            rows, tokens, _ = x.shape
            heads = self.qkv(self.first(x)).view(rows, tokens, 3, 16, width // 16).permute(2, 0, 3, 1, 4)
            scores = (heads[0] @ heads[1].transpose(-1, -2) / 8).softmax(-1)
            x = x + self.out((scores @ heads[2]).transpose(1, 2).reshape(rows, tokens, width))
            return x + self.feed(self.second(x))

    return nn.Sequential(*(Block() for _ in range(LAYERS))).cuda()


def dense(torch, rank):
    """A feed-forward network."""
    nn, width = torch.nn, rank.width
    return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))


def split_over_ranks(torch, rank):
    """A feed-forward network whose hidden units are split over the ranks; each one's part of the output is summed."""
    nn, dist, width = torch.nn, torch.distributed, rank.width

    class Split(nn.Module):
        def __init__(self):
            super().__init__()
            hidden = rank.share(4 * width * rank.world)[rank.number]
            # The rest of the model has the same parameters on all ranks.
            with torch.random.fork_rng():
                torch.manual_seed(1 + rank.number)
                self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width, bias=False)

        def forward(self, x):
            part = self.down(nn.functional.gelu(self.up(x)))
            dist.all_reduce(part)
            return part

    return Split()


def experts_of_ranks(torch, rank):
    """One expert a rank. Tokens are routed by their place in the batch, so that every run has the same loads."""
    nn = torch.nn
    exchange = torch.distributed.nn.functional.all_to_all_single

    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.expert = dense(torch, rank)

        def forward(self, x):
            tokens = x.reshape(-1, rank.width)
            sent = rank.share(len(tokens))
            received = [sent[rank.number]] * rank.world
            mine = exchange(tokens.new_empty(sum(received), rank.width), tokens, received, sent)
            return exchange(torch.empty_like(tokens), self.expert(mine), sent, received).view_as(x)

    return Experts()


def rows_of(torch, rank, rows, same=False):
    """A data set of batches of `rows` sequences, the same ones on all ranks or others on each."""

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return 1 << 30

        def __getitem__(self, step):
            if rank.late == "input":
                slow_disk(DELAY)
            generator = torch.Generator().manual_seed(step * rank.world + (0 if same else rank.number))
            return torch.randn(rows, LENGTH, rank.width, generator=generator)

    # Without workers, the loader reads in this process.
    return iter(torch.utils.data.DataLoader(Rows(), batch_size=None))


def replicated(torch, rank):
    """Training with all parameters on each rank."""
    model = layers_of(torch, rank, lambda: dense(torch, rank))
    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank.device])
    return training(torch, rank, model, 8 * (MORE_WORK if rank.late == "work" else 1)), model


def sharded(torch, rank):
    """Training with a part of each parameter on each rank."""
    from torch.distributed.fsdp import fully_shard

    model = layers_of(torch, rank, lambda: dense(torch, rank))
    for layer in model:
        fully_shard(layer)
    return training(torch, rank, fully_shard(model), 8 * (MORE_WORK if rank.late == "work" else 1)), model


def of_experts(torch, rank):
    """Training with an expert on each rank; the gradients of the other parameters are summed."""
    model = layers_of(torch, rank, lambda: experts_of_ranks(torch, rank))
    shared = [parameter for name, parameter in model.named_parameters() if "expert" not in name]

    def sum_gradients():
        flat = torch.cat([parameter.grad.flatten() for parameter in shared])
        torch.distributed.all_reduce(flat)
        parts = flat.split([parameter.numel() for parameter in shared])
        for parameter, part in zip(shared, parts, strict=True):
            parameter.grad.copy_(part.view_as(parameter))

    return training(torch, rank, model, 8, sum_gradients), model


def training(torch, rank, model, rows, after_backward=lambda: None):
    """One step of training, with a metric that all ranks sum every tenth step over a communicator of its own."""
    metrics = torch.distributed.new_group()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    batches = rows_of(torch, rank, rows)

    def step(number):
        batch = next(batches)
        if rank.late == "host":
            slow_tokenizer(DELAY)
        loss = model(batch.cuda()).square().mean()
        loss.backward()
        after_backward()
        optimizer.step()
        optimizer.zero_grad()
        if number % 10 == 9:
            torch.distributed.all_reduce(loss.detach(), group=metrics)
        loss.item()

    return step


def answering(torch, rank):
    """One request whose feed-forward networks are split over the ranks."""
    model = layers_of(torch, rank, lambda: split_over_ranks(torch, rank))
    requests = rows_of(torch, rank, 8, same=True)
    model.answer = None

    @torch.inference_mode()
    def step(_):
        request = next(requests)
        if rank.late == "host":
            slow_tokenizer(DELAY)
        model.answer = model(request.cuda())
        model.answer.mean().item()

    return step, model


def digest_of(torch, model):
    """A hash of a model's last answer, or of its parameters."""
    digest = hashlib.sha256()
    answer = getattr(model, "answer", None)
    for tensor in model.parameters() if answer is None else [answer]:
        whole = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
        digest.update(whole.detach().cpu().numpy().tobytes())
    return digest.hexdigest()


def timed(step, number):
    """The seconds of one step."""
    begun = time.perf_counter()
    step(number)
    return time.perf_counter() - begun


def windows(torch, rank, step, count, switch):
    """Milliseconds of a step in windows with recording on and off in turn."""
    medians = []
    for window in range(count):
        state = "on" if window % 2 == 0 else "off"
        if rank.number == 0:
            subprocess.run(switch.format(state).split(), check=True, capture_output=True)
        torch.distributed.barrier()
        times = [timed(step, window * WINDOW + each) for each in range(WINDOW)]
        medians.append({"recording": state, "step_ms": round(statistics.median(times[SETTLE:]) * 1e3, 4)})
    return medians


def run(options):
    """One rank of a program."""
    rank = Rank(options.late, options.one_gpu)
    if options.one_gpu:
        os.environ |= {"NCCL_HOSTID": f"host-{rank.number}", "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1"}
    import torch
    import torch.distributed.nn.functional

    torch.cuda.set_device(rank.device)
    torch.use_deterministic_algorithms(True)
    torch.distributed.init_process_group("nccl", device_id=torch.device("cuda", rank.device))
    torch.manual_seed(0)
    programs = {"ddp": replicated, "fsdp": sharded, "tensor": answering, "experts": of_experts}
    step, model = programs[options.program](torch, rank)
    step = busy_link(torch, rank, step)
    times = [timed(step, number) for number in range(STEPS)]
    digest = digest_of(torch, model)
    medians = windows(torch, rank, step, options.windows, options.switch)
    if rank.number == 0:
        print(f"digest {digest}")
        print(f"step_ms {statistics.median(times[WARMUP:]) * 1e3:.3f}")
        print(f"windows {json.dumps(medians)}")
        print(f"versions torch {torch.__version__}, NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}")
    torch.distributed.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("--late", choices=LATE, default="none")
    parser.add_argument("--one-gpu", action="store_true")
    parser.add_argument("--windows", type=int, default=0)
    parser.add_argument("--switch", default="true", help="the command that switches recording; {} is `on` or `off`")
    run(parser.parse_args())


if __name__ == "__main__":
    main()
