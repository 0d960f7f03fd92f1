"""The page of `megalith-serve` in a headless Chromium."""

import json
import math
import re
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
        assert page.run("at('panel-acceptance').hidden || at('temperature-label').hidden") is False
        assert page.run("at('chat-label').hidden && at('key').hidden") is True
        page.wait_for("document.querySelectorAll('#slots li.free').length == 3")

        ask(page, "And God said ", 1900, copies=8)
        page.wait_for("at('state').innerText == 'at work'")
        page.wait_for("at('running').innerText == '3' && Number(at('waiting').innerText) > 0")
        page.wait_for("document.querySelectorAll('#slots li:not(.free)').length == 3")
        assert page.run("[...document.querySelectorAll('#legend li')].map((each) => each.innerText.split(' ')[0]).join()") == (
            "PREFILL,PROPOSE,VERIFY,COMMIT,free"  # as the pipeline declares them
        )
        # Figures move, and the text of the page's own requests is at their slots.
        page.wait_for("Number(at('speed').innerText.replace(',', '')) > 0 && at('kv').innerText.includes(' of ')")
        page.wait_for("/^[0-9]+ %$/.test(at('acceptance').innerText)")
        page.wait_for("document.querySelector('#slots .text bdi')?.innerText.length > 20")
        page.wait_for("document.querySelector('#panel-speed .line.k0')?.getAttribute('d').length > 20")
        page.wait_for("document.querySelectorAll('#requests tr').length == 8 && at('first').innerText.endsWith('p50')")

        # Any button stops all copies, those that run and those that wait.
        page.run("document.querySelector('.answer button').click()")
        page.wait_for("document.querySelectorAll('.answer button').length == 0")
        page.wait_for("at('state').innerText == 'idle'")
        page.wait_for("[...document.querySelectorAll('#requests td.how')].filter((each) => each.innerText == 'taken back').length == 8")
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

        # A chart tells of a moment, for pointers and keys; so do bars, and slots.
        page.run("document.querySelector('#panel-next svg').focus()")
        key = "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: '%s', bubbles: true}))"
        page.run(key % "ArrowLeft")
        assert page.run("at('tip').innerText").split()[::2][1:] != [] and page.run("!at('tip').hidden")
        assert [word in page.run("at('tip').innerText") for word in ("Between tokens", "p50", "p95", "p99")] == [True] * 4
        assert page.run("document.querySelectorAll('svg .cursor').length") >= 5  # all charts show the moment
        page.run(key % "Escape")
        assert page.run("at('tip').hidden && document.querySelectorAll('svg .cursor').length == 0")
        page.run("at('next').focus()")
        assert [word in page.run("at('tip').innerText") for word in ("last 10 min", "p95", "p99")] == [True] * 3
        page.run("document.querySelector('#panel-sizes svg').focus()")
        page.run(key % "ArrowRight")
        assert "1 token" in page.run("at('tip').innerText")
        # A request's row opens its timeline: what it waited, its prompt, its blocks.
        page.run("document.querySelector('#requests td.number button').click()")
        page.wait_for("document.querySelectorAll('tr.more rect.block').length > 0")
        assert page.run("document.querySelectorAll('tr.more rect.queued, tr.more rect.prompt').length") == 2
        assert "queued" in page.run("document.querySelector('tr.more').innerText")

        # A page that is opened later sees the same.
        with browser.Browser(server.url, width=400) as other:
            other.wait_for("past.next > 0 && document.querySelectorAll('#requests tr').length >= 10")
            assert other.run("past.samples[0].time") == page.run("past.samples[0].time")
            assert other.run("document.documentElement.scrollWidth <= innerWidth")

        server.process.kill()
        page.wait_for("at('state').innerText == 'the server does not answer'")
        assert "does not answer since" in page.run("at('notice').innerText")


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
        assert page.run("at('panel-acceptance').hidden && at('temperature-label').hidden && !at('chat-label').hidden") is True

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


def test_256_slots_are_on_one_screen():
    with (
        Served("autoregressive", "--set", "slots=256", "--set", "kv_pages=300") as server,
        browser.Browser(server.url, width=1920, height=1080) as page,
    ):
        page.wait_for("document.querySelectorAll('#slots.cells li').length == 256")
        for width in 1920, 1024:
            page.call(
                "Emulation.setDeviceMetricsOverride", width=width, height=1080, deviceScaleFactor=1, mobile=False
            )
            assert page.run("at('slots').getBoundingClientRect().bottom") < 1080
            ask_at = "[at('send'), at('to-ask')].some((each) => each.offsetParent && each.getBoundingClientRect().bottom < 1080)"
            assert page.run(ask_at)
        # Arrow keys go from one to the next, and tell what it does.
        page.run("at('slots').children[0].focus()")
        page.run(
            "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight', bubbles: true}))"
        )
        assert page.run("document.activeElement == at('slots').children[1]")
        assert page.run("askSlot(1) || at('tip').innerText").split() == ["Slot", "1", "free"]


def test_colours_are_told_apart():
    """Of states, on the card, in both schemes: 3 to 1 to the card, and apart for eyes without one kind of cones."""
    from megalith.serve._app import PAGE

    def linear(colour):
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]

    def times(matrix, vector):
        return [sum(map(lambda one, other: one * other, row, vector)) for row in matrix]

    def contrast(one, other):
        light = sorted(times([[0.2126, 0.7152, 0.0722]], linear(each))[0] + 0.05 for each in (one, other))
        return light[1] / light[0]

    def oklab(rgb):
        cones = [[0.41222, 0.53633, 0.05145], [0.21190, 0.68070, 0.10740], [0.08830, 0.28172, 0.62998]]
        roots = [max(0, cone) ** (1 / 3) for cone in times(cones, rgb)]
        return times(
            [[0.21045, 0.79362, -0.00407], [1.97800, -2.42859, 0.45059], [0.02590, 0.78277, -0.80868]], roots
        )

    eyes = {  # Machado and others, 2009
        "all cones": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
        "protanopia": [[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]],
        "deuteranopia": [[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9690]],
        "tritanopia": [[1.2555, -0.0767, -0.1788], [-0.0784, 0.9308, 0.1476], [0.0047, 0.6914, 0.3039]],
    }
    blocks = re.findall(r":root \{(.*?)\}", (PAGE / "page.css").read_text(), re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        known = dict(re.findall(r"--(\w+): (#\w{6});", block))
        states = [known[f"s{place}"] for place in range(8)]
        for colour in states:
            assert contrast(colour, known["card"]) >= 3
        for name in "text", "quiet", "bad":
            assert contrast(known[name], known["card"]) >= 4.5 and contrast(known[name], known["ground"]) >= 4.5, name
        assert contrast(known["card"], known["accent"]) >= 4.5  # buttons
        for name, matrix in eyes.items():
            seen = [oklab([min(1, max(0, part)) for part in times(matrix, linear(colour))]) for colour in states]
            least = min(math.dist(one, other) for place, one in enumerate(seen) for other in seen[:place])
            assert least > 0.1, (name, least)


def test_nothing_comes_from_elsewhere():
    """No address of another host in the files, and the browser is told to load none."""
    from megalith.serve._app import PAGE

    for file in PAGE.iterdir():
        text = file.read_text()
        for scheme in "http://", "https://", "//cdn":
            assert scheme not in text.replace("http://www.w3.org/2000/svg", ""), file
