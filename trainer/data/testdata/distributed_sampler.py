# Makes distributed_sampler.json, beside this file: the rows that PyTorch's DistributedSampler gives to each rank. The one that is there is of
# PyTorch 1.13.1, which Debian 12 builds as "1.13.0a0".
#
#     python3 distributed_sampler.py
import json
import os

import torch
from torch.utils.data.distributed import DistributedSampler

cases = []
for n, world, seed, epoch, drop, shuffle in [
    (10, 1, 0, 0, False, True),
    (10, 3, 0, 0, False, True),
    (10, 3, 0, 0, True, True),
    (10, 3, 0, 1, False, True),
    (10, 4, 7, 2, True, True),
    (3, 8, 0, 0, False, True),  # more ranks than rows: the padding goes round more than once
    (1, 4, 5, 3, False, True),
    (103, 4, 42, 0, False, True),
    (103, 4, 42, 0, True, True),
    (103, 4, 42, 9, False, False),
    (100, 8, 123456789, 5, False, True),
    (257, 16, 2147483648, 1, True, True),
    (700, 2, 4294967295, 2, False, True),  # more rows than the generator's state has words; a seed that the epoch takes beyond 32 bits
]:
    indices = []
    for rank in range(world):
        sampler = DistributedSampler(range(n), world, rank, shuffle=shuffle, seed=seed, drop_last=drop)
        sampler.set_epoch(epoch)
        indices.append(list(sampler))
    cases.append(
        {
            "n": n, "replicas": world, "seed": seed, "epoch": epoch, "drop_last": drop, "shuffle": shuffle,
            "num_samples": sampler.num_samples, "indices": indices,
        }
    )

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "distributed_sampler.json"), "w") as f:
    source = json.dumps(f"torch {torch.__version__} DistributedSampler")
    f.write(f'{{"source": {source}, "cases": [\n' + ",\n".join(map(json.dumps, cases)) + "\n]}\n")
