"""The smallest program of torch.distributed: all ranks meet in a barrier, and rank 0 prints a line."""

import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
if dist.get_rank() == 0:
    print("met", flush=True)
dist.destroy_process_group()
