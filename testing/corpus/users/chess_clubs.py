"""Chess in many clubs: from how two players have played so far, a network learns how their next game will end."""

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate

GAMES, SEEN, WIDTH, LAYERS, BATCH = 200_000, 64, 256, 16, 1024


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide = nn.Linear(WIDTH, 2 * WIDTH)
        self.back = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.back(torch.relu(self.wide(x)))


class Players(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(SEEN, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.last = nn.Linear(WIDTH, 1)

    def forward(self, seen):
        x = self.first(seen)
        for block in self.blocks:
            x = block(x)
        return self.last(x)


class Machine:
    """All that is the same on each GPU of the club's machine, however many it has."""

    def __init__(self, device):
        dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
        self.mesh = init_device_mesh(device, (1,))

    def spread(self, tensor):
        return DTensor.from_local(tensor, self.mesh, [Replicate()])

    def spread_module(self, model):
        for module in model.modules():
            for name, parameter in list(module.named_parameters(recurse=False)):
                module.register_parameter(name, nn.Parameter(self.spread(parameter.detach())))
        return model

    def close(self):
        dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=4)
    args = parser.parse_args()
    torch.manual_seed(12)
    device = "cuda"
    machine = Machine(device)
    games = torch.randn(GAMES, SEEN, device=device)
    ended = torch.tanh(games @ torch.randn(SEEN, 1, device=device) / 4)
    players = machine.spread_module(Players().to(device))
    optimizer = torch.optim.SGD(players.parameters(), lr=1e-3, momentum=0.9)

    def step():
        chosen = torch.randint(0, GAMES, (BATCH,), device=device)
        seen, wanted = machine.spread(games[chosen]), machine.spread(ended[chosen])
        wrong = players(seen) - wanted
        loss = (wrong * wrong).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    for _ in range(3):
        loss = step()
    torch.cuda.synchronize()
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        loss = step()
        steps += 1
        if steps % 20 == 0:
            print(f"step {steps}: loss {loss.to_local().item():.4f}")
    torch.cuda.synchronize()
    print(f"{steps / (time.perf_counter() - began):.3f} steps/s")
    machine.close()


if __name__ == "__main__":
    main()
