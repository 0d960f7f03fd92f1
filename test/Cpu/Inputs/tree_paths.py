"""Compares rows of traces by the tokens on their paths: `python3 tree_paths.py REQUESTS TRACE...`.

Where paths are equal, so are the hashes of K and V and the results; and so are the requests' tokens in all traces. Prints how
many rows there are, and how many have a path that another one has, too."""
import json
import sys

prompts = [json.loads(line)["tokens"] for line in open(sys.argv[1])]
hashes, results, tokens = {}, {}, None
rows = shared = 0
for name in sys.argv[2:]:
    lines = [json.loads(line) for line in open(name)]
    full = [p + r["tokens"] for p, r in zip(prompts, lines[-1]["results"])]
    assert tokens in (None, full), f"{name}: other tokens"
    tokens = full
    lengths, fed = {}, {}  # by request: valid positions, what stands at a place
    for tick in lines[1:-1]:
        requests = {slot["slot"]: slot["request"] for slot in tick["slots"] if slot["slot"] >= 0}
        for run in tick["passes"]:
            for row, kv in zip(run["rows"], run["kv_hash"]):
                slot, token, position, place, visible, parent, flags, result = row
                request = requests[slot]
                of = fed.setdefault(request, {})
                of[place] = (token, parent)
                path, at = [], place
                while at >= lengths.get(request, 0):
                    path.append(of[at][0])
                    at = of[at][1]
                path = (*full[request][:at + 1], *reversed(path))
                assert len(path) == position + 1, f"{name}: the path of {row} has {len(path)} tokens"
                rows += 1
                if visible > position + 1:  # sees what comes after it
                    continue
                shared += path in hashes
                assert hashes.setdefault(path, kv) == kv, f"{name}, tick {tick['tick']}: other K and V at {row}"
                if flags & 1:
                    assert results.setdefault(path, result) == result, f"{name}, tick {tick['tick']}: another result at {row}"
        for slot in tick["slots"]:
            lengths[slot["request"]] = slot["kv"][0]["len"]
print(f"{rows} rows, {shared} with a path of another")
