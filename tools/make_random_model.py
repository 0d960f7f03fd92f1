#!/usr/bin/env python3
"""Write a checkpoint directory of a known shape with random weights.

    make_random_model.py --shape llama-1b --out DIR [--seed S]
    make_random_model.py --shape '{"model_type": "llama", ...}' --out DIR
    make_random_model.py --shape config.json --out DIR
    make_random_model.py --list

Every weight is a function of (seed, tensor name, index) in integer arithmetic,
so PyTorch on a GPU, PyTorch on a CPU, numpy and plain Python write the same bytes.
PyTorch is used when it is installed, with a GPU when there is one; plain Python,
without either, takes a second per 300,000 parameters.

The scales keep a random decoder from degenerating: projections keep the
variance of their input, and logits have a standard deviation of about 2.
"""
import argparse
import hashlib
import json
import math
import pathlib
import struct
import sys
import time

from safetensors_io import decoder_shapes, write_bf16, write_configs

try:
    import torch
except ImportError:
    torch = None
    try:
        import numpy
    except ImportError:
        numpy = None

LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama",
         "hidden_act": "silu", "attention_bias": False, "mlp_bias": False,
         "attention_dropout": 0.0, "initializer_range": 0.02, "rms_norm_eps": 1e-5,
         "rope_theta": 10000.0, "rope_scaling": None, "torch_dtype": "bfloat16",
         "use_cache": True}
QWEN3 = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
         "hidden_act": "silu", "attention_bias": False, "attention_dropout": 0.0,
         "initializer_range": 0.02, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
         "rope_scaling": None, "sliding_window": None, "use_sliding_window": False,
         "torch_dtype": "bfloat16", "use_cache": True}


def sized(base, hidden, layers, heads, kv_heads, head_dim, ffn, vocab, tied,
          positions, bos, eos, **more):
    return base | {
        "hidden_size": hidden, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": kv_heads,
        "head_dim": head_dim, "intermediate_size": ffn, "vocab_size": vocab,
        "tie_word_embeddings": tied, "max_position_embeddings": positions,
        "bos_token_id": bos, "eos_token_id": eos} | more


LLAMA3_SCALING = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0,
                  "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
# `awkward` also has the newer spelling of the rotary embedding.
NEW_ROPE = {key: value for key, value in LLAMA.items() if not key.startswith("rope_")}
NEW_ROPE["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0}

SHAPES = {
    "tiny": sized(LLAMA, 64, 2, 4, 2, 16, 128, 300, False, 2048, 1, 2),
    "tiny-deep": sized(LLAMA, 64, 2, 4, 2, 16, 1000, 300, False, 2048, 1, 2),
    "tiny-qwen3": sized(QWEN3, 64, 2, 4, 2, 16, 128, 300, True, 2048, 1, 2),
    "awkward": sized(NEW_ROPE, 96, 3, 6, 2, 16, 200, 517, False, 2048, 1, 2),
    "llama-1b": sized(LLAMA, 2048, 16, 32, 8, 64, 8192, 128256, True, 131072, 128000,
                      [128001, 128008, 128009], rope_theta=500000.0,
                      rope_scaling=LLAMA3_SCALING),
    "qwen3-0.6b": sized(QWEN3, 1024, 28, 16, 8, 128, 3072, 151936, True, 40960, 151643,
                        [151645, 151643], max_window_layers=28),
}

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
    mask, out = (1 << 64) - 1, bytearray()
    multipliers = ((30, MIX_1 & mask), (27, MIX_2 & mask), (31, 1))
    for index in range(begin, end):
        z = (index * GOLDEN + key) & mask
        for shift, multiplier in multipliers:
            z = (z ^ (z >> shift)) * multiplier & mask
        total = (z & 0xffff) + (z >> 16 & 0xffff) + (z >> 32 & 0xffff) + (z >> 48) - 2 * 65535
        # Each step rounds to f32, as the others do.
        value = to_f32(to_f32(total * to_f32(scale)) + to_f32(mean))
        bits = struct.unpack("<I", struct.pack("<f", value))[0]
        out += struct.pack("<H", (bits + 0x7fff + (bits >> 16 & 1)) >> 16)
    return bytes(out)


def to_f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def moments(name, shape, config):
    """Mean and standard deviation of a tensor's values."""
    if len(shape) == 1:
        return 1.0, 0.1
    if name == "lm_head.weight" or (name == "model.embed_tokens.weight"
                                    and config.get("tie_word_embeddings")):
        return 0.0, 2 / math.sqrt(config["hidden_size"])
    if name == "model.embed_tokens.weight":
        return 0.0, 1.0
    return 0.0, 1 / math.sqrt(shape[1])


def load_shape(text):
    if text in SHAPES:
        return SHAPES[text]
    if not text.lstrip().startswith("{"):
        path = pathlib.Path(text)
        if not path.is_file():
            sys.exit(f"error: `{text}` is neither a shape ({', '.join(SHAPES)}) nor a file")
        text = path.read_text()
    config = json.loads(text)
    base = {"llama": LLAMA, "qwen3": QWEN3}.get(config.get("model_type"))
    if base is None:
        sys.exit("error: `model_type` must be `llama` or `qwen3`")
    if "rope_parameters" in config:
        base = {key: value for key, value in base.items() if not key.startswith("rope_")}
    config = base | config
    missing = [key for key in ("hidden_size", "num_hidden_layers", "num_attention_heads",
                               "num_key_value_heads", "intermediate_size", "vocab_size")
               if key not in config]
    if missing:
        sys.exit(f"error: the shape has no {', '.join(missing)}")
    return config


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shape", help="a name, a JSON object or a file with one")
    parser.add_argument("--out", type=pathlib.Path, help="directory to write")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--list", action="store_true", help="print the named shapes")
    args = parser.parse_args()
    if args.list:
        print("\n".join(SHAPES))
        return
    if not args.shape or not args.out:
        parser.error("--shape and --out are required")
    config = load_shape(args.shape)
    device = "cuda" if torch and torch.cuda.is_available() else "cpu"

    def chunks_of(name, shape):
        mean, deviation = moments(name, shape, config)
        digest = hashlib.sha256(f"{args.seed}:{name}".encode()).digest()
        key = int.from_bytes(digest[:8], "little", signed=True)
        count = math.prod(shape)
        scale = deviation / SUM_DEVIATION
        for begin in range(0, count, CHUNK):
            end = min(begin + CHUNK, count)
            if torch:
                yield torch_chunk(key, begin, end, scale, mean, device).data.cast("B")
            elif numpy:
                yield numpy_chunk(key, begin, end, scale, mean).data.cast("B")
            else:
                yield python_chunk(key, begin, end, scale, mean)

    start = time.time()
    write_configs(args.out, config, config.get("eos_token_id"))
    shapes = decoder_shapes(config)
    write_bf16(args.out / "model.safetensors", shapes, chunks_of)
    parameters = sum(math.prod(shape) for shape in shapes.values())
    print(f"{args.out}: {parameters:,} parameters in {time.time() - start:.1f} s")


if __name__ == "__main__":
    main()
