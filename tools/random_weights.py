"""Random bf16 tensors that are a function of (seed, tensor name, index), the same everywhere.

The arithmetic is in integers, so PyTorch on a GPU, PyTorch on a CPU, numpy and plain
Python give the same bytes. PyTorch is used when it is installed, with a GPU when there
is one; plain Python, without either, takes half a second per 300,000 parameters.

Element i of a tensor, with `key` the first 8 bytes of sha256("SEED:NAME"):

    z     = splitmix64's finaliser of (key + i * golden), modulo 2^64
    sum   = the four 16-bit fields of z, added, minus 2 * 65535; around 0, nearly normal
    value = bf16(f32(f32(sum * f32(deviation / SUM_DEVIATION)) + f32(mean)))
"""
import hashlib
import math
import struct

try:
    import torch
except ImportError:
    torch = None
    try:
        import numpy
    except ImportError:
        numpy = None

# The multipliers of splitmix64, as signed 64-bit numbers.
GOLDEN, MIX_1, MIX_2 = -7046029254386353131, -4658895280553007687, -7723592293110705685
CHUNK = 1 << 23
# Standard deviation of a sum of four uniform 16-bit numbers.
SUM_DEVIATION = 65536 / math.sqrt(3)


def mix(z):
    """splitmix64's finaliser on int64, in place; `>>` there copies the sign."""
    for shift, multiplier in ((30, MIX_1), (27, MIX_2), (31, None)):
        z ^= (z >> shift) & ((1 << (64 - shift)) - 1)
        if multiplier is not None:
            z *= multiplier
    return z


def near_normal(z):
    """Hashes to integers around 0, the sum of four uniform 16-bit fields."""
    total = z & 0xffff
    for shift in (16, 32, 48):
        total += (z >> shift) & 0xffff
    total -= 2 * 65535
    return total


def torch_chunk(key, begin, end, scale, mean, device):
    z = torch.arange(begin, end, dtype=torch.int64, device=device)
    z *= GOLDEN
    z += key
    values = near_normal(mix(z)).to(torch.float32)
    values *= scale
    values += mean
    return values.to(torch.bfloat16).view(torch.int16).cpu().numpy()


def numpy_chunk(key, begin, end, scale, mean):
    z = numpy.arange(begin, end, dtype=numpy.int64)
    z *= GOLDEN
    z += key
    values = near_normal(mix(z)).astype(numpy.float32)
    values *= numpy.float32(scale)
    values += numpy.float32(mean)
    bits = values.view(numpy.uint32)
    bits += 0x7fff + ((bits >> 16) & 1)  # round to nearest even; never NaN here
    return (bits >> 16).astype(numpy.uint16)


def python_chunk(key, begin, end, scale, mean):
    out = bytearray()
    for first in range(begin, end, 4096):
        out += python_piece(key, range(first, min(first + 4096, end)), scale, mean)
    return bytes(out)


def python_piece(key, indices, scale, mean):
    mask = (1 << 64) - 1
    mix_1, mix_2 = MIX_1 & mask, MIX_2 & mask
    sums = []
    for index in indices:
        z = (index * GOLDEN + key) & mask
        z = (z ^ (z >> 30)) * mix_1 & mask
        z = (z ^ (z >> 27)) * mix_2 & mask
        z ^= z >> 31
        sums.append((z & 0xffff) + (z >> 16 & 0xffff) + (z >> 32 & 0xffff) + (z >> 48) - 2 * 65535)
    # Each step rounds to f32, as the others do.
    floats = struct.Struct(f"<{len(sums)}f")
    (scale,), (mean,) = (struct.unpack("<f", struct.pack("<f", value)) for value in (scale, mean))
    values = floats.unpack(floats.pack(*[total * scale for total in sums]))
    if mean:
        values = [value + mean for value in values]
    words = struct.unpack(f"<{len(sums)}I", floats.pack(*values))
    return struct.pack(f"<{len(sums)}H", *[(bits + 0x7fff + (bits >> 16 & 1)) >> 16 for bits in words])


def tensor_chunks(seed, name, shape, mean, deviation):
    """The bf16 bytes of a tensor, row-major, piece by piece."""
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    key = int.from_bytes(digest[:8], "little", signed=True)
    count = math.prod(shape)
    scale = deviation / SUM_DEVIATION
    for begin in range(0, count, CHUNK):
        end = min(begin + CHUNK, count)
        if torch:
            device = "cuda" if torch.cuda.is_available() else "cpu"
            yield torch_chunk(key, begin, end, scale, mean, device).data.cast("B")
        elif numpy:
            yield numpy_chunk(key, begin, end, scale, mean).data.cast("B")
        else:
            yield python_chunk(key, begin, end, scale, mean)
