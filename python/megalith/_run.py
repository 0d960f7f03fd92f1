"""`python -m megalith run`: a batch of requests whose prompts may be texts of any tokenizer."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import Any

from . import text as texts
from ._chat import add_model_options, compile_from, find_pipeline, show_progress
from ._kernel import Result


def add_run(commands: Any) -> None:
    parser = commands.add_parser(
        "run",
        help="run requests, whose prompts may be texts",
        description="Runs requests, and prints a JSON object for each, and a summary. It is `megalith run` with the "
        "checkpoint's tokenizer: a `text` becomes tokens, and the tokens that come become a text.",
    )
    parser.add_argument("pipeline", metavar="FILE", help="a pipeline, or the name of one of the package")
    add_model_options(parser)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--requests", metavar="R.jsonl", help="one JSON object a line; `-`: the standard input")
    source.add_argument("--prompt", metavar="TEXT", action="append", help="a prompt; it may be given several times")
    parser.add_argument(
        "--max-new-tokens", type=int, metavar="N", help="of each --prompt; default: 64. Requests have their own"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the run's seed of random numbers; default: 0")
    parser.set_defaults(run=run)


def _with_tokens(line: str, tokenizer: texts.Tokenizer) -> str:
    """The line with tokens in place of texts. What is wrong with it stays, and is told by who reads it."""
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        return line
    if not isinstance(request, dict):
        return line
    is_changed = False
    if isinstance(request.get("text"), str) and "tokens" not in request:
        request["tokens"] = tokenizer.encode(request.pop("text"))
        is_changed = True
    inputs = request.get("inputs")
    for name, value in inputs.items() if isinstance(inputs, dict) else ():
        if isinstance(value, str):
            inputs[name] = tokenizer.encode(value)
            is_changed = True
        elif isinstance(value, list) and value and all(isinstance(row, str) for row in value):
            inputs[name] = [tokenizer.encode(row) for row in value]
            is_changed = True
    if "eos" not in request:  # as in a session with the tokenizer
        request["eos"] = list(tokenizer.eos)
        is_changed = True
    return json.dumps(request) if is_changed else line


def _all_with_tokens(lines: list[str], name: str, tokenizer: texts.Tokenizer) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        try:
            yield _with_tokens(line, tokenizer)
        except texts.TextError as error:
            raise texts.TextError(f"{name}:{number}: {error}") from error


def _shown(result: Result, text: str) -> dict[str, Any]:
    shown = {"id": result.id, "tokens": result.tokens.tolist(), "text": text}
    shown |= {"finish": result.finish, "state": result.state}
    if result.format:
        shown["format"] = result.format
    if result.fault:
        shown |= {"fault": result.fault, "fault_state": result.fault_state, "place": result.place}
    return shown | {"passes": result.passes, "rows": result.rows}


def run(arguments: argparse.Namespace) -> int:
    if arguments.requests and arguments.max_new_tokens is not None:
        raise SystemExit("error: --max-new-tokens: it belongs to --prompt; each request has its own `max_new_tokens`")
    program, folder = compile_from(arguments, find_pipeline(arguments.pipeline))
    tokenizer = texts.load(folder, program)
    if arguments.prompt:
        budget = 64 if arguments.max_new_tokens is None else arguments.max_new_tokens
        name = "<prompts>"
        lines = [
            json.dumps({"id": number, "text": prompt, "max_new_tokens": budget})
            for number, prompt in enumerate(arguments.prompt)
        ]
    elif arguments.requests == "-":
        name, lines = "<stdin>", sys.stdin.read().split("\n")
    else:
        name = arguments.requests
        with open(name, encoding="utf-8", newline="\n") as file:
            lines = file.read().split("\n")
    if not program.byte_vocabulary and any('"format"' in line for line in lines):
        program.set_token_bytes(tokenizer.all_bytes(program.vocabulary))
    requests = program.parse_requests("\n".join(_all_with_tokens(lines, name, tokenizer)), name)
    kernel = program.load(arguments.device, arguments.ordinal, progress=show_progress)
    for message in [*program.messages, *kernel.messages]:
        print(message, end="", file=sys.stderr)
    results = kernel.run(requests, seed=arguments.seed, progress=show_progress)
    for request, result in zip(requests, results):
        tokens = result.tokens.tolist()
        if result.format:
            pieces = tokenizer.joined_pieces()
            text = pieces.push(tokens) + pieces.flush()
        else:
            text = tokenizer.decode(tokens, request.prompt)
        print(json.dumps(_shown(result, text), ensure_ascii=False))
    summary = {"device": kernel.device_name or kernel.device, "ticks": results.ticks, "passes": results.passes}
    summary |= {"rows": results.rows, "tokens": sum(len(result.tokens) for result in results)}
    summary |= {"run_ms": round(results.milliseconds, 3), "metrics": results.metrics}
    print(json.dumps({"summary": summary}))
    sys.stdout.flush()
    errors = [result.error for result in results if result.error]
    for message in [*results.messages, *errors]:
        print(message, end="", file=sys.stderr)
    return 1 if errors else 0
