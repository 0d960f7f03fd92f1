#!/usr/bin/env python3
"""Random weights that are a function of (tensor name, index), the same everywhere.

    weights.py NAME SHAPE INDEX...      print elements, e.g.
    weights.py model.embed_tokens.weight 128256x2048 0 1 2

Element i (row-major, 64 bits) of tensor NAME, all arithmetic in f32 unless said otherwise:

    seed    = crc32(NAME)
    x       = hash32(low32(i) ^ hash32(high32(i) ^ seed))
    centred = (x >> 8) * 2^-24 - 0.5                               exact
    2-D     : bf16(centred * scale), scale = f32(2 * sqrt(3) / sqrt(columns))
    1-D     : bf16(1 + centred * 0.25); names that end in `.bias`: bf16(centred * 0.1)

NAME is the one of Hugging Face's checkpoint; with tied embeddings the head is
`model.embed_tokens.weight`. A matrix keeps the variance of what it multiplies.
"""
import argparse
import math
import struct
import zlib

MASK = 0xFFFFFFFF
MULTIPLIERS = 0x7FEB352D, 0x846CA68B
# Elements at a time on the way through torch: 128 MiB of int64. Divides 2^32.
CHUNK = 1 << 24


def f32(value):
    """`value` rounded to f32."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


def hash32(x):
    """As in device/Sync.cuh."""
    x ^= x >> 16
    x = x * MULTIPLIERS[0] & MASK
    x ^= x >> 15
    x = x * MULTIPLIERS[1] & MASK
    return x ^ (x >> 16)


def affine(name, shape):
    """(mean, scale): an element is bf16(mean + centred * scale)."""
    if len(shape) >= 2:
        return 0.0, f32(2 * math.sqrt(3) / math.sqrt(shape[-1]))
    return (0.0, f32(0.1)) if name.endswith(".bias") else (1.0, 0.25)


def element_bits(name, shape, index):
    """The 16 bits of one element, in plain Python."""
    x = hash32((index & MASK) ^ hash32((index >> 32) ^ zlib.crc32(name.encode())))
    mean, scale = affine(name, shape)
    # Both operations are exact in f64 here, so this rounds once, as f32 arithmetic does.
    value = f32(mean + ((x >> 8) * 2.0**-24 - 0.5) * scale)
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def bf16_value(bits):
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


def fill(tensor, name):
    """Fills a contiguous torch tensor, on its device, chunk by chunk; with bf16 values
    whatever its dtype."""
    import torch

    def hash_(x):  # int64 with values below 2^32; the low half of a wrapped product is right
        x ^= x >> 16
        x.mul_(MULTIPLIERS[0]).bitwise_and_(MASK)
        x ^= x >> 15
        x.mul_(MULTIPLIERS[1]).bitwise_and_(MASK)
        x ^= x >> 16

    mean, scale = affine(name, tensor.shape)
    seed, flat = zlib.crc32(name.encode()), tensor.detach().view(-1)
    for begin in range(0, flat.numel(), CHUNK):
        end = min(begin + CHUNK, flat.numel())
        low = begin & MASK
        x = torch.arange(low, low + end - begin, dtype=torch.int64, device=flat.device)
        x ^= hash32((begin >> 32) ^ seed)
        hash_(x)
        x >>= 8
        values = x.to(torch.float32)
        values.mul_(2.0**-24).sub_(0.5).mul_(scale).add_(mean)
        flat[begin:end].copy_(values.to(torch.bfloat16))


def fill_model(model):
    """Fills every parameter of a transformers model; returns how many there are."""
    count = 0
    for name, parameter in model.named_parameters():  # a tied head comes once, as the embedding
        fill(parameter, name)
        count += parameter.numel()
    return count


def main():
    parser = argparse.ArgumentParser(description="Print elements of the benchmark's weights.")
    parser.add_argument("name", help="tensor, e.g. model.norm.weight")
    parser.add_argument("shape", help="e.g. 128256x2048, or 2048")
    parser.add_argument("index", type=int, nargs="+", help="row-major index of an element")
    args = parser.parse_args()
    shape = [int(size) for size in args.shape.split("x")]
    for index in args.index:
        bits = element_bits(args.name, shape, index)
        print(f"{index} 0x{bits:04x} {bf16_value(bits)!r}")


if __name__ == "__main__":
    main()
