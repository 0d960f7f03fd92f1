"""Metrics of `megalith-serve`, and how it starts and stops."""

import importlib.metadata
import os
import re
import shutil
import signal
import subprocess
import sys

import megalith.serve
import openai
import pytest
from conftest import DEMO, PROMPTS, ROOT
from megalith.serve._cli import make_parser
from serving import LONG, Served, wait_for

# ===----------------------------------------------------------------------===#
# Metrics
# ===----------------------------------------------------------------------===#


def test_metrics(served, client):
    before, stats = served.metrics(), served.stats()
    client.completions.create(model="demo", prompt=PROMPTS[0], max_tokens=40)
    client.completions.create(model="demo", prompt=PROMPTS[0], max_tokens=12, stop="wor", n=2)
    after = served.metrics()

    def rise(name):
        return after[name] - before[name]

    assert rise("vllm:prompt_tokens_total") == 3 * 17
    assert (
        rise("vllm:generation_tokens_total")
        == served.stats()["generated_tokens"] - stats["generated_tokens"]
        >= 40 + 2 * 10
    )
    assert rise('vllm:request_success_total{finished_reason="length"}') == 1
    assert rise('vllm:request_success_total{finished_reason="stop"}') == 2
    for name, count in ("time_to_first_token", 3), ("inter_token_latency", 39 + 2 * 9), ("e2e_request_latency", 3):
        name = f"vllm:{name}_seconds"
        assert rise(f"{name}_count") == rise(f'{name}_bucket{{le="+Inf"}}') and rise(f"{name}_sum") > 0
        assert count <= rise(f"{name}_count") <= count + 4  # more may have come in one event
    assert rise("vllm:time_per_output_token_seconds_count") == rise("vllm:inter_token_latency_seconds_count")
    assert rise("vllm:spec_decode_num_draft_tokens_total") >= rise("vllm:spec_decode_num_accepted_tokens_total") > 0
    assert rise("vllm:spec_decode_num_draft_tokens_total") == rise('megalith:pipeline_total{metric="tokens_proposed"}')
    by_place = [
        rise(f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="{place}"}}') for place in range(31)
    ]
    assert sum(by_place) == rise("vllm:spec_decode_num_accepted_tokens_total")  # no block is longer here
    assert rise("vllm:spec_decode_num_drafts_total") >= by_place[0] > 0 and by_place == sorted(by_place, reverse=True)
    assert (
        after["vllm:num_requests_running"]
        == after["vllm:num_requests_waiting"]
        == after["vllm:kv_cache_usage_perc"]
        == 0
    )
    assert after["megalith:slots"] == 8 and after['megalith:pool_pages{pool="target"}'] > 0


def test_buckets_grow(served):
    text = served.call("GET", "/metrics")[2].decode()
    counts = [
        int(line.split()[-1])
        for line in text.splitlines()
        if line.startswith("vllm:inter_token_latency_seconds_bucket")
    ]
    assert counts == sorted(counts) and counts[-1] > 0
    kinds = [line.split() for line in text.splitlines() if line.startswith("# TYPE")]
    assert len({kind[2] for kind in kinds}) == len(kinds)
    assert all(name.endswith("_total") == (kind == "counter") for _, _, name, kind in kinds)


# ===----------------------------------------------------------------------===#
# Starting and stopping
# ===----------------------------------------------------------------------===#


def test_stopping_lets_calls_end(texts):
    with Served("sampled", "--grace", "20") as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
        stream = client.completions.create(
            model="demo", prompt=LONG, max_tokens=400, stream=True, extra_body={"ignore_eos": True}
        )
        chunks = [next(stream)]
        server.process.send_signal(signal.SIGTERM)
        wait_for(lambda: server.call("GET", "/health")[0] == 503)
        status, _, code, _ = server.refuses("/v1/completions", prompt="a")
        assert (status, code) == (503, "stopping")
        chunks += stream
        assert chunks[-1].choices[0].finish_reason == "length"
        assert server.wait() == 0 and "1 calls go on" in server.error_text()


@pytest.mark.parametrize("again", [False, True])
def test_stopping_ends_calls_in_the_end(again):
    with Served("sampled", "--grace", "60" if again else "0.2") as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
        stream = client.completions.create(
            model="demo", prompt=LONG, max_tokens=1900, stream=True, extra_body={"ignore_eos": True}
        )
        next(stream)
        server.process.send_signal(signal.SIGINT)
        if again:
            wait_for(lambda: server.call("GET", "/health")[0] == 503)
            server.process.send_signal(signal.SIGINT)
        with pytest.raises(openai.APIError, match="stopping"):
            list(stream)
        assert server.wait() == 0 and "Traceback" not in server.error_text()


def test_an_engine_that_fails_ends_the_server(tmp_path):
    """Weights that change under the reference executor are such a failure."""
    model = tmp_path / "demo"
    shutil.copytree(DEMO, model)
    with Served("sampled", model=model) as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
        stream = client.completions.create(model="demo", prompt=LONG, max_tokens=1900, stream=True)
        next(stream)
        os.utime(model / "model.safetensors", (1, 1))
        with pytest.raises(openai.APIError, match="the engine has failed.*model.safetensors"):
            list(stream)
        assert server.wait() == 1
        assert "error: the engine has failed: /" in server.error_text() and "Traceback" not in server.error_text()


def run(*arguments):
    command = [sys.executable, "-m", "megalith.serve", *map(str, arguments)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def test_the_program_is_installed():
    (program,) = importlib.metadata.entry_points(group="console_scripts", name="megalith-serve")
    assert program.load() is megalith.serve.main


def test_a_second_server_on_the_port(served):
    code, out, error = run("sampled", "--model", DEMO, "--port", served.port)
    assert (
        (code, out) == (1, "")
        and error
        == f"error: 127.0.0.1:{served.port}: the port is in use, by another server perhaps; take another one with --port\n"
    )


def test_what_is_wrong_at_the_start(tmp_path):
    file = tmp_path / "wrong.yaml"
    file.write_text("pipeline: p\nstagse: {}\n")
    code, _, error = run(file, "--model", DEMO, "--port", 0)
    assert code == 1 and f"{file}:2:1: error: unknown key `stagse`" in error and "Traceback" not in error
    code, _, error = run("sampled", "--model", tmp_path, "--port", 0)
    assert code == 1 and "config.json" in error
    code, _, error = run("sampled", "--model", DEMO, "--port", 0, "--host", "no.such.host.invalid")
    assert code == 1 and error.startswith("error: --host: `no.such.host.invalid` is no address")
    code, _, error = run("sampled", "--model", DEMO, "--port", 0, "--max-waiting", 0)
    assert code == 2 and "must be from 1 to 65536, found 0" in error
    code, _, error = run("sampled", "--model", DEMO, "--port", 0, "--chat-template", tmp_path / "none")
    assert code == 1 and "cannot be read" in error


def test_the_documentation(served, capsys):
    """Its example runs against the server, and it has all options, and names of metrics."""
    page = (ROOT / "docs/serving.md").read_text()
    example, output = re.search(r"```python\n(.*?)```\n\n```\n(.*?)```\n", page, re.S).groups()
    exec(compile(example.replace("http://127.0.0.1:8000", served.url), "docs/serving.md", "exec"), {})
    assert capsys.readouterr().out == output
    for action in make_parser()._actions:
        for option in action.option_strings:
            assert option in ("-h", "--help", "--version") or f"`{option}" in page or f" {option} " in page, option
    text = served.call("GET", "/metrics")[2].decode()
    for name in re.findall(r"^# TYPE (\S+)", text, re.M):
        assert f"`{name}`" in page
