# Trains the cases of reference_test.go with PyTorch. DIR/cases.json lists them as jobs, with the names of a job's [train] table; each
# is trained in the types of its "dtypes". DIR/result.json gets, for each case and type, the losses of all steps, the
# evaluation after the last, and the parameters and buffers before and after.
#
# A step takes the rows of all ranks as one batch, which is what DistributedDataParallel's averages of equal batches come to.
import gzip
import json
import math
import sys

import numpy
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data.distributed import DistributedSampler


def idx(path, header):
    with gzip.open(path) as f:
        return numpy.frombuffer(f.read(), numpy.uint8, offset=header)


def rows_of(data):
    if data["kind"] == "mnist":
        x = torch.from_numpy(idx(data["images"], 16).reshape(-1, 1, 28, 28).astype("float32"))
        return (x / 255 - 0.1307) / 0.3081, torch.from_numpy(idx(data["labels"], 8).astype("int64")), 10
    if data["kind"] == "text":
        text = numpy.fromfile(data["path"], numpy.uint8).astype("int64")
        n = (len(text) - 1) // data["context"] * data["context"]
        cut = lambda first: torch.from_numpy(text[first : first + n].reshape(-1, data["context"]))
        return cut(0), cut(1), 256
    x, y = torch.from_numpy(numpy.load(data["inputs"])), torch.from_numpy(numpy.load(data["targets"]))
    return x, y, int(y.max()) + 1 if y.dtype == torch.int64 else y.shape[1]


def mlp(m, inputs, outputs):
    widths = [inputs] + m["hidden"] + [outputs]
    layers = [nn.Flatten()]
    for a, b in zip(widths, widths[1:]):
        layers += [nn.Linear(a, b), nn.Tanh() if m["activation"] == "tanh" else nn.ReLU()]
    return layers[1:-1], layers[0]


def cnn(m, x, outputs):
    layers, (channels, height, width) = [], x.shape[1:]
    for out in m["channels"]:
        layers.append(nn.Conv2d(channels, out, m["kernel"], padding=m["kernel"] // 2))
        if m["batch_norm"]:
            layers.append(nn.BatchNorm2d(out))
        layers += [nn.ReLU(), nn.MaxPool2d(2)]
        channels, height, width = out, height // 2, width // 2
    layers.append(nn.Flatten())
    size = channels * height * width
    for out in (m["hidden"] or []) + [outputs]:
        layers += [nn.Linear(size, out), nn.ReLU()]
        size = out
    return layers[:-1]


class Model:
    """Any of the models, with the names that safetensors files have for its tensors."""

    def __init__(self, job, x, outputs):
        self.m = m = job["model"]
        torch.manual_seed(job["seed"])
        self.net, self.flat = None, lambda x: x
        if m["kind"] == "cnn":
            self.net = nn.Sequential(*cnn(m, x, outputs))
        elif m["kind"] == "mlp":
            layers, self.flat = mlp(m, x[0].numel(), outputs)
            self.net = nn.Sequential(*layers)
        self.w = {} if self.net is None else dict(self.net.named_parameters())
        self.b = {} if self.net is None else {k: v for k, v in self.net.named_buffers() if v.is_floating_point()}
        if job["init"]:
            self.load(job["init"])

    def load(self, path):
        with open(path, "rb") as f:
            header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
            values = f.read()
        for name, t in header.items():
            if name == "__metadata__":
                continue
            first, end = t["data_offsets"]
            value = torch.from_numpy(numpy.frombuffer(values[first:end], "<f4").reshape(t["shape"]).copy())
            if self.net is None:
                self.w[name] = value.requires_grad_()
            else:
                self.w[name].data = value

    def to(self, dtype):
        if self.net is not None:
            self.net.to(dtype)
            self.w = dict(self.net.named_parameters())
            self.b = {k: v for k, v in self.net.named_buffers() if v.is_floating_point()}
        else:
            self.w = {k: v.detach().to(dtype).requires_grad_() for k, v in self.w.items()}

    def values(self):
        return {k: v.detach().flatten().tolist() for k, v in {**self.w, **self.b}.items()}

    def __call__(self, x):
        return self.gpt(x) if self.net is None else self.net(self.flat(x))

    def gpt(self, x):
        m, w = self.m, self.w
        width, heads = m["width"], m["heads"]
        norm = lambda x, name: F.layer_norm(x, (width,), w[name + ".weight"], w[name + ".bias"])
        linear = lambda x, name: F.linear(x, w[name + ".weight"], w.get(name + ".bias"))
        rows, length = x.shape
        later = torch.ones(length, length).triu(1) > 0
        x = F.embedding(x, w["embed.token.weight"]) + w["embed.position.weight"]
        for i in range(m["layers"]):
            b = f"blocks.{i}."
            qkv = linear(norm(x, b + "ln1"), b + "attn.qkv").view(rows, length, 3, heads, width // heads)
            q, k, v = qkv.permute(2, 0, 3, 1, 4)
            scores = (q @ k.transpose(-2, -1) / math.sqrt(width // heads)).masked_fill(later, -math.inf)
            y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(rows, length, width)
            x = x + linear(y, b + "attn.proj")
            x = x + linear(F.gelu(linear(norm(x, b + "ln2"), b + "mlp.fc")), b + "mlp.proj")
        return linear(norm(x, "norm"), "head").flatten(0, 1)


def optimizer_of(o, w):
    if o["kind"] == "sgd":
        return torch.optim.SGD(
            w, o["lr"], momentum=o["momentum"], dampening=o["dampening"], weight_decay=o["weight_decay"], nesterov=o["nesterov"]
        )
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[o["kind"]]
    return kind(w, o["lr"], betas=o["betas"], eps=o["eps"], weight_decay=o["weight_decay"])


def steps_of(job, n):
    """The rows of each step of the job, on all ranks together."""
    data, world, size = job["data"], job["world"], job["batch_size"] * job["accumulate"]
    drop = data["remainder"] == "drop"
    ranks = [DistributedSampler(range(n), world, r, data["shuffle"], job["seed"], drop) for r in range(world)]
    for epoch in range(job["epochs"]):
        for s in ranks:
            s.set_epoch(epoch)
        dealt = [list(s) for s in ranks]
        for first in range(0, len(dealt[0]), size):
            yield [row for rows in dealt for row in rows[first : first + size]]


def train(job, dtype):
    x, y, outputs = rows_of(job["data"])
    mse = y.is_floating_point()
    if x.is_floating_point():
        x = x.to(dtype)
    if mse:
        y = y.to(dtype)
    model = Model(job, x, outputs)
    before = model.values()
    model.to(dtype)

    first, end = job["data"]["train"] or (0, len(x))
    steps = list(steps_of(job, end - first))[: job["steps"] or None]
    optimizer = optimizer_of(job["optimizer"], model.w.values())
    schedule = None
    if job["schedule"] == "cosine":
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, len(steps), job["min_lr"])
    loss_of = F.mse_loss if mse else lambda out, y: F.cross_entropy(out, y.flatten())
    losses = []
    for rows in steps:
        rows = torch.tensor(rows) + first
        loss = loss_of(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        if job["clip_norm"]:
            nn.utils.clip_grad_norm_(model.w.values(), job["clip_norm"])
        optimizer.step()
        if schedule:
            schedule.step()
        losses.append(loss.item())

    accuracy = 0
    if job["data"]["eval"]:
        first, end = job["data"]["eval"]
        model.net.eval()
        with torch.no_grad():
            right = model(x[first:end]).argmax(1) == y[first:end]
        accuracy = right.double().mean().item()
    keep = job["values"]
    return {
        "losses": losses, "accuracy": accuracy,
        "before": before if keep else {}, "after": model.values() if keep else {},
    }


torch.set_num_threads(1)
folder = sys.argv[1]
jobs = json.load(open(f"{folder}/cases.json"))
results = [{dtype: train(job, getattr(torch, dtype)) for dtype in job["dtypes"]} for job in jobs]
json.dump(results, open(f"{folder}/result.json", "w"))
