"""Sessions: events, iterators, asyncio, many at once, how they end."""

import asyncio
import dataclasses
import gc
import json
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time

import megalith
import numpy as np
import pytest
from conftest import DEMO, PROMPTS
from megalith._requests import RequestMembers
from serving import wait_for, wait_until_asleep

# ===----------------------------------------------------------------------===#
# On the reference executor
# ===----------------------------------------------------------------------===#


@pytest.fixture
def session(kernel):
    session = kernel.session(places=8, queue=64)
    yield session
    session.close()


def test_events(session, expected):
    users = {session.submit(prompt, 12, user={"prompt": prompt}): prompt for prompt in PROMPTS}
    assert sorted(users) == [0, 1, 2, 3]
    tokens, ends = {number: [] for number in users}, {}
    while len(ends) < 4:
        event = session.next(timeout=30)
        assert event.user == {"prompt": users[event.request]} and event.request not in ends
        tokens[event.request] += event.tokens
        if event.end:
            ends[event.request] = event.end
    assert {users[number]: got for number, got in tokens.items()} == expected
    assert {end.finish for end in ends.values()} == {"length"}
    assert all(end.generated == 12 and end.prompt_tokens == len(users[n]) for n, end in ends.items())
    assert all(0 <= end.submitted <= end.admitted <= end.first_token <= end.ended for end in ends.values())
    assert session.next(timeout=0.01) is None and not session.done
    session.stop()
    assert session.next() is None and session.done


def test_a_trace(kernel):
    with kernel.session(places=2, seed=3, trace=1 << 20) as session:
        assert session.options["trace"] == 1 << 20
        with pytest.raises(megalith.Error, match="call `stop`"):
            session.trace()
        numbers = [session.submit(prompt, 6, temperature=0.9, stop=["e"], deadline_ms=60000) for prompt in PROMPTS]
        session.cancel(numbers[1])
    made = session.trace()
    requests = []
    for line in made.requests.splitlines():
        one = json.loads(line)
        assert 0 < one["deadline_ms"] <= 60000 and one["stop"] == [[101]]
        one.update(one.pop("sampling"), prompt=one.pop("tokens"))
        requests.append(one)
    again = kernel.run(requests, seed=3, trace=True, replay=made.trace)
    assert again.messages == [] and again.trace == made.trace
    changed = made.trace.replace('"events":[{"arrives":0}', '"events":[{"arrives":1}', 1)
    assert changed != made.trace
    assert [message.kind for message in kernel.run(requests, seed=3, replay=changed).messages] == ["replay-differs"]


def test_an_iterator(session, expected):
    generation = session.generate(PROMPTS[0], 12)
    assert generation.end is None
    assert list(generation) == expected[PROMPTS[0]]
    assert generation.end.finish == "length" and list(generation) == []
    events = list(session.generate(PROMPTS[1], 12).events())
    assert [token for event in events for token in event.tokens] == expected[PROMPTS[1]]
    assert events[-1].end and not any(event.end for event in events[:-1])


def test_many_iterators_on_many_threads(session, expected):
    got = {}

    def work(number):
        prompt = PROMPTS[number % 4]
        got[number] = prompt, list(session.generate(prompt, 12))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 16 and all(tokens == expected[prompt] for prompt, tokens in got.values())


def test_asyncio(session, expected):
    async def one(prompt):
        return prompt, [token async for token in session.agenerate(prompt, 12)]

    async def all_of_them():
        return await asyncio.gather(*(one(PROMPTS[number % 4]) for number in range(12)))

    assert all(tokens == expected[prompt] for prompt, tokens in asyncio.run(all_of_them()))


def test_logprobs(kernel, expected):
    (result,) = kernel.run([megalith.Request(PROMPTS[0], 12)], logits=True)
    with kernel.session(logit_lines=24) as session:
        generations = [session.generate(PROMPTS[0], 12, logprobs=most) for most in (None, 0, 3)]
        events = [list(generation.events()) for generation in generations]
        tokens = [[token for event in some for token in event.tokens] for some in events]
        none, own, three = ([each for event in some for each in event.logprobs] for some in events)
        assert tokens == [expected[PROMPTS[0]]] * 3 and none == [] and len(own) == len(three) == 12
        rows = result.logits.astype(np.float64)
        rows -= np.log(np.exp(rows).sum(axis=1, keepdims=True))
        for row, token, a, b in zip(rows, tokens[0], own, three):
            assert a.logprob == b.logprob == pytest.approx(row[token]) and a.likeliest == []
            order = sorted(range(len(row)), key=lambda token: -row[token])[:3]
            assert b.likeliest == [(each, pytest.approx(row[each])) for each in order]
        with pytest.raises(megalith.Error, match="needs 25 rows of logits, and the session has 24") as caught:
            session.submit(PROMPTS[0], 25, logprobs=0)
        assert caught.value.kind == "live-lines"
        with pytest.raises(megalith.Error, match="live-logprobs"):
            session.submit(PROMPTS[0], 5, logprobs=21)


def test_prompt_logprobs(kernel, expected):
    with kernel.session(logit_lines=60) as session:
        whole = session.generate(PROMPTS[0], 12, logprobs=2)
        made = [each for event in whole.events() for each in event.logprobs]
        text = list(PROMPTS[0].encode()) + expected[PROMPTS[0]]
        scored = session.generate(text, 0, prompt_logprobs=2)
        assert list(scored) == [] and scored.end.finish == "length" and scored.end.generated == 0
        assert len(scored.prompt_logprobs) == len(text) and scored.prompt_logprobs[0].logprob is None
        assert scored.prompt_logprobs[len(PROMPTS[0].encode()) :] == made and made[0].rank == 1
        with pytest.raises(megalith.Error, match="ask for those of a shorter prompt"):
            session.submit([65] * 60, 2, prompt_logprobs=0)


def test_stop_sequences(session):
    stream = session.generate(PROMPTS[0], 12, stop=["wor"])
    assert bytes(stream) == b"of the wor" and stream.end.finish == "stop"


def test_events_beside_iterators(session, expected):
    generation = session.generate(PROMPTS[0], 12)
    number = session.submit(PROMPTS[1], 12, user="mine")
    tokens = []
    while True:
        event = session.next(timeout=30)
        assert (event.request, event.user) == (number, "mine")
        tokens += event.tokens
        if event.end:
            break
    assert tokens == expected[PROMPTS[1]] and list(generation) == expected[PROMPTS[0]]


def test_a_loop_that_is_left_cancels(session):
    generation = session.generate(PROMPTS[0], 1500)
    assert next(generation) >= 0
    del generation
    gc.collect()
    wait_for(lambda: session.stats()["ended"].get("cancelled") == 1)
    assert session.stats()["ended"] == {"cancelled": 1}


def test_cancelling(session):
    number = session.submit(PROMPTS[0], 1500)
    assert session.next(timeout=30).request == number
    session.cancel(number)
    while not (event := session.next(timeout=30)).end:
        pass
    assert event.end.finish == "cancelled"
    session.cancel(number)  # it has ended
    with pytest.raises(megalith.Error) as caught:
        session.cancel(99)
    assert caught.value.kind == "live-request"

    generation = session.generate(PROMPTS[0], 1500)
    next(generation)
    generation.cancel()
    assert len(list(generation)) < 1499 and generation.end.finish == "cancelled"


def test_stopping_lets_requests_end(session, expected):
    generation = session.generate(PROMPTS[0], 12)
    session.stop()
    assert list(generation) == expected[PROMPTS[0]]
    with pytest.raises(megalith.Error) as caught:
        session.generate(PROMPTS[0], 12)
    assert caught.value.kind == "live-stopped"


def test_stopping_at_once_ends_them(session):
    generation = session.generate(PROMPTS[0], 1500)
    next(generation)
    session.stop(now=True)
    assert len(list(generation)) < 1499 and generation.end.finish == "limit"
    assert session.done


def test_with_waits_for_what_runs(kernel, expected):
    with kernel.session() as session:
        session.submit(PROMPTS[0], 12)
    assert [token for event in session for token in event.tokens] == expected[PROMPTS[0]]


def test_an_exception_ends_at_once(kernel):
    with pytest.raises(RuntimeError):
        with kernel.session() as session:
            session.submit(PROMPTS[0], 1500)
            raise RuntimeError
    assert [event.end.finish for event in session if event.end] == ["limit"]


def test_a_session_owns_its_kernel(session, kernel, expected):
    with pytest.raises(megalith.Error) as caught:
        kernel.run([megalith.Request([65], 1)])
    assert caught.value.kind == "kernel-busy"
    session.close()
    assert kernel.run([megalith.Request(PROMPTS[0], 12)])[0].tokens.tolist() == expected[PROMPTS[0]]


def test_a_full_session_says_so(kernel):
    with kernel.session(places=1, queue=1) as session:
        first = session.generate(PROMPTS[0], 1900, eos=[])
        next(first)  # it has its place
        session.submit(PROMPTS[0], 1900)
        for timeout in 0, 0.2:
            started = time.monotonic()
            with pytest.raises(megalith.Error) as caught:
                session.submit(PROMPTS[0], 1900, timeout=timeout)
            assert caught.value.kind == "live-full" and time.monotonic() - started >= timeout
        with pytest.raises(megalith.Error):
            session.generate(PROMPTS[0], 1900, timeout=0.1)
        session.close()


def test_what_can_never_run_is_refused_at_once(session):
    for prompt, members, kind in [
        ([999], {}, "request-token-range"),
        ([], {}, "request-empty-prompt"),
        ([1], {"inputs": {"x": 1}}, "request-input"),
        ([1] * 10, {"max_new_tokens": 10**6}, "request-too-large"),
    ]:
        with pytest.raises(megalith.Error) as caught:
            session.submit(prompt, **{"max_new_tokens": 1, **members})
        assert caught.value.kind == kind
    with pytest.raises(megalith.Error):
        session.generate([999], 1)
    with pytest.raises(TypeError, match="list of integers"):
        session.submit([1.5], 1)
    assert session.submit([65], 1) == 0


def test_a_request_is_one(session, expected):
    request = megalith.Request(PROMPTS[0], 12)
    assert list(session.generate(request)) == expected[PROMPTS[0]]
    assert session.submit(request, user="mine") == 1
    with pytest.raises(TypeError, match="takes no other ones"):
        session.submit(request, seed=3)
    with pytest.raises(TypeError, match="`arrives` is for batches"):
        session.submit(megalith.Request(PROMPTS[0], 12, arrives={"tick": 3}))
    with pytest.raises(TypeError, match="temprature"):
        session.submit(PROMPTS[0], 12, temprature=0.5)


def test_members_by_name_are_those_of_a_request():
    by_name = {"prompt", "max_new_tokens", *RequestMembers.__annotations__}
    members = {each.name: each.type for each in dataclasses.fields(megalith.Request) if each.name[0] != "_"}
    assert by_name == set(members) - {"arrives", "cancelled"}
    for name, kind in RequestMembers.__annotations__.items():
        assert kind.__forward_arg__ == members[name]


def test_without_a_budget_there_is_all_the_room(kernel):
    with kernel.session(max_tokens=40) as session:
        assert session.options["max_tokens"] == 40
        assert len(list(session.generate(PROMPTS[0]))) == 40 - len(PROMPTS[0])


def test_stats(session, expected):
    list(session.generate(PROMPTS[0], 12))
    stats = session.stats()
    assert stats["running"] == stats["waiting"] == 0 and stats["ended"] == {"length": 1}
    assert stats["prompt_tokens"] == len(PROMPTS[0]) and stats["generated_tokens"] == 12
    assert len(stats["slots"]) == 8 and all(slot["request"] is None for slot in stats["slots"])
    assert [(pool["model"], pool["pages"], pool["used"]) for pool in stats["pools"]] == [("target", 512, 0)]
    assert stats["metrics"]["tokens_committed"] == 12
    assert sum(by * times for by, times in enumerate(stats["increments"]["tokens_committed"])) == 12


def test_draws_are_those_of_a_batch(kernel, session):
    (alone,) = kernel_results(kernel, session, PROMPTS[0], 12, temperature=1.5, seed=3)
    assert alone[0] == alone[1]


def kernel_results(kernel, session, prompt, budget, **members):
    streamed = list(session.generate(prompt, budget, **members))
    session.close()
    (result,) = kernel.run([megalith.Request(prompt, budget, **members)])
    yield streamed, result.tokens.tolist()


SCRIPT = f"""
import megalith, sys, threading
kernel = megalith.compile(megalith.pipeline("sampled"), {str(DEMO)!r}).load("reference")
session = kernel.session()
"""


def run_script(script, interrupt=False):
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT + script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    if interrupt:
        assert process.stdout.readline() == "ready\n"
        wait_until_asleep(process.pid)
        process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=600)
    return out, error, process.returncode


@pytest.mark.parametrize(
    "wait",
    [
        "session.next()",
        "list(session.generate([65], 1900))",
        "stream = session.generate([65], 1900); session.stop()",
        "while True: session.submit([65], 1900, timeout=None)",
    ],
)
def test_ctrl_c_works_while_waiting(wait):
    script = f"""
try:
    print("ready", flush=True)
    {wait}
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    out, error, code = run_script(script, interrupt=True)
    assert (out, error, code) == ("interrupted\n", "", 0)


def test_a_process_may_end_while_a_session_is_open():
    out, error, code = run_script(
        """
generations = [session.generate([65 + number], 1900) for number in range(8)]
print(next(generations[0]) >= 0)
begun = threading.Event()
threading.Thread(target=lambda: [begun.set() for _ in generations[1]], daemon=True).start()
begun.wait()
"""
    )
    assert (out, error, code) == ("True\n", "", 0)


# ===----------------------------------------------------------------------===#
# What the library tells is made up
# ===----------------------------------------------------------------------===#


class MadeUp:
    """In place of the library's session."""

    def __init__(self):
        self.events, self.requests, self.cancelled, self.stopped = queue.Queue(), {}, [], False
        self.failure = None

    def options(self):
        return {"max_tokens": 100}

    def submit(self, request, key, timeout):
        number = 10 * len(self.requests)
        self.requests[number] = key
        return number

    def next(self, milliseconds, most):
        if self.failure:
            raise self.failure
        try:
            return [self.events.get(timeout=0.02 if milliseconds < 0 else min(0.02, milliseconds / 1000))]
        except queue.Empty:
            return []

    def cancel(self, number):
        self.cancelled.append(number)

    def stop(self, now):
        self.stopped = True

    def done(self):
        return self.stopped and self.events.empty()

    def tell(self, number, tokens, **end):
        members = dict.fromkeys(("state", "fault", "fault_state", "place"), "")
        members |= dict.fromkeys(("prompt_tokens", "generated", "passes", "rows"), 0)
        members |= dict.fromkeys(("submitted", "admitted", "first_token", "ended"), -1.0)
        self.events.put((number, self.requests[number], tokens, "RUN", members | end if end else None, 1.0, [], [], 0))


@pytest.fixture
def made_up(kernel, monkeypatch):
    core = MadeUp()
    monkeypatch.setattr(megalith._core, "open_live", lambda kernel, options: core)
    session = megalith.Session(kernel)
    yield core, session
    session.close()


def test_each_iterator_gets_its_own_events_in_order(made_up):
    core, session = made_up
    generations = [session.generate([65], 9) for _ in range(20)]
    sent = {generation.number: [] for generation in generations}
    chance = random.Random(3)
    for token in range(500):
        number = chance.choice(list(sent))
        sent[number].append(token)
        core.tell(number, [token])
    for number in sent:
        core.tell(number, [], finish="length")
    for generation in generations:
        assert list(generation) == sent[generation.number]


def test_a_fault_is_raised_after_the_tokens(made_up):
    core, session = made_up
    generation = session.generate([65], 9)
    core.tell(generation.number, [1, 2])
    core.tell(generation.number, [3], finish="fault", fault="KV_FULL", fault_state="RUN", place="p.yaml:7")
    assert [next(generation) for _ in range(3)] == [1, 2, 3]
    with pytest.raises(megalith.Error) as caught:
        next(generation)
    message = caught.value.first
    assert (message.kind, message.file, message.line) == ("request-faulted", "p.yaml", 7)
    assert str(caught.value).startswith("p.yaml:7: error: request 0 faulted: KV_FULL: ")
    assert megalith.fault_text("KV_FULL") in str(caught.value)


FAULTY = """pipeline: faulty
models: {target: {}}
params: {slots: 2}
states:
  fault: FAILED
  QUEUED: {initial: true, next: [WORK]}
  WORK: {slot: true, next: [WORK, DONE]}
  DONE: {terminal: true}
  FAILED: {terminal: true}
kv:
  target: {pages: 64, page_tokens: 16}
stages:
  admit: {on: QUEUED, do: [], goto: WORK}
  work:
    on: WORK
    do:
      - append([tokens[budget + 90]])
    goto: DONE if finished else WORK
"""


def test_a_fault_tells_its_numbers():
    program = megalith.compile("faulty.yaml", DEMO, texts={"faulty.yaml": FAULTY})
    kernel = program.load("reference")
    with kernel.session() as session:
        with pytest.raises(megalith.Error, match="INDEX_RANGE: .*; it was 99, and there are 3 "):
            list(session.generate([65, 66, 67], 9))
        number = session.submit([65], 9)
        while not (event := session.next()).end:
            pass
        assert (event.request, event.end.fault_detail) == (number, "it was 99, and there are 1")
    result = kernel.run([megalith.Request([65, 66], max_new_tokens=4)]).requests[0]
    assert (result.fault, result.fault_detail) == ("INDEX_RANGE", "it was 94, and there are 2")


def test_a_kernel_that_fails_tells_all_who_wait(made_up):
    core, session = made_up
    generations = [session.generate([65], 9) for _ in range(3)]
    session.submit([65], 9)
    core.tell(0, [5])
    assert next(generations[0]) == 5
    got = []

    def wait():
        try:
            session.next()
        except megalith.Error as error:
            got.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    core.failure = megalith.Error([megalith.Message("kernel-stopped", "it stopped")])
    for generation in generations:
        with pytest.raises(megalith.Error, match="it stopped"):
            next(generation)
    thread.join()
    assert got == [core.failure] and session.done


def test_an_iterator_begun_while_next_waits_gets_its_events(made_up):
    core, session = made_up
    events = []
    number = session.submit([65], 9, user=1)
    thread = threading.Thread(target=lambda: events.append(session.next()))
    thread.start()
    wait_until_asleep(os.getpid(), thread.native_id)
    generation = session.generate([65], 9)
    core.tell(generation.number, [7], finish="length")
    assert list(generation) == [7]
    core.tell(number, [8])
    thread.join()
    assert [(event.request, event.user, event.tokens) for event in events] == [(number, 1, [8])]


def test_asyncio_cancels_what_is_left(made_up):
    core, session = made_up

    async def work():
        generation = session.agenerate([65], 9)
        core.tell(generation.number, [1, 2])
        got = [await anext(generation)]
        await generation.aclose()
        left = session.agenerate([65], 9)
        number = left.number
        del left
        return got, number

    got, number = asyncio.run(work())
    assert got == [1] and core.cancelled == [0, number]


def test_tokens_that_end_a_text_for_the_tokenizer_end_requests(kernel, expected):
    from megalith import text

    prompt = PROMPTS[0]
    end = expected[prompt][4]
    tokenizer = text.ByteTokenizer([257, end, 10**6])  # one that the model does not have
    with kernel.session(tokenizer=tokenizer) as session:
        stream = session.generate(prompt, 12)
        tokens = list(stream)
        assert stream.end.finish == "stop" and tokens == expected[prompt][: expected[prompt].index(end) + 1]
        assert list(stream.prompt) == list(prompt.encode())
        assert list(session.generate(prompt, 12, eos=[])) == expected[prompt]
    with kernel.session() as session:
        assert list(session.generate(prompt, 12)) == expected[prompt]
