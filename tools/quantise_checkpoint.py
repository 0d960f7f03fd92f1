#!/usr/bin/env python3
"""Writes a checkpoint whose layers are quantised, from one in bf16, as other people's tools would.

Rounds to nearest, and looks at no activations: for tests, and for the demo model. The matrices of the layers are
coded; embeddings, norms and the head stay as they are. `--formats` lists what it can write.
"""
import argparse
import array
import json
import math
import pathlib
import random
import re
import struct
import sys

from safetensors_io import read_bf16

LINEAR = re.compile(r"\.layers\.\d+\..*(_proj|query_key_value|dense|dense_\w+)\.weight$")

FORMATS = {
    "fp8-block": "`fp8`, blocks of 128 x 128 (DeepSeek, Qwen)",
    "fp8-tensor": "`fp8`, one scale a tensor",
    "fbgemm": "`fbgemm_fp8`, one scale a row",
    "ct-fp8-tensor": "compressed-tensors, FP8, one scale a tensor",
    "ct-fp8-channel": "compressed-tensors, FP8, one scale a row",
    "ct-fp8-block": "compressed-tensors, FP8, blocks",
    "ct-int4": "compressed-tensors, 4 bits in groups, symmetric",
    "ct-int4-asym": "the same with zero points",
    "ct-int4-order": "the same, symmetric, with an order of columns (`weight_g_idx`)",
    "ct-int8": "compressed-tensors, 8 bits, one scale a row",
    "ct-int8-asym": "compressed-tensors, 8 bits in groups, with zero points",
    "awq": "AWQ, 4 bits in groups",
    "gptq": "GPTQ version 1, 4 bits in groups, symmetric",
    "gptq-asym": "the same with zero points",
    "gptq-order": "GPTQ version 1 with `desc_act`",
    "gptq-v2-order": "GPTQ version 2 with zero points and `desc_act`",
    "gptq-v2": "GPTQ version 2, 4 bits in groups, with zero points",
    "gptq-int8": "GPTQ version 2, 8 bits in groups, symmetric",
}


def f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def bf16_bits(value):
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16


def of_bf16(bits):
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


def rounded(value, dtype):
    """A scale as it is stored."""
    if dtype == "F32":
        return f32(value)
    return of_bf16(bf16_bits(value)) if dtype == "BF16" else struct.unpack("<e", struct.pack("<e", value))[0]


def packed_scales(values, dtype):
    if dtype == "BF16":
        return array.array("H", [bf16_bits(v) for v in values]).tobytes()
    return struct.pack(f"<{len(values)}{'f' if dtype == 'F32' else 'e'}", *values)


E4M3 = []  # of codes 0 to 126
for code in range(127):
    exponent, mantissa = code >> 3, code & 7
    E4M3.append((mantissa / 8 * 2.0 ** -6) if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7))


def e4m3(value):
    """The nearest e4m3, ties to even, saturating."""
    size = min(abs(value), 448.0)
    low, high = 0, 126
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if E4M3[middle] <= size else (low, middle)
    below, above = size - E4M3[low], E4M3[high] - size
    code = low if below < above or (below == above and low % 2 == 0) else high
    return code | (0x80 if math.copysign(1.0, value) < 0 else 0)


class Matrix:
    """Values [rows][columns] of one weight, and what is written of it."""

    def __init__(self, shape, data):
        self.rows, self.columns = shape
        words = array.array("H", bytes(data))
        values = [of_bf16(w) for w in words]
        self.values = [values[r * self.columns:(r + 1) * self.columns] for r in range(self.rows)]

    def blocks(self, block_rows, block_columns):
        """(rows, columns) of each block, row of blocks after row of blocks."""
        for r in range(0, self.rows, block_rows):
            for c in range(0, self.columns, block_columns):
                yield range(r, min(r + block_rows, self.rows)), range(c, min(c + block_columns, self.columns))

    def fp8(self, block_rows, block_columns, dtype):
        scales, codes = [], bytearray(self.rows * self.columns)
        for rows, columns in self.blocks(block_rows, block_columns):
            most = max(abs(self.values[r][c]) for r in rows for c in columns)
            scale = rounded(most / 448.0 or 1.0, dtype)
            scales.append(scale)
            for r in rows:
                for c in columns:
                    codes[r * self.columns + c] = e4m3(self.values[r][c] / scale)
        return bytes(codes), scales

    def integers(self, bits, group, symmetric, dtype, order=None):
        """codes [rows][columns], scales and zero points [rows][groups]. `order`: the group of each column."""
        if self.columns % group:
            sys.exit(f"quantise_checkpoint.py: {self.columns} inputs are no whole number of groups of {group}")
        most, middle = (1 << bits) - 1, 1 << bits - 1
        groups = self.columns // group
        of = order or [c // group for c in range(self.columns)]
        members = [[c for c in range(self.columns) if of[c] == g] for g in range(groups)]
        codes, scales, zeros = [], [], []
        for row in self.values:
            line, line_scales, line_zeros = [0] * self.columns, [], []
            for columns in members:
                own = [row[c] for c in columns]
                if symmetric:
                    scale, zero = rounded(max(map(abs, own)) / (middle - .5) or 1.0, dtype), middle
                else:
                    low, high = min(0.0, *own), max(0.0, *own)
                    scale = rounded((high - low) / most or 1.0, dtype)
                    zero = max(0, min(most, round(-low / scale)))
                line_scales.append(scale)
                line_zeros.append(zero)
                for c, value in zip(columns, own):
                    line[c] = max(0, min(most, round(value / scale) + zero))
            codes.append(line)
            scales.append(line_scales)
            zeros.append(line_zeros)
        return codes, scales, zeros


def words(codes, bits):
    """Codes one after the other in words, the first one lowest; a short last word is filled with zeros."""
    per = 32 // bits
    out = []
    for first in range(0, len(codes), per):
        word = 0
        for i, code in enumerate(codes[first:first + per]):
            word |= code << bits * i
        out.append(word)
    return out


def i32(lines):
    flat = [w for line in lines for w in line]
    return ("I32", [len(lines), len(lines[0])], struct.pack(f"<{len(flat)}I", *flat))


def turned(lines):
    return [list(line) for line in zip(*lines)]


class Writer:
    """The tensors and `quantization_config` of a format."""

    def __init__(self, args):
        self.name, self.group, self.block = args.format, args.group, args.block
        self.dtype = args.scales or {"fp8": "F32", "fbg": "F32", "ct-": "BF16"}.get(args.format[:3], "F16")
        self.seed, self.own_orders = args.seed, args.own_orders
        self.skip = args.skip

    def config(self):
        name = self.name
        if name.startswith("fp8"):
            out = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3"}
            if name == "fp8-block":
                out["weight_block_size"] = self.block
            if self.skip:
                out["modules_to_not_convert"] = self.skip
            return out
        if name == "fbgemm":
            return {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0,
                    "modules_to_not_convert": ["lm_head", *self.skip]}
        if name == "awq":
            return {"quant_method": "awq", "bits": 4, "group_size": self.group, "zero_point": True, "version": "gemm",
                    "modules_to_not_convert": self.skip or None}
        if name.startswith("gptq"):
            return {"quant_method": "gptq", "bits": 8 if "int8" in name else 4, "group_size": self.group,
                    "desc_act": "order" in name, "sym": name not in ("gptq-asym", "gptq-v2", "gptq-v2-order"), "lm_head": False,
                    "checkpoint_format": "gptq" if name in ("gptq", "gptq-asym", "gptq-order") else "gptq_v2",
                    "damp_percent": 0.01, "true_sequential": True, "meta": {"quantizer": ["gptqmodel:7.7.0"]},
                    **({"dynamic": {f"-:.*{skip}": {} for skip in self.skip}} if self.skip else {})}
        fp8 = "fp8" in name
        strategy = ("tensor" if "tensor" in name else "channel" if "channel" in name or name == "ct-int8" else
                    "block" if "block" in name else "group")
        weights = {"num_bits": 8 if fp8 or "int8" in name else 4, "type": "float" if fp8 else "int",
                   "symmetric": "asym" not in name, "strategy": strategy, "dynamic": False,
                   "group_size": self.group if strategy == "group" else None,
                   "block_structure": self.block if strategy == "block" else None,
                   "actorder": "group" if "order" in name else None, "observer": "minmax", "observer_kwargs": {}}
        activations = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "token", "dynamic": True}
        return {"quant_method": "compressed-tensors", "format": "float-quantized" if fp8 else "pack-quantized",
                "quantization_status": "compressed", "global_compression_ratio": None, "kv_cache_scheme": None,
                "ignore": ["lm_head", *(f"re:.*{skip}" for skip in self.skip)],
                "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "output_activations": None,
                                              "input_activations": activations if fp8 else None}}}

    def scales(self, lines):
        flat = [s for line in lines for s in line]
        return (self.dtype, [len(lines), len(lines[0])], packed_scales(flat, self.dtype))

    def order_of(self, module, columns, group):
        """The group of each column. As of GPTQ, products of one input have one order; `--own-orders` gives each its own."""
        if not self.own_orders:
            for ending, of in (("k_proj", "q_proj"), ("v_proj", "q_proj"), ("up_proj", "gate_proj")):
                if module.endswith(ending):
                    module = module.removesuffix(ending) + of
        order = [c // group for c in range(columns)]
        random.Random(f"{self.seed} {module}").shuffle(order)
        return order

    def tensors(self, name, matrix):
        """{tensor name: (dtype, shape, bytes)} in place of `name`."""
        module, form = name.removesuffix(".weight"), self.name
        group = matrix.columns if self.group == -1 else self.group
        if "fp8" in form or form == "fbgemm":
            per_row = "channel" in form or form == "fbgemm"
            rows, columns = ((1, matrix.columns) if per_row else self.block if "block" in form else
                             (matrix.rows, matrix.columns))
            codes, scales = matrix.fp8(rows, columns, self.dtype)
            down, across = -(-matrix.rows // rows), -(-matrix.columns // columns)
            shape = [down, across] if "block" in form or per_row else [] if form == "fp8-tensor" else [1]
            suffix = "weight_scale_inv" if form.startswith("fp8") else "weight_scale"
            return {name: ("F8_E4M3", [matrix.rows, matrix.columns], codes),
                    f"{module}.{suffix}": (self.dtype, shape, packed_scales(scales, self.dtype))}
        bits, symmetric = 8 if "int8" in form else 4, form not in ("ct-int4-asym", "ct-int8-asym", "awq", "gptq-asym",
                                                                   "gptq-v2", "gptq-v2-order")
        if form == "ct-int8":
            group = matrix.columns
        order = None
        if "order" in form:
            order = self.order_of(module, matrix.columns, group)
        codes, scales, zeros = matrix.integers(bits, group, symmetric, self.dtype, order)
        out = {}
        if form.startswith("ct"):
            out[f"{module}.weight_packed"] = i32([words(line, bits) for line in codes])
            out[f"{module}.weight_scale"] = self.scales(scales)
            out[f"{module}.weight_shape"] = ("I64", [2], struct.pack("<2q", matrix.rows, matrix.columns))
            if not symmetric:
                out[f"{module}.weight_zero_point"] = i32(turned([words(line, bits) for line in turned(zeros)]))
            if order:
                out[f"{module}.weight_g_idx"] = ("I32", [len(order)], struct.pack(f"<{len(order)}i", *order))
            return out
        if form == "awq":
            awq = [0, 2, 4, 6, 1, 3, 5, 7]  # the output in each nibble, the lowest one first

            def lines(values):
                return [words([line[first + i] for first in range(0, len(line), 8) for i in awq], 4)
                        for line in turned(values)]
            out[f"{module}.qweight"], out[f"{module}.qzeros"] = i32(lines(codes)), i32(lines(zeros))
        else:
            out[f"{module}.qweight"] = i32(turned([words(line, bits) for line in codes]))
            stored = [words(line, bits) for line in turned(zeros)]
            if form in ("gptq", "gptq-asym", "gptq-order"):  # version 1
                stored = [[(w - 0x11111111) & 0xffffffff for w in line] for line in stored]
            out[f"{module}.qzeros"] = i32(stored)
            of = order or [c // group for c in range(matrix.columns)]
            out[f"{module}.g_idx"] = ("I32", [len(of)], struct.pack(f"<{len(of)}i", *of))
        out[f"{module}.scales"] = self.scales(turned(scales))
        return out


def write(path, tensors):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", help="folder of a checkpoint in bf16, one file")
    parser.add_argument("--format", choices=FORMATS, metavar="NAME")
    parser.add_argument("--formats", action="store_true", help="list the formats")
    parser.add_argument("--out", metavar="DIR", help="folder that is written")
    parser.add_argument("--group", type=int, default=128, help="columns of a group; -1: all (default 128)")
    parser.add_argument("--block", type=int, nargs=2, default=[128, 128], metavar=("ROWS", "COLUMNS"))
    parser.add_argument("--scales", choices=("F32", "BF16", "F16"), help="type of the scales (default: the tool's)")
    parser.add_argument("--skip", action="append", default=[], metavar="NAME", help="a module that stays as it is")
    parser.add_argument("--seed", type=int, default=0, help="of an order of columns")
    parser.add_argument("--own-orders", action="store_true", help="each matrix has an order of its own")
    args = parser.parse_args(arguments)
    if args.formats:
        for name, text in FORMATS.items():
            print(f"{name:16} {text}")
        return 0
    if not (args.model and args.format and args.out):
        parser.error("give a checkpoint, --format and --out")
    source, out = pathlib.Path(args.model), pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    config = json.loads((source / "config.json").read_text())
    writer, tensors = Writer(args), {}
    for name, (shape, data) in read_bf16(source / "model.safetensors").items():
        skipped = any(f".{skip}." in f".{name}" for skip in args.skip)
        if len(shape) == 2 and LINEAR.search(name) and not skipped:
            tensors.update(writer.tensors(name, Matrix(shape, data)))
        else:
            tensors[name] = ("BF16", list(shape), bytes(data))
    write(out / "model.safetensors", tensors)
    config["quantization_config"] = writer.config()
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    for other in ("generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        if (source / other).exists():
            (out / other).write_bytes((source / other).read_bytes())
    return 0


if __name__ == "__main__":
    sys.exit(main())
