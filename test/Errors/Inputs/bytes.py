"""Every byte where a user's text comes into the emitted source: in a comment of the YAML, in the name of the model's file,
in the name of the folder. What is accepted differs from the plain text in comments and strings alone; what is not is
refused at its line.

    bytes.py PIPELINES MODEL FOLDER
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

pipelines, demo, folder = (os.fsencode(arg) for arg in sys.argv[1:])
PIPELINE = pathlib.Path(os.fsdecode(pipelines), "autoregressive.yaml").read_bytes()
MODEL = pathlib.Path(os.fsdecode(pipelines), "models/llama.yaml").read_bytes()
HARMLESS = pathlib.Path(os.fsdecode(pipelines), "models/harmless.yaml").read_bytes()
LINE = b"      - appended: append(next)"
assert LINE in PIPELINE and b"target: {}" in PIPELINE


def code_of(text):
    """Without comments, strings and the numbers of `#line`. With no trust: all that some reader takes for the end of a line
    is one, and any `\\` or its trigraph in front of it joins two lines."""
    text = re.sub(rb"[\r\v\f]|\xc2\x85|\xe2\x80[\xa8\xa9]", b"\n", text).replace(b"??/", b"\\")
    text = re.sub(rb"\\[ \t]*\n", b"", text)
    text = re.sub(rb'"(?:\\.|[^"\\\n])*"|//[^\n]*', lambda m: b"" if m[0][:1] == b"/" else b"~", text)
    return re.sub(rb"\s*\n\s*", b"\n", re.sub(rb"#line \d+", b"#line", text))


def compile_with(comment, name, place):
    """Exit status, source, messages, and the line of the comment."""
    where = folder + b"/" + place
    os.makedirs(where, exist_ok=True)
    quoted = b"".join(b"\\x%02x" % c if c < 0x80 else bytes([c]) for c in name)  # in double quotes
    text = PIPELINE.replace(b"target: {}", b'target: {graph: "%s"}' % quoted).replace(LINE, LINE + b" # " + comment)
    with open(where + b"/p.yaml", "wb") as out:
        out.write(text)
    if name.strip(b"/"):
        with open(where + b"/harmless.yaml", "wb") as out: # which the graph names
            out.write(HARMLESS)
        with open(where + b"/" + name, "wb") as out:
            out.write(MODEL)
    run = subprocess.run(["megalith", "compile", where + b"/p.yaml", "--model", demo], capture_output=True)
    return run.returncode, run.stdout, run.stderr, text[:text.index(LINE)].count(b"\n") + 1


status, plain, said, line = compile_with(b"plain", b"plain.yaml", b"plain")
assert status == 0, said
plain = code_of(plain)
accepted = {"comment": 0, "name": 0}
for byte in range(256):
    c = bytes([byte])
    # The folder's and the file's name: all that the system allows, but that YAML is UTF-8.
    part = b"" if c in b"\0/" else c
    status, source, said, _ = compile_with(b"x", b"m" + (part if byte < 0x80 else b"\xc3" + bytes([0x80 | byte & 0x3f])) + b"#x.yaml",
                                           b"d" + part + b"\n#error x")
    assert status == 0 and code_of(source) == plain, (byte, said)
    assert source.isascii() or source.decode(), byte  # the source is UTF-8
    accepted["name"] += 1
    for comment in (c + b"#error x", c, b"\\" + c, b"??/" + c):
        status, source, said, line = compile_with(comment, b"plain.yaml", b"plain")
        if status == 0:
            assert code_of(source) == plain, (byte, comment)
            accepted["comment"] += 1
        else:
            place = rb"p\.yaml:%d:\d+: error: " % line
            assert status == 1 and re.search(place, said), (byte, said)
print("accepted in names:", accepted["name"], "in comments:", accepted["comment"])

# All of them at once, compiled and run for the CPU; an error of the compiler leads back to the file.
every = bytes(c for c in range(1, 256) if c not in b"/")
where = folder + b"/" + every[:120] + b"/" + every[120:]
compile_with(b"plain", b"plain.yaml", b"plain")
shutil.rmtree(where, ignore_errors=True)
shutil.copytree(folder + b"/plain", where)
file, requests = where + b"/p.yaml", folder + b"/r.jsonl"
with open(requests, "w") as out:
    out.write('{"id": "a", "text": "In the", "max_new_tokens": 3}\n')
options = ["--model", demo, "--requests", requests, "--set", "rows_per_pass=16", "--device=cpu"]
run = subprocess.run(["megalith", "run", file, *options], capture_output=True)
assert run.returncode == 0 and run.stdout.startswith(b'{"id":"a","tokens":[32,115,101]'), run
source = subprocess.run(["megalith", "compile", file, "--model", demo, "--set", "rows_per_pass=16", "--device-profile=cpu"],
                        capture_output=True).stdout
with open(where + b"/k.cu", "wb") as out:
    out.write(source.replace(b"t.append(t.results())", b"t.attach(t.results())"))
run = subprocess.run(["megalith", "run", file, "--cu", where + b"/k.cu", *options], capture_output=True)
assert run.returncode == 1 and b"p.yaml:%d:7: error: cannot compile the code for the CPU" % line in run.stderr, run
print("all at once: run, and an error at its line")
