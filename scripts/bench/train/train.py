"""Trains one of the models of models.go with PyTorch on the CPU, as fast as possible there.

    train.py MODEL BATCH LR WARM_UP STEPS

is one rank; RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT place it. The arrays are in the folder above the working one. Batches are cut before the
clock starts, and nothing is read of a step until it stops. Rank 0 prints, as a JSON object, what readTorch (sides.go) reads.
"""

import json
import math
import os
import sys
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def dense():
    return nn.Linear(20, 1)


def mlp():
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10))


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 10),
    ).to(memory_format=torch.channels_last)  # the faster one


class Attention(nn.Module):
    def __init__(self, width, heads, context):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.register_buffer("mask", torch.full((context, context), -math.inf).triu(1), persistent=False)

    def forward(self, x):
        batch, context, width = x.shape
        qkv = self.qkv(x).view(batch, context, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).reshape(3, batch * self.heads, context, -1)
        scores = torch.baddbmm(self.mask, q, k.transpose(1, 2), alpha=1 / math.sqrt(width // self.heads))
        y = torch.bmm(scores.softmax(-1), v).view(batch, self.heads, context, -1)
        return self.proj(y.transpose(1, 2).reshape(batch, context, width))


class Block(nn.Module):
    def __init__(self, width, heads, context):
        super().__init__()
        self.ln1, self.attn = nn.LayerNorm(width), Attention(width, heads, context)
        self.ln2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self, layers=4, heads=4, width=128, context=128, symbols=256):
        super().__init__()
        self.token, self.position = nn.Embedding(symbols, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads, context) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, symbols, bias=False)
        for name, p in self.named_parameters():  # GPT-2's initial values
            if p.dim() > 1:
                nn.init.normal_(p, 0, 0.02 / (math.sqrt(2 * layers) if name.endswith(("proj.weight", "mlp.2.weight")) else 1))
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, ids):
        x = self.token(ids) + self.position.weight
        return self.head(self.norm(self.blocks(x))).flatten(0, 1)


def rows(model):
    """Inputs and targets of this rank's rows, chosen as by DistributedSampler without shuffling."""
    if model == "gpt":
        text = torch.from_numpy(np.fromfile("../text.bin", np.uint8).astype(np.int64))
        x, y = text[:-1].view(-1, 128), text[1:].view(-1, 128)
    else:
        x, y = (torch.from_numpy(np.load(f"../{model}-{part}.npy")) for part in ("inputs", "targets"))
    return x[RANK::WORLD].contiguous(), y[RANK::WORLD].contiguous()


def main():
    name, batch, lr, warm_up, steps = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = {"dense": dense, "mlp": mlp, "cnn": cnn, "gpt": GPT}[name]()
    parameters = sum(p.numel() for p in model.parameters())
    loss_of = F.mse_loss if name == "dense" else F.cross_entropy
    x, y = rows(name)
    batches = [(a, b.flatten() if name == "gpt" else b) for a, b in zip(x.split(batch), y.split(batch))]
    if WORLD > 1:
        dist.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)

    last = []
    for step in range(steps):
        if step == warm_up:
            start = time.perf_counter()
        inputs, targets = batches[step % len(batches)]
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(model(inputs), targets)
        loss.backward()
        optimizer.step()
        if step >= steps - 10:
            last.append(loss.detach())
    took = time.perf_counter() - start

    loss = torch.stack(last).mean()
    if WORLD > 1:
        dist.all_reduce(loss)
    if RANK == 0:
        blas = {line.split()[-1] for line in open("/proc/self/maps") if "blas" in line}
        print(json.dumps({
            "step_s": took / (steps - warm_up), "loss": float(loss) / WORLD, "parameters": parameters, "blas": sorted(blas),
        }), flush=True)


main()
