"""One pass over operators of PyTorch that have kernels of their own, in three types: what their kernels are called."""

import torch
import torch.nn.functional as F

device = torch.device("cuda")
torch.manual_seed(1)
for dtype in (torch.float32, torch.float16, torch.bfloat16):
    x = torch.randn(2048, 1024, device=device, dtype=dtype, requires_grad=True)
    weight = torch.randn(1024, 1024, device=device, dtype=dtype, requires_grad=True)
    index = torch.randint(0, 2048, (4096,), device=device)
    pictures = torch.randn(8, 64, 32, 32, device=device, dtype=dtype, requires_grad=True)
    filters = torch.randn(64, 64, 3, 3, device=device, dtype=dtype, requires_grad=True)
    q = torch.randn(2, 8, 256, 64, device=device, dtype=dtype, requires_grad=True)
    ones, zeros = torch.ones(1024, device=device, dtype=dtype), torch.zeros(1024, device=device, dtype=dtype)
    for _ in range(10):
        results = [
            F.gelu(x), F.silu(x), torch.sigmoid(x), torch.tanh(x), x.exp(), x.abs().sqrt(), x.pow(3), x.clamp(-1, 1), x.neg(),
            x + 1, x * x, x / 2, x - x.t().reshape_as(x), torch.where(x > 0, x, -x), x.masked_fill(x > 1, 0), x.softmax(-1),
            x.log_softmax(-1), F.layer_norm(x, (1024,), ones, zeros), F.rms_norm(x, (1024,), ones), x.sum(1), x.mean(0), x.var(1),
            x.amax(1), x.norm(), x.cumsum(0), x.sort(dim=1)[0], x.topk(8, dim=1)[0], x.index_select(0, index), x[index],
            torch.cat([x, x], 1), x.t().contiguous(), F.linear(x, weight), F.dropout(x, 0.1), F.embedding(index, x), x.float().half(),
            torch.triu(x), torch.flip(x, [0]), x.repeat(2, 1), F.pad(x, (1, 1)), torch.bmm(q[0], q[0].transpose(1, 2)),
            F.scaled_dot_product_attention(q, q, q), F.conv2d(pictures, filters, padding=1), F.max_pool2d(pictures, 2),
            F.avg_pool2d(pictures, 2), F.interpolate(pictures, scale_factor=2), F.group_norm(pictures, 8),
            F.batch_norm(pictures, None, None, training=True), F.mse_loss(x, x.detach() + 1),
            F.cross_entropy(x.float(), index[:2048] % 1024), x.scatter_add(0, index[:2048].view(-1, 1) % 2048, x.detach()[:, :1]),
        ]
        sum(r.float().sum() for r in results).backward()
    parameters = [torch.randn(4096, device=device, dtype=dtype, requires_grad=True) for _ in range(8)]
    for p in parameters:
        p.grad = torch.randn_like(p)
    kinds = [torch.optim.AdamW(parameters, foreach=True), torch.optim.SGD(parameters, momentum=0.9, foreach=True)]
    kinds += [torch.optim.AdamW(parameters, fused=True)]
    for optimizer in kinds:
        for _ in range(5):
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
    torch.randn(1 << 16, device=device).uniform_().bernoulli_()
    torch.randperm(1 << 16, device=device).unique().nonzero()
    torch.fft.rfft(torch.randn(64, 4096, device=device))
torch.cuda.synchronize()
