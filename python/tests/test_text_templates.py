"""Chat templates: a stranger's programs, in a process of their own."""

import os
import threading

import pytest
from megalith import _templates, text
from megalith._templates import Templates

pytest.importorskip("jinja2")
MESSAGES = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]


@pytest.fixture
def of():
    """A tokenizer with a template."""

    def make(*sources, **named):
        tokenizer = text.ByteTokenizer()
        tokenizer._templates = Templates({**({"default": sources[0]} if sources else {}), **named})
        return tokenizer

    return make


def refusal(tokenizer, messages=MESSAGES, **variables):
    with pytest.raises(text.TextError) as caught:
        tokenizer.chat_text(messages, **variables)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 700
    return str(caught.value)


def test_what_templates_of_checkpoints_use(of):
    source = """\
{# a comment #}
{%- macro open(m, mark='') %}{{ mark }}<{{ m.role }}>{% endmacro %}
{%- set ns = namespace(last=messages | length - 1) %}
{%- for m in messages %}
    {%- if m.role == "system" %}{% continue %}{% endif %}
    {%- if m.role == "assistant" %}
        {%- generation %}{{ open(m) + (m.content | trim) }}{% endgeneration %}
    {%- elif m.content is string %}
        {{- open(m, '!') ~ m.content }}
    {%- else %}
        {%- for part in m.content %}{{ part.text if part.type == "text" else "[image]" }}{% endfor %}
    {%- endif %}
    {%- if loop.index0 == ns.last %}{% break %}{% endif %}
{%- endfor %}
{%- if tools is not none %}{{ tools | tojson(indent=2) }}{{ tools[0] | tojson(separators=(',', ':'), sort_keys=true) }}{% endif %}
{%- if enable_thinking is defined and enable_thinking is false %}<no>{% endif %}
{%- if strftime_now("%Y") | int > 2000 %}{{ "#" }}{% endif %}"""
    tokenizer = of(source)
    parts = [{"type": "text", "text": "é"}, {"type": "image"}]
    messages = [{"role": "system", "content": "x"}, {"role": "user", "content": parts}, *MESSAGES]
    assert tokenizer.chat_text(messages) == "é[image]!<user>hi<assistant>yes#"
    tools = [{"b": "<é>", "a": 1}]
    wide = '[\n  {\n    "b": "<é>",\n    "a": 1\n  }\n]{"a":1,"b":"<é>"}'
    assert tokenizer.chat_text(MESSAGES, tools=tools, enable_thinking=False).endswith(wide + "<no>#")


def test_several_templates(of):
    tokenizer = of("d", tool_use="t", rag="r")
    assert tokenizer.chat_templates == ["default", "tool_use", "rag"]
    assert [tokenizer.chat_text([], tools=tools) for tools in (None, [], [1])] == ["d", "t", "t"]
    assert tokenizer.chat_text([], chat_template="rag", tools=[1]) == "r"
    assert tokenizer.chat([], chat_template="rag") == list(b"r")
    assert "no chat template `x`; the checkpoint has `default`, `tool_use`, `rag`" in refusal(
        tokenizer, chat_template="x"
    )
    assert "no chat template `default`" in refusal(of(rag="r"))


WRONG = [
    ("\n{{ 'a' + 1 }}", "the chat template failed: TypeError: can only concatenate str"),
    ("{{ messages[0].content + none }}", "TypeError"),
    ("{{ messages[5].content.x }}", "has no element 5 (line 1)"),
    ("a\n{% for %}", "(line 2)"),
    ("{{ 1 / 0 }}", "ZeroDivisionError: division by zero (line 1)"),
    ("{{ raise_exception('roles must\nalternate') }}", "the chat template failed: roles must alternate"),
    ("{{ messages.__class__.__mro__ }}", "is unsafe"),
    ("{{ messages.append(1) }}", "is unsafe"),
    ("{{ range(10 ** 9) | list }}", "OverflowError"),
    ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
    ("{% include 'x' %}", "no loader"),
    ("{{ 'é'.encode('ascii') }}", "UnicodeEncodeError"),
    ("{{ messages | nofilter }}", "No filter named 'nofilter'. (line 1)"),
    ("{% set x = 'a' * 17000000 %}{{ x }}", "it makes more than 16777216 characters"),
    ("{% for i in range(99999) %}{{ 'a' * 1000 }}{% endfor %}", "it makes more than 16777216 characters"),
    ("{{ 'a' * 9999999999 }}", "it needs too much memory"),
]


def test_what_a_template_does_wrong_is_told(of):
    tokenizer = of("{{ messages[0].content }}", **{str(number): source for number, (source, _) in enumerate(WRONG)})
    for number, (_, what) in enumerate(WRONG):
        assert what in refusal(tokenizer, chat_template=str(number))
        assert tokenizer.chat_text(MESSAGES) == "hi"


def test_a_template_without_end_is_ended(of, monkeypatch):
    monkeypatch.setattr(_templates, "SECONDS", 1)
    # One call of C, which no exception interrupts.
    tokenizer = of("{{ 9 ** (9 ** 8) % 2 }}", good="{{ messages[0].content }}")
    assert refusal(tokenizer) == "the chat template failed: it takes more than 1 s"
    assert tokenizer.chat_text(MESSAGES, chat_template="good") == "hi"


def test_no_variable_replaces_what_templates_use(of):
    tokenizer = of("{{ raise_exception('no') }}")
    for name in ("raise_exception", "strftime_now", "namespace", "range", "dict", "add_generation_prompt"):
        assert f"`{name}` means something else" in refusal(tokenizer, **{name: "x"})
    assert refusal(tokenizer) == "the chat template failed: no"


def test_what_is_not_json_is_refused(of):
    tokenizer = of("{{ messages[0].content }}{{ x }}")
    deep = []
    for _ in range(100000):
        deep = [deep]
    assert "nested too deeply" in refusal(tokenizer, x=deep)
    assert "must be JSON" in refusal(tokenizer, x=object())
    assert tokenizer.chat_text(MESSAGES, x=[1, None, True, {"a": 0.5}]) == "hi[1, None, True, {'a': 0.5}]"


def test_the_process_knows_no_secret_and_is_kept(of, monkeypatch):
    monkeypatch.setenv("MEGALITH_API_KEY", "secret")
    tokenizer = of("{{ messages[0].content }}")
    tokenizer.chat_text(MESSAGES)
    (process,) = tokenizer._templates._idle
    with open(f"/proc/{process._process.pid}/environ", "rb") as file:
        assert b"secret" not in file.read()
    tokenizer.chat_text(MESSAGES)
    assert tokenizer._templates._idle == [process]
    process._process.kill()
    process._process.wait()
    assert "its process has ended" in refusal(tokenizer)  # and the next one has a new one
    assert tokenizer.chat_text(MESSAGES) == "hi"
    templates = Templates({"default": "x"})
    assert templates.render("default", {}) == "x"
    (process,) = templates._idle
    del templates
    assert process._process.returncode is not None


def test_threads_share_processes(of):
    tokenizer = of("{{ messages[0].content }}")
    got = []

    def run(number):
        for count in range(10):
            word = f"{number} {count}"
            got.append(tokenizer.chat_text([{"content": word}]) == word)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [True] * 80
    assert 1 <= len(tokenizer._templates._idle) <= _templates.PROCESSES


def test_it_cannot_be_started(of, monkeypatch):
    monkeypatch.setattr(_templates.sys, "executable", "/nonexistent")
    assert refusal(of("x")) == "no process for chat templates can be started: No such file or directory"


def test_templates_are_checked_where_they_are_named(tmp_path):
    (tmp_path / "config.json").write_text('{"byte_vocabulary": true}')
    wrong = tmp_path / "wrong.jinja"
    wrong.write_text("a\n{% if %}")
    with pytest.raises(text.TextError, match=r"wrong.jinja`: the chat template failed: .* \(line 2\)$"):
        text.load(tmp_path, chat_template=wrong)
    with pytest.raises(text.TextError, match="nowhere` cannot be read: No such file or directory$"):
        text.load(tmp_path, chat_template=tmp_path / "nowhere")
    wrong.write_bytes(b"\xff")
    with pytest.raises(text.TextError, match="wrong.jinja` is no UTF-8"):
        text.load(tmp_path, chat_template=wrong)
    os.rename(wrong, tmp_path / "chat_template.jinja")
    with pytest.raises(text.TextError, match="chat_template.jinja` is no UTF-8"):
        text.load(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("{% if %}")
    tokenizer = text.load(tmp_path)  # completions need no template
    with pytest.raises(text.TextError, match=r"the chat template failed: .* \(line 1\)$"):
        tokenizer.check_chat_template()
