# Runs the cases of transformer_torch_test.go in float64: DIR/cases.json lists them, and DIR/<case>.<array> are their
# arrays, raw little-endian float32.
import json
import math
import sys

import numpy
import torch
from torch.nn import functional as F

folder = sys.argv[1]


def read(case, array):
    return torch.from_numpy(numpy.fromfile(f"{folder}/{case}.{array}", "<f4")).double()


def write(case, array, tensor):
    tensor.detach().numpy().astype("<f4").tofile(f"{folder}/{case}.{array}")


def attention(qkv, c):
    rows = qkv.view(-1, c["context"], 3, c["heads"], qkv.shape[1] // 3 // c["heads"])
    q, k, v = rows.permute(2, 0, 3, 1, 4)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    later = torch.ones(c["context"], c["context"]).triu(1) > 0
    y = scores.masked_fill(later, -math.inf).softmax(-1) @ v
    return y.transpose(1, 2).reshape(-1, qkv.shape[1] // 3)


def embedding(w, x, c, name=""):
    tokens = F.embedding(x.long().view(-1, c["context"]), w[name + "token.weight"])
    y = tokens + w[name + "position.weight"]
    return y.view(-1, y.shape[-1])


def layer_norm(w, x, name=""):
    return F.layer_norm(x, x.shape[1:], w[name + "weight"], w[name + "bias"])


def linear(w, x, name):
    return F.linear(x, w[name + "weight"], w.get(name + "bias"))


def gpt(w, x, c):
    x = embedding(w, x, c, "embed.")
    for i in range(c["layers"]):
        b = f"blocks.{i}."
        y = attention(linear(w, layer_norm(w, x, b + "ln1."), b + "attn.qkv."), c)
        x = x + linear(w, y, b + "attn.proj.")
        y = F.gelu(linear(w, layer_norm(w, x, b + "ln2."), b + "mlp.fc."))
        x = x + linear(w, y, b + "mlp.proj.")
    return linear(w, layer_norm(w, x, "norm."), "head.")


for c in json.load(open(f"{folder}/cases.json")):
    name, kind = c["name"], c["kind"]
    w = {p["name"]: read(name, p["name"]).view(p["shape"]).requires_grad_() for p in c["params"] or []}
    x = read(name, "x").view(-1, c["cols"]).requires_grad_()
    if kind == "attention":
        y = attention(x, c)
    elif kind == "embedding":
        y = embedding(w, x, c)
    elif kind == "gelu":
        y = F.gelu(x)
    elif kind == "tanh":
        y = torch.tanh(x)
    elif kind == "layer_norm":
        y = layer_norm(w, x)
    elif kind == "gpt":
        y = gpt(w, x, c)
    elif kind == "cross_entropy":
        y = F.cross_entropy(x, read(name, "target").long()).view(1)
    elif kind == "mse":
        y = F.mse_loss(x, read(name, "target").view(x.shape)).view(1)
    y.backward(read(name, "dy").view(y.shape))
    write(name, "y", y)
    if x.grad is not None:
        write(name, "dx", x.grad)
    for p, value in w.items():
        write(name, p + ".grad", value.grad)
