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


# Servers of the tests of `megalith-serve`; a file may have others by these names.


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    from serving import TEMPLATE

    file = tmp_path_factory.mktemp("serve") / "template.jinja"
    file.write_text(TEMPLATE)
    return file


@pytest.fixture(scope="module")
def served(template):
    from serving import Served

    with Served("adaptive_speculative", "--chat-template", template) as server:
        yield server


@pytest.fixture(scope="module")
def small():
    """Greedy, with one slot, and with limits."""
    from serving import Served

    options = "--set slots=1 --max-waiting 1 --max-body 3000 --max-prompt-tokens 100 --max-completion-tokens 1600 --request-timeout 1 --logit-lines 30"
    with Served(
        "autoregressive", *options.split(), "--served-model-name", "small", env={"MEGALITH_API_KEY": "sesame"}
    ) as server:
        yield server


@pytest.fixture(scope="module")
def client(served):
    import openai

    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0, timeout=30) as client:
        yield client


@pytest.fixture(scope="module")
def small_client(small):
    import openai

    with openai.OpenAI(base_url=f"{small.url}/v1", api_key="sesame", max_retries=0, timeout=30) as client:
        yield client


@pytest.fixture(scope="module")
def texts(expected):
    return {prompt: bytes(tokens).decode() for prompt, tokens in expected.items()}
