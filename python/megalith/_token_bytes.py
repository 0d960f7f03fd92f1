"""`python -m megalith token-bytes`: what the tokens of a checkpoint spell."""

from __future__ import annotations

import argparse
import base64
import sys
from typing import Any

from . import text as texts


def add_token_bytes(commands: Any) -> None:
    parser = commands.add_parser(
        "token-bytes",
        help="print what tokens spell, for `megalith run --token-bytes`",
        description="Prints for each token that spells something a line with its bytes in base64, a blank and its number, as "
        "files of tiktoken have it. `--token-bytes` of `megalith run`, `bench` and `explore` reads them, for requests with "
        "a `format`.",
    )
    parser.add_argument("model", metavar="DIR", help="a checkpoint's folder, with its tokenizer")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    tokenizer = texts.HuggingFaceTokenizer(arguments.model)
    for token, spelled in enumerate(tokenizer.all_bytes(tokenizer.vocabulary)):
        if spelled:
            print(base64.b64encode(spelled).decode("ascii"), token)
    sys.stdout.flush()
    return 0
