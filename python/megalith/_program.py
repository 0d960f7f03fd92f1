"""Compiling, and looking at checkpoints."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Union

from . import _core
from ._errors import Message, mapping_of
from ._kernel import Kernel
from ._requests import Request, format_of, path_of

PathLike = Union[str, "os.PathLike[str]"]


@dataclass(frozen=True)
class Input:
    """What a pipeline's requests bring, as its file declares it."""

    name: str
    type: str
    """`i32`, `f32`, `bool` or `token`"""
    capacity: int | None
    """Of a sequence, or of a row of a table: how long it may be."""
    rows: int | None
    """Of a table: how many it may have."""
    least: int
    most: int
    default: Any
    required: bool
    """There is no default."""
    spelling: str
    """As the language has it: `i32 in 0..16`, `token[64]`, `token[4, 64]`."""


@dataclass(frozen=True)
class State:
    """A state of the pipeline's requests."""

    name: str
    slot: bool
    """Requests in it hold a slot."""
    terminal: bool


@dataclass(frozen=True)
class AnswerFormat:
    """What `Request.format` was made into."""

    states: int
    """Of its automaton."""
    masks: int
    """Different sets of tokens."""
    bytes: int
    """Of memory."""
    notes: list[str]
    """What was asked for and is not among its texts."""


@dataclass(frozen=True)
class Source:
    """The text of a kernel."""

    cuda: str
    """All units, one after the other."""
    control: tuple[str, str]
    """The pipeline's unit: what compilers call it, and its text."""
    tensors: tuple[str, str]
    """The models' unit."""
    manifest: str
    """JSON: launch, request layout, weights, pools."""
    plan: str
    """For a reader."""
    wide: tuple[str, str] | None = None
    """The models' unit of passes that run whole, where the kernel has such passes."""


@dataclass(frozen=True)
class Binary:
    """An assembled kernel."""

    code: bytes
    """The cubin; empty when PTX was asked for."""
    ptx: str
    kernels: list[dict[str, Any]]
    """Registers, spills, stack and shared memory of each entry point."""
    milliseconds: float
    cache_hit: bool
    how: str
    messages: list[Message]
    """Warnings."""


@dataclass(frozen=True)
class Inspection:
    """What would run of a checkpoint: docs/inspect.md of the project says what the members mean."""

    runs: bool
    pipeline: str
    """Its path; empty without one."""
    models: list[dict[str, Any]]
    messages: list[Message] = field(default_factory=list)
    """What compiling and loading would say, warnings included."""


def _spelled(value: Any) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _options(
    file: PathLike | None,
    model: PathLike | None,
    models: Mapping[str, PathLike] | None,
    params: Mapping[str, Any] | None = None,
    texts: Mapping[PathLike, str] | None = None,
    accept: Iterable[str] | None = None,
    plan: Mapping[str, Any] | Iterable[str] | None = None,
    profile: str | None = None,
    weights: bool = True,
) -> dict[str, Any]:
    for name, value in ("accept", accept), ("plan", plan):
        if isinstance(value, str):
            raise TypeError(f"`{name}` is a list of texts, found a text")
    pairs = [] if model is None else [("", path_of(model))]
    pairs += [(name, path_of(folder)) for name, folder in mapping_of(models, "models").items()]
    if isinstance(plan, Mapping):
        plan = [f"{key}={_spelled(value)}" for key, value in plan.items()]
    return {
        "file": "" if file is None else path_of(file),
        "models": pairs,
        "params": [(name, _spelled(value)) for name, value in mapping_of(params, "params").items()],
        "texts": {path_of(path): text for path, text in mapping_of(texts, "texts").items()},
        "accept": list(accept or []),
        "plan": list(plan or []),
        "profile": profile or "",
        "weights": weights,
    }


class Program:
    """A compiled pipeline. `megalith.compile()` makes it."""

    def __init__(self, core: _core.Program) -> None:
        self._core = core

    def __repr__(self) -> str:
        return f"<megalith.Program {self.name}>"

    def load(
        self,
        device: str = "auto",
        ordinal: int = 0,
        *,
        source_files: Iterable[PathLike] = (),
        whole_kernel: bool = False,
        cpu_arch: int = 900,
        check: bool = False,
        progress: Callable[[str], None] | None = None,
    ) -> Kernel:
        """Puts the program and its weights onto a device.

        `device`: `cuda`, `cpu` (the CPU executor: the kernel's own text, for tests), `reference` (the reference
        executor), or `auto`: a GPU if there is one, else `reference`. `ordinal` is the GPU's number.

        `source_files` are edited units in place of the emitted ones; `whole_kernel` compiles the kernel in one unit;
        `check` lets the CPU executor check every access to memory. `progress` is called with what is being done, and
        with "" when it is over.
        """
        options = {
            "device": device,
            "ordinal": ordinal,
            "source_files": [path_of(path) for path in source_files],
            "whole_kernel": whole_kernel,
            "cpu_arch": cpu_arch,
            "check": check,
            "progress": progress,
        }
        return Kernel(_core.load(self._core, options), self, ordinal)

    @property
    def name(self) -> str:
        """Of the pipeline."""
        return self._core.name()

    @property
    def messages(self) -> list[Message]:
        """Warnings of the compilation."""
        return self._core.messages()

    @property
    def accepted(self) -> list[str]:
        """Keys and tensors that were taken on the user's word."""
        return self._core.accepted()

    @property
    def model_files(self) -> dict[str, str]:
        """The model file that each model of the pipeline was read from, by the model's name."""
        return self._core.model_files()

    @property
    def converted(self) -> dict[str, int]:
        """How many tensors were F16 or F32. They are rounded to bf16."""
        return self._core.converted()

    def formats(self) -> dict[str, str]:
        """Of models whose checkpoints have codes: how, by the model's name."""
        return self._core.formats()

    @property
    def vocabulary(self) -> int:
        """Tokens of the (first) model."""
        return self._core.vocabulary()

    @property
    def byte_vocabulary(self) -> bool:
        """Whether token i below 256 is the byte i. Then prompts may be texts."""
        return self._core.byte_vocabulary()

    def set_token_bytes(self, of: Iterable[bytes | None]) -> None:
        """What each token spells in the middle of a text, for requests with a `format`; None or nothing: it is no part of
        one. Before sessions are open. A byte vocabulary needs none."""
        self._core.set_token_bytes([each or b"" for each in of])

    def prepare_format(self, format: str | Mapping[str, Any]) -> AnswerFormat:
        """Makes a request's `format`, which is kept for those that have it. megalith.Error: what is wrong with it. Any
        thread may call it, also while a session is open."""
        return AnswerFormat(**self._core.prepare_format(format_of(format)))

    @property
    def positions(self) -> float | None:
        """That the (first) model was made for."""
        return self._core.positions()

    @property
    def eos(self) -> list[int]:
        """Tokens that end a text, of the (first) model."""
        return self._core.eos()

    @property
    def reads_sampling(self) -> bool:
        """Whether the pipeline draws tokens by the settings of requests. Without that a temperature above 0 is refused."""
        return self._core.reads_sampling()

    @property
    def edits(self) -> frozenset[str]:
        """Settings of requests that change rows of logits and that the pipeline honours: `repetition_penalty`, `format`
        and the like. A request with another one is refused. Raises `megalith.Error` if no kernel can be planned."""
        return frozenset(json.loads(self.source().manifest).get("reducing", {}).get("edits", ()))

    @property
    def why_no_prompt_logprobs(self) -> str:
        """Why no request of a session can ask for the logprobs of its prompt; empty: they can."""
        return self._core.why_no_prompt_logprobs()

    @property
    def states(self) -> list[State]:
        """Of requests, in the order of their declaration."""
        return [State(*each) for each in self._core.states()]

    @property
    def inputs(self) -> list[Input]:
        """What requests bring."""
        return [Input(**each) for each in self._core.inputs()]

    @property
    def config_file(self) -> str:
        """The path of the (first) model's config.json."""
        return self._core.config_file()

    @property
    def files(self) -> list[tuple[str, str]]:
        """What the compilation has read: (of what, path)."""
        return self._core.files()

    def param(self, name: str) -> int | None:
        """A param's value; None when there is none of this name."""
        return self._core.param(name)

    def ast(self) -> str:
        """The YAML files as they were read."""
        return self._core.ast()

    def ir(self, part: str = "all") -> str:
        """The IR: `all`, `control` or `models`."""
        parts = ("all", "control", "models")
        if part not in parts:
            raise ValueError(f"`part` must be one of {', '.join(parts)}, found {part!r}")
        return self._core.ir(parts.index(part))

    def source(self) -> Source:
        """Plans for the options' profile and writes the kernel's text. Needs no GPU."""
        return Source(**self._core.source())

    def binary(
        self,
        arch: str = "sm_90a",
        *,
        ptx: bool = False,
        source_files: Iterable[PathLike] = (),
        whole_kernel: bool = False,
    ) -> Binary:
        """Compiles the kernel with NVRTC and links it, but for what the kernel cache has. Needs no GPU."""
        files = [path_of(path) for path in source_files]
        return Binary(
            **self._core.binary({"arch": arch, "ptx": ptx, "source_files": files, "whole_kernel": whole_kernel})
        )

    def read_requests(self, path: PathLike) -> list[Request]:
        """Reads a file of requests, one JSON object a line (docs/running.md of the project)."""
        return [Request(**each) for each in self._core.requests(path_of(path), True, "")]

    def parse_requests(self, text: str, name: str = "<requests>") -> list[Request]:
        """The same, of a text. `name` is what messages call it."""
        return [Request(**each) for each in self._core.requests(text, False, name)]


def compile(
    file: PathLike,
    model: PathLike | None = None,
    models: Mapping[str, PathLike] | None = None,
    params: Mapping[str, Any] | None = None,
    texts: Mapping[PathLike, str] | None = None,
    accept: Iterable[str] | None = None,
    plan: Mapping[str, Any] | Iterable[str] | None = None,
    profile: str | None = None,
    weights: bool = True,
) -> Program:
    """Compiles a pipeline.

    file      path of the pipeline; `megalith.pipeline(NAME)` is one of those that come with the package
    model     folder of the checkpoint, for all models of the pipeline that `models` does not name
    models    folders by the name of the model in the pipeline
    params    other values of the file's params
    texts     texts in place of files, by path
    accept    keys of config.json, and tensors, to take although the model file does not understand them
    plan      tunes the plan; never changes a result
    profile   the device to plan for: h200, h100, a100, b200, cpu. Without it, the one on which the kernel is loaded
    weights   open and check the weights; a program without them can be looked at and not run

    Raises `megalith.Error`.
    """
    return Program(_core.compile(_options(file, model, models, params, texts, accept, plan, profile, weights)))


def inspect(
    model: PathLike | None = None,
    models: Mapping[str, PathLike] | None = None,
    *,
    file: PathLike | None = None,
    params: Mapping[str, Any] | None = None,
    texts: Mapping[PathLike, str] | None = None,
    accept: Iterable[str] | None = None,
    weights: bool = True,
) -> Inspection:
    """Says what would run of a checkpoint, with a pipeline (`file`) or without one.

    That it would not run is no error: `Inspection.runs` says so, and `messages` why.
    """
    return Inspection(**_core.inspect(_options(file, model, models, params, texts, accept, weights=weights)))


def state_diagram(file: PathLike, texts: Mapping[PathLike, str] | None = None) -> str:
    """The states of a pipeline and the ways between them, for Graphviz. Needs no checkpoint."""
    return _core.state_diagram(_options(file, None, None, texts=texts))


def pipelines() -> dict[str, Path]:
    """The pipelines that come with the package, by name."""
    folder = Path(__file__).parent / "share/megalith/pipelines"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def pipeline(name: str) -> Path:
    """The path of a pipeline that comes with the package: `megalith.pipeline("sampled")`."""
    known = pipelines()
    if name not in known:
        near = difflib.get_close_matches(name, known, 1) or [each for each in known if each.startswith(name)]
        advice = f"did you mean `{near[0]}`?" if near else f"it has {', '.join(known)}"
        raise ValueError(f"there is no pipeline `{name}` in the package; {advice}")
    return known[name]
