"""The checkpoint of gpt2.json as the first files of GPT-2 spell it: no prefix, `n_ctx`, and the buffers of the causal mask.

    gpt2_spelling.py OUT
"""
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))
import golden_checkpoint

golden = json.loads((ROOT / "test/Families/goldens/gpt2.json").read_text())
# Weights follow from their name: those of `transformer.` take the place of the new spelling's.
golden_checkpoint.write(golden, sys.argv[1])
directory = pathlib.Path(sys.argv[1])
data = (directory / "model.safetensors").read_bytes()
size = int.from_bytes(data[:8], "little")
header, data = json.loads(data[8:8 + size]), data[8 + size:]
header = {name.removeprefix("transformer."): value for name, value in header.items()}
for layer in range(2):
    header[f"h.{layer}.attn.bias"] = {"dtype": "U8", "shape": [1, 1, 8, 8], "data_offsets": [len(data), len(data) + 64]}
    data += bytes(64)
    header[f"h.{layer}.attn.masked_bias"] = {"dtype": "F32", "shape": [], "data_offsets": [len(data), len(data) + 4]}
    data += bytes(4)
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
(directory / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
(directory / "config.json").write_text(json.dumps(golden["config"] | {"n_ctx": 512}))
