#!/usr/bin/env python3
"""The JSON-Schema-Test-Suite through our reader of schemas: suite.py FORMATS FOLDER [DRAFT ...]

FORMATS is the program `megalith-formats` of a build, FOLDER the suite (`tests` of its repository; the source package of
`jsonschema` on PyPI has it as `json/tests`). A schema is either refused, by its keyword, or each text that its format takes
satisfies it: none of the suite's instances that do not, in several spellings, and none of random texts of the format, by the
package `jsonschema`. What satisfies a schema and is not taken is counted: our formats are narrower, and say so.
"""

import json
import pathlib
import re
import subprocess
import sys

import jsonschema

DRAFTS = {"draft2020-12": jsonschema.Draft202012Validator, "draft2019-09": jsonschema.Draft201909Validator,
          "draft7": jsonschema.Draft7Validator, "draft6": jsonschema.Draft6Validator, "draft4": jsonschema.Draft4Validator}
DRAWS = 30


def pattern(_, expression, instance, schema):
    """Of ECMAScript, where `\\d` and the like are ASCII."""
    if isinstance(instance, str) and not re.search(expression, instance, re.ASCII):
        yield jsonschema.ValidationError(f"{instance!r} does not match {expression!r}")


CHECKER = jsonschema.FormatChecker(set(jsonschema.FormatChecker.checkers) - {"time"})
"""Its `time` wants no offset, which RFC 3339 does."""


def spellings(value):
    """Texts of one value: as Python writes it, without blanks, with keys in another order."""
    texts = [json.dumps(value), json.dumps(value, separators=(",", ":")), json.dumps(value, ensure_ascii=False)]
    if isinstance(value, dict) and len(value) > 1:
        texts.append(json.dumps(dict(reversed(value.items()))))
    return list(dict.fromkeys(texts))


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    wrong = taken = refused = narrower = valid = invalid = drawn = 0
    reasons = {}
    process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    slowest = 0.0
    for draft in sys.argv[3:] or DRAFTS:
        for file in sorted((folder / draft).rglob("*.json")):
            for group in json.loads(file.read_text()):
                schema = group["schema"]
                texts = [(text, test) for test in group["tests"] for text in spellings(test["data"])]
                line = {"format": {"json_schema": schema, "depth": 2}, "texts": [text for text, _ in texts], "draws": DRAWS}
                try:
                    print(json.dumps(line), file=process.stdin, flush=True)
                    answer = json.loads(process.stdout.readline())
                except ValueError:
                    sys.exit(f"{file}: {group['description']}: the program ended")
                where = f"{draft}/{file.name}: {group['description']}"
                if "refused" in answer:
                    refused += 1
                    word = re.search(r"the keyword `([^`]*)`", answer["refused"])
                    reason = word[1] if word else re.sub(r"^[^:]*: ", "", answer["refused"])[:70]
                    reasons[reason] = reasons.get(reason, 0) + 1
                    continue
                taken += 1
                slowest = max(slowest, answer["ms"])
                for (text, test), accepts in zip(texts, answer["accepts"]):
                    valid += test["valid"]
                    invalid += not test["valid"]
                    narrower += test["valid"] and not accepts
                    if accepts and not test["valid"]:
                        wrong += 1
                        print(f"WRONG, taken: {where}: {test['description']}: {text}")
                validator = jsonschema.validators.extend(DRAFTS[draft], {"pattern": pattern})(schema, format_checker=CHECKER)
                for text in answer["drawn"]:
                    drawn += 1
                    try:
                        value = json.loads(text)
                        if validator.is_valid(value):
                            continue
                        why = "does not satisfy it"
                    except ValueError:
                        why = "is no JSON"
                    wrong += 1
                    print(f"WRONG, {why}: {where}: {text}")
    process.stdin.close()
    print(f"{taken} schemas taken, {refused} refused; {wrong} wrong")
    print(f"of {valid} texts that satisfy their schema {narrower} are not taken; none of {invalid} others may be; {drawn} were drawn")
    print(f"the slowest took {slowest:.0f} ms; refused for:")
    for reason, count in sorted(reasons.items(), key=lambda item: -item[1]):
        print(f"{count:6} {reason}")
    sys.exit(wrong > 0 or taken == 0)


if __name__ == "__main__":
    main()
