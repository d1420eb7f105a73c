"""PyTorch, eager: a small convolutional network and a transformer block, trained for a few steps, deterministically."""

import torch
from output import write

torch.use_deterministic_algorithms(True)
torch.backends.cudnn.benchmark = False
torch.backends.cuda.enable_flash_sdp(False)
torch.backends.cuda.enable_mem_efficient_sdp(False)
torch.manual_seed(1)

convolutional = torch.nn.Sequential(
    torch.nn.Conv2d(3, 16, 3, padding=1),
    torch.nn.BatchNorm2d(16),
    torch.nn.ReLU(),
    torch.nn.Conv2d(16, 32, 3, stride=2, padding=1),
    torch.nn.GELU(),
    torch.nn.Flatten(),
    torch.nn.Linear(32 * 16 * 16, 10),
).cuda()
transformer = torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.1, batch_first=True).cuda()

for model, optimizer, shape in (
    (convolutional, torch.optim.AdamW(convolutional.parameters(), lr=1e-3), (32, 3, 32, 32)),
    (transformer, torch.optim.SGD(transformer.parameters(), lr=1e-2, momentum=0.9), (8, 20, 64)),
):
    for step in range(20):
        generator = torch.Generator().manual_seed(step)
        images = torch.randn(shape, generator=generator).cuda(non_blocking=True)
        output = model(images)
        loss = (output - torch.roll(output.detach(), 1, 0)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    write(*(p.detach().cpu().numpy() for p in model.parameters()), loss.detach().cpu().numpy())

a = torch.randn(512, 512, generator=torch.Generator().manual_seed(9)).cuda().to(torch.bfloat16)
for _ in range(50):
    a = torch.nn.functional.softmax(a @ a.T, dim=-1) + a
write(a.float().cpu().numpy())
