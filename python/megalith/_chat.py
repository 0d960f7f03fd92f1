"""`python -m megalith chat`: a chat on the terminal."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from . import text as texts
from ._errors import Error
from ._generation import read_generation_config
from ._program import compile, pipeline


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """What to compile, and where it runs. Others of this package use them, too."""
    parser.add_argument(
        "--model",
        metavar="[NAME=]DIR",
        action="append",
        required=True,
        help="a checkpoint's folder; NAME= for one model of several",
    )
    parser.add_argument(
        "--device",
        choices=("auto", "cuda", "cpu", "reference"),
        default="auto",
        help="default: a GPU if there is one, else the reference executor",
    )
    parser.add_argument("--ordinal", type=int, default=0, metavar="N", help="the GPU's number")
    parser.add_argument(
        "--set", metavar="PARAM=VALUE", action="append", default=[], help="another value of the pipeline's param"
    )
    parser.add_argument(
        "--accept",
        metavar="KEY",
        action="append",
        default=[],
        help="take a key or tensor that the model file does not understand",
    )


def compile_from(arguments: argparse.Namespace, file: str | os.PathLike[str]) -> tuple[Any, str]:
    """The program, and the folder of its first model."""
    model, models = None, {}
    for each in arguments.model:
        name, equals, folder = each.partition("=")
        if equals and "/" not in name:
            models[name] = folder
        else:
            model = each
    params = {}
    for each in arguments.set:
        name, equals, value = each.partition("=")
        if not equals:
            raise SystemExit(f"error: --set {each}: expected PARAM=VALUE")
        params[name] = value
    program = compile(file, model, models, params=params, accept=arguments.accept)
    return program, os.path.dirname(program.config_file) or "."


def find_pipeline(name: str) -> str | os.PathLike[str]:
    """A path, or the name of a pipeline that comes with the package."""
    if os.path.exists(name) or os.sep in name or name.endswith((".yaml", ".yml")):
        return name
    try:
        return pipeline(name)
    except ValueError as error:
        raise FileNotFoundError(str(error)) from error


def show_progress(what: str) -> None:
    if sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        sys.stderr.write(f"\r\x1b[K{what}")
        sys.stderr.flush()


def add_chat(commands: Any) -> None:
    parser = commands.add_parser(
        "chat",
        help="chat on the terminal",
        description="Chats on the terminal. Ctrl-C ends an answer or takes a line away, twice at the prompt or Ctrl-D ends the chat. A checkpoint without a chat template continues what is typed.",
    )
    add_model_options(parser)
    parser.add_argument(
        "--pipeline",
        metavar="FILE",
        default="sampled",
        help="a file, or the name of a pipeline of the package; default: sampled",
    )
    parser.add_argument("--max-new-tokens", type=int, default=256, metavar="N", help="of an answer; default: 256")
    parser.add_argument("--system", metavar="TEXT", help="a first message, of the role `system`")
    parser.add_argument("--temperature", type=float, default=0.0, metavar="T", help="default: 0, the best token")
    parser.add_argument("--top-k", type=int, default=0, metavar="K")
    parser.add_argument("--top-p", type=float, default=1.0, metavar="P")
    parser.add_argument("--min-p", type=float, default=0.0, metavar="P")
    parser.add_argument("--seed", type=int, metavar="N", help="of the draws; the same seed gives the same answers")
    parser.set_defaults(run=chat)


def chat(arguments: argparse.Namespace) -> int:
    program, folder = compile_from(arguments, find_pipeline(arguments.pipeline))
    tokenizer = texts.load(folder, program)
    for message in program.messages:
        print(message, end="", file=sys.stderr)
    # The settings are those of the command line; the file's other wishes are told, as the server tells them.
    for sentence in read_generation_config(folder).untold:
        print(f"warning: {sentence}", file=sys.stderr)
    kernel = program.load(arguments.device, arguments.ordinal, progress=show_progress)
    where = kernel.device_name or {"reference": "the reference executor", "cpu": "the CPU executor"}.get(
        kernel.device, kernel.device
    )
    print(f"{program.name}, {folder}, on {where}. Ctrl-C ends an answer, Ctrl-D the chat.", file=sys.stderr)
    if not tokenizer.has_chat_template:
        print("There is no chat template: the model continues what you type.", file=sys.stderr)
    first = [{"role": "system", "content": arguments.system}] if arguments.system else []
    history = list(first)
    interrupted = False  # at the prompt, just now
    with kernel.session(tokenizer=tokenizer) as session:
        while True:
            try:
                line = input("> " if sys.stdin.isatty() else "")
            except EOFError:
                if sys.stdin.isatty():
                    print()  # the shell's prompt gets a line of its own
                break
            except KeyboardInterrupt:  # takes the line away; the second one in a row ends the chat
                print()
                if interrupted:
                    return 130
                interrupted = True
                print("Ctrl-C once more, or Ctrl-D, ends the chat.", file=sys.stderr)
                continue
            interrupted = False
            if not line:
                continue
            history.append({"role": "user", "content": line})
            answer = ""
            try:
                prompt = tokenizer.chat(history) if tokenizer.has_chat_template else tokenizer.encode(line)
                room = session.options["max_tokens"] - len(prompt)
                if room < 1:
                    print(
                        "error: the chat is longer than the session's requests may be; it begins anew", file=sys.stderr
                    )
                    history = list(first)
                    continue
                generation = session.generate(
                    prompt,
                    min(arguments.max_new_tokens, room),
                    temperature=arguments.temperature,
                    top_k=arguments.top_k,
                    top_p=arguments.top_p,
                    min_p=arguments.min_p,
                    seed=arguments.seed,
                )
                try:
                    for piece in tokenizer.stream(generation, prompt):
                        answer += piece
                        print(piece, end="", flush=True)
                except KeyboardInterrupt:
                    generation.close()
                print(flush=True)
            except texts.TextError as error:
                print(f"error: {error}", file=sys.stderr)
                history.pop()
                continue
            except Error as error:
                print(error, file=sys.stderr)
                history.pop()
                if session.done:
                    return 1
                continue
            history.append({"role": "assistant", "content": answer})
    return 0
