"""`megalith-serve`: the API with OpenAI's client and without, metrics, limits, how it stops."""

import asyncio
import importlib.metadata
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import megalith.serve
import numpy as np
import openai
import pytest
from conftest import DEMO, PROMPTS, ROOT
from megalith._templates import Templates
from megalith.serve._cli import make_parser
from megalith.serve._engine import StopText
from megalith.serve._fields import read_json
from megalith.serve._protocol import ApiError, Limits
from megalith.serve._requests import read_job
from serving import TEMPLATE, Served


LONG = "And God said "  # 1500 tokens take seconds


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    file = tmp_path_factory.mktemp("serve") / "template.jinja"
    file.write_text(TEMPLATE)
    return file


@pytest.fixture(scope="module")
def served(template):
    with Served("adaptive_speculative", "--chat-template", template) as server:
        yield server


@pytest.fixture(scope="module")
def small():
    """Greedy, with one slot, and with limits."""
    options = "--set slots=1 --max-waiting 1 --max-body 3000 --max-prompt-tokens 100 --max-completion-tokens 1600 --request-timeout 1 --logit-lines 30"
    with Served(
        "autoregressive", *options.split(), "--served-model-name", "small", env={"MEGALITH_API_KEY": "sesame"}
    ) as server:
        yield server


@pytest.fixture(scope="module")
def client(served):
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0, timeout=30) as client:
        yield client


@pytest.fixture(scope="module")
def small_client(small):
    with openai.OpenAI(base_url=f"{small.url}/v1", api_key="sesame", max_retries=0, timeout=30) as client:
        yield client


@pytest.fixture(scope="module")
def texts(expected):
    return {prompt: bytes(tokens).decode() for prompt, tokens in expected.items()}


def wait_for(what):
    end = time.monotonic() + 20
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


# ===----------------------------------------------------------------------===#
# OpenAI's client
# ===----------------------------------------------------------------------===#


def test_models(client):
    (model,) = client.models.list()
    assert (model.id, model.object, model.owned_by, model.max_model_len) == ("demo", "model", "megalith", 2048)
    assert client.models.retrieve("demo") == model
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("gpt")
    assert caught.value.code == "model_not_found"


def test_a_completion(client, texts):
    answer = client.completions.create(model="demo", prompt=PROMPTS[0], max_tokens=12)
    (choice,) = answer.choices
    assert (choice.index, choice.text, choice.finish_reason, choice.logprobs) == (0, texts[PROMPTS[0]], "length", None)
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (17, 12, 29)
    assert answer.object == "text_completion" and answer.id.startswith("cmpl-") and answer.model == "demo"
    assert len(client.completions.create(model="demo", prompt=PROMPTS[0]).choices[0].text) == 16


def test_a_stream(client, texts):
    chunks = list(
        client.completions.create(
            model="demo", prompt=PROMPTS[0], max_tokens=12, stream=True, stream_options={"include_usage": True}
        )
    )
    assert len({chunk.id for chunk in chunks}) == 1
    assert "".join(chunk.choices[0].text for chunk in chunks[:-1]) == texts[PROMPTS[0]]
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]] == [None] * (len(chunks) - 2) + ["length"]
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == 12


def test_a_chat(client, texts):
    messages = [
        {"role": "system", "content": "In the "},
        {"role": "user", "content": [{"type": "text", "text": "beginning "}]},
    ]
    answer = client.chat.completions.create(model="demo", messages=messages, max_completion_tokens=12)
    (choice,) = answer.choices
    assert (choice.message.role, choice.message.content, choice.finish_reason) == (
        "assistant",
        texts[PROMPTS[0]],
        "length",
    )
    assert answer.object == "chat.completion" and answer.usage.prompt_tokens == 17

    chunks = list(client.chat.completions.create(model="demo", messages=messages, max_tokens=12, stream=True))
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert deltas[0].role == "assistant" and "".join(delta.content or "" for delta in deltas) == texts[PROMPTS[0]]
    assert chunks[-1].choices[0].finish_reason == "length" and chunks[0].object == "chat.completion.chunk"


def test_two_choices(client, kernel):
    ask = dict(model="demo", prompt=PROMPTS[0], max_tokens=12, n=2, temperature=1.5, seed=3)
    answer = client.completions.create(**ask)
    assert [choice.index for choice in answer.choices] == [0, 1] and answer.usage.completion_tokens == 24
    first, second = (choice.text for choice in answer.choices)
    assert first != second
    assert [choice.text for choice in client.completions.create(**ask).choices] == [first, second]
    # The first has the client's own seed.
    (result,) = kernel.run([megalith.Request(PROMPTS[0], 12, temperature=1.5, seed=3)])
    assert bytes(result.tokens.tolist()).decode(errors="replace") == first
    streamed = ["", ""]
    for chunk in client.completions.create(**ask, stream=True):
        streamed[chunk.choices[0].index] += chunk.choices[0].text
    assert streamed == [first, second]
    del ask["seed"]
    several = {choice.text for _ in range(3) for choice in client.completions.create(**ask).choices}
    assert len(several) == 6


def test_several_prompts(client, texts):
    answer = client.completions.create(model="demo", prompt=PROMPTS, max_tokens=12)
    assert [choice.text for choice in answer.choices] == [texts[prompt] for prompt in PROMPTS]
    assert answer.usage.prompt_tokens == sum(map(len, PROMPTS))
    tokens = [list(prompt.encode()) for prompt in PROMPTS[:2]]
    answer = client.completions.create(model="demo", prompt=tokens, max_tokens=12, n=2)
    assert [choice.text for choice in answer.choices] == [texts[PROMPTS[number]] for number in (0, 0, 1, 1)]


@pytest.mark.parametrize(
    "stop, text", [("wor", "of the "), (["xyz", "e w", "the"], "of "), (["of"], ""), ("world!", "of the world")]
)
def test_stop(client, stop, text):
    ask = dict(model="demo", prompt=PROMPTS[0], max_tokens=12, stop=stop)
    choice = client.completions.create(**ask).choices[0]
    finish = "length" if text == "of the world" else "stop"
    assert (choice.text, choice.finish_reason) == (text, finish)
    chunks = list(client.completions.create(**ask, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == text
    assert chunks[-1].choices[0].finish_reason == finish


@pytest.fixture(scope="module")
def rows(kernel):
    """Logprobs of all tokens, by token of the answer to the first prompt."""
    (result,) = kernel.run([megalith.Request(PROMPTS[0], 12)], logits=True)
    rows = result.logits.astype(np.float64)
    return rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))


def test_logprobs_of_a_completion(client, texts, rows):
    text = texts[PROMPTS[0]]
    ask = dict(model="demo", prompt=PROMPTS[0], max_tokens=12, temperature=0, logprobs=2)
    told = client.completions.create(**ask).choices[0].logprobs
    assert told.tokens == list(text) and told.text_offset == list(range(12))
    assert told.token_logprobs == [pytest.approx(row[ord(token)]) for row, token in zip(rows, text)]
    for row, top in zip(rows, told.top_logprobs):  # the best token is the one that was taken
        first, second = sorted(range(256), key=lambda token: -row[token])[:2]
        assert top == {chr(first): pytest.approx(row[first]), chr(second): pytest.approx(row[second])}
    # In pieces they come with their text.
    at, pieces = 0, []
    for chunk in client.completions.create(**ask, stream=True):
        if choice_text := chunk.choices[0].text:
            piece = chunk.choices[0].logprobs
            assert "".join(piece.tokens) == choice_text and piece.text_offset[0] == at
            at += len(choice_text)
            pieces += piece.token_logprobs
    assert at == 12 and pieces == told.token_logprobs
    assert [list(top) for top in client.completions.create(**{**ask, "logprobs": 0}).choices[0].logprobs.top_logprobs] == [
        [token] for token in text
    ]
    # A token that was drawn is told of beside the likeliest ones.
    drawn = client.completions.create(**{**ask, "temperature": 3, "logprobs": 1, "n": 2}, seed=4)
    for choice in drawn.choices:
        for token, logprob, top in zip(
            choice.logprobs.tokens, choice.logprobs.token_logprobs, choice.logprobs.top_logprobs
        ):
            assert top[token] == logprob <= max(top.values()) and len(top) in (1, 2)


@pytest.mark.parametrize("stop, text", [("wor", "of the "), (["xyz", "e w", "the"], "of "), ("world!", "of the world")])
def test_logprobs_end_with_the_text(client, rows, stop, text):
    ask = dict(model="demo", prompt=PROMPTS[0], max_tokens=12, temperature=0, stop=stop, logprobs=0)
    told = client.completions.create(**ask).choices[0].logprobs
    assert told.tokens == list(text)
    some = [chunk.choices[0].logprobs for chunk in client.completions.create(**ask, stream=True)]
    assert sum((each.token_logprobs for each in some if each), []) == told.token_logprobs


def test_logprobs_of_a_chat(client, texts, rows):
    messages = [{"role": "user", "content": PROMPTS[0]}]
    ask = dict(model="demo", messages=messages, max_tokens=12, temperature=0, logprobs=True)
    told = client.chat.completions.create(**ask, top_logprobs=3).choices[0].logprobs.content
    assert [each.token for each in told] == list(texts[PROMPTS[0]])
    for row, each in zip(rows, told):
        assert each.bytes == list(each.token.encode()) and each.logprob == pytest.approx(row[each.bytes[0]])
        assert len(each.top_logprobs) == 3 and each.top_logprobs[0].token == each.token
    plain = client.chat.completions.create(**ask).choices[0].logprobs.content
    assert [each.logprob for each in plain] == [each.logprob for each in told] and plain[0].top_logprobs == []
    chunks = [chunk.choices[0] for chunk in client.chat.completions.create(**ask, stream=True)]
    some = [each for choice in chunks if choice.logprobs for each in choice.logprobs.content]
    assert [each.logprob for each in some] == [each.logprob for each in told]
    assert all(
        "".join(each.token for each in choice.logprobs.content) == choice.delta.content
        for choice in chunks
        if choice.logprobs
    )


def test_logprobs_need_lines(small, small_client):
    ask = dict(model="small", prompt="a", logprobs=0)
    assert len(small_client.completions.create(**ask, max_tokens=30).choices[0].logprobs.tokens) > 0
    with pytest.raises(openai.BadRequestError) as caught:
        small_client.completions.create(**ask, max_tokens=31)
    assert (caught.value.param, caught.value.code) == ("max_tokens", "too_many_logprobs")
    assert "may generate 30 tokens, and this one may 31" in caught.value.message
    with pytest.raises(ApiError, match="see --logit-lines"):
        read_job({"model": "m", "prompt": "a", "logprobs": 1}, False, limits_of(), megalith.text.ByteTokenizer())


def test_stop_tokens_and_no_eos(client):
    ask = dict(model="demo", prompt=PROMPTS[0], max_tokens=12)
    answer = client.completions.create(**ask, extra_body={"stop_token_ids": [ord("w")]})
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("of the w", "stop")
    assert answer.usage.completion_tokens == 8
    answer = client.completions.create(**ask, extra_body={"ignore_eos": True, "top_k": -1, "min_p": 0})
    assert answer.choices[0].text == "of the world"


def test_closing_a_stream_cancels(client, served):
    before = served.stats()
    stream = client.completions.create(model="demo", prompt=LONG, max_tokens=1500, temperature=1, n=2, stream=True)
    next(iter(stream))
    stream.close()
    wait_for(lambda: served.stats()["ended"].get("cancelled", 0) == before["ended"].get("cancelled", 0) + 2)
    after = served.stats()
    assert after["running"] == after["waiting"] == 0 and after["finished"]["abort"] == before["finished"]["abort"] + 2


def test_going_away_cancels(client, served):
    before = served.stats()["ended"].get("cancelled", 0)
    with pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=0.3).completions.create(model="demo", prompt=LONG, max_tokens=1900, temperature=1)
    wait_for(lambda: served.stats()["ended"].get("cancelled", 0) == before + 1)
    assert served.stats()["running"] == 0


def test_many_at_once(served, texts):
    async def ask():
        async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client:

            async def one(number):
                prompt, text = PROMPTS[number % 4], ""
                if number % 2:
                    return prompt, (
                        await client.completions.create(model="demo", prompt=prompt, max_tokens=12)
                    ).choices[0].text
                async for chunk in await client.completions.create(
                    model="demo", prompt=prompt, max_tokens=12, stream=True
                ):
                    text += chunk.choices[0].text
                return prompt, text

            return await asyncio.gather(*(one(number) for number in range(24)))

    assert all(text == texts[prompt] for prompt, text in asyncio.run(ask()))


def test_a_tokenizer_of_hugging_face(tmp_path, texts):
    """The demo model with a tokenizer.json whose tokens are its bytes, and a chat template of its own."""
    tokenizers = pytest.importorskip("tokenizers")
    model = tmp_path / "Small-Instruct"
    model.mkdir()
    (model / "model.safetensors").symlink_to(DEMO / "model.safetensors")
    config = json.loads((DEMO / "config.json").read_text())
    del config["byte_vocabulary"]
    (model / "config.json").write_text(json.dumps(config))
    (model / "generation_config.json").write_text('{"eos_token_id": 257, "temperature": 0.6}')
    byte_level = tokenizers.pre_tokenizers.ByteLevel
    # As GPT-2 has it: a printable character for each byte.
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    characters = {byte: chr(byte) for byte in plain} | {byte: chr(256 + place) for place, byte in enumerate(others)}
    made = tokenizers.Tokenizer(tokenizers.models.BPE({character: byte for byte, character in characters.items()}, []))
    made.pre_tokenizer, made.decoder = byte_level(add_prefix_space=False), tokenizers.decoders.ByteLevel()
    made.add_special_tokens(["<s>", "</s>", "<|end|>"])
    made.save(str(model / "tokenizer.json"))
    (model / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE, "tokenizer_class": "PreTrainedTokenizerFast"}))
    with Served("sampled", model=model) as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
        ask = dict(model="Small-Instruct", max_tokens=12, stop=["<|end|>", "rl"])
        messages = [{"role": "user", "content": PROMPTS[0]}]
        told = client.completions.create(
            **{**ask, "stop": []}, prompt=PROMPTS[0], temperature=9, seed=1, logprobs=5, extra_body={"ignore_eos": True}
        ).choices[0].logprobs
        shown = dict(line for top in told.top_logprobs for line in top.items())
        assert len(told.tokens) == 12 and all(
            len(name) == 1 or name in ("<s>", "</s>", "<|end|>") or re.fullmatch(r"bytes:\\x[89a-f][0-9a-f]", name)
            for name in [*told.tokens, *shown]
        )
        answer = client.chat.completions.create(**ask, messages=messages, temperature=0)
        assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("of the wo", "stop")
        stream = client.completions.create(**ask, prompt=PROMPTS[1], temperature=0, stream=True)
        assert "".join(chunk.choices[0].text for chunk in stream) == texts[PROMPTS[1]]
        # The checkpoint's temperature is that of who says nothing.
        drawn = [
            client.completions.create(**ask, prompt=PROMPTS[0], seed=5, **more) for more in ({}, {"temperature": 0.6})
        ]
        assert drawn[0].choices[0].text == drawn[1].choices[0].text
        # A choice that has found its stop does not run until the others have.
        ask = dict(model="Small-Instruct", prompt=[PROMPTS[0], LONG], max_tokens=1500, temperature=0, stop="world")
        with client.completions.create(**ask, stream=True, extra_body={"ignore_eos": True}) as stream:
            assert next(chunk.choices[0] for chunk in stream if chunk.choices[0].finish_reason).index == 0
            wait_for(lambda: server.stats()["running"] == 1)
            assert next(stream).choices[0].index == 1


# ===----------------------------------------------------------------------===#
# Errors
# ===----------------------------------------------------------------------===#


def test_errors_are_those_of_the_client(client):
    ask = dict(model="demo", prompt=PROMPTS[0])
    with pytest.raises(openai.NotFoundError, match="this server has `demo`") as caught:
        client.completions.create(**{**ask, "model": "gpt"})
    assert (caught.value.status_code, caught.value.param, caught.value.code) == (404, "model", "model_not_found")
    with pytest.raises(openai.BadRequestError, match="from 0 to 5") as caught:
        client.completions.create(**ask, logprobs=6)
    assert (caught.value.param, caught.value.type) == ("logprobs", "invalid_request_error")
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(**ask, max_tokens=4000)
    assert (caught.value.param, caught.value.code) == ("max_tokens", "context_length_exceeded")


@pytest.mark.parametrize(
    "body, param, what",
    [
        ({"prompt": None}, "prompt", "is missing"),
        ({"prompt": ""}, "prompt", "no token"),
        ({"prompt": []}, "prompt", "is empty"),
        ({"prompt": {"a": 1}}, "prompt", "must be a string"),
        ({"prompt": [1, "a"]}, "prompt", "must be a string"),
        ({"prompt": [1, 260]}, "prompt", "token 260"),
        ({"prompt": "x" * 2048}, "prompt", "2048 tokens"),
        ({"prompt": ["a"] * 100, "n": 2}, "n", "more than the 128"),
        ({"model": None}, "model", "it is `demo`"),
        ({"n": 0}, "n", "from 1 to 128"),
        ({"n": 1.5}, "n", "must be an integer, found the number 1.5"),
        ({"n": True}, "n", "must be an integer, found a boolean"),
        ({"max_tokens": 0}, "max_tokens", "1 or more"),
        ({"temperature": -0.1}, "temperature", "from 0"),
        ({"temperature": "1"}, "temperature", "must be a number, found a string"),
        ({"temperature": 10**400}, "temperature", "must be from 0"),
        ({"top_p": 0}, "top_p", "above 0 and at most 1"),
        ({"top_k": -2}, "top_k", "from -1"),
        ({"min_p": 1.5}, "min_p", "from 0 to 1"),
        ({"seed": 2**63}, "seed", "must be from"),
        ({"stop": ["a", ""]}, "stop", "empty"),
        ({"stop": ["a"] * 17}, "stop", "up to 16"),
        ({"stop": 3}, "stop", "must be a string"),
        ({"stop_token_ids": [-1]}, "stop_token_ids", "array of tokens"),
        ({"stream": "yes"}, "stream", "true or false"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "needs `stream`"),
        ({"stream": True, "stream_options": {"often": True}}, "stream_options.often", "is not a field"),
        ({"inputs": {"x": 1}}, "inputs", "`x`"),
        ({"echo": True, "stream": True}, "echo", "not supported in a stream"),
        ({"suffix": "a"}, "suffix", "not supported"),
        ({"best_of": 2, "n": 3}, "best_of", "must be `n` or more; that is 3"),
        ({"best_of": 2, "stream": True}, "best_of", "must be `n` in a stream"),
        ({"prompt": ["a"] * 100, "best_of": 2}, "best_of", "more than the 128"),
        ({"inputs": {"x": [2**63]}}, "inputs", "from -2147483648 to 2147483647"),
        ({"inputs": {"x": 2**63}}, "inputs", "9223372036854775807, found 9223372036854775808"),
        ({"request_id": ""}, "request_id", "must be a string of up to"),
        ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens", "must be 1 or more"),
        ({"enable_thinking": False}, "enable_thinking", "`chat_template_kwargs`"),
        ({"min_tokens": 3}, "min_tokens", "not supported"),
        ({"allowed_token_ids": [1]}, "allowed_token_ids", "not supported"),
        ({"logprobs": 6}, "logprobs", "from 0 to 5"),
        ({"logprobs": True}, "logprobs", "must be an integer"),
        ({"top_logprobs": 2}, "top_logprobs", "is not a field"),
        ({"prompt_logprobs": 21}, "prompt_logprobs", "must be"),
        ({"presence_penalty": 0.5}, "presence_penalty", "not supported"),
        ({"logit_bias": {"5": 1}}, "logit_bias", "not supported"),
        ({"max_completion_tokens": 4}, "max_completion_tokens", "is not a field"),
        ({"temprature": 1}, "temprature", "is not a field that this server knows"),
        ({"\ud800": 1}, None, "surrogate"),
        ({"prompt": "\ud800"}, None, "surrogate"),
    ],
)
def test_what_is_wrong_is_said_at_its_field(served, body, param, what):
    status, at, _, message = served.refuses("/v1/completions", **{"prompt": "a", **body})
    assert (status, at) == (400, param) and what in message


@pytest.mark.parametrize(
    "body, param, what",
    [
        ({"messages": None}, "messages", "is missing"),
        ({"messages": [{"content": "a"}]}, "messages[0].role", "must be one of `system`, `developer`, `user`"),
        ({"messages": [{"role": "wizard", "content": "a"}]}, "messages[0].role", "must be one of"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "must be a string"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0].type", "`text`"),
        ({"messages": [{"role": "tool", "content": "a"}]}, "messages", "no tools"),
        ({"messages": [{"role": "user", "content": "a", "tool_calls": [1]}]}, "messages[0].tool_calls", "`assistant`"),
        ({"messages": [{"role": "assistant", "tool_calls": [1]}]}, "messages[0].tool_calls[0]", "must be an object"),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages[0].tool_calls[0].function", "`name`"),
        ({"messages": [{"role": "assistant", "reasoning": 1}]}, "messages[0].reasoning", "must be a string"),
        ({"chat_template": "{{ 1 }}"}, "chat_template", "--chat-template"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs", "may not have `messages`"),
        ({"continue_final_message": True, "add_generation_prompt": True}, "continue_final_message", "to be false"),
        ({"continue_final_message": True}, "continue_final_message", "of the role `assistant`"),
        ({"tools": [{"type": "function"}]}, "tools", "not supported"),
        ({"response_format": {"type": "json_object"}}, "response_format", "not supported"),
        ({"logprobs": 1}, "logprobs", "true or false"),
        ({"top_logprobs": 1}, "top_logprobs", "needs `logprobs`"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "from 0 to 20"),
        ({"max_tokens": 1, "max_completion_tokens": 2}, "max_tokens", "different things"),
        ({"max_completion_tokens": 3000}, "max_completion_tokens", "3000"),
        ({"prompt": "a"}, "prompt", "is not a field"),
    ],
)
def test_what_is_wrong_with_a_chat(served, body, param, what):
    status, at, _, message = served.refuses(
        "/v1/chat/completions", **{"messages": [{"role": "user", "content": "a"}], **body}
    )
    assert (status, at) == (400, param) and what in message


def test_what_asks_for_nothing_is_taken(served):
    nothing = dict(
        logprobs=None, echo=False, suffix="", best_of=1, presence_penalty=0, frequency_penalty=0.0, logit_bias={}
    )
    status, _, answer = served.post("/v1/completions", prompt="a", max_tokens=1, user="me", **nothing)
    assert status == 200
    nothing = dict(
        logprobs=False, tools=[], tool_choice="none", response_format={"type": "text"}, n=1, store=False, metadata={}
    )
    messages = [{"role": "assistant", "content": "a", "refusal": None, "tool_calls": None, "annotations": []}]
    status, _, answer = served.post("/v1/chat/completions", messages=messages, max_tokens=1, **nothing)
    assert status == 200, answer


def test_bodies_and_paths(served):
    for body, what in (
        ("{", "is not JSON"),
        ("[1]", "found an array"),
        ('{"n": NaN}', "NaN"),
        ("[" * 100000, "is not JSON"),
        ('{"model": "demo", "prompt": "a", "x": ' + "[" * 200 + "]" * 200 + "}", "too deep"),
        (b'{"model": "demo", "prompt": "\xed\xa0\x80"}', "not UTF-8"),
        ('{"model": "demo", "prompt": "\ud800"}'.encode("utf-16", "surrogatepass"), "not UTF-8"),
    ):
        status, _, answer = served.call("POST", "/v1/completions", body)
        assert status == 400 and what in answer["error"]["message"]
    status, _, answer = served.call("POST", "/v1/completions", "{}", Content_Type="text/plain")
    assert status == 415 and "application/json" in answer["error"]["message"]
    status, _, answer = served.call("GET", "/v1/nothing")
    assert status == 404 and "/v1/nothing" in answer["error"]["message"]
    assert served.call("GET", "/v1/completions")[0] == 405
    assert served.call("GET", "/health")[2] == {"status": "ok"}


def test_names_of_other_hosts_are_refused(served):
    status, _, answer = served.call("GET", "/stats", Host="evil.example:8000")
    assert status == 403 and "evil.example" in answer["error"]["message"]
    for host in "localhost:1", "127.0.0.1", "[::1]:8000", "LOCALHOST":
        assert served.call("GET", "/stats", Host=host)[0] == 200


# ===----------------------------------------------------------------------===#
# Limits, keys, a greedy pipeline
# ===----------------------------------------------------------------------===#


def test_keys(small):
    for headers in {}, {"Authorization": "Bearer x"}, {"Authorization": "Basic sesame"}:
        for path in "/v1/models", "/stats":
            status, answered, answer = small.call("GET", path, **headers)
            assert (
                status == 401
                and answer["error"]["code"] == "invalid_api_key"
                and answered["WWW-Authenticate"] == "Bearer"
            )
    for path in "/", "/page.js", "/health", "/metrics":
        assert small.call("GET", path)[0] == 200
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=f"{small.url}/v1", api_key="x", max_retries=0).models.list()


def test_a_greedy_pipeline_refuses_settings(small_client):
    ask = dict(model="small", prompt=PROMPTS[0], max_tokens=5)
    for name, value in ("temperature", 0.7), ("top_p", 0.5), ("top_k", 3), ("min_p", 0.1):
        with pytest.raises(openai.BadRequestError, match="greedy") as caught:
            small_client.completions.create(**ask, extra_body={name: value})
        assert caught.value.param == name
    answer = small_client.completions.create(**ask, temperature=0, top_p=1, seed=5, extra_body={"top_k": 0})
    assert answer.choices[0].text == "of th"


def test_limits(small, small_client):
    ask = small_client.completions.create
    with pytest.raises(openai.BadRequestError, match="this server takes 100"):
        ask(model="small", prompt="x" * 101)
    with pytest.raises(openai.BadRequestError, match="this server gives 1600"):
        ask(model="small", prompt="x", max_tokens=1601)
    with pytest.raises(openai.APIStatusError) as caught:
        ask(model="small", prompt="x" * 3000)
    assert (caught.value.status_code, caught.value.code) == (413, "body_too_large")
    with pytest.raises(openai.BadRequestError, match="no chat template"):
        small_client.chat.completions.create(model="small", messages=[{"role": "user", "content": "a"}])
    # A body that does not say how long it is.
    with socket.create_connection(("127.0.0.1", small.port), timeout=10) as connection:
        connection.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer sesame\r\n"
            b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
            + b"800\r\n"
            + b" " * 0x800
            + b"\r\n"
            b"800\r\n" + b" " * 0x800 + b"\r\n"
        )
        assert connection.recv(100).startswith(b"HTTP/1.1 413")


def test_who_waits_too_long_is_told(small, small_client):
    key = {"Authorization": "Bearer sesame"}
    ask = dict(model="small", prompt=LONG, extra_body={"ignore_eos": True})
    first = small_client.completions.create(**ask, max_tokens=1500, stream=True)
    next(iter(first))
    second = []
    waits = threading.Thread(target=lambda: second.append(small_client.completions.create(**ask, max_tokens=3)))
    waits.start()
    wait_for(lambda: small.stats(**key)["waiting"] == 1)
    metrics = small.call("GET", "/metrics")[2].decode()
    assert 'vllm:num_requests_running{engine="0",model_name="small"} 1' in metrics
    assert 'vllm:num_requests_waiting{engine="0",model_name="small"} 1' in metrics
    with pytest.raises(openai.RateLimitError) as caught:
        small_client.completions.create(**ask, max_tokens=3)
    assert caught.value.code == "too_many_requests" and caught.value.response.headers["Retry-After"] == "1"
    first.close()
    waits.join()
    assert second[0].usage.completion_tokens == 3 and small.stats(**key)["refused"] == 1


def test_deadlines(small_client):
    ask = dict(model="small", prompt=LONG, max_tokens=1600, extra_body={"ignore_eos": True})
    held = small_client.completions.create(**ask, stream=True)
    with pytest.raises(openai.InternalServerError, match="not done within 1 s") as caught:
        small_client.completions.create(**ask)  # waits for the slot
    assert (caught.value.status_code, caught.value.code) == (504, "deadline")
    with pytest.raises(openai.APIError, match="not done within 1 s"):
        list(held)


# ===----------------------------------------------------------------------===#
# Metrics
# ===----------------------------------------------------------------------===#


def test_metrics(served, client):
    before, stats = served.metrics(), served.stats()
    client.completions.create(model="demo", prompt=PROMPTS[0], max_tokens=40)
    client.completions.create(model="demo", prompt=PROMPTS[0], max_tokens=12, stop="wor", n=2)
    after = served.metrics()

    def rise(name):
        return after[name] - before[name]

    assert rise("vllm:prompt_tokens_total") == 3 * 17
    assert (
        rise("vllm:generation_tokens_total")
        == served.stats()["generated_tokens"] - stats["generated_tokens"]
        >= 40 + 2 * 10
    )
    assert rise('vllm:request_success_total{finished_reason="length"}') == 1
    assert rise('vllm:request_success_total{finished_reason="stop"}') == 2
    for name, count in ("time_to_first_token", 3), ("inter_token_latency", 39 + 2 * 9), ("e2e_request_latency", 3):
        name = f"vllm:{name}_seconds"
        assert rise(f"{name}_count") == rise(f'{name}_bucket{{le="+Inf"}}') and rise(f"{name}_sum") > 0
        assert count <= rise(f"{name}_count") <= count + 4  # more may have come in one event
    assert rise("vllm:time_per_output_token_seconds_count") == rise("vllm:inter_token_latency_seconds_count")
    assert rise("vllm:spec_decode_num_draft_tokens_total") >= rise("vllm:spec_decode_num_accepted_tokens_total") > 0
    assert rise("vllm:spec_decode_num_draft_tokens_total") == rise('megalith:pipeline_total{metric="tokens_proposed"}')
    by_place = [
        rise(f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="{place}"}}') for place in range(31)
    ]
    assert sum(by_place) == rise("vllm:spec_decode_num_accepted_tokens_total")  # no block is longer here
    assert rise("vllm:spec_decode_num_drafts_total") >= by_place[0] > 0 and by_place == sorted(by_place, reverse=True)
    assert (
        after["vllm:num_requests_running"]
        == after["vllm:num_requests_waiting"]
        == after["vllm:kv_cache_usage_perc"]
        == 0
    )
    assert after["megalith:slots"] == 8 and after['megalith:pool_pages{pool="target"}'] > 0


def test_buckets_grow(served):
    text = served.call("GET", "/metrics")[2].decode()
    counts = [
        int(line.split()[-1])
        for line in text.splitlines()
        if line.startswith("vllm:inter_token_latency_seconds_bucket")
    ]
    assert counts == sorted(counts) and counts[-1] > 0
    kinds = [line.split() for line in text.splitlines() if line.startswith("# TYPE")]
    assert len({kind[2] for kind in kinds}) == len(kinds)
    assert all(name.endswith("_total") == (kind == "counter") for _, _, name, kind in kinds)


# ===----------------------------------------------------------------------===#
# Starting and stopping
# ===----------------------------------------------------------------------===#


def test_stopping_lets_calls_end(texts):
    with Served("sampled", "--grace", "20") as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
        stream = client.completions.create(
            model="demo", prompt=LONG, max_tokens=400, stream=True, extra_body={"ignore_eos": True}
        )
        chunks = [next(stream)]
        server.process.send_signal(signal.SIGTERM)
        wait_for(lambda: server.call("GET", "/health")[0] == 503)
        status, _, code, _ = server.refuses("/v1/completions", prompt="a")
        assert (status, code) == (503, "stopping")
        chunks += stream
        assert chunks[-1].choices[0].finish_reason == "length"
        assert server.wait() == 0 and "1 calls go on" in server.error_text()


@pytest.mark.parametrize("again", [False, True])
def test_stopping_ends_calls_in_the_end(again):
    with Served("sampled", "--grace", "60" if again else "0.2") as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
        stream = client.completions.create(
            model="demo", prompt=LONG, max_tokens=1900, stream=True, extra_body={"ignore_eos": True}
        )
        next(stream)
        server.process.send_signal(signal.SIGINT)
        if again:
            wait_for(lambda: server.call("GET", "/health")[0] == 503)
            server.process.send_signal(signal.SIGINT)
        with pytest.raises(openai.APIError, match="stopping"):
            list(stream)
        assert server.wait() == 0 and "Traceback" not in server.error_text()


def test_an_engine_that_fails_ends_the_server(tmp_path):
    """Weights that change under the reference executor are such a failure."""
    model = tmp_path / "demo"
    shutil.copytree(DEMO, model)
    with Served("sampled", model=model) as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
        stream = client.completions.create(model="demo", prompt=LONG, max_tokens=1900, stream=True)
        next(stream)
        os.utime(model / "model.safetensors", (1, 1))
        with pytest.raises(openai.APIError, match="the engine has failed.*model.safetensors"):
            list(stream)
        assert server.wait() == 1
        assert "error: the engine has failed: /" in server.error_text() and "Traceback" not in server.error_text()


def run(*arguments):
    command = [sys.executable, "-m", "megalith.serve", *map(str, arguments)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def test_the_program_is_installed():
    (program,) = importlib.metadata.entry_points(group="console_scripts", name="megalith-serve")
    assert program.load() is megalith.serve.main


def test_a_second_server_on_the_port(served):
    code, out, error = run("sampled", "--model", DEMO, "--port", served.port)
    assert (
        (code, out) == (1, "")
        and error
        == f"error: 127.0.0.1:{served.port}: the port is in use, by another server perhaps; take another one with --port\n"
    )


def test_what_is_wrong_at_the_start(tmp_path):
    file = tmp_path / "wrong.yaml"
    file.write_text("pipeline: p\nstagse: {}\n")
    code, _, error = run(file, "--model", DEMO, "--port", 0)
    assert code == 1 and f"{file}:2:1: error: unknown key `stagse`" in error and "Traceback" not in error
    code, _, error = run("sampled", "--model", tmp_path, "--port", 0)
    assert code == 1 and "config.json" in error
    code, _, error = run("sampled", "--model", DEMO, "--port", 0, "--host", "no.such.host.invalid")
    assert code == 1 and error.startswith("error: --host: `no.such.host.invalid` is no address")
    code, _, error = run("sampled", "--model", DEMO, "--port", 0, "--max-waiting", 0)
    assert code == 2 and "must be from 1 to 65536, found 0" in error
    code, _, error = run("sampled", "--model", DEMO, "--port", 0, "--chat-template", tmp_path / "none")
    assert code == 1 and "cannot be read" in error


def test_the_documentation(served, capsys):
    """Its example runs against the server, and it has all options, and names of metrics."""
    page = (ROOT / "docs/serving.md").read_text()
    example, output = re.search(r"```python\n(.*?)```\n\n```\n(.*?)```\n", page, re.S).groups()
    exec(compile(example.replace("http://127.0.0.1:8000", served.url), "docs/serving.md", "exec"), {})
    assert capsys.readouterr().out == output
    for action in make_parser()._actions:
        for option in action.option_strings:
            assert option in ("-h", "--help", "--version") or f"`{option}" in page or f" {option} " in page, option
    text = served.call("GET", "/metrics")[2].decode()
    for name in re.findall(r"^# TYPE (\S+)", text, re.M):
        assert f"`{name}`" in page


# ===----------------------------------------------------------------------===#
# Parts
# ===----------------------------------------------------------------------===#


@pytest.mark.parametrize(
    "stops, text, given",
    [
        (["abc"], "xxabcyy", "xx"),
        (["abc"], "ababcx", "ab"),
        (["abc"], "xxab", "xxab"),
        (["aab"], "aaaab", "aa"),
        (["abcd", "bc"], "xabcd", "xa"),
        (["bc", "abc"], "xabcd", "x"),
        (["é!"], "é?é!", "é?"),
        ([], "abc", "abc"),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_stop_texts(stops, text, given, size):
    stop, out = StopText(stops), ""
    for begin in range(0, len(text), size):
        if stop.found:
            break
        piece = stop.push(text[begin : begin + size])
        out += piece
        assert given.startswith(out)  # nothing was given too early
    assert out + stop.flush() == given and stop.found == (given != text)


def test_what_is_held_back_is_no_more_than_needed():
    stop = StopText(["</end>"])
    assert [stop.push(piece) for piece in ["a<", "b", "</", "en", "x"]] == ["a", "<b", "", "", "</enx"]


def limits_of(**members):
    known = dict(model="m", context=100, prompt_tokens=90, completion_tokens=50, vocabulary=260, samples=True)
    return Limits(**{**known, "temperature": 0.6, "top_p": 0.9, "top_k": 20, "ends": 64, "eos": 1, **members})


def test_what_is_not_said():
    tokenizer = megalith.text.ByteTokenizer([257])
    job = read_job({"model": "m", "prompt": "abc"}, False, limits_of(), tokenizer)
    assert job.prompts == [[97, 98, 99]] and job.budgets == [16] and len(job.seeds) == 1 and job.seeds[0] is not None
    assert job.settings == {
        "temperature": 0.6,
        "top_p": 0.9,
        "top_k": 20,
        "min_p": 0,
        "stop": [],
        "priority": 0,
        "inputs": {},
    }
    tokenizer._templates = Templates({"default": "{{ messages[0].content }}{{ thinks }}"})
    body = {"model": "m", "messages": [{"role": "user", "content": "abc"}], "chat_template_kwargs": {"thinks": "!"}}
    job = read_job(body, True, limits_of(), tokenizer)
    assert bytes(job.prompts[0]) == b"abc!" and job.budgets == [50]
    assert read_job(body, True, limits_of(completion_tokens=100), tokenizer).budgets == [96]


def test_seeds_of_choices():
    tokenizer = megalith.text.ByteTokenizer()

    def seeds(**body):
        return read_job({"model": "m", "prompt": ["a", "b"], **body}, False, limits_of(), tokenizer).seeds

    first = seeds(seed=7, n=3)
    assert first == seeds(seed=7, n=3) and first[0] == first[3] == 7 and len(set(first)) == 3
    assert all(0 <= seed < 2**32 for body in (-1, 2**63 - 1, -(2**63)) for seed in seeds(seed=body, n=3))
    assert seeds(seed=7, temperature=0) == [None, None]


def test_stop_texts_go_to_the_engine_where_they_are_exact():
    class Known(megalith.text.ByteTokenizer):
        def exact(self, text):
            return {"<|end|>": [258], "<|beyond|>": [260]}.get(text)

    def stop(tokenizer, **body):
        return read_job({"model": "m", "prompt": "a", **body}, False, limits_of(), tokenizer).settings["stop"]

    assert stop(Known(), stop=["<|end|>", "<|beyond|>", "x"], stop_token_ids=[5, 5]) == [[5], [258]]
    assert stop(megalith.text.ByteTokenizer(), stop=["ab", "x" * 100]) == [[97, 98]]  # the other one has no room
    with pytest.raises(ApiError, match="has 40 tokens, and this server takes 31"):
        stop(Known(), stop_token_ids=list(range(40)))


def test_json():
    for body in b"\xff", b"1", b'{"a": Infinity}', b'"\\ud800"':
        with pytest.raises(ApiError):
            read_json(body)
    assert read_json(b'{"a": "\\ud83d\\ude00"}') == {"a": "\N{GRINNING FACE}"}


def test_a_special_token_is_exact(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.BPE({"a": 0, "b": 1}, []))
    made.add_special_tokens(["<|end|>"])
    made.add_tokens(["plain"])
    made.save(str(tmp_path / "tokenizer.json"))
    tokenizer = megalith.text.HuggingFaceTokenizer(tmp_path)
    assert tokenizer.exact("<|end|>") == [2]
    assert tokenizer.exact("plain") is tokenizer.exact("a") is tokenizer.exact("c") is None
