"""Replicas on Ray Serve: a cluster on this machine, on the reference executor. It takes minutes, and runs where Ray is
installed: `pip install '.[ray]'`."""

import asyncio
import collections
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time

import pytest
from conftest import DEMO, PROMPTS
from serving import wait_for, wait_in_loop_for

ray = pytest.importorskip("ray")
openai = pytest.importorskip("openai")
httpx = pytest.importorskip("httpx")
from megalith.serve import ray as scaled  # noqa: E402
from ray import serve  # noqa: E402

BASE = "http://127.0.0.1:8000"
WORDS = ["light", "water", "earth", "stars", "beasts", "fowl", "seed", "tree", "fruit", "day", "night", "seas"]


@pytest.fixture(scope="module", autouse=True)
def cluster():
    ray.init(num_cpus=8, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    serve.shutdown()
    ray.shutdown()


def run(pipeline="sampled", **options):
    serve.run(scaled.build(pipeline, str(DEMO), device="reference", cpus=0.5, **options), route_prefix="/")
    wait_for(lambda: len(replicas()) == options.get("replicas", 2))


def replicas():
    answer = httpx.get(f"{BASE}/health", timeout=60)
    return [name for name, is_well in answer.json()["replicas"].items() if is_well]


def metrics(name):
    """A metric's samples, by replica."""
    text = httpx.get(f"{BASE}/metrics", timeout=60).text
    out = collections.Counter()
    for replica, value in re.findall(rf'^{re.escape(name)}{{replica="([^"]*)".*}} (\S+)$', text, re.MULTILINE):
        out[replica] += float(value)
    return out


def client():
    return openai.OpenAI(base_url=f"{BASE}/v1", api_key="none", max_retries=0, timeout=120)


def aclient():
    return openai.AsyncOpenAI(base_url=f"{BASE}/v1", api_key="none", max_retries=0, timeout=120)


def asked(i):
    return {
        "model": "demo",
        "prompt": f"{PROMPTS[i % 4]}{WORDS[i % 12]} {i} ",
        "max_tokens": 6 + i % 5,
        "seed": i,
        "temperature": 0 if i % 3 == 0 else 0.8,
    }


async def text_of(api, ask, stream):
    if not stream:
        return (await api.completions.create(**ask)).choices[0].text
    pieces = [chunk async for chunk in await api.completions.create(**ask, stream=True)]
    return "".join(piece.choices[0].text for piece in pieces)


@pytest.mark.parametrize("pipeline", ["sampled", "speculative_lookup", "structured"])
def test_texts_are_those_of_one_server(pipeline):
    """200 requests in all, of which half are streams, on two replicas."""
    from serving import Served

    asks = [asked(i) for i in range(68)]
    if pipeline == "speculative_lookup":
        for ask in asks:
            ask["temperature"] = 0
    with Served(pipeline) as one:
        api = openai.OpenAI(base_url=f"{one.url}/v1", api_key="none")
        wanted = [api.completions.create(**ask).choices[0].text for ask in asks]
    run(pipeline)

    async def all_of_them():
        async with aclient() as api:
            return await asyncio.gather(*(text_of(api, ask, i % 2 == 1) for i, ask in enumerate(asks)))

    assert asyncio.run(all_of_them()) == wanted
    counts = metrics("vllm:request_success_total")
    assert sum(counts.values()) == len(asks) and min(counts.values()) > 0
    with client() as api:  # each replica gives one text for one seed
        ask = asked(1)
        texts = set()
        for name in replicas():
            answer = api.completions.with_raw_response.create(**dict(ask, extra_headers={"x-megalith-replica": name}))
            assert answer.headers["x-megalith-replica"] == name
            texts.add(answer.parse().choices[0].text)
        assert len(texts) == 1
        with pytest.raises(openai.NotFoundError, match="there is no replica `nobody`"):
            api.completions.create(**dict(ask, extra_headers={"x-megalith-replica": "nobody"}))
        with pytest.raises(openai.BadRequestError, match="temperature"):
            api.completions.create(**dict(asked(0), temperature=-1))


def test_talks_stay_where_their_prefix_is():
    """50 talks of 4 turns on four replicas, with one system prompt."""
    run("prefix_cache", replicas=4, set=["kv_pages=256", "page_tokens=16"])
    where, total = collections.defaultdict(list), collections.Counter()

    async def talk(api, number):
        text = f"System: be brief. User {number}: In the beginning of {WORDS[number % 12]} {number * 7919 % 1000}, " + "x " * 120
        for _ in range(4):
            answer = await api.completions.with_raw_response.create(model="demo", prompt=text, max_tokens=4, temperature=0)
            where[number].append(answer.headers["x-megalith-replica"])
            total[where[number][-1]] += 1
            text += answer.parse().choices[0].text + " and "

    async def all_of_them():
        async with aclient() as api:
            gate = asyncio.Semaphore(8)

            async def one(number):
                async with gate:
                    await talk(api, number)

            await asyncio.gather(*map(one, range(50)))

    asyncio.run(all_of_them())
    stayed = sum(turn == names[i] for names in where.values() for i, turn in enumerate(names[1:]))
    assert stayed >= 0.9 * 150, where
    assert max(total.values()) <= 1.5 * 200 / 4, total
    found = metrics("vllm:prefix_cache_hits_total")
    assert sum(found.values()) > 0


def test_a_replica_that_dies():
    """Its streams end with an error that says so, with what had come before; others go on; a new one serves."""
    run("sampled")
    names = replicas()
    got, ended = collections.defaultdict(list), {}

    async def stream(api, i, name):
        try:
            async for chunk in await api.completions.create(
                **dict(asked(i), max_tokens=500, temperature=0), stream=True, extra_headers={"x-megalith-replica": name}
            ):
                got[i].append(chunk.choices[0].text)
            ended[i] = "whole", time.monotonic()
        except openai.APIError as error:
            ended[i] = error.body["code"] if error.body else str(error), time.monotonic()

    async def all_of_them():
        async with aclient() as api:
            tasks = [asyncio.ensure_future(stream(api, i, names[i % 2])) for i in range(6)]
            await wait_in_loop_for(lambda: all(got[i] for i in range(6)))
            killed = time.monotonic()
            ray.kill(ray.get_actor(f"SERVE_REPLICA::default#Replica#{names[0]}", namespace="serve"))
            await asyncio.gather(*tasks)
            return killed

    killed = asyncio.run(all_of_them())
    for i in range(6):
        assert ended[i][0] == ("replica_lost" if i % 2 == 0 else "whole"), ended
        assert got[i] and (i % 2 or ended[i][1] - killed < 5)
    assert all(len("".join(got[i])) > len("".join(got[0])) for i in (1, 3, 5))
    wait_for(lambda: len(replicas()) == 2 and names[0] not in replicas())
    with client() as api:  # nothing was answered twice: each replica counts what it ended, the dead one nothing
        assert api.completions.create(**asked(3)).choices[0].text


def test_an_engine_that_fails_is_replaced(tmp_path):
    """Weights that change under the reference executor are such a failure."""
    model = tmp_path / "demo"
    shutil.copytree(DEMO, model)
    serve.run(scaled.build("sampled", str(model), device="reference", replicas=2), route_prefix="/")
    wait_for(lambda: len(replicas()) == 2)
    before = replicas()
    with client() as api:
        ask = dict(asked(0), max_tokens=1900, extra_headers={"x-megalith-replica": before[0]})
        stream = api.completions.create(**ask, stream=True)
        next(stream)
        os.utime(model / "model.safetensors", (1, 1))
        with pytest.raises(openai.APIError, match="the engine has failed"):
            list(stream)
        wait_for(lambda: before[0] not in replicas() and len(replicas()) == 2)
        (new,) = set(replicas()) - set(before)
        ask = dict(asked(0), extra_headers={"x-megalith-replica": new})
        assert api.completions.create(**ask).choices[0].text


def test_an_ingress_that_dies(monkeypatch):
    """What it has asked for leaves the kernels. Beside it: a key of the environment, and what Ray Serve adds to answers."""
    monkeypatch.setenv("MEGALITH_API_KEY", "sesame")
    serve.run(scaled.build("sampled", str(DEMO), device="reference", replicas=2), route_prefix="/below")
    base = f"{BASE}/below"

    def running():
        text = httpx.get(f"{base}/metrics", timeout=60).text
        return sum(float(value) for value in re.findall(r"^vllm:num_requests_running{.*} (\S+)$", text, re.MULTILINE))

    wait_for(lambda: httpx.get(f"{base}/health", timeout=60).status_code == 200)
    ask = {"model": "demo", "prompt": "In the ", "max_tokens": 1900, "temperature": 0, "stream": True, "ignore_eos": True}
    assert httpx.post(f"{base}/v1/completions", json=ask, timeout=60).status_code == 401
    headers = {"Authorization": "Bearer sesame", "x-request-id": "mine"}
    answer = httpx.post(f"{base}/v1/completions", json=dict(ask, max_tokens=1), headers=headers, timeout=60)
    assert answer.status_code == 200 and answer.headers["x-request-id"] == "mine"
    with httpx.stream("POST", f"{base}/v1/completions", json=ask, headers=headers, timeout=60) as stream:
        lines = stream.iter_lines()
        next(lines)
        wait_for(lambda: running() == 1)
        (name,) = re.findall(r'calls_moved_total{ingress="(\w+)"}', httpx.get(f"{base}/metrics", timeout=60).text)
        ray.kill(ray.get_actor(f"SERVE_REPLICA::default#Ingress#{name}", namespace="serve"))
        with pytest.raises(httpx.HTTPError):
            list(lines)
    wait_for(lambda: httpx.get(f"{base}/health", timeout=60).status_code == 200)
    wait_for(lambda: running() == 0)
    monkeypatch.delenv("MEGALITH_API_KEY")


def test_a_rolling_update_under_load():
    run("sampled")
    asks, problems, answers = iter(range(500)), [], []

    def work():
        with client() as api:
            while (i := next(asks, None)) is not None:
                try:
                    answers.append(api.completions.create(**asked(i)).choices[0].text)
                except openai.APIError as error:
                    problems.append((i, repr(error)))

    workers = [threading.Thread(target=work) for _ in range(6)]
    for worker in workers:
        worker.start()
    wait_for(lambda: len(answers) > 40)
    before = replicas()
    serve.run(scaled.build("sampled", str(DEMO), device="reference", cpus=0.5, max_waiting=1000), route_prefix="/")
    for worker in workers:
        worker.join()
    assert not problems and len(answers) == 500
    assert not set(before) & set(replicas())


def test_clients_that_leave_are_accounted_for():
    """2,000 requests; a third of the clients go away at some time. The kernels end each request once, and none stays."""
    run("sampled", replicas=3, max_waiting=2000)
    count = 2000

    async def one(api, i, gate):
        async with gate:
            ask = dict(asked(i), max_tokens=3 + i % 40)
            if i % 3:
                return await text_of(api, ask, i % 3 == 1)
            try:
                await asyncio.wait_for(text_of(api, ask, i % 2 == 0), 0.02 + i % 50 / 100)
            except (asyncio.TimeoutError, openai.APIError):
                return None

    async def all_of_them():
        async with aclient() as api:
            gate = asyncio.Semaphore(40)
            return await asyncio.gather(*(one(api, i, gate) for i in range(count)))

    texts = asyncio.run(all_of_them())
    assert all(text for i, text in enumerate(texts) if i % 3)
    wait_for(lambda: sum(metrics("vllm:num_requests_running").values()) == sum(metrics("vllm:num_requests_waiting").values()) == 0)
    ended = sum(metrics("vllm:request_success_total").values())
    came = sum(text is not None for text in texts)
    assert came <= ended <= count, (came, ended)


def test_all_that_is_full_says_429():
    run("sampled", set=["slots=1"], max_waiting=1)

    async def one(api, i):
        try:
            return (await api.completions.create(**dict(asked(i), max_tokens=300))).choices[0].text and 200
        except openai.APIStatusError as error:
            return error.status_code

    async def all_of_them():
        async with aclient() as api:
            return await asyncio.gather(*(one(api, i) for i in range(12)))

    statuses = collections.Counter(asyncio.run(all_of_them()))
    assert set(statuses) == {200, 429} and statuses[200] >= 4, statuses  # two run and two wait


def test_scaling_down_lets_calls_end():
    run("sampled")

    async def all_of_them():
        async with aclient() as api:
            tasks = [
                asyncio.ensure_future(
                    text_of(api, dict(asked(i), max_tokens=1200, temperature=0, extra_headers={"x-megalith-replica": name}), True)
                )
                for i, name in enumerate(replicas())
            ]
            running = lambda: sum(metrics("vllm:num_requests_running").values()) == 2  # noqa: E731
            await asyncio.to_thread(wait_for, running)
            await asyncio.to_thread(
                serve.run,
                scaled.build("sampled", str(DEMO), device="reference", cpus=0.5, replicas=1),
                route_prefix="/",
            )
            return await asyncio.gather(*tasks)

    assert all(asyncio.run(all_of_them()))
    wait_for(lambda: len(replicas()) == 1)


def test_what_is_wrong_is_said_before_it_starts():
    for options, wanted in (
        ({"pipeline": "sampled"}, "`model` is missing"),
        ({"model": "x"}, "`pipeline` is missing"),
        ({"pipeline": "sampled", "model": str(DEMO), "port": 80}, "`port` is no option of megalith.serve.ray; there are"),
        ({"pipeline": "sampled", "model": str(DEMO), "show_text": "maybe"}, "must be true or false"),
        ({"pipeline": "sampled", "model": str(DEMO), "max_waiting": "x"}, "an option of megalith-serve is wrong"),
    ):
        with pytest.raises(ValueError, match=re.escape(wanted)):
            scaled.app(options)


def test_pages_of_metrics_become_one():
    page = "# HELP a b c\n# TYPE a counter\na{x=\"1\"} 2\na 3\n"
    assert scaled.merged({"r": page, "s": page}) == [
        "# HELP a b c",
        "# TYPE a counter",
        'a{replica="r",x="1"} 2',
        'a{replica="r"} 3',
        'a{replica="s",x="1"} 2',
        'a{replica="s"} 3',
    ]


def test_the_command_line(tmp_path):
    """`serve run`, as the documentation has it."""
    serve.shutdown()
    command = [sys.executable, "-m", "ray.serve.scripts", "run", "megalith.serve.ray:app", "pipeline=sampled"]
    command += [f"model={DEMO}", "replicas=2", "device=reference", "cpus=0.5"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=tmp_path) as process:
        try:

            def is_up():
                assert process.poll() is None, process.stdout.read()
                try:
                    return len(replicas()) == 2
                except (httpx.HTTPError, json.JSONDecodeError, KeyError):
                    return False

            wait_for(is_up)
            with client() as api:
                assert api.completions.create(**asked(0)).choices[0].text
        finally:
            process.terminate()
