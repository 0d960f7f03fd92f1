#!/usr/bin/env python3
"""Writes what the headers and pages have of the `.def` files in include/megalith: members of structs in C++ and C, and
tables. `--check` changes nothing and fails where a file would change.

A region begins with a line that says `from NAME.def: MACRO, ...` and ends with the next line that is `---`.
"""
import pathlib
import re
import subprocess
import sys
import textwrap

root = pathlib.Path(__file__).resolve().parent.parent
folder = root / "include/megalith"
FILES = ["include/megalith/RequestEnd.h", "include/megalith/Api.h", "include/megalith/LiveSession.h",
         "include/megalith/megalith.h", "docs/library.md"]
ENTRY = re.compile(r'^(\w+)\(((?:[^"]|"(?:[^"\\]|\\.)*")*?)\)$', re.M)
BEGIN = re.compile(r"^\W*from (\w+\.def): ([\w, ]+?)(?: \+ ([^*]*?))?\W*$")
END = re.compile(r"^\s*(//|/\*|<!--) ---( \*/| -->)?$")
C_TYPES = {"bool": "int", "std::string": "const char *"}
WIDTH = 120


class Entry:
    """(Type, Name, Snake[, Default[, Least, Most]], Text); FLAG and TEXT have no Type."""

    def __init__(self, macro, arguments):
        head, _, text = arguments.partition('"')
        parts = [part.strip() for part in head.rstrip().rstrip(",").split(",")]
        self.macro = macro
        self.text = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', '"' + text))
        if macro in ("FLAG", "TEXT"):
            parts.insert(0, "bool" if macro == "FLAG" else "std::string")
        self.type, self.name, self.snake, *rest = parts
        zero = {"bool": "false", "std::string": "{}", "double": "-1"}.get(self.type, "0")
        self.default = rest[0] if rest else zero
        self.limits = rest[1:]

    def range(self):
        """For people; empty where all values of the type may be."""
        if not self.limits or self.limits[0] == "INT64_MIN" or self.limits[1] == "UINT32_MAX" and self.limits[0] == "0":
            return ""
        known = {"INT32_MAX": 2**31 - 1, "UINT32_MAX": 2**32 - 1, "size_t": int}
        least, most = (int(eval(each, {}, known)) for each in self.limits)  # noqa: S307
        return f"{least} to {most}"

    def c_default(self):
        return {"false": "0", "{}": "0"}.get(self.default, self.default)


def entries(name, macros):
    found = [Entry(*match) for match in ENTRY.findall((folder / name).read_text())]
    return [each for each in found if each.macro in macros]


def member(declaration, text, trailing, above):
    line = f"  {declaration} {trailing[0]}{text}{trailing[1]}"
    if len(line) <= WIDTH:
        return [line]
    wrapped = textwrap.wrap(text[0].upper() + text[1:], WIDTH - 2 - len(above[1]) - len(above[2]), break_on_hyphens=False)
    comments = [f"  {above[0] if i == 0 else above[1]}{part}" for i, part in enumerate(wrapped)]
    comments[-1] += above[2]
    return [*comments, f"  {declaration}"]


def cpp(each):
    return member(f"{each.type} {each.name} = {each.default};", each.text, ("///< ", ""), ("/// ", "/// ", ""))


def c(each):
    kind = C_TYPES.get(each.type, each.type)
    gap = "" if kind.endswith("*") else " "
    return member(f"{kind}{gap}{each.snake};", each.text, ("/**< ", " */"), ("/** ", " *  ", " */"))


def region(path, name, what, more):
    macros = [each.strip() for each in what.split(",")]
    if path.suffix == ".md":
        rows = ["| C++ | C, Python | default | from, to | |", "| --- | --- | --- | --- | --- |"]
        for each in entries(name, macros):
            default = {"{}": "", "false": "off"}.get(each.default, each.default)
            rows.append(f"| `{each.name}` | `{each.snake}` | {default} | {each.range()} | {each.text} |")
        return ["", *rows, ""]
    if macros[0].startswith("INIT "):
        struct = macros[0].split()[1]
        values = [each.c_default() for each in entries(name, macros[1:])] + ([more] if more else [])
        return [f"#define {struct.upper()}_INIT {{sizeof({struct}), {', '.join(values)}}}"]
    write = c if path.name == "megalith.h" else cpp
    return [line for each in entries(name, macros) for line in write(each)]


def updated(path):
    out, skips = [], False
    for line in path.read_text().splitlines():
        if END.match(line):
            skips = False
        if not skips:
            out.append(line)
        if begin := BEGIN.match(line):
            out += region(path, *begin.groups())
            skips = True
    assert not skips, f"{path}: a region does not end"
    text = "\n".join(out) + "\n"
    if path.suffix == ".md":
        return text
    return subprocess.run(["clang-format-19", f"--assume-filename={path}"], input=text, text=True, check=True,
                          stdout=subprocess.PIPE).stdout


def main():
    check = sys.argv[1:] == ["--check"]
    stale = [name for name in FILES if updated(root / name) != (root / name).read_text()]
    for name in stale:
        if check:
            print(f"{name} is not what the .def files say: run scripts/update_api.py")
        else:
            (root / name).write_text(updated(root / name))
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
