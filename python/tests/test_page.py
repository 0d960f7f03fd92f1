"""The page of `megalith-serve` in a headless Chromium."""

import http.client
import http.server
import json
import math
import re
import signal
import threading
import time
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


def times_of_looks(page, count):
    """When the page has looked at the server, the next times, in milliseconds."""
    page.run("window.before || (before = say, say = (...all) => (said.push(performance.now()), before(...all))); said = []; 0")
    page.wait_for(f"said.length >= {count}")
    return page.run("said")[:count]


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
        page.wait_for("document.querySelectorAll('#requests tr').length == 18")
        page.run("document.querySelector('#requests td.number button').click()")
        page.wait_for("document.querySelectorAll('tr.more rect.block').length > 0")
        assert page.run("document.querySelectorAll('tr.more rect.queued, tr.more rect.prompt').length") == 2
        assert "queued" in page.run("document.querySelector('tr.more').innerText")

        # On a narrow screen the timelines are still there.
        page.call("Emulation.setDeviceMetricsOverride", width=400, height=860, deviceScaleFactor=1, mobile=False)
        page.wait_for("innerWidth == 400 && document.querySelector('#requests td.way canvas').clientWidth > 60")
        page.call("Emulation.setDeviceMetricsOverride", width=1180, height=860, deviceScaleFactor=1, mobile=False)

        # A page that is opened later sees the same.
        with browser.Browser(server.url, width=400) as other:
            other.wait_for("past.next > 0 && document.querySelectorAll('#requests tr').length >= 10")
            assert other.run("past.samples[0].time") == page.run("past.samples[0].time")
            assert other.run("document.documentElement.scrollWidth <= innerWidth")

        server.process.kill()
        page.wait_for("at('state').innerText == 'the server does not answer'")
        assert "does not answer since" in page.run("at('notice').innerText")


class Proxy:
    """Has the server below a path, and can be made to fail."""

    def __init__(self, port):
        proxy = self
        self.hangs = threading.Event()
        self.hangs.set()  # it does not
        self.says = None  # status and text, in place of an answer
        self.changes = {}  # members of the figures

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                proxy.hangs.wait()
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                status, kind, content = 404, "text/plain", b""
                if proxy.says:
                    status, content = proxy.says
                elif self.path.startswith("/a/path/"):
                    inner = http.client.HTTPConnection("127.0.0.1", port)
                    inner.request(self.command, self.path[7:], body, {"Content-Type": "application/json"})
                    answer = inner.getresponse()
                    status, kind, content = answer.status, answer.headers["Content-Type"], answer.read()
                    numbers = answer.headers["X-Megalith-Requests"]
                    inner.close()
                    if self.path == "/a/path/stats":
                        content = json.dumps(json.loads(content) | proxy.changes).encode()
                self.send_response(status)
                self.send_header("Content-Type", kind)
                if kind.startswith("text/event-stream"):
                    self.send_header("X-Megalith-Requests", numbers)
                self.end_headers()
                try:
                    self.wfile.write(content)
                except ConnectionError:  # it has waited long enough
                    pass

            do_POST = do_GET

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/a/path/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.hangs.set()
        self.server.shutdown()
        self.server.server_close()


# The machine of who looks has another time.
LATE = "{ const now = Date.now, Real = Date; Date = class extends Real { constructor(...of) { super(...(of.length ? of : [now() - 5e6])); } static now() { return now() - 5e6; } }; }"


def test_below_a_path_and_without_answers(expected):
    with Served("adaptive_speculative") as server, Proxy(server.port) as proxy, browser.Browser(proxy.url, script=LATE) as page:
        page.wait_for("at('state').innerText == 'idle' && past.next > 0")
        assert page.run("at('address').innerText") == f"{proxy.url}v1/completions"
        ask(page, PROMPTS[0], 12)
        page.wait_for("document.querySelector('.answer .note')?.innerText.endsWith('length')")
        assert page.run("document.querySelector('.answer pre').innerText").endswith(bytes(expected[PROMPTS[0]]).decode())
        page.wait_for("document.querySelectorAll('#requests tr').length == 1")

        def is_told(state, notice, isOld=True):
            page.wait_for(f"at('state').innerText == {json.dumps(state)} && at('notice').innerText.includes({json.dumps(notice)})")
            assert page.run("document.querySelector('main').classList.contains('old')") == isOld

        def comes_back():
            proxy.hangs.set()
            proxy.says, proxy.changes = None, {}
            page.wait_for("at('state').innerText == 'idle' && at('notice').hidden")
            assert page.run("!document.querySelector('main').classList.contains('old')")

        # Who hangs does not answer, and the time of it is the server's.
        page.run("patience = 0.5; slowly = 50")
        begin = time.time()
        proxy.hangs.clear()
        is_told("the server does not answer", "does not answer since")
        times = [time.strftime("%H:%M:%S", time.localtime(begin + second)) for second in range(-1, 20)]
        assert re.search(r"since (\S+)\.", page.run("at('notice').innerText"))[1] in times
        comes_back()
        for says, notice in (
            ((502, b"<html>Bad gateway"), "status 502. What is shown is of"),
            ((503, b'{"error": {"message": "too many"}}'), "status 503, too many."),
            ((200, b"<html>Welcome"), "what answers is another program"),
        ):
            proxy.says = says
            is_told("no figures", notice)
            comes_back()
        proxy.says = 401, b"{}"
        is_told("a key is needed", "")
        assert page.run("!at('key').hidden")
        comes_back()
        assert page.run("at('key').hidden")

        proxy.changes = {"failure": "a NaN"}
        is_told("failed", "The engine has failed: a NaN. The server ends.", isOld=False)
        proxy.hangs.clear()
        is_told("the server does not answer", "The engine has failed: a NaN. The server has ended. What is shown is of")
        comes_back()
        # Counts that begin anew are no negative speed.
        proxy.changes = {"generated_tokens": 10**6}
        page.wait_for("facts.generated_tokens == 1e6")
        page.run("speeds = []; new MutationObserver(() => speeds.push(at('speed').innerText)).observe(at('speed'), {childList: true, characterData: true, subtree: true})")
        proxy.changes = {"started": 1, "generated_tokens": 5}
        page.wait_for("facts.generated_tokens == 5")
        times_of_looks(page, 3)
        assert not [each for each in page.run("[...speeds, at('speed').innerText]") if each.startswith("-")]


def test_a_server_that_stops_and_another_that_comes():
    with Served("autoregressive", "--grace", "0.5") as server, browser.Browser(server.url) as page:
        page.wait_for("at('state').innerText == 'idle' && past.next > 0")
        ask(page, "a", 2000)
        page.wait_for("at('state').innerText == 'at work'")
        server.process.send_signal(signal.SIGTERM)
        page.wait_for("at('state').innerText == 'stopping' && at('notice').innerText.startsWith('The server is stopping')")
        page.wait_for("at('notice').innerText.startsWith('The server has stopped. What is shown is of ')")
        assert page.run("document.querySelector('.answer .note').innerText") == "the server is stopping"
        assert server.wait() == 0
        with Served("speculative_lookup", "--port", str(server.port)):
            page.wait_for("document.readyState == 'complete' && at('what')?.innerText.includes('speculative_lookup')")
            page.wait_for("at('state').innerText == 'idle' && at('notice').hidden && past.next > 0")


def test_keys_and_screen_readers():
    with Served("adaptive_speculative", "--set", "slots=3") as server, browser.Browser(server.url) as page:
        page.wait_for("at('state').innerText == 'idle' && past.next > 0")
        ask(page, PROMPTS[0], 30)
        page.wait_for("document.querySelectorAll('#requests tr').length == 1 && /^\\d/.test(at('size').innerText)")
        page.call("Accessibility.enable")
        nodes = page.call("Accessibility.getFullAXTree")["nodes"]
        seen = [node for node in nodes if not node["ignored"] and node["role"]["value"] != "RootWebArea"]
        focusable = [node for node in seen if any(each["name"] == "focusable" for each in node["properties"])]
        assert len(focusable) > 30 and [node for node in focusable if not node["name"]["value"]] == []
        names = {node["role"]["value"]: [] for node in seen}
        for node in seen:
            names[node["role"]["value"]].append(node.get("name", {}).get("value"))
        assert names["article"][:2] == ["Tokens per second", "Requests"] and "" not in names["article"]
        assert "Slot 2, free" in names["listitem"] and "Request #0" in names["button"]

        # Tab goes through all of it, and what keys ask for is told.
        press = "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: '%s', bubbles: true}))"
        page.run("document.querySelector('#panel-requests svg').focus()")
        page.run(press % "ArrowLeft")
        assert re.fullmatch(r"Requests [\d:]+, running \d, waiting \d", page.run("at('told').innerText"))
        page.run("document.querySelector('#panel-sizes svg').focus()")
        page.run(press % "ArrowRight")
        assert page.run("at('told').innerText").startswith("Block sizes last 10 min, 1 token ")
        outlines = "getComputedStyle(document.activeElement).outlineStyle"
        for _ in range(12):
            for kind in "rawKeyDown", "keyUp":
                page.call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
            assert page.run("document.activeElement == document.body") or page.run(outlines) == "solid"

        # A line can be left out, and a whole number has whole ticks.
        lines = "document.querySelectorAll('#panel-next .line[d]:not(.foot *)').length"
        shown = page.run(lines)
        page.run("document.querySelector('#panel-next .foot button').click()")
        assert page.run(lines) == shown - 1
        assert page.run("[0.9996, 0.09996, 0.0123456, 0, 119.7, 1234].map(span)") == (
            ["1.00 s", "100 ms", "12.3 ms", "0 µs", "2 min 0 s", "20 min 34 s"]
        )
        assert page.run("charts[1].scale([{running: 5, waiting: 0}, {running: 4, waiting: 0}])") == [0, 5]

        # Who wants less motion has figures once a second.
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": "reduce"}])
        _, begin, end = times_of_looks(page, 3)
        assert end - begin > 990
        assert page.run("getComputedStyle(document.documentElement).scrollBehavior") == "auto"


def test_texts_keys_and_chats(tmp_path):
    (tmp_path / "template.jinja").write_text(TEMPLATE)
    options = ["--show-text", "--chat-template", str(tmp_path / "template.jinja")]
    env = {"MEGALITH_API_KEY": "sesame"}
    with Served("autoregressive", *options, env=env) as server, browser.Browser(server.url, scheme="dark") as page:
        page.wait_for("at('state').innerText == 'a key is needed' && !at('key').hidden")
        page.run("at('key-text').value = 'wrong'; at('key').requestSubmit()")
        page.wait_for("at('state').innerText == 'the key is wrong'")
        page.run("at('key-text').value = 'sésame ✓'; at('key').requestSubmit()")  # no header can have it
        page.wait_for("key != 'wrong'")
        times_of_looks(page, 2)
        assert page.run("at('state').innerText") == "the key is wrong"
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
