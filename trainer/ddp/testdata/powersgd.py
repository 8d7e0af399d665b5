"""Real PyTorch's powerSGD_hook on two ranks.

Arguments: a folder with q.f32, the first Q of every matrix (m x r, as PyTorch lays it out), and grads.f32,
[step][rank][element]; the rank of the approximation; the number of steps; then the shapes, such as 20x30. Writes the
means of rank 0 to means.f32, [step][element].
"""
import os
import sys

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power

folder, rank_of, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
shapes = [tuple(map(int, s.split("x"))) for s in sys.argv[4:]]
sizes = [int(np.prod(s)) for s in shapes]


class Bucket:
    def __init__(self, flat):
        self.flat = flat

    def index(self):
        return 0

    def is_last(self):
        return True

    def buffer(self):
        return self.flat

    def gradients(self):
        return [part.view(shape) for part, shape in zip(self.flat.split(sizes), shapes)]


def run(rank):
    dist.init_process_group("gloo", init_method="file://" + folder + "/meet", rank=rank, world_size=2)
    grads = np.fromfile(folder + "/grads.f32", "<f4").reshape(steps, 2, sum(sizes))
    state = power.PowerSGDState(None, matrix_approximation_rank=rank_of, start_powerSGD_iter=2, min_compression_rate=1)
    state.iter = 2  # all steps are compressed
    state.q_memory_dict[0] = torch.from_numpy(np.fromfile(folder + "/q.f32", "<f4").copy())
    rows = sum(s[0] for s in shapes if len(s) > 1)
    state.p_memory_dict[0] = torch.zeros(rows * rank_of)
    means = []
    for step in range(steps):
        bucket = Bucket(torch.from_numpy(grads[step, rank].copy()))
        result = power.powerSGD_hook(state, bucket).wait()
        means.append(result.numpy().copy())
    if rank == 0:
        np.concatenate(means).astype("<f4").tofile(folder + "/means.f32")
    dist.barrier()


child = os.fork()
run(1 if child == 0 else 0)
if child == 0:
    os._exit(0)
if os.waitpid(child, 0)[1] != 0:
    sys.exit("rank 1 failed")
