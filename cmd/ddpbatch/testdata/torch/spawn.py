"""Starts its own ranks by mp.spawn, as scripts do that know of no launcher. With "raise" rank 1 fails, and rank 0 waits until mp.spawn ends it."""
import os
import signal
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def work(rank, world):
    os.environ["RANK"], os.environ["WORLD_SIZE"] = str(rank), str(world)
    dist.init_process_group("gloo")
    if "raise" in sys.argv and rank == 1:
        raise ValueError("rank 1 gives up")
    if "raise" in sys.argv:
        signal.pause()  # in a collective it would fail, too, and mp.spawn might find it first
    met = torch.tensor([2.0**rank])
    dist.all_reduce(met)  # a bit for each rank
    sys.stdout.write("spawned %d of %d met %d\n" % (rank, world, met))
    sys.stdout.flush()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(work, args=(2,), nprocs=2)
