# Runs PyTorch's modules for layers_test.go: python layers.py DIR
#
# DIR/cases.json lists modules as expressions; DIR/in holds, for every case and step, x and dL/dy; DIR/out gets the
# initial parameters of a case and then, for every step, y, dL/dx, gradients of parameters, and buffers.
import json
import sys

import numpy
import torch
from torch import nn

folder = sys.argv[1]
data = torch.from_numpy(numpy.fromfile(folder + "/in", "<f4"))
out = open(folder + "/out", "wb")


def take(shape):
    global data
    size = int(numpy.prod(shape))
    part, data = data[:size].clone().reshape(shape), data[size:]
    return part


def emit(t):
    out.write(t.detach().contiguous().numpy().astype("<f4").tobytes())


for case in json.load(open(folder + "/cases.json")):
    torch.manual_seed(case["seed"])
    module = eval(case["code"])
    for p in module.parameters():
        emit(p)
    for training in case["training"]:
        module.train(training)
        module.zero_grad()
        x = take(case["shape"]).requires_grad_()
        y = module(x)
        y.backward(take(y.shape))
        emit(y)
        emit(x.grad)
        for p in module.parameters():
            emit(p.grad)
        for name, b in module.named_buffers():
            if not name.endswith("num_batches_tracked"):
                emit(b)
    print(" ".join(name for name, _ in module.named_parameters()))
out.close()
