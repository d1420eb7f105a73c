"""torch.compile: what Inductor makes of a small transformer, forward and backward, and a library of convolutions in eager mode."""

import torch
import torchvision
from torch import nn

device = torch.device("cuda")
torch.manual_seed(1)
layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, dropout=0.1)
model = torch.compile(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).to(device))
x = torch.randn(8, 256, 512, device=device)
for _ in range(30):
    with torch.autocast("cuda", torch.bfloat16):
        model(x).float().square().mean().backward()
torch.cuda.synchronize()

resnet = torchvision.models.resnet50().to(device, memory_format=torch.channels_last)
optimizer = torch.optim.SGD(resnet.parameters(), lr=0.1, momentum=0.9)
pictures = torch.randn(32, 3, 224, 224, device=device).to(memory_format=torch.channels_last)
classes = torch.randint(0, 1000, (32,), device=device)
scaler = torch.amp.GradScaler()
for _ in range(15):
    with torch.autocast("cuda", torch.float16):
        loss = nn.functional.cross_entropy(resnet(pictures), classes)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
torch.cuda.synchronize()
