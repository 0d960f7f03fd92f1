"""A checkpoint with the weights of `megalith bench`, by the formula of docs/bench.md:
fill.py CONFIG.json OUT. And the bench's requests: fill.py --requests VOCAB CONTEXT BATCH TOKENS."""
import json, math, os, shutil, struct, sys, zlib

M = 0xffffffff


def hash32(x):
    x ^= x >> 16
    x = x * 0x7feb352d & M
    x ^= x >> 15
    x = x * 0x846ca68b & M
    return x ^ x >> 16


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def bf16(x):
    bits = struct.unpack("<I", struct.pack("<f", x))[0]
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16


def tensor(name, shape):
    scale, mean = (f32(2 * math.sqrt(3) / math.sqrt(shape[1])), 0.0) if len(shape) == 2 else \
        (f32(0.1), 0.0) if name.endswith(".bias") else (0.25, 1.0)
    seed = hash32(zlib.crc32(name.encode()))
    for i in range(math.prod(shape)):
        centred = (hash32(i ^ seed) >> 8) * 2.0 ** -24 - 0.5
        yield bf16(f32(mean + f32(centred * scale)))


if sys.argv[1] == "--requests":
    vocab, context, batch, tokens = map(int, sys.argv[2:])
    for b in range(batch):
        print(json.dumps({"id": str(b), "max_new_tokens": tokens, "eos": [],
                          "tokens": [hash32(j ^ hash32(b + 1)) % vocab for j in range(context)]}))
    sys.exit()
c = json.load(open(sys.argv[1]))
h, f, d = c["hidden_size"], c["intermediate_size"], c["head_dim"]
q, kv = c["num_attention_heads"] * d, c["num_key_value_heads"] * d
shapes = {"model.embed_tokens.weight": [c["vocab_size"], h], "model.norm.weight": [h],
          "lm_head.weight": [c["vocab_size"], h]}
for i in range(c["num_hidden_layers"]):
    for name, shape in {"input_layernorm": [h], "self_attn.q_proj": [q, h], "self_attn.k_proj": [kv, h],
                        "self_attn.v_proj": [kv, h], "self_attn.o_proj": [h, q], "post_attention_layernorm": [h],
                        "mlp.gate_proj": [f, h], "mlp.up_proj": [f, h], "mlp.down_proj": [h, f]}.items():
        shapes[f"model.layers.{i}.{name}.weight"] = shape
header, data = {}, b""
for name, shape in shapes.items():
    values = list(tensor(name, shape))
    header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [len(data), len(data) + 2 * len(values)]}
    data += struct.pack(f"<{len(values)}H", *values)
text = json.dumps(header).encode()
os.makedirs(sys.argv[2], exist_ok=True)
shutil.copy(sys.argv[1], sys.argv[2] + "/config.json")
open(sys.argv[2] + "/model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + data)
