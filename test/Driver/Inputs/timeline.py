"""What stands in a timeline of `megalith bench` and in its line of JSON: timeline.py TIMELINE LINE."""
import json, sys

events = json.load(open(sys.argv[1]))["traceEvents"]
line = json.load(open(sys.argv[2]))
by_cta = {}
for e in events:
    if e["ph"] == "X":
        assert e["dur"] >= 0
        by_cta.setdefault(e["tid"], []).append(e)
for list_ in by_cta.values():
    assert [e["name"] for e in list_] == [e["name"] for e in by_cta[0]]
    assert all(a["ts"] + a["dur"] <= b["ts"] + 1e-9 for a, b in zip(list_, list_[1:]))
assert [p["name"] for p in line["phases"]] == list(dict.fromkeys(e["name"] for e in by_cta[0]))
assert sum(p["calls"] for p in line["phases"]) == len(by_cta[0])
print("CTAs", *sorted(by_cta), end=", ")
print(len(by_cta[0]), "events each, in order")
print("layers of attention:", *[e["args"]["layer"] for e in by_cta[0] if e["name"] == "attention"])
print(f"shares add up to {sum(p['share'] for p in line['phases']):.3f}")
