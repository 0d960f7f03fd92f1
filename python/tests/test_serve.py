"""`megalith-serve`: the API with OpenAI's client and without."""

import asyncio
import contextlib
import http.client
import json
import re

import megalith.serve
import numpy as np
import openai
import pytest
from conftest import DEMO, PROMPTS
from scripted import MESSAGES, TEMPLATES
from serving import LONG, TEMPLATE, Served, wait_for


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


def test_stop_tokens_and_no_eos(client):
    ask = dict(model="demo", prompt=PROMPTS[0], max_tokens=12)
    answer = client.completions.create(**ask, extra_body={"stop_token_ids": [ord("w")]})
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("of the w", "stop")
    assert answer.usage.completion_tokens == 8
    answer = client.completions.create(**ask, extra_body={"ignore_eos": True, "top_k": -1, "min_p": 0})
    assert answer.choices[0].text == "of the world"


def test_settings_that_follow_the_text(client):
    ask = dict(model="demo", prompt=PROMPTS[0], max_tokens=12, temperature=0)

    def text(**members):
        return client.completions.create(**ask, **members).choices[0].text

    assert text(presence_penalty=0, extra_body={"repetition_penalty": 1}) == "of the world"
    assert text(logit_bias={str(ord("x")): 100}) == "x" * 12
    assert "o" not in text(extra_body={"bad_words": ["o"]})
    assert set(text(extra_body={"allowed_token_ids": [97, 98]})) <= set("ab")
    often = text(logit_bias={"120": 20}, frequency_penalty=2)
    assert "x" in often and set(often) != {"x"}
    ends = {"257": 100}
    at_once = client.completions.create(**ask, logit_bias=ends)
    later = client.completions.create(**ask, logit_bias=ends, extra_body={"min_tokens": 3})
    assert (at_once.choices[0].finish_reason, later.choices[0].finish_reason) == ("stop", "stop")
    assert later.usage.completion_tokens == at_once.usage.completion_tokens + 3


def test_closing_a_stream_cancels(client, served):
    before = served.stats()
    stream = client.completions.create(model="demo", prompt=LONG, max_tokens=1500, temperature=1, n=2, stream=True)
    next(iter(stream))
    stream.close()
    wait_for(lambda: served.stats()["ended"].get("cancelled", 0) == before["ended"].get("cancelled", 0) + 2)
    after = served.stats()
    assert after["running"] == after["waiting"] == 0 and after["finished"]["abort"] == before["finished"]["abort"] + 2


def test_going_away_cancels(served):
    before = served.stats()["ended"].get("cancelled", 0)
    body = json.dumps({"model": "demo", "prompt": LONG, "max_tokens": 1900, "temperature": 1, "ignore_eos": True})
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)) as connection:
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        wait_for(lambda: served.stats()["running"] == 1)
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


def test_answers_with_a_format(tmp_path):
    """By `openai`'s own helper, by vLLM's members, and calls of a tool that has to be called; a stream is the same text."""
    pydantic = pytest.importorskip("pydantic")

    class City(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=4)
        large: bool

    (tmp_path / "tools.jinja").write_text(TEMPLATES["hermes"] + MESSAGES)
    with Served("sampled", "--chat-template", tmp_path / "tools.jinja") as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
        messages = [{"role": "user", "content": PROMPTS[0]}]
        ask = dict(model="demo", messages=messages, max_tokens=90, seed=4)
        parsed = client.chat.completions.parse(**ask, response_format=City).choices[0]
        assert parsed.finish_reason == "stop" and len(parsed.message.parsed.name) <= 4
        with client.chat.completions.stream(**ask, response_format=City) as stream:
            assert stream.get_final_completion().choices[0].message.content == parsed.message.content
        for more, pattern in (
            ({"guided_regex": "[a-z]{3}-[0-9]"}, "[a-z]{3}-[0-9]"),
            ({"guided_choice": ["yes", "no"]}, "yes|no"),
            ({"structured_outputs": {"json": {"enum": [7, "x"]}}}, '7|"x"'),
        ):
            answer = client.chat.completions.create(**ask, extra_body=more).choices[0]
            assert answer.finish_reason == "stop" and re.fullmatch(pattern, answer.message.content)
        tool = {"type": "function", "function": {"name": "weather", "parameters": City.model_json_schema()}}
        for choice in "required", {"type": "function", "function": {"name": "weather"}}:
            (choice,) = client.chat.completions.create(**ask, tools=[tool], tool_choice=choice).choices
            (call,) = choice.message.tool_calls
            assert call.function.name == "weather" and City.model_validate_json(call.function.arguments)
            assert choice.finish_reason in ("tool_calls", "stop")
        with pytest.raises(openai.BadRequestError, match="`multipleOf` is not supported"):
            client.chat.completions.create(**ask, extra_body={"guided_json": {"type": "integer", "multipleOf": 1}})
        # Either: which of the two comes is up to the model, whom the bias tells of the first letter that differs.
        other = {"type": "object", "properties": {"zone": {"type": "boolean"}}, "required": ["zone"]}
        ask |= dict(tools=[tool], response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": other}})
        for letter, is_call in (("n", True), ("z", False)):
            told = client.chat.completions.create(**ask, logit_bias={ord(letter): 100}).choices[0]
            assert bool(told.message.tool_calls) == is_call and told.finish_reason == ("tool_calls" if is_call else "stop")
            if is_call:
                assert City.model_validate_json(told.message.tool_calls[0].function.arguments) and told.message.content is None
            else:
                assert list(json.loads(told.message.content)) == ["zone"]


SMALL = {"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"enum": ["x", "é"]}}, "required": ["a", "b"], "additionalProperties": False}


def of_schema(schema, name="n"):
    return {"response_format": {"type": "json_schema", "json_schema": {"name": name, "schema": schema}}}


def test_formats_beside_other_members(served, client):
    """Each choice has the format, whatever else is asked for; what is cut is its beginning."""
    ask = dict(model="demo", messages=[{"role": "user", "content": PROMPTS[0]}], seed=7, temperature=1)

    def choices(**more):
        known = {"n", "stop", "logprobs", "top_logprobs", "max_tokens", "logit_bias", "response_format"}
        body = {key: value for key, value in more.items() if key not in known}
        direct = {key: value for key, value in more.items() if key in known}
        return client.chat.completions.create(**{**ask, **direct}, extra_body=body).choices

    def is_small(text):
        value = json.loads(text)
        return list(value) == ["a", "b"] and value["a"] in (True, False) and value["b"] in ("x", "é")

    several = choices(**of_schema(SMALL), n=4)
    assert [choice.finish_reason for choice in several] == ["stop"] * 4 and all(is_small(choice.message.content) for choice in several)
    assert len({choice.message.content for choice in several}) > 1
    texts = [""] * 4
    for chunk in client.chat.completions.create(**ask, **of_schema(SMALL), n=4, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert texts == [choice.message.content for choice in several]
    whole = several[0].message.content
    (told,) = choices(**of_schema(SMALL), logprobs=True, top_logprobs=1)
    assert b"".join(bytes(each.bytes or []) for each in told.logprobs.content).decode() == told.message.content == whole
    (cut,) = choices(**of_schema(SMALL), max_tokens=7)
    assert (cut.message.content, cut.finish_reason) == (whole[:7], "length")
    (stopped,) = choices(**of_schema(SMALL), stop=['"b"'])
    assert (stopped.message.content, stopped.finish_reason) == (whole[: whole.index('"b"')], "stop")
    (named,) = choices(**of_schema(SMALL, 'a "name"\n/é'))
    assert named.message.content == whole
    begun = [*ask["messages"], {"role": "assistant", "content": '{"a": '}]
    (continued,) = client.chat.completions.create(
        **{**ask, "messages": begun}, **of_schema(SMALL), extra_body={"continue_final_message": True, "add_generation_prompt": False}
    ).choices
    assert is_small(continued.message.content)
    # Of the rest the texts are open, so nothing but JSON is certain; here the first letter is.
    for schema, letter, kind in (({}, "n", type(None)), ({"title": "t"}, "t", bool), ({"type": "object"}, "{", dict)):
        (any_json,) = choices(**of_schema(schema), logit_bias={ord(letter): 100, ord("}"): 50})
        assert isinstance(json.loads(any_json.message.content), kind)
    (any_json,) = choices(response_format={"type": "json_object"}, logit_bias={ord("}"): 100})
    assert any_json.message.content == "{}"
    for asked, texts in ((["é", "日本", "🙂"], {"é", "日本", "🙂"}), (["a", "a"], {"a"}), (["a", "ab"], {"a", "ab"}), (["a\0"], {"a\0"})):
        assert {choice.message.content for choice in choices(guided_choice=asked, n=8)} <= texts


@pytest.mark.parametrize(
    "asked, param, code, what",
    [
        (of_schema(True), "response_format.json_schema.schema", None, "must be an object, found a boolean"),
        ({"guided_json": "true"}, "guided_json", None, "must be a JSON object, found a boolean"),
        (of_schema({"type": "array", "items": {"type": "string", "maxLength": 2000}, "maxItems": 2000}), "response_format", "request-format", "limit `nodes`"),
        ({"guided_regex": "(a|b)*a(a|b){18}"}, "guided_regex", "request-format", "limit `wideStates`"),
        # Settings that contradict each other: at the first token, or later.
        ({"guided_choice": ["yes"], "bad_words": ["y"]}, None, "request-edits", "`guided_choice`: of the 260 tokens"),
        ({"allowed_token_ids": [97], "bad_words": ["a"]}, None, "request-edits", "`allowed_token_ids`"),
        ({"guided_choice": ["yes"], "bad_words": ["e"]}, None, "no_token", "`bad_words`, `logit_bias`"),
    ],
)
def test_formats_that_cannot_be(served, asked, param, code, what):
    messages = [{"role": "user", "content": "a"}]
    status, at, told, message = served.refuses("/v1/chat/completions", messages=messages, **asked)
    assert (status, at, told) == (400, param, code) and what in message and not re.search(r"request `\d", message), message
    if code == "no_token":  # the status was sent
        assert b'"code":"no_token"' in served.post("/v1/chat/completions", messages=messages, stream=True, **asked)[2]
