"""`python -m megalith`"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from . import __version__
from ._chat import add_chat
from ._errors import Error
from .text import TextError


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m megalith", description="Megalith from Python.")
    parser.add_argument("--version", action="version", version=f"megalith {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add_chat(commands)
    parsed = parser.parse_args(arguments)
    try:
        return int(parsed.run(parsed))
    except Error as error:
        print(error, file=sys.stderr)
    except (TextError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        return 130
    return 1


if __name__ == "__main__":
    try:
        status = main()
        if sys.stdout is not None:  # it may be closed
            sys.stdout.flush()
    except BrokenPipeError:  # of `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    sys.exit(status)
