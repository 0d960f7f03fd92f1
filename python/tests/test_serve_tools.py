"""Tools and formats of `megalith-serve`, with a model that answers by a script."""

import json
import threading
import time

import openai
import pytest
from megalith.serve._formats import place_for_client
from scripted import Scripted
from serving import wait_for

FUNCTION = {"name": "weather", "description": "of a place", "parameters": {"type": "object", "properties": {"place": {"type": "string"}}}}
OTHER = {"name": "now"}
TOOLS = [{"type": "function", "function": FUNCTION}, {"type": "function", "function": OTHER}]
ASK = dict(model="demo", messages=[{"role": "user", "content": "How is Rome?"}], tools=TOOLS)
CALL = '{"name": "weather", "arguments": {"place": "Rome"}}'
NAMED = {"type": "function", "function": {"name": "weather"}}


@pytest.fixture(scope="module")
def server():
    with Scripted() as server:
        yield server


@pytest.fixture(scope="module")
def formed():
    """Its engine has formats."""
    with Scripted(formats=True) as server:
        yield server


def client_of(server):
    return openai.OpenAI(base_url=server.base, api_key="none", max_retries=0, timeout=30)


def both(server, answer, **ask):
    """Content, calls and finish of an answer, which are the same whole and streamed."""
    server.session.answer = answer if callable(answer) else lambda _: answer
    client = client_of(server)
    choice = client.chat.completions.create(**{**ASK, **ask}).choices[0]
    calls = [(call.function.name, call.function.arguments) for call in choice.message.tool_calls or []]
    assert all(call.id.startswith("call_") and call.type == "function" for call in choice.message.tool_calls or [])
    for size in 1, 3, 1000:
        server.session.size = size
        content, streamed, finish = "", [], None
        for chunk in client.chat.completions.create(**{**ASK, **ask}, stream=True):
            (told,) = chunk.choices
            content += told.delta.content or ""
            for call in told.delta.tool_calls or []:
                if call.function.name is not None:
                    assert call.index == len(streamed) and call.id.startswith("call_") and call.type == "function"
                    assert call.function.arguments == ""
                    streamed.append([call.function.name, ""])
                else:
                    assert call.index == len(streamed) - 1 and call.id is None
                    streamed[-1][1] += call.function.arguments
            finish = told.finish_reason or finish
        assert (content, [tuple(each) for each in streamed], finish) == (choice.message.content or "", calls, choice.finish_reason)
    return choice.message.content, calls, choice.finish_reason


def test_calls_whole_and_streamed(server):
    rome = ("weather", '{"place": "Rome"}')
    assert both(server, f"<tool_call>\n{CALL}\n</tool_call>") == (None, [rome], "tool_calls")
    two = f'Two:\n<tool_call>{CALL}</tool_call>\n<tool_call>{{"name": "now"}}</tool_call>'
    assert both(server, two) == ("Two:", [rome, ("now", "{}")], "tool_calls")
    assert both(server, two, parallel_tool_calls=False) == ("Two:", [rome], "tool_calls")
    assert both(server, "It is fine.") == ("It is fine.", [], "stop")
    bad = "<tool_call>{'name': 'weather'}</tool_call>"
    assert both(server, bad) == (bad, [], "stop")
    assert both(server, f"<tool_call>{CALL}</tool_call>", max_tokens=20) == ("<tool_call>" + CALL[:9], [], "length")
    assert both(server, f"<tool_call>{CALL}</tool_call>xyz", stop=["</tool_call>"]) == (None, [rome], "tool_calls")
    # Nobody calls what is not to be called.
    assert both(server, f"<tool_call>{CALL}</tool_call>", tool_choice="none") == (f"<tool_call>{CALL}</tool_call>", [], "stop")


@pytest.mark.parametrize(
    "form, text",
    [
        ("llama3_json", '{"name": "weather", "parameters": {"place": "Rome"}}'),
        ("mistral", f"[TOOL_CALLS][{CALL}]"),
    ],
)
def test_other_forms(form, text):
    with Scripted(form) as server:
        assert both(server, text) == (None, [("weather", '{"place": "Rome"}')], "tool_calls")
    with Scripted(tool_parser=form) as server:  # whatever the template says
        assert both(server, text)[2] == "tool_calls"


def test_templates_get_the_tools(server):
    both(server, "")
    prompt = server.session.asked[-1][0]
    assert json.loads(prompt[len("<tools>") : prompt.index("</tools>")]) == TOOLS
    assert prompt.endswith("[user]How is Rome?[assistant]")
    both(server, "", tool_choice="none")
    assert "<tools>" not in server.session.asked[-1][0]
    history = [
        *ASK["messages"],
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"place": "Rome"}'}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
    ]
    both(server, "", messages=history)
    assert server.session.asked[-1][0].endswith('[assistant](c1 weather {"place": "Rome"})[tool c1]sunny[assistant]')


def test_what_parse_gives_goes_back():
    """`openai`'s parser adds members that say the same again; a template that shows whole messages has none of them."""
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}", "parsed_arguments": {"x": 1}}}
    back = {"role": "assistant", "content": "a", "refusal": None, "annotations": [], "parsed": {"x": 1}, "tool_calls": [call]}
    with Scripted(template="{% for m in messages %}{{ m | tojson }}{% endfor %}") as server:
        server.session.answer = lambda _: ""
        client_of(server).chat.completions.create(model="demo", messages=[back])
        function = {"name": "weather", "arguments": {}}
        assert json.loads(server.session.asked[-1][0]) == {"role": "assistant", "content": "a", "tool_calls": [{**call, "function": function}]}


def test_what_is_wrong_with_tools(server):
    client = client_of(server)

    def refused(**ask):
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(**{**ASK, **ask})
        return caught.value.param, caught.value.body["message"]

    for ask, param, what in (
        ({"tools": [{"type": "web_search"}]}, "tools[0].type", "no tools of its own"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name", "is missing"),
        ({"tools": [{"type": "function", "function": {"name": "f", "x": 1}}]}, "tools[0].function.x", "is not a field"),
        ({"tools": TOOLS[:1] * 2}, "tools", "two functions"),
        ({"tool_choice": "some"}, "tool_choice", "must be `none`"),
        ({"tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice", "not among `tools`"),
        ({"tools": [], "tool_choice": "required"}, "tool_choice", "there are no `tools`"),
        ({"tool_choice": "required"}, "tool_choice", "answers of a given format"),
        ({"tool_choice": NAMED}, "tool_choice", "answers of a given format"),
        ({"tool_choice": {"name": "weather"}}, "tool_choice", "answers of a given format"),
        ({"tool_choice": {"type": "custom"}}, "tool_choice.type", "`allowed_tools`"),
        ({"tool_choice": {"name": "weather", "x": 1}}, "tool_choice.x", "is not a field"),
        ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice.tools", "at least one"),
        ({"tool_choice": {"type": "allowed_tools", "allowed_tools": 1}}, "tool_choice.allowed_tools", "must be an object"),
        ({"tool_choice": {"type": "allowed_tools", "mode": "none", "tools": [NAMED]}}, "tool_choice.mode", "`auto` or `required`"),
        ({"tool_choice": {"type": "allowed_tools", "tools": [{"type": "mcp"}]}}, "tool_choice", "must name a function"),
        ({"tool_choice": {"type": "allowed_tools", "allowed_tools": {"tools": [{"name": "g"}]}}}, "tool_choice", "not among `tools`"),
        ({"extra_body": {"skip_special_tokens": False}}, "skip_special_tokens", "must be true"),
        ({"functions": [FUNCTION]}, "functions", "`tools`"),
    ):
        at, message = refused(**ask)
        assert at == param and what in message, (ask, at, message)
    for template, what in (("{{ messages[0].content }}", "does not tell"), ("{{ tools }}", "--tool-parser")):
        with Scripted(template=template) as other:
            with pytest.raises(openai.BadRequestError, match=what):
                client_of(other).chat.completions.create(**ASK)


def test_enforced_calls(formed):
    text = '{"name": "weather", "arguments": {"place": "Rome"}}'
    for choice, functions in (("required", [FUNCTION, OTHER]), (NAMED, [FUNCTION]), ({"name": "weather"}, [FUNCTION])):
        assert both(formed, text, tool_choice=choice) == (None, [("weather", '{"place": "Rome"}')], "tool_calls")
        prompt, members = formed.session.asked[-1]
        schema = members["format"]["json_schema"]
        assert prompt.endswith("[assistant]<tool_call>\n")  # as the model would begin
        calls = schema.get("anyOf", [schema])
        assert [call["properties"]["name"]["const"] for call in calls] == [each["name"] for each in functions]
        assert calls[0]["properties"]["arguments"] == FUNCTION["parameters"]
        assert all(call["required"] == ["name", "arguments"] for call in calls)
    # What the budget has cut is told so far, as in the API.
    cut = both(formed, text, tool_choice="required", max_tokens=40)
    assert cut == (None, [("weather", '{"place')], "length")


@pytest.mark.parametrize("flat", [False, True])
def test_some_of_the_tools(server, formed, flat):
    """All are told to the model, and the others are not called."""
    for mode in "auto", "required":
        said = {"mode": mode, "tools": [{"type": "function", "name": "now"} if flat else {"type": "function", "function": {"name": "now"}}]}
        choice = {"type": "allowed_tools", **(said if flat else {"allowed_tools": said})}
        used = formed if mode == "required" else server
        now = '{"name": "now", "arguments": {}}'
        answer = now if mode == "required" else f"<tool_call>{CALL}</tool_call><tool_call>{now}</tool_call>"
        content, calls, _ = both(used, answer, tool_choice=choice)
        assert (content, calls) == (None if mode == "required" else f"<tool_call>{CALL}</tool_call>", [("now", "{}")])
        prompt, members = used.session.asked[-1]
        assert '"weather"' in prompt
        if mode == "required":
            assert members["format"]["json_schema"]["properties"]["name"] == {"const": "now"}


ANSWER = {"type": "object", "properties": {"place": {"$ref": "#/$defs/place"}}, "$defs": {"place": {"type": "string"}}}


@pytest.mark.parametrize("form", ["hermes", "llama3_json", "mistral"])
def test_a_call_or_an_answer_of_a_format(form):
    """One format has both, whatever the model writes around its calls where it is free."""
    arguments = "parameters" if form == "llama3_json" else "arguments"
    call = CALL.replace("arguments", arguments)
    with Scripted(form, formats=True) as server:
        for asked in (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": ANSWER, "strict": True}}},
            {"extra_body": {"guided_json": ANSWER}},
        ):
            assert both(server, call, **asked) == (None, [("weather", '{"place": "Rome"}')], "tool_calls")
            prompt, members = server.session.asked[-1]
            assert prompt.endswith("[assistant]")
            schema = members["format"]["json_schema"]
            assert [each["properties"].get("name") for each in schema["anyOf"]] == [{"const": "weather"}, {"const": "now"}, None]
            assert schema["anyOf"][0]["properties"][arguments] == FUNCTION["parameters"]
            assert schema["anyOf"][2] == {"type": "object", "properties": {"place": {"$ref": "#/$defs/answer.defs.place"}}}
            assert schema["$defs"] == {"answer.defs.place": {"type": "string"}} and members["format"]["depth"] == 3
            text = '{"place": "<tool_call>' + CALL.replace('"', "'") + '</tool_call>"}'
            assert both(server, text, **asked) == (text, [], "stop")
            assert both(server, call, **asked, max_tokens=40) == (call[:40], [], "length")
        both(server, "{}", response_format={"type": "json_object"})
        assert server.session.asked[-1][1]["format"]["json_schema"]["anyOf"][2] == {"type": "object"}
        # Where a call is enforced there is no other answer, and without tools no call.
        asked = {"response_format": {"type": "json_object"}}
        assert both(server, call, **asked, tool_choice="required") == (None, [("weather", '{"place": "Rome"}')], "tool_calls")
        assert len(server.session.asked[-1][1]["format"]["json_schema"]["anyOf"]) == 2
        assert both(server, call, **asked, tool_choice="none") == (call, [], "stop")
        assert server.session.asked[-1][1]["format"] == OF_OBJECT


def test_places_are_those_of_the_client(program):
    """What is wrong with a schema is told at its place in what the client has sent, not in what is made of it."""
    bad, within = {"type": "integer", "multipleOf": 1}, {"type": "object", "properties": {"x": {"type": "integer", "multipleOf": 1}}}
    with Scripted(formats=True, prepare_format=program.prepare_format) as server:
        client = client_of(server)

        def refused(parameters, answer=None, **ask):
            tools = [TOOLS[1], {"type": "function", "function": {"name": "g", "parameters": parameters}}]
            if answer is not None:
                ask["response_format"] = {"type": "json_schema", "json_schema": {"name": "n", "schema": answer}}
            with pytest.raises(openai.BadRequestError, match="the keyword `multipleOf` is not supported") as caught:
                client.chat.completions.create(**{**ASK, "tools": tools, **ask})
            assert caught.value.code == "request-format"
            return caught.value.param, caught.value.body["message"].partition(": the keyword")[0]

        function = "the schema of the function `g` at "
        for parameters, place in (
            (within, "`#/properties/x`"),
            (bad, "`#`"),
            ({"$defs": {"a.b": bad}, "properties": {"x": {"$ref": "#/$defs/a.b"}}}, "`#/$defs/a.b`"),
            ({"definitions": {"d": within}, "properties": {"x": {"$ref": "#/definitions/d"}}}, "`#/definitions/d/properties/x`"),
            ({"properties": {"y": {"$ref": "#"}, "x": bad}}, "`#/properties/x`"),
        ):
            assert refused(parameters, tool_choice="required") == ("tool_choice", function + place)
            assert refused(parameters, tool_choice={"name": "g"}) == ("tool_choice", function + place)
            assert refused(parameters, {"type": "object"}) == ("response_format", function + place)
            assert refused({}, parameters) == ("response_format", "the schema at " + place)
            assert refused({}, parameters, tool_choice="none") == ("response_format", "the schema at " + place)
        # What counts for one of them only is not lost among others.
        old = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "array", "prefixItems": [True], "items": {"type": "null"}}
        for number, answer in enumerate((old, {**old, "$schema": "https://json-schema.org/draft/2020-12/schema"})):
            asked = {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": answer}}}
            if number == 0:
                with pytest.raises(openai.BadRequestError, match="the schema at `#`: `prefixItems` is no keyword"):
                    client.chat.completions.create(**ASK, **asked)
            else:
                assert client.chat.completions.create(**ASK, **asked).choices[0].finish_reason == "stop"
    whole = "the schema at `#`: it has too many parts"
    assert place_for_client(whole, [FUNCTION, OTHER], "arguments") == whole


@pytest.mark.parametrize("fault", ["NO_TOKEN", "FORMAT", "NUMERIC"])
def test_faults(server, fault):
    """Some come from what the request itself asks for: then the client can do something."""
    server.session.answer, server.session.fault = lambda _: "ab", fault
    client, ask = client_of(server), dict(model="demo", messages=ASK["messages"])
    try:
        with pytest.raises(openai.APIStatusError, match=f"{fault}: `append`" if fault != "NUMERIC" else fault) as caught:
            client.chat.completions.create(**ask)
        with pytest.raises(openai.APIError, match=fault) as streamed:
            list(client.chat.completions.create(**ask, stream=True))
        with pytest.raises(openai.APIStatusError) as response:
            client.responses.create(model="demo", input="a")
        last = list(client.responses.create(model="demo", input="a", stream=True))[-1]
    finally:
        server.session.fault = ""
    is_client = fault != "NUMERIC"
    assert caught.value.status_code == response.value.status_code == (400 if is_client else 500)
    assert caught.value.code == streamed.value.code == last.response.error.code == (fault.lower() if is_client else "fault")
    assert caught.value.body["type"] == streamed.value.body["type"] == ("invalid_request_error" if is_client else "server_error")
    assert ("eave " in caught.value.body["message"]) == is_client == ("p.yaml" not in caught.value.body["message"])


def test_what_nobody_has_thought_of(server, caplog):
    """The client is told, and does not wait for ever; the log says what it was."""
    server.session.answer, server.session.size = lambda _: "ab", 0  # which makes the script itself fail
    try:
        with pytest.raises(openai.InternalServerError, match="its log says more"):
            client_of(server).completions.create(model="demo", prompt="a")
    finally:
        server.session.size = 3
    assert "must not be zero" in caplog.text


# ===----------------------------------------------------------------------===#
# While a format is made
# ===----------------------------------------------------------------------===#


class Slow:
    """Makes a format when the test says so."""

    def __init__(self):
        self.begun, self.go = [], threading.Event()

    def __call__(self, format):
        self.begun.append(format)
        assert self.go.wait(30)


def ask_on_a_thread(server, out, **ask):
    def work():
        try:
            out.append(client_of(server).completions.create(model="demo", prompt="a", **ask).choices[0].text)
        except openai.APIStatusError as error:
            out.append((error.status_code, error.code))

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_who_waits_for_a_format_has_a_deadline():
    slow, out = Slow(), []
    with Scripted(formats=True, prepare_format=slow, request_timeout=0.3) as server:
        server.session.answer = lambda _: "ab"
        # The second one waits for the first one's format, and others wait for neither.
        threads = [ask_on_a_thread(server, out, extra_body={"guided_regex": each}) for each in ("a", "b")]
        assert client_of(server).completions.create(model="demo", prompt="a").choices[0].text == "ab"
        for thread in threads:
            thread.join()
        assert out == [(504, "deadline")] * 2 and server.engine.metrics.finished["error"] == 2
        # What nobody waits for any more is not begun.
        slow.go.set()
        assert client_of(server).completions.create(model="demo", prompt="a", extra_body={"guided_regex": "c"}).choices[0].text == "ab"
        assert [each["regex"] for each in slow.begun] in (["a", "c"], ["b", "c"])


def test_time_for_a_format_is_of_the_request():
    slow, out = Slow(), []
    with Scripted(formats=True, prepare_format=slow, request_timeout=20) as server:
        thread = ask_on_a_thread(server, out, extra_body={"guided_regex": "a"})
        wait_for(lambda: slow.begun)
        begun = time.monotonic()
        wait_for(lambda: time.monotonic() > begun + 0.05)
        slow.go.set()
        thread.join()
        assert 10000 < server.session.asked[-1][1]["deadline_ms"] <= 19950


def test_who_waits_for_a_format_hears_that_the_server_stops():
    slow, out = Slow(), []
    with Scripted(formats=True, prepare_format=slow) as server:
        threads = [ask_on_a_thread(server, out, extra_body={"guided_regex": each}) for each in ("a", "b")]
        wait_for(lambda: slow.begun and server.engine._unprepared == 2)
        server.loop.call_soon_threadsafe(server.engine.drain)
        for thread in threads:
            thread.join()
        assert out == [(503, "stopping")] * 2 and len(slow.begun) == 1
        ask_on_a_thread(server, out, extra_body={"guided_regex": "c"}).join()
        assert out[-1] == (503, "stopping") and len(slow.begun) == 1
        slow.go.set()


def test_who_leaves_does_not_wait_for_a_format():
    slow = Slow()
    with Scripted(formats=True, prepare_format=slow) as server:
        with pytest.raises(openai.APITimeoutError):
            client_of(server).completions.create(model="demo", prompt="a", extra_body={"guided_regex": "a"}, timeout=0.2)
        left = time.monotonic()
        wait_for(lambda: server.engine._unprepared == 0)
        assert time.monotonic() < left + 15  # the format alone would take twice as long
        slow.go.set()


def test_schemas_within_schemas(formed):
    """What a schema refers to is found in the one around it."""
    tree = {"$defs": {"leaf": {"const": {"$ref": "#"}}}, "properties": {"$ref": {"$ref": "#/$defs/leaf"}, "next": {"$ref": "#"}}}
    tools = [TOOLS[1], {"type": "function", "function": {"name": "f", "parameters": tree}}]
    both(formed, "", tools=tools, tool_choice="required")
    schema = formed.session.asked[-1][1]["format"]["json_schema"]
    assert schema["anyOf"][1]["properties"]["arguments"] == {"$ref": "#/$defs/1"}
    assert schema["$defs"] == {
        "1": {"type": "object", "properties": {"$ref": {"$ref": "#/$defs/1.defs.leaf"}, "next": {"$ref": "#/$defs/1"}}},
        "1.defs.leaf": {"const": {"$ref": "#"}},
    }


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
OF_SCHEMA = {"json_schema": SCHEMA, "depth": 3}
OF_OBJECT = {"json_schema": {"type": "object"}, "depth": 3}


@pytest.mark.parametrize(
    "ask, format",
    [
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_object"}}, OF_OBJECT),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}}, OF_SCHEMA),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}}}, OF_SCHEMA),
        ({"structured_outputs": {"json": SCHEMA}}, OF_SCHEMA),
        ({"structured_outputs": {"json": json.dumps(SCHEMA), "regex": None}}, OF_SCHEMA),
        ({"structured_outputs": {"regex": "a+"}}, {"regex": "a+"}),
        ({"structured_outputs": {"choice": ["a", "b"]}}, {"choice": ["a", "b"]}),
        ({"structured_outputs": {"json_object": True}}, OF_OBJECT),
        ({"guided_json": json.dumps(SCHEMA)}, OF_SCHEMA),
        ({"guided_regex": "a+"}, {"regex": "a+"}),
        ({"guided_choice": ["a"]}, {"choice": ["a"]}),
    ],
)
def test_formats(server, formed, ask, format):
    messages = ASK["messages"]
    client_of(formed).chat.completions.create(model="demo", messages=messages, extra_body=ask)
    assert formed.session.asked[-1][1].get("format") == format
    client_of(formed).completions.create(model="demo", prompt="a", extra_body=ask)
    assert formed.session.asked[-1][1].get("format") == format
    if format:
        with pytest.raises(openai.BadRequestError, match="needs answers of a given format, and this version has none") as caught:
            client_of(server).chat.completions.create(model="demo", messages=messages, extra_body=ask)
        assert caught.value.code == "unsupported_parameter" and caught.value.param.startswith(next(iter(ask)))


@pytest.mark.parametrize(
    "ask, param, what",
    [
        ({"guided_grammar": "x"}, "guided_grammar", "a regex or a JSON schema"),
        ({"guided_whitespace_pattern": " "}, "guided_whitespace_pattern", "no other white space"),
        ({"guided_decoding_backend": "x"}, "guided_decoding_backend", "one only"),
        ({"structural_tag": "{}"}, "structural_tag", "`tools`"),
        ({"structured_outputs": {"grammar": "x"}}, "structured_outputs.grammar", "a regex or a JSON schema"),
        ({"structured_outputs": {"structural_tag": "x"}}, "structured_outputs.structural_tag", "`tools`"),
        ({"structured_outputs": {}}, "structured_outputs", "must have one of"),
        ({"structured_outputs": {"json": "{"}}, "structured_outputs.json", "is not JSON"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice", "1 to 1000"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs.choice", "one format"),
        ({"guided_regex": "a", "response_format": {"type": "json_object"}}, "guided_regex", "one format"),
        ({"response_format": {"type": "xml"}}, "response_format.type", "must be `text`"),
        ({"response_format": {"type": "structural_tag"}}, "response_format.type", "`tools`"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}}, "response_format.json_schema.schema", "is missing"),
        ({"guided_regex": "a", "tools": TOOLS}, "guided_regex", "say it as a JSON schema"),
        ({"structured_outputs": {"choice": ["a"]}, "tools": TOOLS}, "structured_outputs.choice", "beside `tools`"),
    ],
)
def test_formats_that_are_none(formed, ask, param, what):
    with pytest.raises(openai.BadRequestError) as caught:
        client_of(formed).chat.completions.create(model="demo", messages=ASK["messages"], extra_body=ask)
    assert caught.value.param == param and what in caught.value.body["message"], caught.value.body
