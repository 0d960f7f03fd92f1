"""What the server keeps for the page, fed by hand with a clock of its own."""

import copy
import json

import pytest
from megalith import End, Event, State
from megalith.serve._history import BLOCKS, ENDED, SPAN, History, Recent, percentile
from megalith.serve._metrics import Metrics

STATES = [State("QUEUED", False, False), State("WORK", True, False), State("DONE", False, True)]


class Server:
    """A history whose clock and session are set."""

    def __init__(self, slots=2):
        self.now = 1000.0
        self.metrics = Metrics()
        self.history = History(self.metrics, STATES, clock=lambda: self.now)
        self.stats = {
            "slots": [{"request": None, "state": "", "generated": 0} for _ in range(slots)],
            "pools": [{"model": "target", "pages": 10, "used": 0, "cached": None}],
            "metrics": {},
            "increments": {},
            **dict.fromkeys(("generated_tokens", "prompt_tokens", "passes", "ticks"), 0),
        }

    def second(self, running=0, waiting=0, **rises):
        self.now += 1
        self.stats = {**self.stats, **{name: self.stats[name] + value for name, value in rises.items()}}
        self.history.sample(copy.deepcopy(self.stats), running, waiting)

    def told(self, after=0):
        return json.loads(self.history.answer(after))

    def news(self, record, tokens, state="WORK", end=None):
        record.tell(self.now, Event(record.number, None, [0] * tokens, state, end, 0.0), self.history.slot_states)


def test_percentiles_are_within_a_percent():
    times = [0.0003 * 1.01**number for number in range(1000)]
    recent = Recent()
    for time in times:
        recent.add(time)
    recent.close(0.0)
    for percent, found in zip((50, 95, 99), recent.percentiles(SPAN)):
        assert found == pytest.approx(sorted(times)[percent * 10 - 1], rel=0.01)
    assert percentile({}, 50) is None
    # Few times: the least that so many percent do not exceed. One that is 0 stays it.
    few = Recent()
    few.add(0.0)
    few.add(0.004, times=18)
    few.add(7.0)
    few.close(0.0)
    assert few.percentiles(SPAN) == pytest.approx([0.004, 0.004, 7.0], rel=0.01)
    assert few.summary()["count"] == 20
    few.close(SPAN)  # they are too old by now
    assert few.percentiles(SPAN) == [None, None, None] and not few.counts[SPAN] and not few.closed[SPAN]


def test_samples_are_of_ten_minutes():
    server = Server()
    for number in range(700):
        if number == 40:
            server.metrics.first_token.observe(0.25)
        server.second(running=1, generated_tokens=number)
    told = server.told()
    assert len(told["samples"]) == 600 and told["first"] == 100 and told["next"] == 700
    last = dict(zip(told["columns"], told["samples"][-1]))
    assert last["time"] == 1700 and last["seconds"] == 1 and last["generated_tokens"] == 699 and last["running"] == 1
    assert last["tokens_proposed"] is None and last["first_token"] == [None] * 3
    # Of what was more than ten minutes ago nothing counts; a minute before each point is what its percentiles are of.
    assert told["latencies"]["first_token"]["count"] == 0
    early = Server()
    early.metrics.first_token.observe(0.25)
    for _ in range(61):
        early.second()
    told = early.told()
    at = told["columns"].index("first_token")
    assert told["samples"][59][at] == pytest.approx([0.25] * 3, rel=0.01) and told["samples"][60][at] == [None] * 3
    assert told["latencies"]["first_token"]["p99"] == pytest.approx(0.25, rel=0.01)
    # Who has seen some is told of the rest. Who has seen another server's gets all.
    assert [sample[0] for sample in early.told(59)["samples"]] == [1060, 1061]
    assert early.told(61)["samples"] == [] and len(early.told(5000)["samples"]) == 61
    assert early.history.answer(59) is early.history.answer(59)


def test_slots_and_block_sizes():
    server = Server()
    server.stats["metrics"] = {"tokens_proposed": 0, "tokens_accepted": 0}
    server.stats["increments"] = {"tokens_accepted": [1, 2, 0]}
    server.stats["slots"][1] = {"request": 7, "state": "WORK", "generated": 3}
    server.second()
    server.stats["slots"] = [server.stats["slots"][0], {"request": 7, "state": "WORK", "generated": 8}]
    server.stats["metrics"] = {"tokens_proposed": 9, "tokens_accepted": 4}
    server.stats["increments"] = {"tokens_accepted": [1, 4, 1]}
    server.second()
    told = server.told()
    last = dict(zip(told["columns"], told["samples"][-1]))
    assert last["slots"] == [[-1, 0], [1, 5]] and last["states"] == [0, 1, 0]
    assert (last["tokens_proposed"], last["tokens_accepted"]) == (9, 4)
    assert told["sizes"] == {"tokens_accepted": [1, 4, 1]}
    for _ in range(601):
        server.second()
    assert server.told()["sizes"] == {"tokens_accepted": [0, 0, 0]}  # all of it is older
    many = Server(slots=17)
    many.second()
    assert many.told()["samples"][0][-1] is None


def test_the_way_of_a_request():
    server = Server()
    record = server.history.arrive(3, 5, 400, server.now)
    server.news(record, 0, "QUEUED")
    server.now += 0.5
    assert server.told()["requests"][0]["admitted"] is None
    server.news(record, 0, "WORK")
    server.now += 0.25
    server.news(record, 2)
    server.now += 0.125
    server.news(record, 3)
    server.second()
    told = server.told()["requests"][0]
    assert (told["admitted"], told["first"], told["last"], told["tokens"]) == (500, 750, 875, 5)
    assert told["blocks"] == [750, 2, 875, 3] and told["ended"] is None and told["text"] is None
    # Many blocks: neighbours become one, and all bars stay of as many.
    for _ in range(3 * BLOCKS):
        server.news(record, 1)
    assert len(record.blocks) <= BLOCKS and record.per == 4
    assert sum(count for _, count in record.blocks) == record.tokens == 5 + 3 * BLOCKS
    # The session's own times count where they are known.
    end = End("length", "DONE", "", "", "", 5, 149, 1, 1, 100.0, 350.0, 900.0, 2000.0)
    server.news(record, 0, "DONE", end)
    server.history.end(record, "length", "", None)
    server.second()
    told = server.told(1)["requests"]
    assert told[0]["admitted"] == 250 and told[0]["finish"] == "length" and told[0]["ended"] is not None
    assert server.told(2)["requests"] == []  # it was told of before


def test_memory_is_bounded():
    server = Server()
    for number in range(3 * ENDED):
        record = server.history.arrive(number, 1, 1, server.now)
        server.history.end(record, "abort", "", None)
        server.history.end(record, "stop", "", None)  # once is enough
    told = server.told()["requests"]
    assert len(told) == ENDED and told[0]["number"] == 3 * ENDED - 1 and not server.history.open
    assert {each["finish"] for each in told} == {"abort"}
