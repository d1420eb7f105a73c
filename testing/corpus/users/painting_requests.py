"""Answers requests for paintings: words are encoded, a picture is denoised in few steps, and decoded."""

import argparse
import time

import torch
from torch import nn


def encoder(width=1024, depth=8):
    layer = nn.TransformerEncoderLayer(width, 16, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)


class Painter(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Sequential(nn.Embedding(30000, 1024), encoder(depth=8))
        self.denoiser = encoder(width=1024, depth=16)
        self.decoder = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 768))


def request(model, tokens, latents, remedied):
    def stage(part, x):
        if remedied:
            return part(x)
        part.to("cuda")
        y = part(x)
        part.to("cpu")
        return y

    meaning = stage(model.words, tokens)
    latents = latents + meaning.mean(1, keepdim=True)

    def denoise(part, x):
        for _ in range(4):
            x = x - 0.25 * part(x)
        return x

    if remedied:
        latents = denoise(model.denoiser, latents)
    else:
        model.denoiser.to("cuda")
        latents = denoise(model.denoiser, latents)
        model.denoiser.to("cpu")
    return stage(model.decoder, latents)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(9)
    model = Painter().to(torch.bfloat16).eval()
    if args.remedied:
        model = model.cuda()
    tokens = torch.randint(30000, (4, 2, 77), device="cuda")
    latents = torch.randn(2, 1024, 1024, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        for step in range(2):
            picture = request(model, tokens[step], latents, args.remedied)
        torch.cuda.synchronize()
        began, steps = time.perf_counter(), 0
        while time.perf_counter() - began < args.seconds:
            picture = request(model, tokens[steps % 4], latents, args.remedied)
            torch.cuda.synchronize()
            steps += 1
            if steps % 10 == 0:
                print(f"{steps} paintings, last of mean {picture.float().mean().item():.4f}")
    print(f"{steps / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
