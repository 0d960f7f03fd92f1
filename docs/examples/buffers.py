"""Buffers as text, for pipelines of buffers: buffers.py IN.json OUT.safetensors writes, buffers.py IN.safetensors prints.

The JSON is `{name: {"dtype": "I64", "values": [[1, 2], [3, 4]]}}`. PyTorch and NumPy write such files with `safetensors`.
"""
import json
import math
import struct
import sys

FORMS = {"I64": "q", "I32": "i", "F32": "f", "BOOL": "?", "F16": "e"}


def write(source, path):
    header, data = {}, b""
    for name, tensor in json.load(open(source)).items():
        values, shape = tensor["values"], []
        while True:
            shape.append(len(values))
            if not values or not isinstance(values[0], list):
                break
            values = sum(values, [])
        shape = [size // before if before else 0 for size, before in zip(shape, [1, *shape])]
        raw = struct.pack(f"<{len(values)}{FORMS[tensor['dtype']]}", *values)
        header[name] = {"dtype": tensor["dtype"], "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + data)


def show(path):
    data = open(path, "rb").read()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    for name, tensor in json.loads(data[8:begin]).items():
        count, low = math.prod(tensor["shape"]), begin + tensor["data_offsets"][0]
        values = struct.unpack_from(f"<{count}{FORMS[tensor['dtype']]}", data, low)
        print(f"{name:9} {tensor['dtype']:4} {tensor['shape']}: {' '.join(map(str, values))}")


if len(sys.argv) == 3:
    write(*sys.argv[1:])
elif len(sys.argv) == 2:
    show(sys.argv[1])
else:
    sys.exit(__doc__)
