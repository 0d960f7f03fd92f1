"""A server whose model is a script: it answers what a test wants. All but the kernel is what `megalith-serve` has."""

import asyncio
import itertools
import threading
from types import SimpleNamespace

import megalith
import uvicorn
from megalith._events import End, Event
from megalith._templates import Templates
from megalith.serve._app import Facts, make_app
from megalith.serve._engine import Engine
from megalith.serve._protocol import Limits
from megalith.serve._reader import Reader, Recipe

TEMPLATES = {
    "hermes": """{% if tools %}<tools>{{ tools | tojson }}</tools><tool_call></tool_call>
{% endif %}""",
    "llama3_json": """{% if tools %}{{ tools | tojson }} {"name": function name, "parameters": ...}<|start_header_id|>
{% endif %}""",
    "mistral": """{% if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS][TOOL_CALLS]
{% endif %}""",
}
MESSAGES = """{% for m in messages %}[{{ m.role }}{% if m.tool_call_id %} {{ m.tool_call_id }}{% endif %}]{{ m.content }}{% for c in m.tool_calls %}({{ c.id }} {{ c.function.name }} {{ c.function.arguments | tojson }}){% endfor %}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"""
EOS = 256


class _Generation:
    def __init__(self, number, tokens, budget, size, fault):
        self.number, self.tokens, self.budget, self.size, self.fault = number, tokens, budget, size, fault

    async def events(self):
        tokens, is_length = self.tokens[: self.budget], len(self.tokens) > self.budget
        groups = [tokens[at : at + self.size] for at in range(0, len(tokens), self.size)] or [[]]
        for index, group in enumerate(groups):
            await asyncio.sleep(0)
            end = None
            if index == len(groups) - 1:
                finish = "fault" if self.fault else "length" if is_length else "stop"
                end = End(finish, "DONE", self.fault, "", "p.yaml:3", 1, len(tokens), 1, 1, 0.0, 0.0, 0.0, 0.0)
            yield Event(self.number, None, group, "DECODE", end, 0.0)

    def _close(self):
        pass


class _Session:
    """As far as the server asks one."""

    def __init__(self):
        self.answer = lambda prompt: ""
        self.asked = []
        """Prompts, and what else the session was asked for."""
        self.size = 3
        """Tokens that come at once."""
        self.fault = ""
        """With which an answer ends."""
        self.done, self._router = False, SimpleNamespace(over=False, failed=None)
        self._numbers = itertools.count()

    def agenerate(self, prompt, budget, **members):
        text = bytes(each for each in prompt if each < 256).decode()
        self.asked.append((text, members))
        return _Generation(next(self._numbers), [*self.answer(text).encode(), EOS], budget, self.size, self.fault)

    def stats(self):
        return {"slots": [], "waiting": 0, "running": 0, "pools": [], "metrics": {}, "increments": {}}


class Scripted:
    """A server on a thread. `form` is that of the chat template."""

    def __init__(self, form="hermes", template=None, request_timeout=0, prepare_format=None, **limits):
        self.session = _Session()
        tokenizer = megalith.text.ByteTokenizer([EOS])
        tokenizer._templates = Templates({"default": TEMPLATES[form] + MESSAGES if template is None else template})
        known = dict(context=20000, prompt_tokens=20000, completion_tokens=20000, vocabulary=260, samples=True)
        known |= dict(temperature=1.0, top_p=1.0, top_k=0, ends=64, eos=1, edits=True)
        self.limits = Limits(model="demo", **{**known, **limits})
        self.engine = Engine(
            self.session, tokenizer, self.limits, max_waiting=64, request_timeout=request_timeout, show_text=False, prepare_format=prepare_format
        )
        self.reader = Reader(self.limits, tokenizer, Recipe("", None, (EOS,), True, 260))
        app = make_app(self.engine, Facts("scripted", "nothing", None, None, 1 << 20), self.reader)
        self.server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", lifespan="off", ws="none"))
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_until_complete, args=(self.server.serve(),), daemon=True)

    def __enter__(self):
        self.thread.start()
        while not (self.server.started and self.server.servers):
            assert self.thread.is_alive()
            threading.Event().wait(0.01)
        port = self.server.servers[0].sockets[0].getsockname()[1]
        self.base = f"http://127.0.0.1:{port}/v1"
        return self

    def __exit__(self, *_):
        self.server.should_exit = True
        self.thread.join(30)
        self.reader.close()
