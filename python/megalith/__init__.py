"""Megalith compiles a YAML file of an LLM inference pipeline into one persistent CUDA kernel, and runs it.

    import megalith

    program = megalith.compile(megalith.pipeline("sampled"), model="models/demo")
    kernel = program.load()
    results = kernel.run([megalith.Request("In the beginning ", max_new_tokens=64)])
    print(bytes(results[0].tokens.tolist()))

    with kernel.session() as session:
        for token in session.generate("And God said ", max_new_tokens=64):
            print(chr(token), end="", flush=True)

What is refused or fails raises `megalith.Error`, whose `messages` have kind, place and advice.
"""

import os as _os
import sys as _sys

from . import text
from ._core import fault_text
from ._core import version as _version
from ._errors import Error, Message, Note
from ._events import End, Event, Logprob, SessionTrace
from ._kernel import Kernel, Result, Results
from ._program import (
    Binary,
    Input,
    Inspection,
    Program,
    AnswerFormat,
    Source,
    State,
    compile,
    inspect,
    pipeline,
    pipelines,
    state_diagram,
)
from ._requests import Request
from ._session import Session
from ._streams import AsyncGeneration, Generation

__version__: str = _version()

__all__ = [
    "AsyncGeneration",
    "Binary",
    "End",
    "Error",
    "Event",
    "Generation",
    "Input",
    "Inspection",
    "Kernel",
    "Logprob",
    "Message",
    "Note",
    "Program",
    "Request",
    "Result",
    "Results",
    "Session",
    "SessionTrace",
    "AnswerFormat",
    "Source",
    "State",
    "compile",
    "fault_text",
    "inspect",
    "pipeline",
    "pipelines",
    "state_diagram",
    "text",
]

# The library looks for NVRTC in the active virtual environment. One whose Python runs is meant as well.
if _sys.prefix != _sys.base_prefix and not _os.environ.get("VIRTUAL_ENV"):
    _os.environ["VIRTUAL_ENV"] = _sys.prefix

for _name in __all__:  # where users find them
    if isinstance(globals()[_name], type):
        globals()[_name].__module__ = __name__
del _name
