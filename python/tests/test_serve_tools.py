"""Tools and formats of `megalith-serve`, with a model that answers by a script."""

import json

import openai
import pytest
from scripted import Scripted

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


def test_schemas_within_schemas(formed):
    """What a schema refers to is found in the one around it."""
    tree = {"$defs": {"leaf": {"const": {"$ref": "#"}}}, "properties": {"$ref": {"$ref": "#/$defs/leaf"}, "next": {"$ref": "#"}}}
    tools = [TOOLS[1], {"type": "function", "function": {"name": "f", "parameters": tree}}]
    both(formed, "", tools=tools, tool_choice="required")
    schema = formed.session.asked[-1][1]["format"]["json_schema"]
    assert schema["anyOf"][1]["properties"]["arguments"] == {"$ref": "#/$defs/1"}
    assert schema["$defs"] == {
        "1": {"properties": {"$ref": {"$ref": "#/$defs/1.defs.leaf"}, "next": {"$ref": "#/$defs/1"}}},
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
        ({"response_format": {"type": "json_object"}, "tools": TOOLS}, "response_format", "beside `tools`"),
        ({"response_format": {"type": "json_object"}, "tools": TOOLS, "tool_choice": "required"}, "response_format", "one format"),
    ],
)
def test_formats_that_are_none(formed, ask, param, what):
    with pytest.raises(openai.BadRequestError) as caught:
        client_of(formed).chat.completions.create(model="demo", messages=ASK["messages"], extra_body=ask)
    assert caught.value.param == param and what in caught.value.body["message"], caught.value.body
