"""Control: passes, launches, replay, the policy, faults."""
import json
import random
import shutil
import struct

import numpy

from common import Failure, Run, same_bits

F32 = numpy.float32


def passes(suite):
    # 8 prompts of 8 tokens: their 56 rows fit into one prefill pass.
    new_tokens, requests = 64, suite.prompts("demo", 64, (8,) * 8)
    pool = {"kv_pages": 256}
    base = suite.one(Run("autoregressive", "demo", requests, trace=True, sets=pool))
    trace = base.trace()
    prefill = sum(any(not row[6] & 1 for row in run["rows"])
                  for tick in trace.ticks for run in tick["passes"])
    counted = base.summary["passes"]
    suite.bar("8 requests x 64 tokens, autoregressive", f"{counted} (prefill {prefill})",
              f"<= {new_tokens + prefill}", counted <= new_tokens + prefill and prefill == 1)
    limit = counted / 8 + 2
    # 8 drafts and the pending token are 9 rows; 8 requests have 72, and a pass 64.
    for name, count, sets in (("8 requests, perfect drafts of 8 (9 rows each)", 8, {}),
                              ("8 requests, perfect drafts of 7 (8 rows each)", 8, {"block": 7}),
                              ("1 request, perfect drafts of 8", 1, {})):
        drafts = {request["id"]: base.requests[request["id"]]["tokens"]
                  for request in requests[:count]}
        perfect = suite.one(Run("speculative_lookup", "demo", requests[:count], sets=pool | sets,
                                drafts=drafts))
        suite.bar(name, perfect.summary["passes"], f"<= {limit:.2f}",
                  perfect.summary["passes"] <= limit and perfect.tokens() == drafts)
    long = suite.one(Run("autoregressive", "demo", suite.prompts("demo", 1, (1000,)), trace=True,
                         sets=pool))
    suite.bar("a prompt of 1,000 tokens and one token", long.summary["passes"], "<= 17",
              long.summary["passes"] <= 17)


def launches(suite):
    if not suite.on_gpu:
        return suite.bar("launches", "no GPU", "1", None)
    if not suite.shim:
        raise Failure("launch_counter.so was not found; name it with --shim")
    for pipeline in ("autoregressive", "adaptive_speculative"):
        run = Run(pipeline, "demo", suite.prompts("demo", 64),
                  environment={"LD_PRELOAD": str(suite.shim)})
        outcome = suite.one(run)
        counts = counted(outcome)
        suite.bar(f"{pipeline}: launches (cooperative), synchronisations, copies of a run",
                  f"{counts['launch_count']} ({counts['cooperative_count']}), "
                  f"{counts['synchronizations']}, {counts.get('copies', '?')}", "1 (1), 1",
                  (counts["launch_count"], counts["cooperative_count"],
                   counts["synchronizations"]) == (1, 1, 1))


def counted(outcome):
    """What the shim saw from the first launch on."""
    lines = [line for line in outcome.stderr.splitlines() if '"launch_counter"' in line]
    if not lines:
        raise Failure("the launch counter printed nothing")
    return json.loads(lines[-1])["launch_counter"]["run"]


# Who keeps the loop: what its launches and waits must be, from ticks.
MODES = {"resident": ("--control=resident",), "host": ("--control=host",),
         "graph": ("--control=graph",),
         "resident, 16 ticks a launch": ("--ticks-per-launch=16",)}


def modes(suite):
    """The same tokens, bits and traces, whoever keeps the loop; launches and waits from outside."""
    if not suite.on_gpu:
        return suite.bar("control modes", "no GPU", "equal", None)
    if not suite.shim:
        raise Failure("launch_counter.so was not found; name it with --shim")
    for model in ("demo",) if suite.quick else ("demo", "llama-1b"):
        requests = suite.prompts(model, 128)
        base = plain_ms = None
        for name, options in MODES.items():
            run = Run("adaptive_speculative" if model == "demo" else "autoregressive", model,
                      requests, logits=True, trace=True, kv_hash=True, options=options,
                      environment={"LD_PRELOAD": str(suite.shim)})
            outcome = suite.one(run)
            # Its time without logits and trace.
            plain = suite.one(Run(run.pipeline, model, requests, options=options,
                                  environment=run.environment))
            base, plain_ms = base or outcome, plain_ms or plain.summary["kernel_ms"]
            same = (outcome.tokens() == base.tokens() and
                    same_bits(base.logits(), outcome.logits()) and
                    (outcome.folder / "trace.jsonl").read_bytes() ==
                    (base.folder / "trace.jsonl").read_bytes())
            suite.bar(f"{model}, {name}: tokens, logits, traces with K and V", "equal" if same else
                      "different", "those of resident", same)
            seen, said, ticks = counted(plain), plain.summary["host_calls"], plain.summary["ticks"]
            launches = {"resident": 1, "host": ticks, "graph": ticks}.get(name, -(-ticks // 16))
            wanted = (0 if name == "graph" else launches, launches if name == "graph" else 0,
                      launches + (name != "resident"))
            found = (seen["launch_count"], seen["graph_count"], seen["synchronizations"])
            agrees = (*found, seen["copies"], seen["bytes"]) == tuple(
                said[key] for key in ("launches", "graph_launches", "synchronizations", "copies",
                                      "bytes"))
            suite.bar(f"{model}, {name}: launches, of graphs, waits ({ticks} ticks)", found, wanted,
                      found == wanted and agrees)
            ms = plain.summary["kernel_ms"]
            suite.bar(f"{model}, {name}: ms, by resident; copies, bytes",
                      f"{ms:.2f}, {ms / plain_ms:.3f}; {seen['copies']}, {seen['bytes']:,}", "", None)


def replay(suite):
    new_tokens = 16 if suite.quick else 64
    runs = [Run(pipeline, model, suite.prompts(model, new_tokens), trace=True)
            for model in ("demo", "awkward", "tiny-qwen3")
            for pipeline in ("autoregressive", "speculative_lookup", "adaptive_speculative")]
    first = suite.all(runs)
    again = []
    for run, outcome in zip(runs, first):
        # Without a parity section in this run: 1 %, above what bf16 does to these models.
        epsilon = suite.parity_error.get(run.model, 0.01)
        again.append(Run(run.pipeline, run.model, run.requests, device="reference", check=False,
                         options=("--replay", outcome.folder / "trace.jsonl",
                                  f"--replay-epsilon={epsilon:.6g}")))
    for run, outcome, second in zip(runs, first, suite.all(again)):
        equal = second.status == 0 and second.tokens() == outcome.tokens()
        text = "equal" if equal else (second.stderr.strip().splitlines() or ["differs"])[-1][-160:]
        suite.bar(f"{run.model}, {run.pipeline}: replayed on the reference",
                  f"{text}, {outcome.summary['ticks']} ticks", "equal", equal)


# --- policy

PARAMS = {"max_block": 8, "mid_block": 4, "min_block": 1, "pressure_block": 2,
          "ema_alpha": 0.2, "initial_ema": 0.8}


def tier_of(ema):
    if ema >= F32(0.8):
        return PARAMS["max_block"]
    return PARAMS["mid_block"] if ema >= F32(0.5) else PARAMS["min_block"]


def policy(suite):
    slots = {"slots": 3, "page_tokens": 4}
    requests = suite.prompts("demo", 100, tuple(9 + 2 * (i % 4) for i in range(15)))
    base = suite.one(Run("autoregressive", "demo", requests))
    # Stretches of right and of wrong drafts move the average through all tiers.
    generator, drafts = random.Random(3), {}
    for key, tokens in base.tokens().items():
        wrong, drafts[key] = False, list(tokens)
        for i, token in enumerate(tokens):
            if i % 12 == 0:
                wrong = generator.random() < 0.45
            if wrong and generator.random() < 0.6:
                drafts[key][i] = (token + 1) % 256
    roomy = Run("adaptive_speculative", "demo", requests, trace=True, drafts=drafts, sets=slots)
    peak = max(sum(len(entry["kv"][0]["pages"]) for entry in tick["slots"])
               for tick in suite.one(roomy).trace().ticks)
    # Pressure shifts who peaks when: a little more than the peak, so that nothing faults.
    pages = peak + 3
    outcome = suite.one(Run("adaptive_speculative", "demo", requests, trace=True, drafts=drafts,
                            sets=slots | {"kv_pages": pages}, check=False))
    check_policy(suite, outcome, base.tokens(), pages)


def check_policy(suite, outcome, expected, pages):
    trace = outcome.trace()
    budget = {i: r["max_new_tokens"] for i, r in enumerate(outcome.run.requests)}
    prompt = {i: len(r["tokens"]) for i, r in enumerate(outcome.run.requests)}
    alpha = F32(PARAMS["ema_alpha"])
    ema, generated = {}, dict.fromkeys(budget, 0)
    seen, wrong, blocks, rises, falls, before = set(), [], 0, 0, 0, False
    for tick in trace.ticks:
        pressure = 100 * tick["live"]["target"] > 85 * pages
        rises, falls = rises + (pressure and not before), falls + (before and not pressure)
        before = pressure
        calls = {}
        for request, row, _ in trace.rows(tick):
            if row[6] & 2:
                calls.setdefault(request, []).append(row)
        for request, rows in calls.items():
            average = ema.get(request, F32(PARAMS["initial_ema"]))
            tier = tier_of(average)
            block = min(tier, PARAMS["pressure_block"]) if pressure else tier
            generated[request] = rows[0][2] + 1 - prompt[request]
            proposed = len(rows) - 1
            wanted = min(block, budget[request] - generated[request] - 1)
            if proposed != max(0, wanted):
                wrong.append(f"tick {tick['tick']} {request}: proposed {proposed}, not {wanted}")
            accepted = 0
            while accepted < proposed and rows[accepted + 1][1] == rows[accepted][7]:
                accepted += 1
            ratio = F32(accepted) / F32(proposed) if proposed else F32(0)
            average = alpha * ratio + (F32(1) - alpha) * average
            ema[request] = average
            tier = tier_of(average)
            block = min(tier, PARAMS["pressure_block"]) if pressure else tier
            seen.add((tier, pressure))
            traced = next(entry["trace"]["block_size.block"] for entry in tick["slots"]
                          if entry["request"] == request)
            blocks += 1
            if traced != block:
                wrong.append(f"tick {tick['tick']} {request}: block {traced}, not {block}")
    suite.bar("pressure rises and falls", f"{rises} and {falls}", ">= 2 and >= 2",
              rises >= 2 and falls >= 2)
    suite.bar("block sizes and draft lengths equal the formula's",
              wrong[0] if wrong else f"{blocks} of {blocks}", "all", not wrong and blocks > 0)
    caps = {(8, False), (4, False), (1, False), (8, True), (4, True)}
    suite.bar("tiers seen free (8, 4, 1) and capped by pressure (8, 4)",
              ", ".join(f"{tier}{' capped' if cap else ''}" for tier, cap in sorted(seen)),
              "all five", caps <= seen)
    done = sum(r["finish"] == "length" and r["tokens"] == expected[key]
               for key, r in outcome.requests.items())
    suite.bar("requests that end with autoregressive's tokens", f"{done} of {len(budget)}",
              "all", done == len(budget))


# --- faults

def check_fault(suite, name, outcome, expected, code, victims=None):
    faulted = {key: r.get("fault") for key, r in outcome.requests.items()
               if r["finish"] == "fault"}
    others = [key for key in expected if key not in faulted]
    same = all(outcome.requests[key]["tokens"] == expected[key] for key in others)
    right = bool(faulted) and set(faulted.values()) == {code} and bool(others)
    if victims is not None:
        right = right and set(faulted) == victims
    suite.bar(name, f"{', '.join(sorted(faulted)) or 'none'}: "
              f"{', '.join(sorted(map(str, set(faulted.values())))) or 'no fault'}; "
              f"{len(others)} others {'unchanged' if same else 'CHANGED'}",
              f"{code}, others unchanged", right and same)


def nan_checkpoint(suite, name, token):
    """A copy of an untied checkpoint with NaN in the embedding of one token."""
    source, target = suite.model(name), suite.work / "models" / f"{name}-nan"
    target.mkdir(parents=True, exist_ok=True)
    for path in source.iterdir():
        shutil.copy(path, target / path.name)
    with open(target / "model.safetensors", "r+b") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        entry = json.loads(file.read(size))["model.embed_tokens.weight"]
        width = 2 * entry["shape"][1]
        file.seek(8 + size + entry["data_offsets"][0] + token * width)
        file.write(b"\xc0\x7f" * (width // 2))
    return target.name


def faults(suite):
    # Prompts of different lengths cross a page at different ticks; 14 pages of 16
    # hold three of the four requests to their ends.
    requests = suite.prompts("demo", 64, (16, 20, 24, 28))
    base = suite.one(Run("autoregressive", "demo", requests)).tokens()
    full = suite.one(Run("autoregressive", "demo", requests, sets={"kv_pages": 16, "page_tokens": 16}, check=False))
    check_fault(suite, "pool exhausted", full, base, "POOL_EXHAUSTED")
    speculative = Run("speculative_lookup", "demo", requests, check=False,
                      options=("--inject-corrupt=3:r1:draft:1000",))
    check_fault(suite, "corrupted sequence length", suite.one(speculative), base,
                "CORRUPT_FIELD", {"r1"})
    state = Run("autoregressive", "demo", requests, check=False,
                options=("--inject-corrupt=5:r2:state:99",))
    check_fault(suite, "corrupted state", suite.one(state), base, "CORRUPT_FIELD", {"r2"})

    requests = suite.prompts("awkward", 24, (12, 9, 15, 20))
    plain = suite.one(Run("autoregressive", "awkward", requests)).tokens()
    used = {token for r in requests for token in r["tokens"]}
    used |= {token for tokens in plain.values() for token in tokens}
    token = next(t for t in range(suite.vocab("awkward")) if t not in used)
    poisoned = json.loads(json.dumps(requests))
    poisoned[1]["tokens"][4] = token
    model = nan_checkpoint(suite, "awkward", token)
    nan = suite.one(Run("autoregressive", model, poisoned, check=False))
    check_fault(suite, "NaN weights (one row of the embedding)", nan, plain, "NUMERIC", {"r1"})


def interrupted(suite):
    """A run that is interrupted ends at once, whoever keeps the loop, and gives out what had ended."""
    many, seconds = suite.prompts("demo", 300, (20,) * 9000), 6
    for control in ("resident", "host", "graph") if suite.on_gpu else ("resident",):
        options = (f"--control={control}",) if suite.on_gpu else ()
        suite.one(Run("autoregressive", "demo", many[:1], options=options))  # its kernel is compiled
        outcome = suite.one(Run("autoregressive", "demo", many, options=options, check=False,
                                prefix=("timeout", "-k", "60", "-s", "INT", str(seconds))))
        ended = list(outcome.requests.values())
        right = (outcome.seconds < seconds + 2 and 0 < len(ended) < len(many) and outcome.summary.get("interrupted")
                 and all(result["finish"] == "length" and len(result["tokens"]) == 300 for result in ended)
                 and f"the results of {len(ended)} of {len(many)} requests" in outcome.stderr)
        suite.bar(f"{control}: interrupted after {seconds} s", f"{outcome.seconds:.1f} s, {len(ended)} of {len(many)} results",
                  f"< {seconds + 2} s, some", bool(right))


SECTIONS = {"passes": passes, "launches": launches, "modes": modes, "replay": replay, "policy": policy,
            "faults": faults, "interrupted": interrupted}
