"""Time per token and per pass; and the sanitizer, the slowest way to run."""
import pathlib
import re
import shutil

from common import Failure, Run

PIPELINES = ("autoregressive", "speculative_lookup", "adaptive_speculative")

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
        return suite.one(Run(pipeline, model, requests, sets=pool, drafts=drafts,
                             environment=fresh))

    def fastest(*outcomes):
        """Kernel ms: what the kernel can do, not what else the machine does."""
        return min(outcome.summary["kernel_ms"] for outcome in outcomes)

    # Multiples of 9, so that every speculative pass has 9 rows.
    few, many = 63, 189
    first, long, first_again, long_again = [measure("autoregressive", new_tokens)
                                            for new_tokens in (few, many, few, many)]
    count = long.summary["passes"] - first.summary["passes"]
    row = (fastest(long, long_again) - fastest(first, first_again)) / count
    suite.bar("llama-1b, batch 1, 128-token prompt: ms per token", f"{row:.3f}",
              f"<= {TOKEN_MS}", row <= TOKEN_MS and count == many - few)
    drafts = long.tokens()
    nine_few, nine_many, few_again, many_again = [measure("speculative_lookup", new_tokens, drafts)
                                                  for new_tokens in (few, many, few, many)]
    count = nine_many.summary["passes"] - nine_few.summary["passes"]
    nine = (fastest(nine_many, many_again) - fastest(nine_few, few_again)) / count
    rows = (nine_many.summary["rows"] - nine_few.summary["rows"]) / count
    suite.bar(f"llama-1b, {rows:.2f} rows per pass: ms per pass", f"{nine:.3f} = "
              f"{nine / row:.2f} x one row", f"<= {ROWS_RATIO} x",
              nine <= ROWS_RATIO * row and nine_many.tokens() == long.tokens())
    suite.bar(f"prefill of 128 tokens and {few} tokens: kernel ms",
              fastest(first, first_again),
              "recorded", None)
    for name, outcome in (("NVRTC", first), ("cached start", first_again)):
        found = outcome.summary
        suite.bar(f"{name}: ms", f"compile {found['compile_ms']:.0f} (cache hit "
                  f"{found['cache_hit']}), load {found['load_ms']:.0f}, process "
                  f"{1000 * outcome.seconds:.0f}", "recorded", None)


SECTIONS = {"sanitizer": sanitizer, "speed": speed}
