"""One of several gloo ranks that meet at the store of MASTER_ADDR and MASTER_PORT (env://, as under torchrun) or at
the init method that is given, and work with each other."""
import datetime
import os
import sys

import torch
import torch.distributed as dist

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=sys.argv[1], rank=rank if sys.argv[1] != "env://" else -1,
                        world_size=size if sys.argv[1] != "env://" else -1, timeout=datetime.timedelta(seconds=60))
total = torch.arange(1000, dtype=torch.float64) + rank
dist.all_reduce(total)
assert torch.equal(total, torch.arange(1000, dtype=torch.float64) * size + size * (size - 1) / 2), total
dist.barrier()
pair = dist.new_group([0, size - 1])
if rank in (0, size - 1):
    mine = torch.tensor([10.0 + rank])
    dist.all_reduce(mine, group=pair)
    assert mine.item() == 20 + size - 1, mine
objects = [None] * size
dist.all_gather_object(objects, {"rank": rank})
assert objects == [{"rank": r} for r in range(size)], objects
dist.barrier()
dist.destroy_process_group()
