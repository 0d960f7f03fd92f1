#!/usr/bin/env python3
"""What drafts of a small model are worth: milliseconds a token by block and acceptance, beside plain decoding.

    python3 bench/draft_model.py --shape=llama-3.2-1b --small=llama-60m

Runs `megalith sweep` with random weights of both shapes. The drafts of the small model are right as often as
`--acceptance` says (docs/running.md, "Synthetic drafts"); its passes run all the same. The pipeline is
pipelines/draft_model_speculative.yaml with a fixed block. Then the time of a draft pass, from ticks in which the large
model verifies one row whatever was drafted, against the time that reading the small model's weights takes. Needs a GPU.
"""
import argparse
import csv
import json
import pathlib
import statistics
import subprocess
import tempfile

root = pathlib.Path(__file__).resolve().parent.parent
POLICY = """      tier: tiers(ema, [[0.80, max_block], [0.50, mid_block], [0.0, min_block]])
      block: min(tier, pressure_block) if kv.target.pressure else tier
"""
VERIFY = """      - best: sample(target([last] + draft, kv=draft), sampling)
      - accepted: prefix_while(i in 0..len(draft), draft[i] == best[i])
"""
# One row of the large model, whatever was drafted: what a further round takes is the time of a draft pass.
ONE_ROW = """      - best: sample(target([last], kv=draft), sampling)
      - accepted: min(0, len(draft))
"""


def replaced(text, *pairs):
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    return text


def sweep(arguments, folder, name, files, *options):
    table = pathlib.Path(arguments.out or folder) / f"{name}.csv"
    shapes = root / "bench/shapes"
    path = lambda shape: shape if pathlib.Path(shape).exists() else f"{shapes}/{shape}.json"
    command = [arguments.megalith, "sweep", *files, f"--config={path(arguments.shape)}",
               f"--config=small={path(arguments.small)}", f"--requests={arguments.requests}",
               f"--context={arguments.context}", f"--repeats={arguments.repeats}", f"--csv={table}", *options,
               *(["--device=cpu", "--set=slots=2"] if arguments.cpu else [])]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{run.stderr}")
    with open(table, encoding="utf-8") as file:
        return list(csv.DictReader(file))


def per_token(rows):
    """Milliseconds between two tokens of a request; on the CPU executor, which has no times, ticks."""
    return statistics.median(float(r.get("tpot_ms") or r["tpot_ticks"]) for r in rows)


def small_bytes(shape):
    """Of the matrices that a pass of the small model with logits streams."""
    path = pathlib.Path(shape) if pathlib.Path(shape).exists() else root / f"bench/shapes/{shape}.json"
    c = json.loads((path / "config.json" if path.is_dir() else path).read_text())
    head = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    layer = c["hidden_size"] * head * 2 * (c["num_attention_heads"] + c["num_key_value_heads"])
    layer += 3 * c["hidden_size"] * c["intermediate_size"]
    return 2 * (c["vocab_size"] * c["hidden_size"] + c["num_hidden_layers"] * layer)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="llama-3.2-1b")
    parser.add_argument("--small", default="llama-60m")
    parser.add_argument("--blocks", default="1,2,3,4,5,6,7,8")
    parser.add_argument("--acceptance", default="0.5,0.7,0.8,0.9")
    parser.add_argument("--requests", default="1")
    parser.add_argument("--context", default="128")
    parser.add_argument("--tokens", default="256")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", help="a folder for the tables of the sweeps; they go on there")
    parser.add_argument("--megalith", default=str(root / "build/tools/megalith"))
    parser.add_argument("--cpu", action="store_true", help="whether it runs at all: ticks in place of milliseconds")
    arguments = parser.parse_args()
    text = (root / "pipelines/draft_model_speculative.yaml").read_text(encoding="utf-8")
    fixed = replaced(text, (POLICY, "      block: max_block\n"), ("  mid_block: 4\n  min_block: 1\n  pressure_block: 2\n", ""))
    rows_of_one = replaced(fixed, ("pipeline: draft_model_speculative", "pipeline: one_row"), (VERIFY, ONE_ROW))
    blocks, levels = arguments.blocks.split(","), arguments.acceptance.split(",")
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "models").symlink_to(root / "pipelines/models")
        drafting, one_row = f"{folder}/fixed.yaml", f"{folder}/one_row.yaml"
        pathlib.Path(drafting).write_text(fixed, encoding="utf-8")
        pathlib.Path(one_row).write_text(rows_of_one, encoding="utf-8")
        rows = sweep(arguments, folder, "draft_model", [str(root / "pipelines/autoregressive.yaml"), drafting],
                     f"--tokens={arguments.tokens}", f"--vary=draft_model_speculative:max_block={arguments.blocks}",
                     *(f"--acceptance={level}" for level in levels))
        ends = f"{blocks[0]},{blocks[-1]}"
        few = sweep(arguments, folder, "draft_pass", [one_row], f"--tokens={min(64, int(arguments.tokens))}",
                    f"--vary=max_block={ends}")

    unit = "ticks" if arguments.cpu else "ms"
    plain = per_token([r for r in rows if r["pipeline"] == "autoregressive"])
    print(f"{rows[0]['device_name'] or 'CPU executor'}, {arguments.shape} with drafts of {arguments.small}, {arguments.requests} request(s), "
          f"context {arguments.context}")
    print(f"plain decoding: {plain:.4f} {unit} a token\n")
    print(f"{unit} a token, speed-up over plain decoding, and how many drafts of the block were accepted")
    print("block" + "".join(f"{level:>22}" for level in levels))
    best = {}
    for block in blocks:
        line = f"{block:>5}"
        for level in levels:
            found = [r for r in rows if r["param_max_block"] == block and r["synthetic_acceptance"] == level]
            each = per_token(found)
            ticks = float(found[0]["ticks"])
            gained = int(found[0]["tokens_generated"]) / int(found[0]["requests"]) / ticks
            line += f"{each:9.4f} {plain / each:5.2f} {gained - 1:5.2f} "
            best[level] = min(best.get(level, (each, block)), (each, block))
        print(line)
    print("best " + "".join(f"{f'block {best[level][1]}, x {plain / best[level][0]:.2f}':>22}" for level in levels))

    # A token a tick: each tick has as many draft passes as the block, but for the last ones.
    def tick_time(block):
        return per_token([r for r in few if r["param_max_block"] == block])

    def draft_passes(block):
        r = next(r for r in few if r["param_max_block"] == block)
        return int(r["passes"]) / int(r["ticks"])

    if len(blocks) > 1:
        first, last = blocks[0], blocks[-1]
        each = (tick_time(last) - tick_time(first)) / (draft_passes(last) - draft_passes(first))
        print(f"\na draft pass: {each * 1e3:.1f} " + ("(ticks: no time)" if arguments.cpu else "us"))
        if not arguments.cpu:
            rate = statistics.median(float(r["bandwidth_gb_s"]) for r in few)
            floor = small_bytes(arguments.small) / rate / 1e6
            print(f"its floor, {small_bytes(arguments.small) / 1e6:.1f} MB at {rate:.0f} GB/s: {floor * 1e3:.1f} us, "
                  f"{100 * floor / each:.0f} %")


if __name__ == "__main__":
    main()
