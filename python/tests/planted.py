"""Checkpoints whose answers are planted: the logits after a position are what the test says, whatever the tokens are."""

import json
import struct

import numpy as np

CONFIG = {
    "architectures": ["GPT2LMHeadModel"],
    "model_type": "gpt2",
    "n_embd": 128,
    "n_layer": 1,
    "n_head": 8,
    "n_inner": 16,
    "n_positions": 128,
    "tie_word_embeddings": False,
}


def plant(folder, vocabulary, logits, **config):
    """Writes config.json and model.safetensors of a GPT-2 of one layer that does nothing. `logits`: by position, by
    token; all others are 0."""
    config = {**CONFIG, "vocab_size": vocabulary, **config}
    size, positions, inner = config["n_embd"], config["n_positions"], config["n_inner"]
    # After the norm the one place of a position has `high`, the others have `low`.
    deviation = np.sqrt(1 / size - 1 / size**2)
    high, low = (1 - 1 / size) / deviation, -1 / size / deviation
    head = np.zeros((vocabulary, size))
    for position, of in logits.items():
        for token, logit in of.items():
            head[token, position] = logit / (high - low)
    shapes = {
        "ln_1.weight": (size,),
        "ln_1.bias": (size,),
        "ln_2.weight": (size,),
        "ln_2.bias": (size,),
        "attn.c_attn.weight": (size, 3 * size),
        "attn.c_attn.bias": (3 * size,),
        "attn.c_proj.weight": (size, size),
        "attn.c_proj.bias": (size,),
        "mlp.c_fc.weight": (size, inner),
        "mlp.c_fc.bias": (inner,),
        "mlp.c_proj.weight": (inner, size),
        "mlp.c_proj.bias": (size,),
    }
    tensors = {f"transformer.h.0.{name}": np.zeros(shape) for name, shape in shapes.items()}
    tensors["transformer.wte.weight"] = np.zeros((vocabulary, size))
    tensors["transformer.wpe.weight"] = np.eye(positions, size)
    tensors["transformer.ln_f.weight"] = np.ones(size)
    tensors["transformer.ln_f.bias"] = np.full(size, -low)
    tensors["lm_head.weight"] = head
    header, data = {}, b""
    for name, values in tensors.items():
        part = values.astype(np.float32).tobytes()
        header[name] = {"dtype": "F32", "shape": values.shape, "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (folder / "config.json").write_text(json.dumps(config))


def says(*answers):
    """Logits. An answer is the length of a prompt, and the tokens after it."""
    return {length - 1 + place: {token: 20.0} for length, tokens in answers for place, token in enumerate(tokens)}
