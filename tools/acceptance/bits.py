"""Equal bits: speculative against plain decoding, and one run against another."""
from common import Run, differing_rows, drafts_of, golden_checkpoint, same_bits


def compare(base, other, keys=None):
    """(tokens equal, logits equal, text) of two outcomes over `keys`."""
    keys = keys or list(base.requests)
    tokens = all(base.requests[key]["tokens"] == other.requests[key]["tokens"] for key in keys)
    mine = base.logits()
    a, b = {key: mine[key] for key in keys}, other.logits()
    differ, rows = differing_rows(a, b)
    return tokens, same_bits(a, b), f"tokens {'equal' if tokens else 'DIFFER'}, {differ}/{rows} rows differ"


def lossless(suite):
    lossless_of(suite, "demo", 32 if suite.quick else 64, (1, 8), ("lookup", "perfect", "random",
                                                                 "half-right"))
    if suite.on_gpu and not suite.quick:
        lossless_of(suite, "llama-1b", 32, (8,), ("perfect", "half-right"))
    for family in golden_checkpoint.FAMILIES[:1 if suite.quick else None]:
        lossless_of(suite, family, 16, (1, 8), ("lookup", "half-right"))


def lossless_of(suite, model, new_tokens, batches, kinds):
    requests = suite.prompts(model, new_tokens)
    pool = {"kv_pages": 256}
    base = suite.one(Run("autoregressive", model, requests, logits=True, sets=pool))
    tokens, vocab = base.tokens(), suite.vocab(model)
    names, runs = [], []
    for pipeline in ("speculative_lookup", "adaptive_speculative"):
        for batch in batches:
            for kind in kinds:
                drafts = None if kind == "lookup" else drafts_of(tokens, kind, vocab)
                # With one slot every request runs alone, one after the other.
                runs.append(Run(pipeline, model, requests, sets=pool | {"slots": batch},
                                drafts=drafts, logits=True, trace=True))
                names.append(f"{model}, {pipeline}, batch {batch}, {kind}")
    for name, outcome in zip(names, suite.all(runs)):
        same_tokens, same, text = compare(base, outcome)
        metrics = outcome.summary["metrics"]
        accepted = f"{metrics['tokens_accepted']}/{metrics['tokens_proposed']} accepted"
        suite.bar(name, f"{text}, {accepted}", "equal", same_tokens and same)


def bits(suite):
    repeats(suite, "demo", 5 if suite.quick else 50, 16, (1, 4, 8, 9, 16))
    if suite.on_gpu and not suite.quick:
        repeats(suite, "llama-1b", 50, 10, (1, 9, 16))
    variants(suite, "demo", 24 if suite.quick else 40)


def repeats(suite, model, launches, new_tokens, counts):
    """The same launch many times, for several numbers of rows in a decoding pass."""
    lengths = tuple(6 + (i % 3) for i in range(16))
    requests = suite.prompts(model, new_tokens, lengths)
    base = suite.one(Run("autoregressive", model, requests, sets={"slots": 16, "kv_pages": 128},
                         logits=True))
    repeat = (f"--repeat={launches}",)
    runs = []
    for count in counts:
        if count == 9:
            key = requests[0]["id"]
            runs.append(Run("speculative_lookup", model, requests[:1], logits=True, trace=True,
                            kv_hash=True, options=repeat, sets={"kv_pages": 128},
                            drafts={key: base.requests[key]["tokens"]}))
        else:
            runs.append(Run("autoregressive", model, requests[:count], logits=True, trace=True,
                            kv_hash=True, options=repeat, sets={"slots": 16, "kv_pages": 128}))
    # The 1B checkpoint is loaded once per process: one at a time.
    for count, outcome in zip(counts, suite.all(runs, jobs=None if model == "demo" else 1)):
        trace = outcome.trace()
        most = max(sum(row[6] & 1 for _, row, _ in trace.rows(tick)) for tick in trace.ticks)
        tokens, same, text = compare(base, outcome, list(outcome.requests))
        suite.bar(f"{model}, {launches} launches, {most} rows", f"equal; to 16 rows: {text}",
                  "equal", tokens and same and most == count)


def variants(suite, model, new_tokens):
    requests = suite.prompts(model, new_tokens)
    common = dict(logits=True, kv_hash=True)
    base = suite.one(Run("autoregressive", model, requests, **common))
    trace = base.trace()
    names, runs = [], []

    def add(name, pipeline="autoregressive", which=requests, **more):
        names.append(name)
        runs.append(Run(pipeline, model, which, **common, **more))

    add("one slot: each request alone", sets={"slots": 1})
    for i in (0, len(requests) - 1):
        add(f"request {requests[i]['id']} alone", which=[requests[i]])
    for chunk in (1, 7, 64):
        add(f"prefill chunks of {chunk}", sets={"prefill_chunk": chunk})
    for page in (1, 3, 16):
        pages = trace.peak_pages(page)
        add(f"pages of {page}, shuffled, {pages} of them (just enough)",
            sets={"page_tokens": page, "kv_pages": pages}, options=(f"--shuffle-pages={page}",))
    if suite.on_gpu:
        for seed in (1, 2) if suite.quick else (1, 2, 3, 4):
            add(f"random delays, seed {seed}", options=(f"--delay-seed={seed}",))
    half = drafts_of(base.tokens(), "half-right", suite.vocab(model))
    add("half-right drafts, pages of 3, shuffled", pipeline="speculative_lookup", drafts=half,
        sets={"page_tokens": 3}, options=("--shuffle-pages=5",))
    if suite.on_gpu:
        add("half-right drafts, random delays", pipeline="speculative_lookup", drafts=half,
            options=("--delay-seed=9",))
    hashes = trace.kv_hashes()
    for name, outcome in zip(names, suite.all(runs)):
        keys = [request["id"] for request in outcome.run.requests]
        tokens, same, text = compare(base, outcome, keys)
        found = outcome.trace().kv_hashes()
        equal = sum(found[key].get(position) == value
                    for key in keys for position, value in hashes[key].items())
        total = sum(len(hashes[key]) for key in keys)
        extra = sum(len(found[key]) for key in keys) - total
        suite.bar(f"{model}, {name}", f"{text}, kv {equal}/{total}", "equal",
                  tokens and same and equal == total and extra == 0 and total > 0)


SECTIONS = {"lossless": lossless, "bits": bits}
