"""Every way to draft: tokens of plain decoding at temperature 0, and of plain sampling above.

A pipeline stands here if it appends the target's own samples only. Typical acceptance and rejection with residual do so
at temperature 0, or not at all, and a canvas never.
"""
from bits import compare
from common import ROOT, Run

PAIR = {"target": "demo", "small": "demo-draft"}
# name -> checkpoints, what bounds a block, and whether temperatures above 0 count
DRAFTING = {
    "speculative_lookup": ("demo", {"block": 3}, True),
    "adaptive_speculative": ("demo", {"max_block": 5}, True),
    "adaptive_aimd": ("demo", {"max_block": 5}, True),
    "adaptive_expected_gain": ("demo", {"max_block": 5}, True),
    "reference_speculative": ("demo", {"max_block": 5}, True),
    "draft_model_speculative": (PAIR, {"max_block": 5}, True),
    "stochastic_speculative": (PAIR, {"max_block": 5}, False),
    "speculative_speculative": (PAIR, {"max_block": 5}, True),
    "token_tree_lookup": ("demo", {"branches": 2}, True),
    "token_tree_draft_model": (PAIR, {"branches": 2}, True),
    "lookahead": ("demo", {"window": 3}, True),
    "typical_acceptance": ("demo", {"max_block": 5}, False),
    "medusa": ("demo-heads", {}, True),
    "multi_token": ("demo-heads", {"max_block": 2}, True),
}
REFERENCE = ("And the LORD spake unto Moses, saying, Speak unto the children of Israel, and say unto them, "
             "In the beginning God created the heaven and the earth.")


def requests(suite, count, new_tokens, temperatures):
    """Of the demo model, with all kinds of settings; each has a seed of its own."""
    base = suite.prompts("demo", new_tokens)
    limits = ({}, {"top_k": 20}, {"top_p": 0.9}, {"min_p": 0.05}, {"top_k": 50, "top_p": 0.8, "min_p": 0.02})
    made = []
    for i in range(count):
        request = dict(base[i % len(base)], id=f"r{i}")
        if temperatures:
            request["sampling"] = {"temperature": temperatures[i % len(temperatures)], "seed": i,
                                   **limits[i % len(limits)]}
        made.append(request)
    return made


def run(name, which, sets, **more):
    model = DRAFTING[name][0] if name in DRAFTING else "demo"
    if name == "reference_speculative":
        which = [dict(r, inputs={"reference": list(REFERENCE.encode())}) for r in which]
    return Run(name, model, which, sets={"kv_pages": 512, **sets}, **more)


def greedy(suite):
    which = requests(suite, 8, 24 if suite.quick else 64, ())
    base = suite.one(run("autoregressive", which, {}, logits=True))
    cases = [(name, batch) for name in DRAFTING for batch in (1, 8)]
    outcomes = suite.all([run(name, which, {"slots": batch}, logits=True, trace=True) for name, batch in cases])
    for (name, batch), outcome in zip(cases, outcomes):
        tokens, bits, text = compare(base, outcome)
        metrics = outcome.summary["metrics"]
        suite.bar(f"{name}, batch {batch}", f"{text}, {metrics.get('tokens_accepted')}/"
                  f"{metrics.get('tokens_proposed')} accepted", "equal", tokens and bits)


def drawn(suite):
    which = requests(suite, 16, 24 if suite.quick else 64, (0.3, 0.8, 1.3))
    base = suite.one(run("sampled", which, {"slots": 16}))
    repeats = 3 if suite.quick or not suite.on_gpu else 20
    for name in ("sampled", *DRAFTING):
        block, counts = DRAFTING.get(name, (None, {}, True))[1:]
        if not counts:
            continue
        pages = {"page_tokens": 5, "kv_pages": 1024}
        variants = {
            "batch 1": run(name, which, {"slots": 1}),
            "batch 8": run(name, which, {"slots": 8}),
            f"batch 16, {repeats} runs": run(name, which, {"slots": 16}, options=(f"--repeat={repeats}",)),
            "chunks of 7, pages of 5, shuffled": run(name, which, {"slots": 8, "prefill_chunk": 7, **pages},
                                                     options=("--shuffle-pages=3",)),
        }
        if block:
            variants[", ".join(f"{key} {value}" for key, value in block.items())] = run(name, which, block)
        if suite.on_gpu:
            variants["random delays"] = run(name, which, {"slots": 8}, options=("--delay-seed=5",))
        outcomes = suite.all(list(variants.values()))
        differ = [what for what, outcome in zip(variants, outcomes) if outcome.tokens() != base.tokens()]
        metrics = outcomes[1].summary["metrics"]
        suite.bar(f"{name}: {', '.join(variants)}", f"{'DIFFER: ' + '; '.join(differ) if differ else 'equal'}, "
                  f"{metrics.get('tokens_accepted', 0)}/{metrics.get('tokens_proposed', 0)} accepted",
                  "tokens of sampled", not differ)


def replayed(suite):
    """Traces of the GPU, replayed by the reference executor; values of reducers are checked as well."""
    which = requests(suite, 8, 24 if suite.quick else 48, (0, 0.3, 0.8, 1.3))
    names = ["sampled", *DRAFTING, "canvas_refinement"]
    traced = suite.all([run(name, which, {"slots": 8}, trace=True) for name in names])
    again = suite.all([run(name, which, {"slots": 8}, device="reference", check=False,
                           options=("--replay", outcome.folder / "trace.jsonl"))
                       for name, outcome in zip(names, traced)])
    for name, outcome in zip(names, again):
        suite.bar(name, "agrees" if outcome.status == 0 else outcome.stderr.strip()[:300], "agrees",
                  outcome.status == 0)


SECTIONS = {"greedy": greedy, "drawn": drawn, "replayed": replayed}
