"""A network is trained, and the means and spreads of what its layers put out are noted in every step.

Cause: each step registers its hooks anew and removes none, so that they grow in number. Remedy: the hooks of a step are removed.
"""

import torch
from torch import nn

from harness import main, small


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mix = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        return x + self.mix(self.norm(x))


class Survey:
    def __init__(self, network):
        self.network, self.notes = network, {}

    def begin(self):
        def note(name):
            def keep(module, inputs, output):
                output = output.detach().float()
                self.notes[name] = torch.stack([output.mean(), output.std()])

            return keep

        layers = [(name, module) for name, module in self.network.named_modules() if isinstance(module, nn.Linear)]
        return [module.register_forward_hook(note(name)) for name, module in layers]


def build(remedy, device):
    width, rows = small(device, 512, 16), small(device, 2048, 4)
    blocks = nn.Sequential(*(Block(width) for _ in range(small(device, 12, 2)))).to(device)
    head = nn.Linear(width, 10, device=device)
    optimizer = torch.optim.AdamW([*blocks.parameters(), *head.parameters()], lr=1e-4, fused=device.type == "cuda")
    x, y = torch.randn(rows, width, device=device), torch.randint(0, 10, (rows,), device=device)
    survey = Survey(blocks)

    def step():
        handles = survey.begin()
        with torch.autocast(device.type, torch.bfloat16):
            loss = nn.functional.cross_entropy(head(blocks(x)), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if remedy:
            for handle in handles:
                handle.remove()

    return step


if __name__ == "__main__":
    main(build)
