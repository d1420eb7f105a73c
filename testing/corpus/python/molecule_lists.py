"""A network of graphs learns a property of molecules. Workers make the graphs; the batch is a list of them.

Cause: each molecule crosses from a worker as four small tensors, and each tensor is a file of shared memory that the main
process opens. Remedy: the worker joins a batch's molecules, so that four tensors cross.
"""

import resource

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from harness import main, small

WIDTH, KINDS = 128, 16


class Molecules(Dataset):
    def __len__(self):
        return 1 << 20

    def __getitem__(self, i):
        atoms = 12 + i % 13
        atom = torch.arange(atoms)
        kinds = (atom * 7 + i) % KINDS
        bonds = torch.stack([atom, (atom + 1) % atoms])
        lengths = 1.0 + 0.01 * (kinds + i % 5).float()
        return kinds, bonds, lengths, torch.tensor([float(i % 11)])


def joined(molecules):
    """One graph of all molecules: kinds, bonds, lengths, property, and the molecule of each atom."""
    sizes = torch.tensor([len(kinds) for kinds, _, _, _ in molecules])
    first = (sizes.cumsum(0) - sizes).tolist()
    kinds, bonds, lengths, wanted = zip(*molecules)
    bonds = torch.cat([pairs + start for pairs, start in zip(bonds, first)], 1)
    owner = torch.repeat_interleave(torch.arange(len(molecules)), sizes)
    return torch.cat(kinds), bonds, torch.cat(lengths), torch.cat(wanted), owner


class Property(nn.Module):
    def __init__(self):
        super().__init__()
        self.kinds = nn.Embedding(KINDS, WIDTH)
        self.layers = nn.ModuleList(nn.Linear(2 * WIDTH + 1, WIDTH) for _ in range(3))
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, kinds, bonds, lengths, owner, molecules):
        x = self.kinds(kinds)
        for layer in self.layers:
            sent = torch.relu(layer(torch.cat([x[bonds[0]], x[bonds[1]], lengths[:, None]], 1)))
            x = x + torch.zeros_like(x).index_add_(0, bonds[1], sent)
        return self.head(torch.zeros(molecules, WIDTH, device=x.device).index_add_(0, owner, x))[:, 0]


def as_list(molecules):
    return molecules


def build(remedy, device):
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    count, workers = small(device, 192, 4), small(device, 6, 0)
    batches = iter(DataLoader(Molecules(), count, num_workers=workers, collate_fn=joined if remedy else as_list))
    model = Property().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), fused=device.type == "cuda")

    def step():
        batch = next(batches)
        kinds, bonds, lengths, wanted, owner = (part.to(device) for part in (batch if remedy else joined(batch)))
        nn.functional.mse_loss(model(kinds, bonds, lengths, owner, count), wanted).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


if __name__ == "__main__":
    main(build)
