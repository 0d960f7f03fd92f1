"""Compare the reference executor with what `transformers` computed.

    compare.py GOLDENS.json PIPELINE.yaml MODEL_DIR

Feeds each prompt and the recorded greedy tokens (teacher-forced: where our token
differs, the next run goes on behind the recorded one) and compares the logits of the
recorded ids. Prints the largest relative error of a row and the root mean square,
both over the bf16 error of `transformers`, and how many tokens are fp32's argmax.
"""
import json
import math
import struct
import subprocess
import sys

goldens, pipeline, model = json.load(open(sys.argv[1])), sys.argv[2], sys.argv[3]
prompts, vocab = goldens["prompts"], goldens["model"]["vocab_size"]
done = [0] * len(prompts)
ours, theirs, worst, equal, ties, total = 0.0, 0.0, 0.0, 0, 0, 0

while True:
    open_ones = [i for i, p in enumerate(prompts) if done[i] < len(p["greedy"])]
    if not open_ones:
        break
    with open("requests.jsonl", "w") as out:
        for i in open_ones:
            p = prompts[i]
            out.write(json.dumps({"id": str(i), "tokens": p["tokens"] + p["greedy"][:done[i]], "eos": [],
                                  "max_new_tokens": len(p["greedy"]) - done[i]}) + "\n")
    run = subprocess.run(["megalith", "run", pipeline, "--model", model, "--requests", "requests.jsonl",
                          "--device=reference", "--logits=logits"], check=True, capture_output=True, text=True)
    results = [json.loads(line) for line in run.stdout.splitlines()[:-1]]
    data = open("logits", "rb").read()
    at = data.index(b"\n") + 1
    for i, result in zip(open_ones, results):
        p = prompts[i]
        begin = done[i]
        for j, token in enumerate(result["tokens"]):
            row = struct.unpack_from(f"<{vocab}f", data, at + 4 * vocab * j)
            golden = p["rows"][begin + j]
            assert golden["position"] == len(p["tokens"]) + begin + j - 1
            error = math.sqrt(sum((row[k] - x) ** 2 for k, x in zip(golden["ids"], golden["logits"])))
            # The recorded ids are a sample of the row.
            error *= math.sqrt(vocab / len(golden["ids"])) / golden["norm"]
            ours += error ** 2
            theirs += golden["bf16_error"] ** 2
            worst = max(worst, error / golden["bf16_error"])
            total += 1
            done[i] = begin + j + 1
            if token == p["greedy"][begin + j]:
                equal += 1
                continue
            # Another token may win only where fp32 itself had a near tie.
            gap = golden["logits"][0] - dict(zip(golden["ids"], golden["logits"])).get(token, -math.inf)
            assert gap <= 2 * golden["bf16_error"] * golden["norm"], (i, begin + j, token, gap)
            ties += 1
            break
        at += 4 * vocab * len(result["tokens"])

print(f"rows {total}, argmax {equal}, near ties {ties}")
print(f"root mean square error {math.sqrt(ours / theirs):.3f}, worst row {worst:.2f}, of the bf16 error")
sys.exit(0 if math.sqrt(ours / theirs) <= 1.25 and worst <= 6 else 1)
