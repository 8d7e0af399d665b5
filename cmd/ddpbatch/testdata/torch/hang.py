"""One rank of a program that hangs: hang.py CASE. Rank 1 is at fault. $FIFO is a pipe that nobody writes to."""

import ctypes
import os
import signal
import socket
import struct
import sys
import threading
import time

case, rank, fifo = sys.argv[1], int(os.environ["RANK"]), os.environ["FIFO"]


def deadlock():
    lock = threading.Lock()
    lock.acquire()
    thread = threading.Thread(target=lambda: lock.acquire())  # in thread
    thread.start()
    thread.join()  # at deadlock


def unjoined():  # rank 1 never joins the group
    if case == "start":
        time.sleep(3600)  # at start
    if case == "file":
        open(fifo).read()  # at file
    if case == "deadlock":
        deadlock()
    if case == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)  # at stop
    if case == "held":  # the child's open() keeps this process in state D: it waits for the end of vfork(2)
        redirect = [(os.POSIX_SPAWN_OPEN, 0, fifo, os.O_RDONLY, 0)]
        os.posix_spawn("/bin/true", ["true"], os.environ, file_actions=redirect)


if rank == 1:
    unjoined()

import torch
import torch.distributed as dist


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        if rank == 1:
            open(fifo).close()  # at loader
        return torch.zeros(2)


def cut_cable():  # no packet for the connections between ranks is received any more, not even an acknowledgment
    drop = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0))  # BPF: return 0
    for number in os.listdir("/proc/self/fd"):
        try:
            connection = socket.socket(fileno=os.dup(int(number)))
            ports = connection.getsockname()[1], connection.getpeername()[1]
            if int(os.environ["MASTER_PORT"]) not in ports:
                connection.setsockopt(socket.SOL_SOCKET, 26, struct.pack("HP", 1, ctypes.addressof(drop)))  # SO_ATTACH_FILTER
        except (OSError, TypeError, IndexError):
            pass


def joined(x):
    if case == "order" and rank == 1:
        dist.broadcast(x, 0)  # in broadcast
    if case == "shape":
        dist.reduce(torch.zeros(4 if rank == 0 else 2), 0)  # in reduce
    if case == "loader":
        for rows in torch.utils.data.DataLoader(Rows(), num_workers=1):  # over loader
            dist.all_reduce(x)  # in loop
    if case == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
        for step in range(3):
            if rank == 1 and step == 1:
                time.sleep(3600)  # at ddp
            model(torch.zeros(1, 2)).sum().backward()  # in ddp
    if rank == 1:
        if case == "missing":
            time.sleep(3600)  # at missing
        if case == "cable":
            cut_cable()
    dist.all_reduce(x)  # in all_reduce


def healthy(x, limit):
    time.sleep(0.5 * limit)  # the first step compiles
    for step in range(3):
        dist.all_reduce(x)
        print("step", step, flush=True)
    if rank == 0:  # saves, while the others wait
        for part in range(3):
            time.sleep(0.4 * limit)
            print("saved part", part, flush=True)
    dist.barrier()
    print("healthy", flush=True)


dist.init_process_group("gloo")  # in init
x = torch.zeros(4)
dist.all_reduce(x)
if case == "healthy":
    healthy(x, float(sys.argv[2]))
else:
    joined(x)
