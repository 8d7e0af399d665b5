"""PyTorch's TCPStore client does all that it can at 127.0.0.1:PORT. A Go client has set "/from go", waits for
"/from torch", and sets "/late" when "/please" is there."""
import datetime
import sys

import torch.distributed as dist

store = dist.TCPStore("127.0.0.1", int(sys.argv[1]), None, False, datetime.timedelta(seconds=20))


def expect(got, want):
    assert got == want, f"got {got!r}, want {want!r}"


def expect_error(call):
    try:
        got = call()
    except RuntimeError as error:
        return error
    raise AssertionError(f"no error but {got!r}")


expect(store.get("from go"), b"\x00hello\xff")
store.set("key", "one")
store.set("key", "two")
expect(store.get("key"), b"two")
store.set("", "")
expect(store.get(""), b"")
expect(store.add("number", 6), 6)
expect(store.add("number", -15), -9)
expect(store.get("number"), b"-9")
expect(store.compare_set("absent", "old", "new"), b"old")
expect(store.compare_set("absent", "", "new"), b"new")
expect(store.compare_set("absent", "other", "newer"), b"new")
expect(store.compare_set("absent", "new", "newer"), b"newer")
expect(store.num_keys(), 5)  # with what Go set
expect(store.delete_key("absent"), True)
expect(store.delete_key("absent"), False)
expect(store.num_keys(), 4)
large = "v" * (8 << 20)
store.set("k" * 8000, large)
expect(len(store.get("k" * 8000)), 8 << 20)
store.wait(["key", "number"])

# A wait that times out leaves the connection as it was: PyTorch 1.13's own server sends it a byte too many.
expect_error(lambda: store.wait(["never"], datetime.timedelta(milliseconds=100)))
store.set("please", "")
expect(store.get("late"), b"at last")
expect(store.get("key"), b"two")

other = dist.PrefixStore("prefix", store)
other.set("key", "three")
expect(other.get("key"), b"three")
expect(store.get("prefix/key"), b"three")
store.compare_set("from torch", "", "done")  # for which PyTorch's own server wakes nobody

# What has no reply ends the connection, and the store lives.
broken = dist.TCPStore("127.0.0.1", int(sys.argv[1]), None, False, datetime.timedelta(seconds=20))
expect_error(lambda: broken.add("key", 1))
expect(store.get("key"), b"two")
