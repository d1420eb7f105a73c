"""Sorts the papers of an archive by what cites them: three steps through the citations, then one linear layer."""

import argparse
import time

import torch
from torch import nn
from torch_geometric.nn import SGConv

PAPERS, CITATIONS, WORDS, TOPICS = 200_000, 3_000_000, 128, 40


def archive(seed):
    dice = torch.Generator(device="cuda").manual_seed(seed)
    cited = (torch.rand(CITATIONS, device="cuda", generator=dice) ** 2 * PAPERS).long()
    citing = torch.randint(PAPERS, (CITATIONS,), device="cuda", generator=dice)
    topics = torch.randint(TOPICS, (PAPERS,), device="cuda", generator=dice)
    meaning = torch.randn(TOPICS, WORDS, device="cuda", generator=dice)
    words = meaning[topics] + 2 * torch.randn(PAPERS, WORDS, device="cuda", generator=dice)
    return words, torch.stack((citing, cited)), topics


class Topics(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.look = SGConv(WORDS, TOPICS, K=3, **options)

    def forward(self, words, citations):
        return self.look(words, citations)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(2)
    words, citations, topics = archive(13)
    known = torch.randperm(PAPERS, device="cuda")[: PAPERS // 10]
    model = Topics(**({"cached": True} if args.remedied else {})).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=1e-4, fused=True)

    def train():
        scores = model(words, citations)
        loss = nn.functional.cross_entropy(scores[known], topics[known])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss, scores

    for _ in range(5):
        train()
    torch.cuda.synchronize()
    began, epochs = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        loss, scores = train()
        epochs += 1
        if epochs % 100 == 0:
            right = (scores.argmax(1) == topics).float().mean().item()
            print(f"epoch {epochs}: loss {loss.item():.4f}, right {right:.1%}")
    torch.cuda.synchronize()
    print(f"{epochs / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
