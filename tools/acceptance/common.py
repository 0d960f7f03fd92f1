"""Running megalith and reading what it wrote; shared by all sections."""
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import random
import subprocess
import sys
import threading
import time

import numpy

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import golden_checkpoint  # noqa: E402

TEXTS = (
    "In the beginning ",
    "And Moses said unto ",
    "The LORD is my shepherd; I shall ",
    "And it came to pass, when the king ",
    "Blessed are the ",
    "Now these are the generations of the sons of ",
    "Then answered Jesus and said unto them, ",
    "And David ",
)
PROMPT_LENGTHS = (5, 60, 12, 33, 19, 47, 26, 40)


class Failure(Exception):
    """A run or a section that cannot go on."""


@dataclasses.dataclass
class Run:
    """One call of `megalith run`."""
    pipeline: str
    model: object            # a checkpoint, or one of each model: name -> checkpoint
    requests: list
    sets: dict = dataclasses.field(default_factory=dict)
    plan: dict = dataclasses.field(default_factory=dict)
    drafts: dict = None      # id -> tokens
    logits: bool = False
    trace: bool = False
    kv_hash: bool = False
    options: tuple = ()
    device: str = None       # else the suite's
    environment: dict = dataclasses.field(default_factory=dict)
    prefix: tuple = ()       # a program that runs megalith
    check: bool = True       # a non-zero exit status is a failure
    timeout: float = 240

    def compile_key(self):
        return (self.pipeline, str(self.model), self.device, tuple(sorted(self.sets.items())),
                tuple(sorted(self.plan.items())),
                tuple(o for o in self.options if str(o).startswith(("--cu", "--ir"))))


class Outcome:
    """What a run printed and wrote."""

    def __init__(self, run, folder, process, seconds):
        self.run, self.folder, self.seconds = run, folder, seconds
        self.status, self.stdout, self.stderr = process.returncode, process.stdout, process.stderr
        self.requests, self.summary = {}, {}
        for line in self.stdout.splitlines():
            if not line.startswith("{"):
                continue
            value = json.loads(line)
            if "summary" in value:
                self.summary = value["summary"]
            else:
                self.requests[value["id"]] = value

    def tokens(self):
        return {key: value["tokens"] for key, value in self.requests.items()}

    def trace(self):
        return Trace(self.folder / "trace.jsonl", [r["id"] for r in self.run.requests])

    def logits(self):
        """id -> f32 array [generated][vocab]."""
        return read_logits(self.folder / "logits.bin")


class Trace:
    def __init__(self, path, ids):
        lines = [json.loads(line) for line in open(path)]
        self.ids = ids
        self.ticks = [line for line in lines if "tick" in line]
        self.results = lines[-1]["results"]

    def owners(self, tick):
        """slot -> request of a tick."""
        return {entry["slot"]: entry["request"] for entry in tick["slots"]}

    def rows(self, tick):
        """(request, row, hash or None) of each row of a tick, in row order."""
        owners = self.owners(tick)
        for run in tick["passes"]:
            hashes = run.get("kv_hash") or [None] * len(run["rows"])
            for row, value in zip(run["rows"], hashes):
                yield owners[row[0]], row, value

    def kv_hashes(self):
        """id -> {position: hash} of the positions that are valid at the end."""
        found, lengths = {}, {}
        for tick in self.ticks:
            for request, row, value in self.rows(tick):
                found.setdefault(request, {})[row[3]] = value
            for entry in tick["slots"]:
                if entry["slot"] >= 0:
                    lengths[entry["request"]] = entry["kv"][0]["len"]
        return {self.ids[request]: {position: value for position, value in table.items()
                                    if position < lengths[request]}
                for request, table in found.items()}

    def peak_pages(self, page_tokens):
        """Most pages that the lengths at the ends of ticks need."""
        return max(sum(-(-entry["kv"][0]["len"] // page_tokens)
                       for entry in tick["slots"] if entry["slot"] >= 0)
                   for tick in self.ticks)


def read_logits(path):
    with open(path, "rb") as file:
        header = json.loads(file.readline())
        return {key: numpy.fromfile(file, "<f4", shape[0] * shape[1]).reshape(shape)
                for key, shape in zip(header["ids"], header["shapes"])}


def same_bits(a, b):
    """Whether two tables of f32 arrays agree bit by bit in the keys of `a`."""
    return all(key in b and a[key].shape == b[key].shape and
               a[key].tobytes() == b[key].tobytes() for key in a)


def differing_rows(a, b):
    """(rows that differ, rows) of two tables of logits."""
    rows = differ = 0
    for key in a:
        rows += len(a[key])
        if key not in b or a[key].shape != b[key].shape:
            differ += len(a[key])
            continue
        differ += int((a[key].view(numpy.uint32) != b[key].view(numpy.uint32)).any(axis=1).sum())
    return differ, rows


def row_errors(truth, theirs, ours, tokens):
    """Errors relative to ||truth|| of each row, and counts of tokens out of place.

    `truth` are fp32 rows, `theirs` and `ours` two computations of them, `tokens` what
    was chosen from `ours`.
    """
    if ours.shape != truth.shape:
        raise Failure(f"logits of shape {ours.shape}, expected {truth.shape}")
    norm = numpy.linalg.norm(truth.astype("f8"), axis=1)
    their_error, our_error = (numpy.linalg.norm(rows.astype("f8") - truth, axis=1)
                              for rows in (theirs, ours))
    gap = truth.max(axis=1) - truth[numpy.arange(len(tokens)), tokens]
    return {"ours": (our_error / norm).tolist(), "theirs": (their_error / norm).tolist(),
            "not_argmax": int((gap > 0).sum()), "too_far": int((gap > their_error).sum()),
            "not_own_argmax": int((ours.argmax(axis=1) != tokens).sum())}


class Suite:
    """Settings, checkpoints, and the table of results."""

    def __init__(self, args):
        self.megalith = pathlib.Path(args.megalith).resolve()
        self.work = pathlib.Path(args.work).resolve()
        self.work.mkdir(parents=True, exist_ok=True)
        self.device, self.jobs, self.quick = args.device, args.jobs, args.quick
        self.on_gpu = self.device != "reference"
        self.shim = args.shim
        self.rows, self.count = [], 0
        self.local = threading.local()  # sections run side by side
        self.lock, self.model_lock = threading.Lock(), threading.Lock()
        self.processes = threading.Semaphore(args.jobs)
        self.parity_error = {}  # model -> largest relative error of a row
        self.commands = open(self.work / "commands.log", "w")
        self.copy_pipelines()

    @property
    def section(self):
        return self.local.section

    @section.setter
    def section(self, name):
        self.local.section = name

    # --- inputs
    def copy_pipelines(self):
        """The pipelines, and the model files beside them, from which each checkpoint takes its own."""
        source = ROOT / "pipelines"
        target = self.work / "pipelines"
        (target / "models").mkdir(parents=True, exist_ok=True)
        for path in [*(source / "models").glob("*.yaml"), *source.glob("*.yaml")]:
            (target / path.relative_to(source)).write_text(path.read_text())

    def pipeline(self, name):
        return self.work / "pipelines" / f"{name}.yaml"

    def model(self, name):
        """Directory of a checkpoint; made when it is missing."""
        if name in ("demo", "demo-draft", "demo-heads"):
            return ROOT / "models" / name
        directory = self.work / "models" / name
        golden = ROOT / "test/Families/goldens" / f"{name}.json"
        if golden.exists():
            with self.model_lock:
                if not (directory / "complete").exists():
                    golden_checkpoint.write(json.loads(golden.read_text()), directory)
                    (directory / "complete").write_text("")
            return directory
        if name not in ("awkward", "llama-1b", "qwen3-0.6b", "tiny", "tiny-qwen3"):
            return directory  # a section wrote it
        with self.model_lock:
            if not (directory / "complete").exists():
                made = subprocess.run([sys.executable, ROOT / "tools" / "make_random_model.py",
                                       "--shape", name, "--out", directory],
                                      capture_output=True, text=True)
                if made.returncode:
                    raise Failure(f"cannot make {name}: {made.stderr[-500:]}")
                (directory / "complete").write_text("")
        return directory

    def vocab(self, name):
        return json.loads((self.model(name) / "config.json").read_text())["vocab_size"]

    def prompts(self, model, new_tokens, lengths=PROMPT_LENGTHS):
        """Text for the demo model, else random tokens; no token ends a request."""
        result = []
        for i, length in enumerate(lengths):
            if model == "demo" and lengths is PROMPT_LENGTHS:
                tokens = list(TEXTS[i].encode())
            elif model == "demo":
                text = "".join(TEXTS[i % len(TEXTS):] + TEXTS) * (1 + length // 100)
                tokens = list(text.encode())[:length]
            else:
                generator = random.Random(f"{model}:{i}")
                top = self.vocab(model)
                tokens = [generator.randrange(top) for _ in range(length)]
            result.append({"id": f"r{i}", "tokens": tokens, "max_new_tokens": new_tokens,
                           "eos": []})
        return result

    # --- running
    def command(self, run, folder):
        write_lines(folder / "requests.jsonl", run.requests)
        device = run.device or self.device
        models = run.model if isinstance(run.model, dict) else {"": run.model}
        command = [*run.prefix, self.megalith, "run", self.pipeline(run.pipeline)]
        for name, checkpoint in models.items():
            command += ["--model", f"{name}={self.model(checkpoint)}" if name else self.model(checkpoint)]
        command += ["--requests", folder / "requests.jsonl", f"--device={device}", "--format=json"]
        for option, table in (("--set", run.sets), ("--plan", run.plan)):
            for key, value in table.items():
                command += [option, f"{key}={value}"]
        if run.drafts is not None:
            write_lines(folder / "drafts.jsonl",
                        [{"id": key, "tokens": value} for key, value in run.drafts.items()])
            command.append(f"--inject-drafts={folder / 'drafts.jsonl'}")
        if run.logits:
            command.append(f"--logits={folder / 'logits.bin'}")
        if run.trace or run.kv_hash:
            command += ["--trace", folder / "trace.jsonl"]
        if run.kv_hash:
            command.append("--kv-hash")
        return [str(part) for part in command + list(run.options)]

    def environment(self, more):
        return os.environ | {"MEGALITH_CACHE_DIR": str(self.work / "cache")} | more

    def folder(self):
        with self.lock:
            self.count += 1
            folder = self.work / "runs" / f"{self.count:04}-{self.section}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def execute(self, command, environment=None, timeout=240, folder=None):
        try:
            with self.processes:
                self.commands.write(" ".join(map(str, command)) + "\n")
                self.commands.flush()
                return subprocess.run([str(part) for part in command], capture_output=True,
                                      text=True, errors="replace", timeout=timeout, cwd=folder,
                                      env=self.environment(environment or {}))
        except subprocess.TimeoutExpired as late:
            raise Failure(f"no end after {timeout} s: {' '.join(map(str, command))}") from late

    def one(self, run, folder=None):
        folder = folder or self.folder()
        begin = time.time()
        process = self.execute(self.command(run, folder), run.environment, run.timeout)
        if run.check and process.returncode:
            raise Failure(f"exit status {process.returncode} of {folder.name}: "
                          f"{(process.stderr or process.stdout).strip()[-600:]}")
        return Outcome(run, folder, process, time.time() - begin)

    def all(self, runs, jobs=None):
        """Several runs at a time; one run per kernel first, so that each is compiled once."""
        folders, seen, waves = [self.folder() for _ in runs], set(), ([], [])
        for index, run in enumerate(runs):
            waves[run.compile_key() in seen].append(index)
            seen.add(run.compile_key())
        outcomes = [None] * len(runs)
        with concurrent.futures.ThreadPoolExecutor(jobs or self.jobs) as pool:
            for wave in waves:
                futures = {index: pool.submit(self.one, runs[index], folders[index])
                           for index in wave}
                for index, future in futures.items():
                    outcomes[index] = future.result()
        return outcomes

    def compile(self, pipeline, model, out, *options):
        """`megalith compile`; returns what it wrote to `out`."""
        process = self.execute([self.megalith, "compile", self.pipeline(pipeline),
                                "--model", self.model(model), "-o", out, *options])
        if process.returncode:
            raise Failure(f"compile {options}: {process.stderr.strip()[-600:]}")
        return pathlib.Path(out).read_text()

    # --- results
    def bar(self, what, measured, bar, ok):
        """One line of the table; `ok` None: recorded, no bar."""
        verdict = "-" if ok is None else "PASS" if ok else "FAIL"
        with self.lock:
            self.rows.append({"section": self.section, "what": what, "measured": str(measured),
                              "bar": str(bar), "verdict": verdict})
            print(f"{verdict:4} {self.section:9} {what:60} {str(measured):46} {bar}", flush=True)


def write_lines(path, values):
    path.write_text("".join(json.dumps(value) + "\n" for value in values))


def drafts_of(tokens, kind, vocab, seed=7):
    """Drafts to inject: the tokens themselves, noise, or every other one wrong."""
    result = {}
    for key, values in tokens.items():
        generator = random.Random(f"{seed}:{key}")
        noise = [generator.randrange(vocab) for _ in values]
        if kind == "perfect":
            result[key] = list(values)
        elif kind == "random":
            result[key] = noise
        else:
            result[key] = [(value + 1) % vocab if generator.random() < 0.5 else value
                           for value in values]
    return result
