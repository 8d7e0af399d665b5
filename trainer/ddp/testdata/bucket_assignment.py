# Makes bucket_assignment.json, beside this file: how PyTorch's DistributedDataParallel puts tensors of several sizes and types into buckets.
# The one that is there is of PyTorch 1.13.1, which Debian 12 builds as "1.13.0a0".
#
#     python3 bucket_assignment.py
import json
import os
import random

import torch
from torch.distributed import _compute_bucket_assignment_by_size

random.seed(3)
cases = []
for _ in range(60):
    tensors = [
        (random.choice([1, 7, 25, 50, 100, 200, 400, 1000]), random.choice(["float16", "float32", "float32", "float64"]))
        for _ in range(random.randint(1, 12))
    ]
    limits = random.choice([[1], [400], [1024], [40, 80], [200, 400], [100, 200, 800]])
    buckets, of = _compute_bucket_assignment_by_size([torch.empty(n, dtype=getattr(torch, kind)) for n, kind in tensors], limits)
    cases.append({"tensors": tensors, "limits": limits, "buckets": buckets, "bucket_limits": of})

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "bucket_assignment.json"), "w") as f:
    source = json.dumps(f"torch {torch.__version__} _compute_bucket_assignment_by_size")
    f.write(f'{{"source": {source}, "cases": [\n' + ",\n".join(map(json.dumps, cases)) + "\n]}\n")
