#!/usr/bin/env python3
"""Check which folder includes which, that no code knows a shipped file's name, and that
PTX stands in one place, as does what tests wait with.

The table says for each folder what it may see. A folder may always see itself.
"""
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parent.parent

# Whole folders, or single headers by their path.
ABI, SHAPE, UNIT_FACTS = "device/Abi.h", "device/Shape.h", "device/UnitFacts.def"
CALL_ABI = "device/CallAbi.h"
SHARED_MEMORY = "device/SharedMemory.h"
SCALAR = "IR/Scalar.h"  # with Ops.h: what operations are, without a module
ELEMENTWISE = "IR/Elementwise.def"
CONVERT, EXACT, SAMPLING = "device/Convert.h", "device/Exact.h", "device/Sampling.h"
SCHEME = "Support/WeightScheme.h"
HOST = "device/cpu/Host.h"
# Plain headers beside Api.h: the standard library only.
ERROR, EXPORT, HOST_LOOP, REQUEST, END = "Error.h", "Export.h", "HostLoop.h", "Request.h", "RequestEnd.h"
LIVE, LIMITS = "LiveSession.h", "Contract/Limits.h"
# What C++, C and Python have in common: only binders include these.
SHARED = ["RequestEnd.def", "Request.def", "RunOptions.def", "LiveOptions.def", "LiveStats.def"]
API = ["Api.h", LIVE, "Tools.h", "megalith.h", ERROR, EXPORT, HOST_LOOP, REQUEST, END]
ALLOWED = {
    # The headers of the library, and what is installed of them: nothing of ours but each other.
    "Api.h": [ERROR, EXPORT, HOST_LOOP, REQUEST, END],
    "LiveSession.h": ["Api.h"],
    "Tools.h": ["Api.h"],
    "megalith.h": [],
    "Error.h": [EXPORT],
    "Export.h": [],
    "HostLoop.h": [],
    "Request.h": [EXPORT],
    "RequestEnd.h": [],
    **{name: [] for name in SHARED},
    # What the compiler, its executors, the runtime and the device code agree on: plain text, no other header.
    "Contract": [],
    "Text": [],
    "Os": ["Text"],
    "Support": ["Text", "Os", ERROR],
    "Json": ["Text"],
    "Automata": ["Json", "Text"],
    "Checkpoint": ["Json", "Text", "Os", SCHEME, CONVERT],
    "Requests": ["Json", "Contract", "Text", "Os", REQUEST, END],
    "Syntax": ["Contract", "Support", "Text"],
    "Sema": ["Contract", "Syntax", "Checkpoint", "Support", "Text", SCALAR, ELEMENTWISE],
    "IR": ["Contract", "Support", "Text", REQUEST, EXACT],
    "Lower": ["Sema", "Syntax", "Checkpoint", "IR", "Support", "Text"],
    "Transforms": ["IR", "Support", "Text"],
    "Plan": ["IR", "Contract", "Support", "Text", ABI, CALL_ABI, SHAPE, SHARED_MEMORY],
    "Emit": ["Plan", "IR", "Support", "Text", ABI, CALL_ABI, SHAPE],
    "Reference": ["IR", "Automata", "Checkpoint", "Requests", "Contract", "Os", "Support", "Text", REQUEST, END, CONVERT, EXACT, SAMPLING],
    "Jit": ["Support", "Text", "Os"],
    "Driver": ["Lower", "Sema", "Syntax", "Transforms", "Plan", "Emit", "Jit", "Checkpoint", "IR", "Support", "Text", SHAPE,
               "Os"],
    "Api": ["Driver", "Automata", "Plan", "Jit", "Reference", "Requests", "Checkpoint", "IR", "Support", "Text", "Os", "runtime", "Contract", *API,
            *SHARED],
    "runtime": ["Requests", "Automata", "Checkpoint", "Json", "Contract", "Text", "Os", SCHEME, ABI, CALL_ABI, UNIT_FACTS, HOST, HOST_LOOP, REQUEST],
    "device": ["Contract"],
    # `megalith` is a client of the library. Beside it: Support for its own errors (those of the command line) and for
    # how a process ends, Text and Os for what it prints and writes.
    "tools/megalith": ["Api.h", LIVE, "Tools.h", ERROR, REQUEST, LIMITS, "Support", "Text", "Os"],
    # The Python module is one, too.
    "python": ["Api.h", LIVE, ERROR, REQUEST, *SHARED],
    "tools/acceptance": ["Reference", EXACT, SAMPLING],
    "tools": ["Transforms", "IR", "Support", "Text", "Os"],
}
# Floors of device/: what a unit is made of, above what both units have. The files that are units see all.
CONTROL = {f"{name}.cuh" for name in ("Faults", "Pages", "Sequences", "LogitsQueries", "Texts", "ControlTrees", "Control", "Binders", "IssueCalls", "Seats", "Activation", "HostSide",
                                      "Live", "HostTick", "Admission", "ControlTick", "ChooseCalls", "ControlPass")}
TENSOR = {f"{name}.cuh" for name in ("Packing", "Results", "Reducers", "EditedRows", "Selection", "Answers", "Stream", "Operand", "Product", "Windows", "WideProduct",
                                     "AttentionPlan", "AttentionParts", "OwnRows", "Attention", "WideAttention", "Resident")}
# Of kernels of pipelines of buffers. They have what stages compute from control.
CALL = {f"{name}.cuh" for name in ("Buffers", "LaneBinders", "CallCopies", "Call")}
OF_STAGES = {f"{name}.cuh" for name in ("Faults", "Sequences", "Binders")}
WIDE = {path.name for path in (root / "device/wide").glob("*.cuh")}
UNITS = {"CallUnit.cuh", "ControlUnit.cuh", "TensorUnit.cuh", "WideUnit.cuh", "Device.cuh"}
# Of angle brackets only what is ours.
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^">]+)"|<((?:megalith|runtime|device|lib)/[^">]+)>)', re.M)
SUFFIXES = {".h", ".cpp", ".def", ".cuh", ".c"}


def folder_of(path):
    """The row of the table that a file belongs to."""
    parts = path.relative_to(root).parts
    if parts[0] == "lib":
        return parts[1]
    if parts[:2] == ("include", "megalith"):
        return parts[2]
    if parts[0] == "tools" and parts[1] in ("acceptance", "megalith"):
        return f"tools/{parts[1]}"
    return parts[0]


def target_of(path, name):
    """What an include names: a folder, or a header that the table lists singly. None: it names nothing that this
    folder could see."""
    if folder_of(path) == "device":  # compiled with its own header names
        if name.startswith("megalith/Contract/") and (root / "include" / name).is_file():
            return "Contract"
        stem = name.removeprefix("megalith/")
        known = any((root / "device" / place / stem).is_file() for place in ("", "wide", "cuda", "cpu"))
        return "device" if known else None
    if (path.parent / name).is_file():
        return folder_of(path)
    if name.startswith("llvm/"):
        return "llvm"
    if name in (ABI, CALL_ABI, SHAPE, SHARED_MEMORY, CONVERT, EXACT, SAMPLING, HOST, UNIT_FACTS) and (root / name).is_file():
        return name
    if name.startswith("runtime/") and (root / name).is_file():
        return "runtime"
    if not name.startswith("megalith/") or not (root / "include" / name).is_file():
        return None
    short = name.removeprefix("megalith/")
    return short if short in ALLOWED.get(folder_of(path), []) else short.split("/")[0]


def sources(*folders):
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SUFFIXES and path.is_file():
                yield path


def check_includes():
    for path in sources("lib", "include", "runtime", "device", "tools", "python"):
        own = folder_of(path)
        if own not in ALLOWED:
            yield f"{path.relative_to(root)}: the folder `{own}` is not in the table"
            continue
        for name in ("".join(found) for found in INCLUDE.findall(path.read_text())):
            target = target_of(path, name)
            if target is None:
                yield f"{path.relative_to(root)}: `{name}` is no header that `{own}` knows"
            elif target not in (own, "llvm", *ALLOWED[own]):
                yield f"{path.relative_to(root)}: `{own}` may not include `{name}`"


def device_code():
    """That of every target."""
    return sorted([*(root / "device").glob("*.cuh"), *(root / "device/wide").glob("*.cuh")])


def check_floors():
    for path in device_code():
        own = next((floor for floor in (CONTROL, TENSOR, WIDE, CALL | OF_STAGES) if path.name in floor), set())
        for name in INCLUDE.findall(path.read_text()):
            target = "".join(name).removeprefix("megalith/")
            if path.name not in UNITS and target in (CONTROL | TENSOR | WIDE | CALL | UNITS) - own:
                yield f"{path.relative_to(root)}: may not include `{target}`, which stands on another floor of device/"


def check_names():
    names = set()
    for path in sorted((root / "pipelines").rglob("*.yaml")):
        names.update(re.findall(r"^(?:pipeline|model):\s*(\w+)", path.read_text(), re.M))
    pattern = re.compile(r"\b(" + "|".join(map(re.escape, sorted(names))) + r")\b", re.I)
    for path in sources("lib", "include", "runtime", "device"):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = pattern.search(line)
            if match:
                yield f"{path.relative_to(root)}:{number}: code must not know the name `{match[0]}`"


def check_plain():
    """What programs outside include needs no header of LLVM or yaml-cpp, nor of any other library."""
    for name in API:
        text = (root / "include/megalith" / name).read_text()
        for found in re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', text, re.M):
            if "/" in found and not found.startswith("megalith/") or found.endswith(".hpp"):
                yield f"include/megalith/{name}: may not include `{found}`"


def check_words():
    """An attribute with a fixed set of words is an enumeration of IR/Words.h, and the order of operations says nothing."""
    word = re.compile(r'get<(?:ir::)?attr::\w+>\(\)\s*[!=]=\s*"|"\s*[!=]=\s*[\w.>-]*\bget<(?:ir::)?attr::')
    order = re.compile(r"\bOp::\w+\s*(?:[<>]=?|[+-])\s*[\w(]|(?:[<>]=?|[+-])\s*(?:ir::|Binary)?Op::\w+\b(?!\s*[>:])")
    for path in sources("lib", "include", "runtime", "tools"):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if match := word.search(line) or order.search(line.split("//")[0]):
                yield f"{path.relative_to(root)}:{number}: `{match[0]}`: use an enumeration of IR/Words.h, or a trait of IR/Ops.h"


def check_primitives():
    """PTX stands in device/cuda alone, so that every target runs all other device code."""
    for path in device_code():
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if re.search(r"\b(asm|volatile)\b", line):
                yield f"{path.relative_to(root)}:{number}: use an entry of device/Primitives.def"


# Loops that look until something has happened; random loads.
WAITS = {"test/Unit/Waiting.h", "python/tests/serving.py", "python/tests/browser.py", "test/Driver/Inputs/sweep_interrupted.py",
         "test/Errors/endings.test", "test/Random/requests.cpp"}


def check_waits():
    """No test depends on time: it waits for what happens."""
    sleeps = re.compile(r"\b(?:sleep_for|sleep_until|usleep|nanosleep|(?:time|asyncio)\.sleep)\((?!0\))|(?<![\w.>])sleep\(")
    for path in [*(root / "test").rglob("*"), *(root / "python/tests").glob("*.py")]:
        name = path.relative_to(root).as_posix()
        if path.suffix in (".cpp", ".h", ".py", ".test") and name not in WAITS:
            for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
                if sleeps.search(line):
                    yield f"{name}:{number}: sleeps: wait for what happens, with Waiting.h or serving.py"


problems = [*check_includes(), *check_floors(), *check_names(), *check_plain(), *check_words(), *check_primitives(), *check_waits()]
print("\n".join(problems) if problems else "every include is allowed; no shipped name in the code")
sys.exit(1 if problems else 0)
