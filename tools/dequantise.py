"""The values of a quantised checkpoint in f32, read with torch by the formats' own formulas.

Written apart from the C++ reader, to check it. What compressed-tensors 0.20 and transformers 5.24 make of files of
quantise_checkpoint.py is the same, bit for bit (`fp8`, and `ct-` but for an order of columns).
"""
import json
import pathlib

import torch
from safetensors.torch import load_file

AWQ_NIBBLES = [0, 4, 1, 5, 2, 6, 3, 7]  # which one has output i of eight


def unpack(words, bits, nibbles=None):
    """Codes along the last dimension."""
    words = words.to(torch.int64) & 0xffffffff
    order = nibbles or range(32 // bits)
    return torch.stack([words >> bits * i & (1 << bits) - 1 for i in order], -1).flatten(-2)


def coded(module, tensors, config):
    """The weight [outputs, inputs] of one module; None: it is not coded."""
    def get(suffix):
        return tensors.get(f"{module}.{suffix}")
    if get("weight_packed") is not None:
        scales = get("weight_scale").float()
        outputs, inputs = get("weight_shape").tolist()
        bits = get("weight_packed").shape[1] * 32 // inputs
        codes = unpack(get("weight_packed"), bits)[:, :inputs]
        group = get("weight_g_idx")
        zeros = torch.full(scales.shape, 1 << bits - 1)
        if get("weight_zero_point") is not None:
            zeros = unpack(get("weight_zero_point").t().contiguous(), bits)[:, :outputs].t()
    elif get("qweight") is not None:
        scales, group = get("scales").float().t(), get("g_idx")
        if config["quant_method"] == "awq":
            codes, zeros = unpack(get("qweight"), 4, AWQ_NIBBLES).t(), unpack(get("qzeros"), 4, AWQ_NIBBLES).t()
        else:
            bits = get("qweight").shape[0] * 32 // len(group)  # `dynamic` may say another than config.json
            codes = unpack(get("qweight").t().contiguous(), bits)
            # Version 1: words are less by 1 in each code, so a 0 has borrowed from the next one.
            less = (0xffffffff // ((1 << bits) - 1)) if config.get("checkpoint_format", "gptq") == "gptq" else 0
            zeros = unpack(get("qzeros").to(torch.int64) + less, bits).t()
    elif get("weight") is not None and get("weight").dtype == torch.float8_e4m3fn:
        codes, group = get("weight").float(), None
        scales = get("weight_scale_inv") if get("weight_scale_inv") is not None else get("weight_scale")
        scales = scales.float()
        if scales.numel() == 1 or scales.shape == (codes.shape[0], 1):
            return codes * scales.reshape(-1, 1)
        rows, columns = (config.get("weight_block_size") or
                         config["config_groups"]["group_0"]["weights"]["block_structure"])
        return codes * scales.repeat_interleave(rows, 0)[:codes.shape[0]].repeat_interleave(
            columns, 1)[:, :codes.shape[1]]
    else:
        return None
    inputs = codes.shape[1]
    of = group.long() if group is not None else torch.arange(inputs) // (inputs // scales.shape[1])
    return (codes - zeros[:, of]).float() * scales[:, of]


def dequantised(directory):
    """All tensors of a checkpoint, coded ones as `weight` in f32."""
    directory = pathlib.Path(directory)
    tensors = load_file(str(directory / "model.safetensors"))
    config = json.loads((directory / "config.json").read_text())["quantization_config"]
    out, read = {}, set()
    for module in sorted({name.rpartition(".")[0] for name in tensors}):
        weight = coded(module, tensors, config)
        if weight is not None:
            out[f"{module}.weight"] = weight.contiguous()
            read.add(module)
    beside = ("weight", "weight_scale", "weight_scale_inv", "weight_packed", "weight_shape", "weight_zero_point",
              "weight_g_idx", "qweight", "qzeros", "scales", "g_idx")
    for name, tensor in tensors.items():
        module, _, suffix = name.rpartition(".")
        if module not in read or suffix not in beside:
            out[name] = tensor.float()
    return out
