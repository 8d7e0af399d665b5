# Makes ddp_w1.json and ddp_w2.json, beside this file: what PyTorch's DistributedDataParallel does on one and on two ranks, over gloo.
# Those that are there are of PyTorch 1.13.1 on x86-64.
#
#     python3 ddp.py
import json
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

ROWS, BATCH, STEPS = 48, 8, 5  # five steps read 40 of the rows


def numbers(t):
    """The shortest decimals that are these float32 values again."""
    if t.dim() > 1:
        return [numbers(row) for row in t]
    return [float(str(v)) for v in t.detach().numpy()]


def params(model):
    return [{"shape": list(p.shape), "data": numbers(p.flatten())} for p in model.parameters()]


def train(rank, world, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    drawn = torch.Generator().manual_seed(20)
    x, y = torch.randn(ROWS, 4, generator=drawn), torch.randn(ROWS, 3, generator=drawn)
    out = {"source": f"torch {torch.__version__} DistributedDataParallel, gloo", "X": numbers(x), "Y": numbers(y), "init": params(model), "steps": []}
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(STEPS):
        first = BATCH * step + BATCH // world * rank
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(ddp(x[first : first + BATCH // world]), y[first : first + BATCH // world])
        loss.backward()
        losses = [torch.zeros(()) for _ in range(world)]
        dist.all_gather(losses, loss.detach())
        made = {"loss_per_rank": numbers(torch.stack(losses))}
        if step < 2:
            made["grads"] = [numbers(p.grad.flatten()) for p in model.parameters()]
        out["steps"].append(made)
        optimizer.step()
    out["final"] = params(model)
    if rank == 0:
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), f"ddp_w{world}.json"), "w") as f:
            f.write("{\n" + ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in out.items()) + "\n}\n")


if __name__ == "__main__":
    for world in 1, 2:
        with tempfile.TemporaryDirectory() as folder:
            mp.spawn(train, (world, folder), nprocs=world)
