"""The page of `megalith-serve` in a headless Chromium."""

import json
import urllib.request

import browser
import pytest
from conftest import PROMPTS
from serving import TEMPLATE, Served

pytestmark = pytest.mark.skipif(browser.PROGRAM is None, reason="there is no Chromium here")


def ask(page, prompt, budget, copies=1, temperature=0):
    for name, value in ("prompt", prompt), ("budget", budget), ("copies", copies), ("temperature", temperature):
        page.run(f"at('{name}').value = {json.dumps(str(value))}")
    page.run("at('send').click()")


def test_what_is_under_way_is_shown(expected):
    with Served("adaptive_speculative", "--set", "slots=3") as server, browser.Browser(server.url) as page:
        page.wait_for("at('state').innerText == 'idle'")
        assert page.run("at('what').innerText") == "demo with adaptive_speculative, on the reference executor"
        assert page.run("document.title") == "demo – Megalith"
        assert page.run("at('drafts').hidden || at('temperature-label').hidden") is False
        assert page.run("at('chat-label').hidden && at('key').hidden") is True
        page.wait_for("document.querySelectorAll('#slots li.free').length == 3")

        ask(page, "And God said ", 1900, copies=8)
        page.wait_for("at('state').innerText == 'at work'")
        page.wait_for("at('running').innerText == '3' && Number(at('waiting').innerText) > 0")
        page.wait_for("document.querySelectorAll('#slots li:not(.free)').length == 3")
        page.wait_for("document.querySelectorAll('#legend li').length >= 1")
        # Figures move, and the text of the page's own requests is at their slots.
        page.wait_for("Number(at('speed').innerText.replace(',', '')) > 0 && at('pools').innerText.includes(' of ')")
        page.wait_for("/^[0-9]+ %$/.test(at('acceptance').innerText)")
        page.wait_for("document.querySelector('#slots .text bdi')?.innerText.length > 20")
        page.wait_for("at('speed-line').children[1].getAttribute('d').length > 20")

        # Any button stops all copies, those that run and those that wait.
        page.run("document.querySelector('.answer button').click()")
        page.wait_for("document.querySelectorAll('.answer button').length == 0")
        page.wait_for("at('state').innerText == 'idle' && at('ended').innerText.includes('abort')")
        assert server.stats()["ended"]["cancelled"] >= 4

        ask(page, PROMPTS[0], 12)
        page.wait_for("document.querySelector('.answer .note')?.innerText.endsWith('length')")
        assert (
            page.run("document.querySelector('.answer pre').innerText")
            == PROMPTS[0] + bytes(expected[PROMPTS[0]]).decode()
        )
        # More calls than a browser has connections: the figures go on, and each gets its turn.
        for _ in range(9):
            ask(page, PROMPTS[1], 40)
        page.wait_for(
            "[...document.querySelectorAll('.answer .note')].filter((each) => each.innerText.endsWith('length')).length == 10"
        )
        ask(page, "x" * 3000, 12)
        page.wait_for("document.querySelector('.answer.bad .note')?.innerText.includes('3000 tokens')")
        assert [each for each in page.said if "400" not in str(each)] == []
        server.process.kill()
        page.wait_for("at('state').innerText == 'the server does not answer'")


def test_texts_keys_and_chats(tmp_path):
    (tmp_path / "template.jinja").write_text(TEMPLATE)
    options = ["--show-text", "--chat-template", str(tmp_path / "template.jinja")]
    env = {"MEGALITH_API_KEY": "sesame"}
    with Served("autoregressive", *options, env=env) as server, browser.Browser(server.url, scheme="dark") as page:
        page.wait_for("at('state').innerText == 'a key is needed' && !at('key').hidden")
        page.run("at('key-text').value = 'wrong'; at('key').requestSubmit()")
        page.wait_for("at('state').innerText == 'the key is wrong'")
        page.run("at('key-text').value = 'sesame'; at('key').requestSubmit()")
        page.wait_for("at('state').innerText == 'idle' && at('key').hidden")
        # A greedy pipeline that does not draft.
        assert page.run("at('drafts').hidden && at('temperature-label').hidden && !at('chat-label').hidden") is True

        body = {
            "model": "demo",
            "prompt": "<b>And</b> God said ",
            "max_tokens": 1500,
            "stream": True,
            "ignore_eos": True,
        }
        headers = {"Content-Type": "application/json", "Authorization": "Bearer sesame"}
        request = urllib.request.Request(f"{server.url}/v1/completions", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request):  # another client's
            page.wait_for("document.querySelector('#slots .text bdi')?.innerText.length > 20")
        page.wait_for("at('state').innerText == 'idle'")

        ask(page, PROMPTS[0], 5)
        page.wait_for("document.querySelector('.answer .note')?.innerText.endsWith('length')")
        assert page.run("document.querySelector('.answer pre').innerText") == "of th"  # a chat's answer
        dark = page.run("getComputedStyle(document.body).backgroundColor")
        assert sum(map(int, dark[4:-1].split(","))) < 200


def test_nothing_comes_from_elsewhere():
    """No address of another host in the files, and the browser is told to load none."""
    from megalith.serve._app import PAGE

    for file in PAGE.iterdir():
        text = file.read_text()
        for scheme in "http://", "https://", "//cdn":
            assert scheme not in text.replace("http://www.w3.org/2000/svg", ""), file
