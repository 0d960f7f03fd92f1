#!/usr/bin/env python3
"""Runs programs of others, unchanged, against `megalith-serve`: run.py PYTHON [NAME ...]

PYTHON is one that has the module `megalith` with its extra `serve`. The programs come from PyPI, each into an environment
of its own, which is kept. All of them take 14 GB, because two need PyTorch. The demo model is served on the reference
executor. A line for each program says its version, whether it works, and how long that took.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
TEMPLATE = """{% for m in messages %}{{ m.role }}: {{ m.content }}
{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"""
SECONDS = 300
"""So long a command of a program may take."""

OPENAI = """
import asyncio, openai
client = openai.OpenAI()
assert [model.id for model in client.models.list()] == ["demo"]
messages = [{"role": "developer", "content": "x"}, {"role": "user", "content": "Hello"}]
ask = dict(model="demo", messages=messages, max_completion_tokens=8)
answer = client.chat.completions.create(**ask)
assert answer._request_id and answer.choices[0].message.content
options = {"include_usage": True, "continuous_usage_stats": True}
chunks = list(client.chat.completions.create(**ask, stream=True, stream_options=options))
assert all(chunk.usage for chunk in chunks)
del ask["max_completion_tokens"]
whole = client.chat.completions.create(**ask)
with client.chat.completions.stream(**ask, logprobs=True, top_logprobs=2) as stream:
    told = sum(len(event.content) for event in stream if event.type == "logprobs.content.delta")
    assert told == whole.usage.completion_tokens
    assert stream.get_final_completion().choices[0].message.content == whole.choices[0].message.content
answer = client.completions.create(model="demo", prompt="In the", max_tokens=8, n=2, best_of=3, temperature=1)
assert len(answer.choices) == 2
scored = client.completions.create(model="demo", prompt="In the", max_tokens=0, echo=True, logprobs=1)
assert len(scored.choices[0].logprobs.token_logprobs) == 6
try:
    client.completions.create(model="demo", prompt="a", suffix="b")
except openai.BadRequestError as error:
    assert error.param == "suffix"
else:
    raise AssertionError("a suffix was taken")
async def main():
    stream = await openai.AsyncOpenAI().completions.create(model="demo", prompt="In the", max_tokens=8, stream=True)
    assert "".join([chunk.choices[0].text async for chunk in stream])
asyncio.run(main())
"""
LITELLM = """
import asyncio, litellm
call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
history = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": None, "tool_calls": [call]},
           {"role": "tool", "tool_call_id": "c1", "content": "5"}]
ask = dict(api_base=BASE, api_key="none", max_tokens=8)
for model in "hosted_vllm/demo", "openai/demo":
    answer = litellm.completion(model=model, messages=history, **ask)
    assert answer.choices[0].message.content and answer.usage.completion_tokens == 8
    assert asyncio.run(litellm.acompletion(model=model, messages=history, **ask)).choices[0].message.content
    stream = litellm.completion(model=model, messages=history, stream=True, stream_options={"include_usage": True}, **ask)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
for model in "hosted_vllm/demo", "text-completion-openai/demo":
    assert litellm.text_completion(model=model, prompt="In the", **ask).choices[0].text
"""
LANGCHAIN = """
import asyncio
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_openai import ChatOpenAI, OpenAI
chat = ChatOpenAI(model="demo", base_url=BASE, api_key="none", max_tokens=8, seed=3, stream_usage=True)
assert chat.invoke("Hello").usage_metadata["output_tokens"] == 8
assert len(chat.batch(["Hello", "Good morning"])) == 2
chunks = list(chat.stream("Hello"))
assert "".join(chunk.content for chunk in chunks) and any(chunk.usage_metadata for chunk in chunks)
assert asyncio.run(chat.ainvoke("Hello")).content
call = {"id": "1", "name": "f", "args": {"x": 1}}
assert chat.invoke([SystemMessage("s"), HumanMessage("a"), AIMessage("", tool_calls=[call]), ToolMessage("5", tool_call_id="1")])
assert chat.bind(logprobs=True).invoke("Hello").response_metadata["logprobs"]["content"]
text = OpenAI(model="demo", base_url=BASE, api_key="none", max_tokens=8, best_of=2)
assert text.invoke("In the") and "".join(OpenAI(model="demo", base_url=BASE, api_key="none", max_tokens=8).stream("In the"))
"""
AGENTS = """
import asyncio
from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, Runner, SQLiteSession, set_tracing_disabled
from agents import set_default_openai_api
from openai import AsyncOpenAI
set_tracing_disabled(True)
async def main():
    model = OpenAIChatCompletionsModel(model="demo", openai_client=AsyncOpenAI())
    agent = Agent(name="A", instructions="Answer.", model=model, model_settings=ModelSettings(max_tokens=8))
    assert (await Runner.run(agent, "Hello")).final_output
    run = Runner.run_streamed(agent, "Hello")
    async for event in run.stream_events():
        pass
    assert run.final_output
    session = SQLiteSession("s")  # the second call sends the first one's answer back
    for text in "Hello", "Good morning":
        assert (await Runner.run(agent, text, session=session)).final_output
    assert len(await session.get_items()) == 4
    set_default_openai_api("chat_completions")
    agent = Agent(name="A", model="demo", model_settings=ModelSettings(max_tokens=8))
    assert (await Runner.run(agent, "Hello")).final_output
asyncio.run(main())
"""
LLM_MODELS = """- model_id: chat
  model_name: demo
  api_base: "{base}"
- model_id: completion
  model_name: demo
  api_base: "{base}"
  completion: true
"""
LM_EVAL_TASK = """task: continued
dataset_path: json
dataset_kwargs:
  data_files: {{test: {data}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{q}}}}"
doc_to_target: "{{{{a}}}}"
generation_kwargs: {{until: [","], max_gen_toks: 12, do_sample: false, temperature: 0}}
metric_list:
  - metric: exact_match
"""
# `chat-tool-calling` and `chat-image-input` ask for what the server does not do. `chat-reasoning-summary` is for models
# that reason: the program leaves it out by itself.
CHAT_TESTS = ("basic-response", "system-prompt", "multi-turn", "streaming-response", "streaming-usage", "error-handling")


class Client:
    """A program in its environment, and a folder for its files."""

    def __init__(self, folder, work, base):
        self.bin, self.work, self.base = folder / "bin", work, base

    def run(self, *command, **env):
        """What it prints. It reaches nothing but the server."""
        known = {"OPENAI_BASE_URL": self.base, "OPENAI_API_KEY": "none", "HF_HUB_OFFLINE": "1", "HF_HOME": str(self.work)}
        outer = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(
            [self.bin / command[0], *map(str, command[1:])], cwd=self.work, text=True, timeout=SECONDS,
            stdin=subprocess.DEVNULL, capture_output=True, env={**outer, **known, **env})  # fmt: skip
        assert done.returncode == 0, f"{command[0]} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}"
        return done.stdout

    def python(self, script):
        self.run("python", "-c", f"BASE = {self.base!r}\n{script}")

    def llm(self):
        (self.work / "extra-openai-models.yaml").write_text(LLM_MODELS.format(base=self.base))
        for options in ["-m", "chat"], ["-m", "chat", "--no-stream"], ["-m", "completion"], ["-c"]:
            assert self.run("llm", *options, "-o", "max_tokens", 8, "Hello", LLM_USER_PATH=str(self.work)).strip()

    def llm_comply(self):
        out = self.run(
            "llm-comply", "--format", "openai-chat", "-u", self.base, "-k", "none", "-m", "demo", "--json",
            "-f", ",".join(f"chat-{name}" for name in CHAT_TESTS))  # fmt: skip
        assert json.loads(out)["summary"] == {"total": len(CHAT_TESTS), "passed": len(CHAT_TESTS), "failed": 0, "skipped": 0}, out

    def lm_eval(self):
        data = self.work / "data.jsonl"
        data.write_text('{"q": "In the beginning ", "a": "of the world"}\n{"q": "And God said ", "a": "unto him"}\n')
        (self.work / "task.yaml").write_text(LM_EVAL_TASK.format(data=data))
        out = self.run(
            "lm_eval", "--model", "local-completions", "--model_args",
            f"model=demo,base_url={self.base}/completions,tokenizer_backend=None,num_concurrent=2",
            "--tasks", "continued", "--include_path", self.work)  # fmt: skip
        assert re.search(r"exact_match\|[^|]*\|\s*1\|", out), out[-2000:]
        self.run("python", HERE / "lm_eval/check.py", self.base[: -len("/v1")], ROOT / "models/demo")

    def guidellm(self):
        """It ends with 0 when all requests have failed, too: only its report says how many did."""
        (self.work / "data.jsonl").write_text('{"prompt": "In the beginning ", "output_tokens_count": 8}\n' * 4)
        for path in "/v1/chat/completions", "/v1/completions":
            self.run(
                "guidellm", "run", "--backend",
                f"kind=openai_http,target={self.base[: -len('/v1')]},model=demo,request_format={path}",
                "--profile", "kind=concurrent,streams=2", "--constraint", "kind=max_requests,count=4",
                "--data", "kind=json_file,path=data.jsonl", "--disable-progress")  # fmt: skip
            (benchmark,) = json.loads((self.work / "benchmarks.json").read_text())["benchmarks"]
            counts = benchmark["metrics"]["request_totals"]
            assert counts == {"successful": 4, "errored": 0, "incomplete": 0, "total": 4}, counts

    def aiperf(self):
        """Offline it takes no tokenizer from a folder: it looks for the path in the cache of the hub. With a folder it
        reaches no hub anyway."""
        self.run("python", HERE / "byte_tokenizer.py", self.work / "tokenizer")
        for kind, more in ("chat", ["--per-chunk-usage"]), ("completions", []):
            self.run(
                "aiperf", "profile", "-m", "demo", "--url", self.base[: -len("/v1")], "--endpoint-type", kind, "--streaming",
                "--use-server-token-count", *more, "--tokenizer", self.work / "tokenizer", "--request-count", 6,
                "--concurrency", 2, "--prompt-input-tokens-mean", 40, "--prompt-output-tokens-mean", 8, "--extra-inputs", "ignore_eos:true",
                "--output-artifact-dir", self.work / kind, "--ui", "none", HF_HUB_OFFLINE="")  # fmt: skip
            told = json.loads((self.work / kind / "profile_export_aiperf.json").read_text())
            counts = {name: told[name]["avg"] for name in ("request_count", "output_sequence_length")}
            assert counts == {"request_count": 6, "output_sequence_length": 8} and not told["error_summary"], counts
            scraped = json.loads((self.work / kind / "server_metrics_export.json").read_text())
            assert "vllm:generation_tokens" in scraped["metrics"], list(scraped["metrics"])


CLIENTS = {
    "openai": lambda client: client.python(OPENAI),
    "litellm": lambda client: client.python(LITELLM),
    "langchain-openai": lambda client: client.python(LANGCHAIN),
    "openai-agents": lambda client: client.python(AGENTS),
    "llm": Client.llm,
    "llm-comply": Client.llm_comply,
    "lm-eval": Client.lm_eval,
    "guidellm": Client.guidellm,
    "aiperf": Client.aiperf,
}
PACKAGES = {"lm-eval": ["lm-eval[api]", "torch", "transformers"]}  # the others are called as the program


def install(name, folder, upgrade):
    """Gives the version."""
    python = folder / "bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    ask = [python, "-c", f"import importlib.metadata as m; print(m.version({name!r}))"]
    if upgrade or subprocess.run(ask, capture_output=True).returncode != 0:
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *(["--upgrade"] if upgrade else [])]
        subprocess.run([*pip, *PACKAGES.get(name, [name])], check=True)
    return subprocess.run(ask, check=True, capture_output=True, text=True).stdout.strip()


def make_model(folder):
    """The demo model, for which a full stop ends a text: so its chats end by themselves, and not with the budget."""
    folder.mkdir()
    for name in "config.json", "model.safetensors":
        (folder / name).symlink_to(ROOT / "models/demo" / name)
    told = json.loads((ROOT / "models/demo/generation_config.json").read_text())
    told["eos_token_id"] = [told["eos_token_id"], ord(".")]
    (folder / "generation_config.json").write_text(json.dumps(told))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python", metavar="PYTHON")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: all, which are {', '.join(CLIENTS)}")
    cache = pathlib.Path.home() / ".cache/megalith/clients"
    parser.add_argument("--cache", type=pathlib.Path, default=cache, metavar="FOLDER", help="of environments; default: %(default)s")
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions")
    parser.add_argument(
        "--broken",
        action="store_true",
        help="serve the model by another name, so that all requests fail, and expect that each program is said to fail",
    )
    parsed = parser.parse_intermixed_args()
    for name in parsed.names:
        if name not in CLIENTS:
            parser.error(f"there is no program {name}; there are {', '.join(CLIENTS)}")
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        (scratch / "template.jinja").write_text(TEMPLATE)
        make_model(scratch / "demo")
        command = [
            parsed.python, "-m", "megalith.serve", "sampled", "--model", scratch / "demo", "--device", "reference",
            "--port", "0", "--chat-template", scratch / "template.jinja",
            "--served-model-name", "another" if parsed.broken else "demo"]  # fmt: skip
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            head = [server.stdout.readline(), server.stdout.readline()]
            if not head[1]:
                return f"{parsed.python} -m megalith.serve did not start"
            base = head[1].split()[0] + "/v1"
            for name in parsed.names or CLIENTS:
                work, begin, version = scratch / name, time.monotonic(), "?"
                work.mkdir()
                try:
                    version = install(name, parsed.cache / name, parsed.upgrade)
                    begin = time.monotonic()
                    CLIENTS[name](Client(parsed.cache / name, work, base))
                    how = "works"
                except Exception as error:  # whatever a program does is its failure
                    how = "FAILS"
                    if not parsed.broken:
                        print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
                rows.append(how)
                print(f"{name:<20} {version:<12} {how}  {time.monotonic() - begin:5.1f} s", flush=True)
        finally:
            server.terminate()
            server.wait()
    return any(how != ("FAILS" if parsed.broken else "works") for how in rows)


if __name__ == "__main__":
    sys.exit(main())
