"""Answers in the forms of the API, whole and as events of a stream."""

from __future__ import annotations

import json
import logging
import math
import time
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from .._core import version
from .._events import Logprob
from ..text import Tokenizer
from ._engine import Run, TokenLogprob
from ._protocol import ApiError, Job
from ._tool_calls import CallArguments, CallBegin, Part

_log = logging.getLogger("megalith.serve")


def tell_failure(error: ApiError) -> None:
    """The log has what is no client's fault."""
    if error.status == 500:
        _log.error("%s", error.message)


class Answer:
    """The parts of an answer, whole or in chunks, of one kind of call."""

    def __init__(self, job: Job, model: str, tokenizer: Tokenizer) -> None:
        self.job, self.tokenizer = job, tokenizer
        self.head = {
            "id": ("chatcmpl-" if job.is_chat else "cmpl-") + (job.id or uuid.uuid4().hex),
            "object": "",
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": f"megalith-{version()}",
        }

    def usage(self, run: Run) -> dict[str, Any]:
        prompt, completion = sum(map(len, self.job.prompts)), run.completion_tokens
        # Of each prompt's first choice: the others find what that one feeds.
        cached = sum(choice.found for choice in run.choices[:: self.job.drawn])
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": cached},
        }

    def _name(self, token: int) -> str:
        """Its text, if it is such by itself."""
        if self.job.names_tokens:
            return f"token_id:{token}"
        known = self.tokenizer.bytes_of(token)
        if known is None:
            return self.tokenizer.name_of(token)
        try:
            return known.decode()
        except UnicodeDecodeError:
            return ("" if self.job.is_chat else "bytes:") + "".join(f"\\x{byte:02x}" for byte in known)

    def logprobs(self, told: Sequence[TokenLogprob]) -> dict[str, Any] | None:
        if self.job.logprobs is None:
            return None
        if self.job.is_chat:

            def one(token: int, logprob: float | None) -> dict[str, Any]:
                known = self.tokenizer.bytes_of(token)
                return {
                    "token": self._name(token),
                    "logprob": _finite(logprob),
                    "bytes": None if known is None else list(known),
                }

            content = [
                {
                    **one(each.token, each.of.logprob),
                    "top_logprobs": [one(token, logprob) for token, logprob in each.of.likeliest],
                }
                for each in told
            ]
            return {"content": content, "refusal": None}
        tops: list[dict[str, float | None] | None] = []
        for each in told:
            top: dict[str, float | None] = {}
            for token, logprob in [*each.of.likeliest, (each.token, each.of.logprob)]:  # the token itself is among them
                top.setdefault(self._name(token), _finite(logprob))
            tops.append(None if each.of.logprob is None else top)
        return {
            "tokens": [self._name(each.token) for each in told],
            "token_logprobs": [_finite(each.of.logprob) for each in told],
            "top_logprobs": tops,
            "text_offset": [each.begin for each in told],
        }

    async def whole(self, run: Run) -> dict[str, Any]:
        """When all choices have ended."""
        texts, finishes = [""] * len(run.choices), [""] * len(run.choices)
        logprobs: list[list[TokenLogprob]] = [[] for _ in run.choices]
        calls: list[list[dict[str, Any]]] = [[] for _ in run.choices]
        async with aclosing(run.pieces()) as pieces:
            async for piece in pieces:
                texts[piece.choice] += piece.text
                for part in piece.parts:
                    if isinstance(part, CallBegin):
                        calls[piece.choice].append(_call(part.name))
                    elif isinstance(part, CallArguments):
                        calls[piece.choice][part.index]["function"]["arguments"] += part.text
                logprobs[piece.choice] += piece.logprobs
                finishes[piece.choice] = piece.finish or ""
        choices = []
        for index, drawn in enumerate(self._best(logprobs)):
            text, finish, told = texts[drawn], finishes[drawn], logprobs[drawn]
            number = drawn // self.job.drawn
            of_prompt = run.choices[number * self.job.drawn].prompt_logprobs
            if self.job.echo:
                shown, before = self._echo(self.job.prompts[number], of_prompt)
                text = shown + text
                told = before + [replace(each, begin=each.begin + len(shown)) for each in told]
            said: dict[str, Any] = {"text": text}
            if self.job.is_chat:
                called = calls[drawn]
                said = {"message": {"role": "assistant", "content": text, "refusal": None, "annotations": []}}
                if called:
                    said["message"] |= {"content": text or None, "tool_calls": called}
            choices.append({"index": index, **said, "logprobs": self.logprobs(told), "finish_reason": finish})
            if self.job.prompt_logprobs is not None and not self.job.is_chat:
                choices[-1]["prompt_logprobs"] = self._prompt_logprobs(self.job.prompts[number], of_prompt)
        kind = "chat.completion" if self.job.is_chat else "text_completion"
        out = {**self.head, "object": kind, "choices": choices, "usage": self.usage(run)}
        if self.job.prompt_logprobs is not None and self.job.is_chat:
            out["prompt_logprobs"] = self._prompt_logprobs(self.job.prompts[0], run.choices[0].prompt_logprobs)
        return out

    def _echo(self, prompt: Sequence[int], of_prompt: Sequence[Logprob]) -> tuple[str, list[TokenLogprob]]:
        """The text of a prompt, and what is told of its tokens."""
        pieces, text, told = self.tokenizer.pieces(special=self.job.shows_special), "", []
        for number, token in enumerate(prompt):
            begin = len(text)
            text += pieces.push(token)
            if of_prompt:
                told.append(TokenLogprob(int(token), begin, len(text), self._most(of_prompt[number], self.job.logprobs)))
        return text + pieces.flush(), told

    def _most(self, of: Logprob, most: int | None) -> Logprob:
        return replace(of, likeliest=of.likeliest[: most or 0])

    def _prompt_logprobs(self, prompt: Sequence[int], of_prompt: Sequence[Logprob]) -> list[dict[str, Any] | None]:
        """As vLLM has them: by token, the likeliest ones and the token itself."""
        out: list[dict[str, Any] | None] = [None] * min(1, len(of_prompt))
        for token, told in list(zip(prompt, of_prompt))[1:]:
            of = self._most(told, self.job.prompt_logprobs)
            ranked = {each: (logprob, rank) for rank, (each, logprob) in enumerate(of.likeliest, 1)}
            ranked.setdefault(int(token), (of.logprob, of.rank))
            out.append(
                {
                    str(each): {"logprob": _finite(logprob), "rank": rank, "decoded_token": self._name(each)}
                    for each, (logprob, rank) in ranked.items()
                }
            )
        return out

    def _best(self, logprobs: list[list[TokenLogprob]]) -> list[int]:
        """Those that are told: of each prompt the `n` with the greatest mean logprob."""
        if self.job.drawn == self.job.n:
            return list(range(len(logprobs)))

        def mean(choice: int) -> float:
            known = [_finite(each.of.logprob) for each in logprobs[choice] if each.of.logprob is not None]
            return sum(known) / len(known) if known else -math.inf

        out: list[int] = []
        for begin in range(0, len(logprobs), self.job.drawn):
            of_prompt = range(begin, begin + self.job.drawn)
            out += sorted(of_prompt, key=mean, reverse=True)[: self.job.n]  # of equals the first
        return out

    def chunk(self, choices: list[dict[str, Any]], usage: dict[str, Any] | None = None) -> dict[str, Any]:
        kind = "chat.completion.chunk" if self.job.is_chat else "text_completion"
        chunk = {**self.head, "object": kind, "choices": choices}
        if self.job.wants_usage:
            chunk["usage"] = usage
        return chunk

    def _usage_now(self, run: Run) -> dict[str, Any] | None:
        return self.usage(run) if self.job.usage_each else None

    def choice(
        self,
        index: int,
        text: str | None,
        finish: str | None = None,
        told: Sequence[TokenLogprob] = (),
        **more: Any,
    ) -> dict[str, Any]:
        said: dict[str, Any] = {"text": text or ""}
        if self.job.is_chat:
            said = {"delta": {**more, **({} if text is None else {"content": text})}}
        return {
            "index": index,
            **said,
            "logprobs": self.logprobs(told) if told else None,
            "finish_reason": finish,
        }

    def _part(self, index: int, part: Part, told: Sequence[TokenLogprob]) -> dict[str, Any]:
        if isinstance(part, str):
            return self.choice(index, part, None, told)
        if isinstance(part, CallBegin):
            call = {"index": part.index, **_call(part.name)}
        else:
            call = {"index": part.index, "function": {"arguments": part.text}}
        return self.choice(index, None, None, told, tool_calls=[call])

    async def events(self, run: Run) -> AsyncGenerator[bytes, None]:
        """Server-sent events."""
        try:
            if self.job.is_chat:
                for index in range(len(run.choices)):
                    yield _event(self.chunk([self.choice(index, "", role="assistant")], self._usage_now(run)))
            async with aclosing(run.pieces()) as pieces:
                async for piece in pieces:
                    now = self._usage_now(run)
                    if not self.job.is_chat:
                        choice = self.choice(piece.choice, piece.text, piece.finish, piece.logprobs)
                        yield _event(self.chunk([choice], now))
                        continue
                    told = piece.logprobs  # the first chunk has them
                    for part in piece.parts or ([""] if told else []):
                        said = self._part(piece.choice, part, told)
                        yield _event(self.chunk([said], now))
                        told = ()
                    if piece.finish:
                        yield _event(self.chunk([self.choice(piece.choice, None, piece.finish)], now))
            if self.job.wants_usage:
                yield _event(self.chunk([], self.usage(run)))
        except ApiError as error:  # the status was sent already
            tell_failure(error)
            yield _event(error.body())
        yield b"data: [DONE]\n\n"


def _call(name: str) -> dict[str, Any]:
    """Of a tool, whose arguments are to come."""
    return {"id": f"call_{uuid.uuid4().hex}", "type": "function", "function": {"name": name, "arguments": ""}}


def _finite(logprob: float | None) -> float | None:
    """JSON has no infinity; the API says -9999 for what cannot come."""
    return logprob if logprob is None else max(logprob, -9999.0)


def _event(value: Any) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n\n"
