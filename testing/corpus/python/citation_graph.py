"""Two layers of a graph network: papers send messages along their citations, and a few papers are cited very often.

Cause: the backward pass of `papers[cited]` sorts all indices and adds their rows one after the other. Remedy: index_select.
"""

import torch
from torch import nn

from harness import main, small


class Layer(nn.Module):
    def __init__(self, width, selects):
        super().__init__()
        self.own, self.sent, self.gate = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, 1)
        self.selects = selects

    def forward(self, papers, cited, citing):
        sent = self.sent(papers)
        messages = sent.index_select(0, cited) if self.selects else sent[cited]
        messages = messages * torch.sigmoid(self.gate(messages))
        received = torch.zeros_like(papers).index_add_(0, citing, messages)
        return nn.functional.relu(self.own(papers) + received)


def build(remedy, device):
    count, citations, width = small(device, 50_000, 50), small(device, 600_000, 200), small(device, 64, 8)
    # A paper's number says how often it is cited: the first ones are known to everybody.
    cited = (torch.rand(citations, device=device) ** 3 * count).long()
    citing = torch.randint(0, count, (citations,), device=device)
    layers = nn.ModuleList(Layer(width, remedy) for _ in range(2)).to(device)
    head = nn.Linear(width, 40).to(device)
    weights = [*layers.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(weights, lr=1e-3, fused=device.type == "cuda")
    papers = torch.randn(count, width, device=device)
    fields = torch.randint(0, 40, (count,), device=device)

    def step():
        x = papers
        for layer in layers:
            x = layer(x, cited, citing)
        nn.functional.cross_entropy(head(x), fields).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


if __name__ == "__main__":
    main(build)
