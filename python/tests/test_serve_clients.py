"""`megalith-serve`: what clients expect beside the API: ids, CORS, histories of agents, vLLM's routes and fields."""

import json

import megalith
import openai
import pytest
from conftest import DEMO, PROMPTS, ROOT
from megalith._templates import Templates
from megalith.serve._engine import StopText
from megalith.serve._protocol import ApiError, Limits
from megalith.serve._requests import read_job
from serving import Served

HISTORY = """{% for m in messages %}[{{ m.role }}{% if m.tool_calls %}:{% for c in m.tool_calls %}{{ c.function.name }}={{ c.function.arguments.x }}{% endfor %}{% endif %}{% if m.reasoning_content %}~{{ m.reasoning_content }}{% endif %}{% if m.tool_call_id %}#{{ m.tool_call_id }}{% endif %}]{{ m.content }}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"""


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    template = tmp_path_factory.mktemp("clients") / "template.jinja"
    template.write_text(HISTORY)
    with Served("sampled", "--chat-template", template, "--allow-origin", "https://page.example") as server:
        yield server


@pytest.fixture(scope="module")
def client(served):
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0, timeout=30) as client:
        yield client


def shown(served, messages, **more):
    """What a template makes of a chat."""
    status, _, answer = served.call("POST", "/tokenize", {"messages": messages, **more})
    assert status == 200, answer
    return bytes(answer["tokens"]).decode()


def test_request_ids(served, client):
    answer = client.completions.create(model="demo", prompt="a", max_tokens=1)
    assert len(answer._request_id) == 32
    for method, path, body in (
        ("GET", "/v1/models", None),
        ("GET", "/nothing", None),
        ("POST", "/v1/completions", "{"),
        ("POST", "/v1/completions", {"model": "demo", "prompt": "a", "max_tokens": 1, "stream": True}),
        ("GET", "/", None),
    ):
        assert served.call(method, path, body, X_Request_Id="mine-1")[1]["x-request-id"] == "mine-1"
        assert len(served.call(method, path, body, X_Request_Id="not one")[1]["x-request-id"]) == 32
    assert served.call("GET", "/stats", Host="evil.example", X_Request_Id="a")[1]["x-request-id"] == "a"
    answer = client.completions.create(model="demo", prompt="a", max_tokens=1, extra_body={"request_id": "r7"})
    assert answer.id == "cmpl-r7"


def test_pages_elsewhere(served):
    page, other = "https://page.example", "https://other.example"
    ask = {"Access_Control_Request_Method": "POST", "Access_Control_Request_Headers": "authorization,content-type"}
    status, headers, _ = served.call("OPTIONS", "/v1/chat/completions", Origin=page, **ask)
    assert status == 204 and headers["access-control-allow-origin"] == page
    assert headers["access-control-allow-headers"] == "authorization,content-type" and headers["vary"] == "Origin"
    status, headers, answer = served.call("OPTIONS", "/v1/chat/completions", Origin=other, **ask)
    assert status == 403 and "--allow-origin" in answer["error"]["message"]
    assert "access-control-allow-origin" not in headers
    body = {"model": "demo", "prompt": "a", "max_tokens": 2}
    for path, body in (
        ("/v1/completions", body),
        ("/v1/completions", {**body, "stream": True}),
        ("/v1/completions", "{"),
        ("/nothing", None),
    ):
        for origin in page, other:
            _, headers, _ = served.call("POST", path, body, Origin=origin)
            assert headers.get("access-control-allow-origin") == (origin if origin == page else None)
            assert headers.get("access-control-allow-credentials") is None
            assert ("x-request-id" in headers.get("access-control-expose-headers", "")) == (origin == page)


def test_usage_on_each_chunk(client):
    ask = dict(model="demo", prompt=PROMPTS[0], max_tokens=5, stream=True)
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = list(client.completions.create(**ask, stream_options=options))
    counts = [chunk.usage.completion_tokens for chunk in chunks]
    assert counts == sorted(counts) and counts[0] >= 1 and counts[-1] == 5
    assert all(chunk.usage.prompt_tokens == 17 for chunk in chunks)
    alone = client.completions.create(**ask, stream_options={"continuous_usage_stats": True})
    assert all(chunk.usage is None for chunk in alone)


def test_best_of(client, kernel):
    ask = dict(model="demo", prompt=PROMPTS[:2], max_tokens=8, temperature=1.5, seed=3, logprobs=0)
    all_of_them = client.completions.create(**ask, n=4)
    best = client.completions.create(**ask, n=2, best_of=4)
    assert best.usage.completion_tokens == all_of_them.usage.completion_tokens

    def mean(choice):
        return sum(choice.logprobs.token_logprobs) / len(choice.logprobs.tokens)

    for prompt in range(2):
        those = sorted(all_of_them.choices[4 * prompt : 4 * prompt + 4], key=mean, reverse=True)[:2]
        assert [choice.text for choice in best.choices[2 * prompt : 2 * prompt + 2]] == [each.text for each in those]
    assert [choice.index for choice in best.choices] == [0, 1, 2, 3]
    del ask["logprobs"]
    plain = client.completions.create(**ask, n=1, best_of=4)
    assert [choice.text for choice in plain.choices] == [best.choices[0].text, best.choices[2].text]
    assert plain.choices[0].logprobs is None


CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"x": 5}'}}


def test_histories_of_agents(served, client):
    history = [
        {"role": "developer", "content": "d"},
        {"role": "user", "content": "u", "name": "me"},
        {"role": "assistant", "content": None, "reasoning_content": "hm", "refusal": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "6"}]},
        {"role": "assistant", "content": None},
    ]
    assert shown(served, history) == "[system]d[user]u[assistant:f=5~hm][tool#c1]6[assistant][assistant]"
    answer = client.chat.completions.create(model="demo", messages=history, max_tokens=2)
    assert answer.usage.prompt_tokens == 66 and answer.choices[0].message.role == "assistant"
    # An answer goes back as it came, with all of its members or with those that are there.
    said = answer.choices[0].message
    assert (said.refusal, said.annotations) == (None, [])
    for back in said.model_dump(), said.model_dump(exclude_none=True):
        assert shown(served, [back]) == f"[assistant]{said.content}[assistant]"
    # Arguments that are no object stay a text.
    odd = {**CALL, "function": {"name": "f", "arguments": "no json"}}
    assert shown(served, [{"role": "assistant", "content": "", "tool_calls": [odd]}]) == "[assistant:f=][assistant]"


@pytest.mark.parametrize(
    "template, text",
    [
        ("{{ messages[0].content }}|", b"|"),
        ("{% if messages[0]['content'] is none %}none{% endif %}", b"none"),
        ("{% if messages[0].content is not none %}some{% endif %}|", b"|"),
        ("{{ messages[0].content + '|' }}", b"|"),
        ("{{ messages[0].content | trim }}|", b"|"),
    ],
)
def test_a_content_of_null(template, text):
    """Templates that ask for none get it; others would write `None`, or fail."""
    assert bytes(prompt_of(template, [{"role": "assistant", "content": None, "tool_calls": [CALL]}])) == text


def test_developers_are_told_to_templates_that_know_them():
    messages = [{"role": "developer", "content": ""}]
    assert bytes(prompt_of("{{ messages[0].role }}", messages)) == b"system"
    assert bytes(prompt_of("{{ messages[0].role }}{# developer #}", messages)) == b"developer"


LIMITS = Limits("m", 100, 90, 50, 260, True, 1.0, 1.0, 0, 64, 1)


def prompt_of(template, messages, **more):
    tokenizer = megalith.text.ByteTokenizer()
    tokenizer._templates = Templates({"default": template})
    return read_job({"model": "m", "messages": messages, **more}, True, LIMITS, tokenizer).prompts[0]


@pytest.mark.parametrize("template", ["{{ 'a' + 1 }}", "{{ 1 / 0 }}", "{{ messages[0].x.y }}", "{% for x in 1 %}{% endfor %}"])
def test_whatever_a_template_does_wrong_is_an_error_of_the_call(template):
    with pytest.raises(ApiError, match="do not fit") as caught:
        prompt_of(template, [{"role": "user", "content": "a"}])
    assert (caught.value.status, caught.value.param) == (400, "messages")


def test_a_last_message_that_goes_on(served):
    template = "{% for m in messages %}<{{ m.content | trim }}>{% endfor %}{% if add_generation_prompt %}!{% endif %}"
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": " b c "}]
    assert bytes(prompt_of(template, messages)) == b"<a><b c>!"
    assert bytes(prompt_of(template, messages, continue_final_message=True)) == b"<a><b c"
    whole = template.replace(" | trim", "")
    assert bytes(prompt_of(whole, messages, continue_final_message=True)) == b"<a>< b c "
    assert bytes(prompt_of(template, messages, continue_final_message=False)) == b"<a><b c>!"
    with pytest.raises(ApiError, match="changes the last message"):
        prompt_of("{{ 'x' }}", messages, continue_final_message=True)


def test_fields_that_ask_for_nothing(served):
    nothing = dict(
        skip_special_tokens=True,
        spaces_between_special_tokens=True,
        include_stop_str_in_output=False,
        include_reasoning=True,
        add_special_tokens=True,
        return_token_ids=False,
        return_tokens_as_token_ids=False,
        echo=False,
        length_penalty=1.0,
        early_stopping=False,
        truncate_prompt_tokens=None,
        min_tokens=0,
        allowed_token_ids=None,
        bad_words=[],
        logits_processors=None,
        kv_transfer_params=None,
        documents=None,
        chat_template=None,
        mm_processor_kwargs=None,
        cache_salt="x",
        repetition_penalty=1,
        best_of=1,
        parallel_tool_calls=False,
        stream_options=None,
    )
    assert served.post("/v1/completions", prompt="a", max_tokens=1, **nothing)[0] == 200
    messages = [{"role": "user", "content": "a"}]
    nothing |= dict(continue_final_message=False, chat_template_kwargs={"enable_thinking": False})
    status, _, answer = served.post("/v1/chat/completions", messages=messages, max_tokens=1, **nothing)
    assert status == 200, answer


def test_fields_that_ask_for_something(client, served):
    ask = dict(model="demo", prompt=PROMPTS[0], max_tokens=12, temperature=0)
    choice = client.completions.create(**ask, stop="wor", extra_body={"include_stop_str_in_output": True}).choices[0]
    assert (choice.text, choice.finish_reason) == ("of the wor", "stop")
    told = client.completions.create(**ask, logprobs=1, extra_body={"return_tokens_as_token_ids": True})
    assert told.choices[0].logprobs.tokens[:2] == ["token_id:111", "token_id:102"]
    cut = client.completions.create(**{**ask, "prompt": "x" * 5000 + PROMPTS[0]}, extra_body={"truncate_prompt_tokens": 17})
    assert cut.usage.prompt_tokens == 17 and cut.choices[0].text == "of the world"
    body = {"model": "m", "prompt": "x" * 500 + "abc", "max_tokens": 1, "truncate_prompt_tokens": -1}
    (prompt,) = read_job(body, False, LIMITS, megalith.text.ByteTokenizer()).prompts
    assert bytes(prompt) == b"x" * 87 + b"abc"


def test_a_stop_text_that_is_kept():
    stop = StopText(["ab"], keeps=True)
    assert stop.push("xa") + stop.push("bc") == "xab" and stop.found


def test_tokens_and_texts(served):
    status, _, answer = served.call("POST", "/tokenize", {"prompt": "hé", "return_token_strs": True})
    assert (status, answer) == (
        200,
        {"count": 3, "max_model_len": 2048, "tokens": [104, 195, 169], "token_strs": ["h", "\\xc3", "\\xa9"]},
    )
    assert served.call("POST", "/detokenize", {"model": "demo", "tokens": [104, 195, 169]})[2] == {"prompt": "hé"}
    for path, body, what in (
        ("/tokenize", {"prompt": 3}, "must be a string"),
        ("/tokenize", {}, "is missing"),
        ("/tokenize", {"prompt": "a", "model": "b"}, "does not exist"),
        ("/detokenize", {"tokens": [260]}, "from 0 to 259"),
        ("/detokenize", {"tokens": "a"}, "array of tokens"),
    ):
        status, _, answer = served.call("POST", path, body)
        assert status in (400, 404) and what in answer["error"]["message"]
    assert served.call("GET", "/version")[2] == {"version": megalith.__version__}


def test_models_have_what_vllm_tells(served):
    (model,) = served.call("GET", "/v1/models")[2]["data"]
    assert (model["root"], model["parent"], model["permission"][0]["object"]) == (str(DEMO), None, "model_permission")


def test_other_apis_are_pointed_here(served):
    for path in "/v1/responses/resp_1", "/v1/conversations", "/v1/messages", "/api/chat", "/v1/embeddings":
        status, _, answer = served.call("POST", path, {})
        assert status == 404 and " here" in answer["error"]["message"], answer


def test_defaults_of_the_checkpoint(tmp_path):
    """`generation_config.json`: what counts is there, what does not is told."""
    model = tmp_path / "demo"
    model.mkdir()
    for name in "config.json", "model.safetensors":
        (model / name).symlink_to(DEMO / name)
    said = {"min_p": 1.0, "temperature": 2.0, "max_new_tokens": 7, "repetition_penalty": 1.5, "typical_p": 0.5}
    (model / "generation_config.json").write_text(json.dumps(said))
    template = tmp_path / "template.jinja"
    template.write_text("{{ messages[0].content }}")
    with Served("sampled", "--chat-template", template, model=model) as server:
        told = server.error_text()
        assert "warning: `typical_p` of `generation_config.json` is 0.5, and that is not done" in told and "repetition_penalty" not in told
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
        ask = dict(model="demo", prompt=PROMPTS[0], max_tokens=40)

        def text(**more):
            return client.completions.create(**ask, **({"extra_body": more} if more else {})).choices[0].text

        # min_p of 1 takes the best token at any temperature.
        assert text(repetition_penalty=1).startswith("of the world")
        assert text() == text(repetition_penalty=1.5) != text(repetition_penalty=1)
        messages = [{"role": "user", "content": PROMPTS[0]}]
        chat = client.chat.completions.create(model="demo", messages=messages, extra_body={"repetition_penalty": 1})
        assert chat.choices[0].message.content == "of the "
    with Served("canvas_refinement", "--chat-template", template, model=model) as server:  # it fills places of which no text is known
        assert "`repetition_penalty` of `generation_config.json` is 1.5, and that is not done" in server.error_text()
        assert server.post("/v1/completions", prompt="a", max_tokens=3)[0] == 200
        status, param, code, message = server.refuses("/v1/completions", prompt="a", response_format={"type": "json_object"})
        assert (status, param, code) == (400, "response_format", "unsupported_parameter") and "this pipeline cannot keep one" in message


def test_echo_and_prompt_logprobs(served, client):
    made = client.completions.create(model="demo", prompt="In the beginning", max_tokens=6, temperature=0, logprobs=2)
    text = "In the beginning" + made.choices[0].text
    plain = client.completions.create(model="demo", prompt="In the beginning", max_tokens=6, temperature=0, echo=True)
    assert plain.choices[0].text == text and plain.choices[0].logprobs is None
    echoed = client.completions.create(model="demo", prompt="In the beginning", max_tokens=6, temperature=0, logprobs=2, echo=True)
    told = echoed.choices[0].logprobs
    assert echoed.choices[0].text == text and "".join(told.tokens) == text
    assert told.text_offset == list(range(len(text)))
    assert told.token_logprobs[0] is None and told.top_logprobs[0] is None
    assert told.token_logprobs[16:] == made.choices[0].logprobs.token_logprobs
    # As those who judge a checkpoint ask: several texts of tokens, of which nothing is to be generated.
    tokens = list(text.encode())
    for most in (0, 1):
        scored = client.completions.create(model="demo", prompt=[tokens, tokens[:9]], max_tokens=most, temperature=0, logprobs=1, echo=True)
        assert [choice.logprobs.token_logprobs[: len(tokens)] for choice in scored.choices] == [
            told.token_logprobs, told.token_logprobs[:9] + scored.choices[1].logprobs.token_logprobs[9:]
        ]
        assert scored.usage.completion_tokens == 2 * most
    body = {"model": "demo", "prompt": tokens, "max_tokens": 0, "prompt_logprobs": 1}
    status, _, answer = served.call("POST", "/v1/completions", body)
    assert status == 200, answer
    lines = answer["choices"][0]["prompt_logprobs"]
    assert lines[0] is None and answer["choices"][0]["text"] == ""
    assert [line[str(token)]["logprob"] for line, token in zip(lines[1:], tokens[1:])] == told.token_logprobs[1:]
    assert all(min(each["rank"] for each in line.values()) == 1 for line in lines[1:])
    chat = {"model": "demo", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1, "prompt_logprobs": 0}
    status, _, answer = served.call("POST", "/v1/chat/completions", chat)
    assert status == 200 and len(answer["prompt_logprobs"]) == answer["usage"]["prompt_tokens"]
    for wrong, why in (
        ({"stream": True}, "not supported in a stream"),
        ({"prompt_logprobs": 21}, "must be"),
    ):
        status, _, answer = served.call("POST", "/v1/completions", {**body, **wrong})
        assert status == 400 and why in answer["error"]["message"], answer


def test_prompts_that_are_fed_as_drafts_have_no_logprobs(tmp_path):
    """Such a pipeline is told of before anything runs, by the server and by a session."""
    text = (ROOT / "pipelines/autoregressive.yaml").read_text()
    for old, new in (
        ("\nstates:", "\nrequest:\n  fed: i32 = 0\n\nstates:"),
        ("    on: PREFILL\n", "    on: PREFILL\n    progress: fed\n"),
        (
            "target(tokens[kv.target.len:-1], chunk=prefill_chunk, keep=none)",
            "target(tokens[kv.target.len:-1][:128], kv=draft, keep=none)\n"
            "      - fed: min(fed + 128, len(tokens) - 1)\n      - kv.target.keep: fed",
        ),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    pipeline = tmp_path / "drafts.yaml"
    pipeline.write_text(text)
    why = "it feeds prompts to `target` by calls with `kv=draft` ("
    program = megalith.compile(pipeline, DEMO)
    assert program.why_no_prompt_logprobs.startswith(why)
    with program.load("reference").session(logit_lines=8) as session:
        with pytest.raises(megalith.Error, match="the pipeline has none") as caught:
            session.generate("abc", max_new_tokens=1, prompt_logprobs=0)
        assert caught.value.kind == "live-prompt-logprobs"
    with Served(str(pipeline)) as server:
        long = "a" * 1000  # which would take more rows than there are
        for param, body in (
            ("echo", {"prompt": long, "echo": True, "logprobs": 0, "max_tokens": 0}),
            ("prompt_logprobs", {"prompt": long, "prompt_logprobs": 0}),
        ):
            status, where, code, message = server.refuses("/v1/completions", **body)
            assert (status, where, code) == (400, param, "unsupported_parameter") and why in message, message
        ask = {"prompt": PROMPTS[0], "max_tokens": 12}
        for more in {"echo": True}, {"logprobs": 0}:  # these need no rows of the prompt
            status, _, answer = server.post("/v1/completions", **ask, **more)
            assert status == 200 and answer["choices"][0]["text"].endswith("of the world"), answer
    # One that feeds a part of a prompt so is found out by the request itself.
    pipeline.write_text(text.replace("      - target(tokens[", "      - target(tokens[:-1][:1] if fed == 0 else [], keep=none)\n      - target(tokens["))
    assert megalith.compile(pipeline, DEMO).why_no_prompt_logprobs == ""
    with Served(str(pipeline)) as server:
        ask |= {"max_tokens": 1, "prompt_logprobs": 0}
        status, _, code, message = server.refuses("/v1/completions", **ask)
        assert (status, code) == (500, "no_prompt_logprobs") and "drafts" in message, message
        assert server.post("/v1/completions", **{**ask, "prompt": "ab"})[0] == 200


def test_prefixes_that_requests_share(tmp_path):
    """The second turn of a chat does not feed the first one again, and says so; another salt finds nothing."""
    alone = tmp_path / "alone.yaml"
    text = (ROOT / "pipelines/sampled.yaml").read_text()
    assert text.count(", index: auto}") == 1
    alone.write_text(text.replace(", index: auto}", "}"))
    with Served("sampled", "--set=page_tokens=8") as server, Served(str(alone)) as other:

        def ask(content, of=server, **more):
            status, _, answer = of.post("/v1/completions", prompt=content, max_tokens=20, temperature=0, **more)
            assert status == 200, answer
            usage = answer["usage"]
            assert usage["total_tokens"] == usage["prompt_tokens"] + 20
            return answer["choices"][0]["text"], usage["prompt_tokens_details"]["cached_tokens"]

        first, found = ask(PROMPTS[0])
        assert (first, found) == (ask(PROMPTS[0], other)[0], 0)
        # All of the first turn but its last token: whole pages of it.
        begin = PROMPTS[0] + first
        second, found = ask(begin + " And")
        assert second == ask(begin + " And", other)[0]
        assert found == (len(begin.encode()) - 1) // 8 * 8
        assert ask(begin + " And", cache_salt="tenant") == (second, 0)
        assert ask(begin + " And", cache_salt="tenant")[1] > 0
        # A stop text ends the answer before the kernel does.
        status, _, answer = server.post("/v1/completions", prompt=begin + " And", max_tokens=20, temperature=0, stop=[second[3]])
        assert (status, answer["usage"]["prompt_tokens_details"]) == (200, {"cached_tokens": (len(begin.encode()) + 3) // 8 * 8})
        metrics, (pool,) = server.metrics(), server.stats()["pools"]
        assert metrics["vllm:prefix_cache_queries_total"] > metrics["vllm:prefix_cache_hits_total"] > 0
        assert metrics['megalith:pool_cached{pool="target"}'] == pool["cached"]
        assert pool["used"] == 0 < pool["cached"] and other.stats()["pools"][0]["cached"] is None
        assert "vllm:prefix_cache_hits_total" not in other.metrics()


def test_salts():
    """Their numbers are not 0, and not equal."""
    salts = {read_job({"model": "m", "prompt": "a", "cache_salt": salt}, False, LIMITS, megalith.text.ByteTokenizer()).settings["cache"]
             for salt in ("", "a", "b", None) if salt != ""}
    assert len(salts) == 3 and 0 in salts and all(0 <= each < 2**63 for each in salts)
    with pytest.raises(ApiError, match="`cache_salt` must be a string"):
        read_job({"model": "m", "prompt": "a", "cache_salt": 7}, False, LIMITS, megalith.text.ByteTokenizer())
