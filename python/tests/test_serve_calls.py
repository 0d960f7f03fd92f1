"""Calls of tools in the text of an answer: each form, however the text is cut into pieces."""

import json
import random

import pytest
from megalith.serve._tool_calls import FORMS, CallArguments, CallBegin, CallParser, form_of_template, knows_tools, read_call

HERMES, LLAMA, MISTRAL = "hermes", "llama3_json", "mistral"
F, G = '{"name": "f", "arguments": {"x": 1}}', '{"name": "g", "arguments": {}}'


def parsed(form, pieces, **options):
    """Content, and calls as names with the text of their arguments."""
    parser, content, calls = CallParser(FORMS[form], ["f", "g"], **options), "", []
    for parts in [*(parser.push(piece) for piece in pieces), parser.flush()]:
        for part in parts:
            if isinstance(part, str):
                content += part
            elif isinstance(part, CallBegin):
                assert part.index == len(calls)
                calls.append([part.name, ""])
            else:
                assert isinstance(part, CallArguments) and part.index == len(calls) - 1
                calls[-1][1] += part.text
    return content, [tuple(call) for call in calls]


CASES = [
    (HERMES, "", "", []),
    (HERMES, "  plain text\n ", "  plain text\n ", []),
    (HERMES, f"<tool_call>\n{F}\n</tool_call>", "", [("f", '{"x": 1}')]),
    (HERMES, f"Let me see.\n\n<tool_call>{F}</tool_call>\n<tool_call>{G}</tool_call>\n", "Let me see.", [("f", '{"x": 1}'), ("g", "{}")]),
    (HERMES, f"<tool_call>{F}</tool_call> and then", " and then", [("f", '{"x": 1}')]),
    (HERMES, f"<tool_call>\n{F}", "", [("f", '{"x": 1}')]),  # the end of the text is one of the call, too
    (HERMES, '<tool_call>{"name": "f", "arguments": {"x": "</tool_call>\\"}"}}</tool_call>', "", [("f", '{"x": "</tool_call>\\"}"}')]),
    (HERMES, '<tool_call>{"arguments": {"x": 1e400, "é": [{}]}, "name": "f"}</tool_call>', "", [("f", '{"x": 1e400, "é": [{}]}')]),
    (HERMES, '<tool_call>{"name": "g"}</tool_call>', "", [("g", "{}")]),
    # What is no call is text.
    (HERMES, "<tool_call>{'name': 'f'}</tool_call>", "<tool_call>{'name': 'f'}</tool_call>", []),
    (HERMES, '<tool_call>{"name": "f", "arguments": {"x": 1}</tool_call>', '<tool_call>{"name": "f", "arguments": {"x": 1}</tool_call>', []),
    (HERMES, '<tool_call>{"name": "other", "arguments": {}}</tool_call>', '<tool_call>{"name": "other", "arguments": {}}</tool_call>', []),
    (HERMES, '<tool_call>{"name": "f", "arguments": "x"}', '<tool_call>{"name": "f", "arguments": "x"}', []),
    (HERMES, '<tool_call>{"name": "f", "arguments": {"x": NaN}}', '<tool_call>{"name": "f", "arguments": {"x": NaN}}', []),
    (HERMES, '<tool_call>{"name": "f", "name": "g"}', '<tool_call>{"name": "f", "name": "g"}', []),
    (HERMES, "a <tool_ca b <tool_call> c", "a <tool_ca b <tool_call> c", []),
    (HERMES, f"<tool_call>{{oops</tool_call><tool_call>{F}</tool_call>", "<tool_call>{oops</tool_call>", [("f", '{"x": 1}')]),
    (HERMES, '<tool_call>{"name": "f", "argum', '<tool_call>{"name": "f", "argum', []),
    (HERMES, "<tool_call>" + '{"a":' * 200, "<tool_call>" + '{"a":' * 200, []),
    (HERMES, F, F, []),
    (LLAMA, ' {"name": "f", "parameters": {"x": 1}}', "", [("f", '{"x": 1}')]),
    (LLAMA, '<|python_tag|>{"name": "f", "parameters": {"x": 1}}; {"name": "g", "parameters": {}}', "", [("f", '{"x": 1}'), ("g", "{}")]),
    (LLAMA, f"I call <|python_tag|>{F}", "I call", [("f", '{"x": 1}')]),
    (LLAMA, '<|python_tag|>print("a")', '<|python_tag|>print("a")', []),
    (LLAMA, f"text {F}", f"text {F}", []),
    (LLAMA, '{"city": "Rome"}', '{"city": "Rome"}', []),
    (LLAMA, " \n", " \n", []),
    (MISTRAL, f"[TOOL_CALLS] [{F}, {G}]", "", [("f", '{"x": 1}'), ("g", "{}")]),
    (MISTRAL, f"Well [TOOL_CALLS][{F}] done", "Well done", [("f", '{"x": 1}')]),
    (MISTRAL, f"[TOOL_CALLS][{F}, oops]", ", oops]", [("f", '{"x": 1}')]),
    (MISTRAL, f"[TOOL_CALLS]{F}", f"[TOOL_CALLS]{F}", []),
    (MISTRAL, "[TOOL_CALLS][]", "[TOOL_CALLS][]", []),
    (MISTRAL, "[TOOL", "[TOOL", []),
]


@pytest.mark.parametrize("form, text, content, calls", CASES)
def test_calls_of_a_text(form, text, content, calls):
    assert parsed(form, [text]) == (content, calls)
    assert parsed(form, text) == (content, calls)  # by characters
    draw = random.Random(text)
    for _ in range(30):
        cuts = sorted(draw.choices(range(len(text) + 1), k=draw.randint(0, 6)))
        assert parsed(form, [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)])]) == (content, calls)


@pytest.mark.parametrize("form", FORMS)
def test_any_text_is_parsed_alike_however_it_is_cut(form):
    """Texts of the pieces that calls are made of: nothing but white space, separators and calls is taken out."""
    bits = ["<tool_call>", "</tool_call>", "[TOOL_CALLS]", "<|python_tag|>", "[", "]", ",", ";", " ", "\n", "x", '"', "{", "}", "<", "\\", F, G]
    draw = random.Random(form)
    for _ in range(3000):
        text = "".join(draw.choices(bits, k=draw.randint(0, 9)))
        whole = parsed(form, [text])
        assert parsed(form, text) == whole, text
        cut = draw.randint(0, len(text))
        assert parsed(form, [text[:cut], text[cut:]]) == whole, text
        if not whole[1]:
            assert whole[0] == text


def test_what_is_given_early():
    parser = CallParser(FORMS[HERMES], ["f"])
    assert [parser.push(piece) for piece in ["Hello", " ", "<", "b> <tool", "_x"]] == [["Hello"], [], [], [" <b>"], [" <tool_x"]]
    assert parser.push(" <tool_call>" + F) == [CallBegin(0, "f"), CallArguments(0, '{"x": 1}')]


def test_one_call_is_all_that_is_wanted():
    for form, text in ((HERMES, f"<tool_call>{F}</tool_call><tool_call>{G}</tool_call>"), (MISTRAL, f"[TOOL_CALLS][{F},{G}]")):
        parser = CallParser(FORMS[form], ["f", "g"], parallel=False)
        assert parser.push(text) == [CallBegin(0, "f"), CallArguments(0, '{"x": 1}')] and parser.done
        assert parser.flush() == []


@pytest.mark.parametrize("form", FORMS)
def test_enforced_calls_are_given_as_they_come(form):
    parser = CallParser(FORMS[form], ["f"], enforced=True)
    pieces = ['{"na', 'me": "f", "parameters": {"x', '": {"y": "}', '{"}, "z": []', "}", " }"]
    expected = [[], [CallBegin(0, "f"), CallArguments(0, '{"x')], [CallArguments(0, '": {"y": "}')], [CallArguments(0, '{"}, "z": []')]]
    assert [parser.push(piece) for piece in pieces] == [*expected, [CallArguments(0, "}")], []] and parser.done
    text = "".join(pieces)
    for cut in range(len(text)):
        assert parsed(form, [text[:cut], text[cut:]], enforced=True) == ("", [("f", '{"x": {"y": "}{"}, "z": []}')])
        # What the budget has cut.
        content, calls = parsed(form, text[:cut], enforced=True)
        assert content + "".join(arguments for _, arguments in calls) in text
        assert bool(calls) == (cut > text.index('{"x"'))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "call, text",
    [
        (True, '{"name": "f", "ARGUMENTS": {"x": "}"}}'),
        (True, '{"name":"g","ARGUMENTS":{}}'),
        (False, '{"name": "fg", "ARGUMENTS": {}}'),
        (False, '{"name": "f", "ARGUMENTS": [1]}'),
        (False, '{"name": "f", "ARGUMENTS": {}, "more": "<tool_call>' + F.replace('"', "'") + '"}'),
        (False, '{"text": "<tool_call>{}</tool_call> [TOOL_CALLS][] <|python_tag|>"}'),
        (False, "[1, 2]"),
        (False, ""),
    ],
)
def test_a_call_or_a_format(form, call, text):
    """In an answer that has to be one of these, nothing else is a call, whatever the text has in it."""
    text = text.replace("ARGUMENTS", FORMS[form].arguments)
    expected = ("", [(json.loads(text)["name"], text[text.index("{", 1) : -1])]) if call else (text, [])
    for cut in range(len(text) + 1):
        assert parsed(form, [text[:cut], text[cut:]], either=True) == expected
        # What the budget has cut is no call.
        assert parsed(form, [text[:cut]], either=True) == (expected if cut == len(text) else (text[:cut], []))
    parser = CallParser(FORMS[form], ["f", "g"], either=True)
    parser.push(text)
    assert parser.done == call
    parser = CallParser(FORMS[form], ["f"], either=True)
    assert [parser.push(piece) for piece in ['{"na', 'me": "', "fo", 'o"']] == [[], [], ['{"name": "fo'], ['o"']]


def test_arguments_are_the_text_of_the_model():
    assert read_call('{"name":"f","arguments":{"x" : 1.0}}', ["f"]) == ("f", '{"x" : 1.0}')
    assert read_call('{"name":"f","arguments":{},"parameters":{}}', ["f"]) is None
    assert read_call('{"name":"f","other":{}}', ["f"]) is None
    assert read_call("[1]", ["f"]) is None


@pytest.mark.parametrize(
    "template, form",
    [
        ("{% if tools %}<tool_call>{% endif %}", HERMES),
        ("{{ tools }}<tool_call>\n<function=", None),
        ("{{ tools }}[TOOL_CALLS]", MISTRAL),
        ("{{ tools }}[TOOL_CALLS]name[ARGS]", None),
        ('<|start_header_id|>{{ tools }}{"name": function name, "parameters": ...}', LLAMA),
        ("{{ tools }}<|python_tag|>", LLAMA),
        ("{{ tools }}<|tool_calls_begin|>", None),
    ],
)
def test_forms_of_templates(template, form):
    assert form_of_template(template) == form and knows_tools(template)


def test_a_template_without_tools():
    for template in "{% for m in messages %}{{ m.content }}{% endfor %}", "{{ 'no tools' }}{# tools #} tools":
        assert not knows_tools(template)
    assert knows_tools("{% if it == '\\'' and tools is defined %}{% endif %}")


def test_long_texts_are_parsed_in_time():
    text = "<tool_call>" + json.dumps({"name": "f", "arguments": {"x": "y" * 50000}}) + "</tool_call>" + '<tool_call>{"' * 3000
    assert parsed(HERMES, text)[1] == [("f", json.dumps({"x": "y" * 50000}))]


def test_special_tokens_that_begin_a_call_have_text(tmp_path):
    """Others, and those that end a text, have none."""
    import tokenizers
    from megalith.text import load

    names = ["[TOOL_CALLS]", "</s>", "<pad>"]
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({name: number for number, name in enumerate([*names, "a"])}, "a"))
    made.add_special_tokens(names)
    made.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "</s>"}')
    (tmp_path / "config.json").write_text("{}")
    tokenizer = load(tmp_path)
    for special, text in ((False, "a"), (frozenset(), "a"), (frozenset({"[TOOL_CALLS]"}), "[TOOL_CALLS]a"), (True, "[TOOL_CALLS]<pad>a</s>")):
        pieces = tokenizer.pieces(special=special)
        assert (pieces.push([0, 2, 3, 1]) + pieces.flush()).replace(" ", "") == text
