#!/usr/bin/env python3
"""Record the logits that `transformers` computes for a tiny checkpoint of each family.

    make_family_goldens.py [--out test/Families/goldens] [NAME...]

Needs torch and transformers; a GPU is not used. Each family is built with its own class
of transformers. Its weights are a function of a seed, so golden_checkpoint.py writes the
same checkpoint from the recorded file with Python alone, and the file holds logits only:

    {"versions": {...}, "seed": s,
     "attention": how bf16 computed it ("sdpa", or "eager" where the class has no other),
     "config": {...},          config.json, as transformers saves it
     "tensors": {name: [shape, mean, deviation]},    in the order of the file
     "quantise": [...],        options of quantise_checkpoint.py, for a quantised one; logits are those of its values
     "prompts": [{"tokens": [...], "rows": [
         {"position": p,       the input position
          "exact": "...",      fp32 logits (the bf16 weights widened); base64 of f32, little-endian
          "rounded": "...",    logits of transformers in bf16; base64 of bf16
          "error": e}]}]}      ||rounded - exact|| / ||exact||
"""
import argparse
import base64
import json
import math
import pathlib
import struct
import tempfile

import torch
import transformers

import golden_checkpoint
from dequantise import dequantised
from safetensors.torch import save_file

SEED = 7
ROWS = 11  # at most so many rows of a prompt, its last
PROMPTS = (5, 70)
SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
         "intermediate_size": 96, "vocab_size": 300, "max_position_embeddings": 512,
         "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None}
LONGROPE = {"rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.5,
            "short_factor": [1.0, 1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0],
            "long_factor": [1.0, 1.5, 2.5, 4.0, 6.0, 9.0, 12.0, 16.0]}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
BIASES = {"attention_bias": True}
WINDOW = {"num_hidden_layers": 3, "use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1}
PATTERN = ["sliding_attention", "full_attention", "sliding_attention"]

# Name: (configuration class, what differs from SMALL). Nothing that a family may set is left
# at a value that would hide a mistake: head_dim is not hidden / heads, multipliers are not 1.
FAMILIES = {
    "llama": ("LlamaConfig", {"num_key_value_heads": 4}),
    "llama3": ("LlamaConfig", {"tie_word_embeddings": True, "head_dim": 32, "rope_parameters": LLAMA3}),
    "llama-bias": ("LlamaConfig", BIASES | {"mlp_bias": True}),
    "mistral": ("MistralConfig", {"head_dim": 32, "sliding_window": None}),
    "mistral-window": ("MistralConfig", {"sliding_window": 16}),
    "qwen2": ("Qwen2Config", {"rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0}}),
    "qwen2-window": ("Qwen2Config", WINDOW),
    "qwen3": ("Qwen3Config", {"head_dim": 32, "tie_word_embeddings": True}),
    "qwen3-bias": ("Qwen3Config", BIASES | {"head_dim": 16}),
    "qwen3-window": ("Qwen3Config", {"head_dim": 16, "tie_word_embeddings": True} | WINDOW),
    "granite": ("GraniteConfig", {"embedding_multiplier": 12.0, "attention_multiplier": 0.125,
                                  "residual_multiplier": 0.22, "logits_scaling": 8.0}),
    "granite-bias": ("GraniteConfig", BIASES | {"mlp_bias": True, "attention_multiplier": 0.125}),
    "olmo2": ("Olmo2Config", {"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}}),
    "olmo2-bias": ("Olmo2Config", BIASES),
    "starcoder2": ("Starcoder2Config", {}),
    "smollm3": ("SmolLM3Config", {"num_hidden_layers": 3, "no_rope_layer_interval": 2}),
    "smollm3-window": ("SmolLM3Config", {"num_hidden_layers": 3, "no_rope_layer_interval": 2,
                                         "use_sliding_window": True, "sliding_window": 16}),
    "phi3": ("Phi3Config", {"hidden_size": 128, "rope_parameters": {
        "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}}),
    "phi3-longrope": ("Phi3Config", {"hidden_size": 128, "max_position_embeddings": 8192,
                                     "original_max_position_embeddings": 4096, "rope_parameters": LONGROPE}),
    "gemma2": ("Gemma2Config", {"num_hidden_layers": 3, "head_dim": 32, "sliding_window": 16, "layer_types": PATTERN,
                                "query_pre_attn_scalar": 24, "attn_logit_softcapping": 3.0,
                                "final_logit_softcapping": 4.0}),
    "gemma3": ("Gemma3TextConfig", {"num_hidden_layers": 3, "head_dim": 32, "sliding_window": 16,
                                    "layer_types": PATTERN, "query_pre_attn_scalar": 24, "rope_parameters": {
                                        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                                        "full_attention": {"rope_type": "linear", "rope_theta": 1000000.0,
                                                           "factor": 8.0}}}),
    "gpt2": ("GPT2Config", {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 512}),
    "gpt_neox": ("GPTNeoXConfig", {"hidden_size": 128}),
    "gpt_neox-sequential": ("GPTNeoXConfig", {"use_parallel_residual": False, "tie_word_embeddings": True,
                                              "attention_bias": False,
                                              "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0,
                                                                  "partial_rotary_factor": 1.0}}),
    "stablelm": ("StableLmConfig", {"use_qkv_bias": True}),  # of docs/add-a-model.md
}
# Of each: the family, what quantise_checkpoint.py is told, and what differs from SMALL.
QUANTISED = {
    "llama-fp8-block": ("llama", "fp8-block", "--block", "32", "64"),
    "llama-fp8-tensor": ("llama", "fp8-tensor"),
    "llama-fbgemm": ("llama", "fbgemm"),
    "llama-ct-fp8-channel": ("llama", "ct-fp8-channel"),
    "llama-ct-int4": ("llama", "ct-int4", "--group", "32"),
    "llama-ct-int4-order": ("llama", "ct-int4-order", "--group", "32"),
    "llama-ct-int8-asym": ("llama", "ct-int8-asym", "--group", "32"),
    "llama-awq": ("llama", "awq", "--group", "32"),
    "llama-gptq": ("llama", "gptq", "--group", "32"),
    "llama-gptq-order": ("llama", "gptq-order", "--group", "32"),
    "qwen3-ct-fp8-block": ("qwen3", "ct-fp8-block", "--block", "64", "32"),
    "qwen3-gptq-v2": ("qwen3", "gptq-v2", "--group", "-1"),
    "phi3-fbgemm": ("phi3", "fbgemm"),
    "phi3-awq": ("phi3", "awq", "--group", "32"),
    "gemma2-ct-int8": ("gemma2", "ct-int8"),
    "gpt_neox-gptq-int8": ("gpt_neox", "gptq-int8", "--group", "32"),
    "gpt_neox-fp8-tensor": ("gpt_neox", "fp8-tensor"),
}
# K and V go through e4m3, with a scale for each token and head.
KV = {"llama-kv-fp8": ("llama",), "qwen3-kv-fp8": ("qwen3",)}
# What the class itself calls the sizes.
DROPPED = {"gpt2": ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
                    "intermediate_size", "max_position_embeddings"),
           "gpt_neox": ("num_key_value_heads",), "gpt_neox-sequential": ("num_key_value_heads",)}


def configuration(name):
    if name in QUANTISED or name in KV:
        config = configuration((QUANTISED | KV)[name][0])
        config.vocab_size = 128
        return config
    class_name, changes = FAMILIES[name]
    sizes = {key: value for key, value in SMALL.items() if key not in DROPPED.get(name, ())}
    return getattr(transformers, class_name)(**sizes | changes)


def moments(config, name, shape):
    """Mean and deviation of a tensor: logits have a deviation of about 2, and what each block adds is no
    smaller than what it is added to, so that a mistake in it shows. No norm is 1, no bias is 0."""
    family, part = config.model_type, name.rsplit(".", 2)[-2]
    if name.endswith(".bias"):
        return 0.0, 0.2
    if len(shape) == 1:
        # Sharp attention; and Gemma's norms multiply by 1 + w.
        mean = 1.5 if part in ("q_norm", "k_norm") else 1.0
        return mean - family.startswith("gemma"), 0.1
    if part in ("lm_head", "embed_out") or part in ("embed_tokens", "wte", "embed_in") and config.tie_word_embeddings:
        return 0.0, 2 / math.sqrt(config.hidden_size) * getattr(config, "logits_scaling", 1.0)
    if part in ("embed_tokens", "embed_in", "wpe"):
        return 0.0, 0.5 / getattr(config, "embedding_multiplier", 1.0)
    inputs = shape[0] if family == "gpt2" else shape[1]  # its matrices are transposed
    return 0.0, (1.5 if part in ("q_proj", "k_proj", "qkv_proj", "c_attn", "query_key_value") else 1.0) / math.sqrt(inputs)


def blank_golden(config, directory):
    """What golden_checkpoint.py needs to write the checkpoint."""
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(directory)  # under the names that checkpoints have
    with open(directory / "model.safetensors", "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    header.pop("__metadata__", None)
    tensors = {tensor: [entry["shape"], *moments(config, tensor, entry["shape"])] for tensor, entry in
               sorted(header.items(), key=lambda item: item[1]["data_offsets"])}
    return {"versions": {"transformers": transformers.__version__, "torch": torch.__version__},
            "seed": SEED, "attention": "eager" if getattr(config, "attn_logit_softcapping", None) else "sdpa",
            "config": json.loads((directory / "config.json").read_text()), "tensors": tensors}


def tokens_of(length, vocab):
    state, tokens = 12345 + length, []
    for _ in range(length):
        state = (state * 1103515245 + 12345) % (1 << 31)
        tokens.append((state >> 8) % vocab)
    return tokens


def logits_of(directory, dtype, attention, prompts):
    # Loaded in this type rather than converted: that would round the rotary frequencies, too.
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        directory, dtype=dtype, attn_implementation=attention, output_loading_info=True)
    assert not any(info.values()), info
    return [model.eval()(input_ids=torch.tensor([tokens]), use_cache=False).logits[0] for tokens in prompts]


def through_e4m3(x):
    """docs/ir.md, "KV in e4m3"."""
    rounded = x.bfloat16().float()
    bits = (rounded.abs().amax(-1, keepdim=True) / 448).view(torch.int32)
    scale = ((bits + 0xffff) & ~0xffff).view(torch.float32).clamp(min=2.0 ** -126)
    codes = (rounded * (1 / scale)).clamp(-448, 448).to(torch.float8_e4m3fn)
    return (codes.float() * scale).bfloat16().to(x.dtype)


def hooked(family):
    """transformers' eager attention reads K and V as such a pool has them, until the returned function is called."""
    module = getattr(transformers.models, family)
    module = getattr(module, f"modeling_{family}")
    plain = module.eager_attention_forward
    module.eager_attention_forward = lambda self, query, key, value, *rest, **named: plain(
        self, query, through_e4m3(key), through_e4m3(value), *rest, **named)
    return lambda: setattr(module, "eager_attention_forward", plain)


def pack(row):
    return base64.b64encode(row.contiguous().view(torch.uint8).numpy().tobytes()).decode()


def prompts_of(prompts, exact, rounded, most):
    """`prompts` of a golden: of each at most so many rows, the last ones."""
    out = []
    for tokens, exact_rows, rounded_rows in zip(prompts, exact, rounded):
        rows = []
        for position in range(max(0, len(tokens) - most), len(tokens)):
            x, y = exact_rows[position], rounded_rows[position]
            assert x.dtype == torch.float32 and y.dtype == torch.bfloat16
            error = (y.double() - x.double()).norm() / x.double().norm()
            rows.append({"position": position, "exact": pack(x), "rounded": pack(y),
                         "error": float(f"{error.item():.6g}")})
        out.append({"tokens": tokens, "rows": rows})
    return out


def write_golden(path, golden):
    # A row and a tensor per line: a change of one is one line of a diff.
    text = json.dumps(golden, separators=(",", ":")).replace('{"position"', '\n{"position"')
    for tensor in golden.get("tensors", ()):
        text = text.replace(f'"{tensor}":[', f'\n"{tensor}":[', 1)
    path.write_text(text + "\n")
    errors = [sum(row["error"] for row in prompt["rows"]) / len(prompt["rows"]) for prompt in golden["prompts"]]
    print(f"{path}: {path.stat().st_size:,} bytes; bf16 error of the prompts "
          + ", ".join(f"{error:.5f}" for error in errors), flush=True)


def golden_of(name):
    with tempfile.TemporaryDirectory() as folder:
        directory = pathlib.Path(folder)
        golden = blank_golden(configuration(name), directory)
        golden_checkpoint.write(golden, directory)
        most = ROWS
        if name in QUANTISED:  # the families' goldens have more rows
            golden["quantise"] = ["--format", *QUANTISED[name][1:]]
            most = 4
            golden_checkpoint.write(golden, directory)
            save_file(dequantised(directory), directory / "model.safetensors", metadata={"format": "pt"})
            (directory / "config.json").write_text(json.dumps(golden["config"]))
        prompts = [tokens_of(length, golden["config"]["vocab_size"]) for length in PROMPTS]
        if name in KV:
            most, golden["attention"] = 4, "eager"
            restore = hooked(golden["config"]["model_type"])
        exact = logits_of(directory, torch.float32, "eager", prompts)
        rounded = logits_of(directory, torch.bfloat16, golden["attention"], prompts)
        if name in KV:
            restore()
    golden["prompts"] = prompts_of(prompts, exact, rounded, most)
    return golden


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="a family; all without one: " + ", ".join(FAMILIES))
    root = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("--out", type=pathlib.Path, default=root / "test/Families/goldens")
    args = parser.parse_args()
    if unknown := [name for name in args.names if name not in FAMILIES | QUANTISED | KV]:
        parser.error(f"no family `{unknown[0]}`; there are {', '.join(FAMILIES | QUANTISED | KV)}")
    torch.set_grad_enabled(False)
    transformers.utils.logging.disable_progress_bar()
    args.out.mkdir(parents=True, exist_ok=True)
    for name in args.names or FAMILIES | QUANTISED | KV:
        path = args.out / ("" if name in FAMILIES else "quantised") / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        write_golden(path, golden_of(name))


if __name__ == "__main__":
    main()
