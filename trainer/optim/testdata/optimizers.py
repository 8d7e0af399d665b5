# Steps of torch.optim for torch_test.go. Arguments: a folder with spec.json, init.f32 and grads.f32, and the
# kernels that PyTorch is to use ("default": portable ones, without fused instructions; "": its best). Writes
# case<i>.f32: all parameters after each step, then the state.
import json
import os
import sys

folder, kernels = sys.argv[1:]
if kernels:
    os.environ["ATEN_CPU_CAPABILITY"] = kernels
import numpy
import torch

with open(folder + "/spec.json") as f:
    spec = json.load(f)
init = numpy.fromfile(folder + "/init.f32", "<f4")
grads = numpy.fromfile(folder + "/grads.f32", "<f4").reshape(len(spec["LRs"]), -1)


def cut(flat):
    first, parts = 0, []
    for shape in spec["Shapes"]:
        size = int(numpy.prod(shape))
        parts.append(torch.from_numpy(flat[first:first + size].copy()).reshape(shape))
        first += size
    return parts


STATE = {"SGD": ["momentum_buffer"], "Adam": ["step", "exp_avg", "exp_avg_sq"]}
STATE["AdamW"] = STATE["Adam"]

for i, case in enumerate(spec["Cases"]):
    params = [p.requires_grad_() for p in cut(init)]
    optimizer = getattr(torch.optim, case["Class"])(params, lr=1, **case["Args"])
    with open(f"{folder}/case{i}.f32", "wb") as out:
        def write(tensor):
            out.write(tensor.detach().numpy().astype("<f4").tobytes())

        for lr, flat, has in zip(spec["LRs"], grads, spec["Has"]):
            for p, g, h in zip(params, cut(flat), has):
                p.grad = g if h else None
            optimizer.param_groups[0]["lr"] = lr
            optimizer.step()
            for p in params:
                write(p)
        for p in params:
            for name in STATE[case["Class"]]:
                absent = torch.zeros([]) if name == "step" else torch.zeros_like(p)
                value = optimizer.state[p].get(name)
                write(absent if value is None else value)
