#!/usr/bin/env python3
"""Write the checkpoint that a file of make_family_goldens.py belongs to.

    golden_checkpoint.py test/Families/goldens/qwen2.json --out DIR

Needs Python alone; the weights are those of random_weights.py.
"""
import argparse
import json
import pathlib
import shutil
import tempfile

import quantise_checkpoint

from random_weights import tensor_chunks
from safetensors_io import write_bf16, write_configs

# The recorded ones whose family has a model file.
FAMILIES = ("llama", "llama3", "llama-bias", "mistral", "mistral-window", "qwen2", "qwen2-window", "qwen3", "qwen3-bias",
            "qwen3-window", "granite", "granite-bias", "olmo2", "olmo2-bias", "starcoder2", "smollm3", "smollm3-window",
            "phi3", "phi3-longrope", "gemma2", "gemma3", "gpt2", "gpt_neox", "gpt_neox-sequential")


# Those that quantise_checkpoint.py makes of one of them: names in ../test/Families/goldens/quantised.
QUANTISED = ("llama-fp8-block", "llama-fp8-tensor", "llama-fbgemm", "llama-ct-fp8-channel", "llama-ct-int4",
             "llama-ct-int4-order", "llama-ct-int8-asym", "llama-awq", "llama-gptq", "llama-gptq-order",
             "qwen3-ct-fp8-block", "qwen3-gptq-v2", "phi3-fbgemm", "phi3-awq", "gemma2-ct-int8", "gpt_neox-gptq-int8",
             "gpt_neox-fp8-tensor")


# Those with K and V in e4m3, of checkpoints in bf16; in the same folder.
KV = ("llama-kv-fp8", "qwen3-kv-fp8")


def write(golden, directory):
    if "quantise" in golden:
        with tempfile.TemporaryDirectory() as plain:
            write({key: value for key, value in golden.items() if key != "quantise"}, plain)
            shutil.rmtree(directory, ignore_errors=True)
            quantise_checkpoint.main([plain, "--out", str(directory), *golden["quantise"]])
        return
    tensors = golden["tensors"]
    write_configs(directory, golden["config"], golden["config"].get("eos_token_id"))
    write_bf16(pathlib.Path(directory) / "model.safetensors",
               {name: shape for name, (shape, _, _) in tensors.items()},
               lambda name, shape: tensor_chunks(golden["seed"], name, shape, *tensors[name][1:]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("golden", type=pathlib.Path, help="the recorded file")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="directory to write")
    args = parser.parse_args()
    write(json.loads(args.golden.read_text()), args.out)


if __name__ == "__main__":
    main()
