"""PyTorch's FileStore and a Go process share the file PATH: each waits for what the other sets, both add to
"number" ROUNDS times, and who closes last removes the file."""
import datetime
import sys

import torch.distributed as dist

path, rounds = sys.argv[1], int(sys.argv[2])
store = dist.FileStore(path, 2)
store.set_timeout(datetime.timedelta(seconds=20))


def expect(got, want):
    assert got == want, f"got {got!r}, want {want!r}"


expect(store.get("from go"), b"\x00hello\xff")
expect(store.get("appended"), b"abc")
expect(store.get("deleted twice"), b"again")
store.set("from torch", "hello")
store.set("gone", "")
expect(store.compare_set("turn", "go", "torch"), b"torch")
store.delete_key("gone")
store.set("", "empty")
for _ in range(rounds):
    store.add("number", 1)
store.set("torch is done", "")
store.wait(["go is done"], datetime.timedelta(seconds=20))
expect(store.add("number", 0), 2 * rounds)
