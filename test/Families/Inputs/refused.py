"""Every configuration of others.jsonl, and of the goldens NAME, is refused, and told by its name.

    refused.py PIPELINES NAME...

NAME is a file of ../goldens.

Each is asked for in three ways: with the pipeline that lets the checkpoint choose, with one that names the model file of
llama, and with the latter and the user's word for `model_type` and `architectures`.
"""
import json
import pathlib
import subprocess
import sys

pipelines, *names = sys.argv[1:]
inputs = pathlib.Path(__file__).resolve().parent
configs = [json.loads(line) for line in open(inputs / "others.jsonl")]
for name in names:
    config = json.loads((inputs.parent / f"goldens/{name}.json").read_text())["config"]
    configs.append({"type": config["model_type"], "why": "golden", "config": config})

text = pathlib.Path(pipelines, "autoregressive.yaml").read_text()
named = text.replace("target: {}", f"target: {{graph: {pathlib.Path(pipelines).resolve()}/models/llama.yaml}}")
assert named != text
pathlib.Path("named.yaml").write_text(named)
ACCEPTED = ["--accept", "model_type", "--accept", "architectures"]
WAYS = ((f"{pipelines}/autoregressive.yaml", [], '(`model_type` `"{}"`'), ("named.yaml", [], "error: "),
        ("named.yaml", ACCEPTED, "error: "))

wrong, kinds = 0, {}
for entry in configs:
    folder = pathlib.Path(entry["type"])
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(entry["config"], indent=2))
    for pipeline, options, expected in WAYS:
        run = subprocess.run(["megalith", "inspect", pipeline, "--config", str(folder), *options],
                             capture_output=True, text=True)
        first = next((line for line in run.stderr.splitlines() if "error: " in line), "")
        if run.returncode != 1 or expected.format(entry["type"]) not in first:
            wrong += 1
            print(f"{entry['type']}: {' '.join([pipeline, *options])}: exit status {run.returncode}\n{run.stderr}")
    kinds[entry["why"]] = kinds.get(entry["why"], 0) + 1
print("\n".join(f"{why}: {count}" for why, count in kinds.items()))
print(f"{len(configs)} configurations in {len(WAYS)} ways, {wrong} not refused as they should be")
sys.exit(wrong != 0)
