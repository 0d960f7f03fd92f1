"""Compile the wide unit that megalith writes of a model, and say what ptxas makes of it.

    emitted.py ROOT NAME...

NAME: a file of bench/shapes or a config of test/Families/Inputs/published.jsonl. A line for each: bytes that the two functions
with products spill, the remarks that tell of products which wait for each other, and whether attention reads the sums of each
leaf before the next one's products. Of the first one, also what is spilled where an entry with as many registers takes the functions in:
what a function saves for its caller counts as spilled, too.
"""
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(sys.argv[1])
REMARKS = ("C7509", "C7510", "C7512", "C7520")
INLINED = """
extern "C" __global__ void __launch_bounds__(384, 1) inlined_multiply() { megalith_wide_multiply(); }
extern "C" __global__ void __launch_bounds__(384, 1) inlined_attend(int layer) { megalith_wide_attend(layer); }
"""


def run(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{command}: {done.stdout}{done.stderr}")
    return done.stdout


def config_of(name):
    shape = ROOT / f"bench/shapes/{name}.json"
    if shape.is_file():
        return json.loads(shape.read_text())
    published = (ROOT / "test/Families/Inputs/published.jsonl").read_text().splitlines()
    return next(one["config"] for one in map(json.loads, published) if one["name"] == name)


def spilled(log, function):
    found = re.search(rf"properties for {function}\n.*?(\d+) bytes spill stores", log)
    return int(found[1])


def leaves_are_apart(ptx):
    """Whether in megalith_wide_attend each leaf's products end, and all sums are read, before a fence and the next leaf."""
    text = ptx[ptx.index(" megalith_wide_attend("):]
    events = {"wgmma.fence": "F", "wgmma.commit_group": "C", "wgmma.wait_group": "W", "add.rn.f32": "A"}
    found = re.findall(r"wgmma\.(?:fence|commit_group|wait_group)|mma_async\.sync\.aligned\.m64n\d+|add\.rn\.f32", text)
    line = "".join(events.get(event) or ("S" if event.endswith("n256") else "P") for event in found)
    return re.search(r"(F[FP]*PCWA{16,}){8}", line) is not None


def main():
    for number, name in enumerate(sys.argv[2:]):
        directory = pathlib.Path(name)
        directory.mkdir()
        (directory / "config.json").write_text(json.dumps(config_of(name)))
        unit = directory / "unit.cu"
        run("megalith", "compile", ROOT / "pipelines/autoregressive.yaml", "--model", name, "--plan", "passes=whole",
            "--set", "rows_per_pass=1024", "--device-profile=h100", "--emit=cuda-wide", "-o", unit)
        nvrtc = ("python3", ROOT / "test/Emit/Inputs/wide-unit/nvrtc.py", ROOT)
        log = run(*nvrtc, directory / "unit.cubin", unit, "--relocatable-device-code=true", "--maxrregcount=168")
        said = [f"multiply {spilled(log, 'megalith_wide_multiply')}", f"attend {spilled(log, 'megalith_wide_attend')}"]
        said += [remark for remark in REMARKS if remark in log]
        said += ["leaves apart" if leaves_are_apart((directory / "unit.ptx").read_text()) else "leaves NOT apart"]
        if number == 0:
            unit.write_text(unit.read_text() + INLINED)
            log = run(*nvrtc, directory / "inlined.cubin", unit)
            said += [f"inlined {spilled(log, 'inlined_multiply')} and {spilled(log, 'inlined_attend')}"]
            said += [remark for remark in REMARKS if remark in log]
        print(f"{name}: {', '.join(said)}", flush=True)


main()
