"""Trains by DDP for some steps. It knows of no launcher: all it needs is in its environment.

Every rank prints a line for itself, whole, so that lines of several ranks do not mix in a pipe.
"""
import hashlib
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def say(line, to=sys.stdout):
    to.write(line + "\n")
    to.flush()


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
losses = []
for step in range(5):
    # every rank has samples of its own
    x = torch.randn(8, 6, generator=torch.Generator().manual_seed(100 * step + rank))
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    mean = loss.detach() / world
    dist.all_reduce(mean)
    losses.append("%.6f" % mean.item())
met = torch.tensor([2.0**rank])
dist.all_reduce(met)  # a bit for each rank
weights = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
place = "/".join(os.environ[name] for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"))
say("rank %d world %d met %d place %s losses %s weights %s arguments %s" % (rank, world, met, place, ",".join(losses), weights[:16], sys.argv[1:]))
say("rank %d has a word on standard error" % rank, sys.stderr)
dist.destroy_process_group()
os._exit(0)  # without Python's own end, in which a late thread of Gloo may abort (PyTorch 1.13)
