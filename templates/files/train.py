"""Trains by DistributedDataParallel on data made up on the spot. Put your own model and data where it says so; the rest can stay.

It runs under ddpbatch, torchrun, or whatever else sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT.

It saves every --save-every steps, at its end, and when it is told that its time is over (by the file DDPBATCH_STOP_FILE, or by TERM); then it
exits with code 75, and ddpbatch starts it again. It goes on after the step that it saved. Batches and random numbers depend only on the step
and the number of ranks, so two ranks compute the same bits with a stop as without. With more ranks, and on GPUs, the sums of the first step
after a stop may be computed in another order, since DistributedDataParallel assigns gradients to buckets anew.
"""
import argparse
import json
import math
import os
import signal
import sys
from datetime import datetime, timezone

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

SAVED = 75  # the exit code for "saved, please start me again"


class Data(Dataset):
    """Your data. Row i must not depend on which rows were read before."""

    def __len__(self):
        return 4096

    def __getitem__(self, i):
        x = torch.randn(20, generator=torch.Generator().manual_seed(i))
        return x, (x.sum() > 0).long()


def new_model():
    """Your model."""
    return torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(64, 2))


def batches(epoch, first, rows, rank, world, args):
    """This rank's rows of each batch of an epoch, from batch number first on. Each epoch has its own order, the same on all ranks."""
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(args.seed + epoch)).tolist()
    size = args.batch_size * world
    for start in range(first * size, rows - size + 1, size):
        yield order[start + rank : start + size : world]


def save(path, state):
    """Replaces the checkpoint in one step: a process that is killed here leaves the old checkpoint intact."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".new", "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".new", path)
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    os.fsync(folder)  # of the new name
    os.close(folder)


def deaf(_):
    """Makes a process that reads data ignore the signals that its rank gets, too: the rank needs it until it has saved, and ends it."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def end(code):
    """Ends without Python's own clean-up, in which threads of Gloo can abort the process (seen with PyTorch 1.13)."""
    dist.barrier()  # rank 0 may still be saving, or serving the store that the others use
    sys.stdout.flush()
    os._exit(code)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=32, help="rows of each rank")
    parser.add_argument("--lr", type=float, default=float(os.environ.get("LR", "0.05")))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save-every", type=int, default=50, help="steps between checkpoints")
    parser.add_argument("--workers", type=int, default=0, help="processes of each rank that read data")
    args = parser.parse_args()

    told = []  # TERM or Ctrl-C has come; the warning before that is a file
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: told.append(True))

    rank, world, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    gpus = torch.cuda.device_count()
    one_each = gpus > 0 and gpus >= int(os.environ.get("LOCAL_WORLD_SIZE", "1"))  # otherwise all ranks compute on CPUs
    device = torch.device("cuda", local) if one_each else torch.device("cpu")
    if one_each:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if one_each else "gloo")

    data = Data()
    steps_per_epoch = len(data) // (args.batch_size * world)
    if steps_per_epoch == 0:
        sys.exit("%d rows are less than one batch of %d on each of %d ranks" % (len(data), args.batch_size, world))
    torch.manual_seed(args.seed)
    model = new_model().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)

    path = os.path.join(os.environ.get("DDPBATCH_CHECKPOINT_DIR", "checkpoints"), "state.pt")
    step = 0
    if os.path.exists(path):
        state = torch.load(path, map_location="cpu")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    ends = torch.tensor([step, -step], device=device)
    dist.all_reduce(ends, op=dist.ReduceOp.MAX)
    if ends[0] != -ends[1]:
        sys.exit("rank %d would go on after step %d, and another rank after another: not all see the same %s" % (rank, step, path))
    ddp = DistributedDataParallel(model, device_ids=[device] if one_each else None)
    if rank == 0:
        print("world size %d on %s, from step %d" % (world, "GPUs by NCCL" if one_each else "CPUs by Gloo", step), flush=True)

    def checkpoint():
        if rank == 0:
            save(path, {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()})

    def report(epoch, loss):  # ddpbatch status shows this line, and ddpbatch sees from it that the run makes progress
        line = {"step": step, "steps": steps, "epoch": epoch, "loss": loss}
        if "DDPBATCH_METRICS_FILE" in os.environ:
            line["time"] = datetime.now(timezone.utc).isoformat()
            line["attempt"] = int(os.environ["DDPBATCH_ATTEMPT"])
            with open(os.environ["DDPBATCH_METRICS_FILE"], "a") as file:
                file.write(json.dumps(line) + "\n")
        print("step %(step)d of %(steps)d | loss %(loss).4f" % line, flush=True)

    steps, saved = args.epochs * steps_per_epoch, step
    while step < steps:
        epoch, done = divmod(step, steps_per_epoch)
        rows = list(batches(epoch, done, len(data), rank, world, args))
        for x, y in DataLoader(data, batch_sampler=rows, num_workers=args.workers, worker_init_fn=deaf):
            torch.manual_seed((args.seed * 1000003 + step) * world + rank)  # for the dropout, so that no generator's state needs saving
            loss = torch.nn.functional.cross_entropy(ddp(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            # All ranks learn in the same step that one of them was told to stop, and stop together.
            stop = bool(told) or os.path.exists(os.environ.get("DDPBATCH_STOP_FILE", ""))
            sums = torch.stack([loss.detach(), torch.tensor(float(stop), device=device)])
            dist.all_reduce(sums)
            mean, stop = (sums[0] / world).item(), sums[1].item() > 0
            if not math.isfinite(mean):
                sys.exit("the loss is %f after step %d; the newest checkpoint is of step %d" % (mean, step, saved))
            if rank == 0 and (step % 10 == 0 or stop or step == steps):
                report(epoch, mean)
            if stop or step % args.save_every == 0 or step == steps:
                checkpoint()
                saved = step
            if stop and step < steps:
                end(SAVED)
    if rank == 0:
        print("done after step %d" % step, flush=True)
    end(0)


if __name__ == "__main__":
    main()
