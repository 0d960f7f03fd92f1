#!/usr/bin/env python3
"""Write a checkpoint directory of a known shape with random weights.

    make_random_model.py --shape llama-1b --out DIR [--seed S]
    make_random_model.py --shape '{"model_type": "llama", ...}' --out DIR
    make_random_model.py --shape config.json --out DIR
    make_random_model.py --list

Every weight is a function of (seed, tensor name, index); random_weights.py says which.

The scales keep a random decoder from degenerating: projections keep the
variance of their input, and logits have a standard deviation of about 2.
"""
import argparse
import json
import math
import pathlib
import sys
import time

from random_weights import tensor_chunks
from safetensors_io import decoder_shapes, write_bf16, write_configs

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

MEDUSA = LLAMA | {"architectures": ["MedusaModelLlama"], "medusa_num_heads": 3,
                  "medusa_num_layers": 1}


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
# Passes of more than 128 rows of `tiny-32` and `tiny-wide` can run whole; products of the latter are of two blocks of K.
# `awkward` also has the newer spelling of the rotary embedding.
NEW_ROPE = {key: value for key, value in LLAMA.items() if not key.startswith("rope_")}
NEW_ROPE["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0}

SHAPES = {
    "tiny": sized(LLAMA, 64, 2, 4, 2, 16, 128, 300, False, 2048, 1, 2),
    "tiny-deep": sized(LLAMA, 64, 2, 4, 2, 16, 1000, 300, False, 2048, 1, 2),
    "tiny-qwen3": sized(QWEN3, 64, 2, 4, 2, 16, 128, 300, True, 2048, 1, 2),
    "tiny-medusa": sized(MEDUSA, 64, 2, 4, 2, 16, 128, 300, False, 2048, 1, 2),
    "tiny-512": sized(LLAMA, 64, 2, 4, 2, 16, 512, 300, False, 2048, 1, 2),
    "tiny-32": sized(LLAMA, 64, 3, 4, 2, 32, 32, 300, True, 2048, 1, 2),
    "tiny-wide": sized(LLAMA, 288, 2, 4, 2, 32, 272, 300, False, 2048, 1, 2),
    "awkward": sized(NEW_ROPE, 96, 3, 6, 2, 16, 200, 517, False, 2048, 1, 2),
    "llama-1b": sized(LLAMA, 2048, 16, 32, 8, 64, 8192, 128256, True, 131072, 128000,
                      [128001, 128008, 128009], rope_theta=500000.0,
                      rope_scaling=LLAMA3_SCALING),
    "qwen3-0.6b": sized(QWEN3, 1024, 28, 16, 8, 128, 3072, 151936, True, 40960, 151643,
                        [151645, 151643], max_window_layers=28),
}

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

    def chunks_of(name, shape):
        return tensor_chunks(args.seed, name, shape, *moments(name, shape, config))

    start = time.time()
    write_configs(args.out, config, config.get("eos_token_id"))
    shapes = decoder_shapes(config)
    write_bf16(args.out / "model.safetensors", shapes, chunks_of)
    parameters = sum(math.prod(shape) for shape in shapes.values())
    print(f"{args.out}: {parameters:,} parameters in {time.time() - start:.1f} s")


if __name__ == "__main__":
    main()
