"""A second implementation of the format, from its description, with nothing but json and struct.

write FILE: standard input is {"metadata": [[key, value], ...] or null, "tensors": [[name, dtype, shape, hex], ...]}.
read FILE: prints the same of a file, the tensors in the order of their data.
"""
import json
import struct
import sys

BITS = {"BOOL": 8, "U8": 8, "I8": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "F8_E5M2": 8, "F8_E4M3": 8, "C64": 64,
        "I32": 32, "U32": 32, "F32": 32, "F64": 64, "I64": 64, "U64": 64}
# By rising alignment, as the list in the format's own source.
ORDER = ["BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "I16", "U16", "F16", "BF16", "I32", "U32", "F32", "C64",
         "F64", "I64", "U64"]


def write(path):
    job = json.load(sys.stdin)
    header, data = {}, b""
    if job["metadata"] is not None:
        header["__metadata__"] = dict(job["metadata"])
    for name, dtype, shape, text in sorted(job["tensors"], key=lambda t: (-ORDER.index(t[1]), t[0].encode())):
        raw = bytes.fromhex(text)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def unique(pairs):
    assert len(dict(pairs)) == len(pairs), "a key twice"
    return dict(pairs)


def read(path):
    with open(path, "rb") as f:
        raw = f.read()
    (n,) = struct.unpack("<Q", raw[:8])
    assert n <= 100_000_000 and raw[8:9] == b"{"
    header, data = json.loads(raw[8:8 + n].decode(), object_pairs_hook=unique), raw[8 + n:]
    metadata = header.pop("__metadata__", None)
    tensors, at = [], 0
    for name, t in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        (first, end), elements = t["data_offsets"], 1
        for dim in t["shape"]:
            elements *= dim
        assert first == at and end - first == elements * BITS[t["dtype"]] // 8
        tensors.append([name, t["dtype"], t["shape"], data[first:end].hex()])
        at = end
    assert at == len(data)
    print(json.dumps({"metadata": metadata and [list(m) for m in metadata.items()], "tensors": tensors}))


{"write": write, "read": read}[sys.argv[1]](sys.argv[2])
