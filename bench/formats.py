#!/usr/bin/env python3
"""Formats of weights, and of K and V, beside bf16: the same shape, the same GPU, measured alternately.

    formats.py --shape=llama-3.1-8b --formats=bf16,fp8-block,awq --batch=1,8 --prefill=2048
    formats.py --shape=llama-3.2-1b --kv=bf16,fp8 --context=32768,122880

Runs `megalith bench` with random codes in each round once for each format, and prints a Markdown table of medians: ms
per token, its floor (bytes of weights, K and V at the bandwidth that was measured), and the ratio to the first format.
"""
import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import common
import megalith

GROUPS = {"bits": 4, "group_size": 128}
# What config.json says of each.
FORMATS = {
    "bf16": None,
    "fp8-block": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
    "fp8-channel": {"quant_method": "fbgemm_fp8", "modules_to_not_convert": ["lm_head"]},
    "awq": GROUPS | {"quant_method": "awq", "zero_point": True, "version": "gemm"},
    "gptq": GROUPS | {"quant_method": "gptq", "desc_act": False, "sym": True, "checkpoint_format": "gptq_v2"},
    "gptq-order": GROUPS | {"quant_method": "gptq", "desc_act": True, "sym": True, "checkpoint_format": "gptq_v2"},
    "gptq-int8": {"quant_method": "gptq", "bits": 8, "group_size": 128, "desc_act": False, "sym": True,
                  "checkpoint_format": "gptq_v2"},
}
# Of K and V: keys of the pool. `fp8-windows`: layers with windows are bf16.
KV = {"bf16": "", "fp8": ", dtype: fp8", "fp8-windows": ", dtype: fp8, windows: bf16"}


def listed(known):
    def names(text):
        found = text.split(",")
        for name in found:
            if name not in known:
                raise argparse.ArgumentTypeError(f"`{name}` is none of {', '.join(known)}")
        return found
    return names


def write_config(folder, config, name):
    path = folder / f"{name}.json"
    quantised = {"quantization_config": FORMATS[name]} if FORMATS[name] else {}
    path.write_text(json.dumps(config | quantised))
    return path


def write_pipeline(folder, pipeline, kv):
    """The pipeline with pools of this format. Beside it stand the model files that it names."""
    text = pathlib.Path(pipeline).read_text()
    if KV[kv]:
        text, count = re.subn(r"on_full: [a-z]+", rf"\g<0>{KV[kv]}", text)
        if not count:
            common.fail(f"{pipeline} has no pool with `on_full`")
    path = folder / f"{pathlib.Path(pipeline).stem}-{kv}.yaml"
    path.write_text(text)
    return path


def bench(program, pipeline, options):
    run = subprocess.run([program, "bench", str(pipeline), *options], capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"{run.stderr.strip()}\nnote: of `{' '.join(run.args)}`")
    return [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="llama-3.1-8b")
    parser.add_argument("--formats", type=listed(FORMATS), default=["bf16"], help=f"of weights: {', '.join(FORMATS)}")
    parser.add_argument("--kv", type=listed(KV), default=["bf16"], help=f"of K and V: {', '.join(KV)}")
    parser.add_argument("--context", type=common.integers, default=[128])
    parser.add_argument("--batch", type=common.integers, default=[1])
    parser.add_argument("--prefill", type=common.integers, default=[], help="prompts of so many tokens, too")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pipeline", default=str(common.ROOT / "pipelines/autoregressive.yaml"))
    parser.add_argument("--megalith", help="the program")
    parser.add_argument("--megalith-options", default="", help="further options of `megalith bench`, by blanks")
    options = parser.parse_args()
    if min(options.tokens, options.rounds) < 1:
        parser.error("--tokens and --rounds must be at least 1")
    if not pathlib.Path(options.pipeline).is_file():
        common.fail(f"no pipeline file `{options.pipeline}` (--pipeline)")
    program, more = megalith.find(options.megalith), options.megalith_options.split()
    name, _, config = common.find_shape(options.shape)
    found, device = {}, ""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "models").symlink_to(pathlib.Path(options.pipeline).resolve().parent / "models")
        configs = {form: write_config(folder, config, form) for form in options.formats}
        pipelines = {kv: write_pipeline(folder, options.pipeline, kv) for kv in options.kv}
        subjects = [(form, kv) for form in options.formats for kv in options.kv]
        for turn in range(options.rounds):
            for form, kv in subjects if turn % 2 == 0 else reversed(subjects):
                common.progress(f"round {turn + 1} of {options.rounds}: {form}, K and V {kv}")
                given = [f"--config={configs[form]}", "--json", *more]
                lines = bench(program, pipelines[kv], [*given, f"--tokens={options.tokens}",
                              f"--context={','.join(map(str, options.context))}", f"--batch={','.join(map(str, options.batch))}"])
                for length in options.prefill:
                    lines += [line | {"prefill": True} for line in bench(
                        program, pipelines[kv], [*given, f"--context={length}", "--batch=1", "--prefill",
                                                 f"--tokens={megalith.PREFILL_TOKENS}"])]
                for line in lines:
                    device = line.get("device", "")
                    key = line["context"], line["batch"], line.get("prefill", False)
                    found.setdefault(key, {}).setdefault((form, kv), []).append(line)
    print(f"{name}, {device}; medians of {options.rounds} rounds\n")
    print("| context | batch | weights | K and V | ms | floor | % of it | ratio |")
    print("| ---: | ---: | --- | --- | ---: | ---: | ---: | ---: |")
    for (context, batch, prefill), of in found.items():
        first = None
        for (form, kv), lines in of.items():
            times = [megalith.prefill_ms(line | {"ms": line["ms_per_token"]}) if prefill else line["ms_per_token"]
                     for line in lines if "kernel_ms" in line]
            ms = statistics.median(times) if times else float("nan")
            first = first or ms
            floor = lines[0].get("floor_ms", float("nan"))
            end = f"| | {ms / first:.3f} |" if prefill else f"{floor:.3f} | {100 * floor / ms:.1f} | {ms / first:.3f} |"
            print(f"| {'prompt of ' if prefill else ''}{context} | {batch} | {form} | {kv} | {ms:.3f} | {end}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
