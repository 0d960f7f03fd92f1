"""Calls of pipelines of buffers: arrays of NumPy, on the executors that need no GPU."""

import megalith
import numpy as np
import pytest

TEXT = """pipeline: halves
dims: {n: 0..64, m: 1..4}
buffers:
  x:    {shape: '[n, m]', dtype: i64}
  sums: {shape: '[n]', dtype: i32}
  half: {shape: '[n]', dtype: f32}
  odd:  {shape: '[n]', dtype: bool}
  bits: {shape: '[n, m]', dtype: f16}
  kept: {shape: '[n, m]', dtype: f16}
stages:
  add:
    over: i in 0..n
    do:
      - s: sum(j in 0..m, x[i][j])
      - sums[i]: s
      - half[i]: f32(s) / 2
      - odd[i]: s % 2 != 0
  keep:
    over: i in 0..n
    do:
      - kept[i][:]: bits[i][:]
"""


@pytest.fixture(scope="module", params=["reference", "cpu"])
def kernel(request):
    return megalith.compile("halves.yaml", texts={"halves.yaml": TEXT}).load(device=request.param)


def buffers(n=3, m=2):
    x = np.arange(n * m, dtype=np.int64).reshape(n, m)
    return {
        "x": x,
        "sums": np.full(n, 9, np.int32),
        "half": np.full(n, 9, np.float32),
        "odd": np.zeros(n, bool),
        "bits": np.arange(n * m, dtype=np.float16).reshape(n, m),
        "kept": np.zeros((n, m), np.float16),
    }


@pytest.mark.parametrize("n", [0, 1, 3, 64])
def test_a_call(kernel, n):
    given = buffers(n)
    assert kernel(**given) is None
    total = given["x"].sum(axis=1)
    assert given["sums"].tolist() == total.tolist()
    assert given["half"].tolist() == (total / 2).tolist()
    assert given["odd"].tolist() == (total % 2 != 0).tolist()
    assert given["kept"].tobytes() == given["bits"].tobytes()
    kernel.check()


def test_a_launch_for_each_stage(kernel):
    given = buffers()
    kernel.call(given, control="host")
    assert given["sums"].tolist() == [1, 5, 9]
    with pytest.raises(ValueError, match="control must be one of"):
        kernel.call(given, control="graph")


@pytest.mark.parametrize(
    "name, value, text",
    [
        ("x", np.zeros((3, 2), np.int16), "buffer `x` has elements that no buffer has"),
        ("x", np.zeros((3, 4), np.int64)[:, ::2], "buffer `x` has gaps, or another order than row-major"),
        ("x", 3, "buffer `x` is no array"),
        ("x", [[1, 2], [3, 4], [5, 6]], "buffer `x` is no array"),
    ],
)
def test_what_is_no_buffer(kernel, name, value, text):
    with pytest.raises(TypeError, match=text):
        kernel(**{**buffers(), name: value})


@pytest.mark.parametrize(
    "name, value, text",
    [
        ("x", np.zeros((3, 2), np.float32), "buffer `x` is of i64, and the tensor of f32"),
        ("sums", np.zeros(2, np.int32), "dim `n` is 3 by buffer `x`, and 2 by `sums`"),
        ("more", np.zeros(2, np.int32), "the pipeline has no buffer `more`"),
    ],
)
def test_what_is_no_call(kernel, name, value, text):
    with pytest.raises(megalith.Error, match="call-buffers") as error:
        kernel(**{**buffers(), name: value})
    assert text in str(error.value)


def test_a_buffer_of_another_one(kernel):
    given = buffers()
    given["kept"] = given["bits"]
    with pytest.raises(megalith.Error, match="overlaps"):
        kernel(**given)
    del given["kept"]
    with pytest.raises(megalith.Error, match="buffer `kept` is missing"):
        kernel(**given)


def test_a_fault(kernel):
    given = buffers()
    given["x"][1, 1] = 1 << 40
    with pytest.raises(megalith.Error, match="VALUE_RANGE"):
        kernel(**given)


def test_it_has_no_requests(kernel):
    with pytest.raises(megalith.Error, match="a pipeline of buffers has no requests"):
        kernel.run([])
    with pytest.raises(megalith.Error, match="a pipeline of buffers has no requests"):
        kernel.session()
