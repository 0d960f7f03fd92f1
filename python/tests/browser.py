"""A headless Chromium, driven through its pipe."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Browser:
    def __init__(self, url, width=1180, height=860, scheme="light", script=""):
        """`script` runs before those of the page."""
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        its_input, self.output = os.pipe()
        self.input, its_output = os.pipe()
        options = f"--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --user-data-dir={self.folder.name}"
        command = f'exec "$0" {options} --remote-debugging-pipe about:blank 3<&{its_input} 4>&{its_output}'
        self.process = subprocess.Popen(
            ["bash", "-c", command, PROGRAM], pass_fds=(its_input, its_output), stderr=subprocess.DEVNULL
        )
        os.close(its_input)
        os.close(its_output)
        self.number, self.held, self.page, self.said, self.is_loaded = 0, b"", None, [], False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.page = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Runtime.enable")
        self.call("Log.enable")
        self.call("Page.enable")
        self.call("Page.addScriptToEvaluateOnNewDocument", source=script)
        self.call("Page.navigate", url=url)
        while not self.is_loaded:
            self.take(self.read())

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.page:
            message["sessionId"] = self.page
        os.write(self.output, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]
            self.take(answer)

    def take(self, event):
        if event.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
            self.said.append(event["params"])
        self.is_loaded |= event.get("method") == "Page.loadEventFired"

    def read(self):
        while b"\0" not in self.held:
            assert select.select([self.input], [], [], 30)[0], "Chromium says nothing"
            more = os.read(self.input, 1 << 16)
            assert more, "Chromium has ended"
            self.held += more
        message, _, self.held = self.held.partition(b"\0")
        return json.loads(message)

    def run(self, script):
        """The value of an expression, or of what it promises."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait_for(self, script, seconds=20):
        end = time.monotonic() + seconds
        while not (value := self.run(script)):
            assert time.monotonic() < end, f"{script}\n{self.run('document.body.innerText')}"
            time.sleep(0.05)
        return value

    def picture(self, file):
        with open(file, "wb") as out:
            out.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.input)
        os.close(self.output)
        self.folder.cleanup()  # its other processes end after the first, and may still write there
