"""Trains by DDP, and goes on from the file that it saves: after a crash, and after it was asked to stop, by the stop file or by USR2.

--crash-at and --wait-at strike in a life that began without a file: rank 1 raises before that step; or all ranks stay there until they are
asked to stop.
"""
import argparse
import hashlib
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--file", default=os.path.join(os.environ.get("DDPBATCH_CHECKPOINT_DIR", ""), "state.pt"))
parser.add_argument("--steps", type=int, default=8)
parser.add_argument("--crash-at", type=int, default=-1)
parser.add_argument("--wait-at", type=int, default=-1)
parser.add_argument("--pace", type=float, default=0, help="seconds that a step takes at least")
parser.add_argument("--signal", action="store_true", help="heed USR2 and not the stop file")
args = parser.parse_args()

signalled = []
if args.signal:
    signal.signal(signal.SIGUSR2, lambda *_: signalled.append(True))


def say(line):
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def leave(code):
    """Without Python's own end: a thread of Gloo that still gives back a tensor then ends the process by SIGABRT (seen with PyTorch 1.13)."""
    sys.stdout.flush()
    os._exit(code)


def asked():
    return bool(signalled) if args.signal else os.path.exists(os.environ.get("DDPBATCH_STOP_FILE", ""))


def one_of_us_was_asked():
    flag = torch.tensor([float(asked())])
    dist.all_reduce(flag)
    return flag.item() > 0


def save(step):
    if rank == 0:
        torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, args.file + ".new")
        os.replace(args.file + ".new", args.file)
    dist.barrier()


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(1)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Dropout(0.25), torch.nn.Linear(16, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
first = 0
if os.path.exists(args.file):
    state = torch.load(args.file)
    model.module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    first = state["step"]
say("begin %d round %s port %s step %d" % (rank, os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["MASTER_PORT"], first))
for step in range(first, args.steps):
    if first == 0 and step == args.crash_at and rank == 1:
        raise ValueError("rank 1 does not like step %d" % step)
    waits = first == 0 and step == args.wait_at
    if waits:
        say("waiting %d" % rank)
    deadline = time.monotonic() + 300
    while True:
        if one_of_us_was_asked():
            save(step)
            say("saved %d" % rank)
            leave(75)
        time.sleep(0.02 if waits else args.pace)
        if not waits:
            break
        assert time.monotonic() < deadline, "nobody asked rank %d to stop" % rank
    torch.manual_seed(1000 * step + rank)  # of the dropout, too
    x = torch.randn(8, 6)
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    save(step + 1)
numbers = [p.detach() for p in model.parameters()] + [optimizer.state[p]["momentum_buffer"] for p in model.parameters()]
if rank == 0:
    with open(args.file + ".end", "wb") as end:  # what torch.save writes depends on which strings are one object
        end.write(b"".join(n.numpy().tobytes() for n in numbers))
say("end %d state %s" % (rank, hashlib.sha256(b"".join(n.numpy().tobytes() for n in numbers)).hexdigest()))
leave(0)
