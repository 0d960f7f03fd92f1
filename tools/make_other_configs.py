#!/usr/bin/env python3
"""Write the default configurations of model types that no shipped model file is for.

    make_other_configs.py [--out test/Families/Inputs/others.jsonl]

Needs torch and transformers. A line per type: {"type", "why", "config"}, with the config.json
that transformers saves for the class without arguments, and the class of its architecture.
"""
import argparse
import json
import pathlib
import tempfile

import transformers

OTHERS = {
    "mixture of experts": "mixtral qwen2_moe qwen3_moe olmoe phimoe dbrx granitemoe gpt_oss glm4_moe ernie4_5_moe llama4_text",
    "latent attention": "deepseek_v2 deepseek_v3 minicpm3 longcat_flash",
    "state space": "mamba mamba2 falcon_mamba rwkv recurrent_gemma bamba zamba2 jamba falcon_h1 lfm2 qwen3_next",
    "images or sound": "llava qwen2_vl mllama paligemma gemma3 idefics3 whisper",
    "encoder": "bert roberta t5 bart modernbert vit clip",
    "another decoder": "falcon bloom opt mpt cohere cohere2 phi stablelm gemma nemotron olmo olmo3 glm4 gptj exaone4 "
                       "hunyuan_v1_dense arcee seed_oss apertus",
}
DROPPED = ("transformers_version", "id2label", "label2id")  # long, and the same everywhere


def config_of(model_type):
    config = transformers.CONFIG_MAPPING[model_type]()
    classes = transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    classes = classes | {key: value for key, value in
                         transformers.models.auto.modeling_auto.MODEL_MAPPING_NAMES.items() if key not in classes}
    if architecture := classes.get(model_type):
        config.architectures = [architecture if isinstance(architecture, str) else architecture[0]]
    with tempfile.TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        saved = json.loads((pathlib.Path(folder) / "config.json").read_text())
    return {key: value for key, value in saved.items() if key not in DROPPED}


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, default=root / "test/Families/Inputs/others.jsonl")
    args = parser.parse_args()
    lines = []
    for why, types in OTHERS.items():
        for model_type in types.split():
            if model_type not in transformers.CONFIG_MAPPING:
                print(f"transformers {transformers.__version__} has no `{model_type}`")
                continue
            lines.append(json.dumps({"type": model_type, "why": why, "config": config_of(model_type)},
                                    separators=(",", ":")))
    args.out.write_text("\n".join(lines) + "\n")
    print(f"{args.out}: {len(lines)} types, {args.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
