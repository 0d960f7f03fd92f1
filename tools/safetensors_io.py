"""Writing and reading a Hugging Face checkpoint directory without other packages.

The safetensors layout: u64 little-endian header length, a JSON header
`{name: {dtype, shape, data_offsets}}`, then the tensors' bytes without gaps.
"""
import json
import math
import pathlib
import struct


def write_bf16(path, shapes, chunks_of):
    """Write bf16 tensors one after the other, never holding a whole one.

    shapes: {name: tuple of dimensions}, in file order.
    chunks_of(name, shape): yields bytes-like pieces of the row-major tensor.
    """
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in shapes.items():
        size = 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": list(shape),
                        "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # keeps the tensors aligned
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for name, shape in shapes.items():
            written = sum(out.write(chunk) for chunk in chunks_of(name, shape))
            if written != 2 * math.prod(shape):
                raise ValueError(f"{name}: wrote {written} bytes, expected "
                                 f"{2 * math.prod(shape)}")


def read_bf16(path):
    """The bf16 tensors of a file: {name: (shape, bytearray)}."""
    data = pathlib.Path(path).read_bytes()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8:begin]).items():
        if name == "__metadata__":
            continue
        if entry["dtype"] != "BF16":
            raise ValueError(f"{path}: {name} is {entry['dtype']}, expected BF16")
        first, last = entry["data_offsets"]
        tensors[name] = tuple(entry["shape"]), bytearray(data[begin + first:begin + last])
    return tensors


def write_configs(directory, config, eos):
    """config.json and generation_config.json; `eos` is an id, a list or None."""
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    generation = {"bos_token_id": config.get("bos_token_id"), "eos_token_id": eos,
                  "pad_token_id": config.get("pad_token_id"), "do_sample": False}
    generation = {key: value for key, value in generation.items() if value is not None}
    for name, value in (("config.json", config), ("generation_config.json", generation)):
        (directory / name).write_text(json.dumps(value, indent=2) + "\n")


def decoder_shapes(config):
    """The tensors of a Llama or Qwen3 decoder by name, in forward order."""
    hidden, ffn = config["hidden_size"], config["intermediate_size"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config.get("head_dim") or hidden // heads
    vocab = config["vocab_size"]
    shapes = {"model.embed_tokens.weight": (vocab, hidden)}
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        shapes[layer + "input_layernorm.weight"] = (hidden,)
        shapes[layer + "self_attn.q_proj.weight"] = (heads * head_dim, hidden)
        shapes[layer + "self_attn.k_proj.weight"] = (kv_heads * head_dim, hidden)
        shapes[layer + "self_attn.v_proj.weight"] = (kv_heads * head_dim, hidden)
        if config["model_type"] == "qwen3":
            shapes[layer + "self_attn.q_norm.weight"] = (head_dim,)
            shapes[layer + "self_attn.k_norm.weight"] = (head_dim,)
        shapes[layer + "self_attn.o_proj.weight"] = (hidden, heads * head_dim)
        shapes[layer + "post_attention_layernorm.weight"] = (hidden,)
        shapes[layer + "mlp.gate_proj.weight"] = (ffn, hidden)
        shapes[layer + "mlp.up_proj.weight"] = (ffn, hidden)
        shapes[layer + "mlp.down_proj.weight"] = (hidden, ffn)
    shapes["model.norm.weight"] = (hidden,)
    if not config.get("tie_word_embeddings"):
        shapes["lm_head.weight"] = (vocab, hidden)
    for i in range(config.get("medusa_num_heads", 0)):
        shapes[f"medusa_head.{i}.0.linear.weight"] = (hidden, hidden)
        shapes[f"medusa_head.{i}.0.linear.bias"] = (hidden,)
        shapes[f"medusa_head.{i}.1.weight"] = (vocab, hidden)
    return shapes
