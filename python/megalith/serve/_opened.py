"""A server that is open: its session, and the application that answers. By the options of `megalith-serve`."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import text as texts
from .._chat import compile_from, find_pipeline, show_progress
from .._errors import Error
from .._generation import read_generation_config
from .._program import Program
from ._app import Facts, make_app
from ._engine import Engine
from ._protocol import Limits
from ._reader import Reader, Recipe

_NAMES = {"reference": "the reference executor", "cpu": "the CPU executor"}


class Refused(Exception):
    """What was asked for cannot be."""


@dataclass(frozen=True)
class Opened:
    app: Any
    engine: Engine
    pipeline: str
    folder: Any
    device: str
    model: str
    """What clients call it."""


def api_key_of(parsed: argparse.Namespace) -> str | None:
    key: str | None = parsed.api_key if parsed.api_key is not None else os.environ.get("MEGALITH_API_KEY") or None
    if key == "":
        raise Refused("--api-key is empty")
    if key is not None and not re.fullmatch(r"[\x21-\x7e]+", key):  # others arrive as other bytes
        raise Refused("the API key may have visible ASCII characters only, and no spaces")
    return key


_PROBES = (
    [{"role": "user", "content": "Hello"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}],
)


def _probe(tokenizer: texts.Tokenizer, chat_template: str | None) -> None:
    """A chat template that does not work is told now, and not to each client. One that was asked for is an error."""
    why = ""
    for messages in _PROBES:
        try:
            tokenizer.chat_text(messages)
            return
        except Exception as error:  # noqa: BLE001, a template may raise anything
            why = why or str(error)
    if chat_template is not None:
        raise texts.TextError(f"--chat-template {chat_template}: {why}")
    print(f"warning: chats will be refused, completions work: {why}", file=sys.stderr)


def _token_bytes(tokenizer: texts.Tokenizer) -> int:
    """The most bytes that a token stands for; 0: that is not known. Some tokenizers drop parts of a text."""
    if isinstance(tokenizer, texts.ByteTokenizer):
        return 1
    try:
        made = json.loads(tokenizer._tokenizer.to_str())  # type: ignore[attr-defined]
        model = made["model"]
        if model["type"] != "BPE" or model.get("fuse_unk") and not model.get("byte_fallback"):
            return 0
        pending, kept = [made.get("normalizer")], {"NFC", "Prepend", "Replace", "Sequence"}
        while pending:
            normalizer = pending.pop()
            if normalizer is not None:
                if normalizer["type"] not in kept:
                    return 0
                if normalizer["type"] == "Replace" and not normalizer.get("content"):
                    return 0
                pending += normalizer.get("normalizers", ())
        pending = [made.get("pre_tokenizer")]
        while pending:
            splitter = pending.pop()
            if splitter is not None:
                if splitter["type"] not in ("ByteLevel", "Sequence", "Metaspace", "Digits") and (
                    splitter["type"] != "Split" or splitter.get("behavior") == "Removed"
                ):
                    return 0
                pending += splitter.get("pretokenizers", ())
        added = made.get("added_tokens") or []
        if any(each.get("lstrip") or each.get("rstrip") for each in added):
            return 0
        names = [*model["vocab"], *(each["content"] for each in added)]
        # A normalizer may make one character of three.
        return max(len(name.encode()) for name in names) * (3 if made.get("normalizer") else 1)
    except (AttributeError, KeyError, TypeError, ValueError):
        return 0


def _edits_of(program: Program) -> frozenset[str] | None:
    """None: that is not known. The reference executor has pipelines that no kernel can be planned for."""
    try:
        return program.edits
    except Error:
        return None


@contextlib.contextmanager
def opened(parsed: argparse.Namespace, hosts: frozenset[str] | None) -> Iterator[Opened]:
    """Compiles, loads and opens all. `hosts`: names that clients may call the server by; None: any."""
    api_key = api_key_of(parsed)
    with contextlib.ExitStack() as stack:
        program, folder = compile_from(parsed, find_pipeline(parsed.pipeline))
        for message in program.messages:
            print(message, end="", file=sys.stderr)
        tokenizer = texts.load(folder, program, parsed.chat_template)
        if tokenizer.has_chat_template:
            _probe(tokenizer, parsed.chat_template)
        edits = _edits_of(program)
        usual = read_generation_config(folder, program.reads_sampling, edits or ())
        for sentence in usual.untold:
            print(f"warning: {sentence}", file=sys.stderr)
        positions = program.positions
        if parsed.context is not None and positions is not None and parsed.context > positions:
            raise Refused(f"--context is {parsed.context}, and the model was made for {positions:g} positions")
        if parsed.api_key is not None:
            print("warning: others on this machine can read the API key in the command line", file=sys.stderr)
        why_no_formats = "" if program.reads_sampling else "this pipeline does not read `sampling`"
        if not why_no_formats and edits is not None and "format" not in edits:
            why_no_formats = "this pipeline cannot keep one"
        if not why_no_formats and not program.byte_vocabulary:
            try:
                program.set_token_bytes(tokenizer.all_bytes(program.vocabulary))
            except texts.TextError as error:
                why_no_formats = str(error)
        kernel = program.load(parsed.device, parsed.ordinal, progress=show_progress)
        show_progress("")
        session = kernel.session(
            queue=parsed.max_waiting + 256,  # beyond what is refused here
            max_tokens=parsed.context or 0,
            max_ends=256,
            seed=parsed.seed,
            idle_ms=parsed.idle_ms,
            logit_lines=min((64 << 20) // (4 * program.vocabulary), 4096)
            if parsed.logit_lines is None
            else parsed.logit_lines,
            tokenizer=tokenizer,
        )
        try:
            context = session.options["max_tokens"]
            limits = Limits(
                model=parsed.served_model_name or Path(folder).resolve().name,
                context=context,
                prompt_tokens=min(context, parsed.max_prompt_tokens or context),
                completion_tokens=min(context, parsed.max_completion_tokens or context),
                vocabulary=program.vocabulary,
                samples=program.reads_sampling,
                temperature=usual.temperature,
                top_p=usual.top_p,
                top_k=usual.top_k,
                min_p=usual.min_p,
                repetition_penalty=usual.repetition_penalty,
                edits=program.reads_sampling,
                formats=not why_no_formats,
                why_no_formats=why_no_formats,
                tool_parser=parsed.tool_parser or "",
                usual=usual,
                token_bytes=_token_bytes(tokenizer),
                ends=session.options["max_ends"],
                eos=len(tokenizer.eos),
                logit_lines=session.options["logit_lines"],
                no_prompt_logprobs=program.why_no_prompt_logprobs,
            )
            engine = Engine(
                session,
                tokenizer,
                limits,
                max_waiting=parsed.max_waiting,
                request_timeout=parsed.request_timeout,
                show_text=parsed.show_text,
                states=program.states,
                prepare_format=program.prepare_format,
            )
            device = kernel.device_name or _NAMES.get(kernel.device, kernel.device)
            recipe = Recipe(
                folder, parsed.chat_template, tuple(program.eos), program.byte_vocabulary, program.vocabulary
            )
            reader = stack.enter_context(contextlib.closing(Reader(limits, tokenizer, recipe)))
            facts = Facts(
                program.name,
                device,
                api_key,
                hosts,
                parsed.max_body,
                str(folder),
                frozenset(parsed.allow_origin),
            )
            app = make_app(engine, facts, reader)
            yield Opened(app, engine, program.name, folder, device, limits.model)
        finally:
            session.close()
