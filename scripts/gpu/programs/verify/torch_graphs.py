"""PyTorch with CUDA graphs: a captured training step replayed many times, and a graphed callable."""

import torch
from output import write

torch.use_deterministic_algorithms(True)
torch.manual_seed(2)

model = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.LayerNorm(256), torch.nn.GELU(), torch.nn.Linear(256, 8)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=True)
x = torch.randn(64, 128).cuda()
y = torch.randn(64, 8).cuda()


def step():
    optimizer.zero_grad(set_to_none=True)
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    return loss


side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        step()
torch.cuda.current_stream().wait_stream(side)

graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    static_loss = step()
for i in range(200):
    generator = torch.Generator().manual_seed(i)
    x.copy_(torch.randn(64, 128, generator=generator))
    y.copy_(torch.randn(64, 8, generator=generator))
    graph.replay()
write(static_loss.detach().cpu().numpy(), *(p.detach().cpu().numpy() for p in model.parameters()))

graphed = torch.cuda.make_graphed_callables(torch.nn.Linear(128, 128).cuda(), (torch.randn(64, 128, device="cuda"),))
total = torch.zeros(64, 128, device="cuda")
for _ in range(50):
    out = graphed(x)
    out.sum().backward()
    total += out.detach()
write(total.cpu().numpy())
