"""All ranks train by DDP; in step 2 rank 1 ends badly, in the way that the first argument says."""
import os
import signal
import sys

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel


def end(how):
    if how == "quiet":  # nothing of the exception comes out but by record's file
        sys.stderr = open(os.devnull, "w")
    if how in ("raise", "record", "quiet"):
        raise ValueError("the loss of step 2 is not a number")
    if how == "exit":
        sys.exit(7)
    os.kill(os.getpid(), {"segv": signal.SIGSEGV, "kill": signal.SIGKILL}[how])


def main():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    for step in range(1000000):  # no other rank comes to an end by itself
        if step == 2 and dist.get_rank() == 1:
            end(sys.argv[1])
        model(torch.ones(2, 4)).sum().backward()


if sys.argv[1] in ("record", "quiet"):
    main = record(main)
main()
