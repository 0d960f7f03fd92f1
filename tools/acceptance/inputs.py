"""What is edited is what runs: IR text, plan, CUDA text."""
import re

from common import Failure, Run


def edit(text, pattern, replacement):
    """Replaces the first match of a pattern; the edit is one line."""
    edited, count = re.subn(pattern, replacement, text, count=1)
    if not count or edited == text:
        raise Failure(f"nothing to edit: /{pattern}/ does not occur")
    changed = sum(a != b for a, b in zip(text.splitlines(), edited.splitlines()))
    if changed != 1 or len(text.splitlines()) != len(edited.splitlines()):
        raise Failure(f"the edit changed {changed} lines")
    return edited


def inputs(suite):
    requests = suite.prompts("demo", 32)
    name, model = "autoregressive", "demo"
    base = suite.one(Run(name, model, requests, logits=True, trace=True))

    # Before fusion: the passes after it run on the edited text.
    ir = suite.compile(name, model, suite.work / "unchanged.ir", "--stop-after=form-ticks")
    same = suite.one(Run(name, model, requests, logits=True,
                         options=("--ir", suite.work / "unchanged.ir")))
    suite.bar("unchanged IR text run with --ir", "equal" if same.tokens() == base.tokens()
              else "other tokens", "same tokens", same.tokens() == base.tokens())
    edited = suite.work / "edited.ir"
    edited.write_text(edit(ir, r"= silu\(", "= relu("))
    other = suite.one(Run(name, model, requests, logits=True, options=("--ir", edited)))
    differ = sum(other.tokens()[key] != tokens for key, tokens in base.tokens().items())
    suite.bar("one silu of the IR text made relu, --ir", f"{differ} of {len(requests)} differ",
              "other tokens", differ > 0)
    if not suite.on_gpu:
        return

    text = suite.compile(name, model, suite.work / "ascending.cu", "--emit=cuda")
    turned = suite.compile(name, model, suite.work / "descending.cu", "--emit=cuda",
                           "--plan", "order=descending")
    down = suite.one(Run(name, model, requests, logits=True, plan={"order": "descending"}))
    mine, theirs = base.logits(), down.logits()
    equal = all(mine[key].tobytes() == theirs[key].tobytes() for key in mine)
    suite.bar("--plan order=descending", f"{'other' if text != turned else 'SAME'} .cu, "
              f"{'same' if equal else 'OTHER'} bits", "other .cu, same bits",
              text != turned and equal and down.tokens() == base.tokens())
    edited = suite.work / "edited.cu"
    edited.write_text(edit(text, r"(static constexpr int site = \d+, chunk = )[1-9]\d*;", r"\g<1>5;"))
    chunked = suite.one(Run(name, model, requests, trace=True, options=("--cu", edited)))
    suite.bar("one line of the .cu changed (the prefill chunk 5), --cu",
              f"{chunked.summary['passes']} passes, not {base.summary['passes']}", "other trace",
              chunked.trace().ticks != base.trace().ticks and
              chunked.summary["passes"] > base.summary["passes"])


SECTIONS = {"inputs": inputs}
