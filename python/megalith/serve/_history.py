"""What was: the last ten minutes, a sample each second, and the last requests. All who look see the same.

Memory is bounded: SPAN samples, times in buckets of a fixed number, the requests that the session may have, and ENDED
that have ended.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .._events import Event
    from .._program import State
    from ._metrics import Metrics

SPAN = 600.0
"""Seconds that are kept."""
TRAIL = 60.0
"""Seconds of which the percentiles of a sample are."""
EVERY = 1.0
ENDED = 100
"""Requests that have ended, and are still told of."""
TOLD = 512
"""Requests that have not ended, and are told of."""
BLOCKS = 48
"""Blocks of a request that are kept apart. Of more, neighbours become one."""
STRIPS = 16
"""Of pipelines with more slots, no history of each is kept."""
INCREMENTS = ("tokens_committed", "tokens_proposed", "tokens_accepted")
"""Of the pipeline's metrics. How much a `count` adds is the size of a block, and what was drafted and accepted of it."""

# ===----------------------------------------------------------------------===#
# Percentiles
# ===----------------------------------------------------------------------===#

_GROWTH = 1.02
_LEAST = 1e-6
_MOST = math.ceil(math.log(1e5 / _LEAST) / math.log(_GROWTH))


def _bucket(seconds: float) -> int:
    """Bucket i has times above LEAST * GROWTH^(i-1), up to LEAST * GROWTH^i; 0 those up to LEAST."""
    if seconds <= _LEAST:
        return 0
    return min(_MOST, math.ceil(math.log(seconds / _LEAST) / math.log(_GROWTH)))


def _middle(bucket: int) -> float:
    """Within 1 % of all times of the bucket."""
    return 0.0 if bucket == 0 else 2 * _LEAST * _GROWTH**bucket / (1 + _GROWTH)


def percentile(counts: Mapping[int, int], percent: int) -> float | None:
    """The least time that so many percent of all do not exceed. None: there is no time."""
    rank = -(-sum(counts.values()) * percent // 100)
    for bucket in sorted(counts):
        rank -= counts[bucket]
        if rank <= 0:
            return _middle(bucket)
    return None


class Recent:
    """Times of the last seconds, in buckets 2 % wide."""

    def __init__(self, spans: Sequence[float] = (SPAN, TRAIL)) -> None:
        self.new: Counter[int] = Counter()
        """Since the last close()."""
        self.closed = {span: deque[tuple[float, Counter[int]]]() for span in spans}
        self.counts = {span: Counter[int]() for span in spans}

    def add(self, seconds: float, times: int = 1) -> None:
        self.new[_bucket(seconds)] += times

    def close(self, now: float) -> None:
        """What was added until now counts from now on, for as long as a span."""
        for span, closed in self.closed.items():
            counts = self.counts[span]
            if self.new:
                closed.append((now, self.new))
                counts.update(self.new)
            while closed and closed[0][0] <= now - span:
                for bucket, count in closed.popleft()[1].items():
                    counts[bucket] -= count
                    if not counts[bucket]:
                        del counts[bucket]
        self.new = Counter()

    def percentiles(self, span: float) -> list[float | None]:
        """50, 95 and 99."""
        return [percentile(self.counts[span], percent) for percent in (50, 95, 99)]

    def summary(self) -> dict[str, Any]:
        p50, p95, p99 = self.percentiles(SPAN)
        return {"count": sum(self.counts[SPAN].values()), "p50": p50, "p95": p95, "p99": p99}


# ===----------------------------------------------------------------------===#
# Requests
# ===----------------------------------------------------------------------===#


class Record:
    """A request's way: when it came, got its slot, its tokens, and ended. Times are of the server's clock."""

    def __init__(self, number: int, prompt_tokens: int, budget: int, arrived: float) -> None:
        self.number, self.prompt_tokens, self.budget, self.arrived = number, prompt_tokens, budget, arrived
        self.admitted: float | None = None
        self.first: float | None = None
        self.last: float | None = None
        self.ended: float | None = None
        self.state = ""
        self.slot: int | None = None
        self.tokens = 0
        self.blocks: list[list[float]] = []
        """Time and tokens: of `per` blocks each, the last one of up to so many."""
        self.per = 1
        self.count = 0
        self.finish = ""
        self.why = ""
        self.text: str | None = None
        self.sample = 0
        """That was to come when it ended."""

    def tell(self, now: float, event: Event, slots: frozenset[str]) -> None:
        """The session has news. An event with tokens is a block; what comes at once is one."""
        self.state = event.state or self.state
        if self.admitted is None and (event.tokens or event.state in slots):
            self.admitted = now
        if event.end is not None and event.end.admitted >= event.end.submitted >= 0:  # it knows better
            self.admitted = self.arrived + (event.end.admitted - event.end.submitted) / 1000
            if self.first is not None:
                self.admitted = min(self.admitted, self.first)
        if not event.tokens:
            return
        self.first = now if self.first is None else self.first
        self.last = now
        self.tokens += len(event.tokens)
        if self.count % self.per == 0:
            if len(self.blocks) == BLOCKS:
                pairs = zip(self.blocks[::2], self.blocks[1::2])
                self.blocks = [[second[0], first[1] + second[1]] for first, second in pairs]
                self.per *= 2
            self.blocks.append([now, 0])
        self.blocks[-1] = [now, self.blocks[-1][1] + len(event.tokens)]
        self.count += 1

    def told(self) -> dict[str, Any]:
        """For the page. Times are milliseconds since it came."""

        def since(at: float | None) -> float | None:
            return None if at is None else round(1000 * (at - self.arrived), 2)

        return {
            "number": self.number,
            "arrived": round(self.arrived, 3),
            "slot": self.slot,
            "state": self.state,
            "prompt_tokens": self.prompt_tokens,
            "budget": self.budget,
            "tokens": self.tokens,
            "admitted": since(self.admitted),
            "first": since(self.first),
            "last": since(self.last),
            "ended": since(self.ended),
            "blocks": [value for at, count in self.blocks for value in (since(at), count)],
            "per": self.per,
            "finish": self.finish,
            "why": self.why,
            "text": self.text,
        }


# ===----------------------------------------------------------------------===#
# Samples
# ===----------------------------------------------------------------------===#

COLUMNS = (
    "time",
    "seconds",
    "generated_tokens",
    "prompt_tokens",
    "passes",
    "ticks",
    "tokens_proposed",
    "tokens_accepted",
    "running",
    "waiting",
    "first_token",
    "next_token",
    "pools",
    "cached",
    "states",
    "slots",
)
"""Of a sample. Counts are those of its seconds. `first_token` and `next_token` are percentiles, `pools` used pages, `cached`
those that only the index of a pool has (null: it has none), `states` how many slots are in each state, and `slots` for each
its state and the tokens that its request got."""

_COUNTS = ("generated_tokens", "prompt_tokens", "passes", "ticks")


class History:
    def __init__(
        self, metrics: Metrics, states: Sequence[State] = (), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.metrics, self.states, self.clock = metrics, list(states), clock
        self.places = {state.name: place for place, state in enumerate(states)}
        self.slot_states = frozenset(state.name for state in states if state.slot)
        self.started = time.time()
        self.samples: deque[list[Any]] = deque()
        self.number = 0
        """Of the next sample."""
        self.increments: deque[tuple[float, dict[str, array[int]]]] = deque()
        self.open: dict[int, Record] = {}
        self.ended: deque[Record] = deque(maxlen=ENDED)
        self.last: Mapping[str, Any] | None = None
        self.last_time = clock()
        self.answers: dict[int, bytes] = {}

    # -- Requests --

    def arrive(self, number: int, prompt_tokens: int, budget: int, arrived: float) -> Record:
        record = self.open[number] = Record(number, prompt_tokens, budget, arrived)
        return record

    def end(self, record: Record, finish: str, why: str, text: str | None) -> None:
        if self.open.pop(record.number, None) is None:
            return
        record.ended, record.finish, record.why, record.text = self.clock(), finish, why, text
        record.sample = self.number
        self.ended.append(record)

    def place(self, stats: Mapping[str, Any]) -> None:
        """Which slots they have. One that was there shorter than between two looks was not seen in any."""
        for index, slot in enumerate(stats["slots"]):
            if (record := self.open.get(slot["request"])) is not None:
                record.slot = index

    # -- Samples --

    def sample(self, stats: Mapping[str, Any], running: int, waiting: int) -> None:
        """After each second: the session as it stands now."""
        now, before = self.clock(), self.last
        self.answers.clear()
        self.place(stats)
        for times in (self.metrics.first_token, self.metrics.next_token, self.metrics.whole):
            times.recent.close(now)
        metrics = stats["metrics"]

        def rise(name: str) -> int:
            return stats[name] - (before[name] if before else 0)

        def metric(name: str) -> int | None:
            return metrics[name] - (before["metrics"].get(name, 0) if before else 0) if name in metrics else None

        states, slots = [0] * len(self.states), []
        for index, slot in enumerate(stats["slots"]):
            place = -1 if slot["request"] is None else self.places.get(slot["state"], -1)
            if place >= 0:
                states[place] += 1
            then = before["slots"][index] if before else None
            is_same = then and slot["request"] is not None and then["request"] == slot["request"]
            slots.append([place, slot["generated"] - then["generated"] if then and is_same else slot["generated"]])
        self.samples.append(
            [
                round(now, 3),
                round(now - self.last_time, 3),
                *map(rise, _COUNTS),
                metric("tokens_proposed"),
                metric("tokens_accepted"),
                running,
                waiting,
                _rounded(self.metrics.first_token.recent.percentiles(TRAIL)),
                _rounded(self.metrics.next_token.recent.percentiles(TRAIL)),
                [pool["used"] for pool in stats["pools"]],
                [pool["cached"] for pool in stats["pools"]],
                states,
                slots if len(slots) <= STRIPS else None,
            ]
        )
        self.number += 1
        while self.samples[0][0] <= now - SPAN:
            self.samples.popleft()
        told = stats["increments"]
        self.increments.append((now, {name: array("q", told[name]) for name in INCREMENTS if name in told}))
        while len(self.increments) > 1 and self.increments[1][0] <= now - SPAN:  # one more: what was before
            self.increments.popleft()
        self.last, self.last_time = stats, now

    async def watch(self, stats: Callable[[], tuple[Mapping[str, Any], int, int]]) -> None:
        """Takes a sample each second."""
        while True:
            await asyncio.sleep(EVERY)
            self.sample(*stats())

    # -- What is told --

    def sizes(self) -> dict[str, list[int]]:
        """How often blocks of 0, 1, ... tokens were, within the span."""
        if not self.increments:
            return {}
        newest = self.increments[-1][1]
        # Before the first sample there was nothing.
        oldest = self.increments[0][1] if self.number > len(self.increments) else {}
        return {
            name: [now - then for now, then in zip(counts, oldest.get(name) or [0] * len(counts))]
            for name, counts in newest.items()
        }

    def requests(self, after: int) -> Iterator[Record]:
        """Those that wait in their order, then those that run, and those that have ended since, the last one first."""
        waiting = [record for record in self.open.values() if record.admitted is None]
        running = [record for record in self.open.values() if record.admitted is not None]
        yield from waiting[: max(0, TOLD - len(running))]
        yield from running[:TOLD]
        yield from (record for record in reversed(self.ended) if record.sample >= after)

    def answer(self, after: int) -> bytes:
        """JSON: samples from number `after` on, requests that have ended since, and all that is of now. Until the next
        sample all get the same."""
        first = self.number - len(self.samples)
        after = after if first <= after <= self.number else 0
        begin = max(after, first)
        if after not in self.answers:
            told = {
                "started": self.started,
                "time": self.clock(),
                "wall": time.time(),
                "span": SPAN,
                "trail": TRAIL,
                "keeps": ENDED,
                "columns": COLUMNS,
                "first": begin,
                "next": self.number,
                "samples": [self.samples[at] for at in range(begin - first, len(self.samples))],
                "latencies": {
                    "first_token": self.metrics.first_token.recent.summary(),
                    "next_token": self.metrics.next_token.recent.summary(),
                    "whole": self.metrics.whole.recent.summary(),
                },
                "sizes": self.sizes(),
                "requests": [record.told() for record in self.requests(after)],
            }
            self.answers[after] = json.dumps(told, separators=(",", ":")).encode()
        return self.answers[after]


def _rounded(times: Sequence[float | None]) -> list[float | None]:
    """Four digits are more than they have."""
    return [None if each is None else float(f"{each:.4g}") for each in times]
