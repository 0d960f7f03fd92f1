#!/usr/bin/env python3
"""Runs programs of others, unchanged, against `megalith-serve`: run.py PYTHON [NAME ...]

PYTHON is one that has the module `megalith` with its extra `serve`. The programs come from PyPI, each into an environment
of its own, which is kept. All of them take 15 GB, because two need PyTorch. The demo model is served on the reference
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
TEMPLATE = """{% if tools %}tools: {{ tools | tojson }} <tool_call></tool_call>
{% endif %}{% for m in messages %}{{ m.role }}: {{ m.content }}
{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"""
SECONDS = 300
"""So long a command of a program may take."""

SHAPES = """
import typing
from pydantic import BaseModel, Field
Short = typing.Annotated[str, Field(max_length=8)]
class Inner(BaseModel):
    "Stands in others."
    name: Short
    large: bool = Field(default=False, description="whether it is")
class City(BaseModel):
    name: Short
    kind: typing.Literal["old", "new"]
    inner: Inner
    other: typing.Optional[Inner] = None
    several: list[Inner] = Field(max_length=2)
"""
"""What the model is asked for. All of it is bounded: the demo model would write a string without an end."""
OPENAI = SHAPES + """
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

ask = dict(model="demo", messages=messages)
tools = [openai.pydantic_function_tool(City)]
assert isinstance(client.chat.completions.parse(**ask, response_format=City).choices[0].message.parsed, City)
for more in {}, {"parallel_tool_calls": False}, {"response_format": City}:
    (call,) = client.chat.completions.parse(**ask, tools=tools, tool_choice="required", **more).choices[0].message.tool_calls
    assert isinstance(call.function.parsed_arguments, City)
message = client.chat.completions.parse(**ask, tools=tools, response_format=City).choices[0].message
assert isinstance(message.parsed or message.tool_calls[0].function.parsed_arguments, City)
assert client.chat.completions.parse(**ask, tools=tools).choices[0].finish_reason == "stop"
allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "City"}}]}
choice = {"type": "allowed_tools", "allowed_tools": allowed}
assert client.chat.completions.create(**ask, tools=tools, tool_choice=choice).choices[0].message.tool_calls
with client.chat.completions.stream(**ask, response_format=City) as stream:
    assert sum(event.type == "content.delta" for event in stream) > 9
    assert isinstance(stream.get_final_completion().choices[0].message.parsed, City)
with client.chat.completions.stream(**ask, tools=tools, tool_choice="required") as stream:
    assert sum(event.type == "tool_calls.function.arguments.delta" for event in stream) > 9
try:
    client.chat.completions.parse(**ask, response_format=City, max_tokens=5)
except openai.LengthFinishReasonError:
    pass
else:
    raise AssertionError("an answer that was cut was parsed")

ask = dict(model="demo", input="Hello")
tools = [{"type": "function", **tools[0]["function"]}]
assert client.responses.create(**ask, max_output_tokens=8).output_text
assert isinstance(client.responses.parse(**ask, text_format=City).output_parsed, City)
for more in {}, {"text_format": City}:
    (call,) = client.responses.parse(**ask, tools=tools, tool_choice="required", **more).output
    assert City.model_validate(call.parsed_arguments)
assert client.responses.parse(**ask, tools=tools, text_format=City).status == "completed"
with client.responses.stream(**ask, text_format=City) as stream:
    assert isinstance(list(stream)[-1].response.output_parsed, City)
with client.responses.stream(**ask, tools=tools, tool_choice={"type": "function", "name": "City"}) as stream:
    assert sum(event.type == "response.function_call_arguments.delta" for event in stream) > 9
"""
INSTRUCTOR = SHAPES + """
import instructor, openai
messages = [{"role": "user", "content": "Hello"}]
modes = instructor.Mode
for mode in modes.TOOLS, modes.TOOLS_STRICT, modes.JSON_SCHEMA, modes.RESPONSES_TOOLS:
    client = instructor.from_openai(openai.OpenAI(), mode=mode)
    ask = dict(model="demo", messages=messages, max_retries=0)
    assert isinstance(client.chat.completions.create(**ask, response_model=City), City)
    assert client.chat.completions.create(**ask, response_model=bool) in (True, False)
    assert client.chat.completions.create(**ask, response_model=typing.Literal["a", "b"]) in ("a", "b")
    parts = list(client.chat.completions.create_partial(**ask, response_model=City))
    assert len(parts) > 9 and parts[-1].kind in ("old", "new")
    # The others do not say that there must be a list, and the demo model makes none. This one has no end.
    if mode is modes.RESPONSES_TOOLS:
        assert isinstance(next(iter(client.chat.completions.create_iterable(**ask, response_model=Inner))), Inner)
# The demo model does not read what the messages tell it of the schema, so no more than an object is certain.
class Open(BaseModel):
    name: typing.Any = None
client = instructor.from_openai(openai.OpenAI(), mode=modes.JSON)
assert isinstance(client.chat.completions.create(**ask, response_model=Open), Open)
"""
LITELLM = SHAPES + """
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
function = {"name": "f", "description": "d", "strict": True, "parameters": Inner.model_json_schema()}
named = {"type": "function", "function": {"name": "f"}}
for model in "hosted_vllm/demo", "openai/demo":
    ask = dict(model=model, messages=history[:1], api_base=BASE, api_key="none", tools=[{"type": "function", "function": function}])
    for choice in "required", named:
        (call,) = litellm.completion(**ask, tool_choice=choice).choices[0].message.tool_calls
        assert Inner.model_validate_json(call.function.arguments)
        chunks = list(litellm.completion(**ask, tool_choice=choice, stream=True))
        (built,) = litellm.stream_chunk_builder(chunks).choices[0].message.tool_calls
        assert (built.function.name, built.function.arguments) == (call.function.name, call.function.arguments)
    assert litellm.completion(**ask).choices[0].message.content
    message = litellm.completion(**ask, response_format=City).choices[0].message
    assert message.tool_calls or City.model_validate_json(message.content)
    del ask["tools"]
    assert City.model_validate_json(litellm.completion(**ask, response_format=City).choices[0].message.content)
    assert litellm.completion(**ask, response_format={"type": "json_object"}).choices[0].message.content[0] == "{"
    ask["input"] = ask.pop("messages")
    answer = litellm.responses(**ask, tools=[{"type": "function", **function}], tool_choice="required")
    assert Inner.model_validate_json(answer.output[0].arguments)
"""
LANGCHAIN = SHAPES + """
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

def now(place: Short) -> str:
    "The time there."
for responses in False, True:
    chat = ChatOpenAI(model="demo", base_url=BASE, api_key="none", use_responses_api=responses)
    for method in "json_schema", "function_calling":
        for strict in None, True:
            structured = chat.with_structured_output(City, method=method, strict=strict)
            assert isinstance(structured.invoke("Hello"), City) and isinstance(list(structured.stream("Hello"))[-1], City)
    told = chat.with_structured_output({**Inner.model_json_schema(), "title": "Inner"}, include_raw=True).invoke("Hello")
    assert Inner.model_validate(told["parsed"])
    assert chat.with_structured_output(None, method="json_mode").invoke("Hello") is not None
    for choice in "any", "City", True:
        bound = chat.bind_tools([City], tool_choice=choice, parallel_tool_calls=False)
        (call,) = bound.invoke("Hello").tool_calls
        assert City.model_validate(call["args"])
        (first, *rest) = bound.stream("Hello")
        assert City.model_validate(sum(rest, start=first).tool_calls[0]["args"])
    assert chat.bind_tools([City, now]).invoke("Hello").content
    answer = chat.bind_tools([now], response_format=City, strict=True).invoke("Hello")
    assert answer.tool_calls or isinstance(answer.additional_kwargs["parsed"], City)
"""
AGENTS = SHAPES + """
import asyncio
from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, SQLiteSession
from agents import function_tool, set_default_openai_api, set_tracing_disabled
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
    @function_tool
    def now(place: typing.Literal["Rome", "Oslo"]) -> str:
        "The time there."
        return "noon"
    for kind in OpenAIChatCompletionsModel, OpenAIResponsesModel:
        model = kind(model="demo", openai_client=AsyncOpenAI())
        for choice in None, "required", "now":
            for output in None, City:
                settings = ModelSettings(tool_choice=choice)
                agent = Agent(name="A", model=model, model_settings=settings, tools=[now], output_type=output)
                run = await Runner.run(agent, "Hello")
                items = [item.type for item in run.new_items]
                assert choice is None or items[:2] == ["tool_call_item", "tool_call_output_item"], items
                assert isinstance(run.final_output, output or str)
                run = Runner.run_streamed(agent, "Hello")
                async for event in run.stream_events():
                    pass
                assert [item.type for item in run.new_items] == items
asyncio.run(main())
"""
PYDANTIC_AI = SHAPES + """
import asyncio
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
def now(place: typing.Literal["Rome", "Oslo"]) -> str:
    "The time there."
    return "noon"
async def main():
    for kind in OpenAIChatModel, OpenAIResponsesModel:
        model = kind("demo", provider=OpenAIProvider(base_url=BASE, api_key="none"))
        for output in str, bool, City, ToolOutput(City), NativeOutput(City), [City, Inner], NativeOutput([City, Inner]):
            for tools in [], [now]:
                agent = Agent(model, output_type=output, tools=tools, retries=0)
                assert (await agent.run("Hello")).output is not None
                if output is not str:
                    async with agent.run_stream("Hello") as stream:
                        assert [each async for each in stream.stream_output()]
asyncio.run(main())
"""
SMOLAGENTS = SHAPES + """
from smolagents import OpenAIServerModel, Tool
class Now(Tool):
    name, description, output_type = "now", "The time there.", "string"
    inputs = {"place": {"type": "string", "description": "where", "enum": ["Rome", "Oslo"]}}
    def forward(self, place):
        return "noon"
model = OpenAIServerModel(model_id="demo", api_base=BASE, api_key="none")
ask = [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]
assert model.generate(ask).content
# It says `tool_choice` `required`. Its prompts for agents are longer than the demo model may read.
(call,) = model.generate(ask, tools_to_call_from=[Now()]).tool_calls
assert call.function.name == "now"
assert any(delta.tool_calls for delta in model.generate_stream(ask, tools_to_call_from=[Now()]))
wanted = {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": City.model_json_schema()}}
assert City.model_validate_json(model.generate(ask, response_format=wanted).content)
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
# `chat-tool-calling` needs a model that calls tools by itself, and the server reads no images. `chat-reasoning-summary` is
# for models that reason: the program leaves it out by itself.
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
    "instructor": lambda client: client.python(INSTRUCTOR),
    "litellm": lambda client: client.python(LITELLM),
    "langchain-openai": lambda client: client.python(LANGCHAIN),
    "openai-agents": lambda client: client.python(AGENTS),
    "pydantic-ai-slim": lambda client: client.python(PYDANTIC_AI),
    "smolagents": lambda client: client.python(SMOLAGENTS),
    "llm": Client.llm,
    "llm-comply": Client.llm_comply,
    "lm-eval": Client.lm_eval,
    "guidellm": Client.guidellm,
    "aiperf": Client.aiperf,
}
# The others are called as the program.
PACKAGES = {
    "lm-eval": ["lm-eval[api]", "torch", "transformers"],
    "pydantic-ai-slim": ["pydantic-ai-slim[openai]"],
    "smolagents": ["smolagents[openai]"],
}


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
