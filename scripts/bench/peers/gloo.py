"""One collective of PyTorch's gloo, timed by the method of `ddpbatch bench` (docs/cli/bench.md).

    gloo.py COLLECTIVE BEGIN END FACTOR BUDGET_US

is one rank; RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT place it. What it prints, and how it measures, is what mpi.c
beside it says.
"""

import os
import sys
import time

import torch
import torch.distributed as dist

MIN_CALLS, MAX_CALLS, PERIOD, MOST_RANKS = 7, 10000, 4093, 1024


def mixed(h):
    """The last step of MurmurHash3 (fmix32), for integers below 2^32."""
    h = (h ^ h >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return h ^ h >> 16


def values(rank, iteration, count, at=0):
    """A rank's values from element at on: small integers, so that sums are exact; all zeros in iteration 0."""
    if iteration == 0:
        return torch.zeros(count)
    period = mixed(torch.arange(PERIOD) + (iteration * MOST_RANKS + rank) * PERIOD & 0xFFFFFFFF) % 8
    return period.float().roll(-(at % PERIOD)).repeat(count // PERIOD + 1)[:count]


class AllReduce:
    def __init__(self, count):
        self.count, self.buf = count, torch.empty(count)

    def fill(self, iteration):
        self.buf.copy_(values(dist.get_rank(), iteration, self.count))

    def run(self):
        dist.all_reduce(self.buf)

    def wrong(self, iteration):
        want = sum(values(r, iteration, self.count) for r in range(dist.get_world_size()))
        return int((self.buf != want).sum())


class Reduce(AllReduce):
    def run(self):
        dist.reduce(self.buf, 0)

    def wrong(self, iteration):
        return super().wrong(iteration) if dist.get_rank() == 0 else 0


class Broadcast(AllReduce):
    def run(self):
        dist.broadcast(self.buf, 0)

    def wrong(self, iteration):
        return int((self.buf != values(0, iteration, self.count)).sum())


class AllGather:
    def __init__(self, count):
        self.count, self.own = count, torch.empty(count)
        self.out = [torch.empty(count) for _ in range(dist.get_world_size())]

    def fill(self, iteration):
        self.own.copy_(values(dist.get_rank(), iteration, self.count))
        for block in self.out:
            block.fill_(float("nan"))

    def run(self):
        dist.all_gather(self.out, self.own)

    def wrong(self, iteration):
        return sum(int((block != values(r, iteration, self.count)).sum()) for r, block in enumerate(self.out))


class Gather(AllGather):
    def run(self):
        dist.gather(self.own, self.out if dist.get_rank() == 0 else None, 0)

    def wrong(self, iteration):
        return super().wrong(iteration) if dist.get_rank() == 0 else 0


class Scatter:
    def __init__(self, count):
        self.count, self.own, self.out = count, torch.empty(count * dist.get_world_size()), torch.empty(count)
        self.blocks = list(self.own.split(count)) if dist.get_rank() == 0 else None

    def fill(self, iteration):
        self.own.copy_(values(dist.get_rank(), iteration, len(self.own)))
        self.out.fill_(float("nan"))

    def run(self):
        dist.scatter(self.out, self.blocks, 0)

    def wrong(self, iteration):
        return int((self.out != values(0, iteration, self.count, dist.get_rank() * self.count)).sum())


class AllToAll:
    def __init__(self, count):
        n = count * dist.get_world_size()
        self.count, self.own, self.out = count, torch.empty(n), torch.empty(n)

    def fill(self, iteration):
        self.own.copy_(values(dist.get_rank(), iteration, len(self.own)))
        self.out.fill_(float("nan"))

    def run(self):
        dist.all_to_all_single(self.out, self.own)

    def wrong(self, iteration):
        want = [values(r, iteration, self.count, dist.get_rank() * self.count) for r in range(dist.get_world_size())]
        return int((self.out != torch.cat(want)).sum())


class AllToAllV(AllToAll):
    """Rank r sends rank i the block of rank r + i, beyond the last rank from rank 0 on; a block's length is what mpi.c cuts."""

    def __init__(self, count):
        super().__init__(count)
        ranks = dist.get_world_size()
        at = [count * r * (r + 1) // (ranks + 1) for r in range(ranks + 1)]
        counts = [at[r + 1] - at[r] for r in range(ranks)]
        self.turned = [counts[r:] + counts[:r] for r in range(ranks)]

    def run(self):
        own = self.turned[dist.get_rank()]
        dist.all_to_all_single(self.out, self.own, own, own)

    def wrong(self, iteration):
        rank = dist.get_rank()
        want = [values(r, iteration, sent[rank], sum(sent[:rank])) for r, sent in enumerate(self.turned)]
        return int((self.out != torch.cat(want)).sum())


class PingPong:
    def __init__(self, count):
        self.count, self.own, self.out = count, torch.empty(count), torch.empty(count)

    def fill(self, iteration):
        self.own.copy_(values(0, iteration, self.count))
        self.out.fill_(float("nan"))

    def run(self):
        if dist.get_rank() == 0:
            dist.send(self.own, 1)
            dist.recv(self.out, 1)
        elif dist.get_rank() == 1:
            dist.recv(self.out, 0)
            dist.send(self.out, 0)

    def wrong(self, iteration):
        return int((self.out != values(0, iteration, self.count)).sum()) if dist.get_rank() < 2 else 0


class Barrier:
    def __init__(self, count):
        pass

    def fill(self, iteration):
        pass

    def run(self):
        dist.barrier()

    def wrong(self, iteration):
        return 0


COLLECTIVES = {
    "allreduce": AllReduce, "reduce": Reduce, "broadcast": Broadcast, "allgather": AllGather, "gather": Gather,
    "scatter": Scatter, "alltoall": AllToAll, "alltoallv": AllToAllV, "pingpong": PingPong, "barrier": Barrier,
}


def checked_call(c, iteration):
    c.fill(iteration)
    c.run()
    return c.wrong(iteration)


def warm_up(c, budget_us):
    """Doubles the calls until they take a tenth of the budget, and returns how many calls fit into the whole budget."""
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
    """The time between two readings of the clock with nothing between them."""
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
    wrong = checked_call(c, 1) + checked_call(c, 2)
    c.fill(0)
    calls = warm_up(c, budget_us)
    us = median_of_calls(c, calls)
    wrong = torch.tensor([wrong + c.wrong(0) + checked_call(c, 3) + checked_call(c, 4)])
    dist.all_reduce(wrong)
    if dist.get_rank() == 0:
        print(f"row {size} {us:.4f} {int(wrong)}", flush=True)


def bind():
    """Binds this rank and its later threads to its share of the cores, if there is a core for each rank."""
    rank, ranks, cores = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), sorted(os.sched_getaffinity(0))
    if ranks <= len(cores):
        os.sched_setaffinity(0, cores[rank * len(cores) // ranks:(rank + 1) * len(cores) // ranks])


def main():
    bind()
    name, begin, end, factor, budget_us = sys.argv[1], *map(int, sys.argv[2:6])
    dist.init_process_group("gloo")
    ranks = dist.get_world_size()
    blocks = ranks if name in ("allgather", "gather", "scatter", "alltoall", "alltoallv") else 1
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
