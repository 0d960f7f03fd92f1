"""Answers of `/v1/responses`: its events, of which the last one has the whole answer."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any

from ._answers import tell_failure
from ._engine import Run
from ._protocol import ApiError, Job
from ._tool_calls import CallArguments, CallBegin, Part


class ResponseAnswer:
    def __init__(self, job: Job, model: str) -> None:
        assert job.response is not None
        self.job = job
        self.response: dict[str, Any] = {
            "id": "resp_" + (job.id or uuid.uuid4().hex),
            "object": "response",
            "created_at": int(time.time()),
            "status": "in_progress",
            "background": False,
            "error": None,
            "incomplete_details": None,
            "model": model,
            "output": [],
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None},
            "service_tier": "default",
            "store": False,
            "truncation": "disabled",
            "usage": None,
            **job.response,
        }
        self.number = 0
        """Of events."""

    async def whole(self, run: Run) -> dict[str, Any]:
        async with aclosing(self._made(run)) as made:
            async for _ in made:
                pass
        return self.response

    async def events(self, run: Run) -> AsyncGenerator[bytes, None]:
        """Server-sent events."""
        try:
            async with aclosing(self._made(run)) as made:
                async for event in made:
                    yield _event(event)
        except ApiError as error:  # the status was sent already
            tell_failure(error)
            self.response |= {"status": "failed", "error": {"code": error.code or "server_error", "message": error.message}}
            yield _event(self._event("response.failed", response=self.response))

    def _event(self, kind: str, **members: Any) -> dict[str, Any]:
        self.number += 1
        return {"type": kind, "sequence_number": self.number - 1, **members}

    async def _made(self, run: Run) -> AsyncGenerator[dict[str, Any], None]:
        for kind in ("response.created", "response.in_progress"):
            yield self._event(kind, response=self.response)
        finish = ""
        async with aclosing(run.pieces()) as pieces:
            async for piece in pieces:
                for part in piece.parts:
                    for event in self._part(part):
                        yield event
                finish = piece.finish or ""
        if not self.response["output"]:
            for event in self._part(""):
                yield event
        for event in self._close(is_whole=finish != "length"):
            yield event
        cached = sum(choice.found for choice in run.choices)
        prompt, made = len(self.job.prompts[0]), run.completion_tokens
        self.response["usage"] = {
            "input_tokens": prompt,
            "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
            "output_tokens": made,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": prompt + made,
        }
        self.response["status"] = "completed"
        if finish == "length":
            self.response |= {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
        yield self._event(f"response.{self.response['status']}", response=self.response)

    # The last item of the output grows.

    def _open(self, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield from self._close()
        self.response["output"].append(item)
        yield self._event("response.output_item.added", output_index=self._index, item=_copy(item))

    @property
    def _index(self) -> int:
        return len(self.response["output"]) - 1

    def _part(self, part: Part) -> Iterator[dict[str, Any]]:
        output = self.response["output"]
        if isinstance(part, CallBegin):
            yield from self._open(
                {
                    "id": f"fc_{uuid.uuid4().hex}",
                    "type": "function_call",
                    "status": "in_progress",
                    "call_id": f"call_{uuid.uuid4().hex}",
                    "name": part.name,
                    "arguments": "",
                }
            )
        elif isinstance(part, CallArguments):
            output[-1]["arguments"] += part.text
            yield self._of_item("response.function_call_arguments.delta", delta=part.text)
        else:
            if not output or output[-1]["type"] != "message":
                yield from self._open(
                    {
                        "id": f"msg_{uuid.uuid4().hex}",
                        "type": "message",
                        "status": "in_progress",
                        "role": "assistant",
                        "content": [],
                    }
                )
                text = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
                output[-1]["content"].append(text)
                yield self._of_item("response.content_part.added", content_index=0, part=dict(text))
            if part:
                output[-1]["content"][0]["text"] += part
                yield self._of_item("response.output_text.delta", content_index=0, delta=part, logprobs=[])

    def _of_item(self, kind: str, **members: Any) -> dict[str, Any]:
        return self._event(kind, item_id=self.response["output"][-1]["id"], output_index=self._index, **members)

    def _close(self, is_whole: bool = True) -> Iterator[dict[str, Any]]:
        if not self.response["output"]:
            return
        item = self.response["output"][-1]
        if item["type"] == "message":
            text = item["content"][0]
            yield self._of_item("response.output_text.done", content_index=0, text=text["text"], logprobs=[])
            yield self._of_item("response.content_part.done", content_index=0, part=dict(text))
        else:
            yield self._of_item(
                "response.function_call_arguments.done", name=item["name"], arguments=item["arguments"]
            )
        item["status"] = "completed" if is_whole else "incomplete"
        yield self._event("response.output_item.done", output_index=self._index, item=_copy(item))


def _copy(item: dict[str, Any]) -> dict[str, Any]:
    """As it is now."""
    return {**item, "content": [dict(each) for each in item["content"]]} if "content" in item else dict(item)


def _event(value: dict[str, Any]) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return f"event: {value['type']}\ndata: {text}\n\n".encode("utf-8", "replace")
