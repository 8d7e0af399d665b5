"""One collective of PyTorch's gloo, timed by the method of `ddpbatch bench` (docs/cli.md, "bench").

    gloo.py COLLECTIVE BEGIN END FACTOR BUDGET_US

is one rank; RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT place it. What it prints, and how it measures, is what mpi.c
beside it says.
"""

import os
import sys
import time

import torch
import torch.distributed as dist

MIN_CALLS, MAX_CALLS, PERIOD = 7, 10000, 251


def values(rank, seed, count):
    """What a rank contributes: small whole numbers, so that sums are exact; all zeros for seed 0."""
    if seed == 0:
        return torch.zeros(count)
    return ((torch.arange(count) % PERIOD * (rank + 3) + seed) % 8).float()


class AllReduce:
    def __init__(self, count):
        self.count, self.buf = count, torch.empty(count)

    def fill(self, seed):
        self.buf.copy_(values(dist.get_rank(), seed, self.count))

    def run(self):
        dist.all_reduce(self.buf)

    def wrong(self, seed):
        want = sum(values(r, seed, self.count) for r in range(dist.get_world_size()))
        return int((self.buf != want).sum())


class Broadcast(AllReduce):
    def run(self):
        dist.broadcast(self.buf, 0)

    def wrong(self, seed):
        return int((self.buf != values(0, seed, self.count)).sum())


class AllGather:
    def __init__(self, count):
        self.count, self.own = count, torch.empty(count)
        self.out = [torch.empty(count) for _ in range(dist.get_world_size())]

    def fill(self, seed):
        self.own.copy_(values(dist.get_rank(), seed, self.count))
        for block in self.out:
            block.fill_(float("nan"))

    def run(self):
        dist.all_gather(self.out, self.own)

    def wrong(self, seed):
        return sum(int((block != values(r, seed, self.count)).sum()) for r, block in enumerate(self.out))


class PingPong:
    def __init__(self, count):
        self.count, self.own, self.out = count, torch.empty(count), torch.empty(count)

    def fill(self, seed):
        self.own.copy_(values(0, seed, self.count))
        self.out.fill_(float("nan"))

    def run(self):
        if dist.get_rank() == 0:
            dist.send(self.own, 1)
            dist.recv(self.out, 1)
        elif dist.get_rank() == 1:
            dist.recv(self.out, 0)
            dist.send(self.out, 0)

    def wrong(self, seed):
        return int((self.out != values(0, seed, self.count)).sum()) if dist.get_rank() < 2 else 0


class Barrier:
    def __init__(self, count):
        pass

    def fill(self, seed):
        pass

    def run(self):
        dist.barrier()

    def wrong(self, seed):
        return 0


COLLECTIVES = {"allreduce": AllReduce, "broadcast": Broadcast, "allgather": AllGather, "pingpong": PingPong, "barrier": Barrier}


def checked_call(c, seed):
    c.fill(seed)
    dist.barrier()
    c.run()
    wrong = torch.tensor([c.wrong(seed)])
    dist.all_reduce(wrong)
    return int(wrong)


def warm_up(c, budget_us):
    """Doubles the calls until they take a tenth of the budget, and says how many calls fit into all of it."""
    n = 1
    while True:
        start = time.perf_counter_ns()
        for _ in range(n):
            dist.barrier()
            c.run()
        took = torch.tensor([(time.perf_counter_ns() - start) / 1e3])
        dist.broadcast(took, 0)
        if took >= budget_us / 10 or n >= MAX_CALLS:
            return min(max(int(budget_us / (float(took) / n)), MIN_CALLS), MAX_CALLS)
        n *= 2


def clock_us():
    """What two readings of the clock around nothing are apart."""
    apart = []
    for _ in range(1001):
        start = time.perf_counter_ns()
        apart.append((time.perf_counter_ns() - start) / 1e3)
    return sorted(apart)[500]


def median_of_calls(c, calls):
    clock = clock_us()
    took = torch.zeros(calls, dtype=torch.float64)
    for i in range(calls):
        dist.barrier()
        start = time.perf_counter_ns()
        c.run()
        took[i] = (time.perf_counter_ns() - start) / 1e3 - clock
    if isinstance(c, PingPong):
        took /= 2
    else:
        dist.all_reduce(took)
        took /= dist.get_world_size()
    return float(took.quantile(0.5))


def row(c, size, budget_us):
    wrong = checked_call(c, 1)
    c.fill(0)
    calls = warm_up(c, budget_us)
    us = median_of_calls(c, calls)
    wrong += checked_call(c, 2)
    if dist.get_rank() == 0:
        print(f"row {size} {us:.4f} {wrong}", flush=True)


def bind():
    """Binds this rank, and the threads that come later, to its share of the cores where there are as many as ranks."""
    rank, ranks, cores = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), sorted(os.sched_getaffinity(0))
    if ranks <= len(cores):
        os.sched_setaffinity(0, cores[rank * len(cores) // ranks:(rank + 1) * len(cores) // ranks])


def main():
    bind()
    name, begin, end, factor, budget_us = sys.argv[1], *map(int, sys.argv[2:6])
    dist.init_process_group("gloo")
    ranks = dist.get_world_size()
    blocks = ranks if name == "allgather" else 1
    if name == "startup":
        dist.barrier()
        if dist.get_rank() == 0:
            print("row 0 0 0", flush=True)
    elif name == "barrier":
        row(Barrier(0), 0, budget_us)
    else:
        size = begin
        while size <= end:
            if count := size // 4 // blocks:
                row(COLLECTIVES[name](count), count * 4 * blocks, budget_us)
            size *= factor
    if dist.get_rank() == 0:
        print("end", flush=True)


main()
