"""`python -m megalith`"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from . import __version__
from ._chat import add_chat
from ._errors import Error
from ._run import add_run
from ._token_bytes import add_token_bytes
from .text import TextError


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m megalith", description="Megalith from Python.")
    parser.add_argument("--version", action="version", version=f"megalith {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add_chat(commands)
    add_run(commands)
    add_token_bytes(commands)
    parsed = parser.parse_args(arguments)
    try:
        return int(parsed.run(parsed))
    except Error as error:
        print(error, file=sys.stderr)
    except BrokenPipeError:
        raise  # whoever reads has seen enough
    except OSError as error:
        where = f"`{error.filename}`" if error.filename is not None else "the standard input or output"
        print(f"error: {where}: {error.strerror or error}", file=sys.stderr)
    except TextError as error:
        print(f"error: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        return 130
    return 1


if __name__ == "__main__":
    if sys.stdin is None:  # closed by who started this
        sys.stdin = open(os.devnull)  # noqa: SIM115
    if sys.stdout is None:
        sys.exit("error: the standard output is closed")
    try:
        status = main()
        if sys.stdout is not None:  # it may be closed
            sys.stdout.flush()
    except BrokenPipeError:  # of `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    sys.exit(status)
