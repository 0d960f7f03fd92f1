"""The checkpoint of llama.json with its numbers in other places, and a model file that finds them there by views.

    views.py LLAMA.yaml OUT

q, k and v of a head stand side by side; gate and up are the columns of one matrix; the two norms of a layer are the
columns of another; the names have a prefix. Writes OUT/plain, OUT/views and OUT/views.yaml.
"""
import json
import math
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))
import golden_checkpoint
from random_weights import tensor_chunks
from safetensors_io import write_bf16, write_configs

llama, out = map(pathlib.Path, sys.argv[1:])
golden = json.loads((ROOT / "test/Families/goldens/llama.json").read_text())
golden_checkpoint.write(golden, out / "plain")
config = golden["config"]
heads, hidden, ffn = config["num_attention_heads"], config["hidden_size"], config["intermediate_size"]
assert config["num_key_value_heads"] == heads  # else they do not stand side by side


def rows(name):
    shape, mean, deviation = golden["tensors"][name]
    data = b"".join(tensor_chunks(golden["seed"], name, shape, mean, deviation))
    width = 2 * shape[-1]
    return [data[i:i + width] for i in range(0, 2 * math.prod(shape), width)]


def columns(lines):
    return [b"".join(line[2 * i:2 * i + 2] for line in lines) for i in range(len(lines[0]) // 2)]


tensors = {}
for name, (shape, *_) in golden["tensors"].items():
    if ".layers." not in name or "o_proj" in name or "down_proj" in name:
        tensors["llm." + name] = (shape, rows(name))
for i in range(config["num_hidden_layers"]):
    layer = f"model.layers.{i}."
    parts = [rows(f"{layer}self_attn.{x}_proj.weight") for x in "qkv"]
    size = len(parts[0]) // heads
    qkv = [line for head in range(heads) for part in parts for line in part[head * size:(head + 1) * size]]
    gate_up = columns(rows(f"{layer}mlp.gate_proj.weight") + rows(f"{layer}mlp.up_proj.weight"))
    norms = columns(rows(f"{layer}input_layernorm.weight") + rows(f"{layer}post_attention_layernorm.weight"))
    tensors |= {f"llm.{layer}qkv": ([3 * hidden, hidden], qkv), f"llm.{layer}gate_up": ([hidden, 2 * ffn], gate_up),
                f"llm.{layer}norms": ([hidden, 2], norms)}
write_configs(out / "views", config, config["eos_token_id"])
write_bf16(out / "views/model.safetensors", {name: shape for name, (shape, _) in tensors.items()},
           lambda name, shape: tensors[name][1])

text = llama.read_text()
for name in ("wq", "wk", "wv", "gate", "up", "attn_norm", "mlp_norm"):
    text = "".join(line for line in text.splitlines(True) if not line.startswith(f"    {name}: "))
text = text.replace("  layer:  ", f"""  layer:
    wqkv: {{shape: '[heads, 3, head_dim, hidden]', stored: '[(heads + 2 * kv_heads) * head_dim, hidden]', from: 'llm.model.layers.{{i}}.qkv'}}
    gate_up: {{shape: '[2 * ffn, hidden]', transposed: true, from: 'llm.model.layers.{{i}}.gate_up'}}
    norms: {{shape: '[2, hidden]', transposed: true, from: 'llm.model.layers.{{i}}.norms'}}
    #""")
text = text.replace("from: model.", "from: llm.model.").replace("from: lm_head", "from: llm.lm_head")
text = re.sub(r"from: ('model(\..*)'})", r"from: ['model\2', 'llm.model\2']}", text)
for name, view in (("wq", "wqkv[:, 0]"), ("wk", "wqkv[:, 1]"), ("wv", "wqkv[:, 2, 0:head_dim]"), ("gate", "gate_up[:ffn]"),
                   ("up", "gate_up[ffn:2 * ffn]")):
    text = text.replace(f"matmul(h, {name})", f"matmul(h, {view})")
text = text.replace("x, attn_norm,", "x, norms[0],").replace("x, mlp_norm,", "x, norms[1, 0:],")
text = text.replace("shared: harmless.yaml", f"shared: {llama.resolve().parent}/harmless.yaml")
(out / "views.yaml").write_text(text)
