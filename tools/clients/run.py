#!/usr/bin/env python3
"""Runs programs of others, unchanged, against `megalith-serve`, each in an environment of its own:
run.py PYTHON [--cache FOLDER] [NAME ...].

PYTHON is one that has the module `megalith` with its extra `serve`. The programs come from PyPI into FOLDER, which is kept.
The demo model is served on the reference executor. At the end stands a line for each program.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

root = pathlib.Path(__file__).resolve().parents[2]
TEMPLATE = """{% for m in messages %}{{ m.role }}: {{ m.content }}
{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"""

OPENAI = """
import openai
client = openai.OpenAI()
messages = [{"role": "developer", "content": "x"}, {"role": "user", "content": "Hello"}]
answer = client.chat.completions.create(model="demo", messages=messages, max_tokens=8)
assert answer._request_id and answer.choices[0].message.content
options = {"include_usage": True, "continuous_usage_stats": True}
chunks = list(client.chat.completions.create(model="demo", messages=messages, max_tokens=8, stream=True, stream_options=options))
assert all(chunk.usage for chunk in chunks)
answer = client.completions.create(model="demo", prompt="In the", max_tokens=8, n=2, best_of=3, temperature=1)
assert len(answer.choices) == 2
"""
LITELLM = """
import litellm
call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
history = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": None, "tool_calls": [call]},
           {"role": "tool", "tool_call_id": "c1", "content": "5"}]
ask = dict(api_base=BASE, api_key="none", max_tokens=8)
for model in "hosted_vllm/demo", "openai/demo":
    assert litellm.completion(model=model, messages=history, **ask).choices[0].message.content
    stream = litellm.completion(model=model, messages=history, stream=True, **ask)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
assert litellm.text_completion(model="text-completion-openai/demo", prompt="In the", **ask).choices[0].text
"""
LANGCHAIN = """
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_openai import ChatOpenAI, OpenAI
chat = ChatOpenAI(model="demo", base_url=BASE, api_key="none", max_tokens=8, seed=3)
assert chat.invoke("Hello").content
assert "".join(chunk.content for chunk in chat.stream("Hello"))
call = {"id": "1", "name": "f", "args": {"x": 1}}
assert chat.invoke([SystemMessage("s"), HumanMessage("a"), AIMessage("", tool_calls=[call]), ToolMessage("5", tool_call_id="1")])
assert chat.bind(logprobs=True).invoke("Hello").response_metadata["logprobs"]["content"]
assert OpenAI(model="demo", base_url=BASE, api_key="none", max_tokens=8, best_of=2).invoke("In the")
"""
AGENTS = """
import asyncio
from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
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
LM_EVAL_TASK = """task: megalith_tiny
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
PACKAGES = {"lm-eval": "lm-eval[api]"}  # where they are called otherwise


class Client:
    def __init__(self, folder, work, base):
        self.bin, self.work, self.base = folder / "bin", work, base

    def run(self, *command, **env):
        known = {"OPENAI_BASE_URL": self.base, "OPENAI_API_KEY": "none", "HF_HUB_OFFLINE": "1"}
        done = subprocess.run([self.bin / command[0], *map(str, command[1:])], cwd=self.work, text=True, timeout=300,
                              stdin=subprocess.DEVNULL, capture_output=True, env={**os.environ, **known, **env})
        assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
        return done.stdout

    def python(self, script):
        self.run("python", "-c", f"BASE = {self.base!r}\n{script}")

    def llm(self):
        (self.work / "extra-openai-models.yaml").write_text(LLM_MODELS.format(base=self.base))
        for options in ["-m", "chat"], ["-m", "chat", "--no-stream"], ["-m", "completion"], ["-c"]:
            assert self.run("llm", *options, "-o", "max_tokens", 8, "Hello", LLM_USER_PATH=str(self.work)).strip()

    def guidellm(self):
        (self.work / "data.jsonl").write_text('{"prompt": "In the beginning ", "output_tokens_count": 8}\n' * 4)
        out = self.run("guidellm", "run", "--backend", f"kind=openai_http,target={self.base[:-3]},model=demo",
                       "--profile", "kind=concurrent,streams=2", "--constraint", "kind=max_requests,count=4",
                       "--data", "kind=json_file,path=data.jsonl", "--disable-progress")
        # It ends with 0 when all requests have failed, too.
        row = next(line.split("|")[1:] for line in out.splitlines() if re.match(r"\|\s*concurrent@2\s*\|\s*\d\d:", line))
        assert int(row[6]) > 0 and int(row[8]) == 0, out[:3000]


    def lm_eval(self):
        (self.work / "data.jsonl").write_text('{"q": "In the beginning ", "a": "of the world"}\n{"q": "And God said ", "a": "unto him"}\n')
        (self.work / "task.yaml").write_text(LM_EVAL_TASK.format(data=self.work / "data.jsonl"))
        out = self.run("lm_eval", "--model", "local-completions", "--model_args",
                       f"model=demo,base_url={self.base}/completions,tokenizer_backend=None,num_concurrent=2",
                       "--tasks", "megalith_tiny", "--include_path", self.work)
        assert re.search(r"exact_match\|[^|]*\|\s*1\|", out), out[-2000:]


CLIENTS = {
    "openai": lambda client: client.python(OPENAI),
    "litellm": lambda client: client.python(LITELLM),
    "langchain-openai": lambda client: client.python(LANGCHAIN),
    "openai-agents": lambda client: client.python(AGENTS),
    "llm": Client.llm,
    "guidellm": Client.guidellm,
    "lm-eval": Client.lm_eval,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python")
    parser.add_argument("--cache", type=pathlib.Path, default=pathlib.Path.home() / ".cache/megalith/clients", metavar="FOLDER")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(CLIENTS))
    parsed = parser.parse_intermixed_args()
    for name in parsed.names:
        if name not in CLIENTS:
            parser.error(f"there is no client {name}")
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        (scratch / "template.jinja").write_text(TEMPLATE)
        server = subprocess.Popen([parsed.python, "-m", "megalith.serve", "sampled", "--model", root / "models/demo", "--device",
                                   "reference", "--port", "0", "--chat-template", scratch / "template.jinja"],
                                  stdout=subprocess.PIPE, text=True)
        try:
            server.stdout.readline()
            base = server.stdout.readline().split()[0] + "/v1"
            for name in parsed.names or CLIENTS:
                folder, work = parsed.cache / name, scratch / name
                work.mkdir()
                try:
                    if not (folder / "bin/python").exists():
                        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
                    subprocess.run([folder / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                                    PACKAGES.get(name, name)],
                                   check=True)
                    CLIENTS[name](Client(folder, work, base))
                    rows.append((name, "works"))
                except (AssertionError, ValueError, StopIteration, subprocess.SubprocessError) as error:
                    print(f"{name}: {error}", file=sys.stderr)
                    rows.append((name, "FAILS"))
                print(*rows[-1], flush=True)
        finally:
            server.terminate()
            server.wait()
    print()
    for name, how in rows:
        print(f"{name:<20} {how}")
    return any(how != "works" for _, how in rows)


if __name__ == "__main__":
    sys.exit(main())
