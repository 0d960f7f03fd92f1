"""`/metrics`, in the text format of Prometheus. Names are vLLM's where the meaning is the same."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Any

from ._history import Recent

# vLLM's bounds, and finer ones below: a token takes less than a millisecond here.
_FIRST_TOKEN = (
    "0.0005 0.001 0.002 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1 2.5 5 7.5 10 20 40 80 160 640 2560"
)
_NEXT_TOKEN = (
    "0.0001 0.0002 0.0005 0.001 0.002 0.005 0.01 0.025 0.05 0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1 2.5 5 7.5 10 20 40 80"
)
_WHOLE = "0.01 0.05 0.1 0.3 0.5 0.8 1 1.5 2 2.5 5 10 15 20 30 40 50 60 120 240 480 960 1920 7680"


class Histogram:
    def __init__(self, bounds: str) -> None:
        self.bounds = [float(bound) for bound in bounds.split()]
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0
        self.recent = Recent()
        """The same, for the page."""

    def observe(self, value: float, times: int = 1) -> None:
        self.recent.add(value, times)
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times


class Metrics:
    """What the server itself has seen."""

    def __init__(self) -> None:
        self.first_token = Histogram(_FIRST_TOKEN)
        self.next_token = Histogram(_NEXT_TOKEN)
        self.whole = Histogram(_WHOLE)
        self.finished = dict.fromkeys(("stop", "length", "abort", "error"), 0)
        self.refused = 0
        self.sought = self.found = 0
        """Tokens of prompts that have ended, and those of them that an index had."""
        """Calls that were told to come later."""


def counts_of(stats: Mapping[str, Any]) -> tuple[int, int]:
    """Requests that have a slot, and others: those that wait."""
    held = sum(slot["request"] is not None for slot in stats["slots"])
    there = stats["waiting"] + stats["running"]
    running = min(there, held) if stats["slots"] else stats["running"]
    return running, there - running


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))


class _Page:
    def __init__(self, labels: Mapping[str, str]) -> None:
        self.lines: list[str] = []
        self.labels = dict(labels)

    def sample(self, name: str, value: float, labels: Mapping[str, str]) -> None:
        inner = ",".join(f'{key}="{_escaped(text)}"' for key, text in {**self.labels, **labels}.items())
        self.lines.append(f"{name}{{{inner}}} {_number(value)}")

    def head(self, name: str, kind: str, about: str) -> None:
        self.lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]

    def add(self, name: str, kind: str, about: str, samples: Iterable[tuple[float, Mapping[str, str]]]) -> None:
        self.head(name, kind, about)
        for value, labels in samples:
            self.sample(name, value, labels)

    def one(self, name: str, kind: str, about: str, value: float) -> None:
        self.add(name, kind, about, [(value, {})])

    def histogram(self, name: str, about: str, of: Histogram) -> None:
        self.head(name, "histogram", about)
        below = 0
        for bound, count in zip([*map(str, of.bounds), "+Inf"], of.counts):
            below += count
            self.sample(f"{name}_bucket", below, {"le": bound})
        self.sample(f"{name}_sum", of.sum, {})
        self.sample(f"{name}_count", below, {})


def render(model: str, metrics: Metrics, stats: Mapping[str, Any]) -> str:
    running, waiting = counts_of(stats)
    page = _Page({"engine": "0", "model_name": model})
    page.one("vllm:num_requests_running", "gauge", "Requests that have a slot.", running)
    page.one("vllm:num_requests_waiting", "gauge", "Requests that wait for a slot.", waiting)
    if pools := stats["pools"]:
        used = max(pool["used"] / max(1, pool["pages"]) for pool in pools)
        for name in "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc":
            page.one(name, "gauge", "Used pages of the fullest KV pool; 1 is all of them.", used)
    page.one(
        "vllm:prompt_tokens_total", "counter", "Tokens of prompts that the kernel was given.", stats["prompt_tokens"]
    )
    if any(pool["cached"] is not None for pool in pools):
        page.one(
            "vllm:prefix_cache_queries_total", "counter", "Tokens of prompts that ended, looked for.", metrics.sought
        )
        page.one("vllm:prefix_cache_hits_total", "counter", "Those that were found, and not fed.", metrics.found)
    page.one("vllm:generation_tokens_total", "counter", "Tokens that were generated.", stats["generated_tokens"])
    page.add(
        "vllm:request_success_total",
        "counter",
        "Choices that ended.",
        [(count, {"finished_reason": reason}) for reason, count in metrics.finished.items()],
    )
    page.histogram(
        "vllm:time_to_first_token_seconds", "From a request's arrival to its first token.", metrics.first_token
    )
    for name in "vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds":
        page.histogram(name, "Between tokens; those that come together share their time.", metrics.next_token)
    page.histogram("vllm:e2e_request_latency_seconds", "From a request's arrival to its end.", metrics.whole)
    counters = stats["metrics"]
    for name, key in ("draft", "tokens_proposed"), ("accepted", "tokens_accepted"):
        if key in counters:
            what = "were drafted" if name == "draft" else "were accepted"
            page.one(f"vllm:spec_decode_num_{name}_tokens_total", "counter", f"Tokens that {what}.", counters[key])
    increments = stats["increments"]
    if drafts := increments.get("tokens_proposed"):
        page.one("vllm:spec_decode_num_drafts_total", "counter", "Blocks of drafted tokens.", sum(drafts[1:]))
    if blocks := increments.get("tokens_accepted"):
        page.add(
            "vllm:spec_decode_num_accepted_tokens_per_pos_total",
            "counter",
            "Blocks of which the token at this position was accepted.",
            [(sum(blocks[place + 1 :]), {"position": str(place)}) for place in range(len(blocks) - 1)],
        )

    page.add(
        "megalith:pipeline_total",
        "counter",
        "Counters of the pipeline.",
        [(value, {"metric": name}) for name, value in counters.items()],
    )
    for key, about in ("ticks", "Ticks."), ("passes", "Passes of models."), ("rows", "Rows that passes had."):
        page.one(f"megalith:{key}_total", "counter", about, stats[key])
    page.one("megalith:kernel_launches_total", "counter", "Launches of the kernel.", stats["launches"])
    page.one("megalith:kernel_launched", "gauge", "Whether a kernel is on the device now.", int(stats["launched"]))
    page.one("megalith:slots", "gauge", "Slots of the pipeline.", len(stats["slots"]))
    for key in "pages", "used":
        page.add(
            f"megalith:pool_{key}",
            "gauge",
            "Pages of a KV pool" + (" that are used." if key == "used" else "."),
            [(pool[key], {"pool": pool["model"]}) for pool in pools],
        )
    if cached := [(pool["cached"], {"pool": pool["model"]}) for pool in pools if pool["cached"] is not None]:
        page.add("megalith:pool_cached", "gauge", "Pages that only the index of a KV pool has.", cached)
    page.one("megalith:refused_calls_total", "counter", "Calls that were told to come later.", metrics.refused)
    return "\n".join(page.lines) + "\n"
