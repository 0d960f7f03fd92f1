"""Prints how many tokens each request of a run has; exit 1 unless they are those of `plain.json`."""
import json
import sys

tokens = {r["id"]: r["tokens"] for r in map(json.loads, sys.stdin) if "id" in r}
plain = {r["id"]: r["tokens"] for r in map(json.loads, open("plain.json")) if "id" in r}
print(*(f"{name} {len(found)}" for name, found in sorted(tokens.items())))
sys.exit(tokens != plain)
