#!/usr/bin/env python3
"""Run what the pages show: run_docs.py [--build=BUILD] [--long] [PAGE ...]

Without a PAGE: README.md and all of docs/. Each page gets a fresh copy of the repository and one shell, and its blocks run in order.
The last line says `N run, N skipped, N failed`; the exit code is 0 only when nothing failed.

What runs:
  * a block whose first line begins with `$ `: commands, each with the output after it. A command without output must
    succeed, one with output must print it
  * a block without a language, each line of which begins with a program's name: commands that must succeed
  * a block of Python, in one interpreter for the page, if the module `megalith` is installed (PYTHONPATH). A block without a
    language right after it is what it prints
  * a block of C++ or C that is marked `compiles`: it is compiled against include/

In shown output a line `...` is any number of lines, and `...` within a line any text. Where `(Shortened` comes after a block,
lines and ends of lines may be left out anywhere. Times, rates and sizes (`12.3 ms`, `"run_ms":12.3`) are any number.

A comment in front of a block, `<!-- run_docs: ... -->`, says what the block itself does not:
  skip REASON          it is not run
  skip page REASON     no block of this page is run
  after COMMAND        this command runs first
  file NAME            it is a file of the page's folder
  from COMMAND         it is a part of what this command prints, with `...` as above; between its paragraphs may stand more
  compiles             see above
`R.jsonl` is that of docs/running.md everywhere.
"""
import argparse
import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```\n", re.M | re.S)
MARK = re.compile(r"<!-- run_docs: ((?:(?!-->).)*) -->\s*\Z", re.S)
LIMIT = 900  # seconds of a command
PROGRAMS = "megalith megalith-serve python3 python pip scripts/ cmake cc export source build/".split()

# What a command says of itself. The first that fits is the reason.
SKIPS = [
    (r"\b(DIR|PREFIX|PIPELINE|FILE|CONFIG)(?![\w-])|\[options\]| \.\.\. | \.\.\.$", "names a placeholder"),
    (r"\bpip install|-m venv|scripts/(install_deps|demo|check)\.sh", "installs"),
    (r"scripts/build\.sh|cmake --install|scripts/fuzz|lit\.py", "builds, or runs tests"),
    (r"megalith-serve|localhost:", "takes a server"),
    (r"make_family_goldens|dot -T", "takes a package that is not needed otherwise"),
    (r"megalith-mutants", "takes a quarter of an hour"),
    (r"megalith bench|measure_claims|LD_PRELOAD", "takes a GPU"),
]
LONG = re.compile(r"--device=cpu|--emit=cubin|megalith explore|compare\.py cpu")


class Block:
    def __init__(self, page, text, match, following):
        self.page, self.language = page, match["language"]
        self.line = text.count("\n", 0, match.start()) + 1
        self.text = re.sub("^" + match["indent"], "", match["text"], flags=re.M)
        self.end = match.end()
        mark = MARK.search(text[: match.start()])
        self.mark, _, self.argument = (" ".join(mark[1].split()) if mark else "").partition(" ")
        self.is_shortened = text[match.end() :].lstrip().startswith("(Shortened")
        is_output = following and not following["language"] and not text[match.end() : following.start()].strip()
        self.output = following["text"] if is_output else None

    def commands(self):
        """(command, what it shows or None) of a transcript or of a list of commands, else nothing."""
        lines = self.text.splitlines()
        is_list = all(line.startswith(tuple(PROGRAMS)) or before.endswith("\\") for before, line in zip(["", *lines], lines))
        if not self.language in ("", "sh", "console") or not lines or not (lines[0].startswith("$ ") or is_list):
            return
        command, shown = None, []
        for line in lines:
            if command is not None and command.endswith("\\") and not shown:
                command += "\n" + line
            elif line.startswith("$ ") or not lines[0].startswith("$ "):
                if command is not None:
                    yield command, shown or None
                command, shown = line.removeprefix("$ "), []
            else:
                shown.append(line)
        yield command, shown or None


def blocks_of(page):
    text = (ROOT / page).read_text()
    found = list(BLOCK.finditer(text))
    return [Block(page, text, *two) for two in zip(found, [*found[1:], None])]


def measured(text):
    """The text with times, rates and sizes as `#`."""
    text = re.sub(r'("\w*(?:_ms|_gb_s)": ?)[\d.]+', r"\1#", text)
    text = re.sub(r"\b\d+(\.\d+)?(?= (?:ms|s|us|µs|[KMG]i?B(?:/s)?|kB)\b)", "#", text)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def is_shown(shown, printed, is_part=False, is_shortened=False):
    """Whether what is printed is what is shown. `is_part`: or holds it."""
    lines = []
    for line in measured("\n".join(shown)).splitlines():
        if line.strip() == "..." or is_part and not line:
            lines.append(r"(?:.*\n)*?")
        else:
            lines.append(".*".join(map(re.escape, line.split("..."))) + (r".*\n(?:.*\n)*?" if is_shortened else r"\n"))
    is_part = is_part or is_shortened
    pattern = "".join(lines)
    return bool(re.search("(?m:^)" + pattern, measured(printed)) if is_part else re.fullmatch(pattern, measured(printed)))


class Shell:
    """One bash for the commands of a page."""

    def __init__(self, folder, environment):
        self.bash = subprocess.Popen(["bash", "--norc"], cwd=folder, env=environment, text=True, errors="replace", bufsize=1,
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def run(self, command):
        if self.bash.poll() is not None:
            return 1, "(the shell has ended)\n"
        self.bash.stdin.write(f"{{ {command}\n}} </dev/null\nprintf '\\1%d\\n' $?\n")
        self.bash.stdin.flush()
        printed, late = [], threading.Timer(LIMIT, self.bash.kill)
        late.start()
        try:
            for line in self.bash.stdout:
                text, mark, code = line.partition("\1")
                printed.append(text)
                if mark:
                    return int(code), "".join(printed)
        finally:
            late.cancel()
        return 1, "".join(printed) + f"(the shell ended, or took more than {LIMIT} s)\n"

    def close(self):
        with contextlib.suppress(BrokenPipeError):
            self.bash.stdin.close()
        self.bash.wait()
        self.bash.stdout.close()


# Runs in a process of its own: reads a list of codes, and writes what each printed and how it failed.
PYTHON = """
import contextlib, io, json, sys, traceback
names, results = {}, []
for code in json.load(sys.stdin):
    printed, failure = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        try:
            exec(compile(code, "page", "exec"), names)
        except BaseException:
            failure = traceback.format_exc()
    results.append((printed.getvalue(), failure))
json.dump(results, sys.stdout)
"""


def run_python(blocks, folder, environment=None, python=sys.executable):
    """(what it printed, how it failed or None) of each block of Python, in order."""
    done = subprocess.run([python, "-c", PYTHON], input=json.dumps([block.text for block in blocks]), cwd=folder,
                          env=environment, capture_output=True, text=True)
    if done.returncode:
        return [("", done.stderr)] * len(blocks)
    return [tuple(result) for result in json.loads(done.stdout)]


PRELUDE = """
using namespace megalith;
using namespace std::chrono_literals;
template <class... Ts> void use(Ts &&...);
"""
CPP = """
#include <chrono>
#include <cstdio>
#include <iostream>
#include <megalith/Api.h>
#include <megalith/LiveSession.h>
""" + PRELUDE
C = """
#include <megalith/megalith.h>
void use(int64_t, const int32_t *, size_t);
"""


def compile_error(block, folder, known):
    """Compiles the block as the body of a function. `known`: declarations that the page's other blocks make."""
    code = block.text.replace("...\n", "")
    includes = "".join(re.findall(r"^#include.*\n", code, re.M))
    body = re.sub(r"^#include.*\n", "", code, flags=re.M)
    if block.language == "cpp":
        given = "" if "auto kernel" in body else "Expected<Kernel> kernelOf();\n"
        local = "" if "auto kernel" in body else "auto kernel = kernelOf();\n"
        source, options = f"{CPP}{includes}{given}int page() {{\n{local}{body}return 0;\n}}\n", ["-x", "c++", "-std=c++20"]
    else:
        source, options = f"{C}{includes}int page({known}) {{\nint code;\n{body}return code;\n}}\n", ["-x", "c", "-std=c99"]
    done = subprocess.run(["c++" if block.language == "cpp" else "cc", *options, "-fsyntax-only", "-I", ROOT / "include", "-"],
                          input=source, cwd=folder, capture_output=True, text=True)
    return done.stderr if done.returncode else None


C_NAMES = ("megalith_kernel *kernel, megalith_program *program, megalith_errors *errors, "
           "megalith_request request, uint64_t user, uint64_t number")


class Report:
    def __init__(self):
        self.counts = {"run": 0, "skipped": 0, "failed": 0}

    def tell(self, how, block, what, detail="", seconds=None):
        self.counts[how] += 1
        time_taken = f" ({seconds:.1f} s)" if seconds is not None else ""
        first, *more = what.splitlines()
        print(f"{block.page}:{block.line}: {how}: {first}{' ...' if more else ''}{time_taken}{': ' + detail if how == 'skipped' else ''}")
        if how == "failed":
            print(textwrap.indent(detail, "    "))
        sys.stdout.flush()


def why_skipped(block, commands, is_long):
    if block.mark == "skip":
        return block.argument
    text = "\n".join(command for command, _ in commands)
    for pattern, reason in SKIPS:
        if re.search(pattern, text, re.M):
            return reason
    if not is_long and LONG.search(text):
        return "takes minutes; --long runs it"
    return None


class Copy:
    """A copy of the repository, which each page gets as if it were new."""

    def __init__(self, folder):
        self.folder, self.stamps = folder, {}
        names = subprocess.run(["git", "ls-files", "-zco", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True)
        for name in names.stdout.split("\0"):
            if name and (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                self.restore(name)

    def restore(self, name):
        shutil.copy(ROOT / name, self.folder / name)
        self.stamps[name] = self.stamp(self.folder / name)

    def stamp(self, path):
        status = path.lstat()
        return status.st_ino, status.st_size, status.st_mtime_ns

    def renew(self):
        for path in list(self.folder.rglob("*")):
            name = str(path.relative_to(self.folder))
            if (path.is_symlink() or path.is_file()) and name not in self.stamps:
                path.unlink()
        for name, stamp in list(self.stamps.items()):
            if not (self.folder / name).exists() or self.stamp(self.folder / name) != stamp:
                self.restore(name)


def run_page(page, copy, scratch, build, is_long, report):
    blocks = blocks_of(page)
    folder = copy.folder
    copy.renew()
    (folder / "build").symlink_to(build)
    (folder / "R.jsonl").write_text(next(block.text for block in blocks_of("docs/running.md") if block.argument == "R.jsonl"))
    python = ROOT / ".venv/bin/python"
    paths = [build / "tools", build, python.parent] if python.exists() else [build / "tools", build]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MEGALITH_") or name == "MEGALITH_NVRTC"}
    environment |= {"PATH": os.pathsep.join([*map(str, paths), os.environ["PATH"]]), "MEGALITH_CACHE_DIR": str(scratch / "kernels"),
                    "HOME": str(scratch), "COLUMNS": "120"}
    shutil.rmtree(scratch / "kernels", ignore_errors=True)  # what is compiled is told
    (scratch / "kernels").mkdir(mode=0o700)
    interpreter = str(python) if python.exists() else sys.executable
    has_module = subprocess.run([interpreter, "-c", "import megalith"], env=environment, capture_output=True).returncode == 0
    whole = next((block.argument.removeprefix("page ") for block in blocks if block.argument.startswith("page ")), None)
    shell = Shell(folder, environment)
    try:
        for block in blocks:
            started = time.time()
            commands = list(block.commands())
            title = commands[0][0] if commands else (block.text.strip().splitlines() or [""])[0]
            if block.mark == "file":
                (folder / block.argument).write_text(block.text)
            elif block.mark == "from":
                if whole:
                    report.tell("skipped", block, block.argument, whole)
                    continue
                _, printed = shell.run(block.argument)
                good = is_shown(block.text.splitlines(), printed, is_part=True, is_shortened=block.is_shortened)
                report.tell("run" if good else "failed", block, block.argument, f"what is shown is not printed:\n{block.text}", time.time() - started)
            elif block.mark == "compiles":
                error = compile_error(block, folder, C_NAMES)
                report.tell("failed" if error else "run", block, title, error or "", time.time() - started)
            elif commands:
                reason = whole or why_skipped(block, commands, is_long)
                if reason:
                    report.tell("skipped", block, title, reason)
                    continue
                if block.mark == "after":
                    shell.run(block.argument)
                for command, shown in commands:
                    started = time.time()
                    code, printed = shell.run(command)
                    good = is_shown(shown, printed, is_shortened=block.is_shortened) if shown else code == 0
                    report.tell("run" if good else "failed", block, command, f"exit code {code}; it printed\n{printed}", time.time() - started)
        examples = [block for block in blocks if block.language == "python" and block.mark != "from"]
        runs = []
        for block in examples:
            reason = whole or (block.argument if block.mark == "skip" else None if has_module else "the module `megalith` is not installed")
            if reason:
                report.tell("skipped", block, block.text.splitlines()[0], reason)
            else:
                runs.append(block)
        started = time.time()
        for block, (printed, failure) in zip(runs, run_python(runs, folder, environment, interpreter) if runs else []):
            good = not failure and (block.output is None or is_shown(block.output.splitlines(), printed))
            report.tell("run" if good else "failed", block, block.text.splitlines()[0], failure or f"it printed\n{printed}")
        if runs:
            print(f"{page}: Python took {time.time() - started:.1f} s")
    finally:
        shell.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0], formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog=__doc__.split("\n\n", 1)[1])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="the build folder (default: build)")
    parser.add_argument("--long", action="store_true", help="also what takes minutes: kernels that are compiled")
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="relative to the repository, such as docs/running.md")
    arguments = parser.parse_args()
    pages = arguments.pages or ["README.md", *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md"))]
    if not (arguments.build / "tools/megalith").exists() and not (arguments.build / "megalith").exists():
        sys.exit(f"error: no program `megalith` in {arguments.build}; run scripts/build.sh, or give --build=BUILD")
    for page in pages:
        if not (ROOT / page).is_file():
            sys.exit(f"error: there is no page `{page}` in {ROOT}; a page is named from there, such as docs/running.md")
    report = Report()
    started = time.time()
    with tempfile.TemporaryDirectory() as scratch:
        copy = Copy(pathlib.Path(scratch) / "copy")
        for page in pages:
            run_page(page, copy, pathlib.Path(scratch), arguments.build.resolve(), arguments.long, report)
    print(f"{time.time() - started:.0f} s")
    print(", ".join(f"{count} {how}" for how, count in report.counts.items()))
    sys.exit(1 if report.counts["failed"] or not report.counts["run"] else 0)


if __name__ == "__main__":
    main()
