import pathlib

import megalith
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEMO = ROOT / "models/demo"

PROMPTS = ["In the beginning ", "And God said ", "The LORD is my ", "Of the tribe of "]


@pytest.fixture(scope="session")
def program():
    return megalith.compile(megalith.pipeline("sampled"), DEMO)


@pytest.fixture(scope="session")
def kernel(program):
    return program.load("reference")


@pytest.fixture(scope="session")
def expected(kernel):
    """What a batch gives for PROMPTS with 12 new tokens."""
    results = kernel.run([megalith.Request(prompt, 12) for prompt in PROMPTS])
    return {prompt: result.tokens.tolist() for prompt, result in zip(PROMPTS, results)}
