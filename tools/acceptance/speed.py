"""Time per token and per pass; and the sanitizer, the slowest way to run."""
import pathlib
import re
import shutil

from common import PIPELINES, Failure, Run

TOKEN_MS, ROWS_RATIO = 1.5, 2.0


def find_sanitizer():
    found = shutil.which("compute-sanitizer")
    if found:
        return found
    for path in sorted(pathlib.Path("/usr/local").glob("cuda*/bin/compute-sanitizer")):
        return str(path)
    return None


def sanitizer(suite):
    tool = find_sanitizer() if suite.on_gpu else None
    if not tool:
        return suite.bar("memcheck", "no compute-sanitizer here", "0 errors", None)
    requests = suite.prompts("demo", 8, (6, 11))
    for pipeline in PIPELINES:
        run = Run(pipeline, "demo", requests, sets={"kv_pages": 32}, timeout=150, check=False,
                  prefix=(tool, "--tool", "memcheck", "--error-exitcode", "99"),
                  options=("--watchdog=0",))
        outcome = suite.one(run)
        text = outcome.stdout + outcome.stderr
        found = re.search(r"ERROR SUMMARY: (\d+) error", text)
        if not found:
            raise Failure(f"no summary of the sanitizer: {text.strip()[-400:]}")
        done = len(outcome.requests) == 2
        suite.bar(f"memcheck, {pipeline}", f"{found[1]} errors, exit {outcome.status}, "
                  f"{outcome.seconds:.0f} s", "0 errors", found[1] == "0" and done and
                  outcome.status == 0)


def speed(suite):
    model, pool = "llama-1b", {"slots": 1, "kv_pages": 64}
    cache = suite.work / "cache-speed"
    shutil.rmtree(cache, ignore_errors=True)
    fresh = {"MEGALITH_CACHE_DIR": str(cache)}

    def measure(pipeline, new_tokens, drafts=None):
        requests = suite.prompts(model, new_tokens, (128,))
        # The fastest of five launches: what the kernel can do, not what else the machine does.
        return suite.one(Run(pipeline, model, requests, sets=pool, drafts=drafts,
                             environment=fresh, options=("--repeat=5",)))

    first = measure("autoregressive", 64)
    long = measure("autoregressive", 192)
    row = ((long.summary["kernel_ms"] - first.summary["kernel_ms"])
           / (long.summary["passes"] - first.summary["passes"]))
    suite.bar("llama-1b, batch 1, 128-token prompt: ms per token", f"{row:.3f}",
              f"<= {TOKEN_MS}", row <= TOKEN_MS and
              long.summary["passes"] - first.summary["passes"] == 128)
    drafts = long.tokens()
    nine_64 = measure("speculative_lookup", 64, drafts)
    nine_192 = measure("speculative_lookup", 192, drafts)
    count = nine_192.summary["passes"] - nine_64.summary["passes"]
    nine = (nine_192.summary["kernel_ms"] - nine_64.summary["kernel_ms"]) / count
    rows = (nine_192.summary["rows"] - nine_64.summary["rows"]) / count
    suite.bar(f"llama-1b, {rows:.2f} rows per pass: ms per pass", f"{nine:.3f} = "
              f"{nine / row:.2f} x one row", f"<= {ROWS_RATIO} x",
              nine <= ROWS_RATIO * row and nine_192.tokens() == long.tokens())
    suite.bar("prefill of 128 tokens and 64 tokens: kernel ms", first.summary["kernel_ms"],
              "recorded", None)
    for name, outcome in (("NVRTC", first), ("cached start", long)):
        suite.bar(f"{name}: ms", f"compile {outcome.summary['compile_ms']:.0f} (cache hit "
                  f"{outcome.summary['cache_hit']}), load {outcome.summary['load_ms']:.0f}, "
                  f"process {1000 * outcome.seconds:.0f}", "recorded", None)


SECTIONS = {"sanitizer": sanitizer, "speed": speed}
