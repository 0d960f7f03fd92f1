"""Requests whose passes have more than 128 rows, and a look at a trace: does it have the passes that the test is about?"""
import json
import random
import sys


def requests(greedy):
    rng = random.Random(2)
    for i in range(24):
        size = rng.choice([3, 9, 30, 150, 90, 60])
        base = [rng.randrange(5, 60) for _ in range(max(2, size // 3))]
        request = {"id": f"r{i}", "tokens": (base * 4)[:size], "max_new_tokens": rng.choice([4, 12, 20])}
        if not greedy and i % 3:
            request["sampling"] = {"temperature": 0.8, "seed": i, **({"top_p": 0.9} if i % 3 == 1 else {})}
        print(json.dumps(request))


def check(trace, beside):
    wants_logits, kinds, rows, most = 1, set(), 0, 0
    for line in open(trace):
        for one in json.loads(line).get("passes", []):
            flags = [row[6] & wants_logits for row in one["rows"]]
            prompts = sum(row[6] == 0 for row in one["rows"])
            most = max(most, prompts if prompts < len(flags) else 0)
            if len(flags) > 128:
                assert sum(flags) <= 128 and flags == sorted(flags), "rows that are read come last"
                kinds.add(any(flags))
                rows = max(rows, len(flags))
    assert kinds == {False, True} and rows == 260, (kinds, rows)
    assert most <= beside and (most == beside or beside == 260), f"prompts had {most} rows beside others"


if sys.argv[1] == "requests":
    requests("--greedy" in sys.argv)
else:
    check(sys.argv[2], int(sys.argv[3]))
