"""Spell the checkpoint in DIR as the first files of GPT-NeoX do, with this share of a head rotated.

    neox_spelling.py DIR SHARE
"""
import json
import pathlib
import sys

directory, share = pathlib.Path(sys.argv[1]), float(sys.argv[2])
config = json.loads((directory / "config.json").read_text())
config.pop("rope_parameters", None)
config.pop("attention_bias", None)
(directory / "config.json").write_text(json.dumps(config | {"rotary_pct": share, "rotary_emb_base": 10000}))
path = directory / "model.safetensors"
data = path.read_bytes()
size = int.from_bytes(data[:8], "little")
header, data = json.loads(data[8:8 + size]), data[8 + size:]
for layer in range(config["num_hidden_layers"]):
    for name, dtype, shape, count in (("bias", "U8", [1, 1, 8, 8], 64), ("masked_bias", "F32", [], 4),
                                      ("rotary_emb.inv_freq", "F32", [4], 16)):
        name = f"gpt_neox.layers.{layer}.attention.{name}"
        if name not in header:
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + count]}
            data += bytes(count)
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
path.write_bytes(len(text).to_bytes(8, "little") + text + data)
