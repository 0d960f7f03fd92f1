"""What `megalith-serve` refuses, and where its limits are."""

import socket
import threading

import openai
import pytest
from conftest import PROMPTS
from serving import LONG, wait_for

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
        ({"min_tokens": 3, "stop": "a"}, "stop", "give `stop_token_ids`"),
        ({"min_tokens": -1}, "min_tokens", "must be from 0"),
        ({"allowed_token_ids": []}, "allowed_token_ids", "1 to 1024 tokens"),
        ({"allowed_token_ids": [260]}, "allowed_token_ids", "from 0 to 259"),
        ({"allowed_token_ids": [1], "logit_bias": {"260": 1}}, "logit_bias.260", "is no token"),
        ({"bad_words": ["ab"]}, "bad_words", "several tokens"),
        ({"bad_words": "a"}, "bad_words", "an array"),
        ({"repetition_penalty": 0}, "repetition_penalty", "from 0.001"),
        ({"frequency_penalty": -2.5}, "frequency_penalty", "from -2 to 2"),
        ({"allowed_token_ids": [257], "min_tokens": 1}, None, "leaves none"),
        ({"logprobs": 6}, "logprobs", "from 0 to 5"),
        ({"logprobs": True}, "logprobs", "must be an integer"),
        ({"top_logprobs": 2}, "top_logprobs", "is not a field"),
        ({"prompt_logprobs": 21}, "prompt_logprobs", "must be"),
        ({"presence_penalty": 3}, "presence_penalty", "from -2 to 2"),
        ({"logit_bias": {"x": 1}}, "logit_bias.x", "is no token"),
        ({"logit_bias": {"5": 101}}, "logit_bias.5", "from -100 to 100"),
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
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools", "--chat-template that does"),
        ({"tools": [{"type": "function"}]}, "tools[0].function", "must be an object"),
        ({"response_format": {"type": "grammar"}}, "response_format.type", "not supported"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"multipleOf": 3}}}}, "response_format", "`multipleOf` is not supported"),
        ({"guided_json": '{"const": NaN}'}, "guided_json", "no number of JSON"),
        ({"guided_json": '{"const": "\\ud800"}'}, "guided_json", "surrogate"),
        ({"guided_json": '{"not": ' * 960 + "{}" + "}" * 960}, "guided_json", "deep"),
        ({"guided_json": "{"}, "guided_json", "not JSON"),
        ({"guided_json": '{"const": 1e999}'}, "guided_json", "JSON"),
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
        logprobs=False, tools=[], tool_choice="none", response_format={"type": "text"}, n=1, store=False, metadata={},
        reasoning_effort="none", verbosity="medium",
    )  # fmt: skip
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
    for path in "/", "/base.js", "/health", "/metrics":
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


def test_what_follows_the_text_needs_a_pipeline_that_draws(small_client):
    for name, value in ("presence_penalty", 0.5), ("logit_bias", {"5": 1}):
        with pytest.raises(openai.BadRequestError, match="not supported"):
            small_client.completions.create(model="small", prompt="a", **{name: value})


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
