"""Whether a host program printed the tokens of `megalith run`: tokens.py RUN.jsonl PRINTED."""
import json
import sys

expected = []
for line in open(sys.argv[1]):
    result = json.loads(line)
    if "id" in result:
        expected.append(f"{result['id']}: {' '.join(map(str, result['tokens']))} ({result['finish']})")
printed = open(sys.argv[2]).read().splitlines()[:len(expected)]
if not expected or printed != expected:
    sys.exit(f"expected {expected}, found {printed}")
