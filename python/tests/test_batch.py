"""Programs, kernels, batches."""

import dataclasses
import inspect
import os
import signal
import subprocess
import sys
import threading

import megalith
import numpy as np
import pytest
from conftest import DEMO, PROMPTS, ROOT


def test_a_program_tells_what_it_is(program):
    assert program.name == "sampled"
    assert program.model_files == {"target": str(megalith.pipeline("sampled").parent.parent / "models/llama.yaml")}
    assert [(state.name, state.slot, state.terminal) for state in program.states] == [
        ("QUEUED", False, False),
        ("PREFILL", True, False),
        ("DECODE", True, False),
        ("COMPLETE", False, True),
        ("FAILED", False, True),
    ]
    assert program.vocabulary == 260 and program.byte_vocabulary and program.positions == 2048
    assert program.eos == [257]
    assert program.param("slots") == 8 and program.param("nothing") is None
    assert program.inputs == [] and program.messages == []
    assert program.reads_sampling and not megalith.compile(megalith.pipeline("autoregressive"), DEMO).reads_sampling
    assert os.path.samefile(program.config_file, DEMO / "config.json")
    assert "stage" in program.ir("control") and "verify" not in program.ast()
    with pytest.raises(ValueError, match="all, control, models"):
        program.ir("some")
    source = program.source()
    assert "__global__" in source.cuda and source.control[1] in source.cuda and source.manifest.startswith("{")


def test_the_package_and_the_library_have_one_version():
    import importlib.metadata

    assert importlib.metadata.version("megalith") == megalith.__version__


def test_params_texts_and_profile_are_used():
    text = megalith.pipeline("autoregressive").read_text()
    program = megalith.compile(
        "made-up.yaml", DEMO, params={"slots": 3}, texts={"made-up.yaml": text}, profile="a100", plan={"ctas": 4}
    )
    assert program.param("slots") == 3
    assert '"ctas":4' in program.source().manifest.replace(" ", "").replace("\n", "")


def test_a_batch(kernel):
    results = kernel.run(
        [
            megalith.Request(PROMPTS[0], 12, id="first"),
            {"text": PROMPTS[1], "max_new_tokens": 5, "id": 7},
            {"tokens": np.frombuffer(PROMPTS[2].encode(), np.uint8), "max_new_tokens": 3, "eos": [ord("e")]},
            megalith.Request([65, 66], 0),
        ],
        logits=True,
        trace=True,
    )
    assert [result.id for result in results] == ["first", 7, "2", "3"]
    first = results[0]
    assert first.tokens.dtype == np.int32 and bytes(first.tokens.tolist()) == b"of the world"
    assert first.logits.dtype == np.float32 and first.logits.shape == (12, 260)
    assert (first.logits.argmax(axis=1) == first.tokens).all()
    assert first.finish == "length" and first.state == "COMPLETE" and first.error is None
    assert first.append_tokens.sum() == 12 and len(first.append_times) == 12
    assert results[3].tokens.shape == (0,) and results[3].logits.shape == (0, 260)
    assert results.metrics["tokens_committed"] == sum(len(result.tokens) for result in results)
    assert len(results.trace.splitlines()) > results.ticks


def test_without_being_asked_there_are_no_logits_and_no_trace(kernel):
    results = kernel.run([megalith.Request([65], 2)])
    assert results[0].logits is None and results.trace is None


def test_eos_ends_a_request(kernel, expected):
    tokens = expected[PROMPTS[0]]
    for eos in tokens[2], [tokens[2]], frozenset({tokens[2], 259}):  # a `Tokenizer` has a set
        (result,) = kernel.run([megalith.Request(PROMPTS[0], 12, eos=eos)])
        assert result.finish == "stop" and result.tokens.tolist() == tokens[:3]


def test_stop_sequences_end_a_request(kernel):
    for stop in [[b"wor"], ["xyz", "wor"], [list(b"wor")]]:
        (result,) = kernel.run([megalith.Request(PROMPTS[0], 12, stop=stop)])
        assert result.finish == "stop" and bytes(result.tokens.tolist()) == b"of the wor"
    for stop in "wor", [1, 2]:
        with pytest.raises(TypeError, match="list of sequences"):
            kernel.run([megalith.Request(PROMPTS[0], 12, stop=stop)])


def test_draws_depend_on_the_seed(kernel):
    def draw(seed, run_seed=0):
        return kernel.run([megalith.Request(PROMPTS[0], 12, temperature=1.5, seed=seed)], seed=run_seed)[
            0
        ].tokens.tolist()

    assert draw(1) == draw(1)
    assert draw(1) != draw(2) and draw(1) != draw(1, 5)


def test_settings_that_follow_the_text(program, kernel):
    def tokens(**members):
        return kernel.run([megalith.Request(PROMPTS[0], 4, eos=[], **members)])[0].tokens.tolist()

    plain = tokens()
    assert not set(tokens(banned=plain)) & set(plain)
    assert tokens(bias={9: 1e4, np.int32(200): -1e4}) == tokens(bias=np.array([[9, 1e4]])) == [9] * 4
    assert tokens(allowed=np.array([200])) == [200] * 4
    first, *others = tokens(bias={9: 1e3}, frequency_penalty=2e3)
    assert first == 9 and others[0] != 9
    assert tokens(repetition_penalty=1, presence_penalty=0, min_new_tokens=0) == plain
    line = '{"id": 1, "text": "a", "max_new_tokens": 4, "sampling": {"bias": [[9, 0.5]], "banned": [3], "allowed": [9, 10]}}'
    (read,) = program.parse_requests(line, "r.jsonl")
    assert dict(read.bias) == {9: 0.5} and list(read.banned) == [3] and list(read.allowed) == [9, 10]
    with pytest.raises(ValueError, match="token 9 twice"):
        tokens(bias=[[9, 1], [9, 2]])
    for wrong in 5, "ab", [9, 1], [(9,)], {1.5: 2}:
        with pytest.raises(TypeError, match="`bias`"):
            tokens(bias=wrong)
    assert tokens(banned=None, allowed=None, bias=None) == tokens(banned=set(), bias={}) == plain


def test_files_of_requests(program, kernel, tmp_path):
    path = tmp_path / "R.jsonl"
    path.write_text(
        '{"id": "a", "text": "In ", "max_new_tokens": 2}\n{"id": 2, "tokens": [65], "max_new_tokens": 1, "eos": 3, "stop": [[4, 5]], "sampling": {"seed": 4}}\n'
    )
    first, second = program.read_requests(path)
    assert first.id == "a" and first.prompt.tolist() == [73, 110, 32] and first.eos.tolist() == [257]
    assert (
        second.id == 2
        and second.eos.tolist() == [3]
        and [s.tolist() for s in second.stop] == [[4, 5]]
        and second.seed == 4
    )
    assert [result.id for result in kernel.run([first, second])] == ["a", 2]
    with pytest.raises(megalith.Error) as caught:
        program.parse_requests('\n{"id": 1}', "mine.jsonl")
    message = caught.value.first
    assert (message.file, message.line) == ("mine.jsonl", 2)


@pytest.mark.parametrize(
    "request_, error, what",
    [
        ({"prompt": [1.5], "max_new_tokens": 1}, TypeError, "list of integers"),
        ({"prompt": [[1]], "max_new_tokens": 1}, TypeError, "list of integers"),
        ({"prompt": [2**31], "max_new_tokens": 1}, megalith.Error, "from -2147483648 to 2147483647, found 2147483648"),
        ({"prompt": [1], "max_new_tokens": 1.0}, TypeError, "max_new_tokens"),
        ({"prompt": [1], "max_new_tokens": True}, TypeError, "max_new_tokens"),
        ({"prompt": [1], "tokens": [1], "max_new_tokens": 1}, TypeError, "one prompt"),
        ({"prompt": [1], "max_new_tokens": 1, "what": 2}, TypeError, "no `what`"),
        ({"prompt": [1], "max_new_tokens": 1, "id": 1.5}, TypeError, "`id`"),
        ({"prompt": [1], "max_new_tokens": 1, "arrives": {"day": 1}}, TypeError, "arrives"),
        ({"prompt": [1], "max_new_tokens": None}, TypeError, "max_new_tokens"),
        ({"prompt": [1], "max_new_tokens": 1, "logprobs": 2}, TypeError, "`logprobs` is for sessions"),
        (7, TypeError, "a request is"),
    ],
)
def test_what_is_no_request_is_refused(kernel, request_, error, what):
    with pytest.raises(error, match=what):
        kernel.run([request_])


@pytest.mark.parametrize(
    "request_, kind",
    [
        ({"prompt": [999], "max_new_tokens": 1}, "request-token-range"),
        ({"prompt": [], "max_new_tokens": 1}, "request-empty-prompt"),
        ({"prompt": [1], "max_new_tokens": -1}, "request-budget"),
        ({"prompt": [1], "max_new_tokens": 10**6}, "request-too-large"),
        ({"prompt": [1], "max_new_tokens": 1, "temperature": -1}, "request-sampling"),
        ({"prompt": [1], "max_new_tokens": 1, "allowed": []}, "request-sampling"),
        ({"prompt": [1], "max_new_tokens": 1, "banned": [999]}, "request-token-range"),
        ({"prompt": [1], "max_new_tokens": 1, "allowed": [3], "banned": [3]}, "request-edits"),
        ({"prompt": [1], "max_new_tokens": 1, "inputs": {"x": 1}}, "request-input"),
    ],
)
def test_what_can_never_run_is_refused(kernel, request_, kind):
    with pytest.raises(megalith.Error) as caught:
        kernel.run([request_])
    assert caught.value.kind == kind


def test_options_are_checked(program, kernel):
    with pytest.raises(ValueError, match="'cuda'"):
        program.load("gpu")
    with pytest.raises(ValueError, match="'resident'"):
        kernel.run([], control="mine")
    with pytest.raises(megalith.Error) as caught:
        kernel.run([megalith.Request([1], 1)], control="host")
    assert caught.value.kind == "run-options"


def test_errors_have_places_and_advice():
    text = megalith.pipeline("sampled").read_text().replace("\nstages:", "\nstagse:")
    with pytest.raises(megalith.Error) as caught:
        megalith.compile("wrong.yaml", DEMO, texts={"wrong.yaml": text})
    error = caught.value
    message = error.first
    assert error.kind == message.kind == "unknown-key"
    assert (
        message.file == "wrong.yaml"
        and text.splitlines()[message.line - 1].startswith("stagse:")
        and message.column == 1
    )
    assert message.notes[0].message == "did you mean `stages`?"
    assert f"wrong.yaml:{message.line}:1: error: unknown key `stagse`" in str(error) and "^" in str(error)


def test_bytes_that_are_no_text_do_no_harm(tmp_path):
    folder = tmp_path / os.fsdecode(b"\xff")
    with pytest.raises(megalith.Error) as caught:
        megalith.compile(folder / "x.yaml")
    assert caught.value.kind == "cannot-read-file" and str(caught.value).isprintable()


def test_errors_can_be_pickled():
    import pickle

    with pytest.raises(megalith.Error) as caught:
        megalith.compile("nowhere.yaml")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert copy.messages == caught.value.messages and str(copy) == str(caught.value)


def test_a_run_that_is_cut_off_says_so(kernel):
    results = kernel.run([megalith.Request(PROMPTS[0], 100)], max_ticks=5)
    assert results[0].finish == "limit" and results[0].error.kind == "request-limit"


def test_inspect():
    found = megalith.inspect(DEMO)
    assert found.runs and found.models[0]["shape"]["layers"] == 6
    assert "megalith/share" in found.models[0]["file"]  # of the package
    assert not megalith.inspect(ROOT / "pipelines").runs
    assert "QUEUED" in megalith.state_diagram(megalith.pipeline("sampled"))


def test_pipelines_come_with_the_package():
    assert set(megalith.pipelines()) == {path.stem for path in (ROOT / "pipelines").glob("*.yaml")}
    with pytest.raises(ValueError, match="autoregressive"):
        megalith.pipeline("nothing")


def test_threads_share_a_kernel(kernel, expected):
    got = {}

    def work(prompt):
        got[prompt] = kernel.run([megalith.Request(prompt, 12)])[0].tokens.tolist()

    threads = [threading.Thread(target=work, args=(prompt,)) for prompt in PROMPTS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == expected


def test_progress_is_told(program):
    told = []
    program.load("reference", progress=told.append)
    assert told[-1] == ""


def test_the_cpu_executor_gives_the_same(program, expected):
    kernel = program.load("cpu")
    assert kernel.device == "cpu" and "__global__" in kernel.cuda and kernel.weights["bytes"] > 0
    (result,) = kernel.run([megalith.Request(PROMPTS[0], 4)])
    assert result.tokens.tolist() == expected[PROMPTS[0]][:4]


def test_ctrl_c_ends_a_batch():
    script = f"""
import megalith
kernel = megalith.compile(megalith.pipeline("sampled"), {str(DEMO)!r}).load("reference")
told = []
def progress(what):
    if not told:
        told.append(what)
        print("runs", flush=True)
try:
    kernel.run([megalith.Request([65] * 100, 1900) for _ in range(1000)], progress=progress)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    print(kernel.run([megalith.Request([65], 1)])[0].finish, flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "runs\n"  # all of it takes hours
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=120)
    assert out == "interrupted\nlength\n" and process.returncode == 0


def test_no_new_tokens(kernel):
    for options in {}, {"logits": True}:
        (result,) = kernel.run([megalith.Request("abc", 0)], **options)
        assert result.tokens.tolist() == [] and result.finish == "length"


@pytest.mark.parametrize("name, value", [("seed", -1), ("seed", 2**32), ("max_ticks", 2**63), ("delay_seed", -1), ("shuffle_pages", 2**64)])
def test_numbers_out_of_range_have_their_limits(kernel, name, value):
    with pytest.raises(megalith.Error, match=f"`{name}` must be from .* to .*, found {value}"):
        kernel.run([megalith.Request("a", 1)], **{name: value})


@pytest.mark.parametrize("value", [5, "x", [1]])
def test_arguments_of_another_type(kernel, value):
    """They are `TypeError` with the name."""
    with pytest.raises(TypeError, match="`inputs` must be a dict, found"):
        kernel.run([megalith.Request("a", 1, inputs=value)])
    for name in "models", "params", "texts":
        with pytest.raises(TypeError, match=f"`{name}` must be a dict, found"):
            megalith.compile(megalith.pipeline("sampled"), DEMO, **{name: value})
    with pytest.raises(TypeError, match="`tokenizer` must be one of `megalith.text.load`, found"):
        kernel.session(tokenizer=value)
    with kernel.session() as session, pytest.raises(TypeError, match="`request` must be a number"):
        session.cancel(None)


@pytest.mark.parametrize("name, value", [("seed", -1), ("top_k", 2**63), ("temperature", 10**400), ("priority", 2**64)])
def test_so_have_those_of_requests(kernel, name, value):
    with pytest.raises(megalith.Error, match=f"`{name}` must be from .* to .*, found {value}"):
        kernel.run([megalith.Request("a", 1, **{name: value})])


def test_names_and_defaults_are_those_of_the_library(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    from update_api import entries

    values = {"false": False, "{}": ""}
    others = {"replay": None}  # or ""
    missing = {"replay_name", "replay_epsilon", "replay_error"}  # of `megalith run`
    for function, name in (megalith.Kernel.run, "RunOptions.def"), (megalith.Session.__init__, "LiveOptions.def"):
        parameters = inspect.signature(function).parameters
        for each in entries(name, ["NUMBER", "FLAG", "TEXT"]):
            if each.snake not in missing:
                value = values.get(each.default, each.default)
                value = float(value) if each.type == "double" else int(value) if each.type not in ("bool", "std::string") else value
                assert parameters[each.snake].default == others.get(each.snake, value), each.snake
    members = {each.name: each.default for each in dataclasses.fields(megalith.Request)}
    for each in entries("Request.def", ["REQUEST", "SAMPLING", "EDIT"]):
        assert each.snake == "max_new_tokens" or members[each.snake] == float(each.default), each.snake
    ends = {each.snake for each in entries("RequestEnd.def", ["END"])}
    assert ends <= {each.name for each in dataclasses.fields(megalith.Result)}
    assert {each.name for each in dataclasses.fields(megalith.End)} == ends | {
        each.snake for each in entries("RequestEnd.def", ["LIVE_END"])
    }


TABLES = """
pipeline: tables
models: {target: {}}
request: {texts: "token[3, 4] = input([])", grades: "f32[2, 2] = input"}
states:
  fault: FAILED
  QUEUED: {initial: true, next: [GIVE]}
  GIVE: {slot: true, next: [DONE]}
  DONE: {terminal: true}
  FAILED: {terminal: true}
kv: {target: {pages: 8, page_tokens: 4}}
stages:
  admit: {on: QUEUED, do: [], goto: GIVE}
  give:
    on: GIVE
    do:
      - sum_: sum(i in 0..len(grades), sum(j in 0..len(grades[i]), grades[i][j]))
      - append([token(len(texts)), token(i32(sum_ * 2.0))] + (texts[-1] if len(texts) > 0 else []))
    goto: DONE
"""


def test_inputs_that_are_tables():
    program = megalith.compile("tables.yaml", DEMO, texts={"tables.yaml": TABLES}, params={})
    texts, grades = program.inputs
    assert (texts.rows, texts.capacity, texts.spelling, texts.default) == (3, 4, "token[3, 4]", [])
    assert grades.rows == 2 and grades.required
    kernel = program.load("reference")

    def tokens(**inputs):
        (result,) = kernel.run([megalith.Request([1], 8, eos=[], inputs=inputs)])
        return result.tokens.tolist()

    assert tokens(grades=[]) == [0, 0]
    assert tokens(grades=[[1, 2], [0.5]], texts=[[1], [2, 3]]) == [2, 7, 2, 3]
    assert tokens(grades=np.array([[1, 2], [3, 4]]), texts=["ab", "cd"]) == [2, 20, 99, 100]
    assert tokens(grades=[[], []], texts=[[], [], []]) == [3, 0]
    with kernel.session() as session:
        assert list(session.generate([1], 8, eos=[], inputs={"grades": [[2]], "texts": [[9]]})) == [1, 4, 9]
    for wrong in 5, [5], "ab", [[[1]]]:
        with pytest.raises((TypeError, megalith.Error), match="grades"):
            tokens(grades=wrong)
    with pytest.raises(megalith.Error, match="has 3 rows, more than the 2"):
        tokens(grades=[[1], [1], [1]])
