"""Saves and loads the state with PyTorch on commands from standard input, and prints the seconds that each took."""

import json
import os
import sys
import time

import numpy
import torch

file, elements = sys.argv[1], int(sys.argv[2])
bare = numpy.fromfile(file, dtype="<f4")
names = ["weight", "exp_avg", "exp_avg_sq"]
state = {
    name: torch.from_numpy(bare[i * elements : (i + 1) * elements].copy()).reshape(-1, 1024)
    for i, name in enumerate(names)
}
print("{}", flush=True)  # ready

for line in sys.stdin:
    what, path = line.rstrip("\n").split(" ", 1)
    start = time.perf_counter()
    if what == "load":
        loaded = torch.load(path)
    else:
        with open(path, "wb") as f:
            torch.save(state, f)
            if what == "sync":
                f.flush()
                os.fsync(f.fileno())
    took = time.perf_counter() - start
    if what == "load":
        assert len(loaded) == 3
        del loaded
    print(json.dumps({"seconds": took, "bytes": os.path.getsize(path)}), flush=True)
