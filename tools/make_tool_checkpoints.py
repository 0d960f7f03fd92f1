#!/usr/bin/env python3
"""Let other people's tools write tiny quantised checkpoints, and record the logits of what they read in them.

    make_tool_checkpoints.py [--out test/Families] [NAME...]

Writes OUT/Inputs/tools/NAME/{config.json,model.safetensors}, both as the tool saved them, and the golden
OUT/goldens/tools/NAME.json:

    {"versions": {...},        of torch, transformers, and the tool
     "tool": "...",            which one wrote the checkpoint
     "attention", "prompts"}   as make_family_goldens.py has them, without "rounded"

Logits are those of `transformers` on the weights that the tool itself dequantises: in fp32, and, for the error that is
allowed, in bf16. A scale is widened to f32 before the tool multiplies by it, for else the weight would be rounded. What
dequantise.py makes of the file must be the same, bit for bit.

Without a NAME all are written whose tool is installed. No GPU is used. The tools do not agree on a version of
transformers, so it takes three virtual environments, one after the other:

    pip install transformers accelerate
    pip install llmcompressor           # brings auto-round
    pip install gptqmodel
"""
import argparse
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import random
import re
import shutil
import tempfile

os.environ.setdefault("GPTQMODEL_CPU_WORKERS", "2")  # gptqmodel fails with the one that it takes of two cores

import torch
import transformers

import golden_checkpoint
import make_family_goldens
from dequantise import dequantised
from safetensors.torch import load_file, save_file

PROMPTS = (12, 70)
ROWS = 8  # of a prompt, its last
SIZES = {"vocab_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16}
SMALL = {"intermediate_size": 32}
# gptqmodel's AWQ wants matrices of 64 rows, or a multiple.
ROWS_OF_64 = {"num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 64}
PHI3 = SMALL | {"hidden_size": 64, "num_attention_heads": 4, "head_dim": None, "pad_token_id": 2}  # its default: 32,000
NEOX = SMALL | {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": None, "head_dim": None}
ONE_SIDED = {"one_sided": True}  # some rows have no negative weight, others no positive one: zero points 0 and 15
UNEVEN = {"uneven": True}  # no two blocks beside each other have the same scale
GEMMA2 = {"layer_types": ["sliding_attention", "full_attention"]}

FLOAT = {"num_bits": 8, "type": "float", "symmetric": True, "dynamic": False}
INT4 = {"num_bits": 4, "type": "int", "symmetric": True, "dynamic": False}
INT8 = INT4 | {"num_bits": 8}
GROUPS = {"strategy": "group", "group_size": 32}
PER_TOKEN = {"num_bits": 8, "type": "float", "symmetric": True, "dynamic": True, "strategy": "token"}


def all_linear(weights, activations=None):
    return {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": activations}}


# Of each: the family and what differs in its shape, the tool, and what the tool is told.
CHECKPOINTS = {
    "llama-fp8-block": ("llama", SMALL | UNEVEN, "transformers", {"weight_block_size": (32, 32)}),
    "qwen3-fp8-tensor": ("qwen3", SMALL, "transformers", {"weight_block_size": None}),
    "gemma2-fp8-ue8m0": ("gemma2", GEMMA2 | SMALL | UNEVEN, "transformers",
                         {"weight_block_size": (16, 32), "scale_fmt": "ue8m0",
                          "modules_to_not_convert": ["lm_head", "o_proj"]}),
    "llama-ct-fp8-channel": ("llama", SMALL, "llmcompressor", {
        "scheme": all_linear(FLOAT | {"strategy": "channel"}, PER_TOKEN)}),
    "qwen3-ct-fp8-block": ("qwen3", SMALL | UNEVEN, "llmcompressor", {
        "scheme": all_linear(FLOAT | {"strategy": "block", "block_structure": [16, 32]})}),
    "phi3-ct-fp8-tensor": ("phi3", PHI3, "llmcompressor", {"scheme": all_linear(FLOAT | {"strategy": "tensor"})}),
    "llama-ct-int4": ("llama", {}, "llmcompressor", {"by": "gptq",
                                                     "scheme": all_linear(INT4 | GROUPS | {"actorder": "weight"})}),
    "gemma2-ct-int4-asym": ("gemma2", GEMMA2 | SMALL, "llmcompressor", {
        "by": "awq", "scheme": all_linear(INT4 | GROUPS | {"symmetric": False})}),
    "gpt_neox-ct-int8-asym": ("gpt_neox", NEOX, "llmcompressor", {
        "scheme": all_linear(INT8 | GROUPS | {"symmetric": False})}),
    "qwen3-ct-mixed": ("qwen3", SMALL, "llmcompressor", {"scheme": {
        "mlp": {"targets": ["re:.*mlp.*"], "weights": INT8 | {"strategy": "channel"}},
        "attention": {"targets": ["re:.*self_attn.*"], "weights": FLOAT | {"strategy": "channel"}}}}),
    "llama-gptq": ("llama", SMALL, "gptqmodel", {"sym": True}),
    "llama-gptq-order": ("llama", {"intermediate_size": 64}, "gptqmodel", {"sym": True, "desc_act": True}),
    "qwen3-gptq-asym": ("qwen3", SMALL | ONE_SIDED, "gptqmodel", {"sym": False, "format": "gptq"}),
    "qwen3-gptq-v2": ("qwen3", SMALL, "gptqmodel", {"sym": False, "format": "gptq_v2", "group_size": -1,
                                                    "act_group_aware": False}),
    "gemma2-gptq-dynamic": ("gemma2", GEMMA2 | SMALL, "gptqmodel", {
        "sym": True, "act_group_aware": False,
        "dynamic": {"-:.*o_proj": {}, "+:.*down_proj": {"bits": 8, "group_size": -1}}}),
    "qwen3-awq": ("qwen3", ROWS_OF_64, "gptqmodel", {"method": "awq", "sym": False}),
    "llama-awq-sym": ("llama", SMALL, "auto_round", {"format": "auto_awq", "sym": True}),
    "llama-gptq-asym": ("llama", SMALL, "auto_round", {"format": "auto_gptq", "sym": False}),
}


def write_plain(family, changes, directory):
    """A checkpoint in bf16 as make_family_goldens.py has it, and a tokenizer, which the tools ask for."""
    class_name, own = make_family_goldens.FAMILIES[family]
    sizes = make_family_goldens.SMALL | own | SIZES | changes
    one_sided, uneven = sizes.pop("one_sided", False), sizes.pop("uneven", False)
    drop = [key for key, value in sizes.items() if value is None and key not in ("pad_token_id", "sliding_window")]
    config = getattr(transformers, class_name)(**{key: value for key, value in sizes.items() if key not in drop})
    golden = make_family_goldens.blank_golden(config, directory)
    golden_checkpoint.write(golden, directory)
    tensors = load_file(directory / "model.safetensors")
    for tensor in (tensors[name] for name in sorted(tensors) if name.endswith("_proj.weight")):
        if one_sided:
            tensor[::7] = tensor[::7].abs()
            tensor[3::7] = -tensor[3::7].abs()
        if uneven:
            tensor[:, 32:] /= 4
            tensor[16:32] /= 2
            tensor[48:] /= 2
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    from tokenizers import Tokenizer, models
    words = Tokenizer(models.WordLevel({str(i): i for i in range(config.vocab_size)}, unk_token="0"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, bos_token="1", eos_token="2",
                                         pad_token="2").save_pretrained(directory)
    return golden


def calibration(vocab, count=32, length=64):
    draw = random.Random(1)
    return [[draw.randrange(vocab) for _ in range(length)] for _ in range(count)]


def modules_of(tensors, *endings):
    return sorted({name.rpartition(".")[0] for name in tensors if name.rpartition(".")[2] in endings})


#===--- What writes, and what it reads in its own file: {module: weight in f32} ---===#


def write_transformers(plain, out, told):
    from transformers.quantizers import quantizer_finegrained_fp8 as fp8
    # Products of such weights need a GPU, what writes them does not; but the check is of both.
    fp8.FineGrainedFP8HfQuantizer.validate_environment = lambda *_, **named: None
    model = transformers.AutoModelForCausalLM.from_pretrained(
        plain, dtype=torch.bfloat16, device_map="cpu", quantization_config=transformers.FineGrainedFP8Config(**told))
    model.save_pretrained(out)


def read_transformers(out, tensors):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        out, dtype=torch.float32, quantization_config=transformers.FineGrainedFP8Config(dequantize=True))
    weights = model.state_dict()
    return {module: weights[f"{module}.weight"] for module in modules_of(tensors, "weight_scale_inv")}


def write_llmcompressor(plain, out, told):
    from compressed_tensors.quantization import QuantizationScheme
    from datasets import Dataset
    from llmcompressor import oneshot
    from llmcompressor.modifiers.gptq import GPTQModifier
    from llmcompressor.modifiers.quantization import QuantizationModifier
    from llmcompressor.modifiers.transform.awq import AWQModifier
    from llmcompressor.pipelines.cache import IntermediatesCache
    IntermediatesCache.pin_memory = lambda *_: None  # for a GPU
    model = transformers.AutoModelForCausalLM.from_pretrained(plain, dtype=torch.bfloat16)
    groups = {name: QuantizationScheme(**group) for name, group in told["scheme"].items()}
    kind = GPTQModifier if told.get("by") == "gptq" else QuantizationModifier
    recipe = [kind(config_groups=groups, ignore=["lm_head", "embed_out"])]
    if told.get("by") == "awq":
        recipe.insert(0, AWQModifier())
    rows, data = calibration(model.config.vocab_size), {}
    if "by" in told:
        data = {"dataset": Dataset.from_dict({"input_ids": rows, "attention_mask": [[1] * len(row) for row in rows]}),
                "num_calibration_samples": len(rows), "max_seq_length": len(rows[0])}
    oneshot(model=model, recipe=recipe, tokenizer=transformers.AutoTokenizer.from_pretrained(plain), **data)
    model.save_pretrained(out, save_compressed=True)


def read_llmcompressor(out, tensors):
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationScheme
    config, weights = json.loads((out / "config.json").read_text())["quantization_config"], {}
    for module in modules_of(tensors, "weight_scale"):
        own = {name.rpartition(".")[2]: tensor for name, tensor in tensors.items()
               if name.rpartition(".")[0] == module and not name.endswith(".bias")}
        own["weight_scale"] = own["weight_scale"].float()
        for group in config["config_groups"].values():
            if any(target == "Linear" or re.match(target.removeprefix("re:"), module) for target in group["targets"]):
                form = group.get("format") or config["format"]
                weights[module] = BaseCompressor.get_value_from_registry(form).decompress(
                    own, QuantizationScheme(**group))["weight"]
    return weights


def write_gptqmodel(plain, out, told):
    import gptqmodel
    from gptqmodel.quantization import config
    told = {"bits": 4, "group_size": 32, "offload_to_disk": False} | told
    method = told.pop("method", "gptq")
    settings = (config.AWQConfig if method == "awq" else config.GPTQConfig)(**told)
    model = gptqmodel.GPTQModel.load(str(plain), settings, device="cpu")
    model.quantize([{"input_ids": row, "attention_mask": [1] * len(row)}
                    for row in calibration(model.model.config.vocab_size)], batch_size=4)
    model.save(str(out))


def read_gptqmodel(out, tensors):
    import gptqmodel
    from gptqmodel.quantization.awq.utils.packing_utils import dequantize_gemm
    config, weights = json.loads((out / "config.json").read_text())["quantization_config"], {}
    backend = gptqmodel.BACKEND.TORCH_AWQ if config["quant_method"] == "awq" else gptqmodel.BACKEND.TORCH
    model = gptqmodel.GPTQModel.load(str(out), device="cpu", backend=backend).model
    for module in modules_of(tensors, "qweight"):
        layer, scales = model.get_submodule(module), tensors[f"{module}.scales"].float()
        if config["quant_method"] == "awq":
            weight = dequantize_gemm(layer.qweight, layer.qzeros, scales, layer.bits, layer.group_size)
        else:
            layer.scales = scales
            weight = layer.dequantize_weight()
        weights[module] = weight.t()
    return weights


def write_auto_round(plain, out, told):
    from auto_round import AutoRound
    model = transformers.AutoModelForCausalLM.from_pretrained(plain, dtype=torch.bfloat16)
    data = [{"input_ids": torch.tensor([row]), "attention_mask": torch.ones(1, len(row), dtype=torch.long)}
            for row in calibration(model.config.vocab_size)]
    told = {"bits": 4, "group_size": 32, "iters": 0, "nsamples": len(data), "seqlen": 64, "batch_size": 4,
            "device_map": "cpu"} | told
    form = told.pop("format")
    AutoRound(model, transformers.AutoTokenizer.from_pretrained(plain), dataset=data, **told).quantize_and_save(
        str(out), format=form)
    for file in next(out.glob("*/config.json")).parent.iterdir():  # it adds a folder with a name of its own
        file.rename(out / file.name)


def read_auto_round(out, tensors):
    from auto_round.export.export_to_awq.utils import dequantize_gemm
    from auto_round_extension.torch.qlinear_torch_zp import QuantLinear
    config, weights = json.loads((out / "config.json").read_text())["quantization_config"], {}
    for module in modules_of(tensors, "qweight"):
        words, zeros, scales = (tensors[f"{module}.{ending}"] for ending in ("qweight", "qzeros", "scales"))
        if config["quant_method"] == "awq":
            weights[module] = dequantize_gemm(words, zeros, scales.float(), config["bits"], config["group_size"]).t()
        else:  # it has no more than the product
            layer = QuantLinear(config["bits"], config["group_size"], words.shape[0] * 32 // config["bits"],
                                words.shape[1], bias=False)
            layer.qweight, layer.qzeros, layer.scales = words, zeros, scales.float()
            weights[module] = layer(torch.eye(layer.infeatures)).t()
    return weights


TOOLS = {"transformers": (write_transformers, read_transformers, ("transformers",)),
         "llmcompressor": (write_llmcompressor, read_llmcompressor, ("llmcompressor", "compressed-tensors")),
         "gptqmodel": (write_gptqmodel, read_gptqmodel, ("gptqmodel",)),
         "auto_round": (write_auto_round, read_auto_round, ("auto-round",))}


def make(name, out):
    family, changes, tool, told = CHECKPOINTS[name]
    write, read, packages = TOOLS[tool]
    versions = {package: importlib.metadata.version(package) for package in packages}
    with tempfile.TemporaryDirectory() as folder:
        plain, saved, wide = (pathlib.Path(folder, part) for part in ("plain", "saved", "wide"))
        wide.mkdir()
        golden = write_plain(family, changes, plain)
        torch.manual_seed(0)
        with torch.enable_grad():  # as the tool expects
            write(plain, saved, told)
        target = out / "Inputs" / "tools" / name
        target.mkdir(parents=True, exist_ok=True)
        for file in ("config.json", "model.safetensors"):
            shutil.copyfile(saved / file, target / file)
        tensors = load_file(saved / "model.safetensors")
        weights = read(saved, tensors)
        config = json.loads((saved / "config.json").read_text())
        values = dequantised(saved)
        for module, weight in weights.items():
            ours = values[f"{module}.weight"]
            assert weight.dtype == torch.float32 and torch.equal(weight, ours), f"{name}: {module} has another value"
            values[f"{module}.weight"] = weight.contiguous()
        assert weights and all(tensor.dtype == torch.float32 for tensor in values.values())
        save_file(values, wide / "model.safetensors", metadata={"format": "pt"})
        del config["quantization_config"]
        (wide / "config.json").write_text(json.dumps(config))
        prompts = [make_family_goldens.tokens_of(length, config["vocab_size"]) for length in PROMPTS]
        exact = make_family_goldens.logits_of(wide, torch.float32, "eager", prompts)
        rounded = make_family_goldens.logits_of(wide, torch.bfloat16, golden["attention"], prompts)
    recorded = make_family_goldens.prompts_of(prompts, exact, rounded, ROWS)
    for row in (row for prompt in recorded for row in prompt["rows"]):
        del row["rounded"]
    golden = {"versions": {"torch": torch.__version__, "transformers": transformers.__version__} | versions,
              "tool": " with ".join(f"{package} {version}" for package, version in versions.items()),
              "attention": golden["attention"],
              "prompts": recorded}
    path = out / "goldens" / "tools" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    make_family_goldens.write_golden(path, golden)
    print(f"{target}: {sum(file.stat().st_size for file in target.iterdir()):,} bytes by {golden['tool']}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="a checkpoint: " + ", ".join(CHECKPOINTS))
    root = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("--out", type=pathlib.Path, default=root / "test/Families")
    args = parser.parse_args()
    if unknown := [name for name in args.names if name not in CHECKPOINTS]:
        parser.error(f"no checkpoint `{unknown[0]}`; there are {', '.join(CHECKPOINTS)}")
    torch.set_grad_enabled(False)
    transformers.utils.logging.disable_progress_bar()
    # The others need transformers themselves.
    installed = [tool for tool in TOOLS if importlib.util.find_spec(tool)]
    if len(installed) > 1:
        installed.remove("transformers")
    args.out = args.out.resolve()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # tools leave logs where they are run
        for name in args.names or [name for name, entry in CHECKPOINTS.items() if entry[2] in installed]:
            make(name, args.out)
        os.chdir("/")


if __name__ == "__main__":
    main()
