#!/usr/bin/env python3
"""Write a checkpoint of a family with random weights: the config of a golden with some keys changed.

    family_checkpoint.py GOLDEN --out DIR [--set KEY=JSON...]

    family_checkpoint.py test/Families/goldens/qwen3.json --out qwen3-128 --set head_dim=128 hidden_size=128

The shapes are what `megalith` (in PATH) takes from the family's model file. Without --set it is the checkpoint
that golden_checkpoint.py writes. Needs Python alone.
"""
import argparse
import json
import math
import pathlib
import re
import subprocess
import sys

from random_weights import tensor_chunks
from safetensors_io import write_bf16, write_configs

PIPELINE = pathlib.Path(__file__).parents[1] / "pipelines/autoregressive.yaml"


def shapes_of(directory):
    """The tensors that the model file reads: {name: shape}."""
    run = subprocess.run(["megalith", "compile", PIPELINE, "--device-profile=cpu", "--model", directory, "--emit=manifest"],
                         capture_output=True, text=True)
    if run.returncode:
        sys.exit(run.stderr.rstrip())
    return {weight["from"].replace("{i}", str(i)): weight.get("stored", weight["shape"])
            for weight in json.loads(run.stdout)["models"][0]["weights"] for i in range(max(1, weight["layers"]))}


def moments(name, shape, tensors):
    """Mean and standard deviation: those of the golden's tensor of that name. A wider product has smaller weights."""
    if like := tensors.get(name) or tensors.get(re.sub(r"\.\d+\.", ".0.", name, count=1)):
        of, mean, deviation = like
        return mean, deviation * math.sqrt(math.prod(of) / of[0] * shape[0] / math.prod(shape))
    return 0.0, 0.2 if len(shape) == 1 else 1 / math.sqrt(shape[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("golden", type=pathlib.Path, help="a file of test/Families/goldens")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="directory to write")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=JSON", help="keys of config.json")
    args = parser.parse_args()
    golden = json.loads(args.golden.read_text())
    changes = {key: json.loads(value) for key, _, value in (change.partition("=") for change in args.set)}
    config = golden["config"] | changes
    write_configs(args.out, config, config.get("eos_token_id"))
    write_bf16(args.out / "model.safetensors", shapes_of(args.out),
               lambda name, shape: tensor_chunks(golden["seed"], name, shape, *moments(name, shape, golden["tensors"])))


if __name__ == "__main__":
    main()
