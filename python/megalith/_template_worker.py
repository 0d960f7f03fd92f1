"""A process that renders chat templates. `_templates.py` starts it, by its path: it imports nothing of this package.

A line of JSON comes in, a line goes out. The first one has the templates, the module path and the limits.
"""

import json
import math
import resource
import signal
import sys
import traceback


def one_line(text):
    text = " ".join(str(text).split())
    return text if len(text) <= 500 else text[:500] + " ..."


def reason(error, jinja2):
    """What went wrong, and at which line of the template."""
    line = getattr(error, "lineno", None) if isinstance(error, jinja2.TemplateSyntaxError) else None
    if line is None:
        for frame, number in traceback.walk_tb(error.__traceback__):
            if frame.f_code.co_filename == "<template>":
                line = number
    text = one_line(error)
    if not isinstance(error, jinja2.TemplateError):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return f"{text or type(error).__name__} (line {line})" if line else text


def make_environment():
    """As that of `apply_chat_template` of `transformers`: a sandbox."""
    import jinja2
    import jinja2.ext
    import jinja2.sandbox

    class Refused(jinja2.TemplateError):
        """The template's own word."""

    class Generated(jinja2.ext.Extension):  # {% generation %} marks what a model writes; it changes nothing here
        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            call = self.call_method("_generated", [])
            return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

        def _generated(self, caller):
            return caller()

    def fail(message):
        raise Refused(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def strftime_now(form):
        import datetime

        return datetime.datetime.now().strftime(form)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generated, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals.update(raise_exception=fail, strftime_now=strftime_now)
    return jinja2, environment, Refused


class Worker:
    def __init__(self, templates, seconds, characters):
        self.jinja2, self.environment, self.Refused = make_environment()
        self.templates, self.compiled = templates, {}
        self.seconds, self.characters = seconds, characters

    def answer(self, request):
        used = resource.getrusage(resource.RUSAGE_SELF)
        most = math.ceil(used.ru_utime + used.ru_stime) + self.seconds
        resource.setrlimit(resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))  # SIGXCPU ends this process
        try:
            name = request["name"]
            if name not in self.compiled:
                self.compiled[name] = self.environment.from_string(self.templates[name])
            if request["variables"] is None:
                return {"text": ""}
            parts, length = [], 0
            for part in self.compiled[name].generate(request["variables"]):
                length += len(part)
                if length > self.characters:
                    return {"error": f"it makes more than {self.characters} characters"}
                parts.append(part)
            return {"text": "".join(parts)}
        except MemoryError:
            return {"error": "it needs too much memory"}
        except self.Refused as error:
            return {"error": one_line(error)}
        except Exception as error:
            return {"error": reason(error, self.jinja2)}


def main():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    out = sys.stdout.buffer
    sys.stdout = sys.stderr
    start = json.loads(sys.stdin.buffer.readline())
    sys.path[:] = start["path"]
    worker = Worker(start["templates"], start["seconds"], start["characters"])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (start["bytes"], start["bytes"]))
    while line := sys.stdin.buffer.readline():
        answer = worker.answer(json.loads(line))
        out.write(json.dumps(answer).encode() + b"\n")
        out.flush()


if __name__ == "__main__":
    main()
