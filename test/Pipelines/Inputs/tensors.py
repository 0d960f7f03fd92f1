"""Safetensors files with tensors as (dtype, shape, list of numbers), or bytes of what is only copied."""
import json
import math
import struct

FORMS = {"I64": "q", "I32": "i", "F32": "f", "BOOL": "?", "F16": "e", "BF16": "H"}


def save(path, tensors):
    header, data = {}, b""
    for name, (dtype, shape, values) in tensors.items():
        assert len(values) == math.prod(shape), (name, shape, len(values))
        raw = struct.pack(f"<{len(values)}{FORMS[dtype]}", *values)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + data)


def load(path):
    with open(path, "rb") as file:
        data = file.read()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    assert begin % 8 == 0
    tensors = {}
    for name, entry in json.loads(data[8:begin]).items():
        low, high = entry["data_offsets"]
        count = math.prod(entry["shape"])
        values = struct.unpack(f"<{count}{FORMS[entry['dtype']]}", data[begin + low:begin + high])
        tensors[name] = (entry["dtype"], entry["shape"], list(values))
    return tensors
