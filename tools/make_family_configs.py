#!/usr/bin/env python3
"""Record the config.json files that versions of `transformers` write for each family.

    make_family_configs.py [--out test/Families/Inputs/configs.jsonl] [VERSION...]

Needs uv, which fetches each version; torch is not used. Each version saves the configurations of BUILT, made with its
own classes, and those of published.jsonl (the config.json files of well-known checkpoints) and of the goldens, which it
loads and saves as a fine-tuning does. What a version has written, the newest one loads and saves once more. A line per configuration, with
all that means the same model:

    {"name": ..., "refused": the diagnostic, where it has to be one (of published.jsonl, or of BUILT),
     "versions": ["4.36.2", ...], "config": {...},      the first one, and who wrote it
     "others": [{"versions": [...], "set": {...}, "drop": [...]}]}     what differs from the first

The first one of a published checkpoint or of a golden may have no version: it is as its authors wrote it.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

VERSIONS = ("4.36.2", "4.38.2", "4.40.2", "4.41.2", "4.43.4", "4.44.2", "4.46.3", "4.48.3", "4.50.3", "4.53.3", "4.55.4",
            "4.57.6", "5.0.0", "5.2.0", "5.17.0", "5.24.0")
SMALL = {"hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
         "intermediate_size": 96, "vocab_size": 300, "max_position_embeddings": 512, "bos_token_id": 1, "eos_token_id": 2}
LINEAR = {"type": "linear", "factor": 4.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
LLAMA3 = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}
LONG = {"short_factor": [1.0, 1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0] * 2, "long_factor": [1.0, 1.5, 2.5, 4.0, 6.0, 9.0, 12.0, 16.0] * 2}
WINDOW = {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 2}
FACTOR = {"query_pre_attn_scalar": 128}  # without it 224 or 256, as the version has it
PATTERN = ["sliding_attention", "full_attention"] * 2

# Class: {name: (what differs from SMALL, the diagnostic where the family refuses it)}. After ` (` stands which of several
# spellings of one model it is.
BUILT = {
    "LlamaConfig": {
        "llama": ({}, ""), "llama-tied": ({"tie_word_embeddings": True, "head_dim": 64}, ""),
        "llama-bias": ({"attention_bias": True, "mlp_bias": True}, ""),
        "llama-all-heads": ({"num_key_value_heads": None}, ""),
        "llama-base": ({"rope_theta": 500000.0}, ""),
        "llama-linear": ({"rope_scaling": LINEAR}, ""), "llama-llama3": ({"rope_scaling": LLAMA3}, ""),
        "llama-yarn": ({"rope_scaling": YARN}, ""),
        "llama-yarn-all": ({"rope_scaling": YARN | {"attention_factor": 1.5, "beta_fast": 16.0, "beta_slow": 2.0}}, ""),
        "llama-dynamic": ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope-config"),
        "llama-longrope": ({"rope_scaling": LONG | {"rope_type": "longrope", "factor": 4.0, "original_max_position_embeddings": 128}}, ""),
        "llama-gelu": ({"hidden_act": "gelu"}, "config-requires")},
    "MistralConfig": {
        "mistral": ({}, ""), "mistral-full": ({"sliding_window": None}, ""),
        "mistral-head": ({"head_dim": 64, "sliding_window": None}, ""),
        "mistral-yarn": ({"sliding_window": None, "rope_scaling": YARN}, "")},
    "Qwen2Config": {
        "qwen2": ({"rope_theta": 1000000.0}, ""), "qwen2-window": (WINDOW, ""), "qwen2-types": (WINDOW | {"layer_types": PATTERN}, ""),
        "qwen2-tied": ({"tie_word_embeddings": True}, ""),
        "qwen2-yarn": ({"rope_scaling": YARN}, "")},
    "Qwen3Config": {
        "qwen3": ({"head_dim": 64}, ""), "qwen3-window": (WINDOW, ""), "qwen3-types": (WINDOW | {"layer_types": PATTERN}, ""),
        "qwen3-bias": ({"attention_bias": True}, ""),
        "qwen3-yarn": ({"rope_scaling": YARN}, "")},
    "GraniteConfig": {
        "granite": ({}, ""), "granite-bias": ({"attention_bias": True, "mlp_bias": True}, ""),
        "granite-factors": ({"embedding_multiplier": 12.0, "attention_multiplier": 0.125, "residual_multiplier": 0.22,
                             "logits_scaling": 8.0, "tie_word_embeddings": True}, "")},
    "SmolLM3Config": {
        "smollm3": ({}, ""), "smollm3-interval": ({"no_rope_layer_interval": 2}, ""),
        "smollm3-list": ({"no_rope_layers": [0, 1, 1, 0]}, ""),
        "smollm3-window": ({"no_rope_layer_interval": 2, "use_sliding_window": True, "sliding_window": 16}, ""),
        "smollm3-bias": ({"attention_bias": True}, "config-requires")},
    "Phi3Config": {
        "phi3": ({}, ""), "phi3-window": ({"sliding_window": 16}, ""), "phi3-part": ({"partial_rotary_factor": 0.5}, ""),
        "phi3-longrope": ({"max_position_embeddings": 8192, "original_max_position_embeddings": 4096,
                           "rope_scaling": LONG | {"type": "longrope"}}, ""),
        "phi3-longrope (su)": ({"max_position_embeddings": 8192, "original_max_position_embeddings": 4096,
                                "rope_scaling": LONG | {"type": "su"}}, ""),
        "phi3-longrope (yarn)": ({"max_position_embeddings": 8192, "original_max_position_embeddings": 4096,
                                  "rope_scaling": LONG | {"type": "yarn"}}, "")},
    "Gemma2Config": {
        "gemma2": (FACTOR | {"head_dim": 64}, ""),
        "gemma2-uncapped": ({"attn_logit_softcapping": None, "final_logit_softcapping": None, "query_pre_attn_scalar": 24}, ""),
        "gemma2-window": (FACTOR | {"sliding_window": 16}, ""),
        "gemma2-types": (FACTOR | {"layer_types": PATTERN[::-1]}, "")},
    "Gemma3TextConfig": {
        "gemma3": ({"head_dim": 64}, ""), "gemma3-types": ({"layer_types": PATTERN}, ""),
        "gemma3-pattern": ({"sliding_window_pattern": 2}, ""),
        "gemma3-linear": ({"sliding_window_pattern": 2, "rope_theta": 500000.0, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}, ""),
        "gemma3-local": ({"rope_local_base_freq": 20000.0}, "")},
    "Olmo2Config": {
        "olmo2": ({"rope_theta": 500000.0}, ""), "olmo2-bias": ({"attention_bias": True}, ""),
        "olmo2-linear": ({"rope_scaling": LINEAR}, "")},
    "Starcoder2Config": {
        "starcoder2": ({}, ""), "starcoder2-window": ({"sliding_window": 16, "tie_word_embeddings": False}, ""),
        "starcoder2-no-bias": ({"use_bias": False}, "config-requires")},
    "GPT2Config": {
        "gpt2": ({}, ""), "gpt2-inner": ({"n_inner": 96, "tie_word_embeddings": False}, ""),
        "gpt2-upcast": ({"reorder_and_upcast_attn": True}, "config-requires")},
    "GPTNeoXConfig": {
        "gpt_neox": ({}, ""), "gpt_neox-sequential": ({"use_parallel_residual": False, "tie_word_embeddings": True}, ""),
        "gpt_neox-rotary": ({"rotary_pct": 0.5, "rotary_emb_base": 500000}, ""),
        "gpt_neox-no-bias": ({"attention_bias": False}, ""),
        "gpt_neox-linear": ({"rope_scaling": LINEAR}, "")},
}
ARCHITECTURES = {"Gemma3TextConfig": "Gemma3ForCausalLM", "GPT2Config": "GPT2LMHeadModel"}
# What the class itself calls the sizes.
NAMES = {"GPT2Config": {"hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
                        "max_position_embeddings": "n_positions", "num_key_value_heads": None, "intermediate_size": None},
         "GPTNeoXConfig": {"num_key_value_heads": None}}


def arguments(class_name, changes):
    names = NAMES.get(class_name, {})
    sizes = {names.get(key, key): value for key, value in SMALL.items()}
    sizes.pop(None, None)
    return sizes | changes | {"architectures": [ARCHITECTURES.get(class_name, class_name.replace("Config", "ForCausalLM"))]}


def new_spelling(arguments):
    """The same with `rope_parameters`, as one writes it from version 5 on; None where there is nothing to spell."""
    moved = {"rope_theta": "rope_theta", "rotary_emb_base": "rope_theta", "partial_rotary_factor": "partial_rotary_factor",
             "rotary_pct": "partial_rotary_factor"}
    rope = dict(arguments.get("rope_scaling") or {}) | {moved[key]: arguments[key] for key in moved if key in arguments}
    if not rope:
        return None
    rope["rope_type"] = rope.pop("type", rope.get("rope_type", "default"))
    rope.setdefault("rope_theta", 10000.0)
    if "Gemma3ForCausalLM" in arguments["architectures"]:  # a rope for each type of layers
        rope = {"full_attention": rope, "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}
    rest = {key: value for key, value in arguments.items() if key not in moved and key != "rope_scaling"}
    return rest | {"rope_parameters": rope}


def old_spelling(config):
    """A golden's configuration without `rope_parameters`, as every version reads it."""
    config = dict(config)
    rope = config.pop("rope_parameters", None)
    if rope is None:
        return config
    if "sliding_attention" in rope:
        config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
    rope = dict(rope)
    neox = config["model_type"] == "gpt_neox"
    config["rotary_emb_base" if neox else "rope_theta"] = rope.pop("rope_theta")
    if "partial_rotary_factor" in rope:
        config["rotary_pct" if neox else "partial_rotary_factor"] = rope.pop("partial_rotary_factor")
    if config["model_type"] == "phi3":  # it has this one beside the rope, and wants three members
        rope.pop("original_max_position_embeddings", None)
        rope["type"] = rope.pop("rope_type")
    config["rope_scaling"] = None if "default" in rope.values() else rope
    return config


def saved(config):
    with tempfile.TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        return json.loads((pathlib.Path(folder) / "config.json").read_text())


def write_here(wishes):
    """With the `transformers` of this Python: a line for each wish, with the config or the error."""
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    transformers.logging.set_verbosity_error()
    for wish in wishes:
        try:
            if "class" in wish:
                config_class = getattr(transformers, wish["class"], None)
                config = config_class and config_class(**wish["arguments"])
            else:
                model_type = wish["config"]["model_type"]
                config = CONFIG_MAPPING[model_type].from_dict(wish["config"]) if model_type in CONFIG_MAPPING else None
            if config is None:  # a family that this version does not know
                continue
            result = {"config": saved(config)}
        except Exception as error:  # what a class refuses is not written
            result = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        print(json.dumps({"name": wish["name"]} | result))


def write_with(version, wishes):
    run = subprocess.run(["uv", "run", "-q", "--no-project", "--with", f"transformers=={version}", "--with", "numpy",
                          "python", __file__, "--write"], input=json.dumps(wishes), capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"transformers {version}:\n{run.stderr}")
    return [json.loads(line) for line in run.stdout.splitlines() if line.startswith('{"name"')]


def essence(config):
    return json.dumps({key: value for key, value in config.items() if key != "transformers_version"}, sort_keys=True)


class Recorded:
    """The distinct configurations of a name."""

    def __init__(self, refused):
        self.refused, self.configs = refused, {}

    def add(self, config, version):
        versions = self.configs.setdefault(essence(config), (config, []))[1]
        if version and version not in versions:
            versions.append(version)

    def line(self, name):
        (first, versions), *rest = self.configs.values()
        others = []
        for config, those in rest:
            changes = {key: value for key, value in config.items()
                       if key != "transformers_version" and (key not in first or first[key] != value)}
            dropped = [key for key in first if key not in config]
            others.append({"versions": those, "set": changes} | ({"drop": dropped} if dropped else {}))
        refused = {"refused": self.refused} if self.refused else {}
        return json.dumps({"name": name} | refused | {"versions": versions, "config": first, "others": others},
                          separators=(",", ":"))


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    inputs = root / "test/Families/Inputs"
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("versions", nargs="*", metavar="VERSION", help="of transformers, oldest first; " + " ".join(VERSIONS))
    parser.add_argument("--out", type=pathlib.Path, default=inputs / "configs.jsonl")
    parser.add_argument("--write", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.write:
        return write_here(json.load(sys.stdin))
    versions = args.versions or VERSIONS
    published = [json.loads(line) for line in open(inputs / "published.jsonl")]
    recorded, wishes, new_wishes = {}, [], []
    for entry in published:
        name = entry["name"].split(" (")[0]
        recorded.setdefault(name, Recorded(entry.get("refused", ""))).add(entry["config"], "")
        wishes.append({"name": name, "config": entry["config"]})
    for path in sorted((root / "test/Families/goldens").glob("*.json")):
        config = json.loads(path.read_text())["config"]
        if config["model_type"] == "stablelm":  # of docs/add-a-model.md
            continue
        recorded["golden-" + path.stem] = Recorded("")
        recorded["golden-" + path.stem].add(config, "")
        wishes.append({"name": "golden-" + path.stem, "config": old_spelling(config)})
    for class_name, variants in BUILT.items():
        for name, (changes, refused) in variants.items():
            name = "built-" + name.split(" (")[0]
            recorded.setdefault(name, Recorded(refused))
            wishes.append({"name": name, "class": class_name, "arguments": arguments(class_name, changes)})
            if new := new_spelling(wishes[-1]["arguments"]):
                new_wishes.append(wishes[-1] | {"arguments": new})
    for version in versions:
        new = new_wishes if version.startswith("5.") else []
        if version in ("5.0.0", "5.2.0"):  # whose class sets `partial_rotary_factor` to 0.25, whatever it is given
            new = [wish for wish in new if wish["class"] != "GPTNeoXConfig"]
        for result in write_with(version, wishes + new):
            if "error" in result:
                print(f"{version} {result['name']}: {result['error']}")
            else:
                recorded[result["name"]].add(result["config"], version)
    again = [{"name": name, "config": config} for name, entry in recorded.items() for config, _ in entry.configs.values()]
    for result in write_with(versions[-1], again):
        if "error" not in result:
            recorded[result["name"]].add(result["config"], versions[-1])
    lines = [entry.line(name) for name, entry in recorded.items() if entry.configs]
    args.out.write_text("\n".join(lines) + "\n")
    print(f"{args.out}: {len(lines)} configurations, {sum(len(entry.configs) for entry in recorded.values())} spellings, "
          f"{args.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
