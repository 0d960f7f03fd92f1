"""`megalith-serve`: an HTTP server with the API that OpenAI's clients speak. docs/serving.md of the project describes it."""

from ._cli import main

__all__ = ["main"]
