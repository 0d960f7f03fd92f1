"""Kernels, and batches of requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

import numpy as np
import numpy.typing as npt

from . import _core
from ._errors import Message
from ._requests import Request, byte_encode, dict_of, number_of
from ._session import Session

if TYPE_CHECKING:
    from ._program import Program


@dataclass(frozen=True)
class Result:
    """How one request ended."""

    id: str | int
    tokens: npt.NDArray[np.int32]
    """That were generated."""
    finish: str
    """`stop` (an EOS), `length` (the budget), `state` (the pipeline ended it), `cancelled`, `deadline`, `fault`, or
    `limit` (the run was cut off)."""
    state: str
    """In which it ended."""
    fault: str
    """The code, with `fault`; `megalith.fault_text()` explains it."""
    fault_state: str
    place: str
    """FILE:LINE of the pipeline."""
    fault_detail: str
    """Numbers of the fault in words: `position 7 holds token 5, and was fed 9`. Some have none."""
    passes: int
    rows: int
    found: int
    """Positions of its prompt that the first model's pool had in its index, so that they were not fed."""
    format: str
    """Of a request with a format: `complete` (the answer is one of its texts) or `partial`."""
    arrived: float
    """When the kernel got to know of it: milliseconds on a GPU, elsewhere ticks. A time that never came is negative."""
    admitted: float
    append_times: npt.NDArray[np.float64]
    append_tokens: npt.NDArray[np.int32]
    logits: npt.NDArray[np.float32] | None
    """[generated, vocabulary of the first model], when wanted."""
    gauges: dict[str, npt.NDArray[np.float64]]
    """Of each traced value, by tick; when wanted."""
    error: Message | None
    """Why it ended with a fault, or was cut off."""


@dataclass(frozen=True)
class Results:
    """What a batch gave. It is a sequence of its `requests`, in the order in which they were given."""

    requests: list[Result]
    metrics: dict[str, int]
    ticks: int
    passes: int
    rows: int
    launches: int
    """Of the kernel; 0 of the reference executor."""
    calls: dict[str, int]
    """What the host asked of the driver, on a GPU."""
    milliseconds: float
    tick_times: npt.NDArray[np.float64]
    trace: str | None
    """JSON lines, when wanted."""
    messages: list[Message]
    """Warnings, and what was found wrong by a check that was asked for."""

    def __len__(self) -> int:
        return len(self.requests)

    def __getitem__(self, index: int) -> Result:
        return self.requests[index]

    def __iter__(self) -> Iterator[Result]:
        return iter(self.requests)


class Kernel:
    """A program on a device, with its weights. `Program.load()` makes it."""

    def __init__(self, core: _core.Kernel, program: Program, ordinal: int = 0) -> None:
        self._core = core
        self._ordinal = ordinal
        self.program = program
        self._inputs = program._core.inputs()
        self._encode = byte_encode if program.byte_vocabulary else None

    def __repr__(self) -> str:
        return f"<megalith.Kernel {self.program.name} on {self.device}>"

    def run(
        self,
        requests: Iterable[Union[Request, Mapping[str, Any]]],
        *,
        logits: bool = False,
        trace: bool = False,
        gauges: bool = False,
        tick_times: bool = False,
        kv_hash: bool = False,
        max_ticks: int = 0,
        seed: int = 0,
        control: str = "resident",
        ticks_per_launch: int = 0,
        watchdog: float = 10.0,
        repeat: int = 1,
        shuffle_pages: int | None = None,
        delay_seed: int = 0,
        replay: str | None = None,
        schedule: str = "",
        progress: Callable[[str], None] | None = None,
    ) -> Results:
        """Runs a batch of requests to its end.

        Each request is a `Request`, or a dict with its members. `logits`, `trace`, `gauges` and `tick_times` ask for
        parts of the results. `max_ticks` ends the run after so many. `seed` is that of random numbers, beside each
        request's own. `control` is `resident`, `host` or `graph`, and `ticks_per_launch` ends each launch after so
        many. `watchdog` ends a kernel in which nothing moves for so many seconds. The others check the kernel itself:
        docs/running.md of the project has them by the same names.

        Other threads run meanwhile; one batch of a program runs at a time. Ctrl-C ends the batch where it is.
        """
        batch = []
        for number, each in enumerate(requests):
            request = Request.of(each)
            for name in ("logprobs", "prompt_logprobs"):
                if getattr(request, name) is not None:
                    raise TypeError(f"`{name}` is for sessions: a batch gives whole rows with `logits=True`")
            batch.append(dict_of(request, str(number), self._inputs, self._encode, self._encode))
        options = {
            "logits": logits,
            "trace": trace,
            "gauges": gauges,
            "tick_times": tick_times,
            "kv_hash": kv_hash,
            "max_ticks": max_ticks,
            "seed": seed,
            "control": control,
            "ticks_per_launch": ticks_per_launch,
            "watchdog": number_of(watchdog, "watchdog"),
            "repeat": repeat,
            "shuffle_pages": shuffle_pages,
            "delay_seed": delay_seed,
            "replay": replay,
            "schedule": schedule,
            "progress": progress,
        }
        results = _core.run(self._core, batch, options, self.program._core.logits_vocabulary())
        results["requests"] = [Result(**each) for each in results["requests"]]
        return Results(**results)

    def __call__(self, *, stream: int | None = None, **buffers: Any) -> None:
        """Calls a pipeline of buffers: `kernel(draft=t, target=u, accepted=a)`.

        Each buffer is a tensor of PyTorch or CuPy, or anything else with DLPack or `__cuda_array_interface__`; for a
        kernel that is not on a GPU an array of the host. It must be row-major, without gaps. All buffers of the file
        are given, also those that stages write.

        On a GPU it is one launch: nothing is allocated or waited for, and `torch.cuda.graph` may capture it. `stream`
        is a CUDA stream as a number (`torch.cuda.Stream.cuda_stream`); without it PyTorch's current one, or the
        default stream. Calls of one stream run one after the other. `check()` tells whether one ended in a fault.
        """
        _core.call(self._core, buffers, stream, False, self._ordinal)

    def call(self, buffers: Mapping[str, Any], *, stream: int | None = None, control: str = "resident") -> None:
        """The same with the buffers in a dict. `control="host"` launches once for each stage."""
        if control not in ("resident", "host"):
            raise ValueError(f"control must be one of 'resident', 'host', found {control!r}")
        _core.call(self._core, dict(buffers), stream, control == "host", self._ordinal)

    def check(self, stream: int | None = None) -> None:
        """Waits for what the stream was given (without one, the default stream), and raises `megalith.Error` if a call
        since the last `check()` ended in a fault. What such a call has written means nothing."""
        _core.check(self._core, stream)

    def session(self, **options: Any) -> Session:
        """Opens a session, which takes requests while the kernel runs. `Session` lists the options."""
        return Session(self, **options)

    @property
    def device(self) -> str:
        """`cuda`, `cpu` or `reference`"""
        return self._core.device()

    @property
    def device_name(self) -> str:
        """Of the GPU; empty elsewhere."""
        return self._core.device_name()

    @property
    def messages(self) -> list[Message]:
        """Warnings of loading."""
        return self._core.messages()

    @property
    def compile_ms(self) -> float:
        """How long the kernel took to compile, or to come from the cache."""
        return self._core.compile_ms()

    @property
    def load_ms(self) -> float:
        return self._core.load_ms()

    @property
    def weights(self) -> dict[str, Any]:
        """What became of the checkpoint on the device. Of the reference executor all is 0."""
        return self._core.weights()

    @property
    def cache_hit(self) -> bool | None:
        """None: there was nothing to compile."""
        return self._core.cache_hit()

    @property
    def how(self) -> str:
        """`compiled`, `control unit compiled`, `linked`, `taken from the kernel cache`, ..."""
        return self._core.how()

    @property
    def cuda(self) -> str:
        """The text that runs. Of the reference executor empty."""
        return self._core.cuda()
