"""`/v1/responses` of `megalith-serve`, with a model that answers by a script."""

import json

import openai
import pytest
from openai.types.responses import Response
from scripted import Scripted
from test_serve_tools import CALL, FUNCTION, OF_OBJECT, OF_SCHEMA, SCHEMA

TOOL = {"type": "function", "strict": True, **FUNCTION}


@pytest.fixture(scope="module")
def server():
    with Scripted(formats=True) as server:
        yield server


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=server.base, api_key="none", max_retries=0, timeout=30) as client:
        yield client


def prompt_of(server, client, **ask):
    client.responses.create(model="demo", **ask)
    return server.session.asked[-1][0]


def test_texts(server, client):
    server.session.answer = lambda _: "It is fine."
    answer = client.responses.create(model="demo", input="How is Rome?", instructions="Be brief.", store=False, temperature=0.5, metadata={"a": "b"})
    assert server.session.asked[-1][0] == "[system]Be brief.[user]How is Rome?[assistant]"
    assert server.session.asked[-1][1]["temperature"] == 0.5
    assert (answer.output_text, answer.status, answer.error, answer.incomplete_details) == ("It is fine.", "completed", None, None)
    (item,) = answer.output
    assert (item.type, item.role, item.status, item.content[0].type) == ("message", "assistant", "completed", "output_text")
    assert (answer.instructions, answer.temperature, answer.metadata, answer.store) == ("Be brief.", 0.5, {"a": "b"}, False)
    usage = answer.usage
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (46, 12, 58)
    assert (usage.input_tokens_details.cached_tokens, usage.output_tokens_details.reasoning_tokens) == (0, 0)
    Response.model_validate(answer.model_dump())  # nothing that the API always has is missing
    cut = client.responses.create(model="demo", input="a", max_output_tokens=3)
    assert (cut.output_text, cut.status, cut.incomplete_details.reason) == ("It ", "incomplete", "max_output_tokens")
    assert cut.output[0].status == "incomplete" and cut.max_output_tokens == 3
    server.session.answer = lambda _: ""
    assert client.responses.create(model="demo", input="a").output_text == ""


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_events(server, client, size):
    server.session.size = size
    server.session.answer = lambda _: f"See:\n<tool_call>{CALL}</tool_call><tool_call>{CALL}</tool_call> So."
    events = list(client.responses.create(model="demo", input="a", tools=[TOOL], stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events]
    assert kinds[:4] == ["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added"]
    assert kinds[-4:] == ["response.output_text.done", "response.content_part.done", "response.output_item.done", "response.completed"]
    last = events[-1].response
    assert [item.type for item in last.output] == ["message", "function_call", "function_call", "message"]
    assert [item.content[0].text for item in last.output[::3]] == ["See:", " So."]
    assert all((item.name, item.arguments, item.status) == ("weather", '{"place": "Rome"}', "completed") for item in last.output[1:3])
    assert len({item.call_id for item in last.output[1:3]}) == 2
    for index, item in enumerate(last.output):
        own = [event for event in events if getattr(event, "output_index", None) == index]
        assert own[0].type == "response.output_item.added" and own[0].item.status == "in_progress"
        assert own[-1].type == "response.output_item.done" and own[-1].item == item
        assert {event.item_id for event in own[1:-1]} == {item.id}
        text = "".join(event.delta for event in own if event.type.endswith(".delta"))
        (done,) = [event for event in own if event.type in ("response.output_text.done", "response.function_call_arguments.done")]
        assert text == (item.content[0].text if item.type == "message" else item.arguments)
        assert text == (done.text if item.type == "message" else done.arguments)
    with client.responses.stream(model="demo", input="a", tools=[TOOL]) as stream:
        assert stream.get_final_response().output[1].arguments == '{"place": "Rome"}'
    whole = client.responses.create(model="demo", input="a", tools=[TOOL])
    assert [item.type for item in whole.output] == [item.type for item in last.output]


def test_conversations(server, client):
    server.session.answer = lambda _: ""
    items = [
        {"role": "developer", "content": "d"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "u"}, {"type": "input_text", "text": "v"}]},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant", "content": [{"type": "output_text", "text": "See", "annotations": [], "logprobs": []}]},
        {"id": "fc_1", "type": "function_call", "status": "completed", "call_id": "c1", "name": "f", "arguments": '{"x": 1}'},
        {"type": "function_call", "call_id": "c2", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "one"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "two"}]},
    ]
    assert prompt_of(server, client, input=items) == '[system]d[user]uv[assistant]See(c1 f {"x": 1})(c2 f {})[tool c1]one[tool c2]two[assistant]'
    # An answer goes back as it came.
    server.session.answer = lambda _: f"See<tool_call>{CALL}</tool_call>"
    answer = client.responses.create(model="demo", input="a", tools=[TOOL])
    back = [each.model_dump(exclude_none=True) for each in answer.output]
    call_id = answer.output[1].call_id
    back[0]["content"][0]["parsed"], back[1]["parsed_arguments"] = {"x": 1}, {"x": 1}  # as `parse` gives them
    assert f'[assistant]See({call_id} weather {{"place": "Rome"}})[assistant]' in prompt_of(server, client, input=back)


def test_tools_and_formats(server, client):
    server.session.answer = lambda _: CALL
    for choice in "required", {"type": "function", "name": "weather"}:
        answer = client.responses.create(model="demo", input="a", tools=[TOOL], tool_choice=choice)
        assert answer.output[0].arguments == '{"place": "Rome"}' and "format" in server.session.asked[-1][1]
        assert answer.model_dump()["tool_choice"] == choice
    for said, format in (
        ({"type": "text"}, None),
        ({"type": "json_object"}, OF_OBJECT),
        ({"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True}, OF_SCHEMA),
    ):
        answer = client.responses.create(model="demo", input="a", text={"format": said})
        assert server.session.asked[-1][1].get("format") == format
        assert answer.model_dump(by_alias=True)["text"]["format"]["type"] == said["type"]
    with Scripted() as other, openai.OpenAI(base_url=other.base, api_key="none", max_retries=0) as second:
        with pytest.raises(openai.BadRequestError, match="answers of a given format") as caught:
            second.responses.create(model="demo", input="a", text={"format": {"type": "json_object"}})
        assert caught.value.param == "text.format"


@pytest.mark.parametrize(
    "ask, param, what",
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id", "keeps no answers"),
        ({"conversation": "c"}, "conversation", "keeps no answers"),
        ({"store": True}, "store", "keeps no answers"),
        ({"background": True}, "background", "not supported"),
        ({"truncation": "auto"}, "truncation", "shorter `input`"),
        ({"include": ["message.output_text.logprobs"]}, "include", "not supported"),
        ({"reasoning": {"effort": "high"}}, "reasoning.effort", "not supported"),
        ({"text": {"verbosity": "low"}}, "text.verbosity", "not supported"),
        ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "text.format.schema", "is missing"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type", "no tools of its own"),
        ({"tools": [{"type": "function", "function": FUNCTION}]}, "tools[0].function", "stand in the tool itself"),
        ({"tools": [{"type": "function", "name": "f", "x": 1}]}, "tools[0].x", "is not a field"),
        ({"input": None}, "input", "is missing"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type", "keeps no answers"),
        ({"input": [{"type": "computer_call"}]}, "input[0].type", "knows no others"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0].type", "`input_text`"),
        ({"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}, "input[0].call_id", "must be a string"),
        ({"max_output_tokens": 30000}, "max_output_tokens", "30000"),
        ({"messages": []}, "messages", "is not a field"),
        ({"n": 2}, "n", "is not a field"),
    ],
)
def test_what_is_wrong(client, ask, param, what):
    with pytest.raises(openai.BadRequestError) as caught:
        client.post("/responses", cast_to=object, body={"model": "demo", "input": "a", **ask})
    assert caught.value.param == param and what in caught.value.body["message"], caught.value.body


def test_what_asks_for_nothing_is_taken(server, client):
    server.session.answer = lambda _: "x"
    nothing = dict(reasoning={"effort": None}, include=[], store=False, truncation="disabled", background=False, tools=[], tool_choice="auto",
                   parallel_tool_calls=True, user="me", service_tier="auto", previous_response_id=None, top_logprobs=0, text={"verbosity": "medium"})  # fmt: skip
    assert client.responses.create(model="demo", input="a", **nothing).output_text == "x"


def test_errors_in_a_stream(server):
    """They are the last event."""
    import http.client

    server.session.answer = lambda _: "x" * 5
    address = server.base.removeprefix("http://").removesuffix("/v1")
    connection = http.client.HTTPConnection(address, timeout=30)
    connection.request("POST", "/v1/responses", json.dumps({"model": "demo", "input": "a", "stream": True}), {"Content-Type": "application/json"})
    lines = connection.getresponse().read().decode().split("\n\n")
    connection.close()
    assert lines[0].startswith("event: response.created\ndata: {") and lines[-1] == ""
    assert "[DONE]" not in "".join(lines)
