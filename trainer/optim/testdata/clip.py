# torch.nn.utils.clip_grad_norm_ for clip_test.go: arguments: the file of two parameters' gradients, the
# length of the first, and the largest norms; clipped gradients go back into FILE.<i>, the norms are printed.
import sys

import numpy
import torch

flat = numpy.fromfile(sys.argv[1], "<f4")
first = int(sys.argv[2])
for i, max_norm in enumerate(sys.argv[3:]):
    params = [torch.nn.Parameter(torch.zeros(n)) for n in (first, 3, len(flat) - first)]
    params[0].grad = torch.from_numpy(flat[:first].copy())
    params[2].grad = torch.from_numpy(flat[first:].copy())
    print(torch.nn.utils.clip_grad_norm_(params, float(max_norm)).item())
    torch.cat([params[0].grad, params[2].grad]).numpy().tofile(f"{sys.argv[1]}.{i}")
